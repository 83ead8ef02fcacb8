"""Rules of the project itself: exports, cost of imports, sizes, leftovers, executable bits, conf files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import sparklog
from scripts import check_project, dist, lowest
from scripts.suites import parse_suites
from tests.conftest import ELSEWHERE, FOLDERS

ROOT = Path(__file__).resolve().parents[2]
SPARK_CONFS = sorted((ROOT / "conf").glob("spark-*.conf"))


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# --- the public surface


def test_all_names_what_the_package_exports_and_nothing_else() -> None:
    assert set(sparklog.__all__) <= set(dir(sparklog))
    assert all(hasattr(sparklog, name) for name in sparklog.__all__)


def test_the_attribute_error_for_an_unknown_name_names_it() -> None:
    with pytest.raises(AttributeError, match=r"module 'sparklog' has no attribute 'regsiter'"):
        _ = sparklog.regsiter  # type: ignore[attr-defined]


def test_importing_the_package_loads_only_the_standard_library() -> None:
    loaded = run_python(
        "import sys; before = set(sys.modules); import sparklog, sparklog.errors;"
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before} - sys.stdlib_module_names))"
    )
    assert loaded == "sparklog"


def test_package_is_typed() -> None:
    assert (ROOT / "sparklog" / "py.typed").exists()


def test_named_tuples_have_no_other_base_since_python_3_10_refuses_to_import_them() -> None:
    found = [
        f"{source.relative_to(ROOT)}:{node.lineno}"
        for source in (ROOT / "sparklog").rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ClassDef)
        and len(node.bases) > 1
        and "NamedTuple" in [ast.unparse(base) for base in node.bases]
    ]
    assert found == []


def test_no_generator_holds_a_lock_while_it_is_suspended() -> None:
    """A Ctrl-C in contextlib's own ``__enter__`` would leave the lock behind for as long as the traceback lives."""
    found = [
        f"{source.relative_to(ROOT)}:{block.lineno}"
        for source in (ROOT / "sparklog").rglob("*.py")
        for block in ast.walk(ast.parse(source.read_text()))
        if isinstance(block, ast.With)
        and re.search("lock|held|no_fork", " ".join(ast.unparse(item.context_expr) for item in block.items))
        and any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(block))
    ]
    assert found == []


# --- the contracts on imports


def imported_by_the_package() -> set[str]:
    """Return the top-level names that any module of the package imports, also in functions and for annotations."""
    names = set()
    for source in (ROOT / "sparklog").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(str(node.module).partition(".")[0])
    return names


