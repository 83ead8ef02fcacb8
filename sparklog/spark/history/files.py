"""Which files hold a topic's history at one version of the log, and which of them a query needs.

Rules: pure, no Spark. Not for: the files of the rest of the log, which ``format("sparklog")`` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from sparklog.log.records.read_order import replicas_in_sync
from sparklog.log.segments import TopicSegments
from sparklog.protocol.history import history_of
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.spark.history.typed_filters import NO_FILTERS, TypedFilters
from sparklog.spark.source.filters import Pruning

HADOOP_SCHEMES = {"s3": "s3a"}
"""Schemes by which Hadoop's file systems, and so Spark's own readers, know a storage, where they differ from ours."""

READ_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
"""Settings of Spark's Parquet reader, whatever those of the session are: the checksums of pages are verified, damage
and loss are errors, and dates are those that were written."""


class HistoryFile(NamedTuple):
    """A history segment as a query plans it: the address of its file in Spark's words, bytes, and what is
    in it (``stats`` as in ``Segment``)."""

    address: str
    size: int
    partition: int
    first_offset: int
    last_offset: int
    min_timestamp_us: int
    max_timestamp_us: int
    stats: str = ""


class PartitionCut(NamedTuple):
    """A partition at one version: its records from ``start`` on are history up to ``history_end``, and in other
    segments, of ``tail_bytes``, up to ``end``. ``is_cut``: files of the history also have other records."""

    start: int
    history_end: int
    end: int
    is_cut: bool
    tail_bytes: int


class TopicHistory(NamedTuple):
    """A topic at one version of the log: the files of its history, and where each partition is cut."""

    files: Sequence[HistoryFile]
    cuts: Sequence[PartitionCut]


def find_history(
    state: State,
    topic: str,
    segments: TopicSegments,
    root_of: Callable[[int], str],
    ends: Mapping[int, int] | None = None,
) -> TopicHistory:
    """Return a topic's history. ``root_of`` returns the address of a broker's location; ``ends`` are the end offsets
    of an older version."""
    files: list[HistoryFile] = []
    cuts: list[PartitionCut] = []
    roots: dict[int, str] = {}
    for number, partition in enumerate(state.topic(topic).partitions):
        start = partition.log_start_offset
        end = partition.high_watermark if ends is None else ends.get(number, start)
        history_end, is_cut = start, False
        brokers = replicas_in_sync(partition)
        for segment in history_of(segments.partition(number), start):
            if segment.base_offset >= end:
                break
            broker = brokers[0] if brokers else segment.broker
            if broker not in roots:
                roots[broker] = hadoop_address(root_of(broker))
            files.append(_file(segment, f"{roots[broker]}/{segment.path}"))
            is_cut = is_cut or files[-1].first_offset < start or files[-1].last_offset >= end
            history_end = segment.end_offset
        end = max(start, end)
        history_end = min(history_end, end)
        rest = segments.partition(number).between(history_end, end)
        tail_bytes = sum(segment.size_bytes for segment in rest)
        cuts.append(PartitionCut(start, history_end, end, is_cut, tail_bytes))
    return TopicHistory(files, cuts)


def _file(segment: Segment, address: str) -> HistoryFile:
    return HistoryFile(
        address,
        segment.file_bytes,
        segment.partition,
        *segment.offsets,
        segment.min_timestamp_us,
        segment.max_timestamp_us,
        segment.stats,
    )


def select_files(
    files: Iterable[HistoryFile], topic: str, pruning: Pruning, typed: TypedFilters = NO_FILTERS
) -> list[HistoryFile]:
    """Return the files that can hold records which pass a query's filters."""
    return [
        file
        for file in files
        if pruning.admits(topic, file.partition)
        and pruning.offsets.overlaps(file.first_offset, file.last_offset)
        and pruning.timestamps_us.overlaps(file.min_timestamp_us, file.max_timestamp_us)
        and typed.admit(file.stats)
    ]


def hadoop_address(address: str) -> str:
    """Return an address for Hadoop's file systems."""
    scheme, separator, rest = address.partition("://")
    if not separator:
        return f"file://{address}"
    return f"{HADOOP_SCHEMES.get(scheme, scheme)}://{rest}"
