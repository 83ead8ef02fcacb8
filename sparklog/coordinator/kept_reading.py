"""Reads the log while its owner is busy with something else, or waits.

Commits are removed once a checkpoint covers them and they are ten minutes old, on a cluster that commits much. A
process that did not read them by then loads the checkpoint, and nothing tells it any more whether the root was restored
from a copy meanwhile; so what it found before counts for nothing (``CommitLog.unlinked_jumps``).
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from sparklog.coordinator.coordinator import Coordinator
from sparklog.threads import Wakeup, start_thread

logger = logging.getLogger(__name__)

SECONDS = 30.0
"""between two reads: far less than half of what commits are kept, after which a process counts as away"""


@contextmanager
def keep_reading(coordinator: Coordinator) -> Iterator[None]:
    """Read the log every ``SECONDS`` within the block."""
    end = start_reading(coordinator)
    try:
        yield
    finally:
        end()


def start_reading(coordinator: Coordinator) -> Callable[[], None]:
    """Read the log every ``SECONDS`` in a thread that nobody waits for; return what ends it. The thread also ends when
    nobody has that any more. If none can be started, the log is read as often as its owner does."""
    ended = Wakeup()
    end = ended.set
    is_owned = weakref.ref(end)  # not after an interrupt in this function

    def is_over(seconds: float) -> bool:
        return ended.wait(seconds) or is_owned() is None

    work = partial(read_until, coordinator, is_over)
    try:
        start_thread(threading.Thread(target=work, name="sparklog-kept-reading", daemon=True))
    except RuntimeError as error:  # the process or its container has as many threads as it may have
        logger.warning("the log of %s is not read meanwhile: %s", coordinator.store.root, error)
    return end


def read_until(coordinator: Coordinator, wait: Callable[[float], bool]) -> None:
    """Read the log every ``SECONDS``, until ``wait``, given seconds, returns true. Survives any error, which the next
    reader meets as well."""
    while not wait(SECONDS):
        if not coordinator.claim_check(SECONDS / 2):  # for other work in this process
            continue
        try:
            coordinator.refresh()
        except Exception as error:
            logger.info("could not read the log of %s: %s", coordinator.store.root, error)
