"""What a program and all its processes write outside of the checkout, and only they: each folder is covered with an
overlay for them, whose upper layer has it afterwards.

That takes root. Elsewhere, and for a folder that has the checkout in it, names in the real folder are compared
(tests/machine/state.py), also those of others.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from scripts.servers.common import CHECKOUT

FOLDERS = tuple(
    Path(name).resolve() for name in ("/etc", "/opt", "/run", "/tmp", "/usr/local", "/var") if Path(name).is_dir()
)
HOME = Path.home()
SHARED_MEMORY = Path("/dev/shm")
OF_JAVA_AND_PYTHON = re.compile(r".*/hsperfdata_\w+(/\d+)?|.*/__pycache__(/.*)?")
"""Java removes files of killed processes when the next one starts; kept bytecode is wanted."""
COVER = """
set -e
while [ "$1" != -- ]; do
    mount -t overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" overlay "$1"
    shift 3
done
shift
exec "$@"
"""


class Layers:
    """The overlays of one program, with their files in ``home``, which is in the checkout."""

    def __init__(self, home: Path) -> None:
        self._home = home
        folders = [*FOLDERS, HOME]
        self.listed = [SHARED_MEMORY, *(each for each in folders if not _can_cover(each))]
        self.covered = [each for each in folders if each not in self.listed]
        """All but a folder that has the checkout in it."""

    def command(self, command: Sequence[str]) -> list[str]:
        """The command that runs this one below the overlays; its process is the same one."""
        if not self.covered:
            return [*command]
        arguments = []
        for folder in self.covered:
            upper, work = self._upper(folder), self._home / "work" / _flat(folder)
            for made in (upper, work):
                made.mkdir(parents=True)
            upper.chmod(folder.stat().st_mode)
            arguments += [str(folder), str(upper), str(work)]
        unshare = ["unshare", "--mount", "--propagation", "private"]
        return [*unshare, "sh", "-c", COVER, "sh", *arguments, "--", *command]

    def written(self) -> Iterator[str]:
        """Yield the path of each file that is new, changed or removed, and of each new folder."""
        for folder in self.covered:
            upper = self._upper(folder)
            for place, folders, files in os.walk(upper):
                new = [name for name in folders if not _original(upper, place, name, folder).is_dir()]
                folders[:] = [name for name in folders if name not in new]
                for name in (*files, *new):
                    path = str(_original(upper, place, name, folder))
                    if not OF_JAVA_AND_PYTHON.fullmatch(path):
                        yield path

    def _upper(self, folder: Path) -> Path:
        return self._home / "upper" / _flat(folder)


def _original(upper: Path, place: str, name: str, folder: Path) -> Path:
    return folder / Path(place, name).relative_to(upper)


def _flat(folder: Path) -> str:
    return str(folder).replace("/", "_")


def _can_cover(folder: Path) -> bool:
    return may_mount() and folder.is_dir() and not CHECKOUT.is_relative_to(folder)


@cache
def may_mount() -> bool:
    """Whether this process may create a mount namespace."""
    if os.geteuid() != 0:
        return False
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return done.returncode == 0
