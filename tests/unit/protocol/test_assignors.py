"""The four assignors match Kafka's Java classes and keep their guarantees for any group."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InconsistentGroupProtocolError
from sparklog.protocol.group import sticky
from sparklog.protocol.group.assignors import ASSIGNORS, MemberSubscription, assign, choose_assignor, withhold_owned
from sparklog.protocol.group.subscriptions import java_hash, java_sorted, slots, table_order
from sparklog.types import TopicPartition

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "assignors"
STICKY = ("sticky", "cooperative-sticky")
TOPICS = ("a", "b", "c", "orders", "flights")

Group = tuple[dict[str, int], dict[str, MemberSubscription]]


# --- what Kafka does


def golden(name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    with (GOLDEN / f"{name}.json").open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            yield number, json.loads(line)


def listed(written: Sequence[str | int]) -> list[TopicPartition]:
    """``["orders", 0, 1, "flights", 3]`` as partitions."""
    partitions: list[TopicPartition] = []
    topic = ""
    for one in written:
        if isinstance(one, str):
            topic = one
        else:
            partitions.append(TopicPartition(topic, one))
    return partitions


def members_of(case: Mapping[str, Any]) -> dict[str, MemberSubscription]:
    return {
        member: MemberSubscription(tuple(topics), tuple(listed(owned)), generation, instance_id)
        for member, (topics, owned, generation, instance_id) in case["members"].items()
    }


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_golden_groups_are_assigned_as_by_kafka(assignor: str) -> None:
    compared = 0
    for number, case in golden(assignor):
        expected = {member: listed(given) for member, given in case["assigned"].items()}
        assert assign(assignor, case["partitions"], members_of(case)) == expected, f"{assignor}.json:{number}"
        compared += 1
    assert compared >= 200


def test_partitions_owned_by_other_members_are_withheld_as_by_kafka() -> None:
    withheld_somewhere = 0
    for number, case in golden("cooperative-sticky"):
        target = {member: listed(given) for member, given in case["assigned"].items()}
        withheld = set(listed(case["withheld"]))
        expected = {member: [one for one in given if one not in withheld] for member, given in target.items()}
        assert withhold_owned(target, members_of(case)) == expected, f"cooperative-sticky.json:{number}"
        withheld_somewhere += bool(withheld)
    assert withheld_somewhere >= 100


def test_assignor_of_a_group_is_chosen_as_by_kafka() -> None:
    cases = list(golden("choose"))
    assert len(cases) >= 90
    for number, case in cases:
        assert choose_assignor(case["preferences"]) == case["chosen"], f"choose.json:{number}"


def test_golden_groups_cover_all_kinds() -> None:
    cases = [case for assignor in STICKY for _, case in golden(assignor)]
    kinds = {"equal": 0, "mixed": 0, "static": 0, "differing generations": 0, "claimed twice": 0, "not ASCII": 0}
    for case in cases:
        members = members_of(case)
        claims = [one for subscription in members.values() for one in subscription.owned]
        equal = len({frozenset(subscription.topics) for subscription in members.values()}) == 1
        kinds["equal" if equal else "mixed"] += 1
        kinds["static"] += any(subscription.instance_id for subscription in members.values())
        kinds["differing generations"] += len({one.generation for one in members.values() if one.owned}) > 1
        kinds["claimed twice"] += len(claims) > len(set(claims))
        kinds["not ASCII"] += not all(member.isascii() for member in members)
    assert min(kinds.values()) >= 50, kinds


# --- what holds for any group


@st.composite
def groups(draw: st.DrawFn, *, equal: bool = False, fresh: bool = False) -> Group:
    """Hypothesis draws the size of the group and the seed of a generator for the rest: drawing every part of a group
    takes longer than the code under test."""
    generator = random.Random(draw(st.integers(0, 2**32 - 1)))
    topics = generator.sample(TOPICS, draw(st.integers(1, len(TOPICS))))
    names = dict.fromkeys(some_id(generator) for _ in range(draw(st.integers(1, 9))))
    common = some_topics(generator)
    return {topic: generator.randint(0, 12) for topic in topics}, {
        name: MemberSubscription(
            common if equal else some_topics(generator),
            () if fresh else some_partitions(generator),
            generator.randint(-1, 3),
            instance and instance + name,
        )
        for name, instance in ((name, generator.choice(["", "", *"ixyz"])) for name in names)
    }


def some_id(generator: random.Random) -> str:
    if generator.random() < 0.5:
        return f"consumer-{generator.randint(0, 30)}"
    planes = ((0, 0x80), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000))
    return "".join(chr(generator.randrange(*generator.choice(planes))) for _ in range(generator.randint(0, 3)))


def some_topics(generator: random.Random) -> tuple[str, ...]:
    return tuple(generator.sample((*TOPICS, "missing"), generator.randint(0, 5)))


def some_partitions(generator: random.Random) -> tuple[TopicPartition, ...]:
    """The partitions that a member claims to own: also some that do not exist, and some twice."""
    several = range(generator.randint(0, 12))
    return tuple(TopicPartition(generator.choice((*TOPICS, "missing")), generator.randint(0, 14)) for _ in several)


def wanted_partitions(partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> set[TopicPartition]:
    topics = {topic for subscription in members.values() for topic in subscription.topics}
    return {TopicPartition(topic, number) for topic in topics for number in range(partitions.get(topic, 0))}


def owning(
    members: Mapping[str, MemberSubscription], assigned: Mapping[str, Sequence[TopicPartition]], generation: int
) -> dict[str, MemberSubscription]:
    """The members once they own what was assigned to them."""
    return {
        member: one._replace(owned=tuple(assigned[member]), generation=generation) for member, one in members.items()
    }


def sizes(assigned: Mapping[str, Sequence[TopicPartition]]) -> list[int]:
    return [len(given) for given in assigned.values()]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(group=groups())
def test_each_partition_of_a_subscribed_topic_goes_to_one_member_that_subscribes(assignor: str, group: Group) -> None:
    partitions, members = group
    assigned = assign(assignor, partitions, members)
    assert assigned.keys() == members.keys()
    given = [one for mine in assigned.values() for one in mine]
    assert len(given) == len(set(given))
    assert set(given) == wanted_partitions(partitions, members)
    assert all(one.topic in members[member].topics for member, mine in assigned.items() for one in mine)


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(group=groups(), data=st.data())
def test_assignment_does_not_depend_on_the_order_of_the_arguments(
    assignor: str, group: Group, data: st.DataObject
) -> None:
    partitions, members = group
    names = data.draw(st.permutations(sorted(members)))
    shuffled = {
        name: members[name]._replace(topics=tuple(data.draw(st.permutations(members[name].topics)))) for name in names
    }
    backwards = dict(reversed(list(partitions.items())))
    assert assign(assignor, backwards, shuffled) == assign(assignor, partitions, members)


@pytest.mark.parametrize("assignor", ["roundrobin", *STICKY])
@given(group=groups(equal=True))
def test_members_with_equal_subscriptions_differ_by_at_most_one_partition(assignor: str, group: Group) -> None:
    counts = sizes(assign(assignor, *group))
    assert max(counts) - min(counts) <= 1


@given(group=groups(equal=True))
def test_range_gives_each_member_one_contiguous_run_per_topic_of_balanced_length(group: Group) -> None:
    partitions, members = group
    assigned = assign("range", partitions, members)
    for topic in partitions:
        runs = [[one.partition for one in mine if one.topic == topic] for mine in assigned.values()]
        assert max(map(len, runs)) - min(map(len, runs)) <= 1
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)


@pytest.mark.parametrize("assignor", STICKY)
@given(group=groups(fresh=True))
def test_no_partition_could_move_to_a_subscriber_with_two_fewer(assignor: str, group: Group) -> None:
    partitions, members = group
    assigned = assign(assignor, partitions, members)
    for mine in assigned.values():
        for one in mine:
            fewest = min(len(assigned[other]) for other in members if one.topic in members[other].topics)
            assert len(mine) <= fewest + 1


@pytest.mark.parametrize("assignor", STICKY)
@given(group=groups(fresh=True))
def test_assignment_is_stable_when_nothing_changed(assignor: str, group: Group) -> None:
    partitions, members = group
    assigned = assign(assignor, partitions, members)
    after = owning(members, assigned, 1)
    again = assign(assignor, partitions, after)
    assert {member: set(mine) for member, mine in again.items()} == {
        member: set(mine) for member, mine in assigned.items()
    }
    assert withhold_owned(again, after) == again


@pytest.mark.parametrize("assignor", STICKY)
@given(group=groups(equal=True, fresh=True), data=st.data())
def test_remaining_members_keep_their_partitions_when_others_leave(
    assignor: str, group: Group, data: st.DataObject
) -> None:
    partitions, members = group
    assigned = assign(assignor, partitions, members)
    staying = data.draw(st.lists(st.sampled_from(sorted(members)), min_size=1, unique=True))
    left = owning({member: members[member] for member in staying}, assigned, 1)
    after = assign(assignor, partitions, left)
    assert all(set(assigned[member]) <= set(mine) for member, mine in after.items())


@pytest.mark.parametrize("assignor", STICKY)
@given(group=groups(equal=True, fresh=True), joining=st.integers(1, 4))
def test_existing_members_gain_no_partitions_when_others_join(assignor: str, group: Group, joining: int) -> None:
    partitions, members = group
    assigned = assign(assignor, partitions, members)
    topics = next(iter(members.values())).topics
    joined = owning(members, assigned, 1) | {
        f"joined-{number}": MemberSubscription(topics) for number in range(joining)
    }
    after = assign(assignor, partitions, joined)
    assert all(set(after[member]) <= set(mine) for member, mine in assigned.items())


@given(group=groups(equal=True, fresh=True), joining=st.integers(1, 4))
def test_second_round_of_a_cooperative_rebalance_completes_it(group: Group, joining: int) -> None:
    partitions, members = group
    had = assign("cooperative-sticky", partitions, members)
    topics = next(iter(members.values())).topics
    joined = owning(members, had, 1) | {f"joined-{number}": MemberSubscription(topics) for number in range(joining)}
    target = assign("cooperative-sticky", partitions, joined)
    first = withhold_owned(target, joined)
    for member, mine in first.items():
        assert not any(one in joined[other].owned for one in mine for other in joined if other != member)
    given_up = owning(joined, first, 2)
    second = assign("cooperative-sticky", partitions, given_up)
    assert withhold_owned(second, given_up) == second
    assert {member: set(mine) for member, mine in second.items()} == {
        member: set(mine) for member, mine in target.items()
    }


# --- claims


@pytest.mark.parametrize("assignor", STICKY)
def test_claim_of_the_later_generation_wins(assignor: str) -> None:
    both = (TopicPartition("a", 0), TopicPartition("a", 1))
    members = {"old": MemberSubscription(("a",), both, 4), "recent": MemberSubscription(("a",), both[:1], 5)}
    assert assign(assignor, {"a": 2}, members) == {"old": [both[1]], "recent": [both[0]]}


def test_partition_claimed_twice_in_one_generation_is_given_to_neither() -> None:
    one, other = TopicPartition("a", 0), TopicPartition("a", 1)
    members = {"x": MemberSubscription(("a",), (one,), 4), "y": MemberSubscription(("a",), (one, other), 4)}
    target = assign("cooperative-sticky", {"a": 2}, members)
    assert target == {"x": [one], "y": [other]}
    assert withhold_owned(target, members) == {"x": [], "y": [other]}


@pytest.mark.parametrize("assignor", STICKY)
@pytest.mark.parametrize("other", [("a",), ("a", "b")])
def test_claims_on_partitions_that_do_not_exist_are_ignored(assignor: str, other: tuple[str, ...]) -> None:
    gone = (TopicPartition("a", 7), TopicPartition("b", 0), TopicPartition("a", -1), TopicPartition("a", 1))
    members = {"x": MemberSubscription(("a",), gone, 3), "y": MemberSubscription(other)}
    assert assign(assignor, {"a": 2}, members) == {"x": [TopicPartition("a", 1)], "y": [TopicPartition("a", 0)]}


@pytest.mark.parametrize("assignor", STICKY)
@pytest.mark.parametrize("idle", ["0", "m", "z"])
def test_member_without_topics_gets_nothing(assignor: str, idle: str) -> None:
    assigned = assign(
        assignor,
        {"a": 4},
        {idle: MemberSubscription(()), "k": MemberSubscription(("a",)), "n": MemberSubscription(("a",))},
    )
    assert {member: len(mine) for member, mine in assigned.items()} == {idle: 0, "k": 2, "n": 2}


@pytest.mark.parametrize("assignor", STICKY)
def test_partitions_do_not_return_to_a_member_that_unsubscribed(assignor: str) -> None:
    everything = tuple(TopicPartition("a", number) for number in range(6))
    members = {
        "left-topic": MemberSubscription(("b",), everything, 1),
        "loaded": MemberSubscription(("a", "b"), everything, 2),
        "fresh": MemberSubscription(("a",)),
    }
    assigned = assign(assignor, {"a": 6, "b": 1}, members)
    assert assigned["left-topic"] == [TopicPartition("b", 0)]
    assert len(assigned["fresh"]) == 3


@given(group=groups())
def test_balancing_that_stops_at_its_limit_still_assigns_every_partition(group: Group) -> None:
    partitions, members = group
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sticky, "MOVES_PER_PARTITION", 0)
        assigned = assign("sticky", partitions, members)
    assert {one for mine in assigned.values() for one in mine} == wanted_partitions(partitions, members)


# --- edges, and the order of Java's tables


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_group_without_members_or_topics_gets_nothing(assignor: str) -> None:
    assert assign(assignor, {"a": 3}, {}) == {}
    assert assign(assignor, {}, {"x": MemberSubscription(("a",)), "y": MemberSubscription(())}) == {"x": [], "y": []}


def test_error_for_an_unknown_assignor_lists_the_known_ones() -> None:
    with pytest.raises(InconsistentGroupProtocolError, match=r"'uniform'.*range, roundrobin, sticky"):
        assign("uniform", {"a": 1}, {"x": MemberSubscription(("a",))})


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_static_members_come_first_by_their_instance_id(assignor: str) -> None:
    members = {
        "1": MemberSubscription(("a",)),
        "2": MemberSubscription(("a",), instance_id="z"),
        "3": MemberSubscription(("a",), instance_id="y"),
    }
    assigned = assign(assignor, {"a": 3}, members)
    assert {member: [one.partition for one in mine] for member, mine in assigned.items()} == {
        "3": [0],
        "2": [1],
        "1": [2],
    }


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        ({}, ""),
        ({"x": []}, ""),
        ({"x": ["range"], "y": ["sticky"]}, ""),
        ({"x": ["range", "sticky"], "y": ["sticky"]}, "sticky"),
        ({"x": ["range", "sticky"], "y": ["range", "sticky"], "z": ["sticky", "range"]}, "range"),
        ({"x": ["roundrobin", "range"], "y": ["range", "roundrobin"]}, "range"),
        ({"x": ["cooperative-sticky", "range"], "y": ["range", "cooperative-sticky"]}, "range"),
    ],
)
def test_assignor_with_most_votes_among_the_common_ones_is_chosen(
    preferences: dict[str, list[str]], chosen: str
) -> None:
    assert choose_assignor(preferences) == chosen


@pytest.mark.parametrize(
    ("text", "signed"),
    [("", 0), ("hello", 99162322), ("polygenelubricants", -2147483648), ("\U0001f600", 1772899), ("é", 233)],
)
def test_hash_of_a_string_is_that_of_java(text: str, signed: int) -> None:
    assert java_hash(text) == signed & 0xFFFFFFFF


def test_strings_sort_by_utf16_units_as_in_java() -> None:
    assert java_sorted(["\uffff", "\U0001f600", "z"]) == ["z", "\U0001f600", "\uffff"]


def test_hash_table_doubles_at_a_load_factor_of_three_quarters() -> None:
    assert [slots(entries) for entries in (0, 12, 13, 24, 25)] == [16, 16, 32, 32, 64]
    assert table_order(["b", "c", "a", "c"]) == ["a", "b", "c"]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_hundred_members_with_differing_subscriptions_take_well_under_a_second(assignor: str) -> None:
    partitions = {f"topic-{number}": 10 for number in range(100)}
    members = {
        f"consumer-{number}": MemberSubscription(
            tuple(topic for place, topic in enumerate(partitions) if place % 7 != number % 7)
        )
        for number in range(100)
    }
    members["greedy"] = members["consumer-0"]._replace(
        owned=tuple(TopicPartition(topic, number) for topic in members["consumer-0"].topics for number in range(10)),
        generation=1,
    )
    start = time.perf_counter()
    assign(assignor, partitions, members)
    assert time.perf_counter() - start < 1
