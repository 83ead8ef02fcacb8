"""``sparklog jobs``: lists the programs for spark-submit that are installed with sparklog, with their paths.

Kafka has no such command. ``sparklog jobs NAME`` prints only a path, for ``spark-submit $(sparklog jobs produce) …``.
"""

from __future__ import annotations

import argparse

from sparklog.cli.arguments.parser import CommandParser, UsageError
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.errors.suggestions import did_you_mean


def parser() -> CommandParser:
    from sparklog.jobs import list_jobs

    options = CommandParser(
        "jobs",
        "List the programs for spark-submit with their paths. `sparklog jobs NAME` prints the path of one;\n"
        "`python -m sparklog.jobs.NAME` runs it without spark-submit.",
        'spark-submit "$(sparklog jobs produce)" --bootstrap-server /data/log --topic flights --format orc --path in',
        "[NAME] [OPTIONS]",
        connects=False,
    )
    options.add_argument("name", nargs="?", metavar="NAME", help="print only the path of this job")
    options.actions = tuple(job.name for job in list_jobs())
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    from sparklog.jobs import conf_folder, list_jobs

    jobs = list_jobs()
    names = [job.name for job in jobs]
    if options.name is not None:
        if options.name not in names:
            raise UsageError(f"unknown job {options.name!r}{did_you_mean(options.name, names)}")
        jobs = [job for job in jobs if job.name == options.name]
    if options.json:
        from sparklog.cli.output.documents import JobFile, JobList

        print_json(JobList(jobs=[JobFile(**job._asdict()) for job in jobs], conf=str(conf_folder())))
    elif options.name is not None:
        print(jobs[0].path)
    else:
        for job in jobs:
            print(f"{job.name}\n    {job.description}\n    {job.path}")
        print(f"Spark settings: {conf_folder()}")
    return 0
