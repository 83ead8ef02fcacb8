"""sparklog applications: which applications are remembered, and forgetting one."""

from __future__ import annotations

import pytest

from sparklog.coordinator import Coordinator
from sparklog.protocol.commits import ApplicationWrite
from sparklog.protocol.decide.decision import Decision

from .conftest import Run


@pytest.fixture
def used(cluster: Coordinator) -> Coordinator:
    writes = [ApplicationWrite(application=name, application_version=7) for name in ("nightly", "hourly")]
    cluster.submit(lambda state: Decision(list(writes), None))
    return cluster


def test_applications_are_listed_by_name(run: Run, used: Coordinator) -> None:
    header, *rows = (line.split() for line in run("applications", "--list").lines)
    assert header == ["APPLICATION", "VERSION", "COMMIT"]
    assert [(row[0], row[1]) for row in rows] == [("hourly", "7"), ("nightly", "7")]


def test_an_application_is_forgotten(run: Run, used: Coordinator) -> None:
    result = run("applications", "--delete", "--application", "nightly")
    assert (result.code, result.lines) == (0, ["Deleted application nightly."])
    assert set(used.refresh().applications) == {"hourly"}


def test_one_that_is_not_known_is_an_error_and_none_is_forgotten(run: Run, used: Coordinator) -> None:
    result = run("applications", "--delete", "--application", "nightly", "--application", "nobody")
    assert (result.code, result.out) == (1, "")
    assert "unknown application 'nobody'" in result.err
    assert set(used.refresh().applications) == {"hourly", "nightly"}


@pytest.mark.parametrize("flags", [[], ["--list", "--delete"], ["--delete"], ["--list", "--application", "a"]])
def test_flags_that_do_not_go_together_are_refused(run: Run, used: Coordinator, flags: list[str]) -> None:
    assert run("applications", *flags).code == 1
