"""Consumers in groups: assignments, listener calls, commits, and members that are removed."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import uuid
from functools import partial
from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.group_session import GroupSession
from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener, Subscription
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    StorageUnavailableError,
    UnknownMemberIdError,
)
from sparklog.protocol.decide.groups import leave_group
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FULL, UNAVAILABLE, Call, Fault, FaultyStore
from sparklog.testing.records import Record, append_records
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import WAIT_SECONDS, Cluster, at, flat, read, together, until, values

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.node.name, partitions=4)


class RecordingListener(ConsumerRebalanceListener):
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(tp.partition for tp in revoked)))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(tp.partition for tp in assigned)))

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.calls.append(("lost", sorted(tp.partition for tp in lost)))


def shared(*consumers: Consumer) -> bool:
    """Whether the four partitions are divided evenly among the consumers."""
    parts = [consumer.assignment() for consumer in consumers]
    return set().union(*parts) == {at(n) for n in range(4)} and {len(p) for p in parts} == {4 // len(parts)}


def polled(consumer: Consumer) -> list[int]:
    return [tp.partition for tp in consumer.poll(5)]


def committed(cluster: Cluster) -> dict[int, int]:
    return {entry.partition: entry.offset for entry in cluster.admin.refresh().groups["g"].offsets.values()}


def test_members_share_the_partitions(cluster: Cluster) -> None:
    for partition in range(4):
        cluster.write(partition, b"%d" % partition)
    with cluster.consumer("orders", group_id="g") as first, cluster.consumer("orders", group_id="g") as second:
        until(lambda: shared(first, second), together(first, second))
        for partition in range(4):
            cluster.write(partition, b"new")
        for consumer in (first, second):
            until(lambda c=consumer: all(c.position(p) == 2 for p in c.assignment()), together(first, second))  # type: ignore[misc]
    assert committed(cluster) == dict.fromkeys(range(4), 2)
    assert not cluster.admin.refresh().groups["g"].members


def test_a_new_member_continues_at_the_committed_offset(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b")
    with cluster.consumer("orders", group_id="g") as consumer:
        read(consumer, 2)
    cluster.write(0, b"c")
    with cluster.consumer("orders", group_id="g") as consumer:
        assert values(read(consumer, 1)) == [b"c"]
    assert committed(cluster)[0] == 3


def test_an_eager_listener_gets_all_partitions_in_each_rebalance(cluster: Cluster) -> None:
    listener = RecordingListener()
    with cluster.consumer(group_id="g") as first, cluster.consumer("orders", group_id="g") as second:
        first.subscribe(["orders"], listener=listener)
        until(first.assignment, together(first))
        until(lambda: shared(first, second), together(first, second))
        half = sorted(tp.partition for tp in first.assignment())
    everything = [0, 1, 2, 3]
    assert listener.calls[:3] == [("assigned", everything), ("revoked", everything), ("assigned", half)]


def test_a_cooperative_listener_gets_only_the_partitions_that_move(cluster: Cluster) -> None:
    listener = RecordingListener()
    with cluster.consumer(group_id="g", **COOPERATIVE) as first:
        first.subscribe(["orders"], listener=listener)
        until(first.assignment, together(first))
        with cluster.consumer("orders", group_id="g", **COOPERATIVE) as second:
            until(lambda: shared(first, second), together(first, second))
            moved = sorted(tp.partition for tp in second.assignment())
        until(lambda: len(first.assignment()) == 4, together(first))
    assert listener.calls == [
        ("assigned", [0, 1, 2, 3]),
        ("revoked", moved),
        ("assigned", []),
        ("assigned", moved),
        ("revoked", [0, 1, 2, 3]),
    ]


def test_a_cooperative_rebalance_keeps_positions_of_retained_partitions(cluster: Cluster) -> None:
    for partition in range(4):
        cluster.write(partition, b"a")
    configs: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False, **COOPERATIVE}
    with cluster.consumer("orders", **configs) as first, cluster.consumer("orders", **configs) as second:
        read(first, 4)
        until(lambda: shared(first, second), together(first, second))
        assert all(first.position(tp) == 1 for tp in first.assignment())


def test_an_eager_rebalance_resumes_at_committed_offsets(cluster: Cluster) -> None:
    for partition in range(4):
        cluster.write(partition, b"a")
    configs: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}
    with cluster.consumer("orders", **configs) as first, cluster.consumer("orders", **configs) as second:
        read(first, 4)
        again: list[int] = []
        until(lambda: shared(first, second), lambda: again.extend(polled(first) + polled(second)))
        until(lambda: len(again) >= 4, lambda: again.extend(polled(first) + polled(second)))
        assert sorted(again) == [0, 1, 2, 3]


def test_offsets_may_be_committed_while_partitions_are_revoked(cluster: Cluster) -> None:
    for partition in range(4):
        cluster.write(partition, b"a", b"b")

    class Committing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            first.commit({tp: OffsetAndMetadata(1, "half") for tp in revoked})

    with cluster.consumer(group_id="g", enable_auto_commit=False) as first:
        first.subscribe(["orders"], listener=Committing())
        read(first, 8)
        with cluster.consumer("orders", group_id="g", enable_auto_commit=False) as second:
            until(lambda: shared(first, second), together(first, second))
        assert committed(cluster) == dict.fromkeys(range(4), 1)


def test_reading_resumes_behind_what_a_listener_has_begun_to_commit(request: pytest.FixtureRequest) -> None:
    """Also where the commit takes long, and the member keeps the partition."""
    is_slow: list[bool] = []

    def take_long(step: int, call: Call) -> None:
        if is_slow and call.operation == "put_if_absent":
            is_slow.clear()
            time.sleep(0.3)

    class Committing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            is_slow.append(True)
            consumer.commit_async()

    store = MemoryStore(request.node.name)
    cluster = Cluster("", partitions=1, store=store)
    configs: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with Consumer(cluster=open_cluster(FaultyStore(store, before=take_long)), **configs) as consumer:
        consumer.subscribe(["orders", "later"], listener=Committing())
        cluster.write(0, b"a", b"b")
        read(consumer, 2)
        cluster.admin.create_topic("later")
        until(lambda: TopicPartition("later", 0) in consumer.assignment(), lambda: consumer.poll(50))
        assert consumer.position(at(0)) == committed(cluster)[0] == 2


def test_a_listener_that_fails_does_not_stop_the_rebalance(cluster: Cluster) -> None:
    class Failing(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            raise RuntimeError("listener")

    with cluster.consumer(group_id="g") as consumer:
        consumer.subscribe(["orders"], listener=Failing())
        with pytest.raises(KafkaError, match="listener") as raised:
            until(lambda: False, together(consumer))
        assert type(raised.value.__cause__) is RuntimeError
        assert consumer.assignment() == {at(0), at(1), at(2), at(3)}
        cluster.write(0, b"a")
        assert values(read(consumer, 1)) == [b"a"]


def test_a_failing_revocation_is_raised_once_the_rebalance_has_completed(cluster: Cluster) -> None:
    class Failing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            raise LookupError(sorted(revoked))

    errors: list[KafkaError] = []

    def step() -> None:
        try:
            first.poll(5)
        except KafkaError as error:
            errors.append(error)
        second.poll(5)

    with cluster.consumer(group_id="g") as first, cluster.consumer("orders", group_id="g") as second:
        first.subscribe(["orders"], listener=Failing())
        until(lambda: len(first.assignment()) == 4, lambda: first.poll(5))
        until(lambda: errors and shared(first, second), step)
        assert [type(error.__cause__) for error in errors] == [LookupError]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("change", ["assigned", "revoked"])
@pytest.mark.parametrize("at_call", ["_apply", "add", "_drop_partitions"])
def test_a_time_limit_within_a_change_leaves_each_partition_with_one_member(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, strategy: str, change: str, at_call: str
) -> None:
    """A handler of SIGALRM raises TimeoutError, an Exception, at any call."""
    owner: Any = Subscription if at_call == "add" else GroupSession
    call, armed = getattr(owner, at_call), [False]

    def limited(which: Any, *arguments: Any) -> Any:
        if armed[0] and threading.current_thread() is threading.main_thread():
            armed[0] = False
            raise TimeoutError("time limit")
        return call(which, *arguments)

    def poll(consumer: Consumer) -> None:
        with contextlib.suppress(TimeoutError):
            consumer.poll(5)

    config: dict[str, Any] = {"group_id": "g", "partition_assignment_strategy": strategy}
    with cluster.consumer("orders", **config) as a, cluster.consumer("orders", **config) as b:
        monkeypatch.setattr(owner, at_call, limited)
        armed[0] = change == "assigned"
        until(lambda: a.assignment() == {at(n) for n in range(4)}, lambda: poll(a))
        armed[0] = change == "revoked"
        until(lambda: shared(a, b), lambda: (poll(a), poll(b)))
        for number in range(4):
            cluster.write(number, b"x")
        found: list[tuple[str, int]] = []
        until(
            lambda: len(found) >= 4,
            lambda: [found.append((one, n)) for one, c in (("a", a), ("b", b)) for n in polled(c)],
        )
        assert sorted(number for _, number in found) == [0, 1, 2, 3]
        a.commit()


def test_a_commit_from_outside_the_group_fails_like_that_of_a_removed_member(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as member, cluster.consumer(group_id="g") as outsider:
        until(member.assignment, together(member))
        outsider.assign([at(0)])
        with pytest.raises(CommitFailedError, match="only they may commit") as raised:
            outsider.commit({at(0): OffsetAndMetadata(0)})
        assert isinstance(raised.value.__cause__, UnknownMemberIdError)
        future = outsider.commit_async({at(0): OffsetAndMetadata(0)})
        with pytest.raises(CommitFailedError):
            future.get(WAIT_SECONDS)


def test_a_listener_may_seek(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b", b"c")

    class Seeking(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            assert consumer.position(at(0)) == 0
            consumer.seek(at(0), 2)

    with cluster.consumer(group_id="g") as consumer:
        consumer.subscribe(["orders"], listener=Seeking())
        assert values(read(consumer, 1)) == [b"c"]


def test_positions_are_committed_at_auto_commit_interval_ms(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    with cluster.consumer("orders", group_id="g", auto_commit_interval_ms=10) as consumer:
        read(consumer, 1)
        until(lambda: committed(cluster).get(0) == 1, together(consumer))
        version = cluster.admin.refresh().version
        for _ in range(5):
            consumer.poll(20)
        assert cluster.admin.refresh().version == version


def test_close_without_autocommit_commits_nothing(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    with cluster.consumer("orders", group_id="g") as consumer:
        read(consumer, 1)
        consumer.close(autocommit=False)
    assert 1 not in committed(cluster).values()


def test_a_member_that_exceeds_max_poll_interval_ms_leaves_and_rejoins(cluster: Cluster) -> None:
    listener = RecordingListener()
    configs: dict[str, Any] = {"group_id": "g", "max_poll_interval_ms": 100, "heartbeat_interval_ms": 20}
    with cluster.consumer(**configs) as consumer:
        consumer.subscribe(["orders"], listener=listener)
        until(consumer.assignment, together(consumer))
        until(lambda: not cluster.admin.refresh().groups["g"].members)
        with pytest.raises(CommitFailedError):
            consumer.commit({at(0): OffsetAndMetadata(1)})
        until(lambda: len(listener.calls) >= 3, lambda: consumer.poll(50))
    assert listener.calls[:3] == [("assigned", [0, 1, 2, 3]), ("lost", [0, 1, 2, 3]), ("assigned", [0, 1, 2, 3])]


@pytest.mark.parametrize("longest", [math.inf, 2**63 - 1])
def test_a_member_may_poll_as_seldom_as_it_likes(cluster: Cluster, longest: float) -> None:
    cluster.write(0, b"a")
    with cluster.consumer("orders", group_id="g", max_poll_interval_ms=longest) as consumer:
        assert read(consumer, 1)


def test_a_long_poll_does_not_exceed_max_poll_interval_ms(cluster: Cluster) -> None:
    configs: dict[str, Any] = {"group_id": "g", "max_poll_interval_ms": 60, "heartbeat_interval_ms": 10}
    with cluster.consumer("orders", **configs) as consumer:
        consumer.poll(400)
        assert cluster.admin.refresh().groups["g"].generation == 1


def test_a_member_takes_part_in_a_rebalance_while_its_storage_is_slow_to_read(request: pytest.FixtureRequest) -> None:
    """Its fetch thread does not get to the log: it waits for records."""
    answers = threading.Event()

    def wait_for_records(step: int, call: Call) -> None:
        if call.operation == "read_at":
            answers.wait(4 * WAIT_SECONDS)

    cluster = Cluster(request.node.name, partitions=4)
    cluster.write(0, b"a")
    slow = open_cluster(FaultyStore(cluster.store, before=wait_for_records))
    config: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}
    first = Consumer("orders", cluster=slow, enable_auto_commit=False, **config)
    with first as a, cluster.consumer("orders", group_id="g") as b:
        try:
            until(lambda: a.assignment() == {at(n) for n in range(4)}, together(a))
            until(lambda: shared(a, b), together(a, b))
        finally:
            answers.set()


def test_a_dead_member_is_removed_and_its_partitions_are_reassigned(cluster: Cluster) -> None:
    cluster.admin.submit(partial(alter_configs, topic="", changes={"group.min.session.timeout.ms": "100"}))
    configs: dict[str, Any] = {"group_id": "g", "session_timeout_ms": 500, "heartbeat_interval_ms": 50}
    silent = threading.Event()

    def fail(step: int, call: Call) -> None:
        if silent.is_set() and call.operation == "put":
            raise StorageUnavailableError("no heartbeat arrives")

    cut_off = open_cluster(FaultyStore(cluster.store, before=fail))
    with cluster.consumer("orders", **configs) as first, Consumer("orders", cluster=cut_off, **configs) as dead:
        until(lambda: shared(first, dead), together(first, dead))
        silent.set()
        until(lambda: len(first.assignment()) == 4, together(first))
        with pytest.raises(CommitFailedError):
            dead.commit({at(0): OffsetAndMetadata(1)})
        silent.clear()
        until(lambda: shared(first, dead), together(first, dead))


def test_a_static_member_rejoins_without_a_rebalance(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g", group_instance_id="b") as other:
        other.poll()
        for generation in (2, 2):
            with cluster.consumer("orders", group_id="g", group_instance_id="a") as consumer:
                until(lambda consumer=consumer: shared(other, consumer), together(other, consumer))  # type: ignore[misc]
                assert consumer.group_metadata().generation_id == generation
                assert consumer.group_metadata().group_instance_id == "a"


def test_a_second_process_with_the_same_instance_id_fences_the_first(cluster: Cluster) -> None:
    configs: dict[str, Any] = {"group_id": "g", "group_instance_id": "a"}
    with cluster.consumer("orders", **configs) as first, cluster.consumer("orders", **configs) as second:
        until(first.assignment, together(first))
        until(second.assignment, together(second))
        with pytest.raises(FencedInstanceIdError):
            until(lambda: False, together(first))
        with pytest.raises(FencedInstanceIdError):
            first.poll()


def test_a_pattern_subscription_picks_up_new_topics(cluster: Cluster) -> None:
    with cluster.consumer(group_id="g") as consumer:
        consumer.subscribe(pattern="^(orders|audit)$")
        until(lambda: len(consumer.assignment()) == 4, together(consumer))
        cluster.admin.create_topic("audit", 1)
        until(lambda: at(0, "audit") in consumer.assignment(), together(consumer))


def test_unsubscribing_leaves_the_group(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as consumer:
        until(consumer.assignment, together(consumer))
        consumer.unsubscribe()
        assert not cluster.admin.refresh().groups["g"].members
        consumer.subscribe(["orders"])
        until(consumer.assignment, together(consumer))
        assert consumer.group_metadata().generation_id == 3


def test_unsubscribing_commits_positions_before_leaving(cluster: Cluster) -> None:
    cluster.write(0, b"0", b"1")
    with cluster.consumer("orders", group_id="g") as consumer:
        until(lambda: at(0) in consumer.assignment() and consumer.position(at(0)) == 2, together(consumer))
        consumer.unsubscribe()
        assert not cluster.admin.refresh().groups["g"].members
        assert committed(cluster)[0] == 2


def test_a_refused_join_raises_the_groups_error(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as first:
        first.poll()
        with (
            cluster.consumer("orders", group_id="g", **COOPERATIVE) as other,
            pytest.raises(InconsistentGroupProtocolError),
        ):
            other.poll()
        short = cluster.consumer("orders", group_id="h", session_timeout_ms=300)
        with short as consumer, pytest.raises(InvalidSessionTimeoutError):
            consumer.poll()


def test_poll_survives_an_unavailable_storage(request: pytest.FixtureRequest) -> None:
    faulty = FaultyStore(MemoryStore(request.node.name), seed=1, rates={UNAVAILABLE: 0.0})
    cluster = Cluster("", partitions=4, store=faulty)
    for partition in range(4):
        cluster.write(partition, *[b"%d" % number for number in range(20)])
    consumers = [cluster.consumer("orders", group_id="g", retry_backoff_ms=5) for _ in range(2)]
    with consumers[0] as first, consumers[1] as second:
        faulty.inject(rates={UNAVAILABLE: 0.2})
        seen: set[tuple[int, int]] = set()

        def step() -> None:
            for consumer in (first, second):
                with contextlib.suppress(StorageUnavailableError):
                    for records in consumer.poll(20).values():
                        seen.update((record.partition, record.offset) for record in records)

        until(lambda: len(seen) == 80 and shared(first, second), step)
        faulty.inject(rates={UNAVAILABLE: 0.0})


def test_a_commit_of_offsets_is_retried_while_the_disk_is_full(request: pytest.FixtureRequest) -> None:
    faulty = FaultyStore(MemoryStore(request.node.name), seed=1, rates={FULL: 0.0})
    cluster = Cluster("", partitions=1, store=faulty)
    cluster.write(0, b"a")
    first = TopicPartition("orders", 0)
    with cluster.consumer(group_id="g", enable_auto_commit=False, retry_backoff_ms=5) as consumer:
        consumer.assign([first])
        faulty.inject(rates={FULL: 1.0})
        space = threading.Timer(0.1, lambda: faulty.inject(rates={FULL: 0.0}))
        space.start()
        consumer.commit({first: OffsetAndMetadata(1)}, timeout_ms=60_000)
        space.join()
        assert consumer.committed(first) == 1


def test_a_failed_revocation_acknowledgement_is_retried(request: pytest.FixtureRequest) -> None:
    faulty = FaultyStore(MemoryStore(request.node.name))
    cluster = Cluster("", partitions=4, store=faulty)
    for partition in range(4):
        cluster.write(partition, b"a")

    class Failing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            step = len(faulty.calls)
            faulty.inject(*(Fault(step, UNAVAILABLE) for step in range(step, step + 30)))

    configs: dict[str, Any] = {"group_id": "g", "retry_backoff_ms": 1, "auto_commit_interval_ms": 60_000, **COOPERATIVE}
    with cluster.consumer(**configs) as first, cluster.consumer("orders", **configs) as second:
        first.subscribe(["orders"], listener=Failing())
        read(first, 4)
        second.poll()
        until(lambda: shared(first, second), together(first, second))
        assert {tp: second.position(tp) for tp in second.assignment()} == dict.fromkeys(second.assignment(), 1)
        first.subscribe(["orders"])


class Calling(ConsumerRebalanceListener):
    """Notes what is revoked."""

    def __init__(self) -> None:
        self.revoked: list[set[TopicPartition]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.revoked.append(revoked)


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["range", "cooperative-sticky"])
@pytest.mark.parametrize("way", ["poll", "subscribe again"])
def test_offsets_of_an_acknowledgement_that_failed_are_not_committed_later(
    request: pytest.FixtureRequest, settings: dict[str, Any], way: str
) -> None:
    """The partitions are the member's again, and it has read on."""
    is_down: list[bool] = []

    def refuse_commits(step: int, call: Call) -> None:
        if is_down and call.operation == "put_if_absent":
            raise StorageUnavailableError("no answer")

    store = MemoryStore(request.node.name)
    cluster = Cluster("", partitions=2, store=store)
    configs: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "retry_backoff_ms": 1, **settings}
    slow = {**configs, "auto_commit_interval_ms": 3_600_000}
    first = Consumer(cluster=open_cluster(FaultyStore(store, before=refuse_commits)), **slow)
    listener = Calling()
    first.subscribe(["orders"], listener=listener)
    for number in (0, 1):
        cluster.write(number, *[b"old"] * 5)
    read(first, 10)
    with cluster.consumer("orders", **configs) as second:
        until(lambda: second.assignment() or len(cluster.admin.refresh().groups["g"].members) == 2, together(second))
        is_down.append(True)
        until(lambda: listener.revoked, lambda: first.poll(50))
        first.poll(50)
    until(lambda: len(first.assignment()) == 2, lambda: first.poll(50))  # without an acknowledgement
    is_down.clear()
    if way == "subscribe again":
        first.unsubscribe()
        first.subscribe(["orders"])
    until(lambda: len(first.assignment()) == 2, lambda: first.poll(50))
    for number in (0, 1):
        cluster.write(number, *[b"new"] * 7)
    until(lambda: all(first.position(at(number)) == 12 for number in (0, 1)), lambda: first.poll(50))
    first.commit()
    with cluster.consumer("orders", **configs) as third:
        until(lambda: len(first.assignment()) == len(third.assignment()) == 1, together(first, third))
        offsets = cluster.admin.refresh().groups["g"].offsets.values()
        assert {committed.offset for committed in offsets} == {12}
        first.close()


