"""Objects as files of a local or mounted POSIX file system: the simplest store, used by Spark's local mode, tests and
clusters on a single machine.

Rules:

* A write goes to a temporary file beside its target, is synced, then gets the target's name in one step: ``link`` where
  the name must be free, ``rename`` where it may be taken. Then the folder is synced. ``open(path, "x")`` would not do:
  readers would see a half-written file, and a full disk would leave it so.
* On NFS ``link`` may fail after it took effect; target and temporary file are the same file then (device and inode).
  The number of a file's names proves nothing: a backup by hard links (``cp -al``) gives the temporary file a second
  one. That it has only one proves that the name was not given, but on a disk of this machine alone: elsewhere the
  request may still reach the server, or the count be cached.
* Reads are memory maps (``mapped_file``), files and folders have the mode of the root (``modes``).
* Only files are objects. Anything else under an object's name (a folder, a named pipe, a link that points to itself)
  reads as absent, without blocking, and fails a write that needs the name; ``list_others`` finds it.
* Listings do not follow links to folders below the root, which may form a loop.
* A location on another disk exists only while that is mounted. ``guarded_by`` makes a store that refuses writes while a
  required file is missing, instead of filling the folder below the mount point; and while it is that of another
  location, whose disk is mounted in the wrong place, it refuses writes and deletions.
* A crash leaves at most a file ``.tmp-...``, never shown by ``list`` and removed by ``remove_unfinished``.

Not for: file systems without hard links (FAT, some FUSE mounts); put_if_absent refuses them when it meets one.
"""

from __future__ import annotations

import _thread
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from sparklog.clock import Clock, SystemClock
from sparklog.errors import (
    CorruptMetadataError,
    InvalidRequestError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.limits import MAX_CLUSTER_FILE_BYTES, MAX_CREATE_BYTES
from sparklog.store.base import (
    LOCK_NAME,
    TEMPORARY_PREFIX,
    BytesLike,
    Deleted,
    ObjectInfo,
    OutputFile,
    Store,
    StreamedFile,
    check_create,
    check_range,
    check_size,
    is_hidden,
    is_unfinished,
    not_written,
    validate_key,
    validate_prefix,
)
from sparklog.store.local_lock import committers_lock
from sparklog.store.mapped_file import LocalInputFile
from sparklog.store.modes import give_file_mode, give_folder_mode
from sparklog.store.os_errors import OPEN_TO_READ, check_file, is_local_disk, kind_of_other, translate_os_error

SYNC_EVERY_BYTES = 8 * 1024 * 1024
"""bytes after which a streaming write syncs in the background, so that little is left for ``close``."""

_SMALL_WRITE_BYTES = 64 * 1024
"""bytes. Smaller writes are buffered; larger ones go to the system without a copy."""

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})

