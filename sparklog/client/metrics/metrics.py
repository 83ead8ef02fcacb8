"""The metrics of a client, by group and name, with kafka-python's interface.

    metrics = Metrics(clock, settings, client_id="shop")
    latency = metrics.sensor()
    metrics.add("producer-metrics", "request-latency-avg", "milliseconds", latency.average)
    latency.record(12.5)
    metrics.values()["producer-metrics"]["request-latency-avg"]

Rules: thread-safe; one lock, held for a microsecond. Nothing is measured for each record: clients record for each
batch, request or call. A measure that fails is NaN, so that reading a value never raises.

Not for: the metrics of a client (``producer.metrics``, ``consumer.metrics``), arithmetic (``windows``).
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparklog.client.config import METRIC_ARGUMENTS, invalid_argument, milliseconds, one_of, whole_number
from sparklog.client.metrics.windows import Windows
from sparklog.client.user_code import ends_program
from sparklog.clock import Clock

logger = logging.getLogger(__name__)

COUNT_GROUP = "kafka-metrics-count"


@dataclass(frozen=True)
class MetricSettings:
    """The ``metrics_...`` arguments of a client."""

    enabled: bool = True
    samples: int = 2
    window_seconds: float = 30.0
    reporters: tuple[Callable[[], Any], ...] = ()


def metric_settings(client: str, given: Mapping[str, object]) -> MetricSettings:
    """Return the settings from a client's arguments, of which all others are ignored.

    Raises InvalidClientConfigurationError.
    """
    arguments = {name: given.get(name, default) for name, default in METRIC_ARGUMENTS.items()}
    reporters: Any = arguments["metric_reporters"] or ()
    if not isinstance(reporters, Sequence) or not all(callable(reporter) for reporter in reporters):
        what = "give a list of classes with metric_change(metric)"
        raise invalid_argument(client, "metric_reporters", reporters, what)
    return MetricSettings(
        enabled=one_of(client, arguments, "metrics_enabled", (True, False)),
        samples=whole_number(client, arguments, "metrics_num_samples", 1),
        window_seconds=milliseconds(client, arguments, "metrics_sample_window_ms", 1) / 1000,
        reporters=tuple(reporters),
    )


@dataclass(frozen=True)
class MetricName:
    """The name of a metric, as in kafka-python: ``tags`` distinguish metrics of the same name."""

    name: str
    group: str
    description: str = field(default="", compare=False)
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Metric:
    """One metric: its name and its current value."""

    metric_name: MetricName
    measure: Callable[[], float] = field(compare=False, repr=False)

    def value(self, time_ms: float | None = None) -> float:
        """Return the current value, NaN if measuring fails: never raises. ``time_ms`` has no effect."""
        try:
            return self.measure()
        except Exception:
            logger.debug("could not measure %s", self.metric_name, exc_info=True)
            return math.nan


class MetricsReporter(ABC):
    """Base class of ``metric_reporters``: a client creates one of each and notifies it of its metrics."""

    @abstractmethod
    def init(self, metrics: list[Metric]) -> None:
        """Called first, with the existing metrics."""

    @abstractmethod
    def metric_change(self, metric: Metric) -> None:
        """Called for each metric that is added or replaced."""

    @abstractmethod
    def metric_removal(self, metric: Metric) -> None:
        """Called for each metric that is removed. Clients remove none."""

    @abstractmethod
    def configure(self, configs: Mapping[str, Any]) -> None:
        """For programs that create a reporter themselves. Clients do not call it."""

    @abstractmethod
    def close(self) -> None:
        """Called when the client is closed."""


class Sensor:
    """Records values of one kind, such as the latencies of requests. Thread-safe.

    ``rate()``, ``count_rate()``, ``average()`` and ``maximum()`` are those of ``Windows``, now.
    """

    __slots__ = ("_clock", "_lock", "_windows")

    def __init__(self, clock: Clock, lock: threading.RLock, settings: MetricSettings) -> None:
        self._clock = clock
        self._lock = lock
        self._windows = Windows(settings.window_seconds, settings.samples, clock.monotonic())

    def record(self, value: float) -> None:
        """Add a value."""
        now = self._clock.monotonic()
        with self._lock:
            self._windows.record(value, now)

    def rate(self) -> float:
        return self._measure(self._windows.rate)

    def count_rate(self) -> float:
        return self._measure(self._windows.count_rate)

    def average(self) -> float:
        return self._measure(self._windows.average)

    def maximum(self) -> float:
        return self._measure(self._windows.maximum)

    def total(self) -> float:
        """Return the sum of all values ever recorded."""
        return self._windows.total

    def count(self) -> float:
        """Return the number of values ever recorded."""
        return self._windows.count

    def _measure(self, measure: Callable[[float], float]) -> float:
        now = self._clock.monotonic()
        with self._lock:
            return measure(now)


class Metrics:
    """The metrics of one client. Thread-safe.

    ``lock`` is the client's, so that a wait in a signal's handler can release it (``Condition``).
    """

    def __init__(
        self, clock: Clock, settings: MetricSettings, client_id: str, lock: threading.RLock | None = None
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._tags = {"client-id": client_id}
        self.lock = threading.RLock() if lock is None else lock
        self._metrics: dict[MetricName, Metric] = {}
        self._reporters = [reporter() for reporter in settings.reporters] if settings.enabled else []
        for reporter in self._reporters:
            reporter.init([])
        self.add(COUNT_GROUP, "count", "number of metrics", lambda: len(self._metrics))

    def sensor(self) -> Sensor:
        """Return a new sensor with the windows of these metrics."""
        return Sensor(self._clock, self.lock, self._settings)

    def add(self, group: str, name: str, description: str, measure: Callable[[], float], **tags: str) -> None:
        """Register a metric. It replaces one with the same group, name and tags."""
        metric = Metric(MetricName(name, group, description, {**self._tags, **tags}), measure)
        with self.lock:
            self._metrics[metric.metric_name] = metric
        for reporter in self._reporters:
            _notify(reporter, "metric_change", metric)

    def values(self) -> dict[str, dict[str, float]]:
        """Return every value by group and name, without those of single topics (see ``raw``). Empty if disabled."""
        values: dict[str, dict[str, float]] = {}
        for name, metric in self.raw().items():
            if name.tags == self._tags:
                values.setdefault(name.group, {})[name.name] = metric.value()
        return values

    def raw(self) -> dict[MetricName, Metric]:
        """Return every metric by its name."""
        with self.lock:
            return dict(self._metrics) if self._settings.enabled else {}

    def close(self) -> None:
        """Close the reporters. Values can still be read."""
        reporters, self._reporters = self._reporters, []
        for reporter in reporters:
            _notify(reporter, "close")


def _notify(reporter: object, method: str, *arguments: object) -> None:
    """Call a reporter, which is the program's code: log what it raises, and continue."""
    try:
        getattr(reporter, method)(*arguments)
    except BaseException as error:
        logger.exception("%s of %s failed", method, type(reporter).__name__)
        if ends_program(error):
            raise
