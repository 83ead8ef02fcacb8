"""Polars, DuckDB and deltalake read a topic as in docs/arrow.md, each record once (``make test-thirdparty``)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import sparklog
from sparklog.testing.clusters import cluster
from tests.thirdparty.test_programs import PROGRAMS, PYTHON, ROOT, pytestmark

__all__ = ["pytestmark"]


def test_the_code_blocks_of_the_document_run(tmp_path: Path) -> None:
    with cluster(folder=tmp_path / "log", topics={"orders": 2}) as c:
        with sparklog.Producer(bootstrap_servers=c.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", b"%02d" % number, partition=number % 2)
        with sparklog.Producer(bootstrap_servers=c.bootstrap_servers, transactional_id="open") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("orders", b"open")
            producer.flush()
            command = [PYTHON, str(PROGRAMS / "arrow_document.py"), c.bootstrap_servers, str(tmp_path / "tables")]
            done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "polars": 20,
        "duckdb": [[0, 10, "00"], [1, 10, "01"]],
        "copied": 0,
        "delta": 20,
    }
