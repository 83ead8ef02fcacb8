"""A root is restored from a copy while a consumer knows positions in it, other clients go on, and the commits that the
consumer knows are removed. It continues from a checkpoint, and must not take its positions for those of other
records."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.fetcher import FetchedChunk
from sparklog.client.consumer.records import ConsumerGroupMetadata
from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener
from sparklog.client.reader import LogReader
from sparklog.client.scan.scan import scan
from sparklog.coordinator import open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    RootReplacedError,
    SparklogError,
    StorageUnavailableError,
    TransactionAbortedError,
    UnlinkedHistoryError,
)
from sparklog.log.commits import commit_log
from sparklog.protocol.decide.topics import create_partitions
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import until
from tests.cluster.client.test_fetcher import read_ahead
from tests.cluster.client.test_producer_restored_roots import cluster_with_topic, new_producer, pass_by, send
from tests.cluster.log.test_replaced_root import restore, take_snapshot

T0 = TopicPartition("t", 0)

OLD = [b"old0", b"old1", b"old2"]
NEW = [b"new%d" % number for number in range(6)]


class Restored:
    """A consumer that has read the base and the old records; ``restore`` replaces the old by the new ones."""

    def __init__(self, **config: Any) -> None:
        self.store, _ = cluster_with_topic()
        self.write(b"base0", b"base1")
        self.configure = config
        self.snapshot: dict[str, bytes] = {}
        self.coordinator = open_cluster(self.store)
        self.consumer = self.new_consumer()

    def new_consumer(self) -> Consumer:
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "metadata_max_age_ms": 1}
        return Consumer(cluster=self.coordinator, **{**settings, **self.configure})

    def write(self, *values: bytes) -> None:
        with new_producer(open_cluster(self.store)) as producer:
            send(producer, *values)

    def begin(self, subscribe: bool = False) -> None:
        """Read the base, commit it if there is a group, copy the root, and read the old records."""
        if subscribe:
            self.consumer.subscribe(["t"])
        else:
            self.consumer.assign([T0])
        assert self.read(2) == [b"base0", b"base1"]
        if self.configure.get("group_id"):
            self.consumer.commit()
        self.snapshot = take_snapshot(self.store)
        self.write(*OLD)
        assert self.read(3) == OLD

    def restore(self) -> None:
        """Replace the root while the consumer's process is suspended, so that its threads read nothing meanwhile."""
        log = self.coordinator.log
        with log.held:
            restore(self.store, self.snapshot)
            self.write(*NEW)
            pass_by(self.store)

    def read(self, count: int) -> list[bytes]:
        values: list[bytes] = []
        for _ in range(100):
            for records in self.consumer.poll(timeout_ms=100).values():
                values += [record.value for record in records if record.value is not None]
            if len(values) >= count:
                break
        return values

    def learn_of_loss(self, subscribe: bool = False) -> None:
        """A member of a group becomes another one, and its listener is told; any other consumer gets an error once."""
        if not subscribe:
            with pytest.raises(RootReplacedError, match=r"t-0 \(was at \d\); drop what was read since"):
                self.read(1)

    def committed(self) -> int:
        at = open_cluster(self.store).state.committed("g", *T0)
        assert at is not None
        return at.offset


@contextmanager
def restored(subscribe: bool = False, **config: Any) -> Iterator[Restored]:
    """Yield a consumer whose root was restored since it has read the old records."""
    scene = Restored(**config)
    try:
        scene.begin(subscribe)
        scene.restore()
        yield scene
    finally:
        scene.consumer.close(autocommit=False)


