"""The producer: kafka-python's KafkaProducer over a log on shared storage.

    with Producer(bootstrap_servers="/data/log", linger_ms=5) as producer:
        future = producer.send("orders", b"value", key=b"key")
        future.get(timeout=10).offset

Records are collected in memory and published in one commit for all topics and partitions; a future resolves when its
commit is durable. See docs/clients.md for the differences from Kafka.

Rules: thread-safe. ``send`` is the hot path: work that can be done once per topic or per batch is not done for each
record. A producer belongs to the process that created it; in a forked child every call raises.

Not for: how records are batched (``record_accumulator``), written and retried (``sender``), or made a transaction
(``transactions``).
"""

from __future__ import annotations

import atexit
import logging
import operator
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from sparklog import limits
from sparklog.client.config import build_shown_config
from sparklog.client.deadlines import call_within
from sparklog.client.metrics.metrics import metric_settings
from sparklog.client.producer.cluster_metadata import ClusterMetadata
from sparklog.client.producer.config import DEFAULT_CONFIG, producer_config
from sparklog.client.producer.custom_partitioners import ChoosePartition
from sparklog.client.producer.futures import FutureOffsets, FutureRecordMetadata, RecordBatchResult, as_timeout
from sparklog.client.producer.metrics import ProducerMetrics
from sparklog.client.producer.record_accumulator import RECORD_OVERHEAD_BYTES, Accumulator, PartitionQueue
from sparklog.client.producer.sender import Sender
from sparklog.client.producer.table_batches import check_memory, check_table, split_table
from sparklog.client.producer.topic_routing import TopicMetadata, Topics
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
from sparklog.records.record_checks import (
    Headers,
    RawHeaders,
    as_bytes,
    check_headers,
    check_request_size,
    check_schema,
    check_timestamp,
    neither_key_nor_value,
    no_key,
    topic_limit_error,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

    from sparklog.client.arguments import ProducerArguments

logger = logging.getLogger(__name__)

DROP_TIMEOUT_SECONDS = 1.0
"""How long dropping the last reference to a producer waits for its records, as in kafka-python. Its thread sends the
rest in the background, then ends."""

EXIT_TIMEOUT_SECONDS = 10.0
"""How long the end of the interpreter waits for the records of all producers that were not closed. kafka-python waits a
second for each; a commit to an object store may take longer."""

LONGEST_TOPIC_PAUSE_SECONDS = 1.0
"""The longest back-off between two lookups of a topic that does not exist yet."""

Found = TypeVar("Found")

_open_producers: weakref.WeakSet[Producer] = weakref.WeakSet()
_dropped: dict[threading.Thread, Accumulator] = {}
"""The threads of producers that were garbage-collected, and the accumulators they still drain."""


class Producer(Shown):
    """Sends records to a cluster. Thread-safe; one per process is enough, several do no harm.

    Arguments have kafka-python's names and defaults; unknown ones raise InvalidClientConfigurationError.
    ``bootstrap_servers`` is the cluster's root, a folder or URL (default: SPARKLOG_BOOTSTRAP_SERVER);
    ``storage_options`` are passed to the storage's client. ``config`` has all arguments, with defaults for those not
    given.

        >>> with sparklog.Producer(bootstrap_servers=root, acks="all") as producer:
        ...     future = producer.send("orders", key=b"k", value=b"v")
        >>> future.get().offset
        0
    """

    DEFAULT_CONFIG: ClassVar[Mapping[str, Any]] = DEFAULT_CONFIG

    def __init__(self, **configs: Unpack[ProducerArguments]) -> None:
        config, coordinator = producer_config(configs)
        self.config = build_shown_config(DEFAULT_CONFIG, configs, coordinator)
        self.config.update(acks=config.acks, enable_idempotence=config.idempotent)
        self._config = config
        self._coordinator = coordinator
        self._client_id = configs.get("client_id")
        clock = coordinator.log.clock
        self._now_ms = clock.now_ms
        self._jitter = coordinator.log.ids.jitter
        self._accumulator = Accumulator(config, clock)
        self._topics = Topics(coordinator, config, self._accumulator)
        self._topic_cache = self._topics.cache
        self._metadata = ClusterMetadata(coordinator)  # instrumentations read this name
        settings, name = metric_settings("Producer", configs), str(self._client_id or "sparklog")
        self._metrics = ProducerMetrics(clock, self._accumulator, config.buffer_memory, settings, name)
        self._sender = Sender(coordinator, config, self._accumulator, self._topics, self._metrics)
        self._transactions: Transactions | None = None
        if config.transactional_id:
            self._transactions = Transactions(coordinator, config, self._accumulator, self._topics, self._metrics)
        self._serializes = config.serialize_key is not None or config.serialize_value is not None
        self._closed = False
        self._closed_whole = False  # a close that was interrupted has to be finished
        self._forked = False
        _open_producers.add(self)
        atexit.unregister(_close_all_at_exit)
        atexit.register(_close_all_at_exit)  # handlers run in reverse order: before those of storage clients

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> NoReturn:
        raise TypeError("a Producer cannot be copied, since its copy would close it: create another one")

    def __del__(self) -> None:
        if not getattr(self, "_closed_whole", True) and not self._forked:
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
        """Send a record and return its future. ``timestamp_ms`` is milliseconds since the epoch (default: now).

            >>> future = producer.send("orders", b"value", key=b"k", headers=[("trace", b"1")])

        Raises:
            IllegalStateError: the producer is closed.
            InvalidTxnStateError: it is transactional, and no transaction is open.
            SerializationError: a key, value or header is not bytes. Errors of a serializer are raised unchanged.
            InvalidRecordError: neither key nor value, no key on a compacted topic, an invalid timestamp, or a value
                that does not fit the topic's schema.
            UnknownTopicTimeoutError: no such topic within ``max_block_ms``, and it may not be created.
            InvalidPartitionError: the topic has no such partition.
            InvalidTopicError: invalid topic name.
            MessageSizeTooLargeError: over ``max_request_size``; over ``max.message.bytes`` the future fails.
            KafkaTimeoutError: no memory was free within ``max_block_ms``.
            StorageError: the topic's metadata could not be read.
        """
        accumulator = self._accumulator
        if accumulator.refusal is not None:
            raise accumulator.refusal()
        given_key, given_value = key, value
        if self._serializes:
            headers = headers if isinstance(headers, list) else list(() if headers is None else headers)
            key, value = self._serialize(topic, headers, key, value)
        metadata = self._topic_cache.get(topic)
        if metadata is None:
            metadata = self._find_topic(topic)
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            if value.__class__ is not bytes:
                value = as_bytes("value", value, topic)
            size += len(value)
        if key is not None:
            if key.__class__ is not bytes:
                key = as_bytes("key", key, topic)
            size += len(key)
        elif value is None or metadata.needs_key:
            raise neither_key_nor_value(topic) if value is None else no_key(topic)
        if metadata.rules.schema is not None:
            check_schema(key, value, metadata.rules)
        stored: Headers | None = None
        if headers is not None:
            stored, header_bytes = check_headers(headers, topic)
            size += header_bytes
        refusal = None
        if size > metadata.max_counted_bytes:
            check_request_size(size - RECORD_OVERHEAD_BYTES, metadata.rules)
            refusal = topic_limit_error(size - RECORD_OVERHEAD_BYTES, key, value, stored, metadata.rules)
        timestamp_ms = self._now_ms() if timestamp_ms is None else self._check_timestamp(timestamp_ms, metadata)
        if partition is not None:
            queue = metadata.queue_of_partition(partition)
        elif self._config.choose_partition is not None:
            queue = self._ask_partitioner(self._config.choose_partition, metadata, given_key, key, given_value, value)
        elif key is not None:
            queue = metadata.queue_of_key(key)
        else:
            metadata.sticky_left -= size
            queue = metadata.current_sticky() or self._next_sticky(metadata, size)
        if refusal is not None:
            return self._fail_record(queue, refusal)
        return accumulator.append(queue, value, key, stored, timestamp_ms, size)

    def _check_timestamp(self, timestamp_ms: int, metadata: TopicMetadata) -> int:
        check_timestamp(timestamp_ms, metadata.rules, self._now_ms())
        return operator.index(timestamp_ms)

    def _fail_record(self, queue: PartitionQueue, error: KafkaError) -> FutureRecordMetadata:
        """Return the failed future of a record that its topic refuses. Its transaction, if any, can only be aborted."""
        if self._transactions is not None:
            self._transactions.refuse_record(error)
        outcome = RecordBatchResult(self._accumulator.changed, queue.topic_partition)
        outcome.error, outcome.done = error, True
        return FutureRecordMetadata(outcome, 0)

    def send_batch(self, topic: str, table: pa.Table | pa.RecordBatch, partition: int | None = None) -> FutureOffsets:
        """Send a table's rows as records; the future resolves to their offsets when all of them are committed.

        Columns are ``key``, ``value`` (bytes or text), ``timestamp`` (of any unit; null means now), ``headers`` (a list
        of structs of key and value) and ``partition``; only one of key and value is required. The producer's
        serializers and partitioner are not used. A table larger than ``buffer_memory`` takes several commits, unless it
        is part of a transaction. The columns are not copied: a buffer that the program can write to, such as that of a
        ``bytearray`` or a mapped file, must not change before the future is done.

        Raises as ``send``, before any row is sent; KafkaTimeoutError also after some were: ``rows`` is their number.

            >>> import pyarrow
            >>> table = pyarrow.table({"key": ["ada", "bob"], "value": ["1", "2"]})
            >>> _ = producer.send_batch("orders", table).get(timeout=10)
        """
        if self._accumulator.refusal is not None:
            raise self._accumulator.refusal()
        metadata = self._topic_cache.get(topic) or self._find_topic(topic)
        batches = check_table(table, metadata, partition, self._now_ms())
        check_memory(batches, metadata, self._config.buffer_memory)
        future = FutureOffsets(self._accumulator.changed)
        chunk_bytes = max(min(limits.TARGET_BATCH_BYTES * len(metadata.queues), self._config.buffer_memory // 4), 1)
        rows = 0
        for number, columns in split_table(batches, metadata, chunk_bytes):
            try:
                part = self._accumulator.append_columns(metadata.queues[number], columns)
            except KafkaTimeoutError as error:
                raise KafkaTimeoutError(
                    f"{error.message}. The first {rows:,} rows of the table are being sent.", rows=rows
                ) from error
            future.add_part(part, columns.num_rows)
            rows += columns.num_rows
        return future.watch()

    def _serialize(self, topic: str, headers: list[tuple[str, Any]], key: Any, value: Any) -> tuple[Any, Any]:
        config, part = self._config, "key"
        try:
            if config.serialize_key is not None:
                key = config.serialize_key(topic, headers, key)
            part = "value"
            if config.serialize_value is not None:
                value = config.serialize_value(topic, headers, value)
        except Exception as error:
            add_note(error, f"the {part}_serializer failed for a record of topic {topic!r}, which was not sent")
            raise
        return key, value

    def _find_topic(self, topic: object) -> TopicMetadata:
        """Return a topic's metadata; wait up to ``max_block_ms`` until it exists: it may be about to be created."""
        self._start()
        clock = self._coordinator.log.clock
        deadline = clock.monotonic() + self._config.max_block
        pause, waiting = self._config.retry_backoff, False
        while True:
            left = max(deadline - clock.monotonic(), 0)
            try:
                with self._metrics.requests.at_root():
                    metadata = self._look_up(left, partial(self._topics.find, topic), topic)
                self._metrics.metadata_read()
                return metadata
            except UnknownTopicOrPartitionError as error:
                if clock.monotonic() >= deadline:
                    raise UnknownTopicTimeoutError(
                        f"{error.message}. Waited {self._config.max_block:g} s for it (max_block_ms)",
                        topic=topic,
                    ) from error
                if not waiting:
                    waiting = True
                    logger.warning("%s: waiting for at most %g s: %s", self, left, error)
            clock.sleep(min(pause, max(deadline - clock.monotonic(), 0)))
            pause = min(pause * 2, LONGEST_TOPIC_PAUSE_SECONDS)
            if self._accumulator.refusal is not None:
                raise self._accumulator.refusal()

    def _check_topic(self, topic: str) -> TopicMetadata | None:
        """Return a topic's current metadata, None if it was deleted; read the storage if the metadata are too old."""
        if not self._topics.is_old(topic):
            return self._topics.check(topic)
        return self._look_up(self._config.max_block, partial(self._topics.check, topic), topic)

    def _look_up(self, seconds: float, look: Callable[[], Found], topic: object) -> Found:
        return call_within(seconds, look, f"looking up topic {topic!r}", self._accumulator.lock)

    def _next_sticky(self, metadata: TopicMetadata, size: int) -> PartitionQueue:
        metadata = self._check_topic(metadata.name) or metadata
        return metadata.next_sticky(self._jitter(), self._config.batch_size - size)

    def _ask_partitioner(
        self, choose: ChoosePartition, metadata: TopicMetadata, key: Any, key_bytes: Any, value: Any, value_bytes: Any
    ) -> PartitionQueue:
        """Return the queue that the partitioner chooses.

        It is asked twice if it has ``on_new_batch`` and a record without a key begins a batch.
        """
        metadata, cluster = self._check_topic(metadata.name) or metadata, self._metadata
        topic = metadata.name
        queue = metadata.queue_of_partition(choose(topic, key, key_bytes, value, value_bytes, cluster))
        if self._config.rotate_partition is not None and key_bytes is None and queue.open is None:
            self._config.rotate_partition(topic, cluster, queue.topic_partition.partition)
            queue = metadata.queue_of_partition(choose(topic, key, key_bytes, value, value_bytes, cluster))
        return queue

    def _start(self) -> None:
        if not self._closed and self._transactions is None:
            self._sender.start()

    # -- waiting

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent before is committed or has failed. In a transaction: until they are in files,
        which stay invisible until the commit.

        Raises KafkaTimeoutError after ``timeout`` seconds, IllegalStateError in a callback, which would wait for
        itself, InvalidArgumentTypeError.
        """
        self._refuse_after_fork()
        if self._sender.runs_caller:
            raise IllegalStateError("flush() in a callback would wait for the thread that runs the callback")
        timeout = as_timeout(timeout)
        if self._transactions is not None:
            return self._transactions.write(timeout)
        return self._accumulator.flush(timeout)

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Send the waiting records, for at most ``timeout`` seconds (default: until all are sent or failed), and close.

        Records not committed by then fail. Closing twice does nothing; after an interrupt of a call, the next one does
        what is left. Raises InvalidArgumentError for a negative timeout, InvalidArgumentTypeError.
        """
        timeout = as_timeout(timeout)
        if timeout is not None and timeout < 0:
            raise InvalidArgumentError(f"close(timeout={timeout}): give seconds of at least 0, or None")
        if self._closed_whole or self._forked:
            return
        self._accumulator.close(_closed)
        self._closed = True  # no thread is started from here on
        self._sender.join(timeout)
        left = self._accumulator.force_close()
        if self._transactions is not None:
            transactions, reason = self._transactions, _not_sent(timeout)
            try:
                transactions.close(reason, timeout)
            except KafkaTimeoutError as error:
                logger.warning("%s was closed; its uncommitted files are left for a vacuum: %s", self, error)
            left = [batch for batch in left if not batch.done]
        if left:
            logger.warning("%s was closed with %d uncommitted batches of records", self, len(left))
            self._accumulator.resolve(left, _not_sent(timeout))
        self._metrics.close()
        _open_producers.discard(self)
        is_first, self._closed_whole = not self._closed_whole, True
        if is_first:
            self._config.close_serializers()

    def _drop(self) -> None:
        """End a garbage-collected producer: its thread sends the waiting records, then ends. Abort an open transaction.

        Runs where the garbage collector runs: in any thread, possibly during a call of another client.
        """
        self._closed = True
        self._accumulator.close(_closed)
        thread = self._sender.thread
        if self._transactions is not None:
            with suppress(KafkaTimeoutError):
                self._transactions.close(_not_sent(0), DROP_TIMEOUT_SECONDS)
        elif thread is not None:
            for ended in [dropped for dropped in list(_dropped) if not dropped.is_alive()]:
                _dropped.pop(ended, None)
            _dropped[thread] = self._accumulator
            self._sender.join(DROP_TIMEOUT_SECONDS)
        self._config.close_serializers()

    # -- transactions

    def init_transactions(self) -> None:
        """Initialize the transactional id, before any other call, and fence older producers that use it.

        Raises IllegalStateError without a ``transactional_id``, KafkaTimeoutError after ``max_block_ms``,
        InvalidTransactionTimeoutError if ``transaction_timeout_ms`` is over the cluster's limit.
        """
        self._transactional().init()

    def begin_transaction(self) -> None:
        """Begin a transaction: records sent from now on are part of it. Raises InvalidTxnStateError."""
        transactions = self._transactional()
        self._topics.check_known()  # else keys are routed by the partition count of the last drain
        transactions.begin()

    def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_metadata: Any) -> None:
        """Commit these offsets of a group with the transaction, or not at all.

        ``offsets`` are ``{TopicPartition: OffsetAndMetadata}``, the next to read; ``group_metadata`` is the result of
        ``consumer.group_metadata()``, with which the commit is fenced if the member was replaced, or a group id. It may
        be pickled for a producer in another process.

        Raises InvalidTxnStateError, InvalidArgumentTypeError; TransactionAbortedError if the consumer has read the log
        of before a restore, or may have; KafkaTimeoutError: call it again.
        """
        self._transactional().add_offsets(offsets, group_metadata)

    def commit_transaction(self) -> None:
        """Make the whole transaction visible with one commit, and resolve its futures.

        Raises ProducerFencedError if a newer producer uses the transactional id; KafkaTimeoutError if the storage has
        not answered within ``max_block_ms``: call it again. After any other error, call ``abort_transaction()`` and
        begin another transaction: TransactionAbortedError after ``transaction_timeout_ms``, IllegalGenerationError and
        similar errors if the group whose offsets it commits has rebalanced without this member.

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
        """Abort the transaction; its futures fail with TransactionAbortedError.

        After a ``commit_transaction()`` whose outcome is unknown, this determines the outcome. Raises
        InvalidTxnStateError if it is committed: its futures then have their offsets, and the next transaction may
        begin. Raises KafkaTimeoutError or IndeterminateCommitError while the outcome stays unknown: call it again.
        """
        self._transactional().abort()

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise IllegalStateError("the producer has no transactional_id; transactions need one")
        if self._closed:
            raise self._accumulator.refusal() if self._accumulator.refusal else _closed()
        return self._transactions

    # -- the cluster

    @classmethod
    def max_usable_produce_magic(cls, api_version: object) -> int:
        """Return Kafka's version of the record format with headers, which instrumentations ask for: always 2."""
        return 2

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic, which is created as by ``send``. Raises as ``send`` does for topics."""
        self._refuse_after_fork()
        return set(range(len((self._check_topic(topic) or self._find_topic(topic)).queues)))

    def bootstrap_connected(self) -> bool:
        """Return whether the cluster can be read now."""
        self._refuse_after_fork()
        try:  # not in this thread: a handler of a signal may wait for one that needs the locks of reading
            call_within(self._config.max_block, self._coordinator.refresh, "reading the commit log")
        except SparklogError:
            return False
        return True

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """Return the producer's metrics: values by group and name, as in kafka-python; see docs/clients.md.

            producer.metrics()["producer-metrics"]["record-send-rate"]

        With ``raw``, return objects by ``MetricName`` whose ``value()`` is the value when it is called. Empty with
        ``metrics_enabled=False``. Does not read the storage.
        """
        self._refuse_after_fork()
        return self._metrics.raw() if raw else self._metrics.values()

    def _refuse_after_fork(self) -> None:
        if self._forked:
            raise _of_another_process()


def _closed() -> Exception:
    return IllegalStateError("the producer is closed; create another one")


def _of_another_process() -> Exception:
    return IllegalStateError("the producer belongs to the process that created it; create one after the fork")


def _not_sent(timeout: float | None) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"the producer was closed before these records were committed (timeout {timeout} seconds): those in flight may "
        "be in the log; call flush() before close()"
    )


def _close_all_at_exit() -> None:
    """Close all producers together, so that the end of a process takes ``EXIT_TIMEOUT_SECONDS`` at most."""
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
                "the interpreter ends with %d uncommitted batches of records of a producer that was dropped without "
                "close()",
                len(accumulator.unfinished),
            )


def _abandon_in_child() -> None:
    """Close all producers in a forked child: their threads are not here, and their records are the parent's to send."""
    for producer in list(_open_producers):
        producer._closed = producer._forked = True
        producer._accumulator.abandon_after_fork(_of_another_process)
    for accumulator in _dropped.values():
        accumulator.abandon_after_fork(_of_another_process)
    _open_producers.clear()
    _dropped.clear()


os.register_at_fork(after_in_child=_abandon_in_child)
