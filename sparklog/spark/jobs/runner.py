"""Run tasks on Spark's executors: one Spark task per item, results in the order of completion.

    for result in SparkTasks(spark, "roll segments").run(merge_files, plans):
        ...

The interface is that of ``sparklog.maintenance.runner``: the error of a task is raised after all others are finished
and their results have been yielded. Spark retries a failed task, on another executor if possible, up to
``spark.task.maxFailures`` times; a deterministic error is not retried. Results are returned by Spark's accumulators: as
soon as a task is done, and once per task, however often it ran.

Rules: runs in the user's process, with any number of items; functions, items and results are pickled (functions by
cloudpickle, so lambdas work). Closing the iterator before its end cancels the Spark job, as does an error raised by
``check``, which is called about twice a second.
Not for: rows; a task returns a few facts about what it wrote to storage.
"""

from __future__ import annotations

import logging
import pickle
import re
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry
from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from sparklog.errors import SparklogError, StorageError
from sparklog.ids import Ids, RandomIds
from sparklog.spark.own_session import is_connect
from sparklog.spark.picklable import Picklable
from sparklog.threads import Wakeup

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

CHECK_SECONDS = 0.5
"""Seconds to wait for results between two calls of ``check``."""

DEFAULT_MAX_FAILURES = 4
"""Spark's default of ``spark.task.maxFailures``."""

MOST_WORKERS = 1000
"""Tasks up to which a server of Spark Connect is asked how many it runs concurrently."""

_LOCAL = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")
_ARROW_SCHEMA = pa.schema([("number", pa.int64()), ("succeeded", pa.bool_()), ("body", pa.binary())])


class TaskOutcome(NamedTuple):
    """Outcome of the task with this number: a pickled result, or a pickled (error, traceback)."""

    number: int
    succeeded: bool
    body: bytes


class SparkTasks:
    """Runs tasks on the executors of a session. Thread-safe: several jobs may run at the same time.

    ``description`` is shown for the jobs in Spark's UI; the default is the name of the function.
    """

    def __init__(
        self,
        spark: SparkSession,
        description: str = "",
        check: Callable[[], None] = lambda: None,
        ids: Ids | None = None,
    ) -> None:
        self._spark = spark
        self._description = description
        self._check = check
        self._ids = ids or RandomIds()

    @property
    def workers(self) -> int:
        """Number of tasks that run concurrently, as far as the driver knows. Spark Connect finds it out by a job."""
        if not is_connect(self._spark):
            return self._spark.sparkContext.defaultParallelism
        numbers = self._spark.range(0, MOST_WORKERS).selectExpr("spark_partition_id() number")  # by default one a slot
        return numbers.distinct().count()

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results of all items. Raises the error of a task, or SparklogError with Spark's reason if the job
        failed."""
        payloads = [dumps(item) for item in items]
        if not payloads:
            return
        description = f"{self._description or function_name(function)}: {len(payloads)} tasks"
        code = dumps(function)
        if is_connect(self._spark):
            outcomes = run_in_arrow(self._spark, code, payloads, description)
        else:
            outcomes = self._run_in_context(code, payloads, description)
        failed: list[TaskOutcome] = []
        try:
            for outcome in outcomes:
                if outcome.succeeded:
                    yield pickle.loads(outcome.body)
                else:
                    failed.append(outcome)
        finally:
            outcomes.close()
        _raise_first(failed)

    def _run_in_context(
        self, code: bytes, payloads: list[bytes], description: str
    ) -> Generator[TaskOutcome, None, None]:
        job = _Job(self._spark, code, payloads, description, f"sparklog-{self._ids.write_id()}")
        try:
            yield from job.outcomes(self._check)
        finally:
            job.close()


class _Job:
    """One Spark job, run by a thread of its own while the caller's thread takes the outcomes."""

    def __init__(self, spark: SparkSession, code: bytes, payloads: list[bytes], description: str, group: str) -> None:
        self._context = spark.sparkContext
        self._description = description
        self._group = group
        self._count = len(payloads)
        self._arrived: deque[TaskOutcome | BaseException | None] = deque()
        self._arrival = Wakeup()
        arrivals = Arrivals()
        arrivals.report = self._report
        self._reports = self._context.accumulator([], arrivals)
        task = Task(code, self._reports, max_failures(self._context.master, self._context.getConf()))
        numbered = list(enumerate(payloads))
        self._rdd = self._context.parallelize(numbered, self._count)
        self._thread = threading.Thread(
            target=inheritable_thread_target(spark)(self._run), args=(task,), name=group, daemon=True
        )
        self._ended = False
        self._thread.start()

    def _run(self, task: Task) -> None:
        error: BaseException | None = None
        try:
            self._context.setJobGroup(self._group, self._description, interruptOnCancel=True)
            self._rdd.foreachPartition(task)
        except BaseException as raised:
            error = raised
        self._report(error)

    def _report(self, arrived: TaskOutcome | BaseException | None) -> None:
        self._arrived.append(arrived)
        self._arrival.set()

    def outcomes(self, check: Callable[[], None]) -> Iterator[TaskOutcome]:
        """Yield each task's outcome once. Raises SparklogError if the job as a whole failed."""
        seen: set[int] = set()
        while isinstance(arrival := self._next(check), TaskOutcome):
            if arrival.number not in seen:
                seen.add(arrival.number)
                yield arrival
        self._ended = True
        if arrival is not None:
            raise _job_error(self._description, arrival)
        if len(seen) != self._count:
            raise SparklogError(
                f"{self._description}: {self._count - len(seen)} of them returned no result; run it again"
            )

    def _next(self, check: Callable[[], None]) -> TaskOutcome | BaseException | None:
        while True:
            check()
            if self._arrived:
                return self._arrived.popleft()
            self._arrival.wait(CHECK_SECONDS)

    def close(self) -> None:
        """Cancel running tasks, and forget the job."""
        if not self._ended:
            self._context.cancelJobGroup(self._group)
        self._thread.join()
        _accumulatorRegistry.pop(self._reports.aid, None)


