"""The package in a Python without pyspark: everything is importable, and names that need Spark say how to install
it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# pyspark is installed where tests run. A None in sys.modules makes it unimportable.
WITHOUT_SPARK = "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None\n"


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK + code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pyspark_cannot_be_imported_in_these_tests() -> None:
    assert "refused" in run("try:\n    import pyspark\nexcept ModuleNotFoundError:\n    print('refused')")


def test_help_describes_every_exported_name() -> None:
    shown = run("import pydoc, sparklog; print(pydoc.plain(pydoc.render_doc(sparklog)))")
    for name in ("class Producer", "class Consumer", "class AdminClient", "class Cluster", "create_cluster(", "read("):
        assert name in shown
    assert "pip install 'sparklog[spark]'" in shown


def test_import_star_imports_every_name_of_all() -> None:
    assert run("from sparklog import *\nimport sparklog\nprint(set(sparklog.__all__) - set(globals()))") == "set()\n"


def test_dir_lists_only_the_exported_names() -> None:
    names = run("import sparklog; print(*dir(sparklog))").split()
    assert {"read", "write", "Producer", "create_cluster", "__version__", "__doc__"} <= set(names)
    assert not {"_LAZY", "importlib", "annotations", "TYPE_CHECKING"} & set(names)


@pytest.mark.parametrize(
    "call",
    [
        "read(None, 'x')",
        "write(None, 'x')",
        "register(None)",
        "table(None, 'x', 't')",
        "create_view(None, 'x', 't')",
        "write_batch(None, 1)",
    ],
)
def test_names_that_need_spark_say_what_to_install_when_called(call: str) -> None:
    code = f"import sparklog\ntry:\n    sparklog.{call}\nexcept ImportError as error:\n    print(error.name, error)"
    assert run(code).startswith(f"pyspark sparklog.{call.partition('(')[0]} needs Spark")
    assert "pip install 'sparklog[spark]'" in run(code)


@pytest.mark.parametrize("module", ["sparklog.spark", "sparklog.spark.session", "sparklog.spark.stream.lag_listener"])
def test_importing_a_module_for_spark_says_what_to_install(module: str) -> None:
    said = run(f"try:\n    import {module}\nexcept ImportError as error:\n    print(error.name, error)")
    assert said.startswith("pyspark ")
    assert "pip install 'sparklog[spark]'" in said


def test_a_log_is_created_written_and_read_without_spark(tmp_path: Path) -> None:
    code = f"""
import sparklog
cluster = sparklog.create_cluster({str(tmp_path / "log")!r})
cluster.create_topic("orders")
with sparklog.Producer(bootstrap_servers=cluster.root) as producer:
    producer.send("orders", b"one").get(timeout=30)
print(cluster.offsets("orders"))
"""
    assert run(code) == "{0: (0, 1)}\n"
