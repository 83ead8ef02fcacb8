"""History segments: Parquet files whose row groups are the record batches of the log, written and read with our index.

Not for: the Delta table that lists them (``delta``).
"""
