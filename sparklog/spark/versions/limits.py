"""Stand-ins for the classes of ``pyspark.sql.streaming.datasource``, by which Spark 4.2 and newer ask a source for the
limits of a micro-batch. An older Spark never uses them.

Not for: Sparks that have the classes.
"""

from __future__ import annotations


class ReadLimit:
    """How much a micro-batch takes."""


class ReadAllAvailable(ReadLimit):
    """All the records there are."""


class ReadMaxRows(ReadLimit):
    """About ``max_rows`` records."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows


class ReadMinRows(ReadLimit):
    """At least ``min_rows`` records."""

    def __init__(self, min_rows: int) -> None:
        self.min_rows = min_rows


class SupportsTriggerAvailableNow:
    """Marks a source that fixes the end of a query itself. An older Spark asks for the newest offset once instead."""
