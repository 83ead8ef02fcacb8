"""Seeded bugs in the handling of clocks, replaced roots, unknown outcomes and slow readers are detected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest

from sparklog.coordinator import Coordinator
from sparklog.coordinator.group_member import GroupMember
from sparklog.errors import CorruptMetadataError, ObjectExistsError, StorageError
from sparklog.log.checkpoints import usable_checkpoints as checkpoint_guard
from sparklog.log.commits import commit_attempt, commit_log
from sparklog.log.commits.commit_attempt import CommitAttempt
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.replaced_root import LogEnd
from sparklog.log.commits.storage_clock import ExpiryClock, StorageClock
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.log.layout import read_boundary
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide import groups as decide_groups
from sparklog.protocol.decide.append import AppendRequest, AppendResult
from sparklog.testing.checks import check
from tests.simulation import racing, restored, suspended
from tests.simulation.group_members import GroupMemberLife
from tests.simulation.scheduler import Machine
from tests.simulation.slow_readers import SlowReaders
from tests.simulation.test_groups_and_transactions import build
from tests.simulation.world import NO_CHECKPOINTS, IdempotentProducer

Patch = pytest.MonkeyPatch
Run = Callable[[int], Iterable[object]]
SEEDS = 2000
"""Each bug must be detected within these; all are within a few dozen."""


# -- simulations


def groups(seed: int) -> Iterable[object]:
    world = build(seed, GroupMemberLife, NO_CHECKPOINTS)
    return [*check(world.run(strict=False)), *world.broken]


def roots(seed: int) -> Iterable[object]:
    try:
        return restored.build(seed).findings()
    except (AssertionError, CorruptMetadataError) as error:
        return [error]


def sleepers(seed: int) -> Iterable[object]:
    return suspended.simulate(seed, strict=False).findings


def readers(seed: int) -> Iterable[object]:
    return SlowReaders(seed, NO_CHECKPOINTS).run()


def maintenance(seed: int) -> Iterable[object]:
    return racing.simulate(seed, strict=False).truth.findings


# -- bugs


def an_unknown_outcome_is_treated_as_a_failure(patch: Patch) -> None:
    def create(self: CommitAttempt) -> bool:
        try:
            self._store.put_if_absent(commit_key(self._commit.version), self._encoded.data)
        except ObjectExistsError:
            return self._read_back(None)
        return True  # every other StorageError is raised to the caller

    patch.setattr(CommitAttempt, "_create", create)


def sequences_are_reused_after_an_unknown_outcome(patch: Patch) -> None:
    patch.setattr(IdempotentProducer, "may_give_up", lambda self, unknown: True)


def the_end_of_the_log_is_not_compared(patch: Patch) -> None:
    patch.setattr(CommitLog, "_check_end", lambda self, end: True)
    patch.setattr(CommitAttempt, "_end_before", lambda self: LogEnd(self._commit.previous, read_boundary(self._store)))


def a_joining_member_expires_offsets_by_its_own_clock(patch: Patch) -> None:
    real = GroupMember._begin

    def begin(self: GroupMember) -> None:
        now_ms = self._clock.now_ms()
        with suppress(StorageError):
            self.coordinator.submit(lambda state: decide_groups.expire_offsets(state, now_ms))
        real(self)

    patch.setattr(GroupMember, "_begin", begin)


def a_commit_is_stamped_with_its_machines_clock(patch: Patch) -> None:
    patch.setattr(StorageClock, "now_ms", lambda self: self._clock.now_ms())


def maintenance_uses_its_machines_clock(patch: Patch) -> None:
    patch.setattr(ExpiryClock, "now_ms", lambda self: self._clock.now_ms())


def elapsed_time_stops_while_a_machine_is_suspended(patch: Patch) -> None:
    patch.setattr(Machine, "counts_suspension", False)
    patch.setattr(ElapsedTime, "seconds_since", lambda self, moment: self._clock.monotonic() - moment.monotonic)


def the_boundary_can_move_back(patch: Patch) -> None:
    for module in (checkpoint_guard, commit_attempt, commit_log):
        patch.setattr(module, "read_certain_boundary", read_boundary)


def the_runs_of_a_file_are_committed_one_by_one(patch: Patch) -> None:
    real = Coordinator.append

    def append(self: Coordinator, request: AppendRequest, written: Moment | None = None) -> AppendResult:
        appended = []
        for item in request.appends:
            appended += real(self, AppendRequest(appends=[item])).appended
            self.log.clock.sleep(300)
        return AppendResult(appended)

    patch.setattr(Coordinator, "append", append)


def commits_are_read_one_by_one(patch: Patch) -> None:
    patch.setattr(commit_log, "MAX_READ_AHEAD", 1)
    patch.setattr(CommitLog, "_jump_to_checkpoint", lambda self: False)


BUGS: list[tuple[Callable[[Patch], None], Run]] = [
    (an_unknown_outcome_is_treated_as_a_failure, groups),
    (sequences_are_reused_after_an_unknown_outcome, groups),
    (the_end_of_the_log_is_not_compared, roots),
    (a_joining_member_expires_offsets_by_its_own_clock, groups),
    (a_commit_is_stamped_with_its_machines_clock, groups),
    (maintenance_uses_its_machines_clock, groups),
    (maintenance_uses_its_machines_clock, maintenance),
    (elapsed_time_stops_while_a_machine_is_suspended, sleepers),
    (the_boundary_can_move_back, sleepers),
    (the_runs_of_a_file_are_committed_one_by_one, maintenance),
    (commits_are_read_one_by_one, readers),
]
"""The bug, and the simulation that detects it."""

FIRST_SEEDS: dict[tuple[Callable[[Patch], None], Run], int] = {
    (maintenance_uses_its_machines_clock, maintenance): 11,
    (elapsed_time_stops_while_a_machine_is_suspended, sleepers): 25,
    (the_boundary_can_move_back, sleepers): 10,
    (the_runs_of_a_file_are_committed_one_by_one, maintenance): 1,
}
"""The first seed to try for rare bugs: from 0 on they take seconds."""


@pytest.mark.parametrize(("bug", "run"), BUGS, ids=[f"{bug.__name__}-{run.__name__}" for bug, run in BUGS])
def test_a_seeded_bug_is_detected(bug: Callable[[Patch], None], run: Run) -> None:
    with pytest.MonkeyPatch.context() as broken:
        bug(broken)
        first = FIRST_SEEDS.get((bug, run), 0)
        seed = next((seed for seed in range(first, first + SEEDS) if list(run(seed))), -1)
    assert seed >= 0, "no seed detects it"
    assert list(run(seed)) == [], f"seed {seed} has findings without the bug"
