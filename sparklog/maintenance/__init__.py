"""Maintenance: rolling, retention, compaction, replication, garbage collection, fsck, and the loop that runs them.

Each job is a plan (decided in ``protocol``), tasks that write files, and one commit. The caller passes in a task
runner: this process, a pool of processes (``runner``), or Spark (``sparklog.spark.jobs.runner``).

Rules: reads and writes work without any of this running; a job that is killed at any step leaves only files that are
not part of the log; no pyspark.
"""