@pytest.mark.parametrize("subscribe", [False, True])
def test_a_member_of_a_group_reads_again_from_the_committed_offset(
    subscribe: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with restored(subscribe, group_id="g") as scene, caplog.at_level(logging.WARNING):
        scene.learn_of_loss(subscribe)
        assert scene.read(len(NEW)) == NEW
        assert scene.coordinator.log.unlinked_jumps == 1
        scene.consumer.commit()
        assert scene.committed() == 2 + len(NEW)
    assert len([record for record in caplog.records if "restored from a copy" in record.getMessage()]) == 1


@pytest.mark.parametrize("subscribe", [False, True])
def test_an_iteration_reads_again_from_the_committed_offset(subscribe: bool) -> None:
    with restored(subscribe, group_id="g") as scene:
        scene.learn_of_loss(subscribe)
        assert [next(scene.consumer).value for _ in NEW] == NEW


@pytest.mark.parametrize("subscribe", [False, True])
def test_a_consumer_without_a_group_raises_until_it_seeks(subscribe: bool) -> None:
    with restored(subscribe) as scene:
        scene.coordinator.refresh()  # as by the fetch thread
        with pytest.raises(RootReplacedError, match="seek"):
            scene.consumer.position(T0)
        for _ in range(3):
            with pytest.raises(RootReplacedError, match=r"t-0.*offsets 0 to 8; seek"):
                scene.read(1)
        scene.consumer.seek(T0, 3)
        assert scene.read(5) == NEW[1:]


@pytest.mark.parametrize("offset", [3, 5, 7])
@pytest.mark.parametrize("look_up", ["before", "in between", "after"])
def test_a_consumer_that_has_looked_up_offsets_raises_until_it_seeks_once(look_up: str, offset: int) -> None:
    """As to show its lag. No lookup of before makes the seek one to an offset of before."""
    scene = Restored()
    scene.begin()
    if look_up == "before":
        assert scene.consumer.end_offsets([T0]) == {T0: 5}
    scene.restore()
    if look_up == "in between":
        scene.coordinator.refresh()  # as by the fetch thread
        assert scene.consumer.end_offsets([T0]) == {T0: 8}
    with pytest.raises(RootReplacedError, match="seek"):
        scene.read(1)
    if look_up == "after":
        assert scene.consumer.end_offsets([T0]) == {T0: 8}
    scene.consumer.seek(T0, offset)
    assert scene.read(8 - offset) == NEW[offset - 2 :]
    scene.consumer.close(autocommit=False)


def test_a_topic_that_is_created_again_after_the_error_is_not_the_one_that_it_names() -> None:
    scene = Restored()
    scene.begin()
    scene.restore()
    with pytest.raises(RootReplacedError, match="offsets 0 to 8; seek"):
        scene.read(1)
    other = open_cluster(scene.store)
    delete_topic(other, "t")
    other.create_topic("t")
    scene.write(*NEW)
    assert scene.consumer.partitions_for_topic("t")  # reads the newest state
    scene.consumer.seek(T0, 3)
    assert scene.read(len(NEW)) == NEW
    scene.consumer.close(autocommit=False)


def test_a_partition_without_a_committed_offset_is_not_skipped() -> None:
    """A consumer of a group that keeps its offsets elsewhere, and begins at the end by default."""
    scene = Restored(group_id="g", auto_offset_reset="latest")
    scene.consumer.assign([T0])
    scene.consumer.seek_to_beginning(T0)
    assert scene.read(2) == [b"base0", b"base1"]
    scene.snapshot = take_snapshot(scene.store)
    scene.write(*OLD)
    assert scene.read(3) == OLD
    scene.restore()
    with pytest.raises(RootReplacedError, match="seek"):
        scene.read(1)
    scene.consumer.seek_to_beginning(T0)
    assert scene.read(2 + len(NEW)) == [b"base0", b"base1", *NEW]
    scene.consumer.close(autocommit=False)


@pytest.mark.parametrize("subscribe", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_no_position_of_before_is_committed(subscribe: bool, given: bool) -> None:
    with restored(subscribe, group_id="g") as scene:
        offsets = {T0: OffsetAndMetadata(5, "", -1)} if given else None
        with pytest.raises(CommitFailedError, match="restored from a copy"):
            scene.consumer.commit(offsets)
        outcomes: list[object] = []
        future = scene.consumer.commit_async(offsets, lambda _, outcome: outcomes.append(outcome))
        assert future.wait(30)
        scene.learn_of_loss(subscribe)
        assert scene.read(len(NEW)) == NEW
        assert [type(outcome) for outcome in outcomes] == [CommitFailedError]
        assert scene.committed() == 2


@pytest.mark.parametrize("how", ["scan", "reader"])
def test_what_was_planned_before_is_not_read_in_the_other_timeline(how: str) -> None:
    """Also where another client of the process has read the log since."""
    scene = Restored()
    scene.begin()
    planned = scan("t", cluster=scene.coordinator)
    state = scene.coordinator.state
    assert planned.to_arrow().num_rows == 5
    scene.restore()
    scene.coordinator.refresh()
    reader = LogReader(scene.coordinator)
    read = planned.to_arrow if how == "scan" else lambda: list(reader.records("t", 0, 0, 5, state))
    with pytest.raises(UnlinkedHistoryError, match="records of t were planned to be read before"):
        read()
    assert scan("t", cluster=scene.coordinator).to_arrow().num_rows == 2 + len(NEW)
    scene.consumer.close(autocommit=False)


@pytest.mark.parametrize("subscribe", [False, True])
def test_a_position_that_was_asked_for_is_no_leave_to_commit_offsets_of_before(subscribe: bool) -> None:
    """A program that shows its lag has not heard yet that what it has may be of another timeline."""
    with restored(subscribe, group_id="g") as scene, new_producer(scene.coordinator, transactional_id="x") as producer:
        scene.coordinator.refresh()  # as by the fetch thread
        for _ in range(2):
            with nullcontext() if subscribe else pytest.raises(RootReplacedError):
                assert scene.consumer.position(T0) == 2
        offsets = {T0: OffsetAndMetadata(5, "", -1)}
        with pytest.raises(CommitFailedError, match="restored from a copy"):
            scene.consumer.commit(offsets)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, scene.consumer.group_metadata())
        with pytest.raises(TransactionAbortedError, match="restored from a copy"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert scene.committed() == 2
        scene.learn_of_loss(subscribe)
        assert scene.read(len(NEW)) == NEW
        scene.consumer.commit()
        assert scene.committed() == 2 + len(NEW)


def test_a_commit_that_waits_is_decided_as_of_when_it_was_asked_for() -> None:
    scene = Restored(group_id="g")
    scene.begin()
    outcomes: list[object] = []
    with scene.coordinator.log.held:  # the commit waits here
        scene.consumer.commit_async(None, lambda _, outcome: outcomes.append(outcome))
        scene.restore()
    scene.learn_of_loss()
    assert scene.read(len(NEW)) == NEW
    assert [type(outcome) for outcome in outcomes] == [CommitFailedError]
    assert scene.committed() == 2
    scene.consumer.close(autocommit=False)


@pytest.mark.parametrize("subscribe", [False, True])
def test_close_and_automatic_commits_keep_no_position_of_before(subscribe: bool) -> None:
    with restored(subscribe, group_id="g", enable_auto_commit=True, auto_commit_interval_ms=3_600_000) as scene:
        scene.consumer.close()
        assert scene.committed() == 2


def test_a_transaction_does_not_commit_positions_of_before() -> None:
    with restored(group_id="g") as scene, new_producer(scene.coordinator, transactional_id="x") as producer:
        producer.init_transactions()  # reads the new history
        producer.begin_transaction()
        producer.send("t", b"out", partition=0)
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "", -1)}, scene.consumer.group_metadata())
        with pytest.raises(TransactionAbortedError, match="restored from a copy"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert scene.committed() == 2


def sent_from_elsewhere(metadata: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """The metadata of a consumer as another process gets it."""
    sent = pickle.loads(pickle.dumps(metadata))
    assert isinstance(sent, ConsumerGroupMetadata)
    assert (sent, sent.topic_ids) == (metadata, metadata.topic_ids)
    return sent


@pytest.mark.parametrize("read", ["consumer has read the restored root", "consumer has not read it yet"])
@pytest.mark.parametrize("sent", ["in one process", "before", "after"])
def test_a_transaction_of_another_coordinator_does_not_commit_positions_of_before(sent: str, read: str) -> None:
    """As with other storage options, or in another process."""
    scene = Restored(group_id="g")
    scene.begin(subscribe=True)
    before = sent_from_elsewhere(scene.consumer.group_metadata())
    scene.restore()
    if read == "consumer has read the restored root":
        scene.coordinator.refresh()
    cluster = open_cluster(scene.store)
    if sent != "in one process":
        cluster.reader = scene.coordinator.reader  # containers of one host name, in which each is process 1
    with new_producer(cluster, transactional_id="x") as producer, scene.coordinator.log.held:
        metadata = scene.consumer.group_metadata()
        if sent != "in one process":
            metadata = before if sent == "before" else sent_from_elsewhere(metadata)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"out", partition=0)
        with pytest.raises(TransactionAbortedError, match="were removed before"):
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "", -1)}, metadata)
        with pytest.raises(InvalidTxnStateError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert scene.committed() == 2
    scene.consumer.close(autocommit=False)


def test_a_transaction_does_not_commit_positions_of_a_root_that_was_replaced_at_once() -> None:
    """No commit was removed: another one has the place of what the consumer has read."""
    scene = Restored(group_id="g")
    scene.begin()
    metadata = sent_from_elsewhere(scene.consumer.group_metadata())
    with scene.coordinator.log.held:
        restore(scene.store, scene.snapshot)
        with new_producer(open_cluster(scene.store), transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            with pytest.raises(TransactionAbortedError, match="the log ends before it"):
                producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "", -1)}, metadata)
            producer.abort_transaction()
            scene.write(*NEW)
            producer.begin_transaction()
            with pytest.raises(TransactionAbortedError, match="that commit is another one now"):
                producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "", -1)}, metadata)
            producer.abort_transaction()
    assert scene.committed() == 2
    with pytest.raises(RootReplacedError):
        scene.read(1)
    scene.consumer.close(autocommit=False)


