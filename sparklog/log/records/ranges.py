"""Reads a range of a partition while its segments are rolled, compacted and deleted.

A list of segments is a snapshot. By the time a file is read, it may have been merged into another one and deleted: then
the rest of the range is looked up again and read from the current files. Records are lost only if the newest list still
names the file that cannot be read.

Rules: offsets never change, so a range read partly from old and partly from new files has each record once.
Not for: looking up the newest list, which the caller passes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from sparklog.errors import DataLossError, SparklogError, StorageError
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.records import Records
from sparklog.protocol.segments import Segment

Newest = Callable[[int, int, SparklogError], Sequence[Segment]]
"""(start, end, error) -> the segments that hold this range now. Raises the error if they are unknown."""


def read_range(
    fetcher: Fetcher,
    topic: str,
    segments: Iterable[Segment],
    start: int,
    end: int,
    columns: Sequence[str] | None,
    newest: Newest,
) -> Iterator[tuple[Segment, Records]]:
    """Yield the records of ``[start, end)`` in offset order, with their segments, one stored batch at a time.

    Raises as ``Fetcher.read`` and as ``newest``.
    """
    failed: set[str] = set()
    while True:
        segment: Segment | None = None
        try:
            for segment in segments:
                for records in fetcher.read(topic, [segment], start, end, columns):
                    start = records.end_offset
                    yield segment, records
                start = max(start, min(segment.end_offset, end))
            return
        except (DataLossError, StorageError) as error:
            if segment is None:
                raise
            segments = newest(start, end, error)
            if segment.path in failed and any(current.path == segment.path for current in segments):
                raise error
            failed.add(segment.path)
