"""The settings of a session, computed without starting one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sparklog.errors import InvalidRequestError
from sparklog.spark.session import LOW_LATENCY, check_java, choose_python, settings


@pytest.mark.parametrize("master", ["local", "local[2]", "local-cluster[2,1,1024]"])
def test_on_one_machine_workers_run_this_python(master: str) -> None:
    assert choose_python(master, None, None, {"PYSPARK_PYTHON": "/other/python"}) == sys.executable


def test_on_a_cluster_the_python_of_the_environment_is_kept() -> None:
    assert choose_python("yarn", None, None, {"PYSPARK_PYTHON": "/opt/python"}) == "/opt/python"
    assert choose_python("spark://h:7077", None, None, {}) == sys.executable


def test_an_archive_brings_its_own_python() -> None:
    assert choose_python("yarn", None, "env.tar.gz", {"PYSPARK_PYTHON": "/opt/python"}) == "./env/bin/python"
    assert settings("yarn", "env.tar.gz")["spark.archives"] == "env.tar.gz#env"


def test_a_given_python_is_used() -> None:
    assert choose_python("local[1]", "/usr/bin/python3.12", None, {}) == "/usr/bin/python3.12"


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://h:6443", "spark://h:7077"])
def test_push_down_is_always_on(master: str) -> None:
    assert settings(master)["spark.sql.python.filterPushdown.enabled"] == "true"


def test_no_progress_bar_covers_what_a_program_prints() -> None:
    assert settings("local[2]")["spark.ui.showConsoleProgress"] == settings("yarn")["spark.ui.showConsoleProgress"]
    assert settings("yarn")["spark.ui.showConsoleProgress"] == "false"


def test_executors_get_memory_for_the_python_of_each_core() -> None:
    assert settings("yarn", executor_cores=4)["spark.executor.memoryOverhead"] == "1984m"
    assert "spark.executor.memoryOverhead" not in settings("local[4]")


def test_zips_are_sent_to_executors() -> None:
    assert settings("yarn", py_files=["a.zip", "b.zip"])["spark.submit.pyFiles"] == "a.zip,b.zip"


def test_socket_settings_are_changed_on_one_machine_only() -> None:
    assert LOW_LATENCY.items() <= settings("local[2]").items()
    assert not LOW_LATENCY.keys() & settings("yarn").keys()


def test_the_error_without_java_names_the_version_that_spark_needs(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"Java 17 or later, but there is no java in the PATH.*JAVA_HOME"):
        check_java({"PATH": str(tmp_path)})
    with pytest.raises(InvalidRequestError, match=r"JAVA_HOME is .*/gone, which has no bin/java"):
        check_java({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path / "gone")})
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("")
    java.chmod(0o755)
    check_java({"JAVA_HOME": str(tmp_path)})
    check_java({"PATH": str(java.parent)})
