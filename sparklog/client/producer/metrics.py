"""The metrics of a producer, under Kafka's names: those of kafka-python, and the Java client's totals and buffer.

Rules: nothing is measured in ``send``: the sender records for each batch, file and commit. Any thread may read them.
Not for: windows (``metrics.windows``), what counts as a request (``metrics.requests``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.client.metrics.metrics import Metrics, MetricSettings
from sparklog.client.metrics.requests import ClientMetrics
from sparklog.client.producer.record_accumulator import Accumulator, PendingBatch
from sparklog.clock import Clock
from sparklog.protocol.partition_fold import holders

if TYPE_CHECKING:
    from sparklog.client.producer.batch_files import PartitionRun
    from sparklog.protocol.decide.append import PartitionAppend

GROUP = "producer-metrics"


class ProducerMetrics(ClientMetrics):
    """See the module."""

    def __init__(
        self,
        clock: Clock,
        accumulator: Accumulator,
        buffer_memory: int,
        settings: MetricSettings | None = None,
        client_id: str = "",
    ) -> None:
        super().__init__(clock, settings, client_id, "producer", accumulator.lock)
        metrics = self._metrics
        self._accumulator = accumulator
        self._buffer_memory = buffer_memory
        self._read_at = clock.monotonic()
        self._batch_size, self._compression, self._queue_time = metrics.sensor(), metrics.sensor(), metrics.sensor()
        self._records, self._bytes, self._largest = metrics.sensor(), metrics.sensor(), metrics.sensor()
        self._errors, self._retries = metrics.sensor(), metrics.sensor()
        self._by_topic: dict[str, _TopicMetrics] = {}
        self._add_metrics()

    def _add_metrics(self) -> None:
        accumulator, limit = self._accumulator, self._buffer_memory
        for name, description, measure in (
            ("batch-size-avg", "bytes of a partition in a file, on average", self._batch_size.average),
            ("batch-size-max", "largest size of a partition in a file, in bytes", self._batch_size.maximum),
            ("compression-rate-avg", "bytes in a file divided by bytes of its records", self._compression.average),
            (
                "record-queue-time-avg",
                "milliseconds that a batch waited to be written, on average",
                self._queue_time.average,
            ),
            (
                "record-queue-time-max",
                "longest time that a batch waited to be written, in milliseconds",
                self._queue_time.maximum,
            ),
            ("record-send-rate", "records committed per second", self._records.rate),
            ("record-send-total", "records committed", self._records.total),
            ("records-per-request-avg", "records per commit", self._records.average),
            ("commit-total", "commits of records", self._records.count),
            ("byte-rate", "bytes of files written per second", self._bytes.rate),
            ("byte-total", "bytes of files written", self._bytes.total),
            ("record-retry-rate", "records retried per second", self._retries.rate),
            ("record-retry-total", "records retried", self._retries.total),
            ("record-error-rate", "records failed per second", self._errors.rate),
            ("record-error-total", "records failed", self._errors.total),
            ("record-size-max", "bytes of the largest key and value", self._largest.maximum),
            ("record-size-avg", "bytes of the largest key and value of a batch, on average", self._largest.average),
            ("requests-in-flight", "requests that wait for a response", lambda: self.requests.in_flight),
            ("metadata-age", "seconds since the log was read", lambda: self._clock.monotonic() - self._read_at),
            ("buffer-total-bytes", "bytes of buffer_memory", lambda: limit),
            (
                "buffer-available-bytes",
                "bytes of buffer_memory that are free",
                lambda: max(limit - accumulator.used, 0),
            ),
            ("waiting-threads", "threads that wait for memory", lambda: accumulator.waiting_threads),
        ):
            self._metrics.add(GROUP, name, description, measure)

    # -- recording

    def metadata_read(self) -> None:
        """Record that the newest state was read now."""
        self._read_at = self._clock.monotonic()

    def wrote(self, runs: Sequence[PartitionRun], appends: Sequence[PartitionAppend], began: float) -> None:
        """Record that these runs were written to files since ``began``. Their batches still have their columns."""
        seconds = self._clock.monotonic() - began
        broker_bytes: dict[int, int] = {}
        for run, append in zip(runs, appends, strict=True):
            size = append.run.size_bytes
            for broker in holders(append.run):
                broker_bytes[broker] = broker_bytes.get(broker, 0) + size
            self._bytes.record(size)
            self._batch_size.record(size)
            of_topic = self._topic_metrics(append.topic)
            of_topic.size.record(size)
            uncompressed = 0
            for batch in run.batches:
                self._queue_time.record((began - batch.created) * 1000)
                if batch.columns is not None:
                    uncompressed += batch.columns.nbytes
                    self._largest.record(largest_record(batch.columns))
            if uncompressed:
                self._compression.record(size / uncompressed)
                of_topic.compression.record(size / uncompressed)
        for broker, size in broker_bytes.items():
            self.requests.record(str(broker), seconds, sent=size)

    def committed(self, batches: Sequence[PendingBatch]) -> None:
        """Record that these batches were committed, with one commit."""
        self.metadata_read()
        self._records.record(sum(batch.rows for batch in batches))
        for topic, records in _records_by_topic(batches).items():
            self._topic_metrics(topic).records.record(records)

    def failed(self, batches: Sequence[PendingBatch]) -> None:
        """Record that these batches failed."""
        by_topic = _records_by_topic(batches)
        self._errors.record(by_topic.total())
        for topic, records in by_topic.items():
            self._topic_metrics(topic).errors.record(records)

    def retried(self, batches: Sequence[PendingBatch]) -> None:
        """Record that these batches are retried."""
        by_topic = _records_by_topic(batches)
        self._retries.record(by_topic.total())
        for topic, records in by_topic.items():
            self._topic_metrics(topic).retries.record(records)

    def _topic_metrics(self, topic: str) -> _TopicMetrics:
        metrics = self._by_topic.get(topic)
        if metrics is None:
            metrics = self._by_topic.setdefault(topic, _TopicMetrics(self._metrics, topic))
        return metrics


class _TopicMetrics:
    """The metrics of one topic, which have a group of their own."""

    def __init__(self, metrics: Metrics, topic: str) -> None:
        self.records, self.size, self.compression = metrics.sensor(), metrics.sensor(), metrics.sensor()
        self.retries, self.errors = metrics.sensor(), metrics.sensor()
        for name, description, measure in (
            ("record-send-rate", "records committed per second", self.records.rate),
            ("byte-rate", "bytes of files written per second", self.size.rate),
            ("compression-rate", "bytes in a file divided by bytes of its records", self.compression.average),
            ("record-retry-rate", "records retried per second", self.retries.rate),
            ("record-error-rate", "records failed per second", self.errors.rate),
        ):
            metrics.add(f"producer-topic-metrics.{topic}", name, description, measure)


def _records_by_topic(batches: Sequence[PendingBatch]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for batch in batches:
        counts[batch.topic_partition.topic] += batch.rows
    return counts


def largest_record(columns: pa.RecordBatch) -> int:
    """Return the bytes of the largest key and value of a batch."""
    lengths = None
    for name in ("key", "value"):
        if name in columns.schema.names:
            column = columns.column(name)
            column_lengths = pc.binary_length(column)
            if column.null_count:
                column_lengths = pc.coalesce(column_lengths, _zeros(column_lengths.type, len(column_lengths)))
            lengths = column_lengths if lengths is None else pc.add(lengths, column_lengths)
    return 0 if lengths is None else int(pc.max(lengths).as_py() or 0)


def _zeros(kind: pa.DataType, count: int) -> pa.Array:
    """Return zeros, made from a buffer: ``fill_null`` takes a scalar, and making a scalar imports pandas."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bytes(count * kind.bit_width // 8))])
