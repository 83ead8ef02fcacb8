"""The metrics of a consumer, under kafka-python's names, with the totals of the Java client.

Rules: nothing is measured per record. The fetch thread measures per stored batch, the consumer per ``poll``, its group
session per call. Any thread may read the values.
Not for: windows (``metrics.windows``), what counts as a request (``metrics.requests``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.records import RecordBatches
from sparklog.client.consumer.subscription_state import Subscription
from sparklog.client.metrics.metrics import Metrics, Sensor
from sparklog.client.metrics.requests import ClientMetrics
from sparklog.clock import Clock


class ConsumerMetrics(ClientMetrics):
    """Collects the metrics of one consumer."""

    def __init__(self, clock: Clock, subscription: Subscription, config: ConsumerConfig) -> None:
        prefix = config.metric_group_prefix
        super().__init__(clock, config.metrics, config.client_id, prefix)
        metrics = self._metrics
        self._subscription = subscription
        self._fetch_group = f"{prefix}-fetch-manager-metrics"
        self._totals, self._by_topic = _FetchMetrics(metrics), dict[str, _FetchMetrics]()
        self._latency, self._lag = metrics.sensor(), metrics.sensor()
        self._heartbeats, self._joins, self._syncs = metrics.sensor(), metrics.sensor(), metrics.sensor()
        self._commits = metrics.sensor()
        self._last_heartbeat: float | None = None
        self._add_fetching()
        self._add_group(f"{prefix}-coordinator-metrics")

    def _add_fetching(self) -> None:
        self._totals.add_to(self._metrics, self._fetch_group)
        for name, description, measure in (
            ("records-consumed-total", "records returned", self._totals.consumed.total),
            ("bytes-consumed-total", "bytes returned", self._totals.consumed_bytes.total),
            ("fetch-latency-avg", "milliseconds to read a stored batch", self._latency.average),
            ("fetch-latency-max", "milliseconds to read the slowest stored batch", self._latency.maximum),
            ("fetch-rate", "stored batches read per second", self._latency.count_rate),
            ("fetch-total", "stored batches read", self._latency.count),
            ("records-lag-max", "largest number of records that a partition lagged behind", self._lag.maximum),
        ):
            self._metrics.add(self._fetch_group, name, description, measure)

    def _add_group(self, group: str) -> None:
        for name, description, measure in (
            ("heartbeat-response-time-max", "milliseconds of the slowest heartbeat", self._heartbeats.maximum),
            ("heartbeat-rate", "heartbeats per second", self._heartbeats.count_rate),
            (
                "last-heartbeat-seconds-ago",
                "seconds since a heartbeat; -1 before the first",
                self._since_heartbeat,
            ),
            ("join-time-avg", "milliseconds to join the group", self._joins.average),
            ("join-time-max", "milliseconds of the slowest join", self._joins.maximum),
            ("join-rate", "joins per second", self._joins.count_rate),
            ("sync-time-avg", "milliseconds to take over an assignment, listener included", self._syncs.average),
            ("sync-time-max", "milliseconds of the slowest assignment", self._syncs.maximum),
            ("sync-rate", "assignments taken over per second", self._syncs.count_rate),
            ("commit-latency-avg", "milliseconds of a commit of offsets", self._commits.average),
            ("commit-latency-max", "milliseconds of the slowest commit", self._commits.maximum),
            ("commit-rate", "commits of offsets per second", self._commits.count_rate),
            ("commit-total", "commits of offsets", self._commits.count),
            ("assigned-partitions", "partitions assigned to this consumer", self._assigned_partitions),
        ):
            self._metrics.add(group, name, description, measure)

    # -- recording

    def record_fetch(self, topic: str, node: str, records: int, size: int, seconds: float) -> None:
        """Record the read of a stored batch; ``size`` is the bytes that were read for it."""
        self.requests.record(node, seconds, received=size)
        self._latency.record(seconds * 1000)
        for metrics in (self._totals, self._topic_metrics(topic)):
            metrics.size.record(size)
            metrics.records.record(records)

    def record_consumed(self, batches: RecordBatches, size: int, records: int, end: int) -> None:
        """Record that the first ``records`` of these records were returned; ``size`` is the bytes of all of them,
        ``end`` the log end offset of the partition."""
        rows = max(int(batches.batch.num_rows), 1)
        for metrics in (self._totals, self._topic_metrics(batches.topic)):
            metrics.consumed.record(records)
            metrics.consumed_bytes.record(size * records / rows)
        self._lag.record(max(end - batches.end_offset, 0) + rows - records)

    def _topic_metrics(self, topic: str) -> _FetchMetrics:
        metrics = self._by_topic.get(topic)
        if metrics is None:
            metrics = self._by_topic.setdefault(topic, _FetchMetrics(self._metrics))
            metrics.add_to(self._metrics, self._fetch_group, topic=topic.replace(".", "_"))
        return metrics

    def heartbeat(self) -> AbstractContextManager[None]:
        """Measure the block as a heartbeat."""
        self._last_heartbeat = self._clock.monotonic()
        return self._timed(self._heartbeats)

    def join(self) -> AbstractContextManager[None]:
        """Measure the block as a join of the group."""
        self._last_heartbeat = self._clock.monotonic()
        return self._timed(self._joins)

    def commit(self) -> AbstractContextManager[None]:
        """Measure the block as a commit of offsets."""
        return self._timed(self._commits)

    def record_sync(self, started: float) -> None:
        """Record that an assignment was taken over; it began at ``started``."""
        self._syncs.record((self._clock.monotonic() - started) * 1000)

    @contextmanager
    def _timed(self, sensor: Sensor) -> Iterator[None]:
        """Measure the block as one request to the root; record its milliseconds if it succeeds."""
        start = self._clock.monotonic()
        with self.requests.at_root():
            yield
        sensor.record((self._clock.monotonic() - start) * 1000)

    def _since_heartbeat(self) -> float:
        if self._last_heartbeat is None:
            return -1.0  # as in Kafka's Java client
        return self._clock.monotonic() - self._last_heartbeat

    def _assigned_partitions(self) -> int:
        return len(self._subscription.positions)


class _FetchMetrics:
    """Fetch metrics of one topic, or of all topics."""

    def __init__(self, metrics: Metrics) -> None:
        self.size, self.records = metrics.sensor(), metrics.sensor()
        self.consumed, self.consumed_bytes = metrics.sensor(), metrics.sensor()

    def add_to(self, metrics: Metrics, group: str, **tags: str) -> None:
        for name, description, measure in (
            ("fetch-size-avg", "bytes read for a stored batch", self.size.average),
            ("fetch-size-max", "bytes read for the largest stored batch", self.size.maximum),
            ("bytes-consumed-rate", "bytes returned per second", self.consumed_bytes.rate),
            ("records-per-request-avg", "records of a stored batch", self.records.average),
            ("records-consumed-rate", "records returned per second", self.consumed.rate),
        ):
            metrics.add(group, name, description, measure, **tags)
