"""Locate the programs for spark-submit of an installed sparklog, which also run as ``python -m sparklog.jobs.NAME``.

    for job in sparklog.jobs.list_jobs():
        print(job.name, job.path, job.description)

In a checkout the programs are the files in ``jobs/`` beside this package; the wheel has them in this folder, and the
Spark settings of ``conf/`` in the folder ``conf`` beside it.

Rules: importing this needs no Spark; a job reports missing packages itself. Not for: the work of the jobs.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).resolve().parent
_CHECKOUT = _HERE.parents[1]

if (_CHECKOUT / "jobs" / "produce.py").is_file() and (_CHECKOUT / "pyproject.toml").is_file():
    __path__.append(str(_CHECKOUT / "jobs"))


class Job(NamedTuple):
    """A program for spark-submit: ``path`` is what spark-submit takes, ``description`` one sentence."""

    name: str
    path: str
    description: str


def list_jobs() -> list[Job]:
    """Return every job, sorted by path."""
    paths = sorted(path for folder in __path__ for path in Path(folder).glob("*.py") if path.stem != "__init__")
    return [Job(path.stem, str(path), _read_description(path)) for path in paths]


def conf_folder() -> Path:
    """Return the folder with Spark settings for one machine, standalone, YARN, Kubernetes and Delta."""
    installed = _HERE.parent / "conf"
    return installed if installed.is_dir() else _CHECKOUT / "conf"


def _read_description(path: Path) -> str:
    """Return the first paragraph of a program's docstring, on one line, without running the program."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())
