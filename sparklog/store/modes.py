"""Sets mode and group of files created below a local root: those of the root folder, whatever the writer's umask.

    root                    files         folders       the lock's file
    0755  alice users       0644          0755          0600
    2775  alice analytics   0664          2775          0660
    0777  root  root        0666          0777          0666
    0700  alice users       0600          0700          0600

Rules:

* A writer with umask 077 must not lock the others out of a shared root, and one with umask 022 must not expose the
  files of a private one. The root's owner decides, by the root's mode; the root itself is created with the umask.
* The group is the root's where the writer may set it. Otherwise the file's group gets the permissions of others: a
  group that the root does not name gains nothing.
* The lock file is open to writers only: a process that may only read could otherwise hold it and block every writer.
* On a mount without modes, or with fixed ones, the mount decides.

Not for: owners, access lists and modes of existing files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

_WRITERS = (stat.S_IWGRP, stat.S_IWOTH)


def give_file_mode(file: int | str, root: str) -> None:
    """Give a new file the mode and group of files below this root."""
    _give(file, root, lambda mode: 0o600 | (mode & 0o066))


def give_folder_mode(folder: str, root: str) -> None:
    """Give a new folder the mode and group of folders below this root, so that its contents inherit them."""
    _give(folder, root, lambda mode: 0o700 | (mode & (0o077 | stat.S_ISGID)))


def give_lock_mode(file: int, root: str) -> None:
    """Give the lock file, new or not, to those who may write the root. Does nothing unless this process owns it."""
    _give(file, root, lambda mode: 0o600 | sum(bit | bit << 1 for bit in _WRITERS if mode & bit))


def _give(target: int | str, root: str, mode_below: Callable[[int], int]) -> None:
    with suppress(OSError):
        like, own = os.stat(root), os.stat(target)
        mode = mode_below(like.st_mode)
        if own.st_gid != like.st_gid and not _give_group(target, like.st_gid):
            mode = (mode & ~(0o070 | stat.S_ISGID)) | (mode & 0o007) << 3
        if stat.S_IMODE(own.st_mode) != mode:
            os.chmod(target, mode)


def _give_group(target: int | str, group: int) -> bool:
    try:
        os.chown(target, -1, group)
    except OSError:
        return False
    return True
