"""How Spark finds sparklog by itself: it imports each top-level package ``pyspark_*`` and takes its ``DefaultSource``.

With sparklog installed beside the driver, ``format("sparklog")`` and ``USING sparklog`` work without ``register``.
"""

from sparklog.spark.data_source import SparklogDataSource as DefaultSource

__all__ = ["DefaultSource"]
