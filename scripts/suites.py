#!/usr/bin/env python3
"""Runs the suites of tests/suites.toml: of a tier, by name, or those changed since they last passed.

    scripts/suites.py list                     every suite: its tier, its usual seconds, what became of it
    scripts/suites.py due                      those that are due; exits with 1 if any is, with 3 if one is for too long
    scripts/suites.py run s3 hdfs              these
    scripts/suites.py run --tier always        all of a tier (repeatable)
    scripts/suites.py run --due --seconds 500  what is due for too long, within --at-most seconds (4000); then what is
                                               due and fits into --seconds, least seconds first

A suite *watches* files: a change of one makes it due at once. It also *relies on* files that the suites of every
landing verify: a change there makes it due a week later. A pass is a line of tests/passes.jsonl, with digests of both
as git has them; commit that file. So a suite whose files are as they were at one of its passes is not due, whatever
happened in between. No pass is recorded while such a file differs from its commit, or where every test was skipped.

``run`` ends with one line: how many suites passed, failed, are not due and are due. It exits with 1 if one failed or
stays due for longer than its days. A suite that this machine cannot run (no Go, no network) stays due.

Rules: decisions are functions of a ``Suite`` and its ``History``. Only ``Repository`` runs git, only ``execute`` a
suite.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
SUITES = Path("tests/suites.toml")
PASSES = Path("tests/passes.jsonl")
PINS = "constraints.txt"
"""watched by every suite"""
SETTINGS = ("Makefile", "pyproject.toml", "tests/conftest.py")
"""relied on by every suite"""
NOT_PASSES = f":!{PASSES}"
"""A pass that is recorded changes no suite."""
TIERS = ("always", "touched", "nightly", "release")
DAY = 86_400
RELIED_ON_DAYS = 7
"""So long a suite may be without a pass after a change of what it only relies on, until it is due."""
PASSES_KEPT = 10
"""of each suite, so that a revert finds the pass of what it brings back."""
UNAVAILABLE = 69
"""exit code of the scripts that install what a suite needs, where that cannot be had (sysexits.h)"""
SHORTEST_LIMIT = 900.0
"""seconds; a suite is killed after four times its usual seconds, but not before."""


@dataclass(frozen=True)
class Suite:
    """One entry of tests/suites.toml, which explains the fields."""

    name: str
    run: str
    tier: str
    seconds: int
    watches: tuple[str, ...]
    relies_on: tuple[str, ...] = ()
    days: int | None = None
    needs: tuple[str, ...] = ()
    prepare: str = ""

    def __post_init__(self) -> None:
        if self.tier not in TIERS:
            raise ValueError(f"suite {self.name}: tier is {self.tier!r}, not one of {', '.join(TIERS)}")
        if not self.watches:
            raise ValueError(f"suite {self.name}: watches nothing, so it would never be due")
        if (self.days is None) != (self.tier in ("always", "release")):
            raise ValueError(f"suite {self.name}: `days` is for the tiers touched and nightly, which need it")


def parse_suites(text: str) -> dict[str, Suite]:
    """The suites by name. Raises ValueError for a field or value that is not allowed."""
    suites = {}
    for name, entry in tomllib.loads(text).items():
        lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
        try:
            suites[name] = Suite(name=name, **{**entry, **lists})
        except TypeError as error:
            raise ValueError(f"suite {name}: {error}") from None
    return suites


class Pass(NamedTuple):
    """One line of tests/passes.jsonl."""

    suite: str
    watched: str
    whole: str
    """digests of what it watches, and of that with what it relies on"""
    commit: str
    date: int
    """seconds since 1970"""
    seconds: int
    tests: int
    skipped: int
    machine: str


def parse_passes(text: str) -> list[Pass]:
    """Raises ValueError if a line is not a pass."""
    try:
        return [Pass(**json.loads(line)) for line in text.splitlines() if line.strip()]
    except TypeError as error:
        raise ValueError(f"{PASSES}: {error}") from None


def format_passes(passes: Iterable[Pass]) -> str:
    """The file's text: by suite, oldest first, the newest ``PASSES_KEPT`` of each."""
    by_suite: dict[str, list[Pass]] = {}
    for each in sorted(passes, key=lambda each: (each.suite, each.date)):
        by_suite.setdefault(each.suite, []).append(each)
    kept = [each for group in by_suite.values() for each in group[-PASSES_KEPT:]]
    return "".join(json.dumps(each._asdict()) + "\n" for each in kept)


