"""docs/monitoring.md has every system table with its columns."""

from __future__ import annotations

import re
from pathlib import Path

from sparklog import limits
from sparklog.monitoring.schemas import COMMIT_TABLES, TABLES

DOCUMENT = (Path(__file__).resolve().parents[3] / "docs" / "monitoring.md").read_text(encoding="utf-8")


def test_the_document_lists_every_table_with_its_columns() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", DOCUMENT, re.M)
    listed = {name: (meaning, re.findall(r"`(\w+)`", columns)) for name, meaning, columns in rows}
    assert listed == {name: (table.rows, table.schema.names) for name, table in TABLES.items()}
    assert set(COMMIT_TABLES) <= {name for name, table in TABLES.items() if table.is_of_commits}


def test_the_document_names_the_limits() -> None:
    assert f"At most {limits.MAX_LAG_STEPS:,} moments and {limits.MAX_LAG_ROWS:,} rows" in DOCUMENT
