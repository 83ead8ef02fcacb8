"""Object storages through fsspec: what S3, Google Cloud Storage and Azure have in common.

Rules:

* ``put_if_absent`` is ``pipe_file(mode="create")``, only for clients where that is one conditional request; each was
  tested with 16 racing processes. fsspec's fallback of that name is not atomic, so no other client may be added here.
* Listings are never cached, and no file system instance is shared through fsspec's cache.
* A client retries internally, so it may find its own object and report that it exists; and every error, even a refusal,
  may be the response to the second of two requests whose first took effect. Callers resolve both by reading back.
  Only failures before a client exists, such as missing credentials, are certain.
* Google's and Microsoft's own services honour conditions, so there is no endpoint to probe; and they delete unfinished
  uploads after a week by themselves.
* Clients also raise errors that look like bugs (TypeError, AttributeError), in the middle of a request. They become a
  StorageError like all others.

Not for: deciding whether to retry a commit.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any

from sparklog.errors import (
    InvalidCallError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.store.base import (
    SAME_SCHEME,
    BytesLike,
    InputFile,
    ObjectInfo,
    OutputFile,
    Store,
    StreamedFile,
    check_create,
    check_range,
    check_size,
    is_hidden,
    not_written,
    validate_key,
    validate_prefix,
)
from sparklog.store.process_local import ProcessLocal, importing_client, no_fork, unpickle_shared
from sparklog.store.read_ahead import ReadAheadFile
from sparklog.threads import Threads

_EXTRAS = {"s3": "s3", "gs": "gcs", "abfs": "azure"}

# Errors of clients that no retry resolves.
_PROGRAMMING_ERRORS = (TypeError, AttributeError, NameError, AssertionError, NotImplementedError, LookupError)

# Codes of refused requests. An earlier request of the same call may have been served nevertheless.
_REFUSED_CODES = frozenset({errno.EINVAL, errno.EMSGSIZE, errno.ENAMETOOLONG, errno.EPERM, errno.ENOSYS})


_LOOKUPS: ProcessLocal[Threads] = ProcessLocal(Threads)
"""In which the clients' event loop, which all clients of a process share, looks up the names of hosts."""