# -- decisions


@dataclass(frozen=True)
class History:
    """What git and the passes say of one suite. Times are in seconds since 1970."""

    passed: bool
    """its watched files are as they were at a pass"""
    passed_whole: bool
    """and so are those that it relies on"""
    changed: int
    """first change of what it watches after its newest pass; without a pass, when the suite came to be"""
    relied_on_changed: int
    """the same for what it relies on"""


def due_since(suite: Suite, history: History, now: int) -> int | None:
    """Since when a suite is due; None if it is not."""
    if suite.tier == "always" or history.passed_whole:
        return None
    if not history.passed:
        return min(history.changed, now)  # a commit's clock may be ahead of this one
    since = history.relied_on_changed + RELIED_ON_DAYS * DAY
    return since if since <= now else None


def is_overdue(suite: Suite, since: int | None, now: int) -> bool:
    """Whether a suite is due for longer than its days."""
    return since is not None and suite.days is not None and now - since > suite.days * DAY


def choose(suites: Sequence[Suite], due: Mapping[str, int], now: int) -> list[Suite]:
    """Those that ``run --due`` starts, in this order: what is overdue, then touched ones, least seconds first."""
    chosen = [
        each
        for each in suites
        if each.name in due and (each.tier == "touched" or is_overdue(each, due[each.name], now))
    ]
    return sorted(chosen, key=lambda each: (not is_overdue(each, due[each.name], now), each.seconds))


# -- git


class Repository:
    """What git knows of a checkout. Stateless."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *arguments: str) -> str:
        """What git prints. Raises CalledProcessError."""
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout

    def files(self, paths: Sequence[str]) -> set[str]:
        """The tracked files below git's pathspecs."""
        return set(self.git("ls-files", "-z", "--", *paths).split("\0")) - {""}

    def digests(self, suite: Suite) -> tuple[str, str]:
        """Of the pins, the committed files that a suite watches and its command; of these and what it relies on."""
        watched = self.git("ls-files", "--stage", "--", PINS, *suite.watches, NOT_PASSES)
        # Apart, because a path that one list excludes may be in the other.
        relied_on = self.git("ls-files", "--stage", "--", *SETTINGS, *suite.relies_on, NOT_PASSES)
        command = f"{suite.prepare}\n{suite.run}\n{watched}"
        texts = (command, f"{command}\n{relied_on}")
        first, second = (hashlib.sha256(text.encode()).hexdigest()[:20] for text in texts)
        return first, second

    def is_clean(self, suite: Suite) -> bool:
        """Whether all that a suite watches and relies on is as committed."""
        lists = ((PINS, *suite.watches), (*SETTINGS, *suite.relies_on))
        return not any(self.git("status", "--porcelain", "--", *paths, NOT_PASSES) for paths in lists)

    def first_change(self, since: str, paths: Sequence[str]) -> int:
        """When the oldest commit after ``since`` that touches these paths was made; now if none does."""
        times = self.git("log", "--format=%ct", f"{since}..HEAD", "--", *paths, NOT_PASSES).split()
        return int(times[-1]) if times else int(time.time())

    def knows(self, commit: str) -> bool:
        """Whether HEAD descends from a commit: one that was amended or squashed is not known."""
        command = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
        return subprocess.run(command, cwd=self.root, capture_output=True, check=False).returncode == 0

    def history(self, suite: Suite, passes: Iterable[Pass]) -> History:
        """What ``due_since`` needs."""
        own = sorted((each for each in passes if each.suite == suite.name), key=lambda each: each.date)
        watched, whole = self.digests(suite)
        known = [each for each in own if self.knows(each.commit)]
        if known:
            changed = self.first_change(known[-1].commit, (PINS, *suite.watches))
            relied_on_changed = self.first_change(known[-1].commit, (*SETTINGS, *suite.relies_on))
        elif own:
            changed = relied_on_changed = own[-1].date
        else:
            added = self.git("log", "--format=%ct", f"-S[{suite.name}]", "--", str(SUITES)).split()
            changed = relied_on_changed = int(added[-1]) if added else int(time.time())
        return History(
            passed=any(each.watched == watched for each in own),
            passed_whole=any(each.whole == whole for each in own),
            changed=changed,
            relied_on_changed=relied_on_changed,
        )


# -- running


