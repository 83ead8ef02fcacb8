"""docs/operating.md: its commands run, and its metrics, tables and columns exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator
from sparklog.monitoring.exporter.families import FAMILIES
from sparklog.monitoring.schemas import TABLES
from sparklog.protocol.commits import CommitOffsets, CommittedOffset
from sparklog.testing.records import Record, append_records
from tests.cluster.cli.conftest import Run, commit

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
ENDLESS = ("maintain --loop", "ui", "metrics", "alerts --rules conf/alerts.toml")
"""Commands that run until they are stopped; their own tests run them."""


def commands() -> list[str]:
    inline = re.findall(r"`sparklog ([^`]*)`", DOCUMENT)
    blocks = re.findall(r"^    sparklog (.*)$", DOCUMENT, re.M)
    return sorted({" ".join(each.split()) for each in (*inline, *blocks)})


def test_every_command_of_the_guide_runs(run: Run, cluster: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    topic_id = cluster.create_topic("orders", 1)
    append_records(cluster, "orders", [Record(value=b"v")] * 3)
    offset = CommittedOffset(topic="orders", topic_id=topic_id, partition=0, offset=1)
    commit(cluster, CommitOffsets(group="billing", offsets=[offset]))
    missing = [each for each in ENDLESS if each not in commands()]
    assert missing == []
    lines = [line for line in commands() if line not in ENDLESS and line != "system TABLE"]
    results = {line: run(*shlex.split(line)) for line in lines}
    assert {line: result.err for line, result in results.items() if result.code != 0} == {}


def test_every_metric_table_and_column_of_the_guide_exists() -> None:
    metrics = set(re.findall(r"`((?:kafka|sparklog)_[a-z_]+)`", DOCUMENT)) - {"sparklog_up"}
    assert metrics <= set(FAMILIES)
    cells = re.findall(r"^\| [^|]+ \| [^|]* \| `(\w+)`(?:, ([^|]*))? \|", DOCUMENT, re.M)
    assert len(cells) > 15
    for table, columns in cells:
        assert set(re.findall(r"`(\w+)`", columns)) <= set(TABLES[table].schema.names), table
