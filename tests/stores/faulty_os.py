"""System calls that fail or mislead: faults below ``LocalStore``, where those of ``faulty_store`` cannot reach.

``SystemCalls`` takes the place of the module ``os`` in the modules of the local store. Every call of a name in
``CALLS`` is a step; a ``SystemFault`` says what happens at one step:

    error   the call fails with this errno, without effect
    late    it takes effect, and fails with this errno: the answer of an NFS server was lost, and its client asked again
    backup  before it, ``cp -al`` gives every file of the folder, also unfinished ones, a second name elsewhere
    taken   before it, another process creates the target under its name
    both    the two together: the unfinished file has two names, and the target is another one's

Not for: signals, crashes (kill a process), what a storage behind a network answers (``faulty_store``).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CALLS = (
    "open",
    "close",
    "write",
    "pread",
    "fsync",
    "fdatasync",
    "link",
    "rename",
    "unlink",
    "stat",
    "lstat",
    "fstat",
    "mkdir",
    "scandir",
)

ERROR, LATE, BACKUP, TAKEN, BOTH = "error", "late", "backup", "taken", "both"

ERRNOS = {
    "open": (errno.EIO, errno.EMFILE, errno.EACCES, errno.ENOSPC, errno.ESTALE),
    "close": (errno.EIO,),
    "write": (errno.EIO, errno.ENOSPC),
    "pread": (errno.EIO, errno.ESTALE),
    "fsync": (errno.EIO, errno.ENOSPC),
    "fdatasync": (errno.EIO,),
    "link": (errno.EIO, errno.EACCES, errno.EMLINK, errno.ENOSPC, errno.ETIMEDOUT),
    "rename": (errno.EIO, errno.EACCES, errno.ENOSPC, errno.ETIMEDOUT),
    "unlink": (errno.EIO, errno.EACCES, errno.ETIMEDOUT),
    "stat": (errno.EIO, errno.ESTALE, errno.EACCES),
    "lstat": (errno.EIO, errno.ESTALE),
    "fstat": (errno.EIO, errno.ESTALE),
    "mkdir": (errno.EIO, errno.ENOSPC, errno.EACCES),
    "scandir": (errno.EIO, errno.EACCES, errno.ESTALE),
}
"""How a call may fail before its effect."""

LATE_ERRNOS = {
    "link": (errno.EEXIST, errno.EIO, errno.ETIMEDOUT),
    "rename": (errno.ENOENT, errno.EIO, errno.ETIMEDOUT),
    "unlink": (errno.ENOENT, errno.EIO),
    "close": (errno.EIO,),
}
"""How it may fail after its effect: the second of two requests finds the work of the first."""


class SystemFault(NamedTuple):
    """A fault at a step; see the module. ``code`` is an errno, 0 for faults that are no failures."""

    step: int
    kind: str
    code: int = 0

    def __str__(self) -> str:
        return f"{self.step}-{self.kind}{'-' + errno.errorcode[self.code] if self.code else ''}"


class SystemCalls:
    """``os`` with a fault. ``calls`` are the steps so far: name and first argument. Not thread-safe."""

    def __init__(self, folder: Path, backup: Path, target: Path, fault: SystemFault | None = None) -> None:
        """``folder`` is the store's; what is called for paths elsewhere is no step. ``target`` is what ``taken``
        creates."""
        self.calls: list[tuple[str, object]] = []
        self.failed = False
        """Whether the fault has happened."""
        self._folder = f"{folder}/"
        self._backup = backup
        self._target = target
        self._fault = fault
        self._files: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real
        return lambda *arguments, **options: self.call(name, real, arguments, options)

    def call(self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if not self._is_step(arguments[0]):
            return real(*arguments, **options)
        step = len(self.calls)
        self.calls.append((name, arguments[0]))
        fault = self._fault
        if fault is None or fault.step != step:
            return self._remember(name, arguments, real(*arguments, **options))
        self.failed = True
        if fault.kind in (BACKUP, BOTH):
            self._back_up()
        if fault.kind in (TAKEN, BOTH):
            take(self._target)
        if fault.kind == LATE:
            real(*arguments, **options)
        if fault.code:
            if name == "close" and fault.kind == ERROR:
                real(*arguments)  # Linux frees the descriptor in any case
            raise OSError(fault.code, os.strerror(fault.code), arguments[0])
        return self._remember(name, arguments, real(*arguments, **options))

    def _is_step(self, first: object) -> bool:
        return first in self._files if isinstance(first, int) else f"{first}/".startswith(self._folder)

    def _remember(self, name: str, arguments: tuple[Any, ...], result: Any) -> Any:
        if name == "open":
            self._files.add(result)
        elif name == "close":
            self._files.discard(arguments[0])
        return result

    def _back_up(self) -> None:
        for number, path in enumerate(sorted(Path(self._folder).rglob("*"))):
            if path.is_file():
                os.link(path, self._backup / f"{number}-{len(self.calls)}")


OTHERS = b"another process"


def take(target: Path) -> None:
    """Create the target as another process would, unless it exists."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        target.write_bytes(OTHERS)


def every_fault(calls: Sequence[tuple[str, object]]) -> Iterator[SystemFault]:
    """Yield every fault of each of these steps."""
    for step, (name, _) in enumerate(calls):
        for code in ERRNOS[name]:
            yield SystemFault(step, ERROR, code)
        for code in LATE_ERRNOS.get(name, ()):
            yield SystemFault(step, LATE, code)
        for kind in (BACKUP, TAKEN, BOTH):
            yield SystemFault(step, kind)
