"""Stand-ins for the classes of ``pyspark.sql.streaming.datasource``, by which Spark 4.2 and newer ask a source for the
limits of a micro-batch. An older Spark never uses them.

Not for: Sparks that have the classes.
"""

from __future__ import annotations

from dataclasses import dataclass


class ReadLimit:
    """How much a micro-batch takes."""


@dataclass(frozen=True)
class ReadAllAvailable(ReadLimit):
    """All the records there are."""


@dataclass(frozen=True)
class ReadMaxRows(ReadLimit):
    """About ``max_rows`` records."""

    max_rows: int


@dataclass(frozen=True)
class ReadMinRows(ReadLimit):
    """At least ``min_rows`` records."""

    min_rows: int


class SupportsTriggerAvailableNow:
    """Marks a source that fixes the end of a query itself. An older Spark asks for the newest offset once instead."""
