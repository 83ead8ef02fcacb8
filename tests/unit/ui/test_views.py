"""Values, tables and plots of the web page: pure functions."""

from __future__ import annotations

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.ui.views import plots
from sparklog.ui.views.query import Query, TimeRange, address
from sparklog.ui.views.tables import Cell, Column, make_table
from sparklog.ui.views.text import ago, block, duration, number, shown, size, time


@pytest.mark.parametrize(
    ("shown_as", "expected"),
    [
        (number(1_234_567), "1,234,567"),
        (number(2.5), "2.5"),
        (number(None), "–"),
        (size(1_536), "1.5 KiB"),
        (size(0), "0 B"),
        (size(2**60), "1,024 PiB"),
        (duration(0.25), "0.2 s"),
        (duration(75), "1 min 15 s"),
        (duration(90_000), "1 d 1 h"),
        (time(0), "1970-01-01 00:00:00"),
        (time(2**62), f"{2**62} ms"),
        (ago(1_000, 61_000), "1 min ago"),
        (ago(61_000, 1_000), "in 1 min"),
    ],
)
def test_values_are_short_texts(shown_as: str, expected: str) -> None:
    assert shown_as == expected


def test_texts_cannot_control_the_line_or_the_direction_of_writing() -> None:
    assert shown("a\x1b[2J\nb\u202e\x9b") == "a\\x1b[2J\\nb\\u202e\\x9b"
    assert block("a\tb\nc\u2066\r\ud800") == "a\tb\nc\\u2066\\r\\ud800"
    assert shown("x" * 1000, 10) == "x" * 10 + "…"


QUERY = Query("/log/topics", {"q": "ord", "sort": "-size", "page": "2"})


def test_a_link_keeps_the_other_parameters_and_quotes_them() -> None:
    assert QUERY.link(page=3) == "/log/topics?q=ord&sort=-size&page=3"
    assert QUERY.link(q="a&b=c d", sort=None, page="") == "/log/topics?q=a%26b%3Dc+d"
    assert address("log", "topics", "../x/<b>", q="") == "/log/topics/..%2Fx%2F%3Cb%3E"


@pytest.mark.parametrize("value", ["x", "-1", "1e3", "99999999999999999999", "0x10", "9" * 40])
def test_an_invalid_page_is_refused(value: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="invalid page"):
        Query("/", {"page": value}).number("page", 1, 1, 1000)


@pytest.mark.parametrize("since", ["yesterday", "1h ago", "2026-11-01", "-5m", "99999999999d", "2099-01-01T00:00:00Z"])
def test_an_invalid_time_range_is_refused(since: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="since"):
        Query("/", {"since": since}).time_range(1_790_000_000_000)


def test_a_time_range_has_at_most_120_steps_and_begins_at_a_whole_one() -> None:
    now_ms = 1_790_000_012_345
    for since in ("15m", "1h", "6h", "24h", "7d", "30d", "300d"):
        span = Query("/", {"since": since}).time_range(now_ms)
        assert span.since_ms % span.step_ms == 0
        assert len(range(span.since_ms, span.until_ms, span.step_ms)) <= 121


ROWS = [("a", 3), ("c", None), ("b", 10), ("d", 0)]
COLUMNS: list[Column[tuple[str, int | None]]] = [
    Column("name", "Name", lambda row: row[0]),
    Column("size", "Size", lambda row: row[1], lambda row: Cell(f"{row[1]}"), numeric=True),
]


def names(query: Query, **options: object) -> list[str]:
    table = make_table(ROWS, COLUMNS, query, caption="Rows", **options)  # type: ignore[arg-type]
    return [row[0].text for row in table.rows]


def test_a_table_sorts_by_the_query_with_missing_values_last() -> None:
    assert names(Query("/", {"sort": "size"})) == ["d", "a", "b", "c"]
    assert names(Query("/", {"sort": "-size"})) == ["b", "a", "d", "c"]
    assert names(Query("/", {}), sort="-name") == ["d", "c", "b", "a"]
    assert names(Query("/", {"sort": "unknown"})) == ["a", "c", "b", "d"]


def test_a_heading_sorts_numbers_from_the_largest_and_turns_the_order_round() -> None:
    table = make_table(ROWS, COLUMNS, Query("/t", {"sort": "name", "page": "2"}), caption="Rows")
    assert [(each.order, each.href) for each in table.headings] == [
        ("ascending", "/t?sort=-name"),
        ("", "/t?sort=-size"),
    ]


def test_only_the_page_that_is_shown_becomes_cells() -> None:
    made: list[int] = []

    def cell(row: int) -> str:
        made.append(row)
        return str(row)

    columns = [Column("n", "N", lambda row: row, cell, numeric=True)]
    table = make_table(range(10_000), columns, Query("/t", {"page": "3"}), caption="Rows", sort="n")
    assert made == list(range(200, 300))
    assert (table.first, table.last, table.total) == (201, 300, 10_000)
    assert (table.newer, table.older) == ("/t?page=2", "/t?page=4")
    assert not make_table([1], columns, Query("/t", {"page": "7"}), caption="Rows").newer


SPAN = TimeRange(0, 600_000, 60_000, "10m", "")


def test_bars_are_as_high_as_their_share_of_a_round_number() -> None:
    plot = plots.make_plot("Records", {60_000: 30.0, 120_000: 0.0, 540_000: 15.0}, SPAN, number, bars=True)
    assert (plot.highest, plot.middle, plot.total) == ("50", "25", "45")
    assert [(mark.x, mark.height, mark.value) for mark in plot.marks] == [(100, 60, "30"), (900, 30, "15")]


def test_a_line_is_one_path_through_its_values() -> None:
    plot = plots.make_plot("Lag", {0: 1.0, 60_000: 2.0}, SPAN, number)
    assert plot.line == "M0 100 L0 50 L100 50 L100 0 L200 0 L200 100 Z"
    assert plot.newest == "2"


def test_a_plot_without_values_is_empty() -> None:
    plot = plots.make_plot("Lag", {}, SPAN, number)
    assert plot.is_empty
    assert not plot.line
