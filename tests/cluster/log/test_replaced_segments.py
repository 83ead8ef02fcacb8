"""Lists of segments of topics that are appended to, rolled and deleted from, compared with a model."""

from __future__ import annotations

import uuid
from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator
from sparklog.errors import OffsetOutOfRangeError
from sparklog.ids import SeededIds
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.settings import LogSettings
from sparklog.protocol import segment_checksum as checksum
from sparklog.protocol.commits import LiveSegment, Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.segments import Deletion, Replacement, SegmentsRequest, change_segments, removed
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore
from tests.sample import examples

RECORDS = 3


def run(number: int, records: int = RECORDS) -> Run:
    return Run(
        path=f"t-0/{number:020d}-v999999-w{number}.log",
        batches=1,
        records=records,
        size_bytes=10 * records,
        min_timestamp_us=number,
        max_timestamp_us=number,
    )


class Harness:
    """One topic of two partitions, changed through a coordinator; ``expected`` is the model."""

    def __init__(self) -> None:
        store = MemoryStore(uuid.uuid4().hex)
        self.coordinator = Coordinator(CommitLog.create(store, SystemClock(), SeededIds(1)))
        settings = LogSettings(checkpoint_interval_commits=0)  # every refresh follows the newest checkpoint
        self.reader = Coordinator(CommitLog.open(store, SystemClock(), SeededIds(2), settings=settings))
        self.topic_id = self.coordinator.create_topic("t", 2)
        self.expected: dict[int, list[tuple[int, int, str]]] = {0: [], 1: []}
        self.starts = {0: 0, 1: 0}
        self.emptied: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
        self.number = 0
        self.history: list[tuple[State, dict[int, list[tuple[int, int, str]]]]] = []

    def listed(self, partition: int) -> list[Segment]:
        return list(self.coordinator.segments("t").partition(partition))

    def append(self, partition: int) -> None:
        self.number += 1
        item = PartitionAppend(topic="t", topic_id=self.topic_id, partition=partition, run=run(self.number))
        at = self.coordinator.append(AppendRequest(appends=[item])).appended[0].base_offset
        self.expected[partition].append((at, at + RECORDS, item.run.path))

    def replace(self, partition: int, first: int, count: int, keep: int) -> None:
        segments = self.listed(partition)[first : first + count]
        if not segments:
            return
        start, end = segments[0].base_offset, segments[-1].end_offset
        self.number += 1
        added = [LiveSegment(base_offset=start, end_offset=end, run=run(self.number, end - start - keep % 2))]
        if keep == 3:
            added = []
            self.emptied[partition].append((start, end))
        change = Replacement(
            topic="t",
            topic_id=self.topic_id,
            partition=partition,
            start_offset=start,
            end_offset=end,
            removed=removed(self.topic_id, segments),
            added=added,
        )
        request = SegmentsRequest(version=self.coordinator.state.version, changes=[change])
        assert self.coordinator.submit(partial(change_segments, request=request)).left_out == []
        kept = [entry for entry in self.expected[partition] if entry[0] < start or entry[1] > end]
        self.expected[partition] = sorted([*kept, *((a.base_offset, a.end_offset, a.run.path) for a in added)])

    def delete(self, partition: int, count: int) -> None:
        segments = self.listed(partition)[:count]
        if not segments:
            return
        end = segments[-1].end_offset
        change = Deletion(
            topic="t",
            topic_id=self.topic_id,
            partition=partition,
            end_offset=end,
            removed=removed(self.topic_id, segments),
        )
        request = SegmentsRequest(version=self.coordinator.state.version, changes=[change])
        assert self.coordinator.submit(partial(change_segments, request=request)).left_out == []
        self.expected[partition] = [entry for entry in self.expected[partition] if entry[0] >= end]
        self.starts[partition] = max(self.starts[partition], end)

    def snapshot(self) -> None:
        self.reader.refresh()
        self.history.append((self.reader.state, {number: list(entries) for number, entries in self.expected.items()}))

    def check(self, coordinator: Coordinator, state: State) -> None:
        for number, expected in self.expected.items():
            segments = list(coordinator.segments("t", state).partition(number))
            assert [(s.base_offset, s.end_offset, s.path) for s in segments] == expected
            assert state.partition("t", number).log_start_offset == self.starts[number]
            assert state.partition("t", number).size_bytes == sum(s.size_bytes for s in segments)
        live = [s for number in self.expected for s in coordinator.segments("t", state).partition(number)]
        assert state.checksum == checksum.to_text(
            checksum.total(checksum.segment_hash(self.topic_id, segment) for segment in live)
        )


partitions = st.integers(0, 1)
steps = st.one_of(
    st.tuples(st.just("append"), partitions),
    st.tuples(st.just("append"), partitions),
    st.tuples(st.just("replace"), partitions, st.integers(0, 6), st.integers(1, 5), st.integers(0, 3)),
    st.tuples(st.just("delete"), partitions, st.integers(1, 4)),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("snapshot")),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(steps, max_size=40))
def test_lists_match_what_was_appended_replaced_and_deleted(script: list[tuple[object, ...]]) -> None:
    harness = Harness()
    for name, *arguments in script:
        if name == "checkpoint":
            harness.coordinator.log.write_checkpoint()
        else:
            getattr(harness, str(name))(*arguments)
    harness.check(harness.coordinator, harness.coordinator.refresh())
    harness.check(harness.reader, harness.reader.refresh())
    opened = Coordinator(CommitLog.open(harness.coordinator.store, SystemClock(), SeededIds(3)))
    harness.check(opened, opened.refresh())


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(steps, max_size=40))
@example(
    [  # a range replaced by nothing is part of a later merge
        *[("append", 0), ("append", 0), ("snapshot",), ("append", 0)],
        *[("replace", 0, 1, 1, 3), ("checkpoint",), ("replace", 0, 0, 2, 0)],
    ]
)
def test_an_older_state_still_has_its_records(script: list[tuple[object, ...]]) -> None:
    """Each segment is there as it was, or replaced, or an error says that its records were deleted; none is missing."""
    harness = Harness()
    for name, *arguments in script:
        if name == "checkpoint":
            harness.coordinator.log.write_checkpoint()
            harness.reader.refresh()
        else:
            getattr(harness, str(name))(*arguments)
    for state, expected in harness.history:
        for number, entries in expected.items():
            end = state.partition("t", number).log_end_offset
            start = state.partition("t", number).log_start_offset
            try:
                segments = harness.reader.segments("t", state).partition(number).between(start, end)
            except OffsetOutOfRangeError:
                start_now = harness.reader.state.partition("t", number).log_start_offset
                assert start_now > start
                segments = harness.reader.segments("t", state).partition(number).between(start_now, end)
                entries = [entry for entry in entries if entry[0] >= start_now]
            listed_now = {(s.base_offset, s.end_offset, s.path) for s in segments}
            newest = {(s.base_offset, s.end_offset, s.path) for s in harness.listed(number)}
            for entry in entries:
                inside = any(base <= entry[0] and entry[1] <= stop for base, stop, _ in listed_now)
                gone = entry not in newest and not any(base < entry[1] and entry[0] < stop for base, stop, _ in newest)
                emptied = any(base <= entry[0] and entry[1] <= stop for base, stop in harness.emptied[number])
                assert entry in listed_now or inside or gone or emptied
