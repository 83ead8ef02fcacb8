"""HDFS through hdfs-native, a client without Java.

Rules:

* A write goes to a temporary file beside its target, which is synced on the DataNodes, closed and renamed: without
  overwriting for ``put_if_absent``, which the NameNode decides, with overwriting otherwise. The client's own exclusive
  create would not do: its name is visible before its bytes are.
* Of the rename's errors, only ``FileExistsError`` has a known outcome. After any other, it may have happened. An error
  before the rename is certain: no object has, or will get, the key.
* The client is written in Rust and may panic, which Python raises as a ``BaseException``: treated as any other error.
* The first call of a process has ``FIRST_CALL_SECONDS``: without a limit, an unreachable NameNode takes minutes.
* ``hsync`` before ``close`` makes the bytes durable, and avoids the half second that the client sleeps in most closes
  when it asks before a DataNode has reported [19 ms against 31 ms, 99th percentile 27 ms against 614 ms].
* The client panics on a read past the end, so every range is clipped to the file first.
* Without Kerberos the user is HADOOP_USER_NAME, then SPARK_USER, then that of the process. Spark sets SPARK_USER in its
  containers to the submitting user, and its own HDFS client acts as that user.
* A process forked from one that used HDFS is refused: the client keeps its DataNode connections inside the library,
  out of reach, and the child hangs as soon as it is handed one [20 of 30 tries]. Spark's Python workers are not
  affected, because the daemon that forks them uses no store.

Not for: WebHDFS, whose client cannot distinguish a lost rename from a won one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    SparklogError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.limits import MAX_CREATE_BYTES
from sparklog.store import threads
from sparklog.store.base import (
    TEMPORARY_PREFIX,
    BytesLike,
    ObjectInfo,
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
from sparklog.store.process_local import ProcessLocal, importing_client, no_fork, unpickle_shared
from sparklog.store.read_ahead import ReadAheadFile

FIRST_CALL_SECONDS = 20.0
"""Timeout of the first call of a process: enough for a NameNode's failover, against 178 s without one."""

USER, SUBMITTER = "HADOOP_USER_NAME", "SPARK_USER"
"""Environment variables: the user for the client, and the one who submitted the application."""

LIST_ATTEMPTS = 5
"""tries of a listing during which a folder was deleted."""

_WRITE_BYTES = 1024 * 1024
"""bytes. Smaller writes are buffered up to this, since each call crosses into the client's runtime."""

# Java class names in the text of the client's RuntimeErrors.
_NOT_ALLOWED = ("AccessControlException", "AuthorizationException", "InvalidToken")
_NO_LOGIN = "GSSAPIError"
_FULL = ("QuotaExceededException", "could only be written to 0 of")
_NOT_CONFIGURED = ("No NameNode hosts found", "No fs.defaultFS setting found")
_REFUSED = (
    "ParentNotDirectoryException",
    "InvalidPathException",
    "PathComponentTooLongException",
    "NotEmptyDirectoryException",
)

T = TypeVar("T")

_first_user: int | None = None
"""Id of the first process to connect, of this one and those it was forked from."""


