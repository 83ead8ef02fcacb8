"""Tasks in this process and in a pool: results as they finish, errors after all results."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparklog.errors import InvalidRequestError, SparklogError, StorageError
from sparklog.maintenance.runner import InProcess, ProcessPool, StopRequested, TaskRunner, runner

RUNNERS = [InProcess(), ProcessPool(2)]


def half(number: int) -> float:
    if number % 2:
        raise StorageError(f"{number} is odd", path=f"/{number}")
    return number / 2


def process_of(_: int) -> int:
    return os.getpid()


def wait_for(path: str) -> str:
    """Return once the file exists; return a path without a folder immediately."""
    while os.path.dirname(path) and not os.path.exists(path):
        time.sleep(0.01)
    return path


def die(_: int) -> None:
    os._exit(9)


@pytest.mark.parametrize("tasks", RUNNERS)
def test_every_item_has_its_result(tasks: TaskRunner) -> None:
    assert sorted(tasks.run(half, range(0, 20, 2))) == list(range(10))


@pytest.mark.parametrize("tasks", RUNNERS)
def test_no_items_give_no_results(tasks: TaskRunner) -> None:
    assert list(tasks.run(half, [])) == []


@pytest.mark.parametrize("tasks", RUNNERS)
def test_an_error_is_raised_after_the_results_of_all_others_and_keeps_its_fields(
    tasks: TaskRunner, caplog: pytest.LogCaptureFixture
) -> None:
    results: list[float] = []
    with pytest.raises(StorageError, match="is odd") as failed, caplog.at_level(logging.WARNING):
        results.extend(tasks.run(half, [0, 1, 2, 3, 4]))
    assert sorted(results) == [0, 1, 2]
    assert failed.value.path in ("/1", "/3")
    assert "another task failed" in caplog.text


def test_a_pool_returns_results_as_they_finish(tmp_path: Path) -> None:
    results = ProcessPool(2).run(wait_for, [str(tmp_path / "late"), "at once"])
    assert next(results) == "at once"
    (tmp_path / "late").touch()
    assert list(results) == [str(tmp_path / "late")]


def test_a_pool_works_in_other_processes_and_takes_few_items_ahead() -> None:
    items_taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            items_taken.append(number)
            yield number

    results = ProcessPool(2).run(process_of, items())
    assert next(results) != os.getpid()
    assert len(items_taken) <= 8
    assert len(set(results)) <= 2


def test_an_abandoned_pool_does_not_wait_for_its_tasks(tmp_path: Path) -> None:
    results = ProcessPool(2).run(wait_for, ["at once", str(tmp_path / "never")])
    assert next(results) == "at once"
    results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [InProcess, lambda check: ProcessPool(2, check)])
def test_a_check_can_stop_the_tasks(kind: Callable[[Callable[[], None]], TaskRunner], tmp_path: Path) -> None:
    results: list[str] = []

    def check() -> None:
        if results:
            raise StopRequested

    with pytest.raises(StopRequested):
        results.extend(kind(check).run(wait_for, ["at once", str(tmp_path / "never")]))
    assert results == ["at once"]


def test_a_dead_process_is_reported() -> None:
    with pytest.raises(SparklogError, match="a process that ran die died"):
        list(ProcessPool(2).run(die, [1, 2, 3]))


def note_and_wait(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def test_the_processes_of_a_pool_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = f"""
from sparklog.maintenance.runner import ProcessPool
from tests.cluster.maintenance.test_runner import note_and_wait
if __name__ == "__main__":
    list(ProcessPool(2).run(note_and_wait, {[str(tmp_path / "1"), str(tmp_path / "2")]}))
"""
    script = tmp_path / "program.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(script)], env=environment) as parent:
        noted = [tmp_path / "1", tmp_path / "2"]
        until(lambda: all(path.exists() and path.read_text() for path in noted))
        parent.kill()
    workers = [Path("/proc", path.read_text()) for path in noted]
    until(lambda: not any(is_running(worker) for worker in workers))


def is_running(process: Path) -> bool:
    """Whether a process is alive, and not a zombie."""
    try:
        return process.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool]) -> None:
    ended = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ended
        time.sleep(0.02)


def test_one_worker_runs_in_this_process_and_zero_are_refused() -> None:
    assert list(runner(1).run(process_of, [0])) == [os.getpid()]
    assert isinstance(runner(2), ProcessPool)
    with pytest.raises(InvalidRequestError, match="not between 1"):
        runner(0)
