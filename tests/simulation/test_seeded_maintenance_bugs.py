"""Seeded bugs in maintenance are detected by the simulation of racing maintenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from sparklog.coordinator import Coordinator
from sparklog.coordinator.live_files import LiveFiles
from sparklog.coordinator.record_reader import RecordReader
from sparklog.delta.actions import TableSnapshot
from sparklog.errors import SparklogError
from sparklog.log.checkpoints import checkpoint, lists
from sparklog.log.checkpoints.lists import TopicList
from sparklog.log.commits.retired_files import RemovedFile, write_removed
from sparklog.maintenance.gc import sweep as deletion
from sparklog.maintenance.gc import vacuum
from sparklog.maintenance.segments import compact, merge
from sparklog.maintenance.segments import replacement as replacing
from sparklog.maintenance.segments.latest_records import LatestRecords
from sparklog.maintenance.tables import Tables
from sparklog.monitoring.orphans import NeededFiles
from sparklog.protocol import partition_fold
from sparklog.protocol.commits import DeleteSegments
from sparklog.protocol.decide import append as decide
from sparklog.protocol.decide import segments as decide_segments
from sparklog.protocol.decide.append import _Cursor
from sparklog.protocol.file_names import file_name, segment_folder
from sparklog.protocol.plan import compaction, retention
from sparklog.protocol.plan.compaction import CleaningRules, CompactionPass
from sparklog.protocol.segments import Segment, SegmentEvent
from sparklog.protocol.state import PartitionState, State, TopicState
from sparklog.store.base import Store
from tests.simulation import truth
from tests.simulation.racing import simulate

Patch = pytest.MonkeyPatch
SEEDS = 2000
STOP_RATE = 0.006
"""More stops than usual, since most rules guard against stalled processes."""


# -- conflicts between jobs


def conflicts_are_not_checked(patch: Patch) -> None:
    patch.setattr(decide_segments, "changed_since", lambda *_: False)


def jobs_use_the_same_file_names(patch: Patch) -> None:
    def new_key(self: merge.Target, base_offset: int, history: bool = False) -> str:
        name = file_name(base_offset, self.version // 10 * 10, "same", ".parquet" if history else ".log")
        return f"{segment_folder(self.topic, self.partition, history)}/{name}"

    patch.setattr(merge.Target, "new_key", new_key)


# -- vacuum and sweep


def writers_are_not_fenced(patch: Patch) -> None:
    patch.setattr(decide, "check_not_stale", lambda *_: None)


def jobs_are_not_fenced(patch: Patch) -> None:
    real = decide_segments._find_conflict
    patch.setattr(decide_segments, "_find_conflict", lambda state, *rest: real(replace(state, writer_fence=-1), *rest))


def a_vacuum_lists_live_files_before_it_fences(patch: Patch) -> None:
    """It also treats every file as old; otherwise few seeds would show the bug."""
    real = vacuum._fence
    patch.setattr(vacuum, "newest_before", lambda coordinator, state, before_ms: state.version)

    def fence(coordinator: Coordinator, version: int) -> State:
        before = coordinator.state
        real(coordinator, version)
        return before

    patch.setattr(vacuum, "_fence", fence)


def a_vacuum_ignores_live_files(patch: Patch) -> None:
    patch.setattr(NeededFiles, "has", lambda self, key: False)


def a_vacuum_keeps_index_files(patch: Patch) -> None:
    real = vacuum._find_orphans
    patch.setattr(vacuum, "_find_orphans", lambda *rest: [file for file in real(*rest) if file.path.endswith(".log")])


def a_sweep_ignores_live_files(patch: Patch) -> None:
    patch.setattr(deletion, "_find_live", lambda *_: LiveFiles([]))


def a_sweep_deletes_the_listing_first(patch: Patch) -> None:
    real = deletion._forget_listings

    def forget_listings(state: State, listings: Sequence[str]) -> object:
        return dataclasses.replace(real(state, listings), actions=[])

    patch.setattr(deletion, "_forget_listings", forget_listings)


def a_job_deletes_its_sources_immediately(patch: Patch) -> None:
    real = write_removed

    def delete_first(store: Any, ids: Any, version: int, files: Sequence[RemovedFile], delay_ms: int) -> object:
        for file in files:
            store.delete(file.path)
        return real(store, ids, version, files, delay_ms)

    patch.setattr(replacing, "write_removed", delete_first)


# -- tables


def a_sweep_deletes_without_asking_the_table(patch: Patch) -> None:
    patch.setattr(deletion, "_find_listed", lambda *_: {})


def a_publisher_reads_the_log_before_the_table(patch: Patch) -> None:
    real = Tables._find_table

    def find_table(self: Tables, topic: str, snapshot: TableSnapshot) -> object:
        before = self._coordinator.state
        with patch.context() as patched:
            patched.setattr(self._coordinator, "refresh", lambda: before)
            return real(self, topic, snapshot)

    patch.setattr(Tables, "_find_table", find_table)


# -- lists, offsets and reading


def a_checkpoint_ignores_replaced_segments(patch: Patch) -> None:
    def rewritten(
        store: Store, key: str, topic: TopicState, before: TopicList, events: Sequence[SegmentEvent], state: State
    ) -> TopicList:
        added = [event for event in events if isinstance(event, Segment)]
        return lists.add_tail(before, state.version, added, state.level)

    patch.setattr(checkpoint, "_rewrite_list", rewritten)


def an_empty_log_restarts_at_offset_0(patch: Patch) -> None:
    real = partition_fold.apply_deletion

    def apply_deletion(partition: PartitionState, action: DeleteSegments, version: int) -> PartitionState:
        after = real(partition, action, version)
        return after if after.segments else replace(after, log_start_offset=0, log_end_offset=0)

    patch.setattr(partition_fold, "apply_deletion", apply_deletion)


def a_reader_does_not_look_up_replaced_segments(patch: Patch) -> None:
    def find_segments(*arguments: Any) -> list[Segment]:
        raise arguments[-1]

    patch.setattr(RecordReader, "_find_segments", find_segments)


def a_reader_skips_missing_files(patch: Patch) -> None:
    def read_segments(
        self: RecordReader,
        topic: str,
        topic_id: str,
        partition: int,
        planned: object,
        segments: Sequence[Segment],
        start: int,
        end: int,
        columns: Any,
        *_: object,
    ) -> Iterator[object]:
        for segment in segments:
            try:
                for records in self.fetcher.read(topic, [segment], start, end, columns):
                    yield segment, records
            except SparklogError:
                continue

    patch.setattr(RecordReader, "read_segments", read_segments)


# -- rewritten segments


def append_times_are_not_kept(patch: Patch) -> None:
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
        offsets: dict[object, int] = {}
        for source in sources:
            at = first[source.segment.base_offset]
            for number in source.batches:
                for key in source.read(number, ["key"]).column(0).to_pylist():
                    offsets.setdefault(key, at)
                    at += 1
        return _survivors(first, sources, sorted(offsets.values()))

    patch.setattr(compact, "find_latest", find_latest)


def compaction_keeps_every_record(patch: Patch) -> None:
    def find_latest(sources: Sequence[Any], first: dict[int, int], memory_bytes: int) -> object:
        return _survivors(first, sources, range(sum(source.segment.records for source in sources)))

    patch.setattr(compact, "find_latest", find_latest)


def _survivors(first: dict[int, int], sources: Sequence[Any], numbers: Sequence[int]) -> object:
    survivors = LatestRecords(sum(source.segment.records for source in sources))
    survivors.add(pa.array(numbers, pa.int64()))
    return survivors


def tombstones_are_deleted_immediately(patch: Patch) -> None:
    patch.setattr(CompactionPass, "drops_tombstones", lambda self, segment: True)


def the_compaction_lag_is_ignored(patch: Patch) -> None:
    real = compaction.rules_of

    def rules_of(config: Any) -> CleaningRules | None:
        rules = real(config)
        return None if rules is None else rules._replace(min_lag_ms=0)

    patch.setattr(compaction, "rules_of", rules_of)


def retention_deletes_one_segment_too_many(patch: Patch) -> None:
    real = retention._take_beyond_size

    def beyond_size(walk: Any, size_bytes: int, retention_bytes: int) -> None:
        real(walk, size_bytes, retention_bytes)
        if retention_bytes >= 0 and walk.candidate is not None:
            walk.take_all(retention.RETENTION_BYTES)

    patch.setattr(retention, "_take_beyond_size", beyond_size)


# -- writers


def a_repeated_append_is_not_recognised(patch: Patch) -> None:
    patch.setattr(_Cursor, "_check_producer", lambda self, item, partition: None)


def a_repeated_append_returns_the_log_end_offset(patch: Patch) -> None:
    real = _Cursor._check_producer

    def check_producer(self: object, item: object, partition: object) -> int | None:
        earlier = real(self, item, partition)  # type: ignore[arg-type]
        return None if earlier is None else partition.log_end_offset  # type: ignore[attr-defined]

    patch.setattr(_Cursor, "_check_producer", check_producer)


BUGS: list[tuple[Callable[[Patch], None], tuple[str, ...], int]] = [
    (conflicts_are_not_checked, (truth.REMOVED, truth.CHECKSUM), 0),
    (jobs_use_the_same_file_names, (truth.OVERWRITTEN,), 0),
    (writers_are_not_fenced, (truth.STALE, truth.MISSING_FILE), 0),
    (jobs_are_not_fenced, (truth.STALE,), 17),
    (jobs_are_not_fenced, (truth.LISTING,), 203),
    (a_vacuum_lists_live_files_before_it_fences, (truth.MISSING_FILE,), 0),
    (a_vacuum_ignores_live_files, (truth.MISSING_FILE,), 0),
    (a_vacuum_keeps_index_files, (truth.LEAKED,), 0),
    (a_sweep_ignores_live_files, (truth.MISSING_FILE,), 0),
    (a_sweep_deletes_the_listing_first, (truth.LISTING,), 0),
    (a_job_deletes_its_sources_immediately, (truth.MISSING_FILE,), 0),
    (a_sweep_deletes_without_asking_the_table, (truth.TABLE_GONE,), 6),
    (a_publisher_reads_the_log_before_the_table, (truth.TABLE_DIFFERS,), 3),
    (a_checkpoint_ignores_replaced_segments, (truth.LISTED,), 0),
    (an_empty_log_restarts_at_offset_0, (truth.OFFSETS,), 0),
    (a_reader_does_not_look_up_replaced_segments, (truth.READER_ERROR,), 0),
    (a_reader_skips_missing_files, (truth.READ,), 0),
    (append_times_are_not_kept, (truth.CONTENT,), 0),
    (compaction_keeps_the_first_record_of_a_key, (truth.LOST_RECORD,), 0),
    (compaction_keeps_every_record, (truth.DIRTY, truth.BACK), 52),
    (tombstones_are_deleted_immediately, (truth.EARLY,), 34),
    (the_compaction_lag_is_ignored, (truth.EARLY,), 26),
    (retention_deletes_one_segment_too_many, (truth.DELETED,), 0),
    (a_repeated_append_is_not_recognised, (truth.TWICE,), 5),
    (a_repeated_append_returns_the_log_end_offset, (truth.UNACKNOWLEDGED,), 0),
]
"""The bug, the kinds of findings it causes, and the first seed to try."""


@pytest.mark.parametrize(("bug", "kinds", "first"), BUGS, ids=[f"{bug.__name__}-{first}" for bug, _, first in BUGS])
def test_a_seeded_bug_is_detected(
    bug: Callable[[Patch], None], kinds: tuple[str, ...], first: int, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    missing = set(kinds)
    for seed in range(first, first + SEEDS):
        kinds_found = {finding.kind for finding in simulate(seed, strict=False, stop_rate=STOP_RATE).truth.findings}
        if missing & kinds_found:
            print(f"seed {seed}: {sorted(kinds_found)}")
        missing -= kinds_found
        if not missing:
            return
    pytest.fail(f"no seed from {first} to {first + SEEDS} shows: {' or: '.join(sorted(missing))}")


def test_every_kind_of_finding_has_a_seeded_bug() -> None:
    assert {kind for _, kinds, _ in BUGS for kind in kinds} == set(truth.FINDINGS)
