"""Tables: columns that sort by links, and pages of rows.

    table = make_table(topics, [Column("topic", "Topic", lambda topic: topic.name)], query, sort="topic")

A table reads its order and page from the query of the page: ``sort=bytes`` or ``sort=-bytes``, and ``page=2``; the
second table of a page has a ``name`` before these.

Rules: pure. Only the rows of the page that is shown become cells. Not for: which rows there are (the modules beside).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from sparklog.ui.views.query import Query

Row = TypeVar("Row")

PER_PAGE = 100
_MAX_PAGE = 1_000_000


class Cell(NamedTuple):
    """A cell: a text, perhaps a link, a smaller text behind it, and a kind: good, warn, bad, dim, code or empty."""

    text: str
    href: str = ""
    note: str = ""
    kind: str = ""
    title: str = ""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column: its key in the query, its title, its value by which it sorts, and its cell, by default the value.

    ``numeric`` cells are on the right, and sort from the largest at first. ``hint`` explains the column.
    """

    key: str
    title: str
    value: Callable[[Row], Any]
    cell: Callable[[Row], Cell | str] | None = None
    numeric: bool = False
    hint: str = ""

    def cell_of(self, row: Row) -> Cell:
        shown = self.cell(row) if self.cell is not None else self.value(row)
        return shown if isinstance(shown, Cell) else Cell("" if shown is None else str(shown))


class Heading(NamedTuple):
    """The head of a column: ``order`` is ascending, descending or empty, ``href`` sorts by it."""

    title: str
    href: str
    order: str
    numeric: bool
    hint: str


class Table(NamedTuple):
    """What a template shows of a table. ``first`` and ``last`` number the rows shown, from 1."""

    caption: str
    headings: list[Heading]
    rows: list[list[Cell]]
    total: int
    first: int
    last: int
    newer: str
    older: str
    empty: str


def make_table(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    query: Query,
    *,
    caption: str,
    sort: str = "",
    name: str = "",
    per_page: int = PER_PAGE,
    empty: str = "There are none.",
) -> Table:
    """Return the page of a table that the query asks for; ``sort`` is its order otherwise, such as ``-bytes``.

    Rows without a value come last. Raises InvalidConfigurationError for an invalid page.
    """
    order = query.text(f"{name}sort") or sort
    descending, key = order.startswith("-"), order.removeprefix("-")
    by = next((column for column in columns if column.key == key), None)
    ordered = rows if by is None else _sorted(rows, by, descending)
    pages = max(1, -(-len(rows) // per_page))
    page = min(query.number(f"{name}page", 1, 1, _MAX_PAGE), pages)
    start = (page - 1) * per_page
    cells = [[column.cell_of(row) for column in columns] for row in ordered[start : start + per_page]]
    return Table(
        caption=caption,
        headings=[_heading(column, key if by else "", descending, query, name) for column in columns],
        rows=cells,
        total=len(rows),
        first=start + 1 if rows else 0,
        last=start + len(cells),
        newer=query.link(**{f"{name}page": page - 1}) if page > 1 else "",
        older=query.link(**{f"{name}page": page + 1}) if page < pages else "",
        empty=empty,
    )


def _sorted(rows: Sequence[Row], column: Column[Row], descending: bool) -> list[Row]:
    known = [(column.value(row), row) for row in rows]
    with_value = [pair for pair in known if pair[0] is not None]
    with_value.sort(key=lambda pair: pair[0], reverse=descending)
    return [row for _, row in with_value] + [row for value, row in known if value is None]


def _heading(column: Column[Any], key: str, descending: bool, query: Query, name: str) -> Heading:
    is_sorted = column.key == key
    largest_first = not descending if is_sorted else column.numeric
    order = ("descending" if descending else "ascending") if is_sorted else ""
    href = query.link(**{f"{name}sort": f"{'-' * largest_first}{column.key}", f"{name}page": None})
    return Heading(column.title, href, order, column.numeric, column.hint)
