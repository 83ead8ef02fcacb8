"""scripts/suites.py, and what tests/suites.toml says of this project: nothing unwatched, nothing imported unseen."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scripts import suites
from scripts.suites import DAY, RELIED_ON_DAYS, SETTINGS, History, Outcome, Pass, Repository, Runner, Suite

CHECKOUT = Path(__file__).resolve().parents[2]
NOW = 100 * DAY
YARN = Suite("yarn", "make test-yarn", "touched", 600, ("jobs/",), ("log/",), days=3)


def seen(name: str, date: int, **changed: Any) -> Pass:
    values = {"watched": "w", "whole": "v", "commit": "c", "seconds": 1, "tests": 1, "skipped": 0, "machine": "m"}
    return Pass(name, date=date, **{**values, **changed})


# -- when a suite is due


def test_a_suite_whose_files_are_those_of_a_pass_is_not_due() -> None:
    assert suites.due_since(YARN, History(True, True, 1, 1), NOW) is None


def test_a_change_of_what_a_suite_watches_makes_it_due_at_once() -> None:
    assert suites.due_since(YARN, History(False, False, NOW - 5, NOW - 5), NOW) == NOW - 5


def test_a_change_dated_in_the_future_makes_a_suite_due_now() -> None:
    assert suites.due_since(YARN, History(False, False, NOW + DAY, NOW + DAY), NOW) == NOW


def test_a_change_of_what_a_suite_relies_on_makes_it_due_a_week_later() -> None:
    week = RELIED_ON_DAYS * DAY
    assert suites.due_since(YARN, History(True, False, 1, NOW - week + 1), NOW) is None
    assert suites.due_since(YARN, History(True, False, 1, NOW - week), NOW) == NOW


def test_a_suite_is_overdue_after_its_days_and_one_of_a_release_never() -> None:
    release = Suite("soak", "make test-soak", "release", 1800, ("log/",))
    assert not suites.is_overdue(YARN, NOW - 3 * DAY, NOW)
    assert suites.is_overdue(YARN, NOW - 3 * DAY - 1, NOW)
    assert not suites.is_overdue(YARN, None, NOW)
    assert not suites.is_overdue(release, 0, NOW)


def test_overdue_suites_run_first_then_the_shortest_and_no_others_of_the_night() -> None:
    def suite(name: str, tier: str, seconds: int) -> Suite:
        return Suite(name, "true", tier, seconds, ("x",), days=None if tier == "release" else 3)

    every = [
        suite("long", "touched", 600),
        suite("short", "touched", 60),
        suite("not due", "touched", 1),
        suite("night", "nightly", 1),
        suite("late", "nightly", 900),
        suite("late too", "touched", 500),
        suite("soak", "release", 1),
    ]
    due = {each.name: 0 if "late" in each.name else NOW - 1 for each in every if each.name != "not due"}
    assert [each.name for each in suites.choose(every, due, NOW)] == ["late too", "late", "short", "long"]


# -- the two files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[a]\nrun = "x"\ntier = "often"\nseconds = 1\nwatches = ["x"]', "suite a: tier is 'often', not one of always"),
        ('[a]\nrun = "x"\ntier = "always"\nseconds = 1\nwatches = []', "suite a: watches nothing"),
        ('[a]\nrun = "x"\ntier = "touched"\nseconds = 1\nwatches = ["x"]', "suite a: `days` is for the tiers"),
        ('[a]\nrun = "x"\ntier = "always"\nseconds = 1\nwatch = ["x"]', "suite a: .*watch"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        suites.parse_suites(text)


def test_the_file_of_passes_keeps_the_newest_of_each_suite() -> None:
    passes = [seen("b", 1), *(seen("a", number) for number in range(50))]
    kept = suites.parse_passes(suites.format_passes(passes))
    assert [(each.suite, each.date) for each in kept] == [("a", number) for number in range(40, 50)] + [("b", 1)]


# -- a repository


class Checkout:
    """A real repository with two suites."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.write(suites.PINS, "pins")
        self.write(str(suites.SUITES), TWO_SUITES)
        self.write("jobs/produce.py", "1")
        self.write("log/commits.py", "1")
        self.write("Makefile", "test-yarn:")
        self.commit()
        self.results: dict[str, str] = {}
        self.started: list[str] = []

    def git(self, *arguments: str) -> None:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
        subprocess.run(["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "-q", "--allow-empty", "-m", "change")

    def run(self, suite: Suite, root: Path) -> Outcome:
        self.started.append(suite.name)
        return Outcome(suite, self.results.get(suite.name, "passed"), tests=1)

    def runner(self) -> Runner:
        return Runner(Repository(self.root), suites.parse_suites(TWO_SUITES), run=self.run)

    def due(self, days: float = 0) -> set[str]:
        return set(self.runner().due(int(time.time() + days * DAY)))

    def run_suites(self, *names: str) -> Runner:
        runner = self.runner()
        runner.run_all(runner.suites[name] for name in names)
        return runner


TWO_SUITES = """
[yarn]
run = "make test-yarn"
tier = "touched"
seconds = 600
days = 3
watches = ["jobs/"]
relies_on = ["log/", "tests/"]

[soak]
run = "make test-soak"
tier = "release"
seconds = 1800
watches = ["log/"]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_suite_that_never_passed_is_due_and_one_that_passed_is_not(checkout: Checkout) -> None:
    assert checkout.due() == {"yarn", "soak"}
    checkout.run_suites("yarn")
    assert checkout.due() == {"soak"}


def test_a_recorded_pass_changes_no_suite(checkout: Checkout) -> None:
    """The file of passes lies below tests/, on which suites rely."""
    checkout.run_suites("yarn", "soak", "yarn")
    assert [each.suite for each in checkout.runner().passes] == ["soak", "yarn", "yarn"]
    checkout.commit()
    assert checkout.due(days=100) == set()


def test_a_commit_elsewhere_costs_nothing_and_neither_does_a_revert(checkout: Checkout) -> None:
    checkout.run_suites("yarn")
    checkout.write("README.md", "words")
    checkout.commit()
    assert "yarn" not in checkout.due(days=100)
    checkout.write("jobs/produce.py", "2")
    checkout.commit()
    assert "yarn" in checkout.due()
    checkout.git("revert", "--no-edit", "HEAD")
    assert "yarn" not in checkout.due(days=100)


def test_a_new_file_a_removed_one_and_other_pins_make_a_suite_due(checkout: Checkout) -> None:
    def change_and_pass(path: str, text: str) -> None:
        checkout.run_suites("yarn")
        checkout.write(path, text)
        checkout.commit()
        assert "yarn" in checkout.due()

    change_and_pass("jobs/consume.py", "1")
    change_and_pass(suites.PINS, "other pins")
    checkout.run_suites("yarn")
    checkout.git("rm", "-q", "jobs/consume.py")
    checkout.commit()
    assert "yarn" in checkout.due()


@pytest.mark.parametrize("path", ["log/commits.py", "Makefile"])
def test_what_a_suite_relies_on_makes_it_due_after_a_week(checkout: Checkout, path: str) -> None:
    checkout.run_suites("yarn")
    checkout.write(path, "2")
    checkout.commit()
    assert "yarn" not in checkout.due(days=RELIED_ON_DAYS - 0.1)
    assert "yarn" in checkout.due(days=RELIED_ON_DAYS + 0.1)


@pytest.mark.parametrize("path", ["jobs/produce.py", "jobs/untracked.py", "log/commits.py", "constraints.txt"])
def test_no_pass_is_recorded_for_files_that_are_not_committed(checkout: Checkout, path: str) -> None:
    checkout.write(path, "not committed")
    checkout.run_suites("yarn")
    assert not checkout.runner().passes


def test_no_pass_is_recorded_when_a_commit_was_made_meanwhile(checkout: Checkout) -> None:
    def run(suite: Suite, root: Path) -> Outcome:
        checkout.write("jobs/produce.py", "2")
        checkout.commit()
        return Outcome(suite, "passed")

    runner = checkout.runner()
    runner.run = run
    runner.run_all([runner.suites["yarn"]])
    assert not checkout.runner().passes


@pytest.mark.parametrize("what", ["failed", "unavailable"])
def test_only_a_pass_is_recorded(checkout: Checkout, what: str) -> None:
    checkout.results["yarn"] = what
    checkout.run_suites("yarn")
    assert "yarn" in checkout.due()


def test_a_pass_of_a_commit_that_was_amended_still_counts(checkout: Checkout) -> None:
    checkout.run_suites("yarn")
    checkout.git("commit", "--amend", "-m", "other words", "--allow-empty")
    assert "yarn" not in checkout.due()
    checkout.write("jobs/produce.py", "2")
    checkout.commit()
    assert "yarn" in checkout.due()


def test_what_does_not_fit_is_not_started_and_stays_due(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    runner = checkout.runner()
    runner.run_due(seconds=599, at_most=4000, now=int(time.time()))
    assert checkout.started == []
    assert runner.summarize(int(time.time())) == 0
    assert "due: yarn (600 s), for 0.0 days, at most 3\n" in capsys.readouterr().out


def test_a_suite_that_is_due_for_too_long_runs_whatever_it_takes_or_fails_the_run(checkout: Checkout) -> None:
    now = int(time.time()) + 4 * DAY
    late = checkout.runner()
    late.run_due(seconds=0, at_most=0, now=now)
    assert checkout.started == []
    assert late.summarize(now) == 1
    late.run_due(seconds=0, at_most=601, now=now)
    assert checkout.started == ["yarn"]
    assert late.summarize(now) == 0


def test_a_failed_suite_fails_the_run(checkout: Checkout) -> None:
    checkout.results["yarn"] = "failed"
    assert checkout.run_suites("yarn").summarize(int(time.time())) == 1


def test_the_command_line_tells_by_its_exit_code_what_is_due(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suites.main(["due"], checkout.root) == 1
    checkout.run_suites("yarn", "soak")
    assert suites.main(["due"], checkout.root) == 0
    assert suites.main(["list"], checkout.root) == 0
    with pytest.raises(SystemExit):
        suites.main(["run", "yam"], checkout.root)
    assert "no such suite: yam; there are yarn, soak" in capsys.readouterr().err


# -- a run of a suite


def run_command(command: str, tmp_path: Path, **fields: Any) -> Outcome:
    return suites.execute(Suite("a", command, "always", 1, ("x",), **fields), tmp_path)


def test_what_a_command_says_by_its_exit_code_is_the_outcome(tmp_path: Path) -> None:
    assert run_command("true", tmp_path).what == "passed"
    assert run_command("exit 3", tmp_path).what == "failed"
    assert run_command("true", tmp_path, prepare="exit 69").what == "unavailable"
    assert run_command("true", tmp_path, prepare="exit 1").what == "failed"
    assert run_command("true", tmp_path, needs=("no-such-program",)).what == "unavailable"


def test_a_run_that_skips_every_test_is_no_pass(tmp_path: Path) -> None:
    shutil.copy(CHECKOUT / "tests" / "conftest.py", tmp_path / "conftest.py")
    (tmp_path / "test_skipped.py").write_text('import pytest\n\ndef test_one():\n    pytest.skip("no server")\n')
    alone = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
    command = f"{alone} {sys.executable} -m pytest -q -p no:cacheprovider -c /dev/null --rootdir . ."
    outcome = run_command(command, tmp_path)
    assert (outcome.what, outcome.skipped) == ("unavailable", 1)
    (tmp_path / "test_passed.py").write_text("def test_two():\n    pass\n")
    outcome = run_command(command, tmp_path)
    assert (outcome.what, outcome.tests, outcome.skipped) == ("passed", 1, 1)


def test_a_suite_that_takes_too_long_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "SHORTEST_LIMIT", 0.2)
    suite = Suite("a", "sleep 600 & wait", "always", 0, ("x",))
    outcome = suites.execute(suite, tmp_path)
    assert (outcome.what, outcome.why) == ("failed", "killed: it took too long")


# -- this project's suites


def project() -> dict[str, Suite]:
    return suites.parse_suites((CHECKOUT / suites.SUITES).read_text())


needs_git = pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="not a checkout of git")


@needs_git
def test_each_path_of_a_suite_exists() -> None:
    repository = Repository(CHECKOUT)
    for suite in project().values():
        for path in (*suite.watches, *suite.relies_on):
            assert repository.files([path.removeprefix(":!")]), f"{suite.name}: no file fits {path}"


@needs_git
def test_every_file_that_runs_is_watched_by_a_suite() -> None:
    repository = Repository(CHECKOUT)
    watched = set().union(*(repository.files(suite.watches) for suite in project().values() if suite.name != "rules"))
    for folder in ("sparklog", "pyspark_sparklog", "jobs", "conf", "scripts", "tests"):
        assert repository.files([f"{folder}/"]) <= watched


@needs_git
def test_servers_and_manifests_are_watched_by_the_suites_that_start_them() -> None:
    """They are what no suite of every landing runs."""
    repository = Repository(CHECKOUT)
    touched = [suite for suite in project().values() if suite.tier in ("touched", "nightly", "release")]
    watched = set().union(*(repository.files(suite.watches) for suite in touched))
    apart = {"scripts/servers/common.py"}  # part of every server
    assert repository.files(
        ["scripts/servers/", "conf/kubernetes/", "conf/policies/", "conf/spark-*.conf"]
    ) - apart <= (
        watched | {"conf/spark-local.conf", "conf/spark-delta.conf"}  # of the tests of every landing
    )


MARKERS = {
    **{name: name for name in ("s3", "hdfs", "gcs", "azure", "standalone", "yarn", "k8s")},
    **{name: name for name in ("ui", "thirdparty", "airflow", "stress", "soak", "slow")},
    **dict.fromkeys(("faults-operations", "faults-others"), "faults"),
    "faults-steps": "sampled",
    "go-parsers": "go",
}
"""The marker that selects a suite's tests."""


@needs_git
@pytest.mark.parametrize("name", MARKERS)
def test_what_a_suite_imports_is_watched_or_relied_on(name: str) -> None:
    suite = project()[name]
    repository = Repository(CHECKOUT)
    graph = ImportGraph(repository.files(["*.py"]))
    marked = {path for path in repository.files(["tests/*.py"]) if is_marked(path, MARKERS[name]) and runs(suite, path)}
    folders = {path.removesuffix("conftest.py") for path in marked if path.endswith("/conftest.py")}
    tests = marked | {path for path in graph.files if path.startswith(tuple(folders))}
    assert tests
    missing = graph.closure(tests) - repository.files(suite.watches) - repository.files([*SETTINGS, *suite.relies_on])
    assert not missing, f"neither watched nor relied on: {sorted(missing)}"
    unwatched = marked - repository.files(suite.watches)
    assert not unwatched, f"tests of the suite that it does not watch: {sorted(unwatched)}"


@needs_git
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("sparklog/store/hdfs.py", "hdfs"),
        ("jobs/produce.py", "test"),
        ("jobs/produce.py", "standalone"),
        ("conf/kubernetes/manifests/maintenance.yaml", "test"),
        ("conf/kubernetes/manifests/maintenance.yaml", "k8s"),
        ("sparklog/spark/versions/api.py", "spark40"),
        ("sparklog/ui/static/page.js", "ui"),
    ],
)
def test_a_change_is_watched_by_the_suite_that_would_find_a_bug_there(path: str, name: str) -> None:
    assert path in Repository(CHECKOUT).files(project()[name].watches)


