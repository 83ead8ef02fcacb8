"""A cluster may be in use during a check: concurrent changes are never reported as damage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import StorageUnavailableError
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.layout import COMMITS
from sparklog.log.settings import LogSettings
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import INFO
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.store.memory import MemoryStore
from sparklog.testing.clusters import Cluster, cluster
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.logs import Written, append

CONFIGS = {"segment.ms": "600000", "file.delete.delay.ms": "0", "retention.ms": "-1"}


def put(c: Cluster, count: int = 1) -> None:
    for _ in range(count):
        end = c.coordinator.refresh().partition("t", 0).log_end_offset
        append(c.coordinator, "t", [Written(b"k", b"v" * 20, 1 + end)] * 3)


class After(InProcess):
    """Runs ``action`` before the tasks, that is, between the plan and the reading of files."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._action = action

    def run(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        planned = list(items)
        self._action()
        return super().run(function, planned)


def maintain(c: Cluster) -> None:
    roll(c.coordinator, InProcess())
    retain(c.coordinator)
    c.coordinator.log.clock.sleep(100)
    sweep(c.coordinator)


@pytest.fixture
def log() -> Iterator[Cluster]:
    with cluster(clock=ManualClock(now_ms=10**12)) as c:
        c.create_topic("t", configs=CONFIGS)
        put(c, 12)
        yield c


def files(c: Cluster) -> set[str]:
    return {info.key for info in c.coordinator.store.list() if info.key.endswith(".log")}


def test_files_rolled_and_deleted_during_a_check_are_not_reported_missing(log: Cluster) -> None:
    before = files(log)
    report = check_cluster(log.coordinator.store, runner=After(lambda: maintain(log))).report
    assert before - files(log)
    assert report.findings == []


def test_files_of_a_topic_deleted_during_a_check_are_not_reported_missing(log: Cluster) -> None:
    def delete() -> None:
        delete_topic(log.coordinator, "t")
        for key in files(log):
            log.coordinator.store.delete(key)

    assert check_cluster(log.coordinator.store, runner=After(delete)).report.findings == []


def test_files_appended_during_a_check_are_not_reported_as_orphans(log: Cluster) -> None:
    """The files are listed before they are part of the log, and checked after."""
    store = FaultyStore(log.coordinator.store, before=lambda step, call: put(log) if is_listing(call) else None)
    report = check_cluster(store).report
    assert report.findings == []
    assert log.coordinator.refresh().version > report.version


def is_listing(call: Call) -> bool:
    return call.operation == "list" and call.key == ""


def test_commits_cleaned_up_during_a_check_are_not_reported_missing(log: Cluster) -> None:
    """They are removed between the listing of the commits and the reading of each."""
    immediately = LogSettings(min_commit_age_ms=0, min_commits_kept=0, min_checkpoint_age_ms=0)
    inner = log.coordinator.store
    assert isinstance(inner, MemoryStore)
    log.coordinator.log.write_checkpoint()
    put(log, 3)
    log.coordinator.log.write_checkpoint()
    put(log, 3)
    cleaned: list[Call] = []

    def clean(step: int, call: Call) -> None:
        if call.operation == "get" and call.key.startswith(COMMITS) and not cleaned:
            cleaned.append(call)
            log.coordinator.log.clock.sleep(10**9)
            clean_up(inner, log.coordinator.log.clock, {"metadata.max.retention.ms": "1"}, immediately)

    before = len(list(inner.list(COMMITS)))
    report = check_cluster(FaultyStore(inner, before=clean)).report
    assert len(list(inner.list(COMMITS))) < before
    assert [finding for finding in report.findings if finding.severity != INFO] == []
    assert report.version == log.coordinator.refresh().version


def test_a_failing_storage_is_distinguished_from_damage_and_nothing_is_repaired(log: Cluster) -> None:
    broken = min(files(log))

    def fail(step: int, call: Call) -> None:
        if call.key == broken:
            raise StorageUnavailableError("injected: no answer", path=call.key)

    check = check_cluster(FaultyStore(log.coordinator.store, before=fail))
    [finding] = check.report.findings
    assert (finding.kind, finding.severity, finding.path) == ("unreadable", "error", broken)
    repair_cluster(check)
    assert not any(repair.done for repair in check.report.repairs)
    assert check_cluster(log.coordinator.store).report.findings == []
