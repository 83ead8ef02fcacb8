"""Runs tasks on Spark's executors: one Spark task per item, results as they are finished.

    for result in SparkTasks(spark, "roll segments").run(merge_files, plans):
        ...

The interface is that of ``sparklog.maintenance.runner``: what a task raises is raised when all others are finished and
their results have been given out. A task that fails is tried again by Spark, elsewhere if it can, as often as
``spark.task.maxFailures`` says; an error that will be the same everywhere is not. Results come back the way Spark's
accumulators do, which is as soon as a task is done, and once for each, however often it ran.

Rules: runs in the user's process, with any number of items; functions, items and results are pickled (functions by
cloudpickle, so a lambda will do). Whoever closes the iterator before its end cancels the Spark job, and so does what
``check`` raises, which is called about twice a second.
Not for: rows; a task returns a few facts about what it wrote to storage.
"""

from __future__ import annotations

import logging
import pickle
import re
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.accumulators import Accumulator, AccumulatorParam, _accumulatorRegistry
from pyspark.sql import SparkSession
from pyspark.util import inheritable_thread_target

from sparklog.errors import SparklogError, StorageError
from sparklog.ids import Ids, RandomIds
from sparklog.spark.picklable import Picklable

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

CHECK_SECONDS = 0.5
"""How long results are waited for between two checks."""

DEFAULT_MAX_FAILURES = 4
"""``spark.task.maxFailures`` where it is not set (Spark's default)."""

_LOCAL = re.compile(r"local(?:\[[^,\]]*(?:,\s*(\d+)\s*)?\])?")
_ARROW_SCHEMA = pa.schema([("number", pa.int64()), ("succeeded", pa.bool_()), ("body", pa.binary())])


class Outcome(NamedTuple):
    """What became of the task with this number: a pickled result, or a pickled (error, traceback)."""

    number: int
    succeeded: bool
    body: bytes


class SparkTasks:
    """Runs tasks on the executors of a session. Thread-safe: several jobs may run at the same time.

    ``description`` is what Spark's UI shows the jobs as; without it the name of the function.
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
        """How many tasks run at the same time, as far as the driver can tell."""
        return 1 if _is_connect(self._spark) else self._spark.sparkContext.defaultParallelism

    def run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """See the module. Raises what a task raised, or SparklogError with Spark's reason where the job failed."""
        payloads = [_dumps(item) for item in items]
        if not payloads:
            return
        description = f"{self._description or _name(function)}: {len(payloads)} tasks"
        code = _dumps(function)
        if _is_connect(self._spark):
            outcomes = run_in_arrow(self._spark, code, payloads, description)
        else:
            outcomes = self._run_in_context(code, payloads, description)
        failed: list[Outcome] = []
        try:
            for outcome in outcomes:
                if outcome.succeeded:
                    yield pickle.loads(outcome.body)
                else:
                    failed.append(outcome)
        finally:
            outcomes.close()
        _raise_first(failed)

    def _run_in_context(self, code: bytes, payloads: list[bytes], description: str) -> Generator[Outcome, None, None]:
        job = _Job(self._spark, code, payloads, description, f"sparklog-{self._ids.write_id()}")
        try:
            yield from job.outcomes(self._check)
        finally:
            job.close()


def _is_connect(spark: SparkSession) -> bool:
    """A session of Spark Connect has no context, and so no RDDs and accumulators."""
    return getattr(spark, "_jvm", None) is None


class _Job:
    """One Spark job, run by a thread of its own while another one takes the outcomes."""

    def __init__(self, spark: SparkSession, code: bytes, payloads: list[bytes], description: str, group: str) -> None:
        self._context = spark.sparkContext
        self._description = description
        self._group = group
        self._count = len(payloads)
        self._arrived: SimpleQueue[Outcome | BaseException | None] = SimpleQueue()
        arrivals = Arrivals()
        arrivals.queue = self._arrived
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
        self._arrived.put(error)

    def outcomes(self, check: Callable[[], None]) -> Iterator[Outcome]:
        """Each task's outcome once. Raises SparklogError where the job as a whole failed."""
        seen: set[int] = set()
        while isinstance(found := self._next(check), Outcome):
            if found.number not in seen:
                seen.add(found.number)
                yield found
        self._ended = True
        if found is not None:
            raise _job_error(self._description, found)
        if len(seen) != self._count:
            raise SparklogError(
                f"{self._description}: {self._count - len(seen)} of them returned nothing; run it again"
            )

    def _next(self, check: Callable[[], None]) -> Outcome | BaseException | None:
        while True:
            check()
            try:
                return self._arrived.get(timeout=CHECK_SECONDS)
            except Empty:
                continue

    def close(self) -> None:
        """Cancel what still runs, and forget the job."""
        if not self._ended:
            self._context.cancelJobGroup(self._group)
        self._thread.join()
        _accumulatorRegistry.pop(self._reports.aid, None)