@pytest.mark.parametrize("is_sent", [False, True], ids=["in one process", "sent"])
def test_a_transaction_of_another_coordinator_commits_while_both_read_on(
    is_sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "DIGESTS_KEPT", 10)
    scene = Restored(group_id="g")
    scene.begin(subscribe=True)
    store = FaultyStore(scene.store)
    cluster = open_cluster(store)
    with new_producer(cluster, transactional_id="x") as producer:
        producer.init_transactions()
        metadata = scene.consumer.group_metadata()
        if is_sent:
            metadata = sent_from_elsewhere(metadata)
        for offset in (4, 5):
            producer.begin_transaction()
            store.reset_counts()
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(offset, "", -1)}, metadata)
            assert not store.calls, "what the consumer has read is known"
            producer.commit_transaction()
            assert scene.committed() == offset
            pass_by(scene.store, cluster, scene.coordinator)  # the same metadata is used for hours
    scene.consumer.close(autocommit=False)


def test_what_a_consumer_has_read_is_compared_again_after_the_producer_has_left_a_history() -> None:
    scene = Restored(group_id="g")
    scene.begin()
    cluster = open_cluster(scene.store)
    with new_producer(cluster, transactional_id="x") as producer:
        producer.init_transactions()
        metadata = sent_from_elsewhere(scene.consumer.group_metadata())
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(4, "", -1)}, metadata)
        producer.commit_transaction()
        with cluster.log.held:
            scene.restore()
        cluster.refresh()
        producer.begin_transaction()
        with pytest.raises(TransactionAbortedError, match="were removed before"):
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "", -1)}, metadata)
        producer.abort_transaction()
    assert scene.committed() == 2
    scene.consumer.close(autocommit=False)


