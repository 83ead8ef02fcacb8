"""Stale offsets are not committed: those of a topic that was created again since, or of an earlier membership."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from sparklog.cli.main import main
from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import OffsetSpec
from sparklog.client.consumer import positions
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    CommitFailedError,
    IllegalGenerationError,
    NoError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commits.retired_files import REMOVED
from sparklog.protocol.group.start_offset import find_start
from sparklog.testing.faults import Call
from sparklog.testing.faulty_store import FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import WAIT_SECONDS, Cluster, at, flat, read, together, until, values

OLD, NEW = [b"old"] * 10, [b"new"] * 20


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    created = Cluster(request.node.name)
    created.admin.create_topic("out", 1)
    created.write(0, *OLD)
    return created


def create_again(cluster: Cluster) -> None:
    delete_topic(cluster.admin, "orders")
    cluster.admin.create_topic("orders", 2)
    cluster.write(0, *NEW)


@contextmanager
def assigned(cluster: Cluster, **configs: Any) -> Iterator[Consumer]:
    with cluster.consumer(group_id="g", **{"enable_auto_commit": False, **configs}) as consumer:
        consumer.assign([at(0)])
        yield consumer


def read_by_the_group(cluster: Cluster, count: int) -> list[Any]:
    with assigned(cluster) as consumer:
        return values(read(consumer, count))


@contextmanager
def transaction(cluster: Cluster) -> Iterator[Producer]:
    with Producer(cluster=cluster.coordinator(), transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", b"result")
        yield producer


def results(cluster: Cluster) -> int:
    return cluster.admin.refresh().partition("out", 0).high_watermark


@pytest.mark.parametrize("last", ["close", "commit", "commit of an offset"])
def test_a_consumer_with_assigned_partitions_commits_no_offset_of_the_former_topic(cluster: Cluster, last: str) -> None:
    with assigned(cluster, enable_auto_commit=last == "close") as consumer:
        assert len(read(consumer, len(OLD))) == len(OLD)
        create_again(cluster)
        if last == "commit":
            with suppress(CommitFailedError):  # unless the consumer has read already that the topic is another
                consumer.commit()
        if last == "commit of an offset":
            with pytest.raises(CommitFailedError, match="the topic was deleted and created again"):
                consumer.commit({at(0): OffsetAndMetadata(len(OLD))})
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_a_position_that_was_found_but_not_read_from_is_one_of_its_topic(cluster: Cluster) -> None:
    with assigned(cluster, auto_offset_reset="latest", enable_auto_commit=True) as consumer:
        assert consumer.position(at(0)) == len(OLD)
        create_again(cluster)
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_a_consumer_goes_on_with_the_new_topic_and_commits_its_offsets(cluster: Cluster) -> None:
    with assigned(cluster) as consumer:
        read(consumer, len(OLD))
        create_again(cluster)
        assert values(read(consumer, len(NEW))) == NEW
        consumer.commit()
    assert cluster.admin.refresh().committed("g", "orders", 0).offset == len(NEW)  # type: ignore[union-attr]


@pytest.mark.parametrize("copied", [False, True])
def test_a_transaction_commits_no_offset_of_the_former_topic(cluster: Cluster, copied: bool) -> None:
    with assigned(cluster) as consumer, transaction(cluster) as producer:
        read(consumer, len(OLD))
        metadata = consumer.group_metadata()
        create_again(cluster)
        metadata = pickle.loads(pickle.dumps(metadata)) if copied else metadata
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, metadata)
        with pytest.raises(CommitFailedError, match="the topic was deleted and created again"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert results(cluster) == 0
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_offsets_of_an_open_transaction_stay_those_of_the_former_topic(cluster: Cluster) -> None:
    with assigned(cluster) as consumer, transaction(cluster) as producer:
        read(consumer, len(OLD))
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, consumer.group_metadata())
        create_again(cluster)
        read(consumer, len(NEW))
        producer.send_offsets_to_transaction({at(1): OffsetAndMetadata(0)}, consumer.group_metadata())
        with pytest.raises(CommitFailedError, match="the topic was deleted and created again"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_a_consumer_that_has_left_its_group_is_fenced_in_a_transaction(cluster: Cluster) -> None:
    configs: dict[str, Any] = {"group_id": "g", "max_poll_interval_ms": 100, "heartbeat_interval_ms": 20}
    with cluster.consumer("orders", **configs) as slow, transaction(cluster) as producer:
        read(slow, len(OLD))
        membership = slow.group_metadata()
        until(lambda: not cluster.admin.refresh().groups["g"].members)  # it polls too late
        with cluster.consumer("orders", group_id="g") as other:
            read(other, len(OLD))
            other.commit()
        assert slow.group_metadata()[:3] == membership[:3]
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(5)}, slow.group_metadata())
        with pytest.raises(UnknownMemberIdError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert results(cluster) == 0
    assert cluster.admin.refresh().committed("g", "orders", 0).offset == len(OLD)  # type: ignore[union-attr]


def test_a_consumer_that_has_unsubscribed_is_a_program_without_membership(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as consumer, transaction(cluster) as producer:
        read(consumer, len(OLD))
        consumer.unsubscribe()
        consumer.assign([at(0)])
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, consumer.group_metadata())
        producer.commit_transaction()
    assert results(cluster) == 1


def test_offsets_added_before_a_rebalance_are_not_committed_with_those_after_it(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as first, transaction(cluster) as producer:
        read(first, len(OLD))
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, first.group_metadata())
        with cluster.consumer("orders", group_id="g") as second:
            until(lambda: len(second.assignment()) == 1, together(first, second))
        until(lambda: len(first.assignment()) == 2, together(first))
        producer.send_offsets_to_transaction({at(1): OffsetAndMetadata(0)}, first.group_metadata())
        with pytest.raises(IllegalGenerationError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert results(cluster) == 0


# -- an offset keeps the topic and the membership of when it was found, however much later it is committed


class Held:
    """Commits through this coordinator wait in the thread of a consumer for its group, from ``hold`` until ``go``: the
    storage is slow, or commits before them are."""

    def __init__(self, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
        self._submit = coordinator.submit
        self.waits, self.go = threading.Event(), threading.Event()
        self.go.set()
        monkeypatch.setattr(coordinator, "submit", self._submit_later)

    def hold(self) -> None:
        self.waits.clear()
        self.go.clear()

    def _submit_later(self, *arguments: Any, **named: Any) -> Any:
        if threading.current_thread().name.startswith("sparklog-consumer-group"):
            self.waits.set()
            self.go.wait(WAIT_SECONDS)
        return self._submit(*arguments, **named)


def read_old_records(consumer: Consumer, subscribed: bool) -> None:
    consumer.subscribe(["orders"]) if subscribed else consumer.assign([at(0)])
    assert values(read(consumer, len(OLD))) == OLD


@pytest.mark.parametrize("waiting", [1, 2])
@pytest.mark.parametrize("subscribed", [False, True])
def test_a_slow_asynchronous_commit_stays_one_of_the_former_topic(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, subscribed: bool, waiting: int
) -> None:
    coordinator, outcomes = cluster.coordinator(), list[Any]()
    commits = Held(coordinator, monkeypatch)
    configs: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "tail_backoff_max_ms": 5}
    with Consumer(cluster=coordinator, group_id="g", **configs) as consumer:
        read_old_records(consumer, subscribed)
        commits.hold()
        for _ in range(waiting):
            consumer.commit_async(callback=lambda _, outcome: outcomes.append(outcome))
        assert commits.waits.wait(WAIT_SECONDS)
        create_again(cluster)
        new = [record for _ in range(50) for record in flat(consumer.poll(10))]  # it goes on, as programs do
        assert not outcomes
        commits.go.set()
        new += read(consumer, len(NEW) - len(new))
        assert values(new) == NEW
        until(lambda: len(outcomes) == waiting, lambda: consumer.poll(5))
    assert [type(outcome) for outcome in outcomes] == [CommitFailedError] * waiting
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_a_listener_commits_no_offset_of_a_partition_that_was_lost_with_its_topic(cluster: Cluster) -> None:
    refused: list[CommitFailedError] = []

    class Committing(ConsumerRebalanceListener):
        def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
            with pytest.raises(CommitFailedError) as error:
                consumer.commit({at(0): OffsetAndMetadata(len(OLD))})
            refused.append(error.value)

    with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.subscribe(["orders"], listener=Committing())
        read(consumer, len(OLD))
        create_again(cluster)
        assert values(read(consumer, len(NEW))) == NEW
        assert len(refused) == 1
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_a_commit_that_a_rebalance_overtakes_stays_valid(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = cluster.coordinator()
    commits = Held(coordinator, monkeypatch)
    with (
        Consumer("orders", cluster=coordinator, group_id="g", auto_offset_reset="earliest") as first,
        cluster.consumer(group_id="g") as second,
    ):
        read(first, len(OLD))
        commits.hold()
        future = first.commit_async({at(0): OffsetAndMetadata(4)})
        assert commits.waits.wait(WAIT_SECONDS)
        second.subscribe(["orders"])
        until(lambda: len(cluster.admin.refresh().groups["g"].members) == 2, together(second))
        commits.go.set()
        assert future.get(WAIT_SECONDS) == {at(0): OffsetAndMetadata(4)}


def test_last_offsets_that_could_not_be_acknowledged_stay_those_of_the_former_topic(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    fails = threading.Event()

    def fail(step: int, call: Call) -> None:
        in_group = threading.current_thread().name.startswith("sparklog-consumer-group")
        if fails.is_set() and in_group and call == ("put_if_absent", call.key):
            raise StorageError("the storage refuses it")

    cluster.admin.create_topic("audit", 2)
    with AdminClient(cluster=cluster.coordinator()) as admin:  # so that the last offset is that of orders-0 alone
        admin.alter_group_offsets("g", {at(1): 0, at(0, "audit"): 0, at(1, "audit"): 0})
    configs: dict[str, Any] = {"group_id": "g", "auto_commit_interval_ms": 60_000, "auto_offset_reset": "earliest"}
    coordinator = open_cluster(FaultyStore(cluster.store, before=fail))
    with (
        Consumer("orders", "audit", cluster=coordinator, client_id="a", **configs) as first,
        cluster.consumer("orders", "audit", client_id="b", **configs) as second,
    ):
        read(first, len(OLD))
        second.poll(0)
        until(lambda: len(cluster.admin.refresh().groups["g"].members) == 2, together(second))
        fails.set()
        until(lambda: any(message.startswith("retrying ") for message in caplog.messages), lambda: first.poll(0))
        create_again(cluster)
        coordinator.refresh()
        fails.clear()
        assert values(read(first, len(NEW))) == NEW


def test_an_offset_committed_of_the_former_topic_does_not_keep_the_same_one_from_being_committed(
    cluster: Cluster,
) -> None:
    with assigned(cluster, enable_auto_commit=True, max_poll_records=len(OLD)) as consumer:
        read(consumer, len(OLD))
        consumer.commit()
        create_again(cluster)
        assert values(read(consumer, len(OLD))) == NEW[: len(OLD)]
        assert consumer.position(at(0)) == len(OLD)
    assert cluster.admin.refresh().committed("g", "orders", 0).offset == len(OLD)  # type: ignore[union-attr]


def test_offsets_of_a_transaction_for_a_group_by_name_stay_those_of_the_former_topic(cluster: Cluster) -> None:
    with transaction(cluster) as producer:
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, "g")
        create_again(cluster)
        with pytest.raises(CommitFailedError, match="the topic was deleted and created again"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert read_by_the_group(cluster, len(NEW)) == NEW


# -- positions


def test_a_reset_found_in_the_former_topic_is_not_one_of_the_new(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator, found = cluster.coordinator(), list[int]()

    def find_slowly(strategy: str, start: int, end: int) -> int | None:
        found.append(start)
        create_again(cluster)
        coordinator.refresh()  # as the fetch thread may at any moment
        monkeypatch.undo()
        return find_start(strategy, start, end)

    with Consumer(cluster=coordinator, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([at(0)])
        consumer.seek(at(0), 2)
        with AdminClient(cluster=cluster.coordinator()) as admin:
            admin.delete_records({at(0): 8})
        monkeypatch.setattr(positions, "find_start", find_slowly)
        assert values(read(consumer, len(NEW))) == NEW
    assert found == [8]


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_seek_to_a_record_that_was_read_is_not_one_in_the_new_topic(cluster: Cluster, reset: str) -> None:
    with assigned(cluster) as consumer:
        consumer.seek(at(0), 0)
        consumer.commit()
    with assigned(cluster, auto_offset_reset=reset) as consumer:
        record = read(consumer, len(OLD))[-2]
        create_again(cluster)
        assert consumer.partitions_for_topic("orders")  # reads the newest state
        consumer.seek(at(0), record.offset)
        if reset == "none":
            with pytest.raises(OffsetOutOfRangeError, match="was recreated"):
                read(consumer, 1)
            consumer.seek(at(0), 3)  # one of the offsets that the error names
            assert len(read(consumer, len(NEW) - 3)) == len(NEW) - 3
        else:
            assert values(read(consumer, len(NEW))) == NEW


@pytest.mark.parametrize("look_up", ["end", "beginning", "committed", "time"])
@pytest.mark.parametrize("is_behind", [False, True])
def test_a_seek_to_a_record_that_was_read_is_not_one_of_what_was_looked_up_since(
    cluster: Cluster, look_up: str, is_behind: bool
) -> None:
    """As to try a record again, in a program that shows its lag. It may have gone back before."""
    with assigned(cluster) as consumer:
        consumer.seek(at(0), 0)
        record = read(consumer, len(OLD))[-2]
        if is_behind:
            consumer.seek(at(0), 1)
        create_again(cluster)
        with AdminClient(cluster=cluster.coordinator()) as admin:
            admin.alter_group_offsets("g", {at(0): 0})
        match look_up:
            case "end":
                assert consumer.end_offsets([at(0)]) == {at(0): len(NEW)}
            case "beginning":
                assert consumer.beginning_offsets([at(0)]) == {at(0): 0}
            case "committed":
                assert consumer.committed(at(0)) == 0
            case _:
                found = consumer.offsets_for_times({at(0): 0})[at(0)]
                assert found is not None
                assert found.offset == 0
        consumer.seek(at(0), record.offset)
        assert values(read(consumer, len(NEW))) == NEW


def test_each_of_the_offsets_that_were_looked_up_is_one_of_the_new_topic(cluster: Cluster) -> None:
    with assigned(cluster, auto_offset_reset="latest") as consumer:
        consumer.seek(at(0), 0)
        read(consumer, len(OLD))
        create_again(cluster)
        first, end = consumer.beginning_offsets([at(0)])[at(0)], consumer.end_offsets([at(0)])[at(0)]
        assert (first, end) == (0, len(NEW))
        consumer.seek(at(0), first)
        assert values(read(consumer, len(NEW))) == NEW


@pytest.mark.parametrize("look_up", ["beginning", "committed"])
def test_a_seek_to_an_offset_that_was_looked_up_is_one_of_the_topic_that_has_it(cluster: Cluster, look_up: str) -> None:
    with assigned(cluster, auto_offset_reset="latest") as consumer:
        consumer.seek(at(0), 0)
        read(consumer, len(OLD))
        create_again(cluster)
        with AdminClient(cluster=cluster.coordinator()) as admin:
            admin.alter_group_offsets("g", {at(0): 0})
        found = consumer.beginning_offsets([at(0)])[at(0)] if look_up == "beginning" else consumer.committed(at(0))
        assert found == 0
        consumer.seek(at(0), found)
        assert values(read(consumer, len(NEW))) == NEW


def test_records_of_the_new_topic_are_not_read_as_those_of_the_former_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with assigned(cluster) as consumer:
        read(consumer, len(OLD))
        fetch, created = ConsumerReader.fetch, threading.Event()

        def fetch_later(reader: ConsumerReader, *arguments: Any, **more: Any) -> Any:
            if not created.is_set():
                created.set()
                create_again(cluster)
                reader.refresh()  # as a producer or a consumer may that shares the coordinator
            return fetch(reader, *arguments, **more)

        monkeypatch.setattr(ConsumerReader, "fetch", fetch_later)
        cluster.write(0, *[b"more"] * 5)
        assert values(read(consumer, 5 + len(NEW))) == [b"more"] * 5 + NEW


def test_a_file_of_the_former_topic_that_is_gone_is_no_lost_data(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with assigned(cluster) as consumer:
        read(consumer, len(OLD))
        cluster.write(0, b"more")
        path = cluster.admin.segments("orders").partition(0)[-1].path
        fetch, created = ConsumerReader.fetch, threading.Event()

        def fetch_later(reader: ConsumerReader, *arguments: Any, **more: Any) -> Any:
            if not created.is_set():
                created.set()
                create_again(cluster)
                cluster.store.delete(path)
            return fetch(reader, *arguments, **more)

        monkeypatch.setattr(ConsumerReader, "fetch", fetch_later)
        assert values(read(consumer, len(NEW))) == NEW


# -- administrators


def plan_slowly(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the topic be created again while a reset looks up its offsets: by time that reads files for minutes."""
    plan = AdminClient.plan_group_offsets

    def planned(admin: AdminClient, *arguments: Any) -> Any:
        found = plan(admin, *arguments)
        create_again(cluster)
        return found

    monkeypatch.setattr(AdminClient, "plan_group_offsets", planned)


