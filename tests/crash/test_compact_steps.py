"""A compaction is killed, or the storage fails, at every step: the log is unchanged or compacted, and a rerun
completes."""

from __future__ import annotations

from functools import partial

import pytest

from sparklog.coordinator import Coordinator
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from tests.cluster.maintenance.logs import Written, append
from tests.crash.maintenance_steps import Scene, check_every_step, check_every_step_of_a_follower

CONFIGS = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0",
    "internal.segment.bytes": "1500",
    "delete.retention.ms": "0",
}


FORMATS = pytest.mark.parametrize("history_format", ["arrow", "delta"])


def overwritten(coordinator: Coordinator, history_format: str) -> None:
    """In t-0: overwritten keys, a large segment that stays, old and new tombstones; in t-1 nothing to compact."""
    coordinator.create_topic("t", 2, configs={**CONFIGS, "history.format": history_format})
    append(coordinator, "t", [Written(b"gone", b"1", 1), Written(b"a", b"1", 1)])
    append(coordinator, "t", [Written(b"gone", None, 2)])
    append(coordinator, "t", [Written(b"x", b"active", 3)])
    compact(coordinator, InProcess())
    append(coordinator, "t", [Written(b"big", b"x" * 1400, 4)])
    append(coordinator, "t", [Written(b"a", b"2", 5), Written(b"new", None, 5)])
    append(coordinator, "t", [Written(b"b", b"1", 6)])
    append(coordinator, "t", [Written(b"b", b"2", 7)])
    for minute in (1, 2):
        append(coordinator, "t", [Written(b"only", b"%d" % minute, minute)], partition=1)


@pytest.mark.sampled
@FORMATS
def test_a_fault_at_any_step_of_a_compaction_leaves_the_log_unchanged_or_compacted(history_format: str) -> None:
    check_every_step(
        Scene(
            partial(overwritten, history_format=history_format), lambda coordinator: compact(coordinator, InProcess())
        )
    )


@pytest.mark.sampled
@FORMATS
def test_a_follower_failing_at_any_step_of_a_compaction_stays_in_sync_with_identical_files(history_format: str) -> None:
    prepare = partial(overwritten, history_format=history_format)
    check_every_step_of_a_follower(Scene(prepare, lambda coordinator: compact(coordinator, InProcess())))