class HdfsStore(Store):
    """A folder in HDFS. Thread-safe, picklable (with its options). Unusable in forks of a process that used HDFS."""

    largest_create_bytes = MAX_CREATE_BYTES

    def __init__(self, url: str, options: Mapping[str, object], ids: Ids | None = None) -> None:
        """``url`` names the NameNode or a name service of the Hadoop configuration (found through HADOOP_CONF_DIR);
        ``options`` are settings as in hdfs-site.xml and override it."""
        parts = urlsplit(url)
        if "@" in parts.netloc:
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            raise UnsupportedStoreError(
                f"{shown}: give the user in HADOOP_USER_NAME or by Kerberos, not in the address", path=shown
            )
        self._service = f"{parts.scheme}://{parts.netloc}"
        self._base = "/" + parts.path.strip("/")
        self._options = {name: str(value) for name, value in options.items()}
        self._ids = ids or RandomIds()
        self.root = (self._service + self._base).rstrip("/")
        self.client: ProcessLocal[Any] = ProcessLocal(self._connect)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle_shared, (HdfsStore, (self._service + self._base, self._options, self._ids))

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        path = self._path(key)
        with _translating("read", self._shown(key)):
            reader = self.client.get().read(path)
            size = reader.inner.file_length()
            check_size(self._shown(key), size, max_bytes)
            return _read_range(reader, 0, size)

    def get_range(self, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        path = self._path(key)
        with _translating("read", self._shown(key)):
            return _read_range(self.client.get().read(path), position, length)

    def put(self, key: str, data: BytesLike) -> None:
        with self.open_output(key) as file:
            file.write(data)

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        view = memoryview(data)
        check_create(key, view.nbytes, self.largest_create_bytes)
        file: HdfsOutputFile | None = None
        try:
            file = HdfsOutputFile(self, key, overwrite=False)
            with file:
                file.write(view)
        except StorageError as error:
            if file is None or not file.rename_sent:
                not_written(error)
            raise

    def delete(self, key: str) -> None:
        path = self._path(key)
        with suppress(ObjectNotFoundError), _translating("delete", self._shown(key)):
            self.client.get().delete(path, False)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        validate_prefix(prefix)
        return self._list(prefix)

    def info(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with _translating("read", self._shown(key)):
            status = self.client.get().get_file_info(path)
        if status.isdir:
            raise ObjectNotFoundError(f"{self._shown(key)} does not exist: it is a folder", path=self._shown(key))
        return ObjectInfo(key, status.length, status.modification_time)

    def open_input(self, key: str) -> ReadAheadFile:
        path, shown = self._path(key), self._shown(key)
        reader: ProcessLocal[Any] = ProcessLocal(lambda: self.client.get().read(path))

        def fetch(position: int, length: int) -> bytes:
            with _translating("read", shown):
                return _read_range(reader.get(), position, length)

        def measure() -> int:
            with _translating("read", shown):
                return int(reader.get().inner.file_length())

        measure()  # asks the NameNode for the blocks, which fails now if the file is missing
        return ReadAheadFile(key, fetch, measure)

    def open_output(self, key: str) -> HdfsOutputFile:
        return HdfsOutputFile(self, key, overwrite=True)

    def remove_unfinished(self, before_ms: int) -> int:
        removed = 0
        for status in self._list_statuses(""):
            if is_unfinished(status.path.rpartition("/")[2]) and status.modification_time < before_ms:
                with _translating("delete", status.path):
                    removed += bool(self.client.get().delete(status.path, False))
        return removed

    def _connect(self) -> Any:
        global _first_user
        if _first_user not in (None, os.getpid()):
            raise StorageError(
                f"{self.root}: this process was forked from one that used HDFS, whose client does not survive forks; "
                'start processes with multiprocessing.get_context("spawn"), or use HDFS in the children only',
                path=self.root,
            )
        _first_user = os.getpid()
        with no_fork(), importing_client(self.root, "hdfs"):
            from hdfs_native import Client

        if SUBMITTER in os.environ:
            os.environ.setdefault(USER, os.environ[SUBMITTER])

        def connect() -> Any:
            client = Client(self._service, self._options)
            with suppress(FileNotFoundError, RuntimeError):  # an error is an answer of the NameNode too
                client.get_file_info("/")
            return client

        return _within(FIRST_CALL_SECONDS, connect, f"the NameNode of {self._service}", self.root)

    def _path(self, key: str) -> str:
        return f"{self._base.rstrip('/')}/{validate_key(key)}"

    def _shown(self, key: str) -> str:
        return f"{self.root}/{key}"

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        skip = len(self._base.rstrip("/")) + 1
        for status in self._list_statuses(prefix):
            if not is_hidden(status.path.rpartition("/")[2]):
                yield ObjectInfo(status.path[skip:], status.length, status.modification_time)

    def _list_statuses(self, prefix: str) -> Sequence[Any]:
        """Return every file below the folder, hidden ones too, ordered by path."""
        folder = f"{self._base.rstrip('/')}/{prefix}".rstrip("/") or "/"
        for _ in range(LIST_ATTEMPTS):
            with suppress(ObjectNotFoundError), _translating("list", f"{self.root}/{prefix}"):
                files = [s for s in self.client.get().list_status(folder, True) if not s.isdir and s.path != folder]
                return sorted(files, key=lambda status: str(status.path))
            try:
                with _translating("read", folder):
                    self.client.get().get_file_info(folder)
            except ObjectNotFoundError:
                return []
        raise StorageUnavailableError(
            f"list {self.root}/{prefix}: folders were deleted during {LIST_ATTEMPTS} listings in a row; retry",
            path=self.root,
        )


class HdfsOutputFile(StreamedFile):
    """A streaming write into a temporary file, renamed by ``close``. Not thread-safe."""

    def __init__(self, store: HdfsStore, key: str, overwrite: bool) -> None:
        super().__init__(key, store._shown(key), _WRITE_BYTES)
        self._store = store
        self._path = store._path(key)
        self._overwrite = overwrite
        self._temporary = f"{self._path.rpartition('/')[0]}/{TEMPORARY_PREFIX}{store._ids.write_id()}"
        self.rename_sent = False
        """Whether the object may have its key by now."""
        # A writer cannot outlive its process, and destroying it in a forked child would hang.
        self._writer: ProcessLocal[Any] = ProcessLocal(self._create)
        with _translating("write", self._shown):
            self._writer.get()

    def _publish(self) -> None:
        self._flush()
        with _translating("write", self._shown):
            if self._position:
                with suppress(Exception):  # erasure-coded folders have no hsync; if bytes are lost, close fails
                    self._writer.get().hsync()
            self._writer.get().close()
        self._open = False
        self._writer.clear()
        self._rename()

    def _discard(self) -> None:
        self._open = False
        self._writer.clear()
        self._delete_temporary()

    def _create(self) -> Any:
        from hdfs_native import WriteOptions

        return self._store.client.get().create(self._temporary, WriteOptions(overwrite=False))

    def _send(self, view: memoryview) -> None:
        with _translating("write", self._shown):
            self._writer.get().write(view.cast("B"))  # it refuses signed bytes, the format of Arrow's buffers

    def _rename(self) -> None:
        with _translating("write", self._shown):
            client = self._store.client.get()
        self.rename_sent = True
        try:
            client.rename(self._temporary, self._path, self._overwrite)
        except FileExistsError as error:
            self._delete_temporary()
            raise ObjectExistsError(f"{self._shown} exists", path=self._shown) from error
        except BaseException as error:
            if not isinstance(error, Exception) and not _is_panic(error):
                raise
            raise StorageUnavailableError(
                f"write {self._shown}: {_first_line(error)}; outcome of the rename unknown: read it back",
                path=self._shown,
            ) from error

    def _delete_temporary(self) -> None:
        with suppress(Exception):
            self._store.client.get().delete(self._temporary, False)


@contextmanager
def _translating(operation: str, path: str) -> Iterator[None]:
    """Translate the errors of the client in this block."""
    try:
        yield
    except SparklogError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or _is_panic(error):
            raise translate_hdfs_error(error, operation, path) from error
        raise


def _is_panic(error: BaseException) -> bool:
    return type(error).__module__ == "pyo3_runtime"


def translate_hdfs_error(error: BaseException, operation: str, path: str) -> StorageError:
    """Return the error to raise for one of hdfs-native; ``operation`` is "read", "write", "list" or "delete"."""
    text = str(error)
    reason = f"{operation} {path}: {_first_line(error)}"
    missing = isinstance(error, FileNotFoundError) or "ParentNotDirectoryException" in text
    if missing and operation != "write":
        return ObjectNotFoundError(f"{path} does not exist", path=path)
    if _NO_LOGIN in text:
        return StoragePermissionError(
            f"{reason}; log in with kinit (KRB5CCNAME names the ticket cache), or name a file with tokens in "
            "HADOOP_TOKEN_FILE_LOCATION",
            path=path,
        )
    if isinstance(error, PermissionError) or any(name in text for name in _NOT_ALLOWED):
        return StoragePermissionError(f"{reason}; check HADOOP_USER_NAME or Kerberos and the folder's mode", path=path)
    if any(name in text for name in _FULL):
        return StorageFullError(f"{reason}; free space, raise the quota or add DataNodes, then retry", path=path)
    if missing or any(name in text for name in _REFUSED):
        return StorageError(reason, path=path)
    if any(name in text for name in _NOT_CONFIGURED):
        return StorageUnavailableError(
            f"{reason}; set HADOOP_CONF_DIR to the folder of core-site.xml and hdfs-site.xml, or name the NameNode: "
            "hdfs://namenode:8020/folder",
            path=path,
        )
    return StorageUnavailableError(f"{reason}; retry, and if that does not help check the NameNode", path=path)


def _first_line(error: BaseException) -> str:
    """Return Java's message without the stack trace."""
    return str(error).replace("\\n", "\n").partition("\n")[0]


def _read_range(reader: Any, position: int, length: int) -> bytes:
    length = min(length, reader.inner.file_length() - position)
    return bytes(reader.read_range(position, length)) if length > 0 else b""


def _within(seconds: float, call: Callable[[], T], what: str, path: str) -> T:
    """Return the call's result. Raises ``StorageUnavailableError`` on timeout; its thread then keeps running."""
    answer: list[T] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            answer.append(call())
        except Exception as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="sparklog-hdfs-connect", daemon=True)
    threads.start(thread)
    thread.join(seconds)
    if answer:
        return answer[0]
    if failure:
        raise failure[0]
    raise StorageUnavailableError(
        f"{what} did not answer within {seconds:.0f} s; check the address and that it runs, then retry", path=path
    )
