#!/usr/bin/env python3
"""Run kafka-python's own tests against sparklog.kafka, and print how many pass.

    make test-kafka-python              the pinned version's tests, from its source distribution, fetched once
    KAFKA_PYTHON_SOURCE=folder …        those of a checkout, which has more of them

Tests of its network code, its wire format and its clients' internals are excluded by file. Each other test that does
not pass has its reason in tests/kafka_python/reasons.toml; one without a reason fails the run, and so does a listed one
that passes. No code of kafka-python is in this repository.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.servers.common import CHECKOUT, SERVERS, Skipped, only_one
from scripts.servers.kafka import REQUIREMENTS, pinned

REASONS = CHECKOUT / "tests" / "kafka_python" / "reasons.toml"
SECONDS = 900


def main() -> int:
    listed = read_toml(REASONS)
    try:
        checkout = os.environ.get("KAFKA_PYTHON_SOURCE")
        source = Path(checkout or fetch())
    except Skipped as reason:
        print(f"skipped: {reason}")
        return 0
    files = [name for name in listed["files"] if (source / name).exists()]
    outcomes = run(source, files)
    return report(
        outcomes, [entry for entry in listed.get("fails", []) if checkout or "checkout" not in entry["reason"]]
    )


def read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # comes with pytest
    content: dict[str, Any] = tomllib.loads(path.read_text())
    return content


def fetch() -> Path:
    """The folder with the source of the pinned version. Raises ``Skipped`` where pip does not get it."""
    pin = pinned("kafka-python", REQUIREMENTS.read_text())
    folder = SERVERS / f"source-{pin}"
    with only_one("fetch-kafka-python"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=SERVERS) as work:
                command = [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--no-deps",
                ]
                command += ["--no-binary", "kafka-python", "--dest", work, pin]
                done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
                if done.returncode:
                    raise Skipped(f"pip cannot fetch the source of {pin}: {(done.stdout + done.stderr).strip()[-500:]}")
                with tarfile.open(next(Path(work).glob("*.tar.gz"))) as archive:
                    archive.extractall(Path(work) / "source", filter="data")
                os.replace(next((Path(work) / "source").iterdir()), folder)
    return folder


def run(source: Path, files: list[str]) -> dict[str, str]:
    """test -> passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as work:
        results, settings = Path(work) / "outcomes.json", Path(work) / "pytest.ini"
        settings.write_text("[pytest]\n")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(source), str(CHECKOUT)]),
            "SPARKLOG_OUTCOMES": str(results),
            "KAFKA_VERSION": "4.0.0",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-c", str(settings), "--rootdir", str(source)]
        command += ["-p", "tests.kafka_python.plugin", "-p", "no:cacheprovider", "--tb=short", *files]
        subprocess.run(command, cwd=source, env=environment, timeout=SECONDS, check=False)
        outcomes: dict[str, str] = json.loads(results.read_text())
        return outcomes


def report(outcomes: dict[str, str], listed: list[dict[str, Any]]) -> int:
    """Print the sum and what is not as listed; the exit code."""
    reasons = {pattern: entry["reason"] for entry in listed for pattern in entry["tests"]}
    ran = {test: outcome for test, outcome in outcomes.items() if outcome != "skipped"}
    failed = sorted(test for test, outcome in ran.items() if outcome == "failed")
    unlisted = [test for test in failed if not any(fnmatch.fnmatchcase(test, pattern) for pattern in reasons)]
    unused = [pattern for pattern in reasons if not any(fnmatch.fnmatchcase(test, pattern) for test in failed)]
    skipped = len(outcomes) - len(ran)
    print(
        f"\nkafka-python's own tests: {len(ran) - len(failed)} of {len(ran)} pass; {skipped} are skipped by themselves"
    )
    for pattern, reason in reasons.items():
        count = sum(fnmatch.fnmatchcase(test, pattern) for test in failed)
        print(f"  {count} {pattern}: {reason}")
    for test in unlisted:
        print(f"fails without a reason in {REASONS.name}: {test}")
    for pattern in unused:
        print(f"listed in {REASONS.name}, but passes: {pattern}")
    return 1 if unlisted or unused else 0


if __name__ == "__main__":
    sys.exit(main())