OF_ONE_STORAGE = {"s3fs": "s3", "botocore": "s3", "gcsfs": "gcs", "adlfs": "azure", "hdfs_native": "hdfs"}


@needs_git
def test_a_module_that_knows_a_storage_is_watched_by_the_suite_of_that_storage() -> None:
    repository = Repository(CHECKOUT)
    for library, name in OF_ONE_STORAGE.items():
        watched = repository.files(project()[name].watches)
        knowing = {path for path in repository.files(["sparklog/*.py"]) if library in imported_names(path)}
        assert knowing <= watched, f"{name} does not watch {sorted(knowing - watched)}"


def runs(suite: Suite, path: str) -> bool:
    """Whether the part of the tests that the suite runs, by ``TESTS``, includes a file."""
    words = next((word[6:].split() for word in shlex.split(suite.run) if word.startswith("TESTS=")), [])
    ignored = tuple(word.removeprefix("--ignore=") for word in words if word.startswith("--ignore="))
    chosen = tuple(word for word in words if not word.startswith("-"))
    return path.startswith(chosen or "tests") and not path.startswith(ignored)


def is_marked(path: str, marker: str) -> bool:
    """Whether a module of tests gives a test this marker."""
    pattern = rf"\bmark\.{marker}\b" + (rf'|"{marker}": ' if path == "tests/deployment/conftest.py" else "")
    return re.search(pattern, (CHECKOUT / path).read_text()) is not None


@cache
def imported_names(path: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse((CHECKOUT / path).read_text())):
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{each.name}" for each in node.names)
    return names


class ImportGraph:
    """Which tracked file imports which, also inside functions."""

    def __init__(self, files: set[str]) -> None:
        self.files = files
        self._modules = {path[:-3].replace("/", ".").removesuffix(".__init__"): path for path in files}
        self._imports: dict[str, set[str]] = {}

    def closure(self, paths: set[str]) -> set[str]:
        found: set[str] = set()
        waiting = set(paths)
        while waiting:
            path = waiting.pop()
            found.add(path)
            waiting |= self._imported(path) - found
        return found

    def _imported(self, path: str) -> set[str]:
        if path not in self._imports:
            self._imports[path] = {found for name in imported_names(path) for found in self._files_of(name)}
        return self._imports[path]

    def _files_of(self, name: str) -> Iterator[str]:
        """The module of a name, and the packages around it."""
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            path = self._modules.get(".".join(parts[:length]))
            if path:
                yield path
