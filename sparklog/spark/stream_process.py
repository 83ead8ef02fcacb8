"""What a query's Python processes need once, however many batches they see.

Spark keeps its Python processes from batch to batch and collects garbage in each after every task: with pyspark,
pyarrow and sparklog loaded that takes some 50 ms of a core, three or four times a batch, for objects that were there
before and will stay. Objects that are set aside once are not looked at again; after that it takes 1 ms.

Rules: does nothing outside of Spark's processes. Not for: batch jobs, whose tasks are long.
"""

from __future__ import annotations

import gc
import sys

DAEMON = "pyspark.daemon"
"""The module that Spark's Python processes are forked from."""


def set_aside_loaded_objects() -> None:
    """Exempt what this process has loaded from garbage collection, once, if it is one of Spark's."""
    if not gc.get_freeze_count() and is_of_spark():
        gc.freeze()


def is_of_spark() -> bool:
    """Whether this is a process that Spark runs Python in."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", "") == DAEMON
