"""Producers and replicas: where records go by acks, what a lost location changes, and what is refused in between."""

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
from sparklog.log.broker_files import encode_identity
from sparklog.protocol.commits import ChangeBroker, FenceWriters
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.location import IDENTITY_KEY
from sparklog.testing.faulty_store import ERROR, FULL, PERMISSION, UNAVAILABLE, Fault, FaultyStore
from sparklog.testing.records import Record, append_records
from tests.replicated import Brokers, brokers, prepare

WAIT = 30
"""seconds. No test waits that long unless something is broken."""

FOREVER = range(1000)


def producer(cluster: Brokers, **more: Any) -> Producer:
    return Producer(cluster=cluster.coordinator, **{"retry_backoff_ms": 1, **more})


def send(cluster: Brokers, *values: bytes, **more: Any) -> list[int]:
    """Send with a producer of its own; the offsets."""
    with producer(cluster, **more) as one:
        return [future.get(WAIT).offset for future in [one.send("t", value) for value in values]]


def down(cluster: Brokers, broker: int, kind: str = ERROR) -> None:
    """From now on the broker's location fails whatever is asked of it."""
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


def test_with_acks_1_the_leader_alone_has_them_and_the_others_are_behind(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        assert send(cluster, b"a", acks=1) == [0]
        assert cluster.values(0) == [b"a"]
        assert cluster.files(1) == []
        assert cluster.partition().isr == (0,)


def test_with_acks_0_offsets_are_not_known_and_failures_are_not_told(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        assert send(cluster, b"a", acks=0) == [-1]
        assert cluster.values(0) == [b"a"]
        with producer(cluster, acks=0) as one:
            one.send("t", b"b").get(WAIT)
            delete_topic(cluster.coordinator, "t")
            future = one.send("t", b"c")
            one.flush(WAIT)
        assert future.is_done


def test_the_topic_with_one_replica_goes_to_its_broker(tmp_path: Path) -> None:
    with brokers(tmp_path, factor=1, partitions=2) as cluster, producer(cluster) as one:
        leaders = [cluster.partition("t", number).leader for number in range(2)]
        assert sorted(leaders) == [0, 1]
        for number in range(2):
            assert one.send("t", b"%d" % number, partition=number).get(WAIT).offset == 0
        for number, leader in enumerate(leaders):
            assert cluster.values(leader, partition=number) == [b"%d" % number]
            assert len(cluster.files(leader)) == 2


def test_files_at_one_broker_are_deleted_if_those_of_the_same_write_at_another_fail(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, producer(cluster, linger_ms=60_000, retries=0) as one:
        cluster.coordinator.create_topic("u", assignment=[[0], [1]])
        down(cluster, 1)
        futures = [one.send("u", b"%d" % number, partition=number) for number in (0, 1)]
        one.flush(WAIT)
        for future in futures:
            with pytest.raises(StorageError):
                future.get(WAIT)
        assert cluster.files(0) == []


def test_partitions_share_a_file_where_they_have_the_same_brokers(tmp_path: Path) -> None:
    with brokers(tmp_path, 3, factor=2, partitions=6) as cluster, producer(cluster, linger_ms=60_000) as one:
        for number in range(6):
            one.send("t", b"%d" % number, partition=number)
        one.flush(WAIT)
        for number in range(6):
            for broker in cluster.partition("t", number).replicas:
                assert cluster.values(broker, partition=number) == [b"%d" % number]
        files = {name for broker in range(3) for name in cluster.files(broker)}
        assert len(files) == 2 * len({frozenset(cluster.partition("t", number).replicas) for number in range(6)})


def test_a_replica_costs_one_more_copy_of_the_bytes(tmp_path: Path) -> None:
    """Counted: what each location is given and asked for 200 records."""
    with brokers(tmp_path) as cluster:
        with producer(cluster, linger_ms=60_000) as one:
            for store in cluster.stores:
                store.reset_counts()
            for number in range(200):
                one.send("t", b"%d" % number * 100)
            one.flush(WAIT)
        follower = cluster.stores[1]
        size = sum(Path(follower.root, name).stat().st_size for name in cluster.files(1))
        assert follower.bytes_written == size
        assert follower.bytes_read == 0
        assert set(follower.counts) == {"open_output", "write", "close"}


@pytest.mark.parametrize("acks", [0, 1])
def test_a_transaction_is_acknowledged_by_all(tmp_path: Path, acks: int) -> None:
    with brokers(tmp_path) as cluster, pytest.raises(InvalidConfigurationError, match="acks"):
        producer(cluster, transactional_id="tx", acks=acks)


# -- locations that fail


@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE, FULL, PERMISSION])
def test_a_follower_that_fails_leaves_the_isr_and_nothing_waits_for_it(tmp_path: Path, kind: str) -> None:
    with brokers(tmp_path) as cluster:
        down(cluster, 1, kind)
        assert send(cluster, b"a") == [0]
        assert (cluster.partition().isr, cluster.partition().leader) == ((0,), 0)
        assert cluster.values(0) == [b"a"]


def test_a_follower_that_failed_is_let_be_for_a_while(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        down(cluster, 1)
        send(cluster, b"a")
        tried = len(cluster.stores[1].calls)
        send(cluster, b"b")
        assert len(cluster.stores[1].calls) == tried


def test_a_follower_that_is_back_gets_records_before_it_is_in_sync_so_that_it_can_catch_up(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        cluster.lead(0, [0])
        assert send(cluster, b"a") == [0]
        assert cluster.partition().isr == (0,)
        assert cluster.partition().followed_from == {1: 0}
        assert cluster.values(1) == [b"a"]


@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE, FULL, PERMISSION])
def test_a_leader_that_fails_gives_way_to_a_follower_in_the_same_commit(tmp_path: Path, kind: str) -> None:
    with brokers(tmp_path, factor=1, partitions=1) as cluster:
        cluster.coordinator.create_topic("r", assignment=[[1, 0]])
        down(cluster, 1, kind)
        with producer(cluster) as one:
            assert one.send("r", b"a").get(WAIT).offset == 0
        now = cluster.partition("r")
        assert (now.leader, now.leader_epoch, now.isr, now.replicas) == (0, 1, (0,), (1, 0))
        assert cluster.values(0, "r") == [b"a"]


@pytest.mark.parametrize("acks", [0, 1])
@pytest.mark.parametrize("kind", [ERROR, FULL, PERMISSION])
def test_with_acks_1_or_0_the_next_in_sync_leads_where_the_leaders_location_keeps_failing(
    tmp_path: Path, acks: int, kind: str
) -> None:
    with brokers(tmp_path) as cluster:
        cluster.coordinator.create_topic("r", assignment=[[1, 0]])
        down(cluster, 1, kind)
        with producer(cluster, acks=acks) as one:
            one.send("r", b"a").get(WAIT)
        now = cluster.partition("r")
        assert (now.leader, now.isr) == (0, (0,))
        assert cluster.values(0, "r") == [b"a"]


def test_records_that_no_replica_may_take_fail_with_what_forbids_it(tmp_path: Path) -> None:
    with brokers(tmp_path, factor=1) as cluster, producer(cluster, acks=1) as one:
        cluster.coordinator.create_topic("r", assignment=[[1]])
        down(cluster, 1, PERMISSION)
        with pytest.raises(StoragePermissionError):
            one.send("r", b"a").get(WAIT)


def test_with_acks_1_a_leader_that_fails_once_stays_leader(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        cluster.coordinator.create_topic("r", assignment=[[1, 0]])
        cluster.stores[1].inject(Fault(0, UNAVAILABLE))
        with producer(cluster, acks=1) as one:
            one.send("r", b"a").get(WAIT)
        assert (cluster.partition("r").leader, cluster.values(1, "r")) == (1, [b"a"])


def test_what_was_acknowledged_by_all_is_there_after_either_location_is_lost(tmp_path: Path) -> None:
    for lost in (0, 1):
        with brokers(tmp_path / str(lost)) as cluster:
            send(cluster, b"a", b"b")
            assert cluster.values(1 - lost) == [b"a", b"b"]


@pytest.mark.parametrize("lost", ["gone", "a file in its place", "not the folder that was registered"])
def test_a_folder_that_is_lost_while_producing_costs_no_record_and_is_not_filled_anew(
    tmp_path: Path, lost: str
) -> None:
    """With real folders, as they are registered; the leader of one partition and the follower of the other is lost."""
    roots = prepare(tmp_path)
    cluster = open_cluster(roots[0])
    Path(roots[1]).mkdir()
    Path(roots[1], IDENTITY_KEY).write_bytes(encode_identity(cluster.state.cluster_id, 1))
    cluster.create_topic("t", assignment=[[0, 1], [1, 0]])
    with Producer(bootstrap_servers=roots[0], retry_backoff_ms=1) as one:
        for number in range(6):
            for partition in (0, 1):
                assert one.send("t", b"%d" % number, partition=partition).get(WAIT).offset == number
            if number == 2:
                Path(roots[1]).rename(tmp_path / "away")
                if lost == "a file in its place":
                    Path(roots[1]).write_bytes(b"")
                elif lost != "gone":
                    Path(roots[1]).mkdir()
    state = cluster.refresh()
    assert [(one.leader, one.isr) for one in state.topic("t").partitions] == [(0, (0,)), (0, (0,))]
    assert [one.leader_epoch for one in state.topic("t").partitions] == [0, 1]
    assert not Path(roots[1]).is_dir() or not list(Path(roots[1]).iterdir())
    for partition in (0, 1):
        with LogReader(cluster) as reader:
            assert [record.value for record in reader.records("t", partition, 0, 6)] == [b"%d" % n for n in range(6)]


# -- too few replicas


def test_too_few_replicas_in_sync_fail_the_records_and_nothing_is_written(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError, match=r"min\.insync\.replicas"):
            send(cluster, b"a", retries=2)
        assert cluster.files(0) == cluster.files(1) == []
        assert send(cluster, b"b", acks=1) == [0]


def test_a_follower_that_fails_is_not_taken_out_where_it_is_needed(tmp_path: Path) -> None:
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
        with producer(cluster) as one:
            future = one.send("t", b"a")
            assert not future.is_done
            cluster.lead(0, [0, 1])
            assert future.get(WAIT).offset == 0
        assert cluster.values(0) == cluster.values(1) == [b"a"]


def test_records_that_waited_too_long_for_replicas_fail_with_what_they_waited_for(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError):
            send(cluster, b"a", delivery_timeout_ms=50)


def test_partitions_with_enough_replicas_do_not_wait_for_one_that_has_too_few(tmp_path: Path) -> None:
    with brokers(tmp_path, partitions=2, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0], partition=1)
        with producer(cluster, linger_ms=60_000, retries=2) as one:
            first, second = one.send("t", b"a", partition=0), one.send("t", b"b", partition=1)
            one.flush(WAIT)
        assert first.get(WAIT).offset == 0
        assert isinstance(second.exception, NotEnoughReplicasError)


def test_records_sent_later_to_other_partitions_do_not_wait_either(tmp_path: Path) -> None:
    with brokers(tmp_path, partitions=2, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0], partition=1)
        with producer(cluster) as one:
            held = [one.send("t", b"%d" % number, partition=1) for number in range(3)]
            for number in range(20):
                assert one.send("t", b"x", partition=0).get(WAIT).offset == number
                held.append(one.send("t", b"%d" % (number + 3), partition=1))
            assert not any(future.is_done for future in held)
            cluster.lead(0, [0, 1], partition=1)
            assert [future.get(WAIT).offset for future in held] == list(range(23))
        assert cluster.values(1, partition=1) == [b"%d" % number for number in range(23)]
        assert cluster.partition("t", 1).segments <= 4, "what has waited goes up together"


