"""An Arrow table as a notebook and a terminal show it: its first rows, as text or HTML.

Rules: values are text of strangers; control characters are escaped, and everything in HTML is.
Not for: working with the rows (``TableView.table``).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pyarrow as pa

from sparklog.client.representation import Facts, Shown, shorten, table
from sparklog.types import printable

ROWS_SHOWN = 50


class TableView(Shown):
    """The first rows of a table. ``table`` has all of them. Immutable, thread-safe."""

    def __init__(self, name: str, rows: pa.Table, limit: int = ROWS_SHOWN) -> None:
        self.name = name
        self.table = rows
        self._limit = limit

    def _facts(self) -> Facts:
        return {"table": self.name, "rows": len(self.table)}

    def __repr__(self) -> str:
        rows = [self.table.column_names, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *self._more()])

    def _repr_html_(self) -> str:
        return table(f"{self.name}: {len(self.table):,} rows", self.table.column_names, self._rows()) + "".join(
            f"<p>{line}</p>" for line in self._more()
        )

    def _rows(self) -> Iterator[list[str]]:
        for row in self.table.slice(0, self._limit).to_pylist():
            yield [_text(value) for value in row.values()]

    def _more(self) -> list[str]:
        more = len(self.table) - self._limit
        return [f"… and {more:,} more rows"] if more > 0 else []


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "")
    if isinstance(value, list):
        return printable(", ".join(shorten(item) for item in value[:10]) + (", …" if len(value) > 10 else ""))
    return shorten(value)
