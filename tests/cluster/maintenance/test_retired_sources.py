"""While the files that a roll or a compaction replaced are kept, the loss of the new file loses no record: nothing
deletes the old ones, and a repair writes the records again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparklog import limits
from sparklog.coordinator import open_cluster
from sparklog.errors import StorageUnavailableError
from sparklog.maintenance.fsck import kinds, retired_sources
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import ERROR, Report
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.fsck.retired_sources import (
    RetiredSources,
    SourceOrigin,
    describe_returning,
    describe_uncovered,
)
from sparklog.maintenance.gc import sweep as sweep_module
from sparklog.maintenance.gc.sweep import SweepResult, sweep
from sparklog.maintenance.runner import InProcess, Item, Result
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.merge import MergeTask, TaskResult, merge_segments
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.segments import Segment
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.damaged_clusters import DamagedCluster, index_of
from tests.cluster.maintenance.logs import Written, append, records
from tests.sample import chosen


def configure(cluster: DamagedCluster, **configs: str) -> None:
    changes = {name.replace("_", "."): value for name, value in configs.items()}
    cluster.coordinator.submit(lambda state: alter_configs(state, "orders", changes))


@pytest.fixture(params=[1, 2])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> DamagedCluster:
    made = DamagedCluster(tmp_path, brokers=request.param)
    configure(made, file_delete_delay_ms="0", history_delete_delay_ms="0", segment_ms="59")
    return made


def live(cluster: DamagedCluster, partition: int = 0) -> list[Segment]:
    coordinator = cluster.reopened()
    return list(coordinator.segments("orders").partition(partition))


def rolled(cluster: DamagedCluster) -> tuple[Segment, list[str]]:
    """Append five files and roll the first four; return the new segment, and the paths of the old ones."""
    old = [cluster.append() for _ in range(4)]
    cluster.append()  # its timestamps close the segment before
    roll(cluster.coordinator, InProcess())
    new, _ = live(cluster)
    assert (new.base_offset, new.end_offset) == (0, 60)
    return new, old


def swept(cluster: DamagedCluster) -> SweepResult:
    return sweep(cluster.reopened())


def repaired(cluster: DamagedCluster, dry_run: bool = False) -> Report:
    check = cluster.check()
    repair_cluster(check, dry_run=dry_run)
    return check.report


def delete_everywhere(cluster: DamagedCluster, key: str) -> None:
    for broker in cluster.brokers:
        cluster.file(key, broker).unlink()


@pytest.mark.parametrize("lost", ["log", "index", "both", "cut"])
def test_retired_files_are_kept_while_what_replaced_them_is_missing(cluster: DamagedCluster, lost: str) -> None:
    segment, old = rolled(cluster)
    for broker in cluster.brokers:
        if lost == "cut":
            cluster.cut(segment.path, 10, broker)
        if lost in ("log", "both"):
            cluster.file(segment.path, broker).unlink()
        if lost in ("index", "both"):
            cluster.file(index_of(segment.path), broker).unlink()
    result = swept(cluster)
    assert result.files == 0
    assert segment.path in result.problems[0]
    why = {"cut": "it is too short", "index": index_of(segment.path)}.get(lost, "does not exist")
    for broker in cluster.brokers:
        assert re.search(rf"broker {broker}: [^;)]*{re.escape(why)}", result.problems[0])
    assert all(cluster.file(path).exists() for path in old)


def test_retired_files_are_kept_once_what_replaced_them_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep deletes for minutes, or is suspended since it looked."""
    monkeypatch.setattr(sweep_module, "DELETED_TOGETHER", 1)
    monkeypatch.setattr(sweep_module, "LOOK_SECONDS", 0.0)
    cluster = DamagedCluster(tmp_path)
    configure(cluster, file_delete_delay_ms="0", segment_ms="59")
    segment, old = rolled(cluster)

    def lose(step: int, call: Call) -> None:
        if call.operation == "delete" and call.key.startswith("orders-"):
            cluster.file(segment.path).unlink(missing_ok=True)

    result = sweep(open_cluster(FaultyStore(cluster.store, before=lose)))
    assert result.files == 1
    assert segment.path in result.problems[0]
    assert sum(cluster.file(path).exists() for path in old) == 3


