"""Tune Spark's Python processes: cheaper garbage collection, and no traceback after a closed socket.

Spark keeps its Python processes and collects garbage in each after every task and every call: with pyspark, pyarrow and
sparklog loaded that takes 20 to 50 ms of a core, for objects that live as long as the process. Objects that are frozen
are not scanned again; a collection then takes 1 ms. Much is loaded by the first task only, and Spark tells nobody that
a task has ended: the objects of the first few arrivals, two for a task that reads, find what the tasks before them
have loaded.

A process that ends flushes its output to Spark, which may have closed the connection by then. Over a Unix domain socket
(``spark.python.unix.domain.socket.enabled``) the flush fails immediately, and Spark's daemon prints a traceback, though
nothing is wrong. Processes that have loaded sparklog do not print it.

Rules: does nothing outside of Spark's processes; is done a few times in each and then never again, so that what a
long-lived one drops is still collected. Not for: threads and sockets of Spark.
"""

from __future__ import annotations

import builtins
import gc
import sys
import traceback
from itertools import count
from typing import Any

DAEMON = "pyspark.daemon"
"""The module that Spark's Python processes are forked from."""
FREEZES = 4
"""calls of ``freeze_loaded_objects`` that do so: those of two tasks that read, or of four that write."""

_calls = count()


def freeze_loaded_objects() -> None:
    """Exempt what this process has loaded from garbage collection, if it is one of Spark's and this is one of the first
    ``FREEZES`` calls."""
    # Not by gc.get_freeze_count(): it counts the objects one by one, which takes milliseconds.
    if next(_calls) < FREEZES and is_of_spark():
        gc.freeze()


def keep_quiet_when_spark_hangs_up() -> None:
    """Keep Spark's daemon from printing a traceback if the flush at the end of this process fails because Spark has
    closed the connection."""
    if is_of_spark():
        vars(sys.modules["__main__"]).update(print=_print_unless_hung_up, traceback=_TracebackUnlessHungUp())


class _TracebackUnlessHungUp:
    """The module ``traceback``, except that it does not print a broken pipe."""

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)

    def print_exc(self) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            traceback.print_exc()


def _print_unless_hung_up(*values: Any, **how: Any) -> None:
    """Print, except while a broken pipe is being handled."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        builtins.print(*values, **how)  # noqa: T201 - output of Spark's own code


def is_of_spark() -> bool:
    """Return whether this process is one of Spark's Python processes."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", "") == DAEMON
