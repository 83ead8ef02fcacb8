"""Metrics of a client's storage requests, under Kafka's names for connections and requests.

There are no connections and no brokers that respond, so these names stand for what comes nearest:

    request        one storage operation: a segment file written, a stored batch read, a commit, a read of the state
    node           ``bootstrap-0`` is the cluster's root, with the commit log; a number is a broker's location
    connection     a location that this client has used
    bytes          of segment files; commits and reads of state count as 0: small, and others determine their size
    throttle time  0: clients are not throttled

Rules: thread-safe. A failed request counts as one without a response. Not for: windows (``windows``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.client.metrics.metrics import Metrics, MetricSettings
from sparklog.clock import Clock

ROOT = "bootstrap-0"
"""The node of the cluster's root: kafka-python's name of the first bootstrap server."""


class StorageRequests:
    """The requests of one client. ``prefix`` starts the names of groups: ``producer`` or ``consumer``."""

    def __init__(self, metrics: Metrics, clock: Clock, prefix: str) -> None:
        self._metrics = metrics
        self._clock = clock
        self._prefix = prefix
        self._in_flight: set[int] = set()
        self._all = _Sensors(metrics)
        self._nodes: dict[str, _Sensors] = {}
        self._created, self._closed = metrics.sensor(), metrics.sensor()
        group = f"{prefix}-metrics"
        self._all.add_to(metrics, group)
        for name, description, measure in (
            ("network-io-rate", "requests and responses per second", self._all.exchanges_rate),
            ("connection-count", "locations that this client uses", lambda: len(self._nodes)),
            ("connection-creation-rate", "locations per second that came into use", self._created.count_rate),
            ("connection-close-rate", "locations per second that went out of use", self._closed.count_rate),
            ("request-total", "requests since the client was created", self._all.sent.count),
            ("response-total", "responses since the client was created", self._all.received.count),
        ):
            metrics.add(group, name, description, measure)
        self._node(ROOT)

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for their response now."""
        return len(self._in_flight)

    def record(self, node: str, seconds: float, sent: int = 0, received: int = 0) -> None:
        """Record a request that was answered after ``seconds``; ``sent`` and ``received`` are bytes."""
        for sensors in (self._all, self._node(node)):
            sensors.sent.record(sent)
            sensors.received.record(received)
            sensors.latency.record(seconds * 1000)

    def record_failed(self, node: str) -> None:
        """Record a request that had no answer, or an error."""
        for sensors in (self._all, self._node(node)):
            sensors.sent.record(0)

    @contextmanager
    def at_root(self) -> Iterator[None]:
        """Record the block as one request to the cluster's root."""
        start = self._clock.monotonic()
        try:
            with self.counted():
                yield
        except BaseException:
            self.record_failed(ROOT)
            raise
        self.record(ROOT, self._clock.monotonic() - start)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count this thread's request as in flight during the block."""
        thread = threading.get_ident()
        self._in_flight.add(thread)
        try:
            yield
        finally:
            self._in_flight.discard(thread)

    def close(self) -> None:
        """Record that the client no longer uses any location."""
        for _ in range(len(self._nodes)):
            self._closed.record(1)
        self._nodes = {}

    def _node(self, node: str) -> _Sensors:
        sensors = self._nodes.get(node)
        if sensors is None:
            sensors = self._nodes.setdefault(node, _Sensors(self._metrics))
            self._created.record(1)
            sensors.add_to(self._metrics, f"{self._prefix}-node-metrics.node-{node}")
        return sensors


class ClientMetrics:
    """The metrics of one client: base of those of producers and consumers. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        settings: MetricSettings | None,
        client_id: str,
        prefix: str,
        lock: threading.RLock | None = None,
    ) -> None:
        self._clock = clock
        self._metrics = Metrics(clock, settings or MetricSettings(), client_id, lock)
        self.lock = self._metrics.lock
        self.requests = StorageRequests(self._metrics, clock, prefix)
        self.values = self._metrics.values
        self.raw = self._metrics.raw

    def close(self) -> None:
        """Stop collecting, when the client is closed."""
        self.requests.close()
        self._metrics.close()


class _Sensors:
    """The sensors of the requests to one node, or to all."""

    def __init__(self, metrics: Metrics) -> None:
        self.sent = metrics.sensor()
        self.received = metrics.sensor()
        self.latency = metrics.sensor()

    def exchanges_rate(self) -> float:
        return self.sent.count_rate() + self.received.count_rate()

    def add_to(self, metrics: Metrics, group: str) -> None:
        """Register the metrics that exist for each node and for all nodes together."""
        for name, description, measure in (
            ("outgoing-byte-rate", "bytes written per second", self.sent.rate),
            ("request-rate", "requests per second", self.sent.count_rate),
            ("request-size-avg", "bytes of a request, on average", self.sent.average),
            ("request-size-max", "bytes of the largest request", self.sent.maximum),
            ("incoming-byte-rate", "bytes read per second", self.received.rate),
            ("response-rate", "responses per second", self.received.count_rate),
            ("request-latency-avg", "milliseconds until a response, on average", self.latency.average),
            ("request-latency-max", "milliseconds until the slowest response", self.latency.maximum),
            ("throttle-time-avg", "milliseconds; always 0: clients are not throttled", float),
            ("throttle-time-max", "milliseconds; always 0: clients are not throttled", float),
        ):
            metrics.add(group, name, description, measure)
