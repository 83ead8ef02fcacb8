"""The examples in the docstrings of public names run, and the reference in docs/ matches these docstrings.

Update the reference after a change of a docstring:

    python scripts/reference.py
"""

from __future__ import annotations

import doctest
import inspect
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import sparklog
from scripts import reference
from sparklog.testing.clusters import cluster

NAMES = [name for name in sparklog.__all__ if callable(getattr(sparklog, name))]
NAMES += [f"plot.{name}" for name in sparklog.plot.__all__]
WITHOUT_SPARK = [name for name in NAMES if name not in reference.SPARK_FUNCTIONS]


def examples(name: str) -> list[doctest.DocTest]:
    """The examples of a name and of the methods of its class, including those of its bases in the package."""
    thing = attrgetter(name)(sparklog)
    bases = (
        [base for base in thing.__mro__ if base.__module__.startswith("sparklog.")] if inspect.isclass(thing) else []
    )
    tests: dict[str | None, doctest.DocTest] = {}
    for one in [thing, *bases]:
        for test in doctest.DocTestFinder(exclude_empty=True).find(one, one.__name__, globs={}):
            tests.setdefault(test.docstring, test)
    return [test for test in tests.values() if test.examples]


def run(
    tests: list[doctest.DocTest], names: dict[str, Any], folder: Path, checker: doctest.OutputChecker | None = None
) -> str:
    """The failures of an example, run with a new cluster and clients."""
    printed: list[str] = []
    runner = doctest.DocTestRunner(checker, optionflags=doctest.NORMALIZE_WHITESPACE)
    for number, test in enumerate(tests):
        with cluster(folder=folder / str(number), topics={"orders": 1}) as c:
            root = c.bootstrap_servers
            with (
                sparklog.Producer(bootstrap_servers=root) as producer,
                sparklog.Consumer(bootstrap_servers=root, group_id="billing", auto_offset_reset="earliest") as consumer,
                sparklog.AdminClient(bootstrap_servers=root) as admin,
            ):
                test.globs = {"sparklog": sparklog, "root": root, **names}
                test.globs.update(producer=producer, consumer=consumer, admin=admin)
                runner.run(test, out=printed.append)
    return "".join(printed)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(attrgetter(name)(sparklog)) or "")


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_the_examples_of_a_name_run(name: str, tmp_path: Path) -> None:
    assert run(examples(name), {}, tmp_path) == ""


def test_a_wrong_example_is_reported(tmp_path: Path) -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    assert "Expected" in run([wrong], {}, tmp_path)


@pytest.mark.parametrize("page", list(reference.PAGES))
def test_the_reference_matches_the_docstrings(page: str) -> None:
    assert (reference.REFERENCE / page).read_text(encoding="utf-8") == reference.PAGES[page]()


def test_the_reference_lists_every_public_name() -> None:
    text = reference.api()
    assert [name for name in NAMES if f"### {name}\n" not in text and f"* `{name}`" not in text] == ["SparklogError"]


def test_arguments_without_a_default_are_shown_without_one() -> None:
    assert "inspect._empty" not in reference.api()
    assert "sparklog.register(spark: SparkSession) -> None" in reference.api()