class FsspecStore(Store):
    """A folder of a bucket. Thread-safe, picklable (with its options), usable after a fork."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        """``url`` is validated by ``open_store``; ``options`` go to fsspec's client as they are."""
        scheme, _, rest = url.partition("://")
        self._protocol = SAME_SCHEME.get(scheme.lower(), scheme.lower())
        self._url = f"{self._protocol}://{rest.rstrip('/')}"
        self._options = dict(options)
        self.root = self._url
        if not rest.strip("/"):
            raise UnsupportedStoreError(f"{url} does not name a bucket: write {scheme}://bucket/folder", path=url)
        self.client: ProcessLocal[Any] = ProcessLocal(self._connect)
        self._folder: ProcessLocal[str] = ProcessLocal(self._find_folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickle_shared, (type(self), (self._url, self._options))

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        path = self._path(key)
        end = None if max_bytes is None else max_bytes + 1
        data = self._read(key, path, 0, end)
        check_size(self._shown(key), len(data), max_bytes)
        return data

    def get_range(self, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        path = self._path(key)
        if length == 0:
            return b""
        return self._read(key, path, position, position + length)

    def put(self, key: str, data: BytesLike) -> None:
        path = self._path(key)
        with self._translating("write", key):
            self.client.get().pipe_file(path, as_bytes(data))

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        body = as_bytes(data)
        check_create(key, len(body), self.largest_create_bytes)
        client, path = self._client_for_create(key)
        try:
            client.pipe_file(path, body, mode="create")
        except Exception as error:
            if isinstance(error, FileExistsError) and is_about_the_object(error):
                raise ObjectExistsError(f"{self._shown(key)} exists", path=self._shown(key)) from error
            raise self._translate(error, "write", key) from cause_of(error)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with suppress(ObjectNotFoundError), self._translating("delete", key):
            self.client.get().rm_file(path)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._list(validate_prefix(prefix))

    def info(self, key: str) -> ObjectInfo:
        path = self._path(key)
        with self._translating("read", key):
            details = self.client.get().info(path)
        if details["type"] != "file":
            raise ObjectNotFoundError(f"{self._shown(key)} does not exist: it is a folder", path=self._shown(key))
        return ObjectInfo(key, details["size"], modified_ms_of(details))

    def open_input(self, key: str) -> InputFile:
        validate_key(key)
        return ReadAheadFile(key, partial(self.get_range, key), lambda: self.info(key).size)

    def open_output(self, key: str) -> OutputFile:
        path = self._path(key)
        with self._translating("write", key):
            file = self.client.get().open(path, "wb")
        return FsspecOutputFile(self, key, file)

    def _connect(self) -> Any:
        """Open the client, which may already look for credentials."""
        with no_fork(), importing_client(self.root, _EXTRAS[self._protocol]):
            import fsspec

            kind = fsspec.get_filesystem_class(self._protocol)
        with self._translating("connect to", ""), no_fork():
            options = {
                **kind._get_kwargs_from_urls(self._url),
                **self._options,
                "skip_instance_cache": True,
                "use_listings_cache": False,
            }
            client = kind(**options)
        if client.async_impl:
            client.loop.call_soon_threadsafe(client.loop.set_default_executor, _LOOKUPS.get())
        return client

    def _find_folder(self) -> str:
        """Return the root as the client writes it: container/folder, without the account that the URL may name."""
        return str(self.client.get()._strip_protocol(self._url)).strip("/")

    def _path(self, key: str) -> str:
        return f"{self._folder.get()}/{validate_key(key)}"

    def _shown(self, key: str) -> str:
        return f"{self.root}/{key}"

    def _client_for_create(self, key: str) -> tuple[Any, str]:
        """Return the client and the object's path. Errors say that nothing was written: nothing was sent yet."""
        try:
            return self.client.get(), self._path(key)
        except Exception as error:
            raise not_written(self._translate(error, "write", key)) from cause_of(error)

    def _read(self, key: str, path: str, start: int, end: int | None) -> bytes:
        try:
            return bytes(self.client.get().cat_file(path, start=start, end=end))
        except Exception as error:
            if is_past_the_end(error):
                return b""
            raise self._translate(error, "read", key) from cause_of(error)

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = self._folder.get()
        try:
            entries = self.client.get().find(f"{folder}/{prefix}".rstrip("/"), detail=True)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self._translate(error, "list", prefix) from cause_of(error)
        if not isinstance(entries, dict):  # from adlfs, if the folder is an object or absent
            return
        skip = len(folder) + 1
        for path in sorted(entries):
            key, details = path[skip:], entries[path]
            if details["type"] == "file" and key.startswith(prefix) and not is_hidden(key.rpartition("/")[2]):
                yield ObjectInfo(key, details["size"], modified_ms_of(details))

    @contextmanager
    def _translating(self, operation: str, key: str) -> Iterator[None]:
        """Translate the errors of the client in this block."""
        try:
            yield
        except Exception as error:
            raise self._translate(error, operation, key) from cause_of(error)

    def _translate(self, error: Exception, operation: str, key: str) -> Exception:
        return translate_client_error(error, operation, self._shown(key))


class FsspecOutputFile(StreamedFile):
    """A streaming upload that becomes visible when it is closed. Not thread-safe.

    fsspec's files publish their bytes when they are garbage collected while open. This one aborts them first.
    """

    def __init__(self, store: FsspecStore, key: str, file: Any) -> None:
        super().__init__(key, store._shown(key))
        self._store = store
        self._file: ProcessLocal[Any] = ProcessLocal(lambda: file)
        self._file.get()

    @property
    def _is_open(self) -> bool:
        return self._file.peek() is not None  # a forked child has none

    def _send(self, view: memoryview) -> None:
        with self._store._translating("write", self.key):
            self._file.get().write(view)

    def _publish(self) -> None:
        with self._store._translating("write", self.key):
            self._file.get().close()
        self._file.clear()

    def _discard(self) -> None:
        file = self._file.get()
        self._file.clear()
        file.closed = True
        with suppress(Exception):
            file.discard()

    def __del__(self) -> None:
        self.abort()


def translate_client_error(error: Exception, operation: str, path: str) -> Exception:
    """Return the error to raise for one that a client raised in ``operation`` ("read", "write", "list", "delete")."""
    if isinstance(error, (StorageError, InvalidCallError)):
        return error
    reason = f"{operation} {path}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    if isinstance(error, FileNotFoundError):
        if operation in ("read", "delete"):
            return ObjectNotFoundError(f"{path} does not exist", path=path)
        return StorageError(f"{reason}; does the bucket exist?", path=path)
    if isinstance(error, PermissionError) or "Credential" in type(error).__name__ or _is_forbidden(error):
        return StoragePermissionError(f"{reason}; check the credentials and their permissions", path=path)
    if error_code(error) in ("QuotaExceeded", "InsufficientStorage", "EntityQuotaExceeded", "507"):
        return StorageFullError(f"{reason}; free space or raise the quota, then retry", path=path)
    if isinstance(error, _PROGRAMMING_ERRORS) or (isinstance(error, OSError) and error.errno in _REFUSED_CODES):
        return StorageError(reason, path=path)
    return StorageUnavailableError(f"{reason}; retry, and if that does not help check the storage", path=path)


def _is_forbidden(error: Exception) -> bool:
    """Return whether Azure (HTTP 401 or 403) or Google Cloud refuses the request for good, and not for its rate."""
    status = getattr(error, "status_code", getattr(error, "code", None))
    is_of_google = isinstance(error, OSError) and str(error).startswith("Forbidden: ")  # all that gcsfs says of a 403
    return (status in (401, 403) or is_of_google) and "ratelimit" not in str(error).lower().replace(" ", "")


def cause_of(error: Exception) -> BaseException | None:
    """Return the cause of the error that ``translate_client_error`` returns: one that was translated before has its
    own, and would lose it as a cause of itself."""
    return error.__cause__ if isinstance(error, StorageError) else error


def error_code(error: BaseException) -> str:
    """Return the storage's error code if a botocore ClientError is the cause, else an empty string."""
    response = getattr(error.__cause__ or error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def is_about_the_object(error: FileExistsError) -> bool:
    """Return whether an "exists" is about the object. Azure's client raises it for every conflict (409), such as a
    container being deleted; the code of Azure's own error then decides."""
    for cause in (error.__cause__, error.__context__):
        code = getattr(cause, "error_code", None)
        if code:
            return str(getattr(code, "value", code)) in (
                "BlobAlreadyExists",
                "ConditionNotMet",
                "TargetConditionNotMet",
            )
    return True


def is_past_the_end(error: BaseException) -> bool:
    """Return whether a read was refused because it starts past the last byte (HTTP 416)."""
    status = getattr(error, "status", getattr(error, "status_code", getattr(error, "code", None)))
    return error_code(error) in ("InvalidRange", "416") or status == 416


def modified_ms_of(details: Mapping[str, Any]) -> int:
    """Return the modification time of a listing's entry in ms since the epoch; each client has its own name for it."""
    for name in ("LastModified", "last_modified", "mtime", "updated"):
        value = details.get(name)
        if isinstance(value, str):
            value = datetime.fromisoformat(value.replace("Z", "+00:00"))
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        if isinstance(value, (int, float)):
            return int(value * 1000)
    return 0


def as_bytes(data: BytesLike) -> bytes:
    """Return the data as ``bytes``, for clients that accept nothing else; copies other types."""
    return data if isinstance(data, bytes) else bytes(memoryview(data))
