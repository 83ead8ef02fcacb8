"""Opens the storage locations of a cluster's brokers as guarded stores.

A location holds ``broker.json``, written once when it is registered. While that is missing, a local folder is not the
one that was registered: its disk is not mounted, or it was moved. Writes are refused then, instead of re-creating the
folder without its files. If it is another broker's, disks are swapped: writes and deletions are refused. The root is
guarded by its ``cluster.json`` in the same way.

Addresses of locations come from the commit log, where any process that may commit can put any address. A client that
opened them all would send its credentials wherever another user wants. So all code that opens an address of the log
calls ``may_contact`` first: local paths are up to the operating system, the root's own bucket or server is the owner's
choice, and every other address has to lie below one that the root's owner allowed.

Not for: the contents of these files (``log.broker_files``), and whether a location is healthy (``coordinator.health``).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

from sparklog.errors import SparklogError, StoragePermissionError
from sparklog.ids import Ids
from sparklog.store.base import SAME_SCHEME, TEMPORARY_PREFIX, Store, check_size
from sparklog.store.local import sync_folder
from sparklog.store.open import open_store, scheme_of
from sparklog.store.os_errors import translate_os_error

IDENTITY_KEY = "broker.json"


def open_location(
    url: str, storage_options: Mapping[str, object] | None = None, identity: Mapping[str, object] | None = None
) -> Store:
    """Return the store of a registered location, of which ``broker.json`` has the fields ``identity``.

    Raises as ``open_store``; its writes and deletions also raise StorageError if the location is not that one."""
    return open_store(url, storage_options).guarded_by(IDENTITY_KEY, identity)


def real_location(url: str) -> str:
    """Return the path of a local location without symbolic links, which may lead into another one; else the address."""
    return os.path.realpath(url) if scheme_of(url) == "file" else url


# -- which addresses are contacted


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
        """Whether the path has no dot parts, even escaped ones, which clients and proxies may resolve."""
        return not any(unquote(unquote(part)) in (".", "..") for part in self.parts)


def _parse_address(url: str) -> _Address:
    """Parse an address. Raises UnsupportedStoreError if it is not that of a storage."""
    scheme = scheme_of(url)
    if scheme in ("file", "memory"):
        return _Address(scheme, "", ())
    authority, _, path = url.partition("://")[2].partition("/")
    parts = tuple(part for part in path.replace("\\", "/").split("/") if part)
    return _Address(SAME_SCHEME.get(scheme, scheme), authority, parts)


def may_contact(url: str, root: str, allowed: Iterable[str]) -> bool:
    """Return whether a location's address may be opened with the credentials of this process. Pure.

    It may if it is local (the operating system's permissions decide), in the same bucket or on the same server as the
    root, or below one of the ``allowed`` addresses. Raises UnsupportedStoreError if it is not that of a storage.
    """
    address = _parse_address(url)
    if address.is_local:
        return True
    if not address.is_plain:
        return False
    root_address = _parse_address(root)
    if not root_address.is_local and address[:2] == root_address[:2]:
        return True
    return any(_lies_below(address, prefix) for prefix in allowed)


def _lies_below(address: _Address, prefix: str) -> bool:
    try:
        above = _parse_address(prefix)
    except SparklogError:
        return False
    return above.is_plain and address[:2] == above[:2] and address.parts[: len(above.parts)] == above.parts


# -- objects that count only if the root's owner wrote them


def read_owned(store: Store, key: str, max_bytes: int) -> bytes:
    """Return an object of the root that only the root's owner may write.

    On a remote storage its policies ensure that. In a local folder the file has to belong to the folder's owner or the
    superuser, and be writable by no one else, since others may be able to create files beside it.

    Raises ObjectNotFoundError, StoragePermissionError for a link or a file of another user, CorruptMetadataError.
    """
    if not store.is_local:
        return store.get(key, max_bytes)
    path = f"{store.root}/{key}"
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(file)
            if status.st_uid not in (os.stat(store.root).st_uid, 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise StoragePermissionError(
                    f"{path} is ignored: it has another owner than {store.root}, or others may write it",
                    path=path,
                )
            data = os.read(file, max_bytes + 1)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoragePermissionError(
                f"{path} is ignored: it is a link, and others may be able to write its target; replace it with a file",
                path=path,
            ) from error
        raise translate_os_error(error, "read", path) from error
    check_size(path, len(data), max_bytes)
    return data


def write_owned(store: Store, key: str, data: bytes, ids: Ids) -> None:
    """Write an object for ``read_owned``. Raises StorageError, and StoragePermissionError before anything is written
    if this process is not run by the owner of a local root."""
    if not store.is_local:
        store.put(key, data)
        return
    path = f"{store.root}/{key}"
    temporary = f"{store.root}/{TEMPORARY_PREFIX}{ids.write_id()}"
    try:
        root = os.stat(store.root)
        if os.geteuid() not in (root.st_uid, 0):
            raise StoragePermissionError(f"only the owner of {store.root} can write {path}", path=path)
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600 | (root.st_mode & 0o044))
            with suppress(OSError):  # best effort: the group if allowed, the owner if run by the superuser
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
        sync_folder(store.root)
    except OSError as error:
        raise translate_os_error(error, "write", path) from error
