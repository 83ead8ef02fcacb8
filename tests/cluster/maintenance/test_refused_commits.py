"""Jobs whose commit fails: their new files are deleted if the commit certainly does not exist, and kept if it may."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import msgspec
import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    IndeterminateCommitError,
    InvalidRequestError,
    StorageError,
    StorageFullError,
    StorageUnavailableError,
)
from sparklog.limits import MAX_STORED_TEXT_LENGTH
from sparklog.log.layout import COMMITS
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments import replacement
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.logs import Written, append, live, records

JOBS: dict[str, Callable[[Coordinator], object]] = {
    "roll": lambda coordinator: roll(coordinator, InProcess()),
    "retention": retain,
}
CONFIGS = {
    "roll": {},
    "retention": {"internal.segment.bytes": "1", "segment.ms": "60000", "retention.ms": "600000"},
}


class Root:
    """A cluster of one partition with ten files, whose next commit fails with ``error`` if one is set. If that leaves
    the outcome unknown, the commit cannot be read back either."""

    def __init__(self, job: str) -> None:
        self.error: StorageError | None = None
        self.tried = False
        self.store = FaultyStore(MemoryStore(uuid.uuid4().hex), before=self.refuse)
        self.coordinator = create_cluster(self.store, clock=ManualClock(22 * 60_000))
        self.coordinator.create_topic("t", configs=CONFIGS[job])
        for number in range(10):
            append(self.coordinator, "t", [Written(b"k%d" % number, b"v%d" % number, 2 * number)])

    def refuse(self, step: int, call: Call) -> None:
        if self.error is None or not call.key.startswith(COMMITS):
            return
        creates = call.operation == "put_if_absent"
        self.tried = self.tried or creates
        if creates or (self.tried and not self.error.nothing_written):
            raise self.error

    def objects(self) -> set[str]:
        return {info.key for info in self.store.wrapped.list() if not info.key.startswith("leases/")}


@pytest.mark.parametrize("job", JOBS)
def test_a_commit_that_certainly_failed_leaves_no_files_of_its_job(job: str) -> None:
    root = Root(job)
    log_records, before = records(root.coordinator, "t"), root.objects()
    root.error = StorageFullError("no space left", nothing_written=True)
    with pytest.raises(StorageFullError):
        JOBS[job](root.coordinator)
    assert root.objects() == before
    assert records(root.coordinator, "t") == log_records
    root.error = None
    JOBS[job](root.coordinator)
    assert len(live(root.coordinator, "t")) < 10


@pytest.mark.parametrize("job", JOBS)
def test_a_commit_that_may_exist_keeps_every_file_it_would_name(job: str) -> None:
    root = Root(job)
    log_records, before = records(root.coordinator, "t"), root.objects()
    root.error = StorageUnavailableError("no answer")
    with pytest.raises(IndeterminateCommitError):
        JOBS[job](root.coordinator)
    assert root.objects() > before
    root.error = None
    assert records(root.coordinator, "t") == log_records
    JOBS[job](root.coordinator)
    assert len(live(root.coordinator, "t")) < 10


def test_a_topic_whose_changes_no_commit_can_state_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statistics are too long, as those of a schema of an earlier version; the error names it."""
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex), clock=ManualClock(22 * 60_000))
    for topic in ("sound", "wide", "also"):
        coordinator.create_topic(topic)
        for number in range(4):
            append(coordinator, topic, [Written(b"k", b"v%d" % number, number)])
    real = replacement.SegmentReplacement.add

    def add(self: replacement.SegmentReplacement, *prepared: replacement.PreparedReplacement) -> None:
        for each in prepared:
            for added in each.change.added if each.change.topic == "wide" else ():
                msgspec.structs.force_setattr(added, "stats", "x" * (MAX_STORED_TEXT_LENGTH + 1))
        real(self, *prepared)

    monkeypatch.setattr(replacement.SegmentReplacement, "add", add)
    with pytest.raises(InvalidRequestError, match=r"topic wide: commit \d+ would not be readable"):
        roll(coordinator, InProcess())
    assert {topic: len(live(coordinator, topic)) for topic in ("sound", "wide", "also")} == {
        "sound": 1,
        "wide": 4,
        "also": 1,
    }
