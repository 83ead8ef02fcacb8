"""Retention, sweep, vacuum and the cleanup of commits behave alike on every storage."""

from __future__ import annotations

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.commits import cleanup
from sparklog.log.layout import COMMITS
from sparklog.log.settings import LogSettings
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.segments.retention import retain
from sparklog.store.base import Store
from tests.cluster.maintenance.logs import Written, append, log_files, records


def sweep_once_due(coordinator: Coordinator) -> int:
    """The files that a sweep deletes once a listing is due: from the time of its commit on, which some storages round
    to seconds."""
    for _ in range(100):
        if files := sweep(coordinator).files:
            return files
        coordinator.log.clock.sleep(0.05)
    return 0


AT_ONCE = LogSettings(min_commits_kept=0, min_commit_age_ms=-60_000)
"""Commits are deleted immediately, even if the clocks of the storage and of this machine differ."""


def test_unneeded_files_and_commits_are_deleted_and_the_rest_is_kept(store: Store) -> None:
    coordinator = create_cluster(store, settings=AT_ONCE)
    configs = {"retention.ms": "1000", "file.delete.delay.ms": "0", "internal.segment.bytes": "1"}
    coordinator.create_topic("orders", configs=configs)
    in_an_hour = coordinator.log.clock.now_ms() // 60_000 + 60
    for number in range(4):
        append(coordinator, "orders", [Written(value=b"%d" % number)])
    append(coordinator, "orders", [Written(value=b"kept", minute=in_an_hour)])
    coordinator.log.write_checkpoint()
    append(coordinator, "orders", [Written(value=b"last", minute=in_an_hour)])
    store.put("orders-0/00000000000000000000-v1-orphan.log", b"x")
    assert retain(coordinator).segments == 4
    assert sweep_once_due(coordinator) == 4
    assert [cleaned.size for cleaned in vacuum(coordinator, 0, dry_run=False, force=True).files] == [1]
    cleaned = cleanup.clean_up(store, coordinator.log.clock, {"metadata.max.retention.bytes": "0"}, AT_ONCE)
    assert cleaned.commits == cleaned.boundary + 1
    assert len(list(store.list(COMMITS))) == coordinator.refresh().version - cleaned.boundary
    opened = open_cluster(store)
    assert opened.state == coordinator.state
    assert [record.value for record in records(opened, "orders")] == [b"kept", b"last"]
    assert len(log_files(opened)) == 2
