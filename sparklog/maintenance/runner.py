"""Runs the tasks of a maintenance job: in this process, or in a bounded pool of processes.

    for result in ProcessPool(2).run(merge_files, plans):
        ...

A runner takes a function and its arguments, one task for each, and gives out results as they are finished, in any
order. What a task raises is raised when all others are finished and their results have been given out; of several
errors it is the first, and the others are logged. ``sparklog.spark.jobs.runner`` does the same with Spark.

A ``check`` is called by the thread that takes the results, before each task of its own and about twice a second while
it waits for others'; what it raises abandons the rest. That is how maintenance is stopped.

Rules: a task is picklable, and touches nothing but what it is given. Whoever closes the iterator before its end
abandons the tasks under way: what they have written is no part of the log.
Not for: what the tasks do, and when.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
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
"""processes. More than that on one machine is a slip of the keyboard."""

QUEUED_PER_WORKER = 2
"""tasks that are pickled ahead for each process, so that none waits and the rest take no memory."""


CHECK_SECONDS = 0.5
"""How long results are waited for between two checks."""

Check = Callable[[], None]


class StopRequested(BaseException):
    """Raised by a check: somebody wants the program to end. Not an Exception, since nothing has gone wrong."""


class TaskRunner(Protocol):
    """Runs a function once for each item and gives out what it returns, as soon as it does, in any order.

    ``workers`` is how many tasks it runs at the same time.
    """

    @property
    def workers(self) -> int: ...

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]: ...


class InProcess:
    """One task after the other in the calling thread. Thread-safe."""

    workers = 1

    def __init__(self, check: Check = lambda: None) -> None:
        self._check = check

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """See the module. Items are taken one at a time."""
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
    """So many tasks at a time, each in a process of its own making. Thread-safe.

    Processes are spawned, not forked: threads and connections of the caller are not copied into them. They live for
    one ``run``, so their memory is given back. A program that uses this has to be importable without doing anything
    (``if __name__ == "__main__":``), as Python's multiprocessing demands.
    """

    def __init__(self, workers: int, check: Check = lambda: None) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise InvalidRequestError(f"{workers} processes for tasks: choose from 1 to {MAX_WORKERS}")
        self.workers = workers
        self._check = check

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """See the module. Raises SparklogError where a process ends by itself, such as for want of memory."""
        queued = list(islice(items_left := iter(items), self.workers * QUEUED_PER_WORKER))
        if not queued:
            return
        executor = ProcessPoolExecutor(
            min(self.workers, len(queued)), multiprocessing.get_context("spawn"), initializer=_leave_signals_to_parent
        )
        finished = False
        try:
            yield from _run(executor, function, queued, items_left, self._check)
            finished = True
        except BrokenProcessPool as error:
            raise SparklogError(
                f"a process that ran {getattr(function, '__name__', function)} ended by itself: it was killed, perhaps "
                "for want of memory; what it wrote is no part of the log. Run it again with fewer processes or on Spark"
            ) from error
        finally:
            _shut_down(executor, finished)


def runner(workers: int, check: Check = lambda: None) -> TaskRunner:
    """This process for one worker, else a pool. Raises InvalidRequestError."""
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
    """Let idle processes end; those that are busy with what nobody waits for any more are told to."""
    processes = [] if finished else list((executor._processes or {}).values())
    executor.shutdown(wait=finished, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _leave_signals_to_parent() -> None:
    """Ctrl-C in a terminal reaches every process of a group; the one that started them decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def raise_first(errors: list[Exception]) -> None:
    """Raise the first of the errors, if there is one, and log the others."""
    for error in errors[1:]:
        logger.warning("another task failed: %s", error)
    if errors:
        raise errors[0]
