"""The vacuum: which files it deletes, which it keeps, and what happens to writers that were stalled across it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.leases import Lease, lease_key
from sparklog.coordinator.reader_leases import READERS
from sparklog.errors import InvalidRequestError, StaleWriteError, StorageUnavailableError
from sparklog.ids import RandomIds
from sparklog.log.broker_files import encode_identity
from sparklog.log.commits import cleanup
from sparklog.log.commits.retired_files import REMOVED, RemovedFile, write_removed
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.log.settings import LogSettings
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import (
    MIN_AGE_MS,
    OLD_LEASE,
    RETIRED,
    UNUSED_LISTING,
    OrphanReport,
    vacuum,
)
from sparklog.maintenance.segments.retention import retain
from sparklog.monitoring import orphans
from sparklog.monitoring.orphans import DEFAULT_AGE_MS, NEVER_COMMITTED, NO_VERSION_IN_NAME
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol.commits import ChangeBroker, ForgetRemovedFiles, RegisterBroker
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import JoinRequest, join_group
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.memory import MemoryStore
from sparklog.testing.faults import Call
from sparklog.testing.faulty_store import FaultyStore
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.logs import Written, append, batch_of, log_files, records

DAY = 86_400.0


def cluster() -> tuple[Coordinator, ManualClock]:
    """Topic orders with a file of one record."""
    clock = ManualClock()
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex, clock), clock=clock)
    coordinator.create_topic("orders", configs={"retention.ms": "-1"})
    append(coordinator, "orders", [Written(value=b"live")])
    return coordinator, clock


def written(coordinator: Coordinator, value: bytes = b"late") -> list[PartitionAppend]:
    """Write a file that no commit names yet."""
    state = coordinator.state
    key = segment_key("orders", 0, 0, state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(coordinator.store, key, has_key=False)
    writer.start_run(RunTarget("orders", state.topic("orders").topic_id, 0))
    writer.write(batch_of([Written(value=value)], ["value", "timestamp"]))
    return writer.finish()


def later(coordinator: Coordinator, clock: ManualClock, days: float = 8) -> None:
    """Advance the time, with a commit before and after."""
    append(coordinator, "orders", [Written(value=b"later")])
    clock.advance(days * DAY)
    append(coordinator, "orders", [Written(value=b"now")])


def values(coordinator: Coordinator) -> list[bytes | None]:
    return [record.value for record in records(coordinator, "orders")]


def paths(report: OrphanReport) -> list[tuple[str, str]]:
    return [(orphan.path, orphan.why) for orphan in report.files]


# -- which files are deleted


def test_files_of_a_writer_that_died_before_its_commit_are_deleted_and_the_log_is_kept() -> None:
    coordinator, clock = cluster()
    (orphan,) = written(coordinator)
    later(coordinator, clock)
    report = vacuum(coordinator, dry_run=False)
    assert sorted(paths(report)) == sorted(
        (path, NEVER_COMMITTED) for path in (orphan.run.path, orphan.run.path.replace(".log", ".index"))
    )
    assert report.size_bytes > 0
    assert values(coordinator) == [b"live", b"later", b"now"]
    assert vacuum(coordinator, dry_run=False).files == []


def test_a_dry_run_reports_the_orphans_and_changes_nothing() -> None:
    coordinator, clock = cluster()
    written(coordinator)
    later(coordinator, clock)
    before = {info.key for info in coordinator.store.list()}
    version = coordinator.refresh().version
    planned = vacuum(coordinator)
    assert {info.key for info in coordinator.store.list()} == before
    assert coordinator.refresh().version == version
    done = vacuum(coordinator, dry_run=False)
    assert (planned.files, planned.fence) == (done.files, done.fence)
    assert planned.dry_run


@pytest.mark.parametrize("damage", ["none", "damaged", "lost", "deleted by a sweep"])
def test_the_storage_table_counts_what_a_vacuum_would_delete_and_states_what_it_cannot_tell_as_null(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator, clock = cluster()
    written(coordinator)
    retired = RemovedFile("gone-0/00000000000000000000-0-x.log", 0, 70)
    listing = write_removed(coordinator.store, coordinator.log.ids, 0, [retired], 10**12)
    coordinator.submit(lambda _: Decision([listing], None))
    later(coordinator, clock)
    state = coordinator.refresh()
    if damage == "damaged":
        coordinator.store.put(listing.listing, b"damaged")
    elif damage != "none":
        coordinator.store.delete(listing.listing)
    if damage == "deleted by a sweep":
        coordinator.submit(lambda _: Decision([ForgetRemovedFiles(listings=[listing.listing])], None))
    rows = SystemTables(coordinator).read("storage", RowSelection(orphans=True), state).to_pylist()
    found = {row["topic"]: tuple(row.values())[2:] for row in rows}
    expected = vacuum(coordinator).files if damage in ("none", "deleted by a sweep") else []
    if damage == "none":
        assert found == {"orders": (0, 0, sum(file.size for file in expected), 2), None: (70, 1, 0, 0)}
    elif damage == "lost":
        assert found["orders"][:2] == (None, None)
        assert found["orders"][3] == 2
    elif damage == "damaged":
        assert found == {"orders": (None, None, None, None)}
    else:
        assert found["orders"] == (0, 0, sum(file.size for file in expected), 2)
    assert (listing.listing in caplog.text) == (damage in ("damaged", "lost"))
    assert SystemTables(coordinator).read("storage", RowSelection())["orphaned"].null_count == len(rows), (
        "not asked for"
    )


def test_a_vacuum_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator, _ = cluster()
    monkeypatch.setattr(orphans, "SCANNED_EVERY", 2)
    told: list[tuple[str, int, int]] = []
    vacuum(coordinator, progress=lambda *each: told.append(each))
    assert told[:2] == [("brokers", 0, 1), ("files at broker 0", 2, 0)]


def test_files_younger_than_the_age_limit_are_kept() -> None:
    coordinator, clock = cluster()
    (orphan,) = written(coordinator)
    later(coordinator, clock, days=6)
    report = vacuum(coordinator, dry_run=False)
    assert report.files == []
    assert report.younger == 2
    assert orphan.run.path in log_files(coordinator)
    assert len(vacuum(coordinator, older_than_ms=MIN_AGE_MS, dry_run=False).files) == 2


def test_an_age_limit_under_a_day_is_refused_unless_forced() -> None:
    coordinator, clock = cluster()
    written(coordinator)
    append(coordinator, "orders", [Written()])
    clock.advance(10)
    with pytest.raises(InvalidRequestError, match="force"):
        vacuum(coordinator, older_than_ms=0, dry_run=False)
    with pytest.raises(InvalidRequestError):
        vacuum(coordinator, older_than_ms=-1, dry_run=False, force=True)
    assert len(vacuum(coordinator, older_than_ms=0, dry_run=False, force=True).files) == 2


def test_files_without_a_version_in_their_name_are_reported_and_kept() -> None:
    coordinator, clock = cluster()
    coordinator.store.put("orders-0/00000000000000000000-abc.log", b"x")
    coordinator.store.put("notes.txt", b"x")
    later(coordinator, clock)
    report = vacuum(coordinator, dry_run=False)
    assert report.files == []
    assert [(file.path, file.why) for file in report.left_alone] == [
        ("orders-0/00000000000000000000-abc.log", NO_VERSION_IN_NAME)
    ]
    assert coordinator.store.get("notes.txt") == b"x"


def test_retired_files_are_deleted_once_they_are_due() -> None:
    coordinator, clock = cluster()
    later(coordinator, clock)
    coordinator.submit(partial(delete_records, offsets={("orders", 0): 2}))
    retain(coordinator)
    assert vacuum(coordinator).superseded == []
    clock.advance(61)
    planned = vacuum(coordinator)
    assert [file.why for file in planned.superseded] == [RETIRED, RETIRED]
    assert planned.size_bytes > 0
    assert len(log_files(coordinator)) == 3
    done = vacuum(coordinator, dry_run=False)
    assert done.superseded == planned.superseded
    assert done.files == []
    assert len(log_files(coordinator)) == 1
    assert values(coordinator) == [b"now"]


def test_retired_files_are_left_to_the_sweep() -> None:
    coordinator, clock = cluster()
    later(coordinator, clock)
    coordinator.submit(partial(delete_records, offsets={("orders", 0): 2}))
    coordinator.submit(partial(alter_configs, topic="orders", changes={"file.delete.delay.ms": str(30 * 86_400_000)}))
    retain(coordinator)
    clock.advance(9 * DAY)
    assert vacuum(coordinator, dry_run=False).files == []
    assert len(log_files(coordinator)) == 3
    clock.advance(30 * DAY)
    assert sweep(coordinator).files == 2


def test_the_files_of_a_lost_listing_are_deleted() -> None:
    coordinator, clock = cluster()
    later(coordinator, clock)
    coordinator.submit(partial(delete_records, offsets={("orders", 0): 2}))
    retain(coordinator)
    (listing,) = coordinator.refresh().removed_files
    coordinator.store.delete(listing)
    clock.advance(9 * DAY)
    sweep(coordinator)
    append(coordinator, "orders", [Written(value=b"last")])
    assert len(vacuum(coordinator, dry_run=False).files) == 4
    assert values(coordinator) == [b"now", b"last"]


def test_listings_that_no_commit_names_are_deleted() -> None:
    coordinator, clock = cluster()
    files = [RemovedFile("orders-0/x.log", 0, 1)]
    unused = write_removed(coordinator.store, coordinator.log.ids, coordinator.state.version, files, 0)
    later(coordinator, clock)
    young = write_removed(coordinator.store, coordinator.log.ids, coordinator.state.version, files, 0)
    assert paths(vacuum(coordinator, dry_run=False)) == [(unused.listing, UNUSED_LISTING)]
    assert [info.key for info in coordinator.store.list(REMOVED)] == [young.listing]


def test_leases_of_former_members_are_deleted_and_those_of_members_are_kept() -> None:
    coordinator, clock = cluster()
    coordinator.submit(partial(join_group, request=JoinRequest(group="g", member="here", topics=["orders"])))
    for name in ("here", "gone"):
        Lease(coordinator.store, clock, "g", name).renew()
    later(coordinator, clock)
    Lease(coordinator.store, clock, "g", "young").renew()
    coordinator.store.put(f"{READERS}r", b'{"version":1,"until_ms":0}')
    report = vacuum(coordinator, dry_run=False)
    assert paths(report) == [(lease_key("g", "gone"), OLD_LEASE)]
    assert not list(coordinator.store.list(READERS))


def test_the_files_of_every_online_broker_are_checked() -> None:
    coordinator, clock = cluster()
    stores = [MemoryStore(uuid.uuid4().hex, clock) for _ in range(2)]
    for number, store in enumerate(stores, 1):
        url = store.root
        coordinator.submit(lambda state, n=number, u=url: Decision([RegisterBroker(broker=n, url=u)], None))  # type: ignore[misc]
        store.put(f"orders-0/00000000000000000000-v1-w{number}.log", b"xyz")
        store.put(IDENTITY_KEY, encode_identity(coordinator.state.cluster_id, number))
    coordinator.submit(lambda state: Decision([ChangeBroker(broker=2, online=False)], None))
    later(coordinator, clock)
    with substituted(stores[0]), substituted(stores[1]):
        report = vacuum(coordinator, dry_run=False)
    assert [(orphan.broker, orphan.size) for orphan in report.files] == [(1, 3)]
    assert report.problems == ["broker 2 is offline and was skipped"]
    assert [len(list(store.list("orders-0/"))) for store in stores] == [0, 1]


def test_the_age_of_versions_is_known_after_their_commits_were_removed() -> None:
    settings = LogSettings(min_commits_kept=0)
    coordinator, clock = cluster()
    (old,) = written(coordinator)
    for _ in range(40):
        clock.advance(0.5 * DAY)
        append(coordinator, "orders", [Written(value=b"x")])
        coordinator.log.write_checkpoint()
        cleanup.clean_up(coordinator.store, clock, {"metadata.max.retention.bytes": "0"}, settings)
    (young,) = written(coordinator)
    append(coordinator, "orders", [Written(value=b"x")])
    assert min(info.key for info in coordinator.store.list("meta/commits/")) > "meta/commits/" + "0" * 18 + "40"
    report = vacuum(coordinator)
    assert {orphan.path for orphan in report.files} == {old.run.path, old.run.path.replace(".log", ".index")}
    assert 25 <= report.fence <= 28
    assert report.younger == 2
    assert limits.BOUNDARY_TIMES_EVERY_MS < 0.5 * DAY * 1000
    assert young.run.path in log_files(coordinator)


# -- slow writers


def test_a_writer_stalled_between_its_file_and_its_commit_is_refused_and_nothing_is_lost() -> None:
    coordinator, clock = cluster()
    slow = open_cluster(coordinator.store, clock=clock)
    items = written(slow)
    later(coordinator, clock)
    vacuum(coordinator, dry_run=False)
    with pytest.raises(StaleWriteError):
        slow.append(AppendRequest(appends=items))
    assert values(coordinator) == [b"live", b"later", b"now"]
    slow.append(AppendRequest(appends=written(slow)))
    assert values(coordinator) == [b"live", b"later", b"now", b"late"]


def test_a_writer_that_commits_between_the_fence_and_the_deletion_is_refused() -> None:
    coordinator, clock = cluster()
    slow = open_cluster(coordinator.store, clock=clock)
    items = written(slow)
    later(coordinator, clock)
    refused: list[StaleWriteError] = []

    def commit_now() -> None:
        if coordinator.state.writer_fence >= 0 and not refused:
            with pytest.raises(StaleWriteError) as caught:
                slow.append(AppendRequest(appends=items))
            refused.append(caught.value)

    vacuum(coordinator, dry_run=False, check=commit_now)
    assert refused
    assert values(coordinator) == [b"live", b"later", b"now"]


def test_a_writer_that_commits_just_before_the_fence_keeps_its_file() -> None:
    coordinator, clock = cluster()
    slow = open_cluster(coordinator.store, clock=clock)
    items = written(slow)
    later(coordinator, clock)
    submit: Callable[..., object] = coordinator.submit

    def submit_late(*request: object) -> object:
        slow.append(AppendRequest(appends=items))
        return submit(*request)

    coordinator.submit = submit_late  # type: ignore[method-assign, assignment]
    report = vacuum(coordinator, dry_run=False)
    assert report.files == []
    assert values(coordinator) == [b"live", b"later", b"now", b"late"]


def test_unfinished_files_older_than_the_limit_are_deleted(tmp_path: Path) -> None:
    root = tmp_path / "log"
    coordinator = create_cluster(str(root))
    coordinator.create_topic("orders")
    folder = root / "orders-0"
    folder.mkdir()
    old_seconds, ids = DEFAULT_AGE_MS / 1000 + 60, RandomIds()
    old, young, another_programs = (f".tmp-{name}" for name in (ids.write_id(), ids.write_id(), "rsync"))
    for name, age in ((old, old_seconds), (young, 60), (another_programs, old_seconds)):
        file = folder / name
        file.write_bytes(b"x")
        modified = coordinator.log.clock.now_ms() / 1000 - age
        os.utime(file, (modified, modified))
    assert vacuum(coordinator, dry_run=False).unfinished == 1
    assert {file.name for file in folder.iterdir()} == {young, another_programs}


def test_a_vacuum_retries_a_listing_that_could_not_be_read() -> None:
    """Without the retry, a vacuum of many listings never finishes on a storage that fails intermittently."""
    coordinator, clock = cluster()
    (orphan,) = written(coordinator)
    later(coordinator, clock)
    coordinator.submit(partial(delete_records, offsets={("orders", 0): 1}))
    retain(coordinator)
    (listing,) = coordinator.refresh().removed_files
    refused: list[str] = []

    def refuse_twice(step: int, call: Call) -> None:
        if call.operation == "get" and call.key == listing and len(refused) < 2:
            refused.append(call.key)
            raise StorageUnavailableError("it does not answer", path=call.key)

    failing = open_cluster(FaultyStore(coordinator.store, before=refuse_twice), clock=clock)
    report = vacuum(failing, dry_run=False)
    assert len(refused) == 2
    assert orphan.run.path in [orphan_file.path for orphan_file in report.files]
    assert values(coordinator) == [b"later", b"now"]
