"""Each kind of finding is detected once the component that prevents it is broken, and the run that shows it can be
reproduced from its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sparklog.coordinator import Coordinator
from sparklog.errors import IndeterminateCommitError
from sparklog.log.elapsed import Moment
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide import append as decide
from sparklog.protocol.decide import groups as decide_groups
from sparklog.protocol.decide import producers as decide_producers
from sparklog.protocol.decide.append import Appended, AppendRequest, AppendResult, _Cursor
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.protocol.group import rebalance as groups
from sparklog.protocol.state import GroupState, MemberState, State
from sparklog.testing.checks import check
from sparklog.testing.findings import (
    ABORTED_READ,
    DUPLICATE,
    FINDINGS,
    GROUP_OFFSET_BACK,
    INCONSISTENT_OFFSETS,
    LOST_WRITE,
    NON_MONOTONIC_POLL,
    SKIPPED_POLL,
    TORN_TRANSACTION,
    TWO_OWNERS,
    UNSEEN,
    ZOMBIE_WRITE,
    Finding,
)
from sparklog.types import TopicPartition
from tests.simulation import members, world
from tests.simulation.test_groups_and_transactions import build
from tests.simulation.world import NO_CHECKPOINTS, Sent, World

Patch = pytest.MonkeyPatch
SEEDS = 2000


def an_unknown_outcome_is_treated_as_success(patch: Patch) -> None:
    real = Coordinator.append

    def append(self: Coordinator, request: AppendRequest, written: Moment | None = None) -> AppendResult:
        ends = self.state
        try:
            return real(self, request)
        except IndeterminateCommitError:
            appended = [
                Appended(a.topic, "", a.partition, ends.partition(a.topic, a.partition).log_end_offset, a.run.records)
                for a in request.appends
            ]
            return AppendResult(appended)

    patch.setattr(Coordinator, "append", append)


def the_newest_commits_are_lost_at_the_end(patch: Patch) -> None:
    """As by a disk that had not written them before a power failure."""
    real = World._read_all

    def read_all(self: World) -> None:
        newest = max(info.key for info in self.store.list("meta/commits/"))
        version = int(newest.rsplit("/", 1)[1].removesuffix(".json"))
        for number in range(version - 5, version + 1):
            self.store.delete(commit_key(number))
        for info in self.store.list("meta/checkpoints/"):
            self.store.delete(info.key)
        real(self)

    patch.setattr(World, "_read_all", read_all)


def a_request_is_retried_without_its_sequence(patch: Patch) -> None:
    real = Sent.appends

    def appends(self: Sent, identity: ProducerIdentity, sequences: dict[TopicPartition, int]) -> object:
        unnumbered = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
        return [replace(item, **unnumbered) for item in real(self, identity, sequences)]

    patch.setattr(Sent, "appends", appends)


def a_repeated_request_returns_the_log_end_offset(patch: Patch) -> None:
    real = _Cursor._check_producer

    def check_producer(self: object, item: object, partition: object) -> int | None:
        earlier = real(self, item, partition)  # type: ignore[arg-type]
        return None if earlier is None else partition.log_end_offset  # type: ignore[attr-defined]

    patch.setattr(_Cursor, "_check_producer", check_producer)


def a_transaction_is_one_commit_per_partition(patch: Patch) -> None:
    real = Coordinator.append

    def append(self: Coordinator, request: AppendRequest, written: Moment | None = None) -> AppendResult:
        if request.transaction is not None:
            for item in request.appends[:-1]:
                real(self, AppendRequest(appends=[item]))
        return real(self, request)

    patch.setattr(Coordinator, "append", append)


def records_are_visible_before_the_transaction_commits(patch: Patch) -> None:
    real = world.Transactions.begin

    def begin(self: world.Transactions, sent: Sent, **facts: Any) -> object:
        pending = real(self, sent, **facts)
        unnumbered = ProducerIdentity(-1, -1)
        items = [replace(item, base_sequence=-1) for item in sent.appends(unnumbered, {})]
        world.until_known(lambda: self.coordinator.append(AppendRequest(appends=items)))
        return pending

    patch.setattr(world.Transactions, "begin", begin)


def a_reader_starts_one_record_early(patch: Patch) -> None:
    real = world.read
    patch.setattr(members, "read", lambda c, s, partition, start, end: real(c, s, partition, max(0, start - 1), end))


def a_reader_skips_its_first_record(patch: Patch) -> None:
    """Its position advances as if it had read the record."""
    real = members.Life.poll

    def poll(self: members.Life) -> None:
        if self.world.random.random() < 0.2:
            state = self.coordinator.state
            ends = {partition: state.partition(*partition).log_end_offset for partition in self.positions}
            self.positions = {partition: min(at + 1, ends[partition]) for partition, at in self.positions.items()}
        real(self)

    patch.setattr(members.Life, "poll", poll)


def epochs_are_not_compared(patch: Patch) -> None:
    patch.setattr(decide, "is_committed", lambda state, transaction: False)
    real = decide_producers._find_producer

    def find_producer(state: State, transaction: ProducerIdentity) -> object:
        return replace(real(state, transaction), epoch=transaction.producer_epoch)

    patch.setattr(decide_producers, "_find_producer", find_producer)
    patch.setattr(_Cursor, "_check_producer", lambda self, item, partition: None)


def generations_are_not_compared(patch: Patch) -> None:
    def find_member(state: State, commit: decide_groups.GroupCommit) -> object:
        group = state.groups.get(commit.group, GroupState())
        return group.members.get(commit.member, MemberState())

    patch.setattr(decide_groups, "_find_member", find_member)


def partitions_are_assigned_before_they_are_revoked(patch: Patch) -> None:
    real = groups._assign_free

    def assign_free(group: GroupState) -> GroupState:
        assigned = dict(real(group).members)
        for name, member in assigned.items():
            partitions = {*groups.held_partitions(member), *groups.list_partitions(group.target.get(name, {}))}
            assigned[name] = replace(member, assigned=groups._group_by_topic(partitions), revoking={})
        return replace(group, members=assigned)

    patch.setattr(groups, "_assign_free", assign_free)


BUGS: list[tuple[Callable[[Patch], None], tuple[str, ...], int]] = [
    (an_unknown_outcome_is_treated_as_success, (LOST_WRITE,), 0),
    (the_newest_commits_are_lost_at_the_end, (UNSEEN,), 0),
    (a_request_is_retried_without_its_sequence, (DUPLICATE,), 0),
    (a_repeated_request_returns_the_log_end_offset, (INCONSISTENT_OFFSETS,), 0),
    (records_are_visible_before_the_transaction_commits, (ABORTED_READ,), 0),
    (a_transaction_is_one_commit_per_partition, (TORN_TRANSACTION,), 0),
    (a_reader_starts_one_record_early, (NON_MONOTONIC_POLL,), 0),
    (a_reader_skips_its_first_record, (SKIPPED_POLL,), 0),
    (epochs_are_not_compared, (ZOMBIE_WRITE,), 0),
    (generations_are_not_compared, (ZOMBIE_WRITE, GROUP_OFFSET_BACK), 45),
    (partitions_are_assigned_before_they_are_revoked, (TWO_OWNERS,), 0),
]
"""The bug, the kinds of findings it causes, and the first seed to try."""


def run(seed: int) -> tuple[list[Finding], list[str]]:
    """Return the findings and the trace of a broken run. An actor that fails ends, and the others continue."""
    world = build(seed, settings=NO_CHECKPOINTS)
    findings = check(world.run(strict=False))
    return findings, world.simulation.trace


@pytest.mark.parametrize(("bug", "kinds", "first"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_seeded_bug_is_detected_and_reproducible_from_its_seed(
    bug: Callable[[Patch], None], kinds: tuple[str, ...], first: int, monkeypatch: Patch
) -> None:
    bug(monkeypatch)
    missing = set(kinds)
    for seed in range(first, first + SEEDS):
        findings, trace = run(seed)
        if missing.isdisjoint(finding.kind for finding in findings):
            continue
        missing -= {finding.kind for finding in findings}
        assert all(finding.operations for finding in findings)
        findings_of_rerun, trace_of_rerun = run(seed)
        assert list(map(str, findings_of_rerun)) == list(map(str, findings))
        assert trace_of_rerun == trace
        if not missing:
            return
    pytest.fail(f"no seed from {first} to {first + SEEDS} shows a {' or a '.join(missing)}")


def test_every_kind_of_finding_has_a_seeded_bug() -> None:
    assert {kind for _, kinds, _ in BUGS for kind in kinds} == set(FINDINGS)
