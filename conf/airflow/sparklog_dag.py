"""A DAG for Airflow 3: write a day's files into a topic, then one pass of maintenance.

Copy it into the folder of DAGs. It runs programs of the environment that has sparklog, and needs of Airflow only the
standard provider. Variables of the worker: SPARKLOG_HOME (that environment, such as /opt/sparklog/venv),
SPARKLOG_BOOTSTRAP_SERVER (the log), SPARKLOG_SPARK_SUBMIT (how to submit, such as "spark-submit --properties-file
/opt/sparklog/conf/spark-yarn.conf"; by default the job runs in local mode), SPARKLOG_INPUT (the folder with one
subfolder for each date), and those of the storage's client.

A task that is retried, or a date that is cleared and run again, writes nothing twice: --txn-app-id and --run-date
number the write by the schedule. Dates may come in any order, so backfills need no care.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PRODUCE = """
set -eu
: "${SPARKLOG_HOME:?}" "${SPARKLOG_BOOTSTRAP_SERVER:?}" "${SPARKLOG_INPUT:?}"
jobs=$("$SPARKLOG_HOME/bin/python" -c 'import sparklog.jobs; print(sparklog.jobs.__path__[-1])')
${SPARKLOG_SPARK_SUBMIT:-"$SPARKLOG_HOME/bin/python"} "$jobs/produce.py" \\
    --topic {{ params.topic }} --format json --path "$SPARKLOG_INPUT/{{ ds }}" --schema "{{ params.schema }}" \\
    --txn-app-id "{{ dag.dag_id }}" --run-date {{ ds }}
"""

with DAG(
    dag_id="sparklog_orders",
    schedule="@daily",
    start_date=datetime(2026, 11, 1),
    catchup=False,
    max_active_runs=1,
    params={"topic": "orders", "schema": "id long, city string"},
    default_args={"retries": 2, "retry_delay": timedelta(minutes=1)},
    doc_md=__doc__,
) as dag:
    produce = BashOperator(task_id="produce", bash_command=PRODUCE, append_env=True)
    maintain = BashOperator(
        task_id="maintain", bash_command='"${SPARKLOG_HOME:?}"/bin/sparklog maintain --once', append_env=True
    )
    produce >> maintain
