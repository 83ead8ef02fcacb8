"""What a task on an executor does, without Spark."""

from __future__ import annotations

import pickle
import threading

import pytest
from pyspark import cloudpickle

from sparklog.errors import CorruptRecordError, StorageUnavailableError
from sparklog.spark.jobs.runner import Arrivals, Outcome, _name, max_failures, run_task


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
def test_an_error_that_may_be_this_executors_alone_is_raised_for_spark_to_try_elsewhere(error: Exception) -> None:
    with pytest.raises(type(error)):
        run_task(raising(error), 0, code(1), is_last=False)
    assert not run_task(raising(error), 0, code(1), is_last=True).succeeded


def test_an_error_that_is_the_same_everywhere_is_reported_at_once() -> None:
    found = run_task(raising(CorruptRecordError("batch 3", path="/x")), 0, code(1), is_last=False)
    error, where = pickle.loads(found.body)
    assert (type(error), error.message, error.path) == (CorruptRecordError, "batch 3", "/x")
    assert "in fail" in where


def test_what_cannot_be_pickled_is_an_error_that_says_what_it_was() -> None:
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
def test_spark_tries_a_task_as_often_as_its_master_does(master: str | None, failures: int) -> None:
    assert max_failures(master, {}) == failures


def test_the_configured_number_of_tries_holds_on_a_cluster() -> None:
    assert max_failures("yarn", {"spark.task.maxFailures": "9"}) == 9


def test_outcomes_stay_a_list_on_executors() -> None:
    arrivals = pickle.loads(cloudpickle.dumps(Arrivals()))
    one, two = Outcome(0, True, b""), Outcome(1, True, b"")
    assert arrivals.addInPlace(arrivals.addInPlace(arrivals.zero([]), [one]), [two]) == [one, two]


def test_a_job_is_named_after_its_function() -> None:
    from functools import partial

    assert _name(partial(run_task, b"")) == "run_task"
