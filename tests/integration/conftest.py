"""The one Spark session of the integration tests. Unit tests never start Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.spark.session import LOW_LATENCY, python_path
from tests import quick_jvm

os.environ.update(quick_jvm.LAUNCHERS)  # for the session below and for programs that inherit the environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings about unclosed sockets: py4j leaves them to the garbage collector, which blames any running
    test."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """``local[2]``, one shuffle partition, UTC, no UI; Python workers use the interpreter of the tests."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    builder = SparkSession.Builder()
    for name, value in LOW_LATENCY.items():
        builder = builder.config(name, value)
    builder = (
        builder.master("local[2]")
        .appName("sparklog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
    )
    with python_path():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def empty_catalog(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop the views and tables that a test leaves: a view hides the next test's table of the same name."""
    yield
    if "spark" not in request.fixturenames:
        return
    session: SparkSession = request.getfixturevalue("spark")
    for table in session.catalog.listTables():
        if table.isTemporary:
            session.catalog.dropTempView(table.name)
        else:
            session.sql(f"DROP TABLE `{table.name}`")
