"""Rebalance listeners that call the consumer they belong to, or are interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import Cluster, at, read, together, until

ALL_PARTITIONS = {at(n) for n in range(4)}


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.node.name, partitions=4)


class Calling(ConsumerRebalanceListener):
    """Calls ``action`` the first time that partitions are assigned or revoked, as ``what`` says."""

    def __init__(self, what: str, action: Callable[[], object]) -> None:
        self._what = what
        self._action = action
        self.calls = 0

    def _handle(self, what: str, partitions: set[TopicPartition]) -> None:
        if what == self._what and partitions:
            self.calls += 1
            if self.calls == 1:
                self._action()

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._handle("revoked", revoked)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._handle("assigned", assigned)


def leave(consumer: Consumer, by: str) -> None:
    if by == "unsubscribe":
        consumer.unsubscribe()
    else:
        consumer.assign([])


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("by", ["unsubscribe", "assign"])
@pytest.mark.parametrize("what", ["assigned", "revoked"])
def test_a_listener_may_unsubscribe_and_the_member_does_not_rejoin(
    cluster: Cluster, what: str, by: str, strategy: str
) -> None:
    for partition in range(4):
        cluster.write(partition, b"a")
    settings = {"group_id": "g", "partition_assignment_strategy": strategy}
    with cluster.consumer(**settings) as first, cluster.consumer("orders", **settings) as second:
        listener = Calling(what, lambda: leave(first, by))
        first.subscribe(["orders"], listener=listener)
        until(lambda: second.assignment() == ALL_PARTITIONS and listener.calls, together(first, second))
        assert first.subscription() is None
        assert first.assignment() == set()
        assert len(cluster.admin.refresh().groups["g"].members) == 1
        assert listener.calls == 1


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("what", ["assigned", "revoked"])
def test_a_listener_may_take_its_partitions_by_hand(cluster: Cluster, what: str, strategy: str) -> None:
    def take() -> None:
        first.unsubscribe()
        first.assign([at(1)])

    cluster.write(1, b"a")
    settings = {"group_id": "g", "partition_assignment_strategy": strategy, "enable_auto_commit": False}
    with cluster.consumer(**settings) as first, cluster.consumer("orders", **settings) as second:
        listener = Calling(what, take)
        first.subscribe(["orders"], listener=listener)
        until(lambda: second.assignment() == ALL_PARTITIONS and listener.calls, together(first, second))
        assert first.assignment() == {at(1)}
        first.seek_to_beginning()
        assert [record.value for record in read(first, 1)] == [b"a"]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("what", ["assigned", "revoked"])
def test_a_poll_within_a_listener_does_not_disturb_the_rebalance(cluster: Cluster, what: str, strategy: str) -> None:
    settings = {"group_id": "g", "partition_assignment_strategy": strategy}
    with cluster.consumer(**settings) as first, cluster.consumer("orders", **settings) as second:
        first.subscribe(["orders"], listener=Calling(what, first.poll))
        until(lambda: first.assignment() == ALL_PARTITIONS, together(first))
        until(lambda: len(first.assignment()) == len(second.assignment()) == 2, together(first, second))
        assert first.assignment() | second.assignment() == ALL_PARTITIONS


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_listener_that_is_interrupted_is_called_again_before_its_partitions_are_revoked(
    cluster: Cluster, strategy: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    def step() -> None:
        try:
            first.poll(5)
        except KeyboardInterrupt:
            interrupts.append(first.assignment())
        second.poll(5)

    interrupts: list[set[TopicPartition]] = []
    settings = {"group_id": "g", "partition_assignment_strategy": strategy}
    with cluster.consumer(**settings) as first, cluster.consumer("orders", **settings) as second:
        listener = Calling("revoked", interrupt)
        first.subscribe(["orders"], listener=listener)
        until(lambda: first.assignment() == ALL_PARTITIONS, together(first))
        until(lambda: interrupts and len(second.assignment()) == 2, step)
        until(lambda: len(first.assignment()) == 2, step)
        assert first.assignment() | second.assignment() == ALL_PARTITIONS
        assert interrupts == [ALL_PARTITIONS]
        assert listener.calls == 2


def test_the_last_offsets_are_committed_after_an_asynchronous_commit_of_earlier_ones(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b")
    with cluster.consumer("orders", group_id="g") as first:

        def commit_again(offsets: dict[TopicPartition, OffsetAndMetadata], _: object) -> None:
            first.commit(dict.fromkeys(offsets, OffsetAndMetadata(0)))

        read(first, 2)
        with cluster.consumer("orders", group_id="g") as second:
            second.poll(5)
            first.commit_async({at(0): OffsetAndMetadata(1)}, commit_again).get(20)
            until(lambda: len(second.assignment()) == 2, together(first, second))
            offsets = cluster.admin.refresh().groups["g"].offsets.values()
            assert {committed.offset for committed in offsets if committed.partition == 0} == {2}


def commit(consumer: Consumer, coordinator: Coordinator, offset: int, way: str) -> None:
    """Commit an offset of partition 3, in one of the ways that a listener has."""
    offsets = {at(3): OffsetAndMetadata(offset)}
    if way == "commit":
        consumer.commit(offsets)
    elif way == "commit_async":
        consumer.commit_async(offsets)
    elif way == "callback":  # of a commit that may end after the listener
        consumer.commit_async({at(1): OffsetAndMetadata(0)}, lambda *_: consumer.commit(offsets))
    else:
        with Producer(cluster=coordinator, transactional_id="t") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    ("way", "before"),
    [("commit", 0), ("commit", 1), ("commit_async", 0), ("commit_async", 1), ("callback", 1), ("transaction", 0)],
)
def test_a_rebalance_commits_no_position_where_the_listener_has_committed(
    cluster: Cluster, way: str, before: int, strategy: str
) -> None:
    """It commits 1 of 3 records, also where 1 is committed already: the others are read again, and none is skipped."""
    for partition in range(4):
        cluster.write(partition, b"a", b"b", b"c")
    settings: dict[str, Any] = {"group_id": "g", "partition_assignment_strategy": strategy}
    settings["auto_commit_interval_ms"] = 3_600_000
    settings |= {"auto_offset_reset": "earliest", "tail_backoff_max_ms": 5, "heartbeat_interval_ms": 200}
    own = cluster.coordinator()
    with Consumer(cluster=own, **settings) as first, cluster.consumer("orders", **settings) as second:
        listener = Calling("revoked", lambda: commit(first, own, 1, way))
        first.subscribe(["orders"], listener=listener)
        until(lambda: len(first.assignment()) == 4, together(first))
        until(lambda: sum(first.position(at(number)) for number in range(4)) == 12, together(first))
        first.commit({at(3): OffsetAndMetadata(before)})
        until(lambda: len(second.assignment()) == 2 == len(first.assignment()), together(first, second))
        offsets = cluster.admin.refresh().groups["g"].offsets.values()
        assert listener.calls
        assert {committed.offset for committed in offsets if committed.partition == 3} == {1}
