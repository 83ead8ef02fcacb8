"""Tasks on Spark's executors: results in the order they finish, original errors, retries on other executors."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql import SparkSession

from sparklog.errors import CorruptRecordError, SparklogError
from sparklog.spark.jobs.runner import SparkTasks, dumps, run_in_arrow
from tests.integration.processes import clean_environment

ROOT = Path(__file__).resolve().parent.parent.parent


def waiting() -> Callable[[str], str]:
    """Return a task that returns its path once it exists; immediately if the path has no folder."""

    def wait_for(path: str) -> str:
        while os.path.dirname(path) and not os.path.exists(path):
            time.sleep(0.01)
        return path

    return wait_for


def test_every_item_is_a_task_with_a_result(spark: SparkSession) -> None:
    def task_of(number: int) -> tuple[int, int]:
        context = TaskContext.get()
        assert context is not None
        return number, context.partitionId()

    assert sorted(SparkTasks(spark).run(task_of, range(5))) == [(number, number) for number in range(5)]
    assert list(SparkTasks(spark).run(task_of, [])) == []


def test_results_are_returned_in_the_order_they_finish(spark: SparkSession, tmp_path: Path) -> None:
    results = SparkTasks(spark).run(waiting(), [str(tmp_path / "late"), "immediate"])
    assert next(results) == "immediate"
    (tmp_path / "late").touch()
    assert list(results) == [str(tmp_path / "late")]


def test_an_error_is_raised_last_with_its_type_and_remote_traceback(spark: SparkSession) -> None:
    def odd(number: int) -> int:
        if number % 2:
            raise CorruptRecordError(f"batch {number}", path="/x")
        return number

    results: list[int] = []
    with pytest.raises(CorruptRecordError, match="batch") as failed:
        results.extend(SparkTasks(spark).run(odd, range(4)))
    assert sorted(results) == [0, 2]
    assert failed.value.path == "/x"
    assert "in odd" in str(failed.value.__cause__)


def test_the_ui_describes_the_job_and_an_abandoned_job_is_cancelled(spark: SparkSession, tmp_path: Path) -> None:
    results = SparkTasks(spark, "roll segments").run(waiting(), ["immediate", str(tmp_path / "never")])
    assert next(results) == "immediate"
    tracker = spark.sparkContext.statusTracker()
    (job,) = tracker.getActiveJobsIds()
    stages = spark.sparkContext._jsc.sc().statusStore().job(job)
    assert stages.description().get() == "roll segments: 2 tasks"
    results.close()  # type: ignore[attr-defined]
    info = tracker.getJobInfo(job)
    assert info is not None
    assert info.status == "FAILED"


def test_an_exception_of_the_check_cancels_the_job(spark: SparkSession, tmp_path: Path) -> None:
    def check() -> None:
        if (tmp_path / "running").exists():
            raise KeyboardInterrupt

    def touch_and_wait(path: str) -> None:
        Path(path, "running").touch()
        while True:
            time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        list(SparkTasks(spark, check=check).run(touch_and_wait, [str(tmp_path)]))
    assert spark.sparkContext.statusTracker().getActiveJobsIds() == []


def test_a_job_leaves_no_accumulator(spark: SparkSession) -> None:
    before = set(_accumulatorRegistry)
    list(SparkTasks(spark).run(str, range(3)))
    assert set(_accumulatorRegistry) == before


def test_a_killed_worker_is_reported_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(SparklogError, match="die: 1 tasks on Spark failed") as failed:
        list(SparkTasks(spark, "die").run(lambda _: os._exit(9), [0]))
    assert "\n" not in failed.value.message


def test_tasks_run_through_dataframes_alone_as_in_spark_connect(spark: SparkSession) -> None:
    payloads = [dumps(number) for number in range(3)]
    results = list(run_in_arrow(spark, dumps(lambda number: 6 // number), payloads, "divide"))
    assert sorted((result.number, result.succeeded) for result in results) == [(0, False), (1, True), (2, True)]


PROGRAM = """
import os, sys
from pathlib import Path
from pyspark import TaskContext
from sparklog.spark.session import sparklog_session
from sparklog.spark.jobs.runner import SparkTasks

folder = Path(sys.argv[1])

def once_wrong(number):
    if number == 1 and TaskContext.get().attemptNumber() == 0:
        raise OSError("the first attempt fails")
    if number == 2:
        try:
            os.open(folder / "killed", os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return number
        os.kill(os.getppid(), 9)  # the daemon of Python's workers
        os._exit(9)
    return number

spark = sparklog_session("local-cluster[2,1,1024]", config={"spark.executor.memory": "1g", "spark.log.level": "OFF"})
print(sorted(SparkTasks(spark).run(once_wrong, range(4))))
spark.stop()
"""


@pytest.mark.slow
def test_a_failed_task_is_retried_on_separate_executors(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        env=clean_environment(),
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == "[0, 1, 2, 3]"
