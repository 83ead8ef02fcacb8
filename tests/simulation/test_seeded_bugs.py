"""Each kind of finding is found in a real run, once the component that prevents it is broken; and the run that shows it
can be repeated from its seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from sparklog.coordinator import Coordinator
from sparklog.errors import IndeterminateCommitError
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide import append as decide
from sparklog.protocol.decide import groups as decide_groups
from sparklog.protocol.decide import producers as decide_producers
from sparklog.protocol.decide.append import Appended, AppendRequest, AppendResult, _Cursor
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.protocol.group import membership as groups
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
SEEDS = 60


def an_unclear_answer_is_taken_for_a_yes(patch: Patch) -> None:
    real = Coordinator.append

    def append(self: Coordinator, request: AppendRequest) -> AppendResult:
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


def the_newest_commits_are_lost_in_the_end(patch: Patch) -> None:
    """As a disk that had not written them when its power went."""
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


def a_request_is_repeated_without_its_sequence(patch: Patch) -> None:
    real = Sent.appends

    def appends(self: Sent, identity: ProducerIdentity, sequences: dict[TopicPartition, int]) -> object:
        unnumbered = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
        return [replace(item, **unnumbered) for item in real(self, identity, sequences)]

    patch.setattr(Sent, "appends", appends)


def a_repeated_request_is_told_the_end_of_the_log(patch: Patch) -> None:
    real = _Cursor._check_producer

    def check_producer(self: object, item: object, partition: object) -> int | None:
        earlier = real(self, item, partition)  # type: ignore[arg-type]
        return None if earlier is None else partition.log_end_offset  # type: ignore[attr-defined]

    patch.setattr(_Cursor, "_check_producer", check_producer)


def a_transaction_is_a_commit_per_partition(patch: Patch) -> None:
    real = Coordinator.append

    def append(self: Coordinator, request: AppendRequest) -> AppendResult:
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


def a_reader_begins_one_record_early(patch: Patch) -> None:
    real = world.read
    patch.setattr(members, "read", lambda c, s, place, start, end: real(c, s, place, max(0, start - 1), end))


def a_reader_leaves_out_its_first_record(patch: Patch) -> None:
    """It moves on as if it had read it."""
    real = members.Life.poll

    def poll(self: members.Life) -> None:
        if self.world.random.random() < 0.2:
            ends = {place: self.coordinator.state.partition(*place).log_end_offset for place in self.positions}
            self.positions = {place: min(at + 1, ends[place]) for place, at in self.positions.items()}
        real(self)

    patch.setattr(members.Life, "poll", poll)


def epochs_are_not_compared(patch: Patch) -> None:
    patch.setattr(decide, "is_committed", lambda state, transaction: False)
    real = decide_producers._find_producer

    def known(state: State, transaction: ProducerIdentity) -> object:
        return replace(real(state, transaction), epoch=transaction.producer_epoch)

    patch.setattr(decide_producers, "_find_producer", known)
    patch.setattr(_Cursor, "_check_producer", lambda self, item, partition: None)


def generations_are_not_compared(patch: Patch) -> None:
    def member(state: State, commit: decide_groups.GroupCommit) -> object:
        group = state.groups.get(commit.group, GroupState())
        return group.members.get(commit.member, MemberState())

    patch.setattr(decide_groups, "_find_member", member)


def partitions_are_handed_out_before_they_are_given_up(patch: Patch) -> None:
    real = groups._assign_free

    def handed_out(group: GroupState) -> GroupState:
        found = dict(real(group).members)
        for name, member in found.items():
            held = {*groups.held_partitions(member), *groups.list_partitions(group.target.get(name, {}))}
            found[name] = replace(member, assigned=groups._group_by_topic(held), revoking={})
        return replace(group, members=found)

    patch.setattr(groups, "_assign_free", handed_out)


BUGS: list[tuple[Callable[[Patch], None], tuple[str, ...], int]] = [
    (an_unclear_answer_is_taken_for_a_yes, (LOST_WRITE,), 0),
    (the_newest_commits_are_lost_in_the_end, (UNSEEN,), 0),
    (a_request_is_repeated_without_its_sequence, (DUPLICATE,), 0),
    (a_repeated_request_is_told_the_end_of_the_log, (INCONSISTENT_OFFSETS,), 0),
    (records_are_visible_before_the_transaction_commits, (ABORTED_READ,), 0),
    (a_transaction_is_a_commit_per_partition, (TORN_TRANSACTION,), 0),
    (a_reader_begins_one_record_early, (NON_MONOTONIC_POLL,), 0),
    (a_reader_leaves_out_its_first_record, (SKIPPED_POLL,), 0),
    (epochs_are_not_compared, (ZOMBIE_WRITE,), 0),
    (generations_are_not_compared, (ZOMBIE_WRITE, GROUP_OFFSET_BACK), 45),
    (partitions_are_handed_out_before_they_are_given_up, (TWO_OWNERS,), 0),
]
"""What is broken, which kinds of findings that gives, and from which seed on to look for them."""


def run(seed: int) -> tuple[list[Finding], list[str]]:
    """Return the findings of a broken run. An actor that fails on the damage ends, and the others continue."""
    world = build(seed, settings=NO_CHECKPOINTS)
    findings = check(world.run(strict=False))
    return findings, world.simulation.trace


@pytest.mark.parametrize(("bug", "kinds", "first"), BUGS, ids=[bug.__name__ for bug, _, _ in BUGS])
def test_a_broken_component_is_found_and_its_seed_runs_the_same_way_again(
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
        again, trace_again = run(seed)
        assert list(map(str, again)) == list(map(str, findings))
        assert trace_again == trace
        if not missing:
            return
    pytest.fail(f"no seed from {first} to {first + SEEDS} shows a {' or a '.join(missing)}")


def test_every_kind_of_finding_has_a_bug() -> None:
    assert {kind for _, kinds, _ in BUGS for kind in kinds} == set(FINDINGS)
