"""What Spark's Python processes need once, however much they do.

Spark keeps its Python processes from batch to batch and collects garbage in each after every task: with pyspark,
pyarrow and sparklog loaded that takes some 50 ms of a core, three or four times a batch, for objects that were there
before and will stay. Objects that are set aside once are not looked at again; after that it takes 1 ms.

A process that is done flushes what it has for Spark, which may have hung up by then. Over a Unix domain socket
(``spark.python.unix.domain.socket.enabled``) that fails at once, and Spark's daemon prints a traceback though nothing
is wrong. Processes that have loaded sparklog do not print this one.

Rules: does nothing outside of Spark's processes. Not for: batch jobs, whose tasks are long (garbage).
"""

from __future__ import annotations

import builtins
import gc
import sys
import traceback
from typing import Any

DAEMON = "pyspark.daemon"
"""The module that Spark's Python processes are forked from."""


def set_aside_loaded_objects() -> None:
    """Exempt what this process has loaded from garbage collection, once, if it is one of Spark's."""
    if not gc.get_freeze_count() and is_of_spark():
        gc.freeze()


def keep_quiet_when_spark_hangs_up() -> None:
    """Have Spark's daemon print nothing where a flush at the end of this process fails since Spark has hung up."""
    if is_of_spark():
        vars(sys.modules["__main__"]).update(print=_print_unless_hung_up, traceback=_TracebackUnlessHungUp())


class _TracebackUnlessHungUp:
    """The module ``traceback``, but for what it would print of a broken pipe while that is handled."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()


def _print_unless_hung_up(*values: Any, **how: Any) -> None:
    """``print``, but for what is said of a broken pipe while that is handled."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        builtins.print(*values, **how)  # noqa: T201 - what Spark's own code prints


def is_of_spark() -> bool:
    """Whether this is a process that Spark runs Python in."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", "") == DAEMON
