"""Runs the tasks of a maintenance job: in this process, or in a bounded pool of processes.

    for result in ProcessPool(2).run(merge_files, plans):
        ...

A runner takes a function and its arguments, one task for each, and yields the results as tasks finish, in any order. An
exception of a task is raised after all other tasks have finished and their results have been yielded; of several, the
first is raised and the others are logged. ``sparklog.spark.jobs.runner`` does the same with Spark.

``check`` is called by the thread that iterates over the results: before each task that runs in this thread, and about
twice a second while it waits for tasks elsewhere. An exception that it raises abandons the remaining tasks; this is how
maintenance is stopped.

Rules: a task is picklable, and uses only its arguments. Closing the iterator early abandons the running tasks: what
they have written is not part of the log.
Not for: what the tasks do, and when.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, Protocol, TypeVar

from sparklog.errors import InvalidRequestError, SparklogError

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_WORKERS = 256
"""Maximum number of processes; a larger value is almost certainly a typo."""

QUEUED_PER_WORKER = 2
"""Tasks that are pickled ahead for each process, so that no process waits and the other tasks take no memory."""


CHECK_SECONDS = 0.5
"""Seconds to wait for results between two checks."""

Check = Callable[[], None]


class StopRequested(BaseException):
    """Raised by a check to end the program. Not an Exception, since nothing has gone wrong."""


class TaskRunner(Protocol):
    """Runs a function once for each item and yields its results as soon as they are available, in any order.

    ``workers`` is the number of tasks that run at the same time.
    """

    @property
    def workers(self) -> int: ...

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]: ...


class InProcess:
    """Runs one task after the other in the calling thread. Thread-safe."""

    workers = 1

    def __init__(self, check: Check = lambda: None) -> None:
        self._check = check

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Run the tasks as the module describes. Items are taken one at a time."""
        errors: list[Exception] = []
        for item in items:
            self._check()
            try:
                result = function(item)
            except Exception as error:
                errors.append(error)
            else:
                yield result
        raise_first(errors)


class ProcessPool:
    """Runs up to ``workers`` tasks at a time in processes that it starts. Thread-safe.

    Processes are spawned, not forked: threads and connections of the caller are not copied into them. They live for
    one ``run``, so their memory is freed afterwards. The main program must be importable without side effects
    (``if __name__ == "__main__":``), as Python's multiprocessing requires.
    """

    def __init__(self, workers: int, check: Check = lambda: None) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise InvalidRequestError(
                f"invalid number of worker processes: {workers} is not between 1 and {MAX_WORKERS}"
            )
        self.workers = workers
        self._check = check

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Run the tasks as the module describes. Raises SparklogError if a process dies, as when out of memory."""
        queued = list(islice(remaining_items := iter(items), self.workers * QUEUED_PER_WORKER))
        if not queued:
            return
        executor = ProcessPoolExecutor(
            min(self.workers, len(queued)), multiprocessing.get_context("spawn"), initializer=_follow_parent
        )
        finished = False
        try:
            yield from _run(executor, function, queued, remaining_items, self._check)
            finished = True
        except BrokenProcessPool as error:
            raise SparklogError(
                f"a process that ran {getattr(function, '__name__', function)} died: it was killed, perhaps because it "
                "ran out of memory; what it wrote is not part of the log. Retry with fewer processes, or on Spark"
            ) from error
        finally:
            _shut_down(executor, finished)


def runner(workers: int, check: Check = lambda: None) -> TaskRunner:
    """Return a runner in this process for one worker, else a pool. Raises InvalidRequestError."""
    return InProcess(check) if workers == 1 else ProcessPool(workers, check)


def _run(
    executor: ProcessPoolExecutor,
    function: Callable[[Any], Result],
    queued: list[Any],
    more: Iterator[Any],
    check: Check,
) -> Iterator[Result]:
    errors: list[Exception] = []
    pending: set[Future[Result]] = {executor.submit(function, item) for item in queued}
    while pending:
        check()
        done, pending = wait(pending, CHECK_SECONDS, FIRST_COMPLETED)
        pending |= {executor.submit(function, item) for item in islice(more, len(done))}
        for future in done:
            error = future.exception()
            if error is None:
                yield future.result()
            elif isinstance(error, BrokenProcessPool) or not isinstance(error, Exception):
                raise error
            else:
                errors.append(error)
    raise_first(errors)


def _shut_down(executor: ProcessPoolExecutor, finished: bool) -> None:
    """Wait for the idle processes to end; if tasks were abandoned, terminate the processes that run them."""
    processes = [] if finished else list((executor._processes or {}).values())
    executor.shutdown(wait=finished, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _follow_parent() -> None:
    """Ignore SIGINT, which Ctrl-C sends to the whole process group: the parent decides what to do. End with the parent:
    one that is killed, as by the OOM killer, does not stop its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def raise_first(errors: list[Exception]) -> None:
    """Raise the first error, if there is one, and log the others."""
    for error in errors[1:]:
        logger.warning("another task failed: %s", error)
    if errors:
        raise errors[0]