def test_a_transaction_waits_for_a_storage_that_fails_while_the_history_is_looked_up() -> None:
    scene = Restored(group_id="g")
    scene.begin()
    store = FaultyStore(scene.store)
    with new_producer(open_cluster(store), transactional_id="x", max_block_ms=2000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        open_cluster(scene.store).create_topic("another")
        scene.coordinator.refresh()
        metadata = scene.consumer.group_metadata()

        def fail(step: int, call: Call) -> None:
            raise StorageUnavailableError("not now")

        store.before = fail
        with pytest.raises(KafkaTimeoutError, match="it had no effect"):
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "", -1)}, metadata)
        store.before = None
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5, "", -1)}, metadata)
        producer.commit_transaction()
    assert scene.committed() == 5
    scene.consumer.close(autocommit=False)


def test_a_seek_to_an_offset_of_before_is_dropped_and_one_that_was_looked_up_is_not() -> None:
    with restored(group_id="g") as scene:
        scene.coordinator.refresh()  # as by the fetch thread
        scene.consumer.seek(T0, 4)
        scene.learn_of_loss()
        assert scene.read(len(NEW)) == NEW
    with restored(group_id="g") as scene:
        scene.consumer.seek(T0, scene.consumer.end_offsets([T0])[T0] - 1)
        assert scene.read(1) == NEW[-1:]


def test_a_seek_back_to_a_record_of_before_is_no_seek_in_the_other_timeline() -> None:
    with restored(group_id="g", max_poll_records=1) as scene:
        scene.coordinator.refresh()
        assert scene.consumer.end_offsets([T0]) == {T0: 8}  # for its lag
        scene.consumer.seek(T0, 3)  # tried again
        scene.learn_of_loss()
        assert scene.read(len(NEW)) == NEW


