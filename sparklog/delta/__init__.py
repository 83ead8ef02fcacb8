"""Delta tables of topics: what stands in a table's log, and which files a table should list.

Rules: ``actions``, ``checkpoint``, ``publication`` and ``table_schema`` are pure; ``table_log`` reads and writes
through a store. The commit log alone says which records a topic has; a table shows a version of it to others' readers.
Not for: when tables are published (``maintenance.tables``), and the files themselves (``format.parquet.writer``).
"""
