"""The faults that these tests inject are counted for the summary of the run."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.injected import counted


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with counted(item):
        return (yield)
