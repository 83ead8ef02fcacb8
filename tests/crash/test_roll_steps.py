"""A roll is killed, or the storage fails, at every step: no record is lost or duplicated, and a rerun completes."""

from __future__ import annotations

from functools import partial

import pytest

from sparklog import limits
from sparklog.coordinator import Coordinator
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from tests.cluster.maintenance.logs import Written, append
from tests.crash.maintenance_steps import Scene, check_every_step, check_every_step_of_a_follower

FORMATS = pytest.mark.parametrize("history_format", ["arrow", "delta"])


def small_files(coordinator: Coordinator, history_format: str) -> None:
    """Two segments in Kafka's sense and an active one in t-0, small files in t-1, and one in u-0."""
    configs = {"segment.ms": "180000", "file.delete.delay.ms": "60000", "history.format": history_format}
    coordinator.create_topic("t", 2, configs=configs)
    coordinator.create_topic("u", 1)
    for minute in range(12):
        append(coordinator, "t", [Written(b"k%d" % minute, b"v%d" % minute, minute)])
    for minute in range(4):
        append(coordinator, "t", [Written(None, b"w%d" % minute)], partition=1)
    append(coordinator, "u", [Written(b"k", b"alone")])


@pytest.mark.sampled
@FORMATS
def test_a_fault_at_any_step_of_a_roll_leaves_the_log_unchanged_or_rolled(history_format: str) -> None:
    check_every_step(
        Scene(partial(small_files, history_format=history_format), lambda coordinator: roll(coordinator, InProcess()))
    )


@pytest.mark.sampled
@FORMATS
def test_a_follower_failing_at_any_step_of_a_roll_stays_in_sync_with_identical_files(history_format: str) -> None:
    prepare = partial(small_files, history_format=history_format)
    check_every_step_of_a_follower(Scene(prepare, lambda coordinator: roll(coordinator, InProcess())))


@pytest.mark.sampled
def test_a_fault_while_row_groups_are_encoded_in_a_thread_leaves_the_log_unchanged_or_rolled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TARGET_ROW_GROUP_BYTES", 1)

    def prepare(coordinator: Coordinator) -> None:
        typed = {"value.format": "json", "value.schema": "minute int"}
        configs = {"segment.ms": "120000", "history.format": "delta", **typed}
        coordinator.create_topic("t", 1, configs=configs)
        for minute in range(4):
            append(coordinator, "t", [Written(b"k", b'{"minute":%d}' % minute, minute)])

    check_every_step(Scene(prepare, lambda coordinator: roll(coordinator, InProcess())))
