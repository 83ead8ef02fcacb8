"""The roles of the processes of a soak run. Each runs until SIGTERM, and uses the clients only."""

from __future__ import annotations

from typing import Any

from sparklog.client.producer.producer import Producer
from sparklog.errors import IndeterminateCommitError, KafkaTimeoutError, ProducerFencedError, SparklogError
from sparklog.testing.history import INIT_PRODUCER, SEND, TRANSACTION, Pending, Position, Write
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.soak.consumers import RecordedConsumer
from tests.soak.worker import AUDIT, COPIERS, IN, KEYS, LATEST, OUT, READERS, SHORT, TOPICS, Worker

MAX_BLOCK_MS = 20_000
PRODUCED = (IN, IN, IN, SHORT, LATEST)
"""The topics of plain producers, chosen at random."""


# -- producers


def produce(worker: Worker) -> None:
    """Send batches of records with the default settings: idempotent, with retries."""
    producer = Producer(cluster=worker.open(), linger_ms=5)
    while worker.going:
        for _ in range(worker.random.randint(1, 20)):
            send(worker, producer, worker.random.choice(PRODUCED))
        worker.pause(0.5)
    producer.close(timeout=20)


def send(worker: Worker, producer: Producer, topic: str) -> None:
    value, partition = worker.value(), worker.random.randrange(TOPICS[topic])
    key = f"k{worker.random.randrange(KEYS)}" if topic == LATEST else ""
    write = Write(topic, partition, value.decode(), key=key)
    pending = worker.log.invoke(SEND, writes=[write])
    try:
        future = producer.send(topic, value, key=key.encode() or None, partition=partition)
    except SparklogError as error:
        pending.info(error)
        return
    future.add_callback(lambda metadata: pending.ok(writes=[write._replace(offset=metadata.offset)]))
    future.add_errback(pending.info)


class Transactional:
    """A transactional producer that records its operations, and starts over if a newer instance has taken over."""

    def __init__(self, worker: Worker, transactional_id: str) -> None:
        self.worker = worker
        self.transactional_id = transactional_id
        self.producer = self._start()

    def _start(self) -> Producer:
        producer = Producer(
            cluster=self.worker.open(), transactional_id=self.transactional_id, max_block_ms=MAX_BLOCK_MS
        )
        pending = self.worker.log.invoke(INIT_PRODUCER, transactional_id=self.transactional_id)
        while True:
            try:
                producer.init_transactions()
            except KafkaTimeoutError:
                continue
            pending.ok()
            return producer

    def begin(self, **facts: Any) -> Transaction:
        pending = self.worker.log.invoke(TRANSACTION, transactional_id=self.transactional_id, **facts)
        self.producer.begin_transaction()
        return Transaction(self, pending)

    def restart(self) -> None:
        self.producer.close(timeout=0)
        self.producer = self._start()

    def close(self) -> None:
        self.producer.close(timeout=20)


class Transaction:
    """One recorded transaction. ``commit`` returns whether it is committed; it has ended in either case."""

    def __init__(self, of: Transactional, pending: Pending) -> None:
        self.of = of
        self.pending = pending
        self.sent: list[tuple[Write, Any]] = []

    def send(self, topic: str, partition: int, value: bytes) -> None:
        write = Write(topic, partition, value.decode())
        self.pending.note(writes=[write])
        self.sent.append((write, self.of.producer.send(topic, value, partition=partition)))

    def commit(self) -> bool:
        self.pending.committing()
        while True:
            try:
                self.of.producer.commit_transaction()
            except KafkaTimeoutError:
                continue  # retry the same commit
            except (ProducerFencedError, IndeterminateCommitError) as error:
                self.pending.info(error)  # an earlier attempt may have succeeded
                self.of.restart()
                return False
            except SparklogError as error:
                self.pending.fail(error)
                self.of.producer.abort_transaction()
                return False
            self.pending.ok(writes=[write._replace(offset=future.get(timeout=0).offset) for write, future in self.sent])
            return True

    def abort(self, reason: object = "aborted") -> None:
        self.of.producer.abort_transaction()
        self.pending.fail(reason)


def transact(worker: Worker) -> None:
    """Run transactions over several topics. The name without its number is the transactional id, which may be
    shared."""
    producer = Transactional(worker, worker.name.rsplit("-", 1)[0])
    while worker.going:
        transaction = producer.begin()
        try:
            for topic in (IN, AUDIT, IN):
                transaction.send(topic, worker.random.randrange(TOPICS[topic]), worker.value())
            if worker.random.random() < 0.2:
                worker.pause(1.0)
        except SparklogError as error:
            transaction.abort(error)
            continue
        if worker.random.random() < 0.2:
            transaction.abort()
        else:
            transaction.commit()
        worker.pause(0.4)
    producer.close()


# -- consumers


def consume(worker: Worker) -> None:
    """A member that commits the offsets of what it has read; the second one is a static member."""
    instance = worker.name if worker.name.endswith("-2") else ""
    with RecordedConsumer(worker, READERS, instance) as consumer:
        while worker.going:
            consumer.poll()
            if worker.random.random() < 0.5:
                consumer.commit()
            worker.pause(0.2)


def copy(worker: Worker) -> None:
    """Consume, transform, produce: copies each record of "in" to "out" exactly once."""
    producer = Transactional(worker, worker.name)
    with RecordedConsumer(worker, COPIERS) as consumer:
        while worker.going:
            records = consumer.poll()
            if records and not copy_batch(worker, producer, consumer, records):
                consumer.rewind()
            worker.pause(0.2)
    producer.close()


def copy_batch(worker: Worker, producer: Transactional, consumer: RecordedConsumer, records: list[Any]) -> bool:
    """Copy the records; return whether copies and offsets are committed."""
    ends: dict[TopicPartition, int] = {}
    for record in records:
        ends[TopicPartition(record.topic, record.partition)] = record.offset + 1
    metadata = consumer.client.group_metadata()
    transaction = producer.begin(
        group=COPIERS,
        member=metadata.member_id,
        generation=metadata.generation_id,
        offsets=[Position(*partition, offset) for partition, offset in ends.items()],
    )
    try:
        for record in records:
            value = b"%s|%s" % (record.value, worker.value())
            transaction.send(OUT, worker.random.randrange(TOPICS[OUT]), value)
        offsets = {partition: OffsetAndMetadata(offset) for partition, offset in ends.items()}
        producer.producer.send_offsets_to_transaction(offsets, metadata)
    except SparklogError as error:
        transaction.abort(error)
        return False
    if worker.random.random() < 0.05:
        transaction.abort()
        return False
    return transaction.commit()