def test_closing_waits_for_what_is_held_back_and_so_does_flushing(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        for ending in ("flush", "close"):
            cluster.lead(0, [0])
            one = producer(cluster, retry_backoff_ms=20)
            future = one.send("t", ending.encode())
            with pytest.raises(KafkaTimeoutError):
                one.flush(0.05)
            waiting = threading.Thread(target=getattr(one, ending), args=(WAIT,))
            waiting.start()
            cluster.lead(0, [0, 1])
            waiting.join(WAIT)
            assert future.succeeded()
            one.close()
        assert cluster.values(1) == [b"flush", b"close"]


def test_closing_by_force_fails_what_is_held_back(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        one = producer(cluster)
        futures = [one.send("t", b"a"), one.send("t", b"b")]
        one.close(timeout=0.05)
        assert all(isinstance(future.exception, KafkaTimeoutError) for future in futures)


def test_what_waits_behind_records_that_are_too_late_goes_on_when_its_own_time_is_not_over(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        clock = cluster.coordinator.log.clock
        with producer(cluster, delivery_timeout_ms=300) as one:
            first = one.send("t", b"first")
            clock.sleep(0.2)
            second = one.send("t", b"second")
            with pytest.raises(NotEnoughReplicasError):
                first.get(WAIT)
            assert not second.is_done
            cluster.lead(0, [0, 1])
            assert second.get(WAIT).offset == 0
        assert cluster.values(1) == [b"second"]


# -- brokers that change between the file and its commit


def before_commit(cluster: Brokers, change: Callable[[], object]) -> None:
    """Once, when the first file of a producer is durable and its commit is not there yet."""
    done: list[bool] = []
    follower = cluster.stores[1]

    def step(number: int, call: Any) -> None:
        if call.operation == "close" and call.key.endswith((".log", ".index")) and not done:
            done.append(True)
            change()

    follower.before = step


def test_records_on_brokers_that_are_no_longer_in_sync_are_written_again(tmp_path: Path) -> None:
    with brokers(tmp_path, 3) as cluster:
        cluster.coordinator.create_topic("r", assignment=[[1]])
        before_commit(cluster, lambda: cluster.lead(2, [2], "r", replicas=[2]))
        with producer(cluster) as one:
            assert one.send("r", b"a").get(WAIT).offset == 0
        assert cluster.values(2, "r") == [b"a"]
        assert cluster.partition("r").log_end_offset == 1


def test_a_file_begun_before_the_fence_is_written_again_under_a_newer_name(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        fence = cluster.coordinator.state.version + 1  # the producer's id is a commit too

        before_commit(cluster, lambda: cluster.commit(FenceWriters(version=fence)))
        assert send(cluster, b"a") == [0]
        assert cluster.values(0) == cluster.values(1) == [b"a"]
        assert len(cluster.files(0)) == 4


def test_a_call_that_appends_writes_again_where_brokers_changed_and_leaves_no_file_behind(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        fence = cluster.coordinator.state.version
        before_commit(cluster, lambda: cluster.commit(FenceWriters(version=fence)))
        append_records(cluster.coordinator, "t", [Record(value=b"a")])
        assert cluster.values(0) == [b"a"]
        assert len(cluster.files(0)) == len(cluster.files(1)) == 2


# -- calls that append


def test_a_call_that_appends_does_as_acks_says(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        append_records(cluster.coordinator, "t", [Record(value=b"a")])
        assert cluster.values(0) == cluster.values(1) == [b"a"]
        append_records(cluster.coordinator, "t", [Record(value=b"b")], acks=1)
        assert cluster.partition().isr == (0,)
        with pytest.raises(NotEnoughReplicasError):
            append_records(cluster.coordinator, "t", [Record(value=b"c")])


def test_a_topic_created_by_a_call_has_the_clusters_replication_factor(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        cluster.coordinator.submit(
            partial(alter_configs, topic="", changes={"default.replication.factor": "2", "num.partitions": "3"})
        )
        append_records(cluster.coordinator, "new", [Record(value=b"%d" % n, partition=n) for n in range(3)])
        for number in range(3):
            assert sorted(cluster.partition("new", number).isr) == [0, 1]
            assert cluster.values(0, "new", number) == cluster.values(1, "new", number) == [b"%d" % number]


def test_a_topic_created_by_a_record_has_the_clusters_replication_factor(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, producer(cluster) as one:
        cluster.coordinator.submit(partial(alter_configs, topic="", changes={"default.replication.factor": "2"}))
        one.send("new", b"a").get(WAIT)
        assert cluster.values(0, "new") == cluster.values(1, "new") == [b"a"]


# -- transactions


def test_a_transaction_is_on_every_replica(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, producer(cluster, transactional_id="tx") as one:
        one.init_transactions()
        one.begin_transaction()
        one.send("t", b"a")
        one.flush()
        one.send("t", b"b")
        one.commit_transaction()
        assert cluster.values(0) == cluster.values(1) == [b"a", b"b"]


def test_a_transaction_goes_on_without_a_follower_that_fails_halfway(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, producer(cluster, transactional_id="tx") as one:
        one.init_transactions()
        one.begin_transaction()
        one.send("t", b"a")
        one.flush()
        down(cluster, 1)
        one.send("t", b"b")
        one.commit_transaction()
        assert (cluster.values(0), cluster.partition().isr) == ([b"a", b"b"], (0,))


def test_a_transaction_writes_again_what_a_follower_that_is_needed_did_not_get(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster, producer(cluster, transactional_id="tx") as one:
        one.init_transactions()
        one.begin_transaction()
        one.send("t", b"a")
        cluster.stores[1].reset_counts()
        cluster.stores[1].inject(Fault(0, UNAVAILABLE), Fault(3, UNAVAILABLE))
        one.flush()
        one.commit_transaction()
        assert cluster.values(0) == cluster.values(1) == [b"a"]
        assert (len(cluster.files(0)), cluster.partition().isr) == (2, (0, 1))


def test_a_transaction_whose_files_lost_their_brokers_is_aborted_and_done_again(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster, producer(cluster, transactional_id="tx") as one:
        one.init_transactions()
        one.begin_transaction()
        future = one.send("t", b"a")
        one.flush()
        cluster.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError):
            one.commit_transaction()
        assert isinstance(future.exception, NotEnoughReplicasError)
        with pytest.raises(InvalidTxnStateError):
            one.send("t", b"b")
        one.abort_transaction()
        assert cluster.files(0) == cluster.files(1) == []
        cluster.lead(0, [0, 1])
        one.begin_transaction()
        one.send("t", b"a")
        one.commit_transaction()
        assert cluster.values(0) == cluster.values(1) == [b"a"]


def test_a_transaction_that_is_too_old_for_the_fence_is_aborted(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster, producer(cluster, transactional_id="tx") as one:
        one.init_transactions()
        one.begin_transaction()
        one.send("t", b"a")
        one.flush()
        cluster.commit(FenceWriters(version=cluster.coordinator.state.version))
        with pytest.raises(StaleWriteError):
            one.commit_transaction()
        one.abort_transaction()


def test_writing_records_of_a_transaction_waits_for_replicas_at_most_max_block_ms(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as cluster:
        cluster.lead(0, [0])
        with producer(cluster, transactional_id="tx", max_block_ms=50) as one:
            one.init_transactions()
            one.begin_transaction()
            one.send("t", b"a")
            with pytest.raises(KafkaTimeoutError, match=r"min\.insync\.replicas"):
                one.flush()


# -- without a leader


def test_records_without_a_key_go_to_partitions_that_have_a_leader(tmp_path: Path) -> None:
    with brokers(tmp_path, factor=1, partitions=4) as cluster:
        for partition in (0, 2):
            cluster.lead(-1, [0], partition=partition)
        cluster.coordinator.refresh()
        with producer(cluster, batch_size=1) as one:
            for _ in range(40):
                assert one.send("t", b"x").get(WAIT).partition in (1, 3)


def test_a_partitioner_is_told_which_partitions_have_a_leader(tmp_path: Path) -> None:
    asked: list[list[int]] = []

    def partitioner(key: bytes | None, every: list[int], available: list[int]) -> int:
        asked.append(available)
        assert every == [0, 1, 2]
        return available[0]

    with brokers(tmp_path, factor=1, partitions=3) as cluster:
        cluster.lead(-1, [0], partition=0)
        cluster.coordinator.refresh()
        with producer(cluster, partitioner=partitioner) as one:
            assert one.send("t", b"x").get(WAIT).partition == 1
    assert asked == [[1, 2]]


def test_a_partition_without_a_leader_takes_records_once_it_has_one(tmp_path: Path) -> None:
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


def test_a_compacted_topic_refuses_records_without_a_key_before_they_are_taken(tmp_path: Path) -> None:
    for policy in ("compact", "compact,delete"):
        with brokers(tmp_path / policy, 1, cleanup_policy=policy) as cluster, producer(cluster) as one:
            with pytest.raises(InvalidRecordError, match="'t' is compacted"):
                one.send("t", b"a")
            for table in (
                pa.table({"value": [b"a"]}),
                pa.table({"key": pa.array([b"k", None], pa.binary()), "value": [b"a", b"b"]}),
            ):
                with pytest.raises(InvalidRecordError, match="'t' is compacted"):
                    one.send_batch("t", table)
            with pytest.raises(InvalidRecordError, match="'t' is compacted") as raised:
                append_records(cluster.coordinator, "t", [Record(key=b"k", value=b"a"), Record(value=b"b")])
            assert raised.value.index == 1
            assert cluster.files(0) == []
            one.send("t", b"a", key=b"k").get(WAIT)
            one.send("t", key=b"k").get(WAIT)
            one.send_batch("t", pa.table({"key": [b"k"], "value": [b"b"]})).get(WAIT)
            assert cluster.partition().log_end_offset == 3


def test_a_topic_that_is_compacted_from_now_on_refuses_from_now_on(tmp_path: Path) -> None:
    with brokers(tmp_path, 1) as cluster, producer(cluster) as one:
        one.send("t", b"a").get(WAIT)
        cluster.coordinator.submit(partial(alter_configs, topic="t", changes={"cleanup.policy": "compact"}))
        one.send("t", b"b", key=b"k").get(WAIT)
        with pytest.raises(InvalidRecordError):
            one.send("t", b"c")


def test_the_faults_of_these_tests_are_real(tmp_path: Path) -> None:
    with brokers(tmp_path) as cluster:
        down(cluster, 1)
        send(cluster, b"a")
        assert isinstance(cluster.stores[1], FaultyStore)
        assert Fault(0, ERROR) in cluster.stores[1].injected
