"""The example DAG of conf/airflow, imported and run by Airflow itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import create_cluster

pytestmark = pytest.mark.airflow
CHECKOUT = Path(__file__).resolve().parents[2]
ENVIRONMENT = CHECKOUT / ".venv-airflow" / "bin"
ROWS = 50


@pytest.fixture
def airflow(tmp_path: Path) -> dict[str, str]:
    """The variables of a worker with a new database."""
    if not (ENVIRONMENT / "airflow").exists():
        pytest.skip("Airflow is not installed: bash scripts/airflow.sh")
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "AIRFLOW", "SPARK"))},
        "PATH": f"{ENVIRONMENT}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(CHECKOUT / "conf" / "airflow"),
        "SPARKLOG_HOME": str(Path(sys.executable).parents[1]),
        "SPARKLOG_BOOTSTRAP_SERVER": str(tmp_path / "log"),
        "SPARKLOG_INPUT": str(tmp_path / "input"),
    }
    migrated = subprocess.run(["airflow", "db", "migrate"], env=variables, capture_output=True, text=True, timeout=300)
    assert migrated.returncode == 0, migrated.stdout + migrated.stderr
    return variables


def test_a_date_that_runs_again_writes_nothing_twice(airflow: dict[str, str], tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    log.create_topic("orders", 2)
    for date in ("2026-11-20", "2026-11-19", "2026-11-20"):  # a backfill, and a date that was cleared
        folder = tmp_path / "input" / date
        folder.mkdir(parents=True, exist_ok=True)
        rows = "".join(f'{{"id": {number}, "city": "{date}"}}\n' for number in range(ROWS))
        (folder / "orders.json").write_text(rows)
        done = subprocess.run(
            ["python", "tests/airflow/run_dag.py", date],
            cwd=CHECKOUT,
            env=airflow,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    with LogReader(log) as reader:
        ends = [partition.high_watermark for partition in reader.refresh().topics["orders"].partitions]
    assert sum(ends) == 2 * ROWS
