"""Counts the faults that tests inject, by kind, for the summary of a run: no kind gets lost unnoticed.

    with counted(item): ...           # pytest_runtest_call of some folders (tests/conftest.py)
    lines(reports)                    # pytest_terminal_summary

Not for: which kinds there are (``sparklog.testing.faults``), and which of them a test has to meet (that test).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from sparklog.testing.faulty_store import Fault, FaultyStore

PROPERTY = "faults"
SHOWN = 12
"""number of kinds that a line names."""


class Counted(list[Fault]):
    """The list of a store's injected faults, which also counts them."""

    def __init__(self, kinds: Counter[str], faults: Iterable[Fault]) -> None:
        super().__init__(faults)
        self._kinds = kinds

    def append(self, fault: Fault) -> None:
        self._kinds[fault.kind] += 1
        super().append(fault)


class Injected:
    """The attribute ``injected`` of every store: each list that it is set to is counted."""

    def __init__(self, kinds: Counter[str]) -> None:
        self._kinds = kinds

    def __get__(self, store: FaultyStore, _: type | None = None) -> object:
        return vars(store)["injected"]

    def __set__(self, store: FaultyStore, faults: list[Fault]) -> None:
        vars(store)["injected"] = Counted(self._kinds, faults)


@contextmanager
def counted(item: pytest.Item) -> Iterator[None]:
    """Note at the test how many faults of which kinds the stores inject that are made meanwhile."""
    kinds: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyStore, "injected", Injected(kinds), raising=False)
        yield
    if kinds:
        item.user_properties.append((PROPERTY, dict(kinds)))


def lines(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Return a line for each folder of tests that has injected faults."""
    folders: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for report in reports:
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, dict):
                folders[report.nodeid.partition("::")[0].rpartition("/")[0]].update(value)
    for folder, kinds in sorted(folders.items()):
        most = ", ".join(f"{kind} {number:,}" for kind, number in kinds.most_common(SHOWN))
        more = f", {len(kinds) - SHOWN} more" if len(kinds) > SHOWN else ""
        yield f"{folder} injected {sum(kinds.values()):,} faults of {len(kinds)} kinds: {most}{more}"
