"""What a consumer measures, under kafka-python's names of metrics, and Java's totals.

Rules: nothing is measured for each record: the fetching thread records for each stored batch, the consumer for what a
``poll`` hands out, its group for each call. Safe to read from any thread.
Not for: windows (``metric_windows``), what counts as a request (``request_metrics``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.records import RecordBatches
from sparklog.client.consumer.subscription_state import Subscription
from sparklog.client.metrics import Metric, MetricName, Metrics, MetricSettings, Sensor, metric_settings
from sparklog.client.request_metrics import StorageRequests
from sparklog.clock import Clock
from sparklog.errors import InvalidClientConfigurationError

NEVER = -1.0
"""The value of ``last-heartbeat-seconds-ago`` before the first one, as in Kafka's Java client."""


class ConsumerMetrics:
    """See the module. ``assigned`` counts the partitions that the consumer has."""

    def __init__(
        self,
        clock: Clock,
        assigned: Callable[[], int] = lambda: 0,
        settings: MetricSettings | None = None,
        client_id: str = "",
        prefix: str = "consumer",
    ) -> None:
        self._clock = clock
        self._metrics = metrics = Metrics(clock, settings or MetricSettings(), client_id)
        self.requests = StorageRequests(metrics, clock, prefix)
        self._fetch_group = f"{prefix}-fetch-manager-metrics"
        self._fetched, self._topics = _Fetched(metrics), dict[str, _Fetched]()
        self._latency, self._lag = metrics.sensor(), metrics.sensor()
        self._heartbeats, self._joins, self._syncs = metrics.sensor(), metrics.sensor(), metrics.sensor()
        self._commits = metrics.sensor()
        self._beat_at: float | None = None
        self._add_fetching()
        self._add_group(f"{prefix}-coordinator-metrics", assigned)

    def _add_fetching(self) -> None:
        self._fetched.add_to(self._metrics, self._fetch_group)
        for name, description, measure in (
            ("records-consumed-total", "records handed out", self._fetched.consumed.total),
            ("bytes-consumed-total", "bytes handed out", self._fetched.consumed_bytes.total),
            ("fetch-latency-avg", "milliseconds to read a stored batch", self._latency.average),
            ("fetch-latency-max", "milliseconds to read the slowest stored batch", self._latency.maximum),
            ("fetch-rate", "stored batches read a second", self._latency.count_rate),
            ("fetch-total", "stored batches read", self._latency.count),
            ("records-lag-max", "most records that a partition was behind", self._lag.maximum),
        ):
            self._metrics.add(self._fetch_group, name, description, measure)

    def _add_group(self, group: str, assigned: Callable[[], int]) -> None:
        for name, description, measure in (
            ("heartbeat-response-time-max", "milliseconds of the slowest heartbeat", self._heartbeats.maximum),
            ("heartbeat-rate", "heartbeats a second", self._heartbeats.count_rate),
            ("last-heartbeat-seconds-ago", "seconds since the last one; -1 before the first", self._since_heartbeat),
            ("join-time-avg", "milliseconds to join the group", self._joins.average),
            ("join-time-max", "milliseconds of the slowest join", self._joins.maximum),
            ("join-rate", "joins a second", self._joins.count_rate),
            ("sync-time-avg", "milliseconds to take over an assignment, listener included", self._syncs.average),
            ("sync-time-max", "milliseconds of the slowest one", self._syncs.maximum),
            ("sync-rate", "assignments taken over a second", self._syncs.count_rate),
            ("commit-latency-avg", "milliseconds of a commit of offsets", self._commits.average),
            ("commit-latency-max", "milliseconds of the slowest one", self._commits.maximum),
            ("commit-rate", "commits of offsets a second", self._commits.count_rate),
            ("commit-total", "commits of offsets", self._commits.count),
            ("assigned-partitions", "partitions that this consumer has", assigned),
        ):
            self._metrics.add(group, name, description, measure)

    # -- what the consumer's threads say

    def fetched(self, topic: str, node: str, records: int, size: int, seconds: float) -> None:
        """A stored batch was read; ``size`` is the bytes that were read for it."""
        self.requests.record(node, seconds, received=size)
        self._latency.record(seconds * 1000)
        for fetched in (self._fetched, self._of_topic(topic)):
            fetched.size.record(size)
            fetched.records.record(records)

    def handed_out(self, batches: RecordBatches, size: int, records: int, end: int) -> None:
        """The first so many of these records were handed out; ``size`` is the bytes of all of them, ``end`` the offset
        after the last record of the partition."""
        rows = max(int(batches.batch.num_rows), 1)
        for fetched in (self._fetched, self._of_topic(batches.topic)):
            fetched.consumed.record(records)
            fetched.consumed_bytes.record(size * records / rows)
        self._lag.record(max(end - batches.end_offset, 0) + rows - records)

    def _of_topic(self, topic: str) -> _Fetched:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics.setdefault(topic, _Fetched(self._metrics))
            found.add_to(self._metrics, self._fetch_group, topic=topic.replace(".", "_"))
        return found

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """The block is a heartbeat."""
        self._beat_at = self._clock.monotonic()
        with self._timed(self._heartbeats):
            yield

    @contextmanager
    def join(self) -> Iterator[None]:
        """The block joins the group."""
        self._beat_at = self._clock.monotonic()
        with self._timed(self._joins):
            yield

    @contextmanager
    def commit(self) -> Iterator[None]:
        """The block commits offsets."""
        with self._timed(self._commits):
            yield

    def synced(self, began: float) -> None:
        """An assignment was taken over, from ``began`` on."""
        self._syncs.record((self._clock.monotonic() - began) * 1000)

    @contextmanager
    def _timed(self, sensor: Sensor) -> Iterator[None]:
        """The block is one request to the root; where it succeeds, its milliseconds are recorded."""
        start = self._clock.monotonic()
        with self.requests.at_root():
            yield
        sensor.record((self._clock.monotonic() - start) * 1000)

    def _since_heartbeat(self) -> float:
        return NEVER if self._beat_at is None else self._clock.monotonic() - self._beat_at

    # -- what others ask

    def values(self) -> dict[str, dict[str, float]]:
        """Every value by group and name."""
        return self._metrics.values()

    def raw(self) -> dict[MetricName, Metric]:
        """Every metric by its name, also those of single topics."""
        return self._metrics.raw()

    def close(self) -> None:
        """The consumer has ended."""
        self.requests.close()
        self._metrics.close()


