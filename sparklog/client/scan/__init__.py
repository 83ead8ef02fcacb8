"""Reading a topic as a table without Spark: a scan, its filters, and snapshots of all topics.

Not for: consumers, and Spark's reads.
"""
