"""Check what has to hold before a release; prints a line for each check, and exits with 1 if one failed.

    python scripts/release_check.py            everything; `make release-check`
    python scripts/release_check.py NAME …     only these checks

A check that this machine cannot make is skipped, with its reason: clean installs need a package index, images a
builder.

Not for: tests of behaviour (`.ci/run`); docs/releasing.md says what else to do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts import dist  # noqa: E402

LICENCES = ("LICENSE", "NOTICE")
DOCUMENT_TESTS = ("tests/unit/test_documents.py", "tests/cluster/test_levels.py", "tests/unit/test_public_surface.py",
                  "tests/unit/config/test_reference.py", "tests/cluster/cli/test_json_documents.py")  # fmt: skip
DOCKERFILE = ROOT / "conf" / "kubernetes" / "Dockerfile"
BUILDERS = ("docker", "podman", "buildah")
EXTRAS = ("", "metrics,alerts,avro")
"""The extras of each clean installation; those of Spark are in the suites."""

SMOKE = """
import sys, tempfile
import sparklog
assert sparklog.__version__ == sys.argv[1], sparklog.__version__
with tempfile.TemporaryDirectory() as root:
    sparklog.create_cluster(root).create_topic("orders", partitions=2)
    with sparklog.Producer(bootstrap_servers=root) as producer:
        for number in range(100):
            producer.send("orders", value=str(number).encode(), partition=number % 2)
    with sparklog.Consumer("orders", bootstrap_servers=root, group_id="g", auto_offset_reset="earliest") as consumer:
        read = []
        while len(read) < 100:
            read += [int(record.value) for records in consumer.poll(timeout_ms=1000).values() for record in records]
        consumer.commit()
    assert sorted(read) == list(range(100)), read
"""


class Skipped(Exception):
    """This machine cannot make the check; the message says why."""


class Failed(Exception):
    """What does not hold."""


def expect(holds: object, why: str) -> None:
    if not holds:
        raise Failed(why)


def run(command: Iterable[object], **settings: object) -> str:
    """Run a program; return its output. Raises Failed with the end of it."""
    made = subprocess.run(
        [str(part) for part in command],
        cwd=settings.get("cwd", ROOT),  # type: ignore[call-overload]
        env=settings.get("env"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    expect(made.returncode == 0, f"{' '.join(map(str, command))} failed:\n{made.stdout[-3000:]}")
    return str(made.stdout)


def read_version() -> str:
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "sparklog" / "__init__.py").read_text(), re.M)
    assert found is not None
    return found[1]


def check_versions() -> str:
    """A semantic version, the same in the package, its levels and the first section of the changelog."""
    version = read_version()
    expect(re.fullmatch(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?", version), f"{version} is not major.minor.patch")
    heading = re.search(r"^## (\S+)(?:, (.+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    expect(heading is not None and heading[1] == version, f"the first section of CHANGELOG.md is not {version}")
    assert heading is not None
    stated = re.search(r'^RELEASE = "(.+)"$', (ROOT / "sparklog" / "protocol" / "levels.py").read_text(), re.M)
    expect(stated is not None and stated[1] == version, f"RELEASE of sparklog/protocol/levels.py is not {version}")
    return f"{version}, {heading[2] or 'without a date'}"


def check_builds() -> str:
    """Wheel, source archive and zip of two builds are the same bytes."""
    seconds = dist.commit_seconds()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        for folder in map(Path, (first, second)):
            dist.zip_for_executors(dist.build_wheel(seconds, folder), folder, seconds)
        built = {path.name: path.read_bytes() for path in Path(first).iterdir()}
        again = {path.name: path.read_bytes() for path in Path(second).iterdir()}
        expect(len(built) == 3 and built.keys() == again.keys(), f"built {sorted(built)} and {sorted(again)}")
        differing = [name for name in built if built[name] != again[name]]
        expect(not differing, f"two builds differ: {', '.join(differing)}")
        dist.DIST.mkdir(exist_ok=True)
        for path in Path(first).iterdir():
            shutil.copyfile(path, dist.DIST / path.name)
    return ", ".join(f"{name} {len(data) // 1024} KiB" for name, data in sorted(built.items()))


def check_licences() -> str:
    """The licence files are in the wheel and in the source archive."""
    with zipfile.ZipFile(find_built("*.whl")) as wheel:
        in_wheel = wheel.namelist()
    with tarfile.open(find_built("*.tar.gz")) as source:
        in_source = source.getnames()
    for licence in LICENCES:
        expect(any(name.endswith(f".dist-info/licenses/{licence}") for name in in_wheel), f"no {licence} in the wheel")
        expect(any(re.fullmatch(f"[^/]+/{licence}", name) for name in in_source), f"no {licence} in the sdist")
    return f"{' and '.join(LICENCES)} in wheel and sdist"


def find_built(pattern: str) -> Path:
    found = sorted(dist.DIST.glob(f"sparklog-{read_version()}*{pattern.lstrip('*')}"))
    expect(len(found) == 1, f"{pattern} in dist/: {[path.name for path in found]}; run the check builds first")
    return found[0]


def check_documents() -> str:
    """Links lead somewhere, and the generated references are current."""
    run([sys.executable, "scripts/reference.py", "--check"], env={**os.environ, "PYTHONPATH": str(ROOT)})
    run([sys.executable, "-m", "pytest", *DOCUMENT_TESTS])
    return "links, references, levels and the public names"


def check_installs() -> str:
    """The wheel installs into an empty environment, with and without extras, and records go in and out."""
    wheel = find_built("*.whl")
    said = []
    for extras in EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder, "environment", "bin", "python")
            venv.create(python.parent.parent, with_pip=True)
            target = f"{wheel}[{extras}]" if extras else wheel
            clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            try:
                run([python, "-m", "pip", "install", "--no-input", "--quiet", target], cwd=folder, env=clean)
            except Failed as error:
                if re.search("NewConnectionError|ProxyError|ReadTimeoutError|No matching distribution", str(error)):
                    raise Skipped("no package index can be reached") from error
                raise
            run([python, "-c", SMOKE, read_version()], cwd=folder, env=clean)
            run([python.with_name("sparklog"), "--version"], cwd=folder, env=clean)
            run([python, "-m", "pip", "check"], cwd=folder, env=clean)
        said.append(f"[{extras}]" if extras else "no extras")
    return f"{', '.join(said)}: 100 records produced and consumed"


def check_image() -> str:
    """The image builds."""
    if not DOCKERFILE.exists():
        raise Skipped(f"there is no {DOCKERFILE.relative_to(ROOT)}")
    builder = next(filter(None, map(shutil.which, BUILDERS)), None)
    if builder is None:
        raise Skipped(f"none of {', '.join(BUILDERS)} is installed")
    run([builder, "build", "-f", DOCKERFILE, "-t", f"sparklog:{read_version()}", ROOT])
    return f"built with {Path(builder).name}"


CHECKS: dict[str, Callable[[], str]] = {
    "versions": check_versions,
    "builds": check_builds,
    "licences": check_licences,
    "documents": check_documents,
    "installs": check_installs,
    "image": check_image,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        sys.exit(f"release-check: unknown check {unknown[0]!r}; give some of {', '.join(CHECKS)}")
    failed = False
    for name in names or CHECKS:
        started = time.monotonic()
        try:
            outcome = CHECKS[name]()
        except Skipped as reason:
            outcome = f"SKIPPED: {reason}"
        except Failed as reason:
            failed, outcome = True, f"FAILED: {reason}"
        print(f"{name:<10} {outcome} ({time.monotonic() - started:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
