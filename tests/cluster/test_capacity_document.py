"""The tables of docs/capacity.md match the counts of benchmarks/capacity.py.

Update them after a change of the stored data or the requests:

    python benchmarks/capacity.py --write
"""

from __future__ import annotations

import re

import pytest

from benchmarks.capacity import DOCUMENT, MARKS, TABLES

NUMBER = r"\d[\d,.]*"


def documented() -> dict[str, str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    return {found[2]: found[0][len(found[1]) : -len(found[3])] for found in MARKS.finditer(text)}


def test_the_document_has_every_table() -> None:
    assert list(documented()) == list(TABLES)


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_matches_the_counts(name: str) -> None:
    counted = "\n".join(TABLES[name]()) + "\n"
    assert rows(documented()[name]) == rows(counted)
    assert numbers(documented()[name]) == pytest.approx(numbers(counted), rel=0.05)


def rows(table: str) -> list[str]:
    """The labels of a table, without its numbers."""
    return re.sub(NUMBER, "", table).splitlines()


def numbers(table: str) -> list[float]:
    """Another version of Arrow may write a few more bytes."""
    return [float(number.replace(",", "")) for number in re.findall(NUMBER, table)]