def test_the_fetch_thread_reads_nothing_of_the_other_timeline_at_the_old_position() -> None:
    """It reads the log for the consumer, which is slow to notice."""
    scene = Restored()
    fetching = read_ahead(scene.coordinator, metadata_max_age_ms=1)
    scene.snapshot = take_snapshot(scene.store)
    scene.write(*OLD)
    scene.coordinator.refresh()
    fetching.read_from(T0, 5, timeline=0)
    fetching.start()
    scene.restore()
    until(lambda: scene.coordinator.log.unlinked_jumps == 1)
    fetching.wait(scene.coordinator.state, 0.5)
    assert fetching.take(None) == []
    fetching.read_from(T0, 5, timeline=1)
    chunks: list[FetchedChunk] = []
    until(lambda: chunks, lambda: chunks.extend(fetching.take(None)))
    assert chunks[0].batches.base_offset == 5
    fetching.close()
    scene.consumer.close(autocommit=False)


def test_a_read_that_was_suspended_does_not_continue_in_the_other_timeline() -> None:
    """As that of a scan. Its files are gone, and the range is looked up again."""
    scene = Restored()
    scene.snapshot = take_snapshot(scene.store)
    scene.write(*OLD)
    scene.coordinator.refresh()
    with LogReader(scene.coordinator) as reader:
        reading = reader.records("t", 0, 0, 5)
        assert next(reading).value == b"base0"
        scene.restore()
        assert next(reading).value == b"base1"
        with pytest.raises(UnlinkedHistoryError, match="t-0 from offset 2 on"):
            next(reading)
        assert [record.value for record in reader.records("t", 0, 0, 5)] == [b"base0", b"base1", *NEW[:3]]
    scene.consumer.close(autocommit=False)


class Lost(ConsumerRebalanceListener):
    """Notes which partitions were lost."""

    def __init__(self) -> None:
        self.partitions: list[set[TopicPartition]] = []

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        pass

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.partitions.append(lost)


@pytest.mark.parametrize("ask_first", [False, True])
def test_a_member_that_reads_again_is_another_one_and_its_listener_is_told(ask_first: bool) -> None:
    """A program that collects records of several polls has to drop them; what it has begun is fenced."""
    scene, lost = Restored(group_id="g"), Lost()
    scene.consumer.subscribe(["t"], listener=lost)
    assert scene.read(2) == [b"base0", b"base1"]
    scene.consumer.commit()
    scene.snapshot = take_snapshot(scene.store)
    scene.write(*OLD)
    assert scene.read(3) == OLD
    before = scene.consumer.group_metadata()
    scene.restore()
    if ask_first:
        scene.coordinator.refresh()
        assert scene.consumer.position(T0) == 2
    assert scene.read(len(NEW)) == NEW
    assert lost.partitions == [{T0}]
    after = scene.consumer.group_metadata()
    assert (after.member_id, after.generation_id) != (before.member_id, before.generation_id)
    with new_producer(scene.coordinator, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(5)}, before)
        with pytest.raises(SparklogError):
            producer.commit_transaction()
        producer.abort_transaction()
    scene.consumer.close(autocommit=False)


def test_no_position_goes_back_in_silence_where_another_one_has_to_be_sought() -> None:
    """Of two partitions one has nothing that the group could commit, as the empty ones of a topic."""
    scene = Restored(group_id="g")
    open_cluster(scene.store).submit(partial(create_partitions, topic="t", total=2))
    scene.consumer.subscribe(["t"])
    assert scene.read(2) == [b"base0", b"base1"]
    scene.consumer.commit({T0: OffsetAndMetadata(2)})
    scene.snapshot = take_snapshot(scene.store)
    scene.write(*OLD)
    assert scene.read(3) == OLD
    scene.restore()
    scene.learn_of_loss()
    with pytest.raises(RootReplacedError, match=r"t-1.*seek"):
        scene.read(1)
    scene.consumer.seek_to_beginning(TopicPartition("t", 1))
    assert scene.read(len(NEW)) == NEW
    scene.consumer.close(autocommit=False)


def test_a_static_member_that_was_replaced_while_it_was_suspended_is_fenced() -> None:
    """Also if the commits that tell so were removed before it could read them."""
    scene = Restored(group_id="g", group_instance_id="node-1")
    scene.begin(subscribe=True)
    with scene.coordinator.log.held:
        replacement = Consumer("t", cluster=open_cluster(scene.store), group_id="g", group_instance_id="node-1")
        until(lambda: replacement.poll(timeout_ms=100) is not None and replacement.assignment() == {T0})
        pass_by(scene.store)
    with pytest.raises(FencedInstanceIdError):
        scene.read(1)
    replacement.poll(timeout_ms=100)
    assert replacement.assignment() == {T0}
    replacement.close()
    scene.consumer.close(autocommit=False)