class Arrivals(Picklable, AccumulatorParam[list[TaskOutcome]]):
    """Merges outcomes for Spark: on the driver ``report`` is called with each, on executors they form a list."""

    left_out = ("report",)
    report: Callable[[TaskOutcome], None] | None = None

    def zero(self, value: list[TaskOutcome]) -> list[TaskOutcome]:
        return []

    def addInPlace(self, value1: list[TaskOutcome], value2: list[TaskOutcome]) -> list[TaskOutcome]:
        if self.report is None:
            return [*value1, *value2]
        for outcome in value2:
            self.report(TaskOutcome(*outcome))
        return []


class Task(Picklable):
    """The function that an executor calls with the one item of its partition; reports through an accumulator."""

    def __init__(self, code: bytes, reports: Accumulator[list[TaskOutcome]], failures: int) -> None:
        self._state = dumps((code, reports, failures))

    def __call__(self, items: Iterable[tuple[int, bytes]]) -> None:
        code, reports, failures = pickle.loads(self._state)
        for number, payload in items:
            context = TaskContext.get()
            attempt = 0 if context is None else context.attemptNumber()
            reports.add([run_task(code, number, payload, is_last=attempt + 1 >= failures)])


def run_task(code: bytes, number: int, payload: bytes, is_last: bool = True) -> TaskOutcome:
    """Run a task and return its outcome. An error is an outcome on the last attempt, or if it is deterministic; else it
    is raised, so that Spark retries the task."""
    try:
        body = dumps(pickle.loads(code)(pickle.loads(payload)))
    except Exception as error:
        if not is_last and (isinstance(error, StorageError) or not isinstance(error, SparklogError)):
            raise
        return TaskOutcome(number, False, _pickle_error(error))
    return TaskOutcome(number, True, body)


def max_failures(master: str | None, conf: Any) -> int:
    """Return how often Spark runs a task before its job fails: once on ``local[n]``, f times on ``local[n,f]``."""
    local = _LOCAL.fullmatch(master or "")
    if local:
        return int(local.group(1) or 1)
    return int(conf.get("spark.task.maxFailures", str(DEFAULT_MAX_FAILURES)))


def run_in_arrow(
    spark: SparkSession, code: bytes, payloads: list[bytes], description: str
) -> Generator[TaskOutcome, None, None]:
    """Run tasks through DataFrames, for Spark Connect: outcomes are yielded when all tasks are finished."""
    count = len(payloads)
    body = ArrowTask(code, payloads)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(body, "number long, succeeded boolean, body binary").collect()
    except Exception as error:
        raise _job_error(description, error) from error
    for row in rows:
        yield TaskOutcome(row.number, row.succeeded, bytes(row.body))


class ArrowTask(Picklable):
    """``Task`` as a function of Arrow batches whose one column is the number of a task."""

    def __init__(self, code: bytes, payloads: list[bytes]) -> None:
        self.code = code
        self.payloads = payloads

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = run_task(self.code, number, self.payloads[number])
                yield pa.RecordBatch.from_pylist([outcome._asdict()], schema=_ARROW_SCHEMA)


def dumps(value: object) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


# -- errors


class _ExecutorTraceback(Exception):
    """The traceback of a task on its executor; the cause of the error on the driver, so that it is printed."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _pickle_error(error: Exception) -> bytes:
    """Pickle an error and its traceback; an error that cannot be pickled becomes a SparklogError with its text."""
    trace = traceback.format_exc()
    try:
        pickled = dumps((error, trace))
        pickle.loads(pickled)
    except Exception:
        pickled = dumps((SparklogError(f"{type(error).__name__}: {error}"), trace))
    return pickled


def _raise_first(failed: list[TaskOutcome]) -> None:
    for outcome in failed[1:]:
        logger.warning("another task failed: %s", pickle.loads(outcome.body)[0])
    if failed:
        error, trace = pickle.loads(failed[0].body)
        raise error from _ExecutorTraceback(trace)


def _job_error(description: str, error: BaseException) -> SparklogError:
    from sparklog.spark.jobs.batch import reason  # imports the data source, which only a failure needs

    failed = SparklogError(f"{description} on Spark failed: {reason(error)}")
    failed.__cause__ = error
    return failed


def function_name(function: Callable[..., object]) -> str:
    """Return a function's name for messages, also for a functools.partial."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