_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class LocalStore(Store):
    """A folder as a store. Thread-safe, picklable, and without state that a fork could break."""

    is_local = True
    largest_create_bytes = MAX_CREATE_BYTES

    def __init__(
        self,
        folder: str,
        clock: Clock | None = None,
        ids: Ids | None = None,
        required_key: str = "",
        required_fields: Mapping[str, object] | None = None,
    ) -> None:
        """``folder`` is an absolute path; it need not exist. ``clock`` bounds only the wait for the commit lock.

        With a ``required_key`` every write raises StorageError while that object does not exist. With
        ``required_fields``, so does every write and deletion while it is not a JSON object that has them.
        """
        if not os.path.isabs(folder):
            raise InvalidRequestError(
                f"{folder} is not an absolute path; open_store() resolves relative ones", path=folder
            )
        self.root = os.path.normpath(folder)
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._base = self.root.rstrip("/") + "/"
        self._required = _Required(self._base, required_key, required_fields or {}) if required_key else None
        self._parallel_requests: int | None = None

    @property
    def parallel_requests(self) -> int:
        if self._parallel_requests is None:  # on a mount a request may be a round trip
            self._parallel_requests = super().parallel_requests if self.has_own_clock else 1
        return self._parallel_requests

    @property
    def has_own_clock(self) -> bool:
        folder = self.root
        while not os.path.exists(folder):
            folder = os.path.dirname(folder)
        return not is_local_disk(folder)

    def guarded_by(self, key: str, fields: Mapping[str, object] | None = None) -> LocalStore:
        return LocalStore(self.root, self._clock, self._ids, key, fields)

    def __reduce__(self) -> tuple[Any, ...]:
        required = ("", {}) if self._required is None else (self._required.key, self._required.fields)
        return (LocalStore, (self.root, self._clock, self._ids, *required))

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        return _read_file(self._base + validate_key(key), 0, None, max_bytes)

    def get_range(self, key: str, position: int, length: int) -> bytes:
        path = self._base + validate_key(key)
        check_range(key, position, length)
        return _read_file(path, position, length)

    def put(self, key: str, data: BytesLike) -> None:
        path = self._base + validate_key(key)
        temporary = self._write_temporary(path, memoryview(data))
        try:
            os.rename(temporary, path)
        except OSError as error:
            translated = _translate_publish_error(error, "write", temporary, path)
            _remove_quietly(temporary)
            raise translated from error
        _sync_folder_of(path)

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        view = memoryview(data)
        check_create(key, view.nbytes, self.largest_create_bytes)
        path = self._base + key
        try:
            temporary = self._write_temporary(path, view)
        except StorageError as error:
            not_written(error)
            raise
        try:
            _link(temporary, path)
        finally:
            _remove_quietly(temporary)
        _sync_folder_of(path)

    def sync(self, folder: str) -> None:
        path = self._base + validate_prefix(folder)
        try:
            sync_folder(path)
        except (FileNotFoundError, PermissionError):  # nothing is in it, or only its owner may sync it
            return
        except OSError as error:
            raise StorageUnavailableError(
                f"{path} could not be synced ({error.strerror}), so a power failure may lose what was written there "
                "last; check the disk, then try again",
                path=path,
            ) from error

    def delete(self, key: str) -> None:
        path = self._base + validate_key(key)
        if self._required is not None and self._required.fields:
            self._required.check(path, "deleted")
        try:
            os.unlink(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise translate_os_error(error, "delete", path) from error

    def delete_exactly(self, key: str, data: bytes) -> Deleted:
        path = self._base + validate_key(key)
        if not os.path.lexists(path):
            return Deleted.BEFORE
        if not is_local_disk(path):  # a mount may send the request again, after the name was used again
            return Deleted.NO
        return self._take_away(path, data) if self._has_bytes(path, data) else Deleted.BEFORE

    def _has_bytes(self, path: str, data: bytes) -> bool:
        try:
            return _read_file(path, 0, None, len(data)) == data
        except (ObjectNotFoundError, CorruptMetadataError):  # the latter: longer, so another object
            return False

    def _take_away(self, path: str, data: bytes) -> Deleted:
        """Delete a file if it still has these bytes, after it got a name that nobody uses: what is compared is what is
        deleted, also by a process that was suspended in between. Another object gets its name back."""
        if self._required is not None and self._required.fields:
            self._required.check(path, "deleted")
        taken = f"{os.path.dirname(path)}/{TEMPORARY_PREFIX}{self._ids.write_id()}"
        try:
            os.rename(path, taken)
        except FileNotFoundError:
            return Deleted.BEFORE
        except OSError as error:
            raise translate_os_error(error, "delete", path) from error
        is_other = not self._has_bytes(taken, data)
        if is_other:
            _link(taken, path)  # an error leaves it there: it is the only copy
            _sync_folder_of(path)
        _remove_quietly(taken)
        return Deleted.BEFORE if is_other else Deleted.NOW

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return _walk(self._base, validate_prefix(prefix))

    def keys_after(self, folder: str, key: str) -> Sequence[str]:
        path = self._base + validate_prefix(folder)
        try:
            keys = [folder + name for name in os.listdir(path) if not is_hidden(name)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise translate_os_error(error, "list", path) from error
        return sorted(found for found in keys if found > key)

    def list_others(self, folder: str) -> Iterator[tuple[str, str]]:
        path = self._base + folder
        try:
            names = sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise translate_os_error(error, "list", path) from error
        yield from ((folder + name, kind) for name in names if (kind := kind_of_other(path + name)))

    def info(self, key: str) -> ObjectInfo:
        path = self._base + validate_key(key)
        try:
            status = os.stat(path)
            check_file(status)
        except OSError as error:
            raise translate_os_error(error, "read", path) from error
        return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def open_input(self, key: str) -> LocalInputFile:
        return LocalInputFile(key, self._base + validate_key(key))

    def open_output(self, key: str) -> LocalOutputFile:
        path = self._base + validate_key(key)
        temporary, file = self._create_temporary(path)
        return LocalOutputFile(key, path, temporary, file, self._required)

    def commit_lock(self, while_waiting: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        path = f"{self._base}meta/{LOCK_NAME}"
        return committers_lock(path, self.root, self._clock, self._make_folder, while_waiting)

    def remove_unfinished(self, before_ms: int) -> int:
        removed = 0
        for folder, _, names in os.walk(self._base):
            for name in names:
                path = os.path.join(folder, name)
                if is_unfinished(name):
                    with suppress(OSError):
                        if os.stat(path).st_mtime_ns // 1_000_000 < before_ms:
                            os.unlink(path)
                            removed += 1
        return removed

    def _create_temporary(self, path: str) -> tuple[str, int]:
        if self._required is not None:
            self._required.check(path, "written")
        folder = os.path.dirname(path)
        temporary = f"{folder}/{TEMPORARY_PREFIX}{self._ids.write_id()}"
        try:
            try:
                file = os.open(temporary, _WRITE_NEW, 0o600)
            except FileNotFoundError:
                self._make_folder(folder)
                file = os.open(temporary, _WRITE_NEW, 0o600)
        except OSError as error:
            raise translate_os_error(error, "write", path) from error
        give_file_mode(file, self.root)
        return temporary, file

    def _make_folder(self, folder: str) -> None:
        """Create a folder and its parents, each synced in its own parent, those below the root with its mode; but never
        the root of a store with a required object."""
        if self._required is not None and folder == self.root:
            return
        parent = os.path.dirname(folder)
        if not os.path.isdir(parent):
            self._make_folder(parent)
        with suppress(FileExistsError):
            os.mkdir(folder)
            if folder.startswith(self._base):
                give_folder_mode(folder, self.root)
        with suppress(PermissionError):  # a parent without read permission cannot be synced, but may hold the folder
            sync_folder(parent)

    def _write_temporary(self, path: str, data: memoryview) -> str:
        """Write and sync a file with these bytes beside ``path``, and return its name. An error leaves none."""
        temporary, file = self._create_temporary(path)
        try:
            try:
                _write_fully(file, data)
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            _remove_quietly(temporary)
            raise translate_os_error(error, "write", path) from error
        return temporary


class LocalOutputFile(StreamedFile):
    """A streaming write into a temporary file, renamed by ``close``. Not thread-safe."""

    def __init__(self, key: str, path: str, temporary: str, file: int, required: _Required | None = None) -> None:
        super().__init__(key, path, _SMALL_WRITE_BYTES)
        self._path = path
        self._required = required
        self._temporary = temporary
        self._file = file
        self._synced = 0
        self._sync: _BackgroundSync | None = None
        self._all_in_sync = False
        """Whether the latest sync began after everything was written."""

    def write(self, data: BytesLike) -> int:
        size = super().write(data)
        if self._position - self._synced >= SYNC_EVERY_BYTES and (self._sync is None or self._sync.done()):
            self._start_sync()
        return size

    def _publish(self) -> None:
        self._rename()
        _sync_folder_of(self._path)

    def _close_both(self, other: OutputFile) -> None:
        """Sync both in parallel, and their common folder once. Neither may be written to in the meantime."""
        if (
            not isinstance(other, LocalOutputFile)
            or not self._open
            or not other._open
            or os.path.dirname(self._path) != os.path.dirname(other._path)
        ):
            super()._close_both(other)
            return
        other._start_sync_of_all()
        self._rename()
        other._rename()
        _sync_folder_of(self._path)

    def _rename(self) -> None:
        """Sync the file and rename it to its target; the name is durable once the folder is synced."""
        try:
            self._flush()
            if self._sync is not None:
                self._sync.wait()
            if not self._all_in_sync:
                os.fsync(self._file)
            if self._required is not None:
                self._required.check(self._path, "written")
            os.rename(self._temporary, self._path)
        except OSError as error:
            raise _translate_publish_error(error, "write", self._temporary, self._path) from error
        self._open = False
        with suppress(OSError):  # all is synced, and the descriptor is freed in any case
            os.close(self._file)

    def _start_sync_of_all(self) -> None:
        """Start a sync of all that was written, unless one is running, which would miss the end."""
        self._flush()
        if self._sync is None or self._sync.done():
            self._start_sync()
            self._all_in_sync = True

    def _discard(self) -> None:
        self._open = False
        with suppress(OSError):
            if self._sync is not None:
                self._sync.wait()
        with suppress(OSError):
            os.close(self._file)
        _remove_quietly(self._temporary)

    def _send(self, view: memoryview) -> None:
        try:
            _write_fully(self._file, view)
        except OSError as error:
            raise translate_os_error(error, "write", self._path) from error

    def _start_sync(self) -> None:
        self._synced = self._position
        previous = self._sync.error if self._sync is not None else None
        self._sync = _BackgroundSync(self._file, previous)


class _BackgroundSync:
    """One fdatasync in a thread. The system reports a failure only once, so the error is kept for ``close``.

    Out of memory, a new thread may die before it runs, and ``Thread.start`` would wait for it forever. So the thread is
    started without waiting, and ``wait`` runs a sync that no thread has claimed."""

    def __init__(self, file: int, error: OSError | None) -> None:
        self.error = error
        self._file = file
        self._is_synced = False
        self._claim: dict[str, str] = {}
        """Who runs the sync, "thread" or "caller": the first to set "by". Setting it again changes nothing."""
        self._running = _thread.allocate_lock()
        self._running.acquire()  # released when the thread ends
        with suppress(RuntimeError, MemoryError):  # no thread: none is left, or the interpreter exits
            _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        if self._claim.setdefault("by", "thread") == "thread":
            try:
                self._sync()
            finally:
                self._running.release()

    def _sync(self) -> None:
        try:
            os.fdatasync(self._file)
            self._is_synced = True
        except OSError as error:
            self.error = error

    def done(self) -> bool:
        return not self._running.locked()

    def wait(self) -> None:
        if self._claim.setdefault("by", "caller") == "thread":
            with self._running:
                pass
        if self.error is None and not self._is_synced:
            self._sync()
        if self.error is not None:
            raise self.error


class _Required:
    """The file of a folder that has to be there, with these fields, before anything is changed. Thread-safe.

    It is read again only when another file has its name, or it was changed: a status of it is as cheap as a look
    whether it exists. A mounted disk has a device number of its own."""

    def __init__(self, base: str, key: str, fields: Mapping[str, object]) -> None:
        self.key = validate_key(key)
        self.fields = dict(fields)
        self._path = base + key
        self._checked: tuple[int, int, int, int] | None = None

    def check(self, path: str, what: str) -> None:
        """Raise StorageError if the file is missing, or is that of another location; ``path`` is not ``what`` then."""
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise StorageError(
                f"{path} was not {what}: {self._path} is missing, so this is not the folder that was registered, or "
                "its disk is not mounted; mount it",
                path=path,
            ) from error
        identity = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
        if self.fields and identity != self._checked:
            self._compare(path, what)
            self._checked = identity

    def _compare(self, path: str, what: str) -> None:
        try:
            stored = json.loads(_read_file(self._path, 0, None, MAX_CLUSTER_FILE_BYTES))
        except ValueError:
            stored = None
        if not isinstance(stored, dict) or any(stored.get(name) != value for name, value in self.fields.items()):
            found = stored if isinstance(stored, dict) else {}
            wrong = [f"{name} {found.get(name)!r} instead of {value!r}" for name, value in self.fields.items()]
            raise StorageError(
                f"{path} was not {what}: {self._path} is that of another location "
                f"({', '.join(wrong)}); another disk is mounted here, or two are swapped; mount the right one",
                path=path,
            )


def _read_file(path: str, position: int, length: int | None, max_bytes: int | None = None) -> bytes:
    """Return ``length`` bytes of a file, or all from ``position`` on for None."""
    try:
        file = os.open(path, OPEN_TO_READ)
        try:
            status = os.fstat(file)
            check_file(status)
            check_size(path, status.st_size, max_bytes)
            remaining = max(0, status.st_size - position)
            return _read_fully(file, remaining if length is None else min(length, remaining), position)
        finally:
            os.close(file)
    except OSError as error:
        raise translate_os_error(error, "read", path) from error


def _read_fully(file: int, length: int, position: int) -> bytes:
    data = os.pread(file, length, position)
    if len(data) == length:
        return data
    parts = [data]  # one system call reads at most 2 GiB
    missing = length - len(data)
    while missing and (data := os.pread(file, missing, position + length - missing)):
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def _write_fully(file: int, view: memoryview) -> None:
    written = os.write(file, view)
    if written < view.nbytes:  # at most 2 GiB in one call; or the disk is nearly full, and the next call fails
        view = view.cast("B")
        while written < view.nbytes:
            written += os.write(file, view[written:])


def _translate_publish_error(error: OSError, action: str, temporary: str, path: str) -> StorageError:
    """Return the error to raise if a temporary file cannot be renamed or linked to ``path``."""
    if isinstance(error, FileNotFoundError) and not os.path.lexists(temporary):
        return StorageError(
            f"{temporary} was deleted while it was written: by hand, or by a vacuum whose age limit is shorter than "
            "the write took; write it again",
            path=path,
        )
    return translate_os_error(error, action, path)


def _link(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if _is_same_file(temporary, path):  # NFS: an earlier request took effect, and its answer was lost
            return
        names = _count_names(temporary)
        if error.errno in _NO_HARD_LINKS and names == 1:
            raise UnsupportedStoreError(
                f"the file system of {path} has no hard links ({error.strerror}), so it cannot create a file only if "
                "its name is free; use a file system that has them (ext4, xfs, btrfs, NFS), or S3, GCS, ABFS or HDFS",
                path=path,
            ) from error
        translated = _translate_publish_error(error, "create", temporary, path)
        other = kind_of_other(path) if isinstance(translated, ObjectExistsError) else ""
        if other:  # not from an earlier attempt, which links a file
            translated = StorageError(
                f"{path} is {other}, so nothing can be stored under this name: move it away, then try again; `sparklog "
                "fsck` lists other such names",
                path=path,
            )
        certain = names == 1 and not isinstance(translated, (ObjectExistsError, StorageUnavailableError))
        raise (not_written(translated) if certain and is_local_disk(temporary) else translated) from error


def _is_same_file(first: str, second: str) -> bool:
    """Return whether two names are those of one file; False if that cannot be determined."""
    try:
        return os.path.samestat(os.lstat(first), os.lstat(second))
    except OSError:
        return False


def _count_names(temporary: str) -> int | None:
    try:
        return os.stat(temporary).st_nlink
    except OSError:
        return None


def _sync_folder_of(path: str) -> None:
    """Sync the folder of a file, so that its name is durable. The name is visible: an error means outcome unknown."""
    try:
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise StorageUnavailableError(
            f"{path} was written, but its folder could not be synced ({error.strerror}): a power failure may lose it; "
            "read it back, then retry",
            path=path,
            stored=True,
        ) from error


def sync_folder(folder: str) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # returned by file systems whose folders need no sync
            raise
    finally:
        os.close(file)


def _remove_quietly(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


_LOST_AND_FOUND = "lost+found/"
"""At the root of a mounted disk, of its checks: only the superuser may list it. No key begins with it."""


def _walk(base: str, prefix: str) -> Iterator[ObjectInfo]:
    """Yield the files below ``base + prefix``, ordered by key, without those deleted in the meantime."""
    if prefix and _is_below_link(base, prefix):  # what is behind it is read and written: this is not empty
        raise StorageError(
            f"{base}{prefix} is, or is below, a link to a folder, which no listing follows: mount what it points to in "
            "its place (mount --bind), or move it back",
            path=prefix,
        )
    try:
        with os.scandir(base + prefix) as entries:
            named_entries = [(_sort_name(entry), entry) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise translate_os_error(error, "list", base + prefix) from error
    for name, entry in sorted(named_entries, key=lambda pair: pair[0]):
        if name.endswith("/"):
            if prefix or name != _LOST_AND_FOUND:
                yield from _walk(base, prefix + name)
        elif not is_hidden(name) and (status := _file_status(entry)) is not None:
            yield ObjectInfo(prefix + name, status.st_size, status.st_mtime_ns // 1_000_000)


def _is_below_link(base: str, prefix: str) -> bool:
    """Return whether any part of this folder's path below the root is a link."""
    parts = prefix.rstrip("/").split("/")
    return any(os.path.islink(base + "/".join(parts[: count + 1])) for count in range(len(parts)))


def _sort_name(entry: os.DirEntry[str]) -> str:
    return entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name


def _file_status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of a file, or of the file a link points to; None for anything else, as a link to a folder."""
    try:
        status = entry.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise translate_os_error(error, "list", entry.path) from error
    return status if stat.S_ISREG(status.st_mode) else None
