"""Tasks on an executor, without Spark."""

from __future__ import annotations

import pickle
import threading

import pytest
from pyspark import cloudpickle

from sparklog.errors import CorruptRecordError, StorageUnavailableError
from sparklog.spark.jobs.runner import Arrivals, TaskOutcome, function_name, max_failures, run_task


def code(function: object) -> bytes:
    return bytes(cloudpickle.dumps(function))


def raising(error: Exception) -> bytes:
    def fail(_: object) -> None:
        raise error

    return code(fail)


def test_a_result_is_pickled_with_its_number() -> None:
    found = run_task(code(lambda word: word * 2), 7, code("ab"))
    assert (found.number, found.succeeded, pickle.loads(found.body)) == (7, True, "abab")


@pytest.mark.parametrize("error", [StorageUnavailableError("busy"), OSError("gone"), MemoryError()])
def test_an_error_that_may_be_local_is_raised_so_that_spark_retries_elsewhere(error: Exception) -> None:
    with pytest.raises(type(error)):
        run_task(raising(error), 0, code(1), is_last=False)
    assert not run_task(raising(error), 0, code(1), is_last=True).succeeded


def test_a_permanent_error_is_reported_without_a_retry() -> None:
    found = run_task(raising(CorruptRecordError("batch 3", path="/x")), 0, code(1), is_last=False)
    error, where = pickle.loads(found.body)
    assert (type(error), error.message, error.path) == (CorruptRecordError, "batch 3", "/x")
    assert "in fail" in where


def test_the_error_for_an_unpicklable_result_describes_it() -> None:
    class Local(Exception):
        def __reduce__(self) -> tuple[object, ...]:
            raise TypeError("not me")

    error, _ = pickle.loads(run_task(code(lambda _: threading.Lock()), 0, code(1)).body)
    assert "pickle" in str(error)
    error, _ = pickle.loads(run_task(code(lambda _: (_ for _ in ()).throw(Local("odd"))), 0, code(1)).body)
    assert "Local: odd" in str(error)


@pytest.mark.parametrize(
    ("master", "failures"),
    [
        ("local", 1),
        ("local[2]", 1),
        ("local[*]", 1),
        ("local[2, 3]", 3),
        ("local-cluster[2,1,1024]", 4),
        ("yarn", 4),
        (None, 4),
    ],
)
def test_the_number_of_task_attempts_depends_on_the_master(master: str | None, failures: int) -> None:
    assert max_failures(master, {}) == failures


def test_the_configured_number_of_attempts_applies_on_a_cluster() -> None:
    assert max_failures("yarn", {"spark.task.maxFailures": "9"}) == 9


def test_outcomes_are_passed_between_executors_as_a_list() -> None:
    arrivals = pickle.loads(cloudpickle.dumps(Arrivals()))
    one, two = TaskOutcome(0, True, b""), TaskOutcome(1, True, b"")
    assert arrivals.addInPlace(arrivals.addInPlace(arrivals.zero([]), [one]), [two]) == [one, two]


def test_a_job_is_named_after_its_function() -> None:
    from functools import partial

    assert function_name(partial(run_task, b"")) == "run_task"
