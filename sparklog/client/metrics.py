"""The metrics of a client: what it measures, by group and name, with kafka-python's interface.

    metrics = Metrics(clock, settings, client_id="shop")
    latency = metrics.sensor()
    metrics.add("producer-metrics", "request-latency-avg", "milliseconds", latency.average)
    latency.record(12.5)
    metrics.values()["producer-metrics"]["request-latency-avg"]

Rules: thread-safe; one lock, held for a microsecond. Nothing is measured for each record: clients record for each
batch, request or call. A measure that fails is NaN, so that asking never raises.

Not for: which metrics there are (``producer_metrics``, ``consumer_metrics``), arithmetic (``metric_windows``).
"""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparklog.client.config import METRIC_ARGUMENTS, milliseconds, one_of, whole_number
from sparklog.client.metric_windows import Windows
from sparklog.client.user_code import ends_program
from sparklog.clock import Clock
from sparklog.errors import InvalidClientConfigurationError

logger = logging.getLogger(__name__)

COUNT_GROUP = "kafka-metrics-count"


@dataclass(frozen=True)
class MetricSettings:
    """What a client's ``metrics_...`` arguments say."""

    enabled: bool = True
    samples: int = 2
    window_seconds: float = 30.0
    reporters: tuple[Callable[[], Any], ...] = ()


def metric_settings(client: str, given: Mapping[str, object]) -> MetricSettings:
    """From a client's arguments, of which others than those of metrics are passed over. Raises
    InvalidClientConfigurationError."""
    arguments = {name: given.get(name, default) for name, default in METRIC_ARGUMENTS.items()}
    reporters: Any = arguments["metric_reporters"] or ()
    if not isinstance(reporters, Sequence) or not all(callable(reporter) for reporter in reporters):
        raise InvalidClientConfigurationError(
            f"{client}(metric_reporters={reporters!r}): give a list of classes with metric_change(metric)",
            config="metric_reporters",
            value=reporters,
        )
    return MetricSettings(
        enabled=one_of(client, arguments, "metrics_enabled", (True, False)),
        samples=whole_number(client, arguments, "metrics_num_samples", 1),
        window_seconds=milliseconds(client, arguments, "metrics_sample_window_ms", 1) / 1000,
        reporters=tuple(reporters),
    )


@dataclass(frozen=True)
class MetricName:
    """What a metric is called, as in kafka-python: ``tags`` tell metrics apart that share a name."""

    name: str
    group: str
    description: str = field(default="", compare=False)
    tags: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Metric:
    """One metric: its name, and its value now."""

    metric_name: MetricName
    measure: Callable[[], float] = field(compare=False, repr=False)

    def value(self, time_ms: float | None = None) -> float:
        """The value now. Never raises: NaN where it cannot be told. ``time_ms`` has no effect."""
        try:
            return self.measure()
        except Exception:
            logger.debug("%s cannot be measured", self.metric_name, exc_info=True)
            return math.nan


class MetricsReporter(ABC):
    """What ``metric_reporters`` are classes of: a client makes one of each, and tells it about its metrics."""

    @abstractmethod
    def init(self, metrics: list[Metric]) -> None:
        """Called first, with the metrics there are."""

    @abstractmethod
    def metric_change(self, metric: Metric) -> None:
        """Called for each metric that is added or replaced."""

    @abstractmethod
    def metric_removal(self, metric: Metric) -> None:
        """Called for each metric that is removed. Clients remove none."""

    @abstractmethod
    def configure(self, configs: Mapping[str, Any]) -> None:
        """For who makes a reporter by hand. Clients do not call it."""

    @abstractmethod
    def close(self) -> None:
        """Called when the client is closed."""


class Sensor:
    """Values of one kind, such as the latencies of requests. Thread-safe."""

    __slots__ = ("_clock", "_lock", "_windows")

    def __init__(self, clock: Clock, lock: threading.Lock, settings: MetricSettings) -> None:
        self._clock = clock
        self._lock = lock
        self._windows = Windows(settings.window_seconds, settings.samples, clock.monotonic())

    def record(self, value: float) -> None:
        """Add a value."""
        now = self._clock.monotonic()
        with self._lock:
            self._windows.record(value, now)

    def rate(self) -> float:
        """The sum of the values a second, over the last windows."""
        return self._of(self._windows.rate)

    def count_rate(self) -> float:
        """How many values a second, over the last windows."""
        return self._of(self._windows.count_rate)

    def average(self) -> float:
        """Of the values of the last windows, 0 for none."""
        return self._of(self._windows.average)

    def maximum(self) -> float:
        """Of the values of the last windows, 0 for none."""
        return self._of(self._windows.maximum)

    def total(self) -> float:
        """The sum of all values there ever were."""
        return self._windows.total

    def count(self) -> float:
        """How many values there ever were."""
        return self._windows.count

    def _of(self, measure: Callable[[float], float]) -> float:
        now = self._clock.monotonic()
        with self._lock:
            return measure(now)


class Metrics:
    """The metrics of one client. Thread-safe."""

    def __init__(self, clock: Clock, settings: MetricSettings, client_id: str) -> None:
        self._clock = clock
        self._settings = settings
        self._tags = {"client-id": client_id}
        self._lock = threading.Lock()
        self._metrics: dict[MetricName, Metric] = {}
        self._reporters = [reporter() for reporter in settings.reporters] if settings.enabled else []
        for reporter in self._reporters:
            reporter.init([])
        self.add(COUNT_GROUP, "count", "how many metrics there are", lambda: len(self._metrics))

    def sensor(self) -> Sensor:
        """A new one, of these metrics' windows."""
        return Sensor(self._clock, self._lock, self._settings)

    def add(self, group: str, name: str, description: str, measure: Callable[[], float], **tags: str) -> None:
        """Register a metric. One that has the same group, name and tags is replaced."""
        metric = Metric(MetricName(name, group, description, {**self._tags, **tags}), measure)
        with self._lock:
            self._metrics = {**self._metrics, metric.metric_name: metric}  # whoever reads has the one before, whole
        for reporter in self._reporters:
            _call(reporter, "metric_change", metric)

    def values(self) -> dict[str, dict[str, float]]:
        """Every value by group and name; those of single topics are in ``raw`` only. Nothing where metrics are off."""
        found: dict[str, dict[str, float]] = {}
        for name, metric in self.raw().items():
            if name.tags == self._tags:
                found.setdefault(name.group, {})[name.name] = metric.value()
        return found

    def raw(self) -> dict[MetricName, Metric]:
        """Every metric by its name."""
        return dict(self._metrics) if self._settings.enabled else {}

    def close(self) -> None:
        """Tell the reporters that there will be no more. Values can still be read."""
        reporters, self._reporters = self._reporters, []
        for reporter in reporters:
            _call(reporter, "close")


def _call(reporter: object, method: str, *arguments: object) -> None:
    """A reporter is the program's own: what it raises is logged, and the client goes on."""
    try:
        getattr(reporter, method)(*arguments)
    except BaseException as error:
        logger.exception("%s of %s failed", method, type(reporter).__name__)
        if ends_program(error):
            raise
