"""What this Spark lacks, for the tests that show what only newer ones do (docs/compatibility.md)."""

from __future__ import annotations

import pytest

from sparklog.spark.versions.api import HAS_LIMITS, LIMITS_SINCE, base_push_filters

needs_limits = pytest.mark.skipif(
    not HAS_LIMITS,
    reason=f"before Spark {LIMITS_SINCE} a micro-batch takes all records there are, and availableNow is one batch",
)
needs_push_down = pytest.mark.skipif(
    base_push_filters is None,
    reason="Spark 4.0 pushes no filters down to sources in Python, and plans each query of them anew",
)
needs_column_defaults = pytest.mark.skipif(
    base_push_filters is None, reason="in Spark 4.0 an INSERT has to name all columns of a table of a Python source"
)
needs_bytes = pytest.mark.skipif(base_push_filters is None, reason="Spark 4.0 shows binary values as bytearray")
