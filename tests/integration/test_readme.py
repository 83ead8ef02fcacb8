"""The README's code works: its blocks run in order, on one cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)


def test_the_quickstart_runs_unchanged(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "log")
    monkeypatch.setattr("sparklog.spark.session.sparklog_session", lambda master: spark)
    assert main(["cluster", "create", "--bootstrap-server", root]) == 0
    assert main(["topics", "--bootstrap-server", root, "--create", "--topic", "orders", "--partitions", "4"]) == 0
    monkeypatch.setattr("sys.stdin", (tmp_path / "lines").open("w+"))
    (tmp_path / "lines").write_text('ada:{"customer":"ada","amount":12.5}\n')
    keyed = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    assert main(["console-producer", "--bootstrap-server", root, "--topic", "orders", *keyed]) == 0
    capsys.readouterr()

    names: dict[str, object] = {}
    first, *rest = [block.replace("/data/log", root) for block in blocks("python")]
    exec(first, names)
    table = capsys.readouterr().out
    assert re.sub(r"^", "    ", table.strip(), flags=re.MULTILINE) in (ROOT / "README.md").read_text()
    for block in rest:
        exec(block, names)
    assert 'b\'eve\' b\'{"customer":"eve","amount":1}\'' in capsys.readouterr().out

    (statements,) = [block.replace("/data/log", root) for block in blocks("sql")]
    create, select = statements.split(";")
    spark.sql(create)
    rows = [tuple(row) for row in spark.sql(select).collect()]
    assert rows == [("ada", 3, 27.0), ("bob", 2, 6.0), ("eve", 1, 1.0)]


def test_links_between_documents_are_valid() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.relative_to(ROOT)} links to {target}"