class Arrivals(Picklable, AccumulatorParam[list[Outcome]]):
    """What Spark merges outcomes with: on the driver each goes into ``queue``, on executors they are a list."""

    queue: SimpleQueue[Outcome | BaseException | None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Picklable.__reduce__(Arrivals())  # a queue stays where it is

    def zero(self, value: list[Outcome]) -> list[Outcome]:
        return []

    def addInPlace(self, value1: list[Outcome], value2: list[Outcome]) -> list[Outcome]:
        if self.queue is None:
            return [*value1, *value2]
        for outcome in value2:
            self.queue.put(Outcome(*outcome))
        return []


class Task(Picklable):
    """What an executor calls with the one item of its partition, and reports through an accumulator."""

    def __init__(self, code: bytes, reports: Accumulator[list[Outcome]], failures: int) -> None:
        self._state = _dumps((code, reports, failures))

    def __call__(self, items: Iterable[tuple[int, bytes]]) -> None:
        code, reports, failures = pickle.loads(self._state)
        for number, payload in items:
            context = TaskContext.get()
            attempt = 0 if context is None else context.attemptNumber()
            reports.add([outcome_of(code, number, payload, is_last=attempt + 1 >= failures)])


def outcome_of(code: bytes, number: int, payload: bytes, is_last: bool = True) -> Outcome:
    """Run a task. An error is an outcome on the last attempt, or if it would be the same on all; else it is raised."""
    try:
        body = _dumps(pickle.loads(code)(pickle.loads(payload)))
    except Exception as error:
        if not is_last and (isinstance(error, StorageError) or not isinstance(error, SparklogError)):
            raise
        return Outcome(number, False, _packed(error))
    return Outcome(number, True, body)


def max_failures(master: str | None, conf: Any) -> int:
    """How often Spark runs a task before its job fails: once on ``local[n]``, f times on ``local[n,f]``."""
    local = _LOCAL.fullmatch(master or "")
    if local:
        return int(local.group(1) or 1)
    return int(conf.get("spark.task.maxFailures", str(DEFAULT_MAX_FAILURES)))


def run_in_arrow(
    spark: SparkSession, code: bytes, payloads: list[bytes], description: str
) -> Generator[Outcome, None, None]:
    """The same through DataFrames alone, for Spark Connect: outcomes come when all tasks are finished."""
    count = len(payloads)
    body = ArrowTask(code, payloads)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(body, "number long, succeeded boolean, body binary").collect()
    except Exception as error:
        raise _job_error(description, error) from error
    for row in rows:
        yield Outcome(row.number, row.succeeded, bytes(row.body))


class ArrowTask(Picklable):
    """``Task`` as a function of Arrow batches whose one column is the number of a task."""

    def __init__(self, code: bytes, payloads: list[bytes]) -> None:
        self.code = code
        self.payloads = payloads

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcome = outcome_of(self.code, number, self.payloads[number])
                yield pa.RecordBatch.from_pylist([outcome._asdict()], schema=_ARROW_SCHEMA)


def _dumps(value: object) -> bytes:
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


# -- errors


class _ExecutorTraceback(Exception):
    """Where a task failed on its executor; the cause of what is raised on the driver, so that it is printed."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def _packed(error: Exception) -> bytes:
    """An error and where it happened, also where the error itself cannot be pickled."""
    where = traceback.format_exc()
    try:
        packed = _dumps((error, where))
        pickle.loads(packed)
    except Exception:
        packed = _dumps((SparklogError(f"{type(error).__name__}: {error}"), where))
    return packed


def _raise_first(failed: list[Outcome]) -> None:
    for outcome in failed[1:]:
        logger.warning("another task failed: %s", pickle.loads(outcome.body)[0])
    if failed:
        error, where = pickle.loads(failed[0].body)
        raise error from _ExecutorTraceback(where)


def _job_error(description: str, error: BaseException) -> SparklogError:
    from sparklog.spark.jobs.batch import reason  # which imports the data source; only who fails needs it

    failed = SparklogError(f"{description} on Spark failed: {reason(error)}")
    failed.__cause__ = error
    return failed


def _name(function: Callable[..., object]) -> str:
    """A function's name for people, also that of a functools.partial."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
