"""Reading a range of a partition while its segments are rolled, compacted and deleted.

A list of segments is of one moment. Files of it may be gone when their turn comes, since they were merged into others
meanwhile: then the rest of the range is looked up anew, and read from what there is now. Records are lost only if the
newest list still names the file that cannot be read.

Rules: offsets never change, so a range read half from old and half from new files has each record once.
Not for: what the newest list is, which the caller knows how to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from sparklog.errors import DataLossError, SparklogError, StorageError
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.records import Records
from sparklog.protocol.segments import Segment

Newest = Callable[[int, int, SparklogError], Sequence[Segment]]
"""(start, end, what happened) -> the segments that hold this range now. Raises what happened where it cannot tell."""


def read_range(
    fetcher: Fetcher,
    topic: str,
    segments: Iterable[Segment],
    start: int,
    end: int,
    columns: Sequence[str] | None,
    newest: Newest,
) -> Iterator[tuple[Segment, Records]]:
    """The records of ``[start, end)`` in offset order, with their segments, a stored batch at a time.

    Errors as ``Fetcher.read`` and as ``newest``.
    """
    failed: set[str] = set()
    while True:
        reading: Segment | None = None
        try:
            for reading in segments:
                for records in fetcher.read(topic, [reading], start, end, columns):
                    start = records.end_offset
                    yield reading, records
                start = max(start, min(reading.end_offset, end))
            return
        except (DataLossError, StorageError) as error:
            if reading is None:
                raise
            segments = newest(start, end, error)
            if reading.path in failed and any(segment.path == reading.path for segment in segments):
                raise error
            failed.add(reading.path)
