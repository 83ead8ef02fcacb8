"""Which Spark ``sparklog.spark`` needs.

Rules: imports nothing of Spark, so that the check costs nothing and comes before Spark's own errors.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec

OLDEST_SPARK = "4.0"
"""The first version with data sources in Python."""


def check_spark() -> None:
    """Raise ModuleNotFoundError, which says what to install, if this Python has no Spark, or one that is too old."""
    spark = find_spec("pyspark")
    if spark is None:
        raise ModuleNotFoundError(
            "sparklog.spark needs Spark, and this Python has no pyspark: pip install 'sparklog[spark]'", name="pyspark"
        )
    if not _has_data_sources(spark):
        raise ModuleNotFoundError(
            f"sparklog.spark needs Spark {OLDEST_SPARK} or newer, and this Python has pyspark {_version()}, without "
            "data sources in Python: pip install 'sparklog[spark]'. Producer, Consumer and the command line need no "
            "Spark",
            name="pyspark.sql.datasource",
        )


def _has_data_sources(spark: ModuleSpec) -> bool:
    """Return whether there is a module ``pyspark.sql.datasource``, without importing the packages above it."""
    sql = PathFinder.find_spec("pyspark.sql", spark.submodule_search_locations)
    if sql is None:
        return False
    return PathFinder.find_spec("pyspark.sql.datasource", sql.submodule_search_locations) is not None


def _version() -> str:
    from pyspark.version import __version__

    return str(__version__)
