"""Producers and replicas: acks, failed locations, too few replicas, and changes between a file and its commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    StaleWriteError,
    StorageError,
    StoragePermissionError,
)
from sparklog.protocol.commits import ChangeBroker, FenceWriters
from sparklog.protocol.decide.topics import alter_configs
from sparklog.testing.faulty_store import ERROR, FULL, PERMISSION, UNAVAILABLE, Fault, FaultyStore
from sparklog.testing.records import Record, append_records
from tests.replicated import Brokers, brokers, prepare

WAIT = 30
"""Seconds. Only a broken test waits this long."""

FOREVER = range(1000)


def new_producer(cluster: Brokers, **more: Any) -> Producer:
    return Producer(cluster=cluster.coordinator, **{"retry_backoff_ms": 1, **more})


def send(cluster: Brokers, *values: bytes, **more: Any) -> list[int]:
    """Send with a new producer; return the offsets."""
    with new_producer(cluster, **more) as producer:
        return [future.get(WAIT).offset for future in [producer.send("t", value) for value in values]]


def down(cluster: Brokers, broker: int, kind: str = ERROR) -> None:
    """Let every call to the location of the broker fail from now on."""
    store = cluster.stores[broker]
    store.reset_counts()
    store.inject(*(Fault(step, kind) for step in FOREVER))


def up(cluster: Brokers, broker: int) -> None:
    cluster.stores[broker].reopen()


# -- acks


@pytest.mark.parametrize("acks", [-1, "all"])
def test_with_acks_all_every_replica_has_the_records(tmp_path: Path, acks: object) -> None:
    with brokers(tmp_path) as cluster:
        assert send(cluster, b"a", b"b", acks=acks) == [0, 1]
        assert cluster.values(0) == cluster.values(1) == [b"a", b"b"]
        assert cluster.partition().isr == (0, 1)


def test_with_acks_1_only_the_leader_gets_the_records_and_others_leave_the_isr(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        assert send(cluster, b"a", acks=1) == [0]
        assert cluster.values(0) == [b"a"]
        assert cluster.files(1) == []
        assert cluster.partition().isr == (0,)


def test_with_acks_0_offsets_are_unknown_and_failures_are_not_reported(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        assert send(cluster, b"a", acks=0) == [-1]
        assert cluster.values(0) == [b"a"]
        with new_producer(cluster, acks=0) as producer:
            producer.send("t", b"b").get(WAIT)
            delete_topic(cluster.coordinator, "t")
            future = producer.send("t", b"c")
            producer.flush(WAIT)
        assert future.is_done


def test_a_partition_with_one_replica_is_written_to_its_broker(tmp_path: Path) -> None:
    with brokers(tmp_path, factor=1, partitions=2) as cluster, new_producer(cluster) as producer:
        leaders = [cluster.partition("t", number).leader for number in range(2)]
        assert sorted(leaders) == [0, 1]
        for number in range(2):
            assert producer.send("t", b"%d" % number, partition=number).get(WAIT).offset == 0
        for number, leader in enumerate(leaders):
            assert cluster.values(leader, partition=number) == [b"%d" % number]
            assert len(cluster.files(leader)) == 2


def test_files_at_one_broker_are_deleted_if_the_write_fails_at_another(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, new_producer(cluster, linger_ms=60_000, retries=0) as producer:
        cluster.coordinator.create_topic("u", assignment=[[0], [1]])
        down(cluster, 1)
        futures = [producer.send("u", b"%d" % number, partition=number) for number in (0, 1)]
        producer.flush(WAIT)
        for future in futures:
            with pytest.raises(StorageError):
                future.get(WAIT)
        assert cluster.files(0) == []


def test_partitions_with_the_same_brokers_share_a_file(tmp_path: Path) -> None:
    with brokers(tmp_path, 3, factor=2, partitions=6) as cluster, new_producer(cluster, linger_ms=60_000) as producer:
        for number in range(6):
            producer.send("t", b"%d" % number, partition=number)
        producer.flush(WAIT)
        for number in range(6):
            for broker in cluster.partition("t", number).replicas:
                assert cluster.values(broker, partition=number) == [b"%d" % number]
        files = {name for broker in range(3) for name in cluster.files(broker)}
        assert len(files) == 2 * len({frozenset(cluster.partition("t", number).replicas) for number in range(6)})


def test_a_replica_costs_one_more_copy_of_the_bytes(tmp_path: Path) -> None:
    """Counts the calls and bytes of each location for 200 records."""
    with brokers(tmp_path) as cluster:
        with new_producer(cluster, linger_ms=60_000) as producer:
            for store in cluster.stores:
                store.reset_counts()
            for number in range(200):
                producer.send("t", b"%d" % number * 100)
            producer.flush(WAIT)
        follower = cluster.stores[1]
        sizes = [Path(follower.root, name).stat().st_size for name in cluster.files(1)]
        assert follower.bytes_written == sum(sizes)
        assert follower.bytes_read == 0
        assert set(follower.counts) == {"open_output", "write", "close", "info"}
        # Of each file and index before the commit, on a local disk only. Full batches may be sent before the others.
        assert follower.counts["info"] == len(sizes)


@pytest.mark.parametrize("acks", [0, 1])
def test_a_transaction_requires_acks_all(tmp_path: Path, acks: int) -> None:
    with brokers(tmp_path) as cluster, pytest.raises(InvalidConfigurationError, match="acks"):
        new_producer(cluster, transactional_id="tx", acks=acks)


# -- locations that fail


@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE, FULL, PERMISSION])
def test_a_failed_follower_leaves_the_isr_and_does_not_block_the_producer(tmp_path: Path, kind: str) -> None:
    with brokers(tmp_path) as cluster:
        down(cluster, 1, kind)
        assert send(cluster, b"a") == [0]
        assert (cluster.partition().isr, cluster.partition().leader) == ((0,), 0)
        assert cluster.values(0) == [b"a"]


def test_a_failed_follower_is_not_retried_immediately(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        down(cluster, 1)
        send(cluster, b"a")
        tried = len(cluster.stores[1].calls)
        send(cluster, b"b")
        assert len(cluster.stores[1].calls) == tried


def test_a_returning_follower_gets_records_before_it_is_in_sync(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        cluster.lead(0, [0])
        assert send(cluster, b"a") == [0]
        assert cluster.partition().isr == (0,)
        assert cluster.partition().followed_from == {1: 0}
        assert cluster.values(1) == [b"a"]


@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE, FULL, PERMISSION])
def test_a_failed_leader_is_replaced_by_a_follower_in_the_same_commit(tmp_path: Path, kind: str) -> None:
    with brokers(tmp_path, factor=1, partitions=1) as cluster:
        cluster.coordinator.create_topic("r", assignment=[[1, 0]])
        down(cluster, 1, kind)
        with new_producer(cluster) as producer:
            assert producer.send("r", b"a").get(WAIT).offset == 0
        now = cluster.partition("r")
        assert (now.leader, now.leader_epoch, now.isr, now.replicas) == (0, 1, (0,), (1, 0))
        assert cluster.values(0, "r") == [b"a"]


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("kind", [ERROR, FULL, PERMISSION])
def test_with_acks_1_or_0_a_leader_whose_location_keeps_failing_is_replaced(
    tmp_path: Path, acks: int, kind: str
) -> None:
    with brokers(tmp_path) as cluster:
        cluster.coordinator.create_topic("r", assignment=[[1, 0]])
        down(cluster, 1, kind)
        with new_producer(cluster, acks=acks) as producer:
            producer.send("r", b"a").get(WAIT)
        now = cluster.partition("r")
        assert (now.leader, now.isr) == (0, (0,))
        assert cluster.values(0, "r") == [b"a"]


def test_records_that_no_replica_may_store_fail_with_the_permission_error(tmp_path: Path) -> None:
    with brokers(tmp_path, factor=1) as cluster, new_producer(cluster, acks=1) as producer:
        cluster.coordinator.create_topic("r", assignment=[[1]])
        down(cluster, 1, PERMISSION)
        with pytest.raises(StoragePermissionError):
            producer.send("r", b"a").get(WAIT)


def test_with_acks_1_a_leader_that_fails_once_stays_leader(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        cluster.coordinator.create_topic("r", assignment=[[1, 0]])
        cluster.stores[1].inject(Fault(0, UNAVAILABLE))
        with new_producer(cluster, acks=1) as producer:
            producer.send("r", b"a").get(WAIT)
        assert (cluster.partition("r").leader, cluster.values(1, "r")) == (1, [b"a"])


def test_records_acknowledged_by_all_survive_the_loss_of_either_location(tmp_path: Path) -> None:
    for lost in (0, 1):
        with brokers(tmp_path / str(lost)) as cluster:
            send(cluster, b"a", b"b")
            assert cluster.values(1 - lost) == [b"a", b"b"]


@pytest.mark.parametrize("lost", ["missing", "replaced by a file", "replaced by another folder"])
def test_losing_a_folder_while_producing_loses_no_record_and_does_not_refill_it(tmp_path: Path, lost: str) -> None:
    """With real, registered folders; the lost one leads one partition and follows the other."""
    roots = prepare(tmp_path)
    cluster = open_cluster(roots[0])
    cluster.create_topic("t", assignment=[[0, 1], [1, 0]])
    with Producer(bootstrap_servers=roots[0], retry_backoff_ms=1) as producer:
        for number in range(6):
            for partition in (0, 1):
                assert producer.send("t", b"%d" % number, partition=partition).get(WAIT).offset == number
            if number == 2:
                Path(roots[1]).rename(tmp_path / "away")
                if lost == "replaced by a file":
                    Path(roots[1]).write_bytes(b"")
                elif lost != "missing":
                    Path(roots[1]).mkdir()
    state = cluster.refresh()
    assert [(partition.leader, partition.isr) for partition in state.topic("t").partitions] == [(0, (0,)), (0, (0,))]
    assert [partition.leader_epoch for partition in state.topic("t").partitions] == [0, 1]
    assert not Path(roots[1]).is_dir() or not list(Path(roots[1]).iterdir())
    for partition in (0, 1):
        with LogReader(cluster) as reader:
            assert [record.value for record in reader.records("t", partition, 0, 6)] == [b"%d" % n for n in range(6)]


# -- too few replicas


def test_too_few_in_sync_replicas_fail_the_records_and_nothing_is_written(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError, match=r"min\.insync\.replicas"):
            send(cluster, b"a", retries=2)
        assert cluster.files(0) == cluster.files(1) == []
        assert send(cluster, b"b", acks=1) == [0]


def test_a_failed_follower_stays_in_the_isr_if_min_insync_replicas_needs_it(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        down(cluster, 1)
        with pytest.raises(NotEnoughReplicasError):
            send(cluster, b"a", retries=2)
        assert cluster.partition().isr == (0, 1)
        up(cluster, 1)
        assert send(cluster, b"b") == [0]
        assert cluster.values(0) == cluster.values(1) == [b"b"]


def test_records_wait_until_enough_replicas_are_in_sync_again(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        with new_producer(cluster) as producer:
            future = producer.send("t", b"a")
            assert not future.is_done
            cluster.lead(0, [0, 1])
            assert future.get(WAIT).offset == 0
        assert cluster.values(0) == cluster.values(1) == [b"a"]


def test_records_that_time_out_waiting_for_replicas_fail_with_not_enough_replicas(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError):
            send(cluster, b"a", delivery_timeout_ms=50)


def test_partitions_with_enough_replicas_do_not_wait_for_others(tmp_path: Path) -> None:
    with brokers(tmp_path, partitions=2, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0], partition=1)
        with new_producer(cluster, linger_ms=60_000, retries=2) as producer:
            first, second = producer.send("t", b"a", partition=0), producer.send("t", b"b", partition=1)
            producer.flush(WAIT)
        assert first.get(WAIT).offset == 0
        assert isinstance(second.exception, NotEnoughReplicasError)


def test_later_records_of_other_partitions_do_not_wait(tmp_path: Path) -> None:
    with brokers(tmp_path, partitions=2, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0], partition=1)
        with new_producer(cluster) as producer:
            blocked = [producer.send("t", b"%d" % number, partition=1) for number in range(3)]
            for number in range(20):
                assert producer.send("t", b"x", partition=0).get(WAIT).offset == number
                blocked.append(producer.send("t", b"%d" % (number + 3), partition=1))
            assert not any(future.is_done for future in blocked)
            cluster.lead(0, [0, 1], partition=1)
            assert [future.get(WAIT).offset for future in blocked] == list(range(23))
        assert cluster.values(1, partition=1) == [b"%d" % number for number in range(23)]
        assert cluster.partition("t", 1).segments <= 4, "the waiting records are sent together"


def test_flush_and_close_wait_for_records_that_wait_for_replicas(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        for ending in ("flush", "close"):
            cluster.lead(0, [0])
            producer = new_producer(cluster, retry_backoff_ms=20)
            future = producer.send("t", ending.encode())
            with pytest.raises(KafkaTimeoutError):
                producer.flush(0.05)
            waiting = threading.Thread(target=getattr(producer, ending), args=(WAIT,))
            waiting.start()
            cluster.lead(0, [0, 1])
            waiting.join(WAIT)
            assert future.succeeded()
            producer.close()
        assert cluster.values(1) == [b"flush", b"close"]


def test_closing_with_a_short_timeout_fails_records_that_wait_for_replicas(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        producer = new_producer(cluster)
        futures = [producer.send("t", b"a"), producer.send("t", b"b")]
        producer.close(timeout=0.05)
        assert all(isinstance(future.exception, KafkaTimeoutError) for future in futures)


def test_records_behind_expired_ones_are_sent_within_their_own_timeout(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        clock = cluster.coordinator.log.clock
        with new_producer(cluster, delivery_timeout_ms=300) as producer:
            first = producer.send("t", b"first")
            clock.sleep(0.2)
            second = producer.send("t", b"second")
            with pytest.raises(NotEnoughReplicasError):
                first.get(WAIT)
            assert not second.is_done
            cluster.lead(0, [0, 1])
            assert second.get(WAIT).offset == 0
        assert cluster.values(1) == [b"second"]


# -- brokers that change between the file and its commit


def before_commit(cluster: Brokers, change: Callable[[], object]) -> None:
    """Call ``change`` once, when the first file of a producer is durable and not yet committed."""
    done: list[bool] = []
    follower = cluster.stores[1]

    def step(number: int, call: Any) -> None:
        if call.operation == "close" and call.key.endswith((".log", ".index")) and not done:
            done.append(True)
            change()

    follower.before = step


def test_records_on_brokers_that_left_the_isr_are_written_again(tmp_path: Path) -> None:
    with brokers(tmp_path, 3) as cluster:
        cluster.coordinator.create_topic("r", assignment=[[1]])
        before_commit(cluster, lambda: cluster.lead(2, [2], "r", replicas=[2]))
        with new_producer(cluster) as producer:
            assert producer.send("r", b"a").get(WAIT).offset == 0
        assert cluster.values(2, "r") == [b"a"]
        assert cluster.partition("r").log_end_offset == 1


def test_a_file_begun_before_the_fence_is_written_again_under_a_newer_name(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        fence = cluster.coordinator.state.version + 1  # the producer's id is a commit too

        before_commit(cluster, lambda: cluster.commit(FenceWriters(version=fence)))
        assert send(cluster, b"a") == [0]
        assert cluster.values(0) == cluster.values(1) == [b"a"]
        assert len(cluster.files(0)) == len(cluster.files(1)) == 4


def test_an_append_call_fenced_before_its_commit_writes_again_and_leaves_no_file(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        fence = cluster.coordinator.state.version
        before_commit(cluster, lambda: cluster.commit(FenceWriters(version=fence)))
        append_records(cluster.coordinator, "t", [Record(value=b"a")])
        assert cluster.values(0) == [b"a"]
        assert len(cluster.files(0)) == len(cluster.files(1)) == 2


# -- append calls


def test_an_append_call_respects_acks(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        append_records(cluster.coordinator, "t", [Record(value=b"a")])
        assert cluster.values(0) == cluster.values(1) == [b"a"]
        append_records(cluster.coordinator, "t", [Record(value=b"b")], acks=1)
        assert cluster.partition().isr == (0,)
        with pytest.raises(NotEnoughReplicasError):
            append_records(cluster.coordinator, "t", [Record(value=b"c")])


def test_a_topic_created_by_an_append_call_has_the_clusters_replication_factor(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        cluster.coordinator.submit(
            partial(alter_configs, topic="", changes={"default.replication.factor": "2", "num.partitions": "3"})
        )
        append_records(cluster.coordinator, "new", [Record(value=b"%d" % n, partition=n) for n in range(3)])
        for number in range(3):
            assert sorted(cluster.partition("new", number).isr) == [0, 1]
            assert cluster.values(0, "new", number) == cluster.values(1, "new", number) == [b"%d" % number]


def test_a_topic_created_by_a_record_has_the_clusters_replication_factor(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, new_producer(cluster) as producer:
        cluster.coordinator.submit(partial(alter_configs, topic="", changes={"default.replication.factor": "2"}))
        producer.send("new", b"a").get(WAIT)
        assert cluster.values(0, "new") == cluster.values(1, "new") == [b"a"]


# -- transactions


def test_a_transaction_is_on_every_replica(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, new_producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a")
        producer.flush()
        producer.send("t", b"b")
        producer.commit_transaction()
        assert cluster.values(0) == cluster.values(1) == [b"a", b"b"]


def test_a_transaction_continues_without_a_follower_that_fails(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, new_producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a")
        producer.flush()
        down(cluster, 1)
        producer.send("t", b"b")
        producer.commit_transaction()
        assert (cluster.values(0), cluster.partition().isr) == ([b"a", b"b"], (0,))


def test_a_transaction_retries_failed_writes_to_a_required_follower(tmp_path: Path) -> None:
    with (
        brokers(tmp_path, min_insync_replicas="2") as cluster,
        new_producer(cluster, transactional_id="tx") as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a")
        cluster.stores[1].reset_counts()
        cluster.stores[1].inject(Fault(0, UNAVAILABLE), Fault(3, UNAVAILABLE))
        producer.flush()
        producer.commit_transaction()
        assert cluster.values(0) == cluster.values(1) == [b"a"]
        assert (len(cluster.files(0)), cluster.partition().isr) == (2, (0, 1))


def test_a_transaction_with_too_few_replicas_is_aborted_and_can_be_repeated(tmp_path: Path) -> None:
    with (
        brokers(tmp_path, min_insync_replicas="2") as cluster,
        new_producer(cluster, transactional_id="tx") as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send("t", b"a")
        producer.flush()
        cluster.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError):
            producer.commit_transaction()
        assert isinstance(future.exception, NotEnoughReplicasError)
        with pytest.raises(InvalidTxnStateError):
            producer.send("t", b"b")
        producer.abort_transaction()
        assert cluster.files(0) == cluster.files(1) == []
        cluster.lead(0, [0, 1])
        producer.begin_transaction()
        producer.send("t", b"a")
        producer.commit_transaction()
        assert cluster.values(0) == cluster.values(1) == [b"a"]


def test_a_transaction_older_than_the_fence_is_aborted(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, new_producer(cluster, transactional_id="tx") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a")
        producer.flush()
        cluster.commit(FenceWriters(version=cluster.coordinator.state.version))
        with pytest.raises(StaleWriteError):
            producer.commit_transaction()
        producer.abort_transaction()


def test_a_flush_in_a_transaction_waits_for_replicas_at_most_max_block_ms(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        with new_producer(cluster, transactional_id="tx", max_block_ms=50) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"a")
            with pytest.raises(KafkaTimeoutError, match=r"min\.insync\.replicas"):
                producer.flush()


# -- without a leader


def test_records_without_a_key_go_to_partitions_that_have_a_leader(tmp_path: Path) -> None:
    with brokers(tmp_path, factor=1, partitions=4) as cluster:
        for partition in (0, 2):
            cluster.lead(-1, [0], partition=partition)
        cluster.coordinator.refresh()
        with new_producer(cluster, batch_size=1) as producer:
            for _ in range(40):
                assert producer.send("t", b"x").get(WAIT).partition in (1, 3)


def test_a_partitioner_gets_the_partitions_that_have_a_leader(tmp_path: Path) -> None:
    calls: list[list[int]] = []

    def partitioner(key: bytes | None, every: list[int], available: list[int]) -> int:
        calls.append(available)
        assert every == [0, 1, 2]
        return available[0]

    with brokers(tmp_path, factor=1, partitions=3) as cluster:
        cluster.lead(-1, [0], partition=0)
        cluster.coordinator.refresh()
        with new_producer(cluster, partitioner=partitioner) as producer:
            assert producer.send("t", b"x").get(WAIT).partition == 1
    assert calls == [[1, 2]]


def test_a_partition_accepts_records_once_it_has_a_leader(tmp_path: Path) -> None:
    with brokers(tmp_path, factor=1) as cluster:
        cluster.commit(ChangeBroker(broker=0, online=False))
        cluster.lead(-1, [0])
        with pytest.raises(NotLeaderOrFollowerError):
            send(cluster, b"a", retries=1)
        with pytest.raises(NotLeaderOrFollowerError):
            append_records(cluster.coordinator, "t", [Record(value=b"a")])
        cluster.commit(ChangeBroker(broker=0, online=True))
        cluster.lead(0, [0])
        assert send(cluster, b"a") == [0]


# -- compacted topics


def test_a_compacted_topic_refuses_records_without_a_key(tmp_path: Path) -> None:
    for policy in ("compact", "compact,delete"):
        with brokers(tmp_path / policy, 1, cleanup_policy=policy) as cluster, new_producer(cluster) as producer:
            with pytest.raises(InvalidRecordError, match="'t' is compacted"):
                producer.send("t", b"a")
            for table in (
                pa.table({"value": [b"a"]}),
                pa.table({"key": pa.array([b"k", None], pa.binary()), "value": [b"a", b"b"]}),
            ):
                with pytest.raises(InvalidRecordError, match="'t' is compacted"):
                    producer.send_batch("t", table)
            with pytest.raises(InvalidRecordError, match="'t' is compacted") as raised:
                append_records(cluster.coordinator, "t", [Record(key=b"k", value=b"a"), Record(value=b"b")])
            assert raised.value.index == 1
            assert cluster.files(0) == []
            producer.send("t", b"a", key=b"k").get(WAIT)
            producer.send("t", key=b"k").get(WAIT)
            producer.send_batch("t", pa.table({"key": [b"k"], "value": [b"b"]})).get(WAIT)
            assert cluster.partition().log_end_offset == 3


def test_a_topic_that_becomes_compacted_refuses_records_without_a_key(tmp_path: Path) -> None:
    with brokers(tmp_path, 1) as cluster, new_producer(cluster) as producer:
        producer.send("t", b"a").get(WAIT)
        cluster.coordinator.submit(partial(alter_configs, topic="t", changes={"cleanup.policy": "compact"}))
        producer.send("t", b"b", key=b"k").get(WAIT)
        with pytest.raises(InvalidRecordError):
            producer.send("t", b"c")


def test_injected_faults_take_effect(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        down(cluster, 1)
        send(cluster, b"a")
        assert isinstance(cluster.stores[1], FaultyStore)
        assert Fault(0, ERROR) in cluster.stores[1].injected