def test_a_listener_may_commit_asynchronously_while_its_consumer_closes(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    answers: list[object] = []

    class Committing(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            consumer.commit_async(callback=lambda _, answer: answers.append(answer))

    with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["orders"], listener=Committing())
        read(consumer, 1)
    assert answers == [True]
    assert committed(cluster)[0] == 1


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_member_whose_lease_cannot_be_renewed_returns_no_record_until_it_is(is_removed: bool) -> None:
    """Its storage refuses writes. Another member may own its partitions by then, as the log says that it can read."""
    clock, memory = ManualClock(), MemoryStore(uuid.uuid4().hex)
    admin = create_cluster(memory, clock=clock)
    admin.create_topic("orders", 1)
    refused: list[str] = []

    def refuse_writes(number: int, call: Call) -> None:
        if call.operation in refused:
            raise StorageUnavailableError("503", path=call.key)

    coordinator = open_cluster(FaultyStore(memory, before=refuse_writes), clock=clock)
    listener = RecordingListener()
    settings: Any = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(cluster=coordinator, heartbeat_interval_ms=14_000, **settings) as consumer:

        def poll_later() -> Any:
            clock.advance(0.5)  # the fetch thread looks for commits as this clock passes
            return consumer.poll()

        consumer.subscribe(["orders"], listener=listener)
        until(consumer.assignment, consumer.poll)
        append_records(admin, "orders", [Record(value=b"1", partition=0)])
        refused += ["put", "put_if_absent", "close", "open_output", "write"]
        clock.advance(46)
        if is_removed:
            member = next(iter(admin.refresh().groups["g"].members))
            admin.submit(partial(leave_group, group="g", members=[member], reason="its lease expired"))
            until(lambda: ("lost", [0]) in listener.calls, poll_later)
        for _ in range(20):
            assert consumer.poll() == {}
        refused.clear()
        found: list[bytes] = []
        until(lambda: found, lambda: found.extend(values(flat(poll_later()))))
        assert found == [b"1"]
