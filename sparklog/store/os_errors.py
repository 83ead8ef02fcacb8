"""From the operating system's errors to sparklog's: what the caller does next decides the kind.

Not for: errors of remote clients, which say little in their ``errno`` (see ``remote.py`` and ``hdfs.py``).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)

# Also where the name is not a file's: links that go in circles, and sockets, which cannot be opened.
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# A network file system that lost its server answers so, and what it did before that is unknown.
_UNKNOWN = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNRESET}
)
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def is_out_of_descriptors(error: BaseException) -> bool:
    """Whether this, or what it came from, says that the process or the system can open no more files."""
    cause = error.__cause__ if not isinstance(error, OSError) else error
    return isinstance(cause, OSError) and cause.errno in _NO_DESCRIPTORS


def translate_os_error(error: OSError, operation: str, path: str) -> StorageError:
    """The error to raise instead of ``error``, which a call of the operating system raised in ``operation`` on
    ``path``: "read", "list", "delete", "write", or "create" where the name itself has to be free."""
    code = error.errno
    reason = f"{operation} {path}: {error.strerror or error}"
    if code in _NOT_THERE:
        if operation in ("read", "list", "delete"):
            return ObjectNotFoundError(f"{path} does not exist{_what_else(path)}", path=path)
        return StorageError(f"{reason}; a part of the path is no folder, or the target is one", path=path)
    if code == errno.EEXIST and operation == "create":
        return ObjectExistsError(f"{path} exists", path=path)
    if code in _REFUSED:
        return StoragePermissionError(f"{reason}; check the owner and mode of the folder and of its mount", path=path)
    if code in _FULL:
        return StorageFullError(f"{reason}; free space or raise the quota, then retry", path=path)
    if code in _NO_DESCRIPTORS:
        return StorageUnavailableError(
            f"{reason}; close files or clients, or raise the limit (ulimit -n), then retry", path=path
        )
    if code in _UNKNOWN:
        return StorageUnavailableError(f"{reason}; the storage did not answer as it should, retry", path=path)
    return StorageError(reason, path=path)


OPEN_TO_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""How files are opened: a named pipe that lies in the place of one must not make anybody wait for its other end."""


def check_file(status: os.stat_result) -> None:
    """Raises the OSError of what is no object, as listings leave out all but files: a folder, a pipe, a device."""
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is not a file")


def kind_of_other(path: str) -> str:
    """What lies under a name that is not a file's, as people call it; empty for a file and where there is nothing."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            with suppress(FileNotFoundError):
                mode = os.stat(path).st_mode
    except OSError as error:
        return "a link that leads to itself" if error.errno == errno.ELOOP else ""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "a device")


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link to nothing",
}


def _what_else(path: str) -> str:
    kind = kind_of_other(path)
    return f" as a file: it is {kind}" if kind else ""


# File systems whose system calls have had their effect, or none, once they return. A network's are not among them.
_ON_THIS_MACHINE = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay"})


def is_local_disk(path: str) -> bool:
    """Whether this is certainly on a disk of this machine. What cannot be told is not; only Linux tells."""
    with suppress(OSError, ValueError):
        device = os.stat(path).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            kinds = {line.partition(" - ")[2].split(" ")[0] for line in mounts if line.split(" ")[2] == wanted}
        return bool(kinds) and kinds <= _ON_THIS_MACHINE
    return False
