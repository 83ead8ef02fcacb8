"""The producer: kafka-python's KafkaProducer over a log on shared storage.

    with Producer(bootstrap_servers="/data/log", linger_ms=5) as producer:
        future = producer.send("orders", b"value", key=b"key")
        future.get(timeout=10).offset

Records gather in memory and go up with one commit for all topics and partitions; a future resolves when its commit is
durable. See docs/clients.md for what differs from Kafka.

Rules: thread-safe. ``send`` is the hot path: what can be found out once per topic or per batch is not done for each
record. A producer belongs to the process that made it; in a forked child every call raises.

Not for: how records are batched (``accumulator``), written and retried (``sender``), or made a transaction
(``transactions``).
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from sparklog import limits
from sparklog.client.config import shown_config
from sparklog.client.deadlines import within
from sparklog.client.metrics import metric_settings
from sparklog.client.producer.cluster_metadata import ClusterMetadata
from sparklog.client.producer.config import DEFAULT_CONFIG, producer_config
from sparklog.client.producer.futures import FutureOffsets, FutureRecordMetadata, RecordBatchResult, longest_wait
from sparklog.client.producer.metrics import ProducerMetrics
from sparklog.client.producer.partitioners import ChoosePartition
from sparklog.client.producer.record_accumulator import RECORD_OVERHEAD_BYTES, Accumulator, Headers, PartitionQueue
from sparklog.client.producer.record_checks import (
    RawHeaders,
    as_bytes,
    check_request_size,
    check_timestamp,
    checked_headers,
    neither_key_nor_value,
    no_key,
    refusal_by_topic,
)
from sparklog.client.producer.sender import Sender
from sparklog.client.producer.table_batches import checked_table, pieces
from sparklog.client.producer.topic_metadata import TopicMetadata, Topics
from sparklog.client.producer.transactions import Transactions
from sparklog.client.representation import Facts, Shown
from sparklog.client.user_code import add_note
from sparklog.clock import SystemClock
from sparklog.errors import (
    IllegalStateError,
    InvalidArgumentError,
    KafkaError,
    KafkaTimeoutError,
    SparklogError,
    UnknownTopicOrPartitionError,
    UnknownTopicTimeoutError,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

    from sparklog.client.arguments import ProducerArguments

logger = logging.getLogger(__name__)

DROP_TIMEOUT_SECONDS = 1.0
"""How long dropping the last reference to a producer waits for its records, as in kafka-python. What takes longer is
still sent: its thread ends when it has."""

EXIT_TIMEOUT_SECONDS = 10.0
"""How long the end of the interpreter waits for the records of all producers that nobody closed. kafka-python waits a
second for each; a commit to an object store may take longer."""

LONGEST_TOPIC_PAUSE_SECONDS = 1.0
"""Between two looks for a topic that does not exist yet."""

_open_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
_dropped: dict[threading.Thread, Accumulator] = {}
"""The threads of producers that are gone, and what they still send."""


class Producer(Shown):
    """Sends records to a cluster. Thread-safe; one per process does, and several are no harm.

    Arguments have kafka-python's names and defaults; unknown ones raise InvalidClientConfigurationError.
    ``bootstrap_servers`` is the cluster's root, a folder or an address (default: SPARKLOG_BOOTSTRAP_SERVER);
    ``storage_options`` go to its storage's client. ``config`` has all of them, those that were not given by default.

        >>> with sparklog.Producer(bootstrap_servers=root, acks="all") as producer:
        ...     future = producer.send("orders", key=b"k", value=b"v")
        >>> future.get().offset
        0
    """

    DEFAULT_CONFIG: ClassVar[Mapping[str, Any]] = DEFAULT_CONFIG

    def __init__(self, **configs: Unpack[ProducerArguments]) -> None:
        config, coordinator = producer_config(configs)
        self.config = shown_config(DEFAULT_CONFIG, configs, coordinator)
        self.config.update(acks=config.acks, enable_idempotence=config.idempotent)
        self._config = config
        self._coordinator = coordinator
        self._client_id = configs.get("client_id")
        clock = coordinator.log.clock
        self._now_ms = clock.now_ms
        self._jitter = coordinator.log.ids.jitter
        self._accumulator = Accumulator(config, clock)
        self._topics = Topics(coordinator, config, self._accumulator)
        self._known = self._topics.known
        self._metadata = ClusterMetadata(coordinator)  # instrumentations look for the name, too
        settings, name = metric_settings("Producer", configs), str(self._client_id or "sparklog")
        self._metrics = ProducerMetrics(clock, self._accumulator, config.buffer_memory, settings, name)
        self._sender = Sender(coordinator, config, self._accumulator, self._topics, self._metrics)
        self._transactions: Transactions | None = None
        if config.transactional_id:
            self._transactions = Transactions(coordinator, config, self._accumulator, self._topics, self._metrics)
        self._serializes = config.serialize_key is not None or config.serialize_value is not None
        self._lock = threading.Lock()
        self._closed = False
        self._forked = False
        self._started = False
        _open_producers.add(self)
        atexit.unregister(_close_all_at_exit)
        atexit.register(_close_all_at_exit)  # before what was imported earlier ends, such as a storage's client

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._drop()

    def _facts(self) -> Facts:
        return {
            "root": self._coordinator.store.root,
            "client_id": self._client_id,
            "transactional_id": self._config.transactional_id or None,
            "state": "closed" if self._closed else None,
        }

    # -- sending

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: RawHeaders | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Send a record, and return its future at once. ``timestamp_ms`` is milliseconds since the epoch, default now.

            >>> future = producer.send("orders", b"value", key=b"k", headers=[("trace", b"1")])

        Raises:
            IllegalStateError: the producer is closed.
            InvalidTxnStateError: it is transactional, and no transaction has begun or the one that has is over.
            SerializationError: a key, value or header is not bytes. What a serializer raises comes out as it is.
            InvalidRecordError: neither key nor value, no key on a compacted topic, or a bad timestamp.
            UnknownTopicTimeoutError: no such topic within ``max_block_ms``, and it is not to be created.
            InvalidPartitionError: the topic has no such partition.
            InvalidTopicError: a name that no topic can have.
            MessageSizeTooLargeError: over ``max_request_size``; over ``max.message.bytes`` the future fails.
            KafkaTimeoutError: no memory was free within ``max_block_ms``.
            StorageError: the storage did not say what the topic is.
        """
        accumulator = self._accumulator
        if accumulator.refusal is not None:
            raise accumulator.refusal()
        given_key, given_value = key, value
        if self._serializes:
            headers = headers if isinstance(headers, list) else list(headers or ())
            key, value = self._serialize(topic, headers, key, value)
        found = self._known.get(topic)
        if found is None:
            found = self._find(topic)
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            if value.__class__ is not bytes:
                value = as_bytes("value", value, topic)
            size += len(value)
        if key is not None:
            if key.__class__ is not bytes:
                key = as_bytes("key", key, topic)
            size += len(key)
        elif value is None or found.needs_key:
            raise neither_key_nor_value(topic) if value is None else no_key(topic)
        stored: Headers | None = None
        if headers:
            stored, more = checked_headers(headers, topic)
            size += more
        refusal = None
        if size > found.max_counted_bytes:
            check_request_size(size - RECORD_OVERHEAD_BYTES, found)
            refusal = refusal_by_topic(size - RECORD_OVERHEAD_BYTES, key, value, stored, found)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        else:
            check_timestamp(timestamp_ms, found, self._now_ms())
        if partition is not None:
            queue = found.queue_of_partition(partition)
        elif self._config.choose_partition is not None:
            queue = self._ask(self._config.choose_partition, found, given_key, key, given_value, value)
        elif key is not None:
            queue = found.queue_of_key(key)
        else:
            found.sticky_left -= size
            queue = found.current_sticky() or self._next_sticky(found, size)
        if refusal is not None:
            return self._failed(queue, refusal)
        return accumulator.append(queue, value, key, stored, timestamp_ms, size)

    def _failed(self, queue: PartitionQueue, error: KafkaError) -> FutureRecordMetadata:
        """The future of a record that its topic does not take. A transaction that it is part of can only be aborted."""
        if self._transactions is not None:
            self._transactions.lose_record(error)
        outcome = RecordBatchResult(self._accumulator.changed, queue.place)
        outcome.error, outcome.done = error, True
        return FutureRecordMetadata(outcome, 0)

    def send_batch(self, topic: str, table: pa.Table | pa.RecordBatch, partition: int | None = None) -> FutureOffsets:
        """Send a table's rows as records; the future resolves to the offsets they got, when all are committed.

        Columns are ``key``, ``value`` (bytes or text), ``timestamp`` (of any unit; now where it is null), ``headers``
        (a list of structs of key and value) and ``partition``; all may be missing but one of key and value. Serializers
        and a partitioner of the producer's own are not asked. A table larger than ``buffer_memory`` goes up with
        several commits, unless it is part of a transaction.

        Raises as ``send``, before any row is taken; KafkaTimeoutError also after some were, whose number is ``rows``.

            >>> import pyarrow
            >>> table = pyarrow.table({"key": ["ada", "bob"], "value": ["1", "2"]})
            >>> _ = producer.send_batch("orders", table).get(timeout=10)
        """
        if self._accumulator.refusal is not None:
            raise self._accumulator.refusal()
        found = self._known.get(topic) or self._find(topic)
        batches = checked_table(table, found, partition, self._now_ms())
        future = FutureOffsets(self._accumulator.changed)
        at_once = max(min(limits.TARGET_BATCH_BYTES * len(found.queues), self._config.buffer_memory // 4), 1)
        rows = 0
        for piece in pieces(batches, found, at_once):
            try:
                part = self._accumulator.append_columns(found.queues[piece.partition], piece.columns, piece.size)
            except KafkaTimeoutError as error:
                raise KafkaTimeoutError(
                    f"{error.message} The first {rows:,} rows of the table are on their way.", rows=rows
                ) from error
            future.add_part(part, piece.columns.num_rows)
            rows += piece.columns.num_rows
        return future.watch()

    def _serialize(self, topic: str, headers: list[tuple[str, Any]], key: Any, value: Any) -> tuple[Any, Any]:
        config, what = self._config, "key"
        try:
            if config.serialize_key is not None:
                key = config.serialize_key(topic, headers, key)
            what = "value"
            if config.serialize_value is not None:
                value = config.serialize_value(topic, headers, value)
        except Exception as error:
            add_note(error, f"the {what}_serializer failed for a record of topic {topic!r}, which is not sent")
            raise
        return key, value

    def _find(self, topic: object) -> TopicMetadata:
        """A topic, once there is one: somebody may be about to create it."""
        self._start()
        clock = self._coordinator.log.clock
        deadline = clock.monotonic() + self._config.max_block
        pause, waiting = self._config.retry_backoff, False
        while True:
            left = max(deadline - clock.monotonic(), 0)
            try:
                return self._find_within(left, topic)
            except UnknownTopicOrPartitionError as error:
                if clock.monotonic() >= deadline:
                    raise UnknownTopicTimeoutError(
                        f"{error.message}. Waited {self._config.max_block:g} s for it, which is max_block_ms",
                        topic=topic,
                    ) from error
                if not waiting:
                    waiting = True
                    logger.warning("%s waits for at most %g s: %s", self, left, error)
            clock.sleep(min(pause, max(deadline - clock.monotonic(), 0)))
            pause = min(pause * 2, LONGEST_TOPIC_PAUSE_SECONDS)
            if self._accumulator.refusal is not None:
                raise self._accumulator.refusal()

    def _find_within(self, seconds: float, topic: object) -> TopicMetadata:
        with self._metrics.requests.at_root():
            found = within(seconds, lambda: self._topics.find(topic), f"looking for topic {topic!r}")
        self._metrics.metadata_read()
        return found

    def _checked(self, topic: str) -> TopicMetadata | None:
        """What is known of a topic; the storage is asked where that is old."""
        if not self._topics.is_old(topic):
            return self._topics.check(topic)
        return within(self._config.max_block, lambda: self._topics.check(topic), f"looking for topic {topic!r}")

    def _next_sticky(self, found: TopicMetadata, size: int) -> PartitionQueue:
        checked = self._checked(found.name) or found
        return checked.next_sticky(self._jitter(), self._config.batch_size - size)

    def _ask(
        self, choose: ChoosePartition, found: TopicMetadata, key: Any, key_bytes: Any, value: Any, value_bytes: Any
    ) -> PartitionQueue:
        """What the partitioner chooses; asked twice where a record without a key begins a batch and it rotates then."""
        found, cluster = self._checked(found.name) or found, self._metadata
        queue = found.queue_of_partition(choose(found.name, key, key_bytes, value, value_bytes, cluster))
        if self._config.rotate_partition is not None and key_bytes is None and queue.open is None:
            self._config.rotate_partition(found.name, cluster, queue.place.partition)
            queue = found.queue_of_partition(choose(found.name, key, key_bytes, value, value_bytes, cluster))
        return queue

    def _start(self) -> None:
        with self._lock:
            if not self._started and not self._closed and self._transactions is None:
                self._started = True
                self._sender.start()

    # -- waiting

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent before is committed or has failed. In a transaction: until they are in files,
        which nobody sees before the commit.

        Raises KafkaTimeoutError after ``timeout`` seconds, IllegalStateError from a callback, which would wait for
        itself.
        """
        self._refuse_after_fork()
        if threading.current_thread() is self._sender.thread:
            raise IllegalStateError("flush() in a callback would wait for the thread that runs the callback")
        if self._transactions is not None:
            return within(timeout, self._transactions.write, "flush() in a transaction")
        return self._accumulator.flush(timeout)

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Send what is there, at most for ``timeout`` seconds (default: until it is sent or has failed), and end.

        What is not committed by then fails. Closing twice is fine. Raises InvalidArgumentError.
        """
        if timeout is not None and timeout < 0:
            raise InvalidArgumentError(f"close(timeout={timeout}): give seconds from 0, or None")
        with self._lock:
            if self._closed:
                return
            self._closed = True
        _open_producers.discard(self)
        self._accumulator.close(_closed)
        thread = self._sender.thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(longest_wait(timeout))
        left = self._accumulator.force_close()
        if self._transactions is not None:
            transactions, reason = self._transactions, _not_sent(timeout)
            try:
                within(timeout, lambda: transactions.close(reason), "deleting the files of a transaction")
            except KafkaTimeoutError as error:
                logger.warning("%s was closed; files that nobody sees are left for a vacuum: %s", self, error)
            left = []
        if left:
            logger.warning("%s was closed with %d batches of records that are not committed", self, len(left))
            self._accumulator.resolve(left, _not_sent(timeout))
        self._metrics.close()
        self._close_serializers()

    def _drop(self) -> None:
        """Nobody has this producer any more: its thread sends what is there, and ends. An open transaction is aborted.

        Runs wherever the garbage collector does, so in any thread and maybe within a call of another client.
        """
        self._closed = True
        self._accumulator.close(_closed)
        thread = self._sender.thread
        if self._transactions is not None:
            self._transactions.close(_not_sent(0))
        elif thread is not None:
            for ended in [one for one in list(_dropped) if not one.is_alive()]:
                _dropped.pop(ended, None)
            _dropped[thread] = self._accumulator
            if thread is not threading.current_thread():
                thread.join(DROP_TIMEOUT_SECONDS)
        self._close_serializers()

    def _close_serializers(self) -> None:
        for one in (self._config.close_key, self._config.close_value):
            if one is not None:
                one()

    # -- transactions

    def init_transactions(self) -> None:
        """Take over the transactional id, before anything else: older instances with it are fenced.

        Raises IllegalStateError without a ``transactional_id``, KafkaTimeoutError after ``max_block_ms``,
        InvalidTransactionTimeoutError where ``transaction_timeout_ms`` is over the cluster's limit.
        """
        self._transactional().init()

    def begin_transaction(self) -> None:
        """Begin a transaction: what is sent from now on is part of it. Raises InvalidTxnStateError."""
        self._transactional().begin()

    def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_metadata: Any) -> None:
        """Commit these offsets of a group with the transaction, or not at all.

        ``offsets`` are ``{TopicPartition: OffsetAndMetadata}``, the next to read; ``group_metadata`` is what
        ``consumer.group_metadata()`` gives, which lets the commit refuse a member that was replaced, or a group id.

        Raises InvalidTxnStateError, InvalidArgumentTypeError.
        """
        self._transactional().add_offsets(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Make all of the transaction visible with one commit, and resolve its futures.

        Raises ProducerFencedError where a newer instance has taken over; KafkaTimeoutError where the storage has not
        answered for ``max_block_ms``: call it again. After any other error, ``abort_transaction()`` and begin anew:
        TransactionAbortedError after ``transaction_timeout_ms``, IllegalGenerationError and its like where the group
        whose offsets it commits has gone on without this member.

            >>> with sparklog.Producer(bootstrap_servers=root, transactional_id="payments") as producer:
            ...     producer.init_transactions()
            ...     producer.begin_transaction()
            ...     future = producer.send("orders", b"v")
            ...     producer.commit_transaction()
            >>> future.get().offset
            0
        """
        self._transactional().commit()

    def abort_transaction(self) -> None:
        """Drop the transaction; its futures fail with TransactionAbortedError.

        After a commit_transaction() without an answer this finds out what became of it. Raises InvalidTxnStateError
        where it is committed: its futures have their offsets then, and the next transaction may begin. Raises
        KafkaTimeoutError or IndeterminateCommitError while the storage does not tell: call it again.
        """
        self._transactional().abort()

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise IllegalStateError("the producer has no transactional_id, so it has no transactions; give it one")
        if self._closed:
            raise self._accumulator.refusal() if self._accumulator.refusal else _closed()
        return self._transactions

    # -- the cluster

    @classmethod
    def max_usable_produce_magic(cls, api_version: object) -> int:
        """Kafka's number of the format of records with headers, which instrumentations ask for: always 2."""
        return 2

    def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic, which is created as ``send`` would. Raises as ``send`` does for topics."""
        self._refuse_after_fork()
        return set(range(len((self._checked(topic) or self._find(topic)).queues)))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster can be read now."""
        self._refuse_after_fork()
        try:
            self._coordinator.refresh()
        except SparklogError:
            return False
        return True

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """What the producer measures: values by group and name, as in kafka-python; see docs/clients.md.

            producer.metrics()["producer-metrics"]["record-send-rate"]

        With ``raw`` objects by ``MetricName``, whose ``value()`` is the value at that time. Empty with
        ``metrics_enabled=False``. Asks no storage.
        """
        self._refuse_after_fork()
        return self._metrics.raw() if raw else self._metrics.values()

    def _refuse_after_fork(self) -> None:
        if self._forked:
            raise _of_another_process()


def _closed() -> Exception:
    return IllegalStateError("the producer is closed; make another one")


def _of_another_process() -> Exception:
    return IllegalStateError("the producer belongs to the process that made it; make one after the fork")


def _not_sent(timeout: float | None) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"the producer was closed before these records were committed (timeout {timeout} seconds): what was under way "
        "may be in the log all the same; call flush() before close()"
    )


def _close_all_at_exit() -> None:
    """All at the same time, so that the end of a process takes ``EXIT_TIMEOUT_SECONDS`` at most."""
    clock = SystemClock()
    deadline = clock.monotonic() + EXIT_TIMEOUT_SECONDS
    producers = list(_open_producers)
    for producer in producers:
        producer._accumulator.close(_closed)
    for producer in producers:
        producer.close(max(deadline - clock.monotonic(), 0))
    for thread, accumulator in list(_dropped.items()):
        thread.join(max(deadline - clock.monotonic(), 0))
        if thread.is_alive() and accumulator.unfinished:
            logger.warning(
                "the interpreter ends with %d batches of records that are not committed, of a producer that was "
                "dropped without close()",
                len(accumulator.unfinished),
            )


def _abandon_in_child() -> None:
    """In a forked child: the threads are not here, and what the parent has taken is the parent's to send."""
    for producer in list(_open_producers):
        producer._lock = threading.Lock()
        producer._closed = producer._forked = True
        producer._accumulator.abandon_after_fork(_of_another_process)
    for accumulator in _dropped.values():
        accumulator.abandon_after_fork(_of_another_process)
    _open_producers.clear()
    _dropped.clear()


os.register_at_fork(after_in_child=_abandon_in_child)
