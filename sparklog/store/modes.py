"""Modes and groups of what is created below a local root: those of the root folder, whatever the umask of the writer.

    root                    files         folders       the lock's file
    0755  alice users       0644          0755          0600
    2775  alice analytics   0664          2775          0660
    0777  root  root        0666          0777          0666
    0700  alice users       0600          0700          0600

Rules:

* One writer with umask 077 must not lock out the others of a shared root, and one with umask 022 must not show what is
  in a private one. The root's owner decides, with the root's mode; the root itself is created by the umask.
* The group is the root's, where the writer may give it. Where not, the file's group gets what others get: a group that
  the root does not name gains nothing.
* The lock's file is for those who may write: who may only read could else hold it, and keep every writer waiting.
* A mount that has no modes, or does not let them be changed, decides by itself.

Not for: owners, access lists and modes of what is there already.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

_WRITERS = (stat.S_IWGRP, stat.S_IWOTH)


def give_file_mode(file: int | str, root: str) -> None:
    """Let a new file have the mode and group of files below this root."""
    _give(file, root, lambda mode: 0o600 | (mode & 0o066))


def give_folder_mode(folder: str, root: str) -> None:
    """Let a new folder have the mode and group of folders below this root, so that what is made in it inherits them."""
    _give(folder, root, lambda mode: 0o700 | (mode & (0o077 | stat.S_ISGID)))


def give_lock_mode(file: int, root: str) -> None:
    """Let the lock's file, new or not, be for those who may write the root. Only its owner can; others leave it."""
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