@dataclass
class Outcome:
    """What became of a run of one suite: "passed", "failed" or "unavailable"."""

    suite: Suite
    what: str
    seconds: int = 0
    why: str = ""
    tests: int = 0
    skipped: int = 0


def execute(suite: Suite, root: Path) -> Outcome:
    """Run a suite and print its output and how it ended. It is killed, with all it started, when it takes too long."""
    print(f"\n=== {suite.name}: {suite.run}", flush=True)
    missing = [tool for tool in suite.needs if shutil.which(tool) is None]
    if missing:
        return Outcome(suite, "unavailable", why=f"{', '.join(missing)} not in PATH")
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sparklog-suite-") as folder:
        report = Path(folder, "counts.jsonl")
        if suite.prepare:
            code = _run(suite.prepare, root, report, limit=max(SHORTEST_LIMIT, 4.0 * suite.seconds))
            if code:
                what = "unavailable" if code == UNAVAILABLE else "failed"
                return Outcome(suite, what, round(time.monotonic() - started), f"{suite.prepare}: exit code {code}")
        code = _run(suite.run, root, report, limit=max(SHORTEST_LIMIT, 4.0 * suite.seconds))
        counts = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    outcome = Outcome(
        suite,
        "passed",
        round(time.monotonic() - started),
        tests=sum(each["passed"] for each in counts),
        skipped=sum(each["skipped"] for each in counts),
    )
    if code:
        outcome.what, outcome.why = "failed", f"exit code {code}" if code > 0 else "killed: it took too long"
    elif counts and not outcome.tests:
        outcome.what, outcome.why = "unavailable", f"all {outcome.skipped} tests were skipped"
    return outcome


