"""No test here opens a cluster: one that does fails, and belongs to tests/cluster.

The tests of tests/cluster run in the same processes, so the refusal holds for the fixtures and the call of a test here
and no longer. ``test_project_layout.py`` reads what tests here hand to processes of their own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

REFUSAL = "a test of tests/unit opens a cluster: it belongs to tests/cluster"


def refuse(*_: object, **__: object) -> None:
    """What this raises is no ``Exception``, so that no code which a test calls takes it for an error of its own."""
    pytest.fail(REFUSAL)


@contextmanager
def no_cluster() -> Iterator[None]:
    """Refuse to open a commit log: whoever opens or creates a cluster does that first."""
    from sparklog.log.commits.commit_log import (
        CommitLog,  # here: coverage does not see what is imported before it starts
    )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitLog, "__init__", refuse)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    with no_cluster():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    with no_cluster():
        return (yield)
