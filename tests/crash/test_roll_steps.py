"""A roll is killed, or the storage fails, at every step: no record is lost or duplicated, and a rerun completes."""

from __future__ import annotations

from sparklog.coordinator import Coordinator
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from tests.cluster.maintenance.logs import Written, append
from tests.crash.maintenance_steps import Scene, check_every_step, check_every_step_of_a_follower


def small_files(coordinator: Coordinator) -> None:
    """Two segments in Kafka's sense and an active one in t-0, small files in t-1, and one in u-0."""
    coordinator.create_topic("t", 2, configs={"segment.ms": "180000", "file.delete.delay.ms": "60000"})
    coordinator.create_topic("u", 1)
    for minute in range(12):
        append(coordinator, "t", [Written(b"k%d" % minute, b"v%d" % minute, minute)])
    for minute in range(4):
        append(coordinator, "t", [Written(None, b"w%d" % minute)], partition=1)
    append(coordinator, "u", [Written(b"k", b"alone")])


def test_a_fault_at_any_step_of_a_roll_leaves_the_log_unchanged_or_rolled() -> None:
    check_every_step(Scene(small_files, lambda coordinator: roll(coordinator, InProcess())))


def test_a_follower_failing_at_any_step_of_a_roll_stays_in_sync_with_identical_files() -> None:
    check_every_step_of_a_follower(Scene(small_files, lambda coordinator: roll(coordinator, InProcess())))
