"""Processes of several versions of the package, which share a cluster; see ``program``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
RELEASES = REPOSITORY / "tests" / "golden" / "releases"
OLD = RELEASES / "sparklog-0.2.0-py.zip"
"""The last version of level 2."""
NEW = REPOSITORY


class RefusedError(Exception):
    """A request failed: the class of the error, and its message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Process:
    """A program of one version. Not thread-safe."""

    def __init__(self, version: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "program.py")],
            env={**os.environ, "PYTHONPATH": str(version), "PYTHONWARNINGS": "ignore"},
            cwd=Path(__file__).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the program ended with {self._process.wait()}"
        answered = json.loads(line)
        if "error" in answered:
            raise RefusedError(*answered["error"])
        return answered.get("result", answered)

    def begin(self, name: str, *arguments: Any) -> None:
        """Send a request whose answer is read later."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()

    def finish(self) -> Any:
        """Return the answer of a request that was begun. Raises RefusedError."""
        return self._answer()

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return the answer of a request. Raises RefusedError."""
        self.begin(name, *arguments)
        return self.finish()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def processes(*versions: Path) -> Iterator[list[Process]]:
    """Start a process of each of these versions, and end them after the block."""
    with ExitStack() as stack:
        started = [Process(version) for version in versions]
        for process in started:
            stack.callback(process.end)
        yield started