def test_every_library_that_the_package_imports_has_a_contract_that_says_where() -> None:
    """The contracts on protected modules list who may import them, so that a new package may not. Every place of the
    package is in the contract on floors, which is exhaustive."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML parser")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    protected = {name for contract in contracts for name in contract.get("protected_modules", ())}
    annotations = {"typing_extensions"}
    libraries = imported_by_the_package() - set(sys.stdlib_module_names) - {"sparklog"} - annotations
    assert libraries - protected == set()
    assert [contract["containers"] for contract in contracts if contract.get("exhaustive")] == [["sparklog"]]


# --- scripts/check_project.py detects breaches


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (check_project.machine_paths, "a.md", "see /w" + "ork/main\n"),
        (check_project.machine_paths, "a.md", "cd /ho" + "me/me/project\n"),
        (check_project.registry_addresses, "a.txt", "--index-url https://p" + "ypi.org/simple\n"),
        (check_project.registry_addresses, "a.xml", "<url>https://repo1.m" + "aven.org/m2</url>\n"),
        (check_project.leftovers, "a.py", "# TO" + "DO: later\n"),
        (check_project.leftovers, "a.py", "<<<<" + "<<< HEAD\n"),
        (check_project.private_names, "tests/test_a.py", "from spark" + "log.log import layout, _key\n"),
        (check_project.private_names, "tests/test_a.py", "monkeypatch.set" + 'attr(layout, "_key", None)\n'),
        (check_project.private_names, "tests/test_a.py", 'monkeypatch.setattr("spark' + 'log.layout._key", None)\n'),
        (check_project.long_files, "a.py", "x = 1\n" * 1001),
        (check_project.long_functions, "a.py", "def f():\n" + "    x = 1\n" * 70),
        (check_project.modules_without_docstring, "sparklog/a.py", "x = 1\n"),
        (check_project.replaced_words, "sparklog/a.py", "def f(first_place: int) -> None: ...\n"),
        (
            check_project.replaced_words,
            "sparklog/a.py",
            "class A:\n    def f(self) -> None:\n        self.places = 1\n",
        ),
        (check_project.modules_without_docstring, "pyspark_sparklog/__init__.py", "x = 1\n"),
        (check_project.careless_shell, "a.sh", "#!/usr/bin/env bash\necho\n"),
        (check_project.careless_shell, "a.sh", "set -euo pipefail\nif true; then\n"),
    ],
)
def test_check_reports_the_breach(
    rule: Callable[[str, str], Iterable[check_project.Breach]], path: str, text: str
) -> None:
    assert len(list(rule(path, text))) == 1


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (check_project.machine_paths, "a.md", "networking, framework/, roots/ and ./work\n"),
        (check_project.registry_addresses, "a.md", "https://spark.apache.org/docs\n"),
        (check_project.private_names, "tests/test_a.py", "from sparklog.log import layout, key_of\n"),
        (check_project.private_names, "tests/simulation/test_seeded_bugs.py", "set" + 'attr(log, "_key", None)\n'),
        (check_project.long_files, "a.py", "x = 1\n" * 1000),
        (check_project.long_functions, "a.py", "def f():\n" + "    x = 1\n" * 69),
        (check_project.modules_without_docstring, "sparklog/a/__init__.py", ""),
        (check_project.replaced_words, "sparklog/a.py", "replaced = placement = other.place\n"),
        (check_project.careless_shell, "a.sh", "#!/usr/bin/env bash\nset -euo pipefail\n"),
    ],
)
def test_check_accepts_everything_else(
    rule: Callable[[str, str], Iterable[check_project.Breach]], path: str, text: str
) -> None:
    assert list(rule(path, text)) == []


def test_leftovers_are_found_beside_the_bytes_of_pictures_only() -> None:
    text = '"image/png": "+X' + 'XX/",\n# TO' + "DO\n"
    assert [found.line for found in check_project.leftovers("a", check_project.without_pictures("a.ipynb", text))] == [
        2
    ]
    assert len(list(check_project.leftovers("a", check_project.without_pictures("a.md", text)))) == 2


def test_shebang_and_executable_bit_must_agree() -> None:
    assert list(check_project.missing_run_bit("a.sh", "#!/bin/sh\n", "100644"))
    assert list(check_project.missing_run_bit("a.py", "x = 1\n", "100755"))
    assert not list(check_project.missing_run_bit("a.sh", "#!/bin/sh\n", "100755"))


# --- conf/


def settings(conf: Path, *, commented: bool = False) -> list[tuple[str, str]]:
    """The ``spark.key value`` lines of a Spark properties file, or its commented-out alternatives."""
    pattern = r"# (spark\.\S+)\s{2,}(\S.*)$" if commented else r"(\S+)\s+(\S.*)$"
    pairs = []
    for line in conf.read_text().splitlines():
        if line.strip() and line.startswith("#") == commented:
            match = re.match(pattern, line)
            assert match or commented, f"{conf.name}: not a setting: {line}"
            if match:
                pairs.append((match[1], match[2]))
    return pairs


@pytest.mark.parametrize("conf", SPARK_CONFS, ids=lambda conf: conf.name)
def test_spark_conf_sets_every_key_once_and_only_keys_of_spark(conf: Path) -> None:
    keys = [key for key, _ in settings(conf)]
    assert keys
    assert len(keys) == len(set(keys))
    assert all(key.startswith("spark.") for key in keys)


@pytest.mark.parametrize("name", ["local", "standalone", "yarn", "kubernetes"])
def test_every_environment_pushes_filters_down_and_moves_arrow(name: str) -> None:
    values = dict(settings(ROOT / "conf" / f"spark-{name}.conf"))
    assert values["spark.sql.python.filterPushdown.enabled"] == "true"
    assert values["spark.sql.execution.arrow.pyspark.enabled"] == "true"
    assert values["spark.sql.session.timeZone"] == "UTC"


def test_environments_agree_on_what_does_not_depend_on_them() -> None:
    environments = [dict(settings(conf)) for conf in SPARK_CONFS if conf.name != "spark-delta.conf"]
    for key in ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"):
        assert len({values[key] for values in environments}) == 1


def test_delta_jars_come_in_the_version_of_the_python_package() -> None:
    values = dict(settings(ROOT / "conf" / "spark-delta.conf"))
    version = values["spark.jars.packages"].rpartition(":")[2]
    assert f"delta-spark=={version}\n" in (ROOT / "constraints.txt").read_text()
    assert all(re.fullmatch(r"[\w.]+:[\w-]+", excluded) for excluded in values["spark.jars.excludes"].split(","))
    assert (ROOT / values["spark.jars.ivySettings"]).exists()


def test_ivy_has_the_central_repository_as_its_only_resolver_and_names_no_address() -> None:
    text = (ROOT / "conf" / "ivysettings.xml").read_text()
    resolvers = ElementTree.fromstring(text).findall("resolvers/*")
    assert [(resolver.tag, resolver.attrib) for resolver in resolvers] == [
        ("ibiblio", {"name": "central", "m2compatible": "true"})
    ]
    assert "://" not in text


# --- dependencies


def test_constraints_name_packages_and_exact_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    pin = r'[a-z0-9][a-z0-9.-]*==[\w.]+(; python_(full_)?version (<|>=) "3\.[\d.]+")?'
    assert [line for line in pins if not re.fullmatch(pin, line)] == []
    assert len(pins) == len(set(pins))


def test_every_dependency_is_pinned() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML parser")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in wanted}
    assert names - pinned == {"sparklog"}


def test_every_dependency_has_a_lowest_version() -> None:
    project = lowest.read_project()
    pins = lowest.lowest(lowest.requirements(project, project["optional-dependencies"]))
    assert len(pins) > 20
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9.]+", pin) for pin in pins)
    with pytest.raises(ValueError, match="no lower bound in 'a<2'"):
        lowest.lowest(["a<2"])


def test_every_target_of_the_makefile_has_a_description() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert sorted(phony.split()) == sorted(re.findall(r"^([a-z0-9-]+):.* ## ", makefile, re.MULTILINE))


def test_ci_runs_the_tests_that_developers_run_and_has_suites_for_what_these_leave_out() -> None:
    suites = parse_suites((ROOT / "tests" / "suites.toml").read_text()).values()
    assert "make test" in {suite.run for suite in suites if suite.tier == "always"}
    assert " run --tier always --due " in (ROOT / ".ci" / "run").read_text()
    others = {suite.run.partition(" TESTS=")[0] for suite in suites if suite.tier != "always"}
    assert {"make coverage", *ELSEWHERE.values(), *FOLDERS.values()} <= others


def listed(variable: str) -> list[str]:
    """Return the words of a variable of the Makefile, as make reads them."""
    show = f"include Makefile\nshow:\n\t@echo $({variable})\n"
    shown = subprocess.run(
        ["make", "-s", "-f", "-", "show"], input=show, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return shown.stdout.split()


def test_the_lowest_versions_are_tested_on_every_floor() -> None:
    floors = {path.name for folder in ("unit", "cluster") for path in (ROOT / "tests" / folder).iterdir()}
    floors &= {path.parent.name for path in (ROOT / "sparklog").glob("*/__init__.py")} - {"kafka", "testing"}
    paths = listed("LOWEST")
    assert [path for path in paths if not (ROOT / path).is_file()] == []
    assert len(floors) >= 14
    assert floors - {Path(path).parent.name for path in paths} == set()


def test_no_program_that_a_unit_test_starts_opens_a_cluster() -> None:
    """``tests/unit/conftest.py`` refuses it in the process of the tests."""
    calls = re.compile(r"\b(?:create_cluster|open_cluster|shared_cluster|append_records|CommitLog)\(")
    found = [
        f"{source.relative_to(ROOT)}:{number}"
        for source in sorted((ROOT / "tests" / "unit").rglob("*.py"))
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if calls.search(line)
    ]
    assert found == []


def test_zip_for_executors_has_only_modules_and_is_reproducible(tmp_path: Path) -> None:
    wheel = tmp_path / "sparklog-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("sparklog/b.py", "sparklog/__init__.py", "sparklog/py.typed", "sparklog-9.9.9.dist-info/METADATA"):
            archive.writestr(name, "x = 1\n")
    built = dist.zip_for_executors(wheel, tmp_path, seconds=1_700_000_000)
    first = built.read_bytes()
    assert zipfile.ZipFile(built).namelist() == ["sparklog/__init__.py", "sparklog/b.py", "sparklog/py.typed"]
    assert dist.zip_for_executors(wheel, tmp_path, seconds=1_700_000_000).read_bytes() == first
    assert built.name == "sparklog-9.9.9-py.zip"
