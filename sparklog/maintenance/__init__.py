"""What keeps a log healthy for years: rolling, retention, compaction, replicas, repair, and the loop that runs them.

Each job is a plan (decided in ``protocol``), tasks that write files, and one commit. Tasks are run by whatever is
passed in: this process, a pool of processes (``runner``), or Spark (``sparklog.spark.jobs.runner``).

Rules: nothing here has to run for reads and writes to go on; a job that is killed at any step leaves files that are not
part of the log and nothing else; no pyspark.
"""