def test_a_reset_sets_no_offset_that_was_found_in_the_former_topic(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_slowly(cluster, monkeypatch)
    with AdminClient(cluster=cluster.coordinator()) as admin:
        changed = admin.reset_group_offsets("g", {at(0): OffsetSpec.LATEST})
        assert changed == {at(0): {"error": CommitFailedError, "offset": len(OLD)}}
        assert admin.list_group_offsets("g") == {"g": {}}
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_offsets_of_a_plan_are_refused_one_by_one_or_as_an_error(cluster: Cluster) -> None:
    specs = {at(0): OffsetSpec.LATEST, at(0, "out"): OffsetSpec.LATEST}
    with AdminClient(cluster=cluster.coordinator()) as admin:
        planned = admin.plan_group_offsets("g", specs)
        offsets = {partition: found.offset for partition, found in planned.items()}
        create_again(cluster)
        with pytest.raises(CommitFailedError, match="orders-0: the topic was deleted and created again"):
            admin.alter_group_offsets("g", offsets, raise_errors=True, planned=planned)
        assert admin.list_group_offsets("g") == {"g": {}}
        changed = admin.alter_group_offsets("g", offsets, planned=planned)
        assert changed == {at(0): CommitFailedError, at(0, "out"): NoError}
        assert list(admin.list_group_offsets("g")["g"]) == [at(0, "out")]


def test_the_tool_sets_no_offset_that_was_found_in_the_former_topic(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan_slowly(cluster, monkeypatch)
    root = ["--bootstrap-server", cluster.store.root]
    reset = ["consumer-groups", *root, "--reset-offsets", "--group", "g", "--topic", "orders", "--to-latest"]
    assert main([*reset, "--execute"]) == 1
    assert "orders-0: the topic was deleted and created again" in capsys.readouterr().err
    assert "g" not in cluster.admin.refresh().groups


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
@pytest.mark.parametrize("way", ["rebalance", "two members", "close", "assign and close"])
def test_offsets_of_other_topics_are_committed_although_one_is_deleted(cluster: Cluster, way: str, again: bool) -> None:
    """After the consumer has last looked at the log, and before the commit is decided."""
    other = TopicPartition("other", 0)
    cluster.admin.create_topic("other", 1)
    with Producer(cluster=cluster.coordinator()) as producer:
        producer.send("other", b"kept").get(WAIT_SECONDS)

    def delete() -> None:
        delete_topic(cluster.admin, "orders")
        if again:
            cluster.admin.create_topic("orders", 2)

    class Deleting(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            if way in ("rebalance", "two members") and "orders" in cluster.admin.refresh().topics and revoked:
                delete()

    def committed() -> Any:
        return cluster.admin.refresh().committed("g", "other", 0)

    coordinator = cluster.coordinator()
    configs: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
    consumer = Consumer(cluster=coordinator, auto_commit_interval_ms=3_600_000, **configs)
    if way == "assign and close":
        consumer.assign([at(0), other])
    else:
        consumer.subscribe(["orders", "other", "third"], listener=Deleting())
    read(consumer, len(OLD) + 1)
    if way == "rebalance":
        cluster.admin.create_topic("third", 1)
        until(lambda: TopicPartition("third", 0) in consumer.assignment(), lambda: consumer.poll(20))
    elif way == "two members":
        with cluster.consumer("orders", "other", **configs) as second:
            until(lambda: committed() is not None, together(consumer, second))
    if way in ("close", "assign and close"):
        delete()
    consumer.close()
    assert committed().offset == 1
    assert not again or cluster.admin.refresh().committed("g", "orders", 0) is None


def test_a_deletion_that_began_with_the_former_topic_leaves_the_new_one(cluster: Cluster) -> None:
    """The process was suspended after it had listed the files of the topic."""
    again: list[str] = []

    def before(step: int, call: Call) -> None:
        if call.operation == "close" and call.key.startswith(REMOVED) and not again:
            again.append(call.key)
            create_again(cluster)

    suspended = AdminClient(cluster=open_cluster(FaultyStore(cluster.store, before=before)))
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted meanwhile"):
        suspended.delete_topics(["orders"])
    assert again
    assert cluster.admin.refresh().topic("orders").partitions[0].log_end_offset == len(NEW)


def test_a_deletion_of_records_that_began_with_the_former_topic_leaves_the_new_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = AdminClient(cluster=cluster.coordinator())
    submit, again = Coordinator.submit, list[bool]()

    def create_before(coordinator: Coordinator, *arguments: Any, **options: Any) -> Any:
        if not again:
            again.append(True)
            create_again(cluster)
        return submit(coordinator, *arguments, **options)

    monkeypatch.setattr(Coordinator, "submit", create_before)
    with pytest.raises(UnknownTopicOrPartitionError, match="was deleted meanwhile"):
        admin.delete_records({at(0): -1})
    assert cluster.admin.refresh().topic("orders").partitions[0].log_start_offset == 0
