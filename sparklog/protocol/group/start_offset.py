"""Where a consumer starts in a partition: at its committed offset, or as ``auto.offset.reset`` says. Pure.

Not for: ``by_duration``, which needs a look-up by time, and the error for ``none`` (``client.consumer.positions``,
``spark.group.task``).
"""

from __future__ import annotations

EARLIEST, LATEST, NONE = "earliest", "latest", "none"
"""Values of ``auto.offset.reset``."""


def find_start(reset: str, log_start: int, log_end: int, committed: int | None = None) -> int | None:
    """Return the committed offset if it is in the log ``[log_start, log_end]``, else the offset that ``reset`` names;
    None if it names none, which is the caller's error to raise."""
    if committed is not None and log_start <= committed <= log_end:
        return committed
    return {EARLIEST: log_start, LATEST: log_end}.get(reset)
