"""Every difference between versions of Spark, so that the rest of ``sparklog.spark`` is written for one Spark.

    part                                      since   before it
    data sources in Python, Arrow batches     4.0     an error: ``required``
    Arrow batches in the writer of a stream   4.1     a batch writer's class, which Spark's tasks accept in streams too
    filters that Spark pushes down            4.1     rows are filtered after they are read
    limits of a micro-batch                   4.2     a micro-batch takes all the records there are, with a warning
    time zone of an Arrow schema              4.2     it is always UTC

Rules: what a Spark has is found out from its API, not from its number; numbers are for messages.
Not for: what kind of session it is, classic or Spark Connect (``own_session``).
"""
