"""Programs that are built from Go modules, once, into ``.servers/bin``.

Downloads and build cache are removed again (1 GB and more); modules that are built together share them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from scripts.servers.common import SERVERS, ServerFailed, Skipped, only_one, tail, work_folder

BUILD_SECONDS = 1200


def build_programs(server: str, modules: Mapping[str, str]) -> dict[str, Path]:
    """The programs of these modules by name, built unless they are there; ``modules`` has the version of each.

    Raises ``Skipped`` if there is no Go, ``ServerFailed`` if the build fails or takes longer than ``BUILD_SECONDS``.
    """
    programs = {name_of(module): SERVERS / "bin" / f"{name_of(module)}-{modules[module]}" for module in modules}
    if all(program.exists() for program in programs.values()):
        return programs
    go = shutil.which("go")
    if go is None:
        raise Skipped(f"{server} is built with Go, and there is no `go` in PATH; install Go 1.24 or newer")
    with only_one(f"build-{server}"):
        missing = {module: version for module, version in modules.items() if not programs[name_of(module)].exists()}
        if missing:
            _install(go, server, missing, programs)
    return programs


def name_of(module: str) -> str:
    """The name of the program that ``go install`` makes of a module."""
    return module.rpartition("/")[2]


def _install(go: str, server: str, modules: Mapping[str, str], programs: Mapping[str, Path]) -> None:
    with work_folder("go") as work:
        inside = {"GOBIN": work / "bin", "GOPATH": work / "path", "GOCACHE": work / "cache", "GOTMPDIR": work}
        environment = {**os.environ, **{name: str(path) for name, path in inside.items()}, "GOFLAGS": "-modcacherw"}
        log = SERVERS / f"build-{server}.log"
        deadline = time.monotonic() + BUILD_SECONDS
        try:
            for module, version in modules.items():
                print(f"building {module}@{version}, once, which takes some minutes", file=sys.stderr, flush=True)
                with open(log, "wb") as output:
                    done = subprocess.run(
                        [*_with_low_priority(), go, "install", f"{module}@{version}"],
                        env=environment,
                        stdout=output,
                        stderr=output,
                        timeout=deadline - time.monotonic(),
                        check=False,
                    )
                if done.returncode:
                    raise ServerFailed(f"go install {module}@{version} ended with {done.returncode}:\n{tail(log)}")
                program = programs[name_of(module)]
                program.parent.mkdir(parents=True, exist_ok=True)
                os.replace(work / "bin" / name_of(module), program)
        except subprocess.TimeoutExpired as error:
            raise ServerFailed(f"building {server} took more than {BUILD_SECONDS} s; see {log}") from error


def _with_low_priority() -> list[str]:
    nice = shutil.which("nice")
    return [nice] if nice else []
