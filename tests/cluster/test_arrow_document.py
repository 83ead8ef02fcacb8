"""Every Python block of docs/arrow.md runs, in order, on a topic with some records."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import sparklog
from sparklog.testing.clusters import cluster

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "arrow.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


def blocks(*needed: str) -> str:
    """The blocks that need no optional packages other than these."""
    found = [block for block in BLOCKS if set(imported(block)) <= {"sparklog", "datetime", *needed}]
    return "\n".join(block for block in found if "to_pandas" not in block or "pandas" in needed)


def imported(block: str) -> list[str]:
    return re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE)


def run(code: str, folder: Path) -> dict[str, object]:
    with cluster(folder=folder / "log", topics={"orders": 2}) as c:
        with sparklog.Producer(bootstrap_servers=c.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, partition=number % 2)
        names: dict[str, object] = {"sparklog": sparklog}
        code = code.replace('"/data/log"', repr(str(folder / "log"))).replace("/data/tables", str(folder / "tables"))
        exec(compile(code, "docs/arrow.md", "exec"), names)
        return names


def test_the_blocks_without_optional_packages_run(tmp_path: Path) -> None:
    names = run(blocks(), tmp_path)
    assert names["table"].num_rows == 20  # type: ignore[attr-defined]
    assert names["later"].to_arrow().num_rows == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("package", ["pandas", "polars", "duckdb"])
def test_the_blocks_for_an_optional_package_run(tmp_path: Path, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    names = run(blocks(package), tmp_path)
    assert "duckdb" in names or len(names["frame"]) == 20  # type: ignore[arg-type]


def test_a_repeated_copy_into_delta_has_each_record_once(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    names = run(blocks("deltalake"), tmp_path)
    copy, root, path = names["copy"], str(tmp_path / "log"), str(tmp_path / "tables" / "orders")
    with sparklog.Producer(bootstrap_servers=root) as producer:
        producer.send("orders", b"later", partition=1)
    assert [copy("orders", root, path) for _ in range(2)] == [1, 0]  # type: ignore[operator]
    assert deltalake.DeltaTable(path).count() == 21
