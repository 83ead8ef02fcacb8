"""The history of a partition: which of its live segments a Delta table, or Spark's own reader, shows.

Rules: pure. Not for: which segments become history (``plan.rolling``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sparklog.protocol.segments import Segment


def history_of(segments: Iterable[Segment], log_start_offset: int) -> Iterator[Segment]:
    """Yield the history segments of a partition from the log start offset on, up to the first segment that is not a
    history segment: so the records that history shows have no hole."""
    for segment in segments:
        if segment.end_offset <= log_start_offset:
            continue
        if not segment.is_history:
            return
        yield segment
