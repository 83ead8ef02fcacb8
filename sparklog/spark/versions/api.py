"""Spark's classes and functions that not every version has, or has in the same form.

Rules: Spark's own processes import this module, so it imports little. Not for: who uses them.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS: bool
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:
        from sparklog.spark.versions.limits import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = False

    if hasattr(datasource, "DataSourceStreamArrowWriter"):
        StreamArrowWriter = datasource.DataSourceStreamArrowWriter
    else:

        class StreamArrowWriter(datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter):
            """A writer of streams that is passed Arrow batches: a task looks for the class of batch writers alone."""


__all__ = [
    "HAS_LIMITS",
    "LIMITS_SINCE",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "base_push_filters",
    "checkpoint_file_manager",
    "warn_of_limits",
]

LIMITS_SINCE = "4.2"
"""The first Spark that asks a source in Python for the limits of a micro-batch. HAS_LIMITS: this one does."""

logger = logging.getLogger(__name__)

base_push_filters: Any = getattr(datasource.DataSourceReader, "pushFilters", None)
"""The method of Spark's base class of readers; None if this Spark pushes no filters down."""

_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return exactly the Arrow schema that Spark expects for this schema."""
    return to_arrow_schema(schema, **_UTC)


@cache
def warn_of_limits(names: tuple[str, ...]) -> None:
    """Log once in this process that options that limit a micro-batch have no effect on this Spark."""
    logger.warning(
        "%s: no effect before Spark %s, which does not ask sources in Python for a limit: each micro-batch takes all "
        "the records there are. maxRecordsPerPartition limits the records of one task",
        ", ".join(names),
        LIMITS_SINCE,
    )


def has_unix_sockets() -> bool:
    """Return whether Spark can talk to its Python processes over Unix sockets, as it can from 4.1 on."""
    start = getattr(importlib.import_module("pyspark.accumulators"), "_start_update_server", None)
    return start is not None and "is_unix_domain_sock" in inspect.signature(start).parameters


def checkpoint_file_manager() -> str:
    """Return the class that writes checkpoints by Hadoop's FileSystem. Spark 4.1 moved it, when it got the Arrow writer
    of streams."""
    moved = ".checkpointing" if hasattr(datasource, "DataSourceStreamArrowWriter") else ""
    return f"org.apache.spark.sql.execution.streaming{moved}.FileSystemBasedCheckpointFileManager"
