"""Reading a compacted log: each record has its offset, and gaps yield nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptIndexError, InvalidRecordError
from sparklog.log.records.fetch import Fetcher, TimedOffset
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.topics import alter_configs
from sparklog.types import CREATE_TIME, LOG_APPEND_TIME
from tests.sample import examples
from tests.unit.format.segments import gapped_batch

from .rewriting import rewrite
from .test_fetch import append_file, new_cluster


def fetcher(coordinator: Coordinator) -> Fetcher:
    return Fetcher(lambda broker: coordinator.store)


def read(coordinator: Coordinator, start: int, end: int, columns: list[str] | None = None) -> list[tuple[int, bytes]]:
    segments = coordinator.segments("t").partition(0).between(start, end)
    records_read: list[tuple[int, bytes]] = []
    for records in fetcher(coordinator).read("t", segments, start, end, columns or ["value"]):
        assert records.batch.num_rows
        assert records.base_offset == records.all_offsets()[0]
        assert records.end_offset == records.all_offsets()[-1] + 1
        records_read += zip(records.all_offsets(), records.batch.column("value").to_pylist(), strict=True)
    return records_read


def three_files(stamped: bool = False) -> Coordinator:
    """Offsets 0 to 11 of times 0 to 11, in three files; or with the times of their commits."""
    coordinator = new_cluster()
    if stamped:
        changes = {"message.timestamp.type": "LogAppendTime"}
        coordinator.submit(partial(alter_configs, topic="t", changes=changes))
    for first in (0, 4, 8):
        append_file(coordinator, {0: [[first, first + 1], [first + 2, first + 3]]})
    return coordinator


@settings(max_examples=examples(80), deadline=None)
@given(
    st.sets(st.integers(0, 11)),
    st.sampled_from([(0, 1), (1, 1), (2, 1), (0, 2), (1, 2), (0, 3)]),
    st.integers(0, 12),
    st.integers(0, 12),
    st.sampled_from(["none", "gzip", "lz4"]),
    st.integers(1, 5),
)
def test_any_range_returns_the_remaining_records(
    kept: Any, run: Any, start: int, end: int, codec: str, rows: int
) -> None:
    coordinator = three_files()
    first, count = run
    rewrite(coordinator, first, count, keep=kept.__contains__, codec=codec, batch_rows=rows)
    removed = {*range(4 * first, 4 * (first + count))} - kept
    remaining = [offset for offset in range(12) if offset not in removed]
    assert read(coordinator, start, end) == [(o, b"value-%d" % o) for o in remaining if start <= o < end]
    for wanted in range(13):
        at = next((TimedOffset(o, o) for o in remaining if start <= o < end and o >= wanted), None)
        segments = coordinator.segments("t").partition(0)
        assert fetcher(coordinator).find_timestamp("t", segments, wanted, end, start) == at


def test_offsets_alone_can_be_read() -> None:
    coordinator = three_files()
    rewrite(coordinator, keep={1, 2, 7, 11}.__contains__)
    segments = coordinator.segments("t").partition(0)
    parts = list(fetcher(coordinator).read("t", segments, 0, 12, []))
    assert [list(records.all_offsets()) for records in parts] == [[1, 2, 7], [11]]
    assert {records.batch.num_columns for records in parts} == {0}


def test_records_without_gaps_need_no_list_of_offsets() -> None:
    coordinator = three_files()
    rewrite(coordinator, keep={3, 4, 5, 9}.__contains__)
    parts = list(fetcher(coordinator).read("t", coordinator.segments("t").partition(0), 0, 12))
    assert [(records.base_offset, records.offsets) for records in parts] == [(3, None), (9, None)]


def test_a_slice_keeps_the_offsets() -> None:
    coordinator = three_files()
    rewrite(coordinator, keep={1, 5, 7}.__contains__)
    [records] = fetcher(coordinator).read("t", coordinator.segments("t").partition(0), 0, 12)
    assert list(records.slice(1).all_offsets()) == [5, 7]
    part = records.slice(1, 1)
    assert (part.base_offset, part.end_offset, part.batch.num_rows) == (5, 6, 1)


def test_append_times_stored_in_a_file_are_append_times() -> None:
    coordinator = three_files(stamped=True)
    before = list(fetcher(coordinator).read("t", coordinator.segments("t").partition(0), 0, 12, ["timestamp"]))
    times = [t for records in before for t in records.batch.column(0).to_pylist()]
    rewrite(coordinator, keep=lambda offset: offset % 2 == 0)
    segments = coordinator.segments("t").partition(0)
    after = list(fetcher(coordinator).read("t", segments, 0, 12, ["timestamp"]))
    assert {records.timestamp_type for records in after} == {LOG_APPEND_TIME}
    assert [t for records in after for t in records.batch.column(0).to_pylist()] == times[::2]
    first = after[0].batch.column(0)[0].value
    assert fetcher(coordinator).find_timestamp("t", segments, first + 1, 12) == TimedOffset(4, times_us(after)[2])


def times_us(parts: Any) -> list[int]:
    return [value.value for records in parts for value in records.batch.column(0)]


def test_other_records_keep_their_create_time() -> None:
    coordinator = three_files()
    rewrite(coordinator, keep=lambda offset: offset % 2 == 0)
    parts = list(fetcher(coordinator).read("t", coordinator.segments("t").partition(0), 0, 12, ["timestamp"]))
    assert ({r.timestamp_type for r in parts}, times_us(parts)) == ({CREATE_TIME}, [0, 2, 4, 6, 8, 10])


def test_a_file_with_gaps_but_without_offsets_is_refused() -> None:
    coordinator = three_files()
    plain = coordinator.segments("t").partition(0)[0].path
    rewrite(coordinator, 1, 1, keep=lambda offset: offset != 5)
    gapped = coordinator.segments("t").partition(0)[1].path
    for old, new in ((plain, gapped), (plain.replace(".log", ".index"), gapped.replace(".log", ".index"))):
        coordinator.store.put(new, coordinator.store.get(old))
    with pytest.raises(CorruptIndexError):
        read(coordinator, 4, 8)


def test_explicit_offsets_increase_within_a_run_and_restart_in_the_next() -> None:
    coordinator = new_cluster(partitions=2)
    writer = SegmentFileWriter(coordinator.store, "t-0/a.log", has_headers=True, has_offsets=True)
    writer.start_run(RunTarget("t", coordinator.state.topic("t").topic_id, 0))
    writer.write(gapped_batch([3, 7]))
    with pytest.raises(InvalidRecordError, match="at or before explicit offset 7"):
        writer.write(gapped_batch([7, 9]))
    writer.start_run(RunTarget("t", coordinator.state.topic("t").topic_id, 1))
    writer.write(gapped_batch([0, 2]))
    assert [append.run.records for append in writer.finish()] == [2, 2]
