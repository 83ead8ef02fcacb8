"""Translates errors of the operating system to sparklog's, by what the caller does next.

Not for: errors of remote clients, whose ``errno`` says little (see ``remote.py`` and ``hdfs.py``).
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

# Also names of other things than files: links that form a loop, and sockets, which cannot be opened.
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Returned by a network file system that lost its server; the outcome of the call is unknown.
_OUTCOME_UNKNOWN = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNRESET}
)
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def is_out_of_descriptors(error: BaseException) -> bool:
    """Return whether this error or its cause says that the process or the system can open no more files."""
    cause = error.__cause__ if not isinstance(error, OSError) else error
    return isinstance(cause, OSError) and cause.errno in _NO_DESCRIPTORS


def translate_os_error(error: OSError, operation: str, path: str) -> StorageError:
    """Return the error to raise instead of ``error``, which a system call raised in ``operation`` on ``path``: "read",
    "list", "delete", "write", or "create" where the name itself has to be free. Raises a time limit, of a signal's
    handler, itself: errors of the system have a number."""
    code = error.errno
    if isinstance(error, TimeoutError) and code is None:
        raise error
    reason = f"{operation} {path}: {error.strerror or error}"
    if code in _ABSENT:
        if operation in ("read", "list", "delete"):
            kind = kind_of_other(path)
            what = f" as a file: it is {kind}" if kind else ""
            return ObjectNotFoundError(f"{path} does not exist{what}", path=path)
        return StorageError(f"{reason}; a part of the path is not a folder, or the target is one", path=path)
    if code == errno.EEXIST and operation == "create":
        return ObjectExistsError(f"{path} exists", path=path)
    if code in _DENIED:
        return StoragePermissionError(f"{reason}; check owner and mode of the folder and of its mount", path=path)
    if code in _FULL:
        return StorageFullError(f"{reason}; free space or raise the quota, then retry", path=path)
    if code in _NO_DESCRIPTORS:
        return StorageUnavailableError(
            f"{reason}; close files or clients, or raise the limit (ulimit -n), then retry", path=path
        )
    if code in _OUTCOME_UNKNOWN:
        return StorageUnavailableError(f"{reason}; the storage did not answer properly, retry", path=path)
    return StorageError(reason, path=path)


OPEN_TO_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Flags to open files with: opening a named pipe in place of a file must not block until its other end opens."""


def check_file(status: os.stat_result) -> None:
    """Raise OSError unless this is a regular file: a folder, pipe or device is not an object, nor listed as one."""
    if not stat.S_ISREG(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is not a file")


def kind_of_other(path: str) -> str:
    """Return in words what a path is if not a file ("a folder"); empty for a file and where there is nothing."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            with suppress(FileNotFoundError):
                mode = os.stat(path).st_mode
    except OSError as error:
        return "a link that points to itself" if error.errno == errno.ELOOP else ""
    return "" if stat.S_ISREG(mode) else _KIND_NAMES.get(stat.S_IFMT(mode), "a device")


_KIND_NAMES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a link to nothing",
}


# File systems whose system calls either took effect or never will, once they return; not so on a network.
_LOCAL_FILE_SYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay"})


def is_local_disk(path: str) -> bool:
    """Return whether a path is certainly on a disk of this machine; False if unknown, as on all but Linux."""
    with suppress(OSError, ValueError):
        device = os.stat(path).st_dev
        device_number = f"{os.major(device)}:{os.minor(device)}"
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            kinds = {line.partition(" - ")[2].split(" ")[0] for line in mounts if line.split(" ")[2] == device_number}
        return bool(kinds) and kinds <= _LOCAL_FILE_SYSTEMS
    return False
