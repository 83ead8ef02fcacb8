"""Storage locations of a cluster's brokers as stores.

A location holds ``broker.json``, written once when it is registered. While that is missing, a local one is not the
folder that was registered: its disk is not mounted, or it was moved away. Writes are refused then, instead of
re-creating the folder beside what it held. The same goes for a cluster's root and its ``cluster.json``.

Addresses of locations come from the commit log, and whoever may commit can put any there. A client that opened each
would send its credentials wherever another user wants. So ``may_contact`` is asked first, by everything that opens an
address of the log: local paths are for the operating system to decide, the root's own bucket or server is the owner's
choice, and everything else has to lie below an address that the root's owner allowed.

Not for: what these files say (``log.locations``), and whether a location is well (``coordinator.health``).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

from sparklog.errors import CorruptMetadataError, SparklogError, StoragePermissionError
from sparklog.ids import Ids
from sparklog.store.base import TEMPORARY_PREFIX, Store
from sparklog.store.local import LocalStore
from sparklog.store.open import open_store, scheme_of
from sparklog.store.os_errors import translate_os_error

IDENTITY_KEY = "broker.json"


def open_location(url: str, storage_options: Mapping[str, object] | None = None) -> Store:
    """The store of a registered location. Errors as ``open_store``; writes also raise StorageError where the location
    is not the one that was registered."""
    return guard_store(open_store(url, storage_options), IDENTITY_KEY)


def guard_store(store: Store, key: str) -> Store:
    """A store that writes only while this object is there, where the storage can lose its place: a local folder."""
    return store.guarded_by(key) if isinstance(store, LocalStore) else store


# -- which addresses are contacted

_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}


class _Address(NamedTuple):
    """An address in parts: ``authority`` is the bucket, or the host and port."""

    scheme: str
    authority: str
    parts: tuple[str, ...]

    @property
    def is_local(self) -> bool:
        return self.scheme in ("file", "memory")

    @property
    def is_plain(self) -> bool:
        """Whether it names the place that it seems to: clients and proxies may resolve dots, also escaped ones."""
        return not any(unquote(unquote(part)) in (".", "..") for part in self.parts)


def _address(url: str) -> _Address:
    """Raises UnsupportedStoreError for what names no storage."""
    scheme = scheme_of(url)
    if scheme in ("file", "memory"):
        return _Address(scheme, "", ())
    authority, _, path = url.partition("://")[2].partition("/")
    parts = tuple(part for part in path.replace("\\", "/").split("/") if part)
    return _Address(_SAME_SCHEME.get(scheme, scheme), authority, parts)


def may_contact(url: str, root: str, allowed: Iterable[str]) -> bool:
    """Whether a location's address may be opened with the credentials of this process. Pure.

    It may if it is local (the operating system's permissions decide), is of the same bucket or server as the root, or
    lies below one of the ``allowed`` addresses. Raises UnsupportedStoreError for what names no storage.
    """
    place = _address(url)
    if place.is_local:
        return True
    if not place.is_plain:
        return False
    own = _address(root)
    if not own.is_local and place[:2] == own[:2]:
        return True
    return any(_lies_below(place, prefix) for prefix in allowed)


def _lies_below(place: _Address, prefix: str) -> bool:
    try:
        above = _address(prefix)
    except SparklogError:
        return False
    return above.is_plain and place[:2] == above[:2] and place.parts[: len(above.parts)] == above.parts


# -- objects that count only if the root's owner wrote them


def is_local(root: str) -> bool:
    """Whether this is a folder of the operating system."""
    return scheme_of(root) == "file"


def read_owned(store: Store, key: str, max_bytes: int) -> bytes:
    """An object of a root that only its owner writes.

    On a remote storage its policies see to that. In a local folder the file has to have the folder's owner, or be the
    superuser's, and nobody else may be able to write it: others may be able to create files beside it.

    Raises ObjectNotFoundError, StoragePermissionError for a link or a file of another user, CorruptMetadataError.
    """
    if not is_local(store.root):
        return store.get(key, max_bytes)
    path = f"{store.root}/{key}"
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            known = os.fstat(file)
            if known.st_uid not in (os.stat(store.root).st_uid, 0) or known.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise StoragePermissionError(
                    f"{path} does not count: it has another owner than {store.root}, or others may write it",
                    path=path,
                )
            data = os.read(file, max_bytes + 1)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoragePermissionError(
                f"{path} does not count: it is a link, and who may write what it leads to is not known; put a file in "
                "its place",
                path=path,
            ) from error
        raise translate_os_error(error, "read", path) from error
    if len(data) > max_bytes:
        raise CorruptMetadataError(f"{path} has more than {max_bytes} bytes", path=path)
    return data


def write_owned(store: Store, key: str, data: bytes, ids: Ids) -> None:
    """Write an object for ``read_owned``. Raises StoragePermissionError, before anything is written, for a process of
    another user than the owner of a local root, StorageError."""
    if not is_local(store.root):
        store.put(key, data)
        return
    path = f"{store.root}/{key}"
    temporary = f"{store.root}/{TEMPORARY_PREFIX}{ids.write_id()}"
    try:
        root = os.stat(store.root)
        if os.geteuid() not in (root.st_uid, 0):
            raise StoragePermissionError(f"{path} can be written by the owner of {store.root} alone", path=path)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600 | (root.st_mode & 0o044))
            with suppress(OSError):  # the group where that is possible, and the owner where the superuser writes
                os.fchown(file, root.st_uid, root.st_gid)
            os.write(file, data)
            os.fsync(file)
            os.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        finally:
            os.close(file)
        folder = os.open(store.root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise translate_os_error(error, "write", path) from error
