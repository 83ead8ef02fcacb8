"""Shared by the measuring and verifying tools: throttling, stop requests, lines of JSON, and metrics."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from sparklog.clock import Clock

MEGABYTE = 1024 * 1024
MIN_SLEEP_SECONDS = 0.002
"""Shorter sleeps are accumulated, because a sleep is never exact."""
MAX_SLEEP_SECONDS = 0.1


_LETTERS = bytes(65 + byte % 26 for byte in range(256))


def letters(seed: bytes, size: int) -> bytes:
    """Return this many capital letters, which depend only on the seed."""
    return hashlib.shake_128(seed).digest(size).translate(_LETTERS)


def percentiles(ordered: Sequence[int], *parts: float) -> list[int]:
    """Return the values below which these parts of a sorted sequence lie."""
    return [ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in parts]


class StopRequest:
    """Turns SIGTERM, SIGHUP and Ctrl-C into a request that takes effect between two records. Main thread only.

    Code that waits for input also waits for ``descriptor``, which becomes readable on a request. A SIGHUP that is
    ignored, as under ``nohup``, stays ignored.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.descriptor: int | None = None
        self._write_end = -1
        self._wakeup_before = -1
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self.descriptor, self._write_end = os.pipe()
            os.set_blocking(self._write_end, False)
            self._wakeup_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
            for number in stop_signals():
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.descriptor is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self.descriptor)
            os.close(self._write_end)
            self.descriptor = None

    def __bool__(self) -> bool:
        return self.signal != 0

    @property
    def exit_code(self) -> int:
        """The shell's exit code for a process ended by the signal: 143, 129 or 130; 0 without a request."""
        return 128 + self.signal if self.signal else 0

    def _request(self, number: int, _: FrameType | None) -> None:
        if self.signal:  # a second request takes effect immediately
            raise KeyboardInterrupt
        self.signal = number


def stop_signals() -> list[signal.Signals]:
    """Return the signals that end a tool: SIGHUP too, unless it was ignored when the process started."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


class RateLimit:
    """Limits the rate of a loop; a negative rate means no limit. ``on_wait`` is called repeatedly while it waits. Not
    thread-safe."""

    def __init__(
        self, clock: Clock, per_second: float, stop: StopRequest, on_wait: Callable[[], object] | None = None
    ) -> None:
        self._clock = clock
        self._on_wait = on_wait
        self._rate = per_second
        self._stop = stop
        self._start = clock.monotonic()

    def wait(self, done: int) -> None:
        if self._rate < 0:
            return
        due = self._start + (done / self._rate if self._rate else float("inf"))
        remaining = due - self._clock.monotonic()
        max_sleep = MAX_SLEEP_SECONDS if self._on_wait is None else MIN_SLEEP_SECONDS
        while remaining > MIN_SLEEP_SECONDS and not self._stop:
            self._clock.sleep(min(remaining, max_sleep))
            if self._on_wait is not None:
                self._on_wait()
            remaining = due - self._clock.monotonic()


class EventLines:
    """Prints events as Kafka's verifiable tools do: one object per line, time and name first. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()

    def emit(self, name: str, **fields: object) -> None:
        event = {"timestamp": self._clock.now_ms(), "name": name, **fields}
        line = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        with self._lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def print_metrics(metrics: Mapping[str, Mapping[str, object]], client_id: str) -> None:
    """Print a client's metrics by group and name, as Kafka's tools do."""
    by_name = {
        f"{group}:{name}:{{client-id={client_id}}}": value
        for group, values in metrics.items()
        for name, value in values.items()
    }
    width = max(map(len, by_name), default=0)
    print(f"\n{'Metric Name':<{width}}   Value")
    for name in sorted(by_name):
        value = by_name[name]
        print(f"{name:<{width}} : {f'{value:.3f}' if isinstance(value, float) else value}")
