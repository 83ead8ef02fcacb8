"""What the measuring and verifying tools share: pacing, a request to stop, lines of JSON, and metrics."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from sparklog.clock import Clock

SHORTEST_SLEEP_SECONDS = 0.002
"""Shorter ones are saved up: a sleep is never exact."""
LONGEST_SLEEP_SECONDS = 0.1
"""A request to stop is seen after it at the latest."""


class StopRequest:
    """SIGTERM, SIGHUP and Ctrl-C as a wish that is granted between two records. Only the main thread can see to that.

    What waits for input besides waits for ``descriptor`` too, which can be read once there is a wish. A SIGHUP that is
    ignored, as ``nohup`` has it, stays ignored.
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
        """What a shell shows of a process that the signal ended: 143, 129 and 130; 0 if nobody asked."""
        return 128 + self.signal if self.signal else 0

    def _request(self, number: int, _: FrameType | None) -> None:
        if self.signal:  # asked twice: at once
            raise KeyboardInterrupt
        self.signal = number


def stop_signals() -> list[signal.Signals]:
    """The signals that ask a tool to end: a hang-up too, unless whoever started it wanted those ignored."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


class Throttle:
    """Keeps a loop at a rate. Negative rates are no limit; ``meanwhile`` is called again and again while it waits. Not
    thread-safe."""

    def __init__(
        self, clock: Clock, per_second: float, stop: StopRequest, meanwhile: Callable[[], object] | None = None
    ) -> None:
        self._clock = clock
        self._meanwhile = meanwhile
        self._rate = per_second
        self._stop = stop
        self._start = clock.monotonic()

    def wait(self, done: int) -> None:
        """Wait until the next one is due after so many, or until somebody wants to stop."""
        if self._rate < 0:
            return
        due = self._start + (done / self._rate if self._rate else float("inf"))
        left = due - self._clock.monotonic()
        longest = LONGEST_SLEEP_SECONDS if self._meanwhile is None else SHORTEST_SLEEP_SECONDS
        while left > SHORTEST_SLEEP_SECONDS and not self._stop:
            self._clock.sleep(min(left, longest))
            if self._meanwhile is not None:
                self._meanwhile()
            left = due - self._clock.monotonic()


class EventLines:
    """Events as Kafka's verifiable tools print them: an object a line, with a time and a name first. Thread-safe."""

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
    """A client's metrics by group and name, as Kafka's tools print them."""
    shown = {
        f"{group}:{name}:{{client-id={client_id}}}": value
        for group, values in metrics.items()
        for name, value in values.items()
    }
    wide = max(map(len, shown), default=0)
    print(f"\n{'Metric Name':<{wide}}   Value")
    for name in sorted(shown):
        value = shown[name]
        print(f"{name:<{wide}} : {f'{value:.3f}' if isinstance(value, float) else value}")
