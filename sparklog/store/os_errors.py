"""From the operating system's errors to sparklog's: what the caller does next decides the kind.

Not for: errors of remote clients, which say little in their ``errno`` (see ``remote.py`` and ``hdfs.py``).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
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
            return ObjectNotFoundError(f"{path} does not exist", path=path)
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
