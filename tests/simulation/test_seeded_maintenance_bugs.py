"""Each rule of maintenance is broken on purpose, and the simulation that races with it finds that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparklog.coordinator import Coordinator
from sparklog.coordinator.record_reader import RecordReader
from sparklog.errors import SparklogError
from sparklog.log.checkpoints import checkpoint, lists
from sparklog.log.checkpoints.lists import TopicList
from sparklog.log.commits.retired_files import RemovedFile, write_removed
from sparklog.maintenance.gc import orphans as vacuum
from sparklog.maintenance.gc import retired_files as deletion
from sparklog.maintenance.live_files import LiveFiles
from sparklog.maintenance.segments import compact, merge
from sparklog.maintenance.segments import replacement as replacing
from sparklog.maintenance.segments.offset_map import LatestRecords
from sparklog.protocol import partition_fold
from sparklog.protocol.commits import DeleteSegments
from sparklog.protocol.decide import append as decide
from sparklog.protocol.decide import segments as decide_segments
from sparklog.protocol.decide.append import _Cursor
from sparklog.protocol.file_names import file_name
from sparklog.protocol.plan import compaction, retention
from sparklog.protocol.plan.compaction import CleaningRules, Pass
from sparklog.protocol.segments import Segment, SegmentEvent
from sparklog.protocol.state import PartitionState, State, TopicState
from sparklog.store.base import Store
from tests.simulation import truth
from tests.simulation.racing import simulate

Patch = pytest.MonkeyPatch
SEEDS = 60
STOP_RATE = 0.006
"""More stops than usual: what most rules are for."""


# -- what jobs do to each other


def conflicts_are_not_looked_for(patch: Patch) -> None:
    patch.setattr(decide_segments, "changed_since", lambda *_: False)


def jobs_give_their_files_the_same_name(patch: Patch) -> None:
    def new_key(self: merge.Target, base_offset: int) -> str:
        return f"{self.topic}-{self.partition}/{file_name(base_offset, self.version // 10 * 10, 'same')}"

    patch.setattr(merge.Target, "new_key", new_key)


# -- vacuum and sweep


def writers_are_not_fenced(patch: Patch) -> None:
    patch.setattr(decide, "check_not_stale", lambda *_: None)


def jobs_are_not_fenced(patch: Patch) -> None:
    real = decide_segments._find_conflict
    patch.setattr(decide_segments, "_find_conflict", lambda state, *rest: real(replace(state, writer_fence=-1), *rest))


def a_vacuum_looks_before_it_fences(patch: Patch) -> None:
    """And takes every file for old, or else it would take luck to see that."""
    real = vacuum._fence
    patch.setattr(vacuum, "_newest_before", lambda coordinator, state, before_ms: state.version)

    def fence(coordinator: Coordinator, version: int) -> State:
        before = coordinator.state
        real(coordinator, version)
        return before

    patch.setattr(vacuum, "_fence", fence)


def a_vacuum_does_not_look_what_is_live(patch: Patch) -> None:
    patch.setattr(vacuum._NeededFiles, "has", lambda self, key: False)


def a_vacuum_leaves_indexes(patch: Patch) -> None:
    real = vacuum._find_orphans
    patch.setattr(vacuum, "_find_orphans", lambda *rest: [file for file in real(*rest) if file.path.endswith(".log")])


def a_sweep_does_not_look_what_is_live(patch: Patch) -> None:
    patch.setattr(deletion, "_find_live", lambda *_: LiveFiles([]))


def a_sweep_deletes_the_listing_first(patch: Patch) -> None:
    real = deletion._forget_listings

    def forget_listings(state: State, listings: Sequence[str]) -> object:
        return dataclasses.replace(real(state, listings), actions=[])

    patch.setattr(deletion, "_forget_listings", forget_listings)


def a_job_deletes_its_sources_at_once(patch: Patch) -> None:
    real = write_removed

    def delete_first(store: Any, ids: Any, version: int, files: Sequence[RemovedFile], delay_ms: int) -> object:
        for file in files:
            store.delete(file.path)
        return real(store, ids, version, files, delay_ms)

    patch.setattr(replacing, "write_removed", delete_first)


# -- lists, offsets and reading


def a_checkpoint_does_not_know_what_was_replaced(patch: Patch) -> None:
    def rewritten(
        store: Store, key: str, topic: TopicState, before: TopicList, events: Sequence[SegmentEvent], version: int
    ) -> TopicList:
        added = [event for event in events if isinstance(event, Segment)]
        return lists.add_tail(before, version, added)

    patch.setattr(checkpoint, "_rewrite_list", rewritten)


def a_log_without_segments_begins_again(patch: Patch) -> None:
    real = partition_fold.apply_deletion

    def apply_deletion(partition: PartitionState, action: DeleteSegments, version: int) -> PartitionState:
        after = real(partition, action, version)
        return after if after.segments else replace(after, log_start_offset=0, log_end_offset=0)

    patch.setattr(partition_fold, "apply_deletion", apply_deletion)


def a_reader_does_not_look_where_records_went(patch: Patch) -> None:
    def find_segments(*arguments: Any) -> list[Segment]:
        raise arguments[-1]

    patch.setattr(RecordReader, "_find_segments", find_segments)


def a_reader_goes_on_behind_the_file_that_is_gone(patch: Patch) -> None:
    def read_segments(
        self: RecordReader,
        topic: str,
        topic_id: str,
        partition: int,
        segments: Sequence[Segment],
        start: int,
        end: int,
        columns: Any,
    ) -> Iterator[object]:
        for segment in segments:
            try:
                for records in self.fetcher.read(topic, [segment], start, end, columns):
                    yield segment, records
            except SparklogError:
                continue

    patch.setattr(RecordReader, "read_segments", read_segments)


# -- what is written again


def the_times_of_commits_are_not_kept(patch: Patch) -> None:
    real = merge._convert_batch

    def convert_batch(
        source: Any, entry: Any, batch: pa.RecordBatch, names: Sequence[str], base: int
    ) -> pa.RecordBatch:
        stamped, source.segment = source.segment, replace(source.segment, append_time_ms=-1)
        try:
            return real(source, entry, batch, names, base)
        finally:
            source.segment = stamped

    patch.setattr(merge, "_convert_batch", convert_batch)


def compaction_keeps_the_first_record_of_a_key(patch: Patch) -> None:
    def find_latest(sources: Sequence[Any], first: dict[int, int], memory_bytes: int) -> object:
        seen: dict[object, int] = {}
        for source in sources:
            at = first[source.segment.base_offset]
            for number in source.batches:
                for key in source.read(number, ["key"]).column(0).to_pylist():
                    seen.setdefault(key, at)
                    at += 1
        return _survivors(first, sources, sorted(seen.values()))

    patch.setattr(compact, "find_latest", find_latest)


def compaction_keeps_every_record(patch: Patch) -> None:
    def find_latest(sources: Sequence[Any], first: dict[int, int], memory_bytes: int) -> object:
        return _survivors(first, sources, range(sum(source.segment.records for source in sources)))

    patch.setattr(compact, "find_latest", find_latest)


def _survivors(first: dict[int, int], sources: Sequence[Any], numbers: Sequence[int]) -> object:
    found = LatestRecords(sum(source.segment.records for source in sources))
    found.add(pa.array(numbers, pa.int64()))
    return found


def tombstones_go_at_once(patch: Patch) -> None:
    patch.setattr(Pass, "drops_tombstones", lambda self, segment: True)


def the_lag_of_compaction_is_not_kept(patch: Patch) -> None:
    real = compaction.rules_of

    def rules_of(config: Any) -> CleaningRules | None:
        rules = real(config)
        return None if rules is None else rules._replace(min_lag_ms=0)

    patch.setattr(compaction, "rules_of", rules_of)


def retention_takes_one_segment_more(patch: Patch) -> None:
    real = retention._take_beyond_size

    def beyond_size(walk: Any, size_bytes: int, retention_bytes: int) -> None:
        real(walk, size_bytes, retention_bytes)
        if retention_bytes >= 0 and walk.candidate is not None:
            walk.take_all(retention.RETENTION_BYTES)

    patch.setattr(retention, "_take_beyond_size", beyond_size)


# -- writers


def a_repeated_append_is_not_recognised(patch: Patch) -> None:
    patch.setattr(_Cursor, "_check_producer", lambda self, item, partition: None)


def a_repeated_append_is_told_the_end_of_the_log(patch: Patch) -> None:
    real = _Cursor._check_producer

    def check_producer(self: object, item: object, partition: object) -> int | None:
        earlier = real(self, item, partition)  # type: ignore[arg-type]
        return None if earlier is None else partition.log_end_offset  # type: ignore[attr-defined]

    patch.setattr(_Cursor, "_check_producer", check_producer)


BUGS: list[tuple[Callable[[Patch], None], tuple[str, ...], int]] = [
    (conflicts_are_not_looked_for, (truth.REMOVED, truth.CHECKSUM), 0),
    (jobs_give_their_files_the_same_name, (truth.OVERWRITTEN,), 0),
    (writers_are_not_fenced, (truth.STALE, truth.MISSING_FILE), 0),
    (jobs_are_not_fenced, (truth.STALE, truth.LISTING), 0),
    (a_vacuum_looks_before_it_fences, (truth.MISSING_FILE,), 21),
    (a_vacuum_does_not_look_what_is_live, (truth.MISSING_FILE,), 0),
    (a_vacuum_leaves_indexes, (truth.LEAKED,), 0),
    (a_sweep_does_not_look_what_is_live, (truth.MISSING_FILE,), 0),
    (a_sweep_deletes_the_listing_first, (truth.LISTING,), 0),
    (a_job_deletes_its_sources_at_once, (truth.MISSING_FILE,), 0),
    (a_checkpoint_does_not_know_what_was_replaced, (truth.LISTED,), 0),
    (a_log_without_segments_begins_again, (truth.OFFSETS,), 0),
    (a_reader_does_not_look_where_records_went, (truth.READER_ERROR,), 0),
    (a_reader_goes_on_behind_the_file_that_is_gone, (truth.READ,), 0),
    (the_times_of_commits_are_not_kept, (truth.CONTENT,), 0),
    (compaction_keeps_the_first_record_of_a_key, (truth.LOST_RECORD,), 0),
    (compaction_keeps_every_record, (truth.DIRTY, truth.BACK), 3),
    (tombstones_go_at_once, (truth.EARLY,), 7),
    (the_lag_of_compaction_is_not_kept, (truth.EARLY,), 69),
    (retention_takes_one_segment_more, (truth.DELETED,), 0),
    (a_repeated_append_is_not_recognised, (truth.TWICE,), 0),
    (a_repeated_append_is_told_the_end_of_the_log, (truth.UNACKNOWLEDGED,), 0),
]
"""What is broken, which kinds of findings that gives, and from which seed on to look for them."""


@pytest.mark.parametrize(("bug", "kinds", "first"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_broken_rule_is_found(
    bug: Callable[[Patch], None], kinds: tuple[str, ...], first: int, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    missing = set(kinds)
    for seed in range(first, first + SEEDS):
        found = {finding.kind for finding in simulate(seed, strict=False, stop_rate=STOP_RATE).truth.findings}
        if missing & found:
            print(f"seed {seed}: {sorted(found)}")
        missing -= found
        if not missing:
            return
    pytest.fail(f"no seed from {first} to {first + SEEDS} shows: {' or: '.join(sorted(missing))}")


def test_every_kind_of_finding_has_a_bug() -> None:
    assert {kind for _, kinds, _ in BUGS for kind in kinds} == set(truth.FINDINGS)