def _run(command: str, root: Path, report: Path, limit: float) -> int:
    """The exit code of a shell command; negative if it had to be killed."""
    environment = {**os.environ, "SPARKLOG_TEST_COUNTS": str(report)}
    process = subprocess.Popen(["bash", "-c", command], cwd=root, env=environment, start_new_session=True)
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        return -1
    finally:
        if process.poll() is None:  # too long, or interrupted by Ctrl-C
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def machine() -> str:
    """What a pass says of where it was seen."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


@dataclass
class Runner:
    """Runs suites of one checkout and records their passes. Not thread-safe."""

    repository: Repository
    suites: Mapping[str, Suite]
    run: Callable[[Suite, Path], Outcome] = execute
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def passes(self) -> list[Pass]:
        path = self.repository.root / PASSES
        return parse_passes(path.read_text()) if path.exists() else []

    def due(self, now: int) -> dict[str, int]:
        """Since when each suite that is due is due."""
        passes = self.passes
        since = {
            each.name: due_since(each, self.repository.history(each, passes), now) for each in self.suites.values()
        }
        return {name: time for name, time in since.items() if time is not None}

    def run_all(self, chosen: Iterable[Suite]) -> None:
        for suite in chosen:
            before = self.repository.digests(suite)
            outcome = self.run(suite, self.repository.root)
            self.outcomes.append(outcome)
            print(f"=== {suite.name}: {describe_outcome(outcome)}", flush=True)
            if outcome.what == "passed":
                self._record(outcome, before)

    def run_due(self, seconds: float, at_most: float, now: int) -> None:
        """Run what is due as long as its usual seconds fit into ``seconds``, and what is overdue into ``at_most``."""
        started = time.monotonic()
        due = self.due(now)
        done = {each.suite.name for each in self.outcomes}
        for suite in choose(list(self.suites.values()), due, now):
            limit = at_most if is_overdue(suite, due[suite.name], now) else seconds
            if suite.name not in done and suite.seconds <= limit - (time.monotonic() - started):
                self.run_all([suite])

    def _record(self, outcome: Outcome, before: tuple[str, str]) -> None:
        suite = outcome.suite
        if not self.repository.is_clean(suite) or self.repository.digests(suite) != before:
            print(f"=== {suite.name}: not recorded, because files that it watches or relies on are not committed")
            return
        commit = self.repository.git("rev-parse", "HEAD").strip()
        seen = Pass(
            suite.name, *before, commit, int(time.time()), outcome.seconds, outcome.tests, outcome.skipped, machine()
        )
        (self.repository.root / PASSES).write_text(format_passes([*self.passes, seen]))

    def summarize(self, now: int) -> int:
        """Print the last lines of ``run``; return its exit code."""
        due = self.due(now)
        by_outcome = {
            what: [each for each in self.outcomes if each.what == what] for what in ("passed", "failed", "unavailable")
        }
        print()
        for each in sorted(self.outcomes, key=lambda each: -each.seconds):
            print(f"{each.seconds:>6} s  {each.suite.name}: {describe_outcome(each)}")
        print_due(self.suites, due, now)
        unchanged = sum(each.tier != "always" and each.name not in due for each in self.suites.values())
        late = [name for name in due if is_overdue(self.suites[name], due[name], now)]
        print(
            f"suites: {len(by_outcome['passed'])} passed, {len(by_outcome['failed'])} failed, "
            f"{len(by_outcome['unavailable'])} cannot run here, {unchanged} not due, {len(due)} due, "
            f"{len(late)} of them for too long"
        )
        return 1 if by_outcome["failed"] or late else 0


def describe_outcome(outcome: Outcome) -> str:
    """Such as "passed in 31 s, 120 tests, 2 skipped"."""
    text = f"{outcome.what} in {outcome.seconds} s"
    if outcome.tests or outcome.skipped:
        text += f", {outcome.tests} tests, {outcome.skipped} skipped"
    return f"{text}: {outcome.why}" if outcome.why else text


def print_due(suites: Mapping[str, Suite], due: Mapping[str, int], now: int) -> None:
    for name, since in sorted(due.items(), key=lambda item: item[1]):
        days = suites[name].days
        limit = "before a release" if days is None else f"at most {days}"
        late = ", TOO LONG" if is_overdue(suites[name], since, now) else ""
        print(f"due: {name} ({suites[name].seconds} s), for {(now - since) / DAY:.1f} days, {limit}{late}")


def print_list(runner: Runner, now: int) -> None:
    due = runner.due(now)
    last = {each.suite: each for each in runner.passes}
    for suite in runner.suites.values():
        state = "always run" if suite.tier == "always" else "due" if suite.name in due else "not due"
        seen = f"passed in {last[suite.name].seconds} s at {last[suite.name].commit[:8]}" if suite.name in last else ""
        print(f"{suite.name:<16}{suite.tier:<9}{suite.seconds:>6} s  {state:<11}{suite.run}  {seen}".rstrip())


def parse_arguments(arguments: Sequence[str], suites: Mapping[str, Suite]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="every suite")
    due = commands.add_parser("due", help="those that are due; exits with 1 if any is, with 3 if one is for too long")
    due.add_argument("--tier", choices=TIERS, action="append", help="only those of this tier")
    run = commands.add_parser("run", help="run suites and record what passes")
    run.add_argument("names", nargs="*", metavar="NAME", help="a suite")
    run.add_argument("--tier", choices=TIERS, action="append", default=[], help="all suites of a tier")
    run.add_argument("--due", action="store_true", help="what is due and touched, and what is due for too long")
    run.add_argument("--seconds", type=float, default=float("inf"), help="start nothing due that takes longer in all")
    run.add_argument("--at-most", type=float, default=4000.0, help="the same for what is due for too long")
    parsed = parser.parse_args(arguments)
    if parsed.command == "run":
        unknown = sorted(set(parsed.names) - set(suites))
        if unknown:
            parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(suites)}")
        if not (parsed.names or parsed.tier or parsed.due):
            parser.error("name suites, or say --tier or --due")
    return parsed


def main(arguments: Sequence[str] = sys.argv[1:], root: Path = ROOT) -> int:
    suites = parse_suites((root / SUITES).read_text())
    parsed = parse_arguments(arguments, suites)
    runner = Runner(Repository(root), suites)
    now = int(time.time())
    if parsed.command == "list":
        print_list(runner, now)
        return 0
    if parsed.command == "due":
        due = {name: since for name, since in runner.due(now).items() if suites[name].tier in (parsed.tier or TIERS)}
        print_due(suites, due, now)
        return 3 if any(is_overdue(suites[name], since, now) for name, since in due.items()) else int(bool(due))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that the suite ends, too
    started = time.monotonic()
    runner.run_all(each for each in suites.values() if each.name in parsed.names or each.tier in parsed.tier)
    if parsed.due:
        used = time.monotonic() - started
        runner.run_due(parsed.seconds - used, parsed.at_most - used, now)
    return runner.summarize(now)


if __name__ == "__main__":
    sys.exit(main())
