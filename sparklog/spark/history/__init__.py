"""``sparklog.table``: a topic's history by Spark's own Parquet reader, and the records after it, as one DataFrame.

Rules: the files and offsets are those of one version of the log, chosen when the DataFrame is made.
Not for: ``format("sparklog")`` (``source``), and the Delta table that others read (``maintenance.tables``).
"""
