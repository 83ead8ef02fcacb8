"""Runs the example DAG of conf/airflow for one date, in Airflow's own environment; exits with 1 unless it succeeds.

python tests/airflow/run_dag.py DATE
"""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

FOLDER = Path(__file__).resolve().parents[2] / "conf" / "airflow"


def main() -> int:
    bag = DagBag(FOLDER)
    if bag.import_errors:
        print(bag.import_errors)
        return 1
    date = datetime.fromisoformat(sys.argv[1]).replace(tzinfo=timezone.utc)
    run = bag.dags["sparklog_orders"].test(logical_date=date)
    print(f"the run ended: {run.state}")
    return 0 if run.state == "success" else 1


if __name__ == "__main__":
    sys.exit(main())
