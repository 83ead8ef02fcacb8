"""Reads the log while its owner is busy with something else.

Commits are removed once a checkpoint covers them and they are ten minutes old, on a cluster that commits much. A
process that did not read them by then loads the checkpoint, and nothing tells it any more whether the root was restored
from a copy meanwhile; so what it found before counts for nothing (``CommitLog.unlinked_jumps``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import SparklogError

logger = logging.getLogger(__name__)

SECONDS = 60.0
"""between two reads: far less than half of what commits are kept, after which a process counts as away"""


@contextmanager
def keep_reading(coordinator: Coordinator) -> Iterator[None]:
    """Read the log each minute within the block, in a thread that nobody waits for. An error is for the next reader."""
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(SECONDS):
            with suppress(SparklogError):
                coordinator.refresh()

    try:
        threading.Thread(target=read, name="sparklog-kept-reading", daemon=True).start()
    except RuntimeError as error:  # no more threads: it goes on with what it reads by itself
        logger.warning("cannot read the commits of %s meanwhile: %s", coordinator.store.root, error)
    try:
        yield
    finally:
        ended.set()