class _Fetched:
    """What is measured of the records of one topic, and of all."""

    def __init__(self, metrics: Metrics) -> None:
        self.size, self.records = metrics.sensor(), metrics.sensor()
        self.consumed, self.consumed_bytes = metrics.sensor(), metrics.sensor()

    def add_to(self, metrics: Metrics, group: str, **tags: str) -> None:
        for name, description, measure in (
            ("fetch-size-avg", "bytes read for a stored batch", self.size.average),
            ("fetch-size-max", "most bytes read for a stored batch", self.size.maximum),
            ("bytes-consumed-rate", "bytes handed out a second", self.consumed_bytes.rate),
            ("records-per-request-avg", "records of a stored batch", self.records.average),
            ("records-consumed-rate", "records handed out a second", self.consumed.rate),
        ):
            metrics.add(group, name, description, measure, **tags)


def metrics_of_consumer(
    clock: Clock, subscription: Subscription, config: ConsumerConfig, given: Mapping[str, object]
) -> ConsumerMetrics:
    """The metrics of a consumer with these arguments. Raises InvalidClientConfigurationError."""
    prefix = given.get("metric_group_prefix", "consumer")
    if not isinstance(prefix, str) or not prefix:
        raise InvalidClientConfigurationError(
            f"Consumer(metric_group_prefix={prefix!r}): give a text", config="metric_group_prefix", value=prefix
        )
    settings = metric_settings("Consumer", given)
    return ConsumerMetrics(clock, lambda: len(subscription.positions), settings, config.client_id, prefix)
