"""``sparklog jobs`` and ``python -m sparklog.jobs.NAME``, in a checkout and from the wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sparklog.cli.main import main
from sparklog.jobs import conf_folder, list_jobs

ROOT = Path(__file__).resolve().parents[3]
NAMES = sorted(path.stem for path in (ROOT / "jobs").glob("*.py"))


def test_every_job_is_listed_with_its_path_and_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0 : 3 * len(NAMES) : 3] == NAMES
    for job in list_jobs():
        assert f"    {job.path}" in lines
        assert f"    {job.description}" in lines
        assert job.description.endswith(".")
        assert Path(job.path).is_file()
    assert lines[-1] == f"Spark settings: {conf_folder()}"
    assert (conf_folder() / "spark-local.conf").is_file()


def test_a_job_name_prints_only_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "produce"]) == 0
    assert capsys.readouterr().out == f"{ROOT / 'jobs' / 'produce.py'}\n"


def test_json_has_the_same_fields_as_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert [job["name"] for job in listing["jobs"]] == NAMES
    assert listing["jobs"][0].keys() == {"name", "path", "description"}
    assert listing["conf"] == str(conf_folder())


def test_an_unknown_job_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "produc"]) == 1
    assert "unknown job 'produc'; did you mean produce?" in capsys.readouterr().err


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "installed")
    return folder / "installed"


def run(*arguments: str, path: Path) -> str:
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=path,
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return result.stdout


def test_the_wheel_contains_jobs_and_conf(installed: Path) -> None:
    listing = json.loads(run("-m", "sparklog.cli", "jobs", "--json", path=installed))
    assert [job["path"] for job in listing["jobs"]] == [
        str(installed / "sparklog/jobs" / f"{name}.py") for name in NAMES
    ]
    assert listing["conf"] == str(installed / "sparklog" / "conf")
    for name in ("spark-local.conf", "sparklog.properties"):
        assert (installed / "sparklog/conf" / name).read_text() == (ROOT / "conf" / name).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_job_of_the_wheel_runs_as_a_module(installed: Path, name: str) -> None:
    assert "--bootstrap-server" in run("-m", f"sparklog.jobs.{name}", "--help", path=installed)


def test_a_job_of_a_checkout_runs_as_a_module() -> None:
    assert "--bootstrap-server" in run("-m", "sparklog.jobs.produce", "--help", path=ROOT)