def test_a_failure_of_the_storage_is_named_as_why_retired_files_are_kept(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    configure(cluster, file_delete_delay_ms="0", segment_ms="59")
    segment, old = rolled(cluster)

    def fail(step: int, call: Call) -> None:
        if call == Call("info", segment.path):
            raise StorageUnavailableError("the service is too busy", path=segment.path)

    result = sweep(open_cluster(FaultyStore(cluster.store, before=fail)))
    assert "(broker 0: the service is too busy)" in result.problems[0]
    assert all(cluster.file(path).exists() for path in old)


def test_a_file_that_was_replaced_and_deleted_while_a_sweep_was_suspended_is_not_missing(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    configure(cluster, file_delete_delay_ms="0", segment_ms="59")
    segment, old = rolled(cluster)

    def overtake(step: int, call: Call) -> None:
        if call == Call("info", segment.path):
            suspended.before = None
            configure(cluster, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
            cluster.append()
            compact(cluster.coordinator, InProcess())
            assert swept(cluster).problems == []
            assert not cluster.file(segment.path).exists()

    suspended = FaultyStore(cluster.store, before=overtake)
    assert sweep(open_cluster(suspended)).problems == []
    assert suspended.before is None
    assert not any(cluster.file(path).exists() for path in old)
    assert not [each for each in cluster.check().report.findings if each.severity == ERROR]


def test_retired_files_are_deleted_if_one_broker_has_what_replaced_them(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path, brokers=2)
    configure(cluster, file_delete_delay_ms="0", segment_ms="59")
    segment, old = rolled(cluster)
    cluster.file(segment.path, 1).unlink()
    assert swept(cluster).problems == []
    assert not any(cluster.file(path).exists() for path in old)


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("lost", ["log", "both", "flip"])
def test_a_lost_file_is_written_again_from_the_retired_ones(cluster: DamagedCluster, lost: str, history: bool) -> None:
    if history:
        configure(cluster, history_format="delta")
    segment, old = rolled(cluster)
    values = cluster.values()
    for broker in cluster.brokers:
        if lost == "flip":
            cluster.flip(segment.path, cluster.file(segment.path).stat().st_size // 2, broker=broker)
        else:
            cluster.file(segment.path, broker).unlink()
        if lost == "both":
            cluster.file(index_of(segment.path), broker).unlink()
    findings = cluster.report().findings
    assert {finding.severity for finding in findings} == {ERROR}
    assert all(finding.repairable for finding in findings)
    planned = repaired(cluster, dry_run=True)
    assert [(repair.path, repair.done) for repair in planned.repairs] == [(segment.path, False)]
    report = repaired(cluster)
    assert [(repair.path, repair.done) for repair in report.repairs] == [(segment.path, True)]
    assert report.clean
    assert cluster.values() == values
    assert swept(cluster).problems == []
    assert not any(cluster.file(path).exists() for path in old)
    assert cluster.values() == values


def test_a_compacted_file_is_written_again_and_the_next_compaction_removes_the_same(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    configure(cluster, segment_ms="1", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    old = [cluster.append() for _ in range(4)]
    compact(cluster.coordinator, InProcess())
    lost = next(segment for segment in live(cluster) if segment.path not in old)
    cluster.file(lost.path).unlink()
    assert repaired(cluster).clean
    assert len(cluster.values()) == 60


def put(cluster: DamagedCluster, *pairs: tuple[bytes, bytes | None]) -> None:
    end = cluster.coordinator.refresh().partition("orders", 0).log_end_offset
    append(cluster.coordinator, "orders", [Written(key, value, 1 + end) for key, value in pairs])


def put_a_deleted_key(cluster: DamagedCluster) -> None:
    """The record of the key was removed from the first segment; its tombstone is in the second, until the next
    compaction."""
    configure(
        cluster,
        segment_ms="1",
        segment_bytes="1048576",
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0",
        delete_retention_ms="0",
    )
    big = bytes(range(256)) * 3000
    put(cluster, (b"a", big), (b"k", b"secret"))
    put(cluster, (b"k", None), (b"d", big))
    put(cluster, (b"z", b"1"))
    compact(cluster.coordinator, InProcess())
    put(cluster, (b"y", b"1"))


@pytest.mark.sampled
def test_a_key_that_was_deleted_does_not_come_back_by_a_suspended_repair(tmp_path: Path) -> None:
    """Before each request of the repair in turn, the file is put back, and the log compacted."""
    requests, committed = repair_overtaken(tmp_path / "alone")
    assert committed in requests
    for step in chosen(range(requests.index(committed) + 1)):
        repair_overtaken(tmp_path / str(step), step)


def repair_overtaken(folder: Path, step: int = -1) -> tuple[list[Call], Call]:
    """Return the requests of the repair of a lost file, and that which commits it."""
    cluster = DamagedCluster(folder)
    put_a_deleted_key(cluster)
    path = cluster.file(live(cluster)[0].path)
    kept = path.read_bytes()
    path.unlink()
    checked = 0

    def overtake(number: int, _: Call) -> None:
        if number == checked + step >= checked > 0:
            path.write_bytes(kept)
            compact(cluster.reopened(), InProcess())
            assert keys(cluster) == [b"a", b"d", b"z", b"y"]

    store = FaultyStore(cluster.store, before=overtake)
    check = check_cluster(store)
    checked = len(store.calls)
    committed = Call("put_if_absent", commit_key(check.metadata.state.version + 1))
    repair_cluster(check)
    compact(cluster.reopened(), InProcess())
    assert keys(cluster) == [b"a", b"d", b"z", b"y"], step
    return list(store.calls[checked:]), committed


def keys(cluster: DamagedCluster) -> list[bytes | None]:
    return [record.key for record in records(cluster.reopened(), "orders")]


@pytest.mark.parametrize("tombstone_is_gone", [False, True])
def test_a_key_that_was_deleted_does_not_come_back(tmp_path: Path, tombstone_is_gone: bool) -> None:
    cluster = DamagedCluster(tmp_path)
    put_a_deleted_key(cluster)
    if tombstone_is_gone:
        compact(cluster.coordinator, InProcess())
    first, *others = live(cluster)
    assert (first.base_offset, first.end_offset, first.records) == (0, 2, 1)
    assert sum(segment.records for segment in others) == (3 if tombstone_is_gone else 4)
    cluster.file(first.path).unlink()
    repaired(cluster)
    if tombstone_is_gone:
        assert "sparklog dump-log" in sources_of(cluster, first).why_not
        assert live(cluster) == [first, *others]
    else:
        compact(cluster.reopened(), InProcess())
        assert keys(cluster) == [b"a", b"d", b"z", b"y"]


def test_a_key_that_was_deleted_does_not_come_back_by_a_repair_of_what_was_compacted_after_a_repair(
    tmp_path: Path,
) -> None:
    """The pass after the first repair removes the record, and its tombstone together with it."""
    cluster = DamagedCluster(tmp_path)
    put_a_deleted_key(cluster)
    configure(cluster, internal_segment_bytes="600")
    lose_first(cluster)
    assert repaired(cluster).clean
    compact(cluster.reopened(), InProcess())
    kept, path = lose_first(cluster)
    repaired(cluster)
    path.write_bytes(kept)
    assert keys(cluster) == [b"a", b"d", b"z", b"y"]


def lose_first(cluster: DamagedCluster) -> tuple[bytes, Path]:
    path = cluster.file(live(cluster)[0].path)
    kept = path.read_bytes()
    path.unlink()
    return kept, path


def damage_value(cluster: DamagedCluster, segment: Segment) -> None:
    cluster.flip(segment.path, cluster.file(segment.path).stat().st_size // 2)


def test_a_key_that_was_deleted_does_not_come_back_by_a_repair_within_a_compaction(tmp_path: Path) -> None:
    """The pass would drop the tombstone, and leave the file as it is that the repair writes again."""
    cluster = DamagedCluster(tmp_path)
    put_a_deleted_key(cluster)
    damage_value(cluster, live(cluster)[0])

    class RepairBeforeCommit(InProcess):
        def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
            results = list(super().run(function, items))
            assert any(repair.done for repair in repaired(cluster).repairs)
            yield from results

    assert compact(cluster.coordinator, RepairBeforeCommit()).left_out
    compact(cluster.reopened(), InProcess())
    assert keys(cluster) == [b"a", b"d", b"z", b"y"]


@pytest.mark.parametrize("changes_kept", [limits.SEGMENT_CHANGES_KEPT, 1])
def test_a_key_that_was_deleted_does_not_come_back_by_a_long_repair(
    tmp_path: Path, changes_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state keeps few changes: whether others changed what a repair depends on is then seen in the lists."""
    monkeypatch.setattr(limits, "SEGMENT_CHANGES_KEPT", changes_kept)
    cluster = DamagedCluster(tmp_path)
    put_a_deleted_key(cluster)
    damage_value(cluster, live(cluster)[0])

    def merge_for_long(task: MergeTask) -> TaskResult:
        result = merge_segments(task)
        assert compact(cluster.coordinator, InProcess()).records_removed
        return result

    monkeypatch.setattr(retired_sources, "merge_segments", merge_for_long)
    assert not any(repair.done for repair in repaired(cluster).repairs)


def sources_of(cluster: DamagedCluster, lost: Segment) -> SourceOrigin:
    check = cluster.check()
    return RetiredSources(check.store, check.metadata.state, check.stores).find("orders", lost)


@pytest.mark.parametrize(
    ("then", "now", "returns"),
    [
        ([], [(4, 6, 2)], False),
        ([(4, 6, 2)], [(4, 6, 2), (6, 9, 3)], False),
        ([(4, 6, 1)], [(4, 9, 4)], True),
        ([(4, 6, 2)], [(4, 9, 5)], False),
        ([(4, 6, 1)], [(4, 6, 2)], False),
        ([(4, 6, 1), (6, 9, 3)], [(4, 6, 2), (6, 9, 2)], True),
        ([(4, 6, 2)], [(4, 6, 1)], True),
        ([(4, 6, 2)], [(5, 6, 1)], True),
        ([], [(5, 6, 1)], False),
    ],
)
def test_records_come_back_for_good_if_later_ones_were_removed_since(
    tmp_path: Path, then: list[tuple[int, int, int]], now: list[tuple[int, int, int]], returns: bool
) -> None:
    lost, _ = rolled(cluster_that_rolls(tmp_path))
    lost = replace(lost, end_offset=4, records=3)
    listed = [
        [lost, *(replace(lost, base_offset=start, end_offset=end, records=count) for start, end, count in each)]
        for each in (then, now)
    ]
    assert bool(describe_returning(lost, *listed)) == returns


def test_retired_files_that_are_damaged_too_are_not_used(cluster: DamagedCluster) -> None:
    segment, old = rolled(cluster)
    delete_everywhere(cluster, segment.path)
    for broker in cluster.brokers:
        cluster.flip(old[1], cluster.file(old[1]).stat().st_size // 2, broker=broker)
    findings = cluster.report().of_kind(kinds.MISSING_LOG)
    assert {finding.severity for finding in findings} == {ERROR}
    report = repaired(cluster)
    assert not any(repair.done for repair in report.repairs)
    assert {finding.kind for finding in report.left or []} >= {kinds.MISSING_LOG}


def test_one_of_several_retired_files_is_not_enough(cluster: DamagedCluster) -> None:
    segment, old = rolled(cluster)
    delete_everywhere(cluster, segment.path)
    delete_everywhere(cluster, old[2])
    assert cluster.report().of_kind(kinds.MISSING_LOG)[0].severity == ERROR


def test_a_file_that_replaced_nothing_has_no_source(cluster: DamagedCluster) -> None:
    path = cluster.append()
    delete_everywhere(cluster, path)
    report = repaired(cluster)
    assert [repair.done for repair in report.repairs] == [False] * len(cluster.brokers)
    assert "no sound copy is left" in report.findings[0].action


def test_a_table_that_lists_a_lost_segment_is_not_said_to_be_mended_by_a_publication(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    configure(cluster, segment_ms="59", history_format="delta", file_delete_delay_ms="0", history_delete_delay_ms="0")
    segment, _ = rolled(cluster)
    tables = Tables(cluster.coordinator)
    tables.show("orders", cluster.coordinator.refresh())
    assert swept(cluster).problems == []
    cluster.file(segment.path).unlink()
    finding = cluster.report().of_kind(kinds.TABLE_FILE_GONE)[0]
    assert finding.severity == ERROR
    assert "sparklog maintain" not in finding.action


def test_the_hint_beside_deleted_records_says_what_ends_it(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    path = cluster.append()
    cluster.append()
    cluster.file(path).unlink()
    configure(cluster, retention_ms="-1")
    cluster.coordinator.submit(lambda state: delete_records(state, {("orders", 0): 15}))
    finding = cluster.report().of_kind(kinds.MISSING_LOG)[0]
    assert "these records are deleted; run `sparklog maintain --once`" in finding.action
    retain(cluster.coordinator)
    assert cluster.report().clean


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ([], "replaced nothing"),
        ([(0, 40)], "across its bounds"),
        ([(-5, 60)], "across its bounds"),
        ([(0, 20), (30, 60)], "has offset 20"),
        ([(0, 30), (30, 60)], ""),
    ],
)
def test_retired_segments_have_to_cover_exactly_the_offsets(
    tmp_path: Path, before: list[tuple[int, int]], words: str
) -> None:
    lost, _ = rolled(cluster_that_rolls(tmp_path))
    segments = [replace(lost, base_offset=start, end_offset=end) for start, end in before]
    assert words in describe_uncovered(lost, segments)
    assert bool(describe_uncovered(lost, segments)) == bool(words)


def cluster_that_rolls(folder: Path) -> DamagedCluster:
    made = DamagedCluster(folder)
    configure(made, segment_ms="59")
    return made


def test_the_report_and_a_repair_say_why_retired_files_are_not_used(cluster: DamagedCluster) -> None:
    segment, old = rolled(cluster)
    delete_everywhere(cluster, segment.path)
    delete_everywhere(cluster, old[2])
    for finding in cluster.report().of_kind(kinds.MISSING_LOG):
        assert "cannot be written again from retired files" in finding.action
        assert old[2] in finding.action
    refused = [repair for repair in repaired(cluster).repairs if old[2] in repair.why_not]
    assert [(repair.path, repair.done) for repair in refused] == [(segment.path, False)]


def test_nothing_is_said_of_retired_files_where_there_never_were_any(cluster: DamagedCluster) -> None:
    path = cluster.append()
    delete_everywhere(cluster, path)
    report = repaired(cluster)
    assert all("retired" not in finding.action for finding in report.findings)
    assert all("retired" not in repair.why_not + repair.what for repair in report.repairs)
