"""The document of ``sparklog jobs --json``; see ``documents`` for the rules."""

from __future__ import annotations

from typing import Annotated

from sparklog.cli.output.document_parts import Document, Item, says


class JobFile(Item, frozen=True, kw_only=True):
    """A program for spark-submit."""

    name: Annotated[str, says("its name, as in `python -m sparklog.jobs.NAME`")]
    path: Annotated[str, says("the file that spark-submit takes")]
    description: Annotated[str, says("what it does, in one sentence")]


class JobList(Document, frozen=True, kw_only=True):
    """The programs for spark-submit that are installed with sparklog, by name."""

    jobs: list[JobFile]
    conf: Annotated[str, says("the folder with Spark settings")]
