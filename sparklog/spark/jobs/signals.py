"""Signals that reach Spark's JVM instead of the program: ``kill`` of spark-submit, a service manager, a pod's first
process.

By default the JVM ends at once, and the program, which would have stopped cleanly, loses its Spark.

Rules: the JVM passes a signal on to the program and stays; at a second one it ends as before. Nothing is passed on that
the program has received itself: a terminal and systemd signal both processes.
Not for: what a signal does, which is the program's own handler.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started

logger = logging.getLogger(__name__)

OWN_SIGNAL_SECONDS = 0.5
"""Seconds in which a signal that was sent to both processes reaches the program, too."""
PASSED_ON = (signal.SIGTERM, signal.SIGINT)


class SignalHandler:
    """Passes one signal on, once. The JVM calls it in a thread of its own."""

    def __init__(self, number: int, is_stopping: Callable[[], bool], ended: threading.Event) -> None:
        self.number = number
        self._is_stopping = is_stopping
        self._ended = ended
        self.restore: Callable[[], object] = lambda: None

    def handle(self, java_signal: object) -> None:
        """Wait for the program's own signal; send it one if none came."""
        self.restore()
        if not self._ended.wait(OWN_SIGNAL_SECONDS) and not self._is_stopping():
            os.kill(os.getpid(), self.number)

    class Java:
        """What py4j reads: the interface."""

        implements = ["sun.misc.SignalHandler"]  # noqa: RUF012 - py4j's form


@contextmanager
def signals_of_jvm(is_stopping: Callable[[], bool]) -> Iterator[None]:
    """Pass SIGTERM and SIGINT on to this process inside the block, instead of ending the JVM.

    ``is_stopping``: whether this process has received one. Best effort; with Spark Connect there is no JVM.
    """
    ended = threading.Event()
    handlers: list[SignalHandler] = []
    try:
        gateway: Any = SparkContext._gateway
        try:
            for number in PASSED_ON if gateway is not None else ():
                handlers.append(_install(gateway, SignalHandler(number, is_stopping, ended)))
        except Exception as error:  # a JVM that does not let its handlers be replaced
            logger.warning("a signal to Spark's JVM ends it at once: %s", error)
        yield
    finally:
        ended.set()
        for handler in handlers:
            with suppress(Exception):  # the JVM has ended
                handler.restore()


def _install(gateway: Any, handler: SignalHandler) -> SignalHandler:
    """Let the JVM call the handler at its signal until ``restore``."""
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    signals = gateway.jvm.sun.misc.Signal
    number = signals(signal.Signals(handler.number).name.removeprefix("SIG"))
    before = signals.handle(number, handler)
    handler.restore = lambda: signals.handle(number, before)
    return handler
