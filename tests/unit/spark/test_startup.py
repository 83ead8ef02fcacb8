"""How Spark's Python processes find pyspark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from sparklog.spark import startup
from sparklog.spark.session import python_path

HOME = Path(pyspark.__file__).parent
ZIP = str(HOME / "python" / "lib" / "pyspark.zip")
SHOW = "import sys, os, pyspark; print(pyspark.__file__, os.environ.get('SEEN'))"


def started(*path: str) -> list[str]:
    """The location from which a process with this path imports pyspark, and whether another sitecustomize has run."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run([sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_pyspark_is_imported_from_its_installation() -> None:
    folder = str(Path(startup.__file__).parent)
    assert started(ZIP, folder) == [str(HOME / "__init__.py"), "None"]
    assert started(ZIP)[0].startswith(ZIP)


def test_the_zip_of_another_pyspark_is_kept_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    copy = tmp_path / "elsewhere" / "pyspark.zip"
    copy.write_bytes(Path(ZIP).read_bytes())
    assert started(str(copy), str(Path(startup.__file__).parent))[0].startswith(str(copy))


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['SEEN'] = 'yes'")
    assert started(ZIP, str(Path(startup.__file__).parent), str(tmp_path)) == [str(HOME / "__init__.py"), "yes"]


def test_garbage_is_looked_for_less_often() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(startup.__file__).parent)}
    command = [sys.executable, "-c", "import gc; print(*gc.get_threshold())"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    ours, default = int(done.stdout.split()[0]), 700
    assert ours > 10 * default


@pytest.mark.parametrize("before", [None, "/somewhere"])
def test_the_environment_is_restored_once_spark_has_started(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before:
        monkeypatch.setenv("PYTHONPATH", before)
    with python_path():
        assert os.environ["PYTHONPATH"].split(os.pathsep)[1:] == ([before] if before else [])
    assert os.environ.get("PYTHONPATH") == before
