"""Answers scrapes: any number of them costs one read of the log a second at most, and none waits long for a storage.

    collector = Collector(ClusterMetrics(coordinator, Selection()), coordinator.log.clock)
    collector.scrape()

A scrape starts a read in a thread of its own, or joins the one that runs. A read that fails or takes too long leaves
the values of the last one, with ``sparklog_up 0``; while a read hangs, scrapes are answered at once.

Rules: thread-safe; a failure is logged once, not at every scrape.
Not for: the values (``cluster_metrics``), and HTTP (``server``).
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Mapping
from typing import Protocol

from sparklog.clock import Clock
from sparklog.monitoring.exporter.families import BUILD_FAMILIES, EXPORTER_FAMILIES
from sparklog.monitoring.exporter.text import Labels, sample_lines, with_header
from sparklog.types import printable

logger = logging.getLogger(__name__)

READ_SECONDS = 1.0
"""seconds between the starts of two reads: two requests for each, as long as nobody commits."""

WAIT_SECONDS = 4.0
"""seconds after which a scrape stops waiting for a read. Prometheus gives up after 10 by default."""


class Readable(Protocol):
    """What a collector reads: ``read`` returns text, and raises if the storage does not answer."""

    @property
    def unread_commits(self) -> int: ...

    def read(self) -> str: ...


class Collector:
    """The metrics of a cluster as bytes, and those of the exporter itself. Thread-safe."""

    def __init__(
        self, metrics: Readable, clock: Clock, labels: Mapping[str, str] | None = None, version: str = ""
    ) -> None:
        """``labels`` are those that every sample has, as in ``metrics``; ``version`` is that of the program."""
        self._metrics = metrics
        self._clock = clock
        self._labels = Labels(labels or {})
        self._version = version
        self._changed = threading.Condition()
        self._is_reading = False
        self._begun = -math.inf
        self._text = b""
        self._is_up = False
        self._errors = 0
        self._unread_commits = 0
        self._seconds: float | None = None
        self._read_ms: int | None = None
        self._problem = ""

    def scrape(self, wait_seconds: float = WAIT_SECONDS) -> bytes:
        """Return all metrics, at most a second old if the storage answers within ``wait_seconds``, else the last."""
        with self._changed:
            now = self._clock.monotonic()
            if not self._is_reading and now - self._begun >= READ_SECONDS:
                self._begun = now
                self._start_reading()
            remaining = self._begun + wait_seconds - now
            if self._is_reading and remaining > 0:
                self._changed.wait_for(lambda: not self._is_reading, remaining)
            return self._text + self._own_text(self._is_up and not self._is_reading).encode()

    def _start_reading(self) -> None:
        """Read in another thread, which waits for the lock that the caller holds."""
        try:
            threading.Thread(target=self._read, name="sparklog-metrics", daemon=True).start()
        except RuntimeError as error:  # there are too many threads: the next scrape tries again
            self._take(None, printable(error))
        else:
            self._is_reading = True

    def read_once(self) -> bytes:
        """Read in this thread and return the metrics without counters that begin with this process.

        For a program that ends afterwards. Raises as ``metrics.read``.
        """
        self._begun = self._clock.monotonic()
        self._take(self._metrics.read().encode("utf-8", "backslashreplace"), "")
        return self._text + self._own_text(True, with_counters=False).encode()

    def _read(self) -> None:
        text, problem = None, "it was interrupted"
        try:
            text = self._metrics.read().encode("utf-8", "backslashreplace")
            problem = ""
        except Exception as error:
            problem = f"{type(error).__name__}: {printable(error)}"
            logger.debug("the metrics cannot be read", exc_info=True)
        finally:
            with self._changed:
                self._take(text, problem)
                self._changed.notify_all()

    def _take(self, text: bytes | None, problem: str) -> None:
        self._is_reading = False
        self._is_up = text is not None
        self._seconds = self._clock.monotonic() - self._begun
        if text is None:
            self._errors += 1
        else:
            self._text, self._read_ms = text, self._clock.now_ms()
            self._unread_commits = self._metrics.unread_commits
        if problem != self._problem:
            logger.warning("%s", f"the metrics cannot be read: {problem}" if problem else "the metrics are read again")
            self._problem = problem

    def _own_text(self, is_up: bool, with_counters: bool = True) -> str:
        read_seconds = None if self._read_ms is None else self._read_ms / 1000
        values = (int(is_up), self._errors, self._seconds, read_seconds, self._unread_commits)
        families = (*EXPORTER_FAMILIES, *BUILD_FAMILIES)
        lines = (
            *sample_lines(EXPORTER_FAMILIES, [(self._labels.of(()), values)]),
            *sample_lines(BUILD_FAMILIES, [(self._labels.of(("version",), self._version), (1,))]),
        )
        return "".join(
            with_header(family, text)
            for family, text in zip(families, lines, strict=True)
            if with_counters or not family.since_start
        )
