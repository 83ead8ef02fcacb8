"""sparklog applications: lists the stored application ids and deletes them."""

from __future__ import annotations

import pytest

from sparklog.coordinator import Coordinator
from sparklog.protocol.commits import ApplicationWrite
from sparklog.protocol.decide.decision import Decision

from .conftest import Run


@pytest.fixture
def with_applications(cluster: Coordinator) -> Coordinator:
    writes = [ApplicationWrite(application=name, application_version=7) for name in ("nightly", "hourly")]
    cluster.submit(lambda state: Decision(list(writes), None))
    return cluster


def test_applications_are_listed_by_name(run: Run, with_applications: Coordinator) -> None:
    header, *rows = (line.split() for line in run("applications", "--list").lines)
    assert header == ["APPLICATION", "VERSION", "COMMIT"]
    assert [(row[0], row[1]) for row in rows] == [("hourly", "7"), ("nightly", "7")]


def test_delete_forgets_an_application(run: Run, with_applications: Coordinator) -> None:
    result = run("applications", "--delete", "--application", "nightly")
    assert (result.code, result.lines) == (0, ["Deleted application nightly."])
    assert set(with_applications.refresh().applications) == {"hourly"}


def test_deleting_an_unknown_application_fails_and_forgets_none(run: Run, with_applications: Coordinator) -> None:
    result = run("applications", "--delete", "--application", "nightly", "--application", "nobody")
    assert (result.code, result.out) == (1, "")
    assert "unknown application 'nobody'" in result.err
    assert set(with_applications.refresh().applications) == {"hourly", "nightly"}


@pytest.mark.parametrize("flags", [[], ["--list", "--delete"], ["--delete"], ["--list", "--application", "a"]])
def test_conflicting_or_missing_options_are_refused(run: Run, with_applications: Coordinator, flags: list[str]) -> None:
    assert run("applications", *flags).code == 1
