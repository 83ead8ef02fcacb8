"""What a client asks of storage, under the names that Kafka has for connections and requests.

There are no connections and no brokers that answer, so these stand for what comes nearest:

    request        one thing asked of storage: a segment file written, a stored batch read, a commit, a look at the log
    node           where: ``bootstrap-0`` is the cluster's root, with the commit log; a number is a broker's location
    connection     a location that this client has used
    bytes          of segment files; commits and looks count as none: they are small, and their size depends on others
    throttle time  0: nobody slows clients down

Rules: thread-safe. A request that failed is one without a response.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.client.metrics import Metrics
from sparklog.clock import Clock

ROOT = "bootstrap-0"
"""The node that is the cluster's root: kafka-python's name for the first address it was given."""


class StorageRequests:
    """The requests of one client. ``prefix`` begins the names of groups: ``producer`` or ``consumer``."""

    def __init__(self, metrics: Metrics, clock: Clock, prefix: str) -> None:
        self._metrics = metrics
        self._clock = clock
        self._prefix = prefix
        self._under_way: set[int] = set()
        self._all = _Sensors(metrics)
        self._nodes: dict[str, _Sensors] = {}
        self._created, self._closed = metrics.sensor(), metrics.sensor()
        self._all.add_to(metrics, f"{prefix}-metrics")
        self._add_own(f"{prefix}-metrics")
        self._node(ROOT)

    def _add_own(self, group: str) -> None:
        metrics, everything = self._metrics, self._all
        add = metrics.add
        add(group, "network-io-rate", "requests and responses a second", everything.exchanges_rate)
        add(group, "connection-count", "locations that this client uses", lambda: len(self._nodes))
        add(group, "connection-creation-rate", "locations a second that came into use", self._created.count_rate)
        add(group, "connection-close-rate", "locations a second that went out of use", self._closed.count_rate)
        add(group, "request-total", "requests since the client was made", everything.sent.count)
        add(group, "response-total", "responses since the client was made", everything.received.count)

    @property
    def under_way(self) -> int:
        """How many requests wait for their response now."""
        return len(self._under_way)

    def record(self, node: str, seconds: float, sent: int = 0, received: int = 0) -> None:
        """A request was answered after so many seconds; ``sent`` and ``received`` are bytes."""
        for sensors in (self._all, self._node(node)):
            sensors.sent.record(sent)
            sensors.received.record(received)
            sensors.latency.record(seconds * 1000)

    def record_failed(self, node: str) -> None:
        """A request had no answer, or one that is an error."""
        for sensors in (self._all, self._node(node)):
            sensors.sent.record(0)

    @contextmanager
    def at_root(self) -> Iterator[None]:
        """What the block does is one request to the cluster's root."""
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
        """During the block this thread waits for a request."""
        thread = threading.get_ident()
        self._under_way.add(thread)
        try:
            yield
        finally:
            self._under_way.discard(thread)

    def close(self) -> None:
        """The client uses no location any more."""
        for _ in range(len(self._nodes)):
            self._closed.record(1)
        self._nodes = {}

    def _node(self, node: str) -> _Sensors:
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes.setdefault(node, _Sensors(self._metrics))
            self._created.record(1)
            found.add_to(self._metrics, f"{self._prefix}-node-metrics.node-{node}")
        return found


class _Sensors:
    """What is measured of the requests to one node, or to all."""

    def __init__(self, metrics: Metrics) -> None:
        self.sent = metrics.sensor()
        self.received = metrics.sensor()
        self.latency = metrics.sensor()

    def exchanges_rate(self) -> float:
        return self.sent.count_rate() + self.received.count_rate()

    def add_to(self, metrics: Metrics, group: str) -> None:
        """Register what the nodes and all of them together have."""
        for name, description, measure in (
            ("outgoing-byte-rate", "bytes written a second", self.sent.rate),
            ("request-rate", "requests a second", self.sent.count_rate),
            ("request-size-avg", "bytes of a request", self.sent.average),
            ("request-size-max", "bytes of the largest request", self.sent.maximum),
            ("incoming-byte-rate", "bytes read a second", self.received.rate),
            ("response-rate", "responses a second", self.received.count_rate),
            ("request-latency-avg", "milliseconds until a response", self.latency.average),
            ("request-latency-max", "milliseconds until the slowest response", self.latency.maximum),
            ("throttle-time-avg", "milliseconds; always 0, nobody slows clients down", _zero),
            ("throttle-time-max", "milliseconds; always 0, nobody slows clients down", _zero),
        ):
            metrics.add(group, name, description, measure)


def _zero() -> float:
    return 0.0
