"""The interface of a store: a handful of calls on keys, with exact outcomes.

Rules:

* A key is a relative path of ``/``-separated parts. An object is visible whole or not at all, never in part.
* ``put_if_absent`` is the arbiter of commits: of any number of callers, in any number of processes, at most one wins.
  It has three outcomes: it returns (won), it raises ``ObjectExistsError`` (the key is taken, perhaps by the caller's
  own earlier request, whose response was lost), or it raises any other ``StorageError``: the outcome is unknown, so
  read the key back. Clients retry internally, so even a refusal (403) may be the response to the second of two requests
  whose first took effect. Only an error with ``nothing_written=True`` is certain: the store raises it where nothing was
  sent, or where what was sent can no longer take effect. An error that is not a ``StorageError``
  (``InvalidRequestError``) is raised before anything is sent.
* The outcome of a ``put``, a ``delete`` or an ``OutputFile.close`` that raises is unknown as well. On a storage behind
  a network it may take effect later, even after a later request of the same caller.
* "Does not exist" and "exists" are answers about the key. A missing bucket, the web page of a proxy and a truncated
  response are not: they are other ``StorageError``s. Every exception of a client is raised as a ``StorageError``.
* A write that has returned is as durable as the storage can make it. An object that another process wrote may be
  visible before that: its writer may be killed before its write returns, or the disk refuse it. ``sync`` comes before
  anything that is not to be undone with it.
* Nothing is cached: an object that another process wrote a moment ago is visible.

Not for: deciding anything. Retrying, reading back and comparing belong to the commit log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from sparklog.errors import CorruptMetadataError, InvalidRequestError, RecordListTooLargeError, StorageError
from sparklog.limits import MAX_COMMIT_BYTES

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

BytesLike: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"
"""Any contiguous buffer of bytes. It is copied only where the storage's client needs it."""

MAX_KEY_BYTES = 900
"""bytes of a key in UTF-8. S3 allows 1024 including the root's prefix."""

MAX_KEY_PART_BYTES = 255
"""bytes between two slashes: the limit of local disks, enough for a topic's folder (a name of 249, and a number)."""

TEMPORARY_PREFIX = ".tmp-"
"""Prefix of unfinished files, which lie beside their target. No key starts so, and listings leave them out."""

LOCK_NAME = ".lock"
"""File name of the advisory lock. Like a temporary name it is not a valid key and is never listed."""


class Deleted(IntEnum):
    """What ``Store.delete_exactly`` did. True if the object certainly does not exist."""

    NO = 0
    """nothing: it may exist"""
    BEFORE = 1
    """nothing: it did not exist, or the key is another object's"""
    NOW = 2
    """the object, with these bytes"""


class ObjectInfo(NamedTuple):
    """One object of a listing: ``size`` in bytes, ``modified_ms`` since the epoch, by the storage's clock."""

    key: str
    size: int
    modified_ms: int


class InputFile(Protocol):
    """Random access to one object. Thread-safe, not picklable: use it in the process that opened it."""

    key: str

    @property
    def size(self) -> int:
        """Size of the object in bytes. The first use may send a request."""

    @property
    def bytes_read(self) -> int:
        """Bytes returned so far."""

    def read_at(self, position: int, length: int) -> pa.Buffer:
        """Return the bytes ``[position, position + length)`` as far as they exist: fewer at the end of the object, none
        past it."""

    def close(self) -> None:
        """Release the file. Buffers returned earlier stay valid. May be called twice."""


class BufferFile:
    """An object whose bytes are addressable as one buffer. Thread-safe."""

    def __init__(self, key: str, path: str, data: pa.Buffer) -> None:
        self.key = key
        self.size: int = data.size
        self.bytes_read = 0
        self._path = path
        self._data: pa.Buffer | None = data

    def read_at(self, position: int, length: int) -> pa.Buffer:
        whole = self._data  # read once: another thread may close the file
        if whole is None:
            raise StorageError(f"{self._path} was closed before this read", path=self._path)
        check_range(self.key, position, length)
        data = whole.slice(min(position, self.size), min(length, max(0, self.size - position)))
        self.bytes_read += data.size
        return data

    def close(self) -> None:
        self._data = None


class OutputFile(Protocol):
    """A streaming write of one object. Not thread-safe, not picklable.

    Nothing is visible under the key before ``close`` returns. As a context manager it closes at the end of the block
    and aborts if the block raises. Implementations derive from this class.
    """

    key: str

    def write(self, data: BytesLike) -> int:
        """Append all of ``data`` and return its size in bytes. The caller may reuse ``data`` afterwards."""

    def tell(self) -> int:
        """Bytes written so far."""

    def close(self) -> None:
        """Publish the object under its key, durably, replacing any other. May be called twice.

        When it raises, the stream is aborted and the outcome is unknown: the request may have taken effect and only its
        response been lost."""

    def abort(self) -> None:
        """Discard the written bytes; nothing appears under the key, unless ``close`` has sent a request before. Does
        nothing after ``close``. Never raises if the storage does not answer: what then remains is invisible (see
        ``remove_unfinished``)."""

    def close_with(self, other: OutputFile) -> None:
        """Close this file and another one of the same store: local ones in little more than the time of one.

        Raises as ``close``; unpublished files are aborted then, and one of the two may exist."""
        try:
            self._close_both(other)
        except BaseException:
            self.abort()
            other.abort()
            raise

    def _close_both(self, other: OutputFile) -> None:
        self.close()
        other.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()


class StreamedFile(OutputFile):
    """What the output files of all storages share: an error while it is written or published aborts the file, and one
    that was closed or aborted is not written to.

    A storage defines ``_send``, ``_publish`` and ``_discard``, of which the last two set ``_open`` to False."""

    def __init__(self, key: str, shown: str, buffered_bytes: int = 0) -> None:
        """``shown`` is the object's address in messages. Writes of less than ``buffered_bytes`` are buffered up to
        that; larger ones are sent without a copy."""
        self.key = key
        self._shown = shown
        self._buffered_bytes = buffered_bytes
        self._buffer = bytearray()
        self._position = 0
        self._open = True

    @property
    def _is_open(self) -> bool:
        return self._open

    def write(self, data: BytesLike) -> int:
        if not self._is_open:
            raise StorageError(f"{self._shown} was closed or aborted before this write", path=self._shown)
        view = memoryview(data)
        try:
            if view.nbytes < self._buffered_bytes:
                self._buffer += view
                if len(self._buffer) >= self._buffered_bytes:
                    self._flush()
            else:
                self._flush()
                self._send(view)
        except BaseException:
            self.abort()
            raise
        self._position += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self._is_open:
            return
        try:
            self._publish()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        if self._is_open:
            self._discard()

    def _flush(self) -> None:
        if self._buffer:
            buffered, self._buffer = self._buffer, bytearray()
            self._send(memoryview(buffered))

    def _send(self, view: memoryview) -> None:
        """Append these bytes."""

    def _publish(self) -> None:
        """Flush, and make the object visible under its key."""

    def _discard(self) -> None:
        """Release and delete what was written, best effort."""


class Store(Protocol):
    """Objects below one root. Thread-safe, picklable (the copy opens its own client), and usable after a fork; where
    a client does not survive a fork (HDFS), every call in the child raises ``StorageError`` instead of hanging.

    Implementations derive from this class; its defaults are those of a storage behind a network."""

    root: str
    """Path or URL that keys are relative to, without trailing slash and without credentials."""

    largest_create_bytes: int = MAX_COMMIT_BYTES
    """The largest body of ``put_if_absent``."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"  # options may hold credentials

    @property
    def is_local(self) -> bool:
        """Whether the objects are files of this machine's file system, on a disk or a mount; ``root`` is their path."""
        return False

    @property
    def parallel_requests(self) -> int:
        """Number of parallel requests that pays off: 1 where a request costs less than a thread."""
        return 16

    @property
    def has_own_clock(self) -> bool:
        """Whether modification times come from another clock than this machine's, such as a server's."""
        return True

    @property
    def is_private(self) -> bool:
        """Whether the objects live in this process alone, and end with it."""
        return False

    @property
    def endpoint_to_probe(self) -> str:
        """Address of a server that might ignore the condition of ``put_if_absent`` and therefore has to be probed once
        (see ``conditional_write_probe``); empty where that is impossible. May read the client's settings, but sends no
        request."""
        return ""

    def guarded_by(self, key: str, fields: Mapping[str, object] | None = None) -> Store:
        """Return a store that writes only while this object exists, if the storage can be unmounted; else this one.
        Its writes then raise ``StorageError`` instead of filling the folder below the mount point. With ``fields`` it
        writes and deletes only while the object is a JSON object that has them: another disk may be mounted there."""
        return self

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        """Return the whole object.

        Raises ``ObjectNotFoundError``, and ``CorruptMetadataError`` if the object has more than ``max_bytes``.
        """

    def get_range(self, key: str, position: int, length: int) -> bytes:
        """Return the bytes ``[position, position + length)`` as far as they exist. Raises ``ObjectNotFoundError``."""

    def put(self, key: str, data: BytesLike) -> None:
        """Create or replace the object atomically: a reader sees the old one or the new one, never a mixture."""

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        """Create the object unless it exists; see this module's rules for the outcomes.

        The body has 1 byte to ``largest_create_bytes``: an S3 server lets an empty body overwrite, and some clients
        send a large one in parts, where not every server checks the condition.
        """

    def sync(self, folder: str) -> None:
        """Make the names in a folder (with a trailing slash) durable, also those that other processes gave. Raises
        ``StorageError`` if a power failure may lose some. Where what is visible is durable, as is assumed here, this
        does nothing."""
        return

    def delete(self, key: str) -> None:
        """Delete the object if it exists. The client may send the request twice, the second one a minute later: not for
        a name that may be used again."""

    def delete_exactly(self, key: str, data: bytes) -> Deleted:
        """Delete the object if it has exactly these bytes; return what was done.

        Never deletes other bytes, however often and late a request is served. A storage that cannot ensure that, as is
        assumed here, deletes nothing and returns ``NO``. Raises ``StorageError``."""
        return Deleted.NO

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below a folder, recursively, ordered by the bytes of its key.

        ``prefix`` is a folder with a trailing slash, or "" for everything. A missing folder is empty.
        """

    def keys_after(self, folder: str, key: str) -> Sequence[str] | None:
        """Return the keys of a folder that follow this one, in order: all, or the next thousand. One request.

        ``folder`` has a trailing slash and no folders in it. None if a listing of this storage cannot begin at a key,
        so that the whole folder would have to be read.
        """
        return None

    def list_others(self, folder: str) -> Iterable[tuple[str, str]]:
        """Return the names in a folder, not recursively, that are no objects (a pipe, a folder in the place of a file),
        each with what it is."""
        return ()

    def info(self, key: str) -> ObjectInfo:
        """Return size and modification time of one object. Raises ``ObjectNotFoundError``."""

    def open_input(self, key: str) -> InputFile:
        """Open for random access. Raises ``ObjectNotFoundError`` here, or at the first read if opening sends none."""

    def open_output(self, key: str) -> OutputFile:
        """Open for a streaming write."""

    def commit_lock(self, while_waiting: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        """Return a lock that saves racing committers of one machine wasted work. Advisory: it may do nothing, waiting
        for it may time out, and a crash of its holder frees it. Correctness rests on ``put_if_absent`` alone.

        ``while_waiting`` may be called now and then while another process holds the lock."""
        return nullcontext()

    def remove_unfinished(self, before_ms: int) -> int:
        """Delete invisible leftovers of crashed writers that were last written before ``before_ms`` (since the epoch).

        Returns how many were deleted: none if leftovers do not outlive their writer, or the storage deletes them.
        Choose a time that no writer still at work can have started before.
        """
        return 0


SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
"""Other schemes of the same storage."""

_UNFINISHED = re.compile(re.escape(TEMPORARY_PREFIX) + "[A-Za-z0-9_-]{21}[AQgw]")

_BAD_KEY = re.compile(
    r"^/|/$|//"  # empty parts
    r"|(?:^|/)\.{1,2}(?:/|$)"  # "." and ".."
    r"|[\x00-\x1f\x7f\\?:\ud800-\udfff]"  # slash or version to some clients, refused by HDFS, not text
    r"|(?:^|/)(?:\.tmp-[^/]*|\.lock)$"  # reserved names
)


@lru_cache(maxsize=4096)  # the same few are used over and over
def validate_key(key: str) -> str:
    """Return the key. Raises ``InvalidRequestError`` unless it names something below the root."""
    if not key or _BAD_KEY.search(key):
        raise InvalidRequestError(
            f"invalid storage key {key!r}: parts must be separated by single slashes and must not be '.' or '..'; "
            "control characters, backslashes, question marks and colons are not allowed, nor names that start with "
            f"{TEMPORARY_PREFIX!r} or are {LOCK_NAME!r}",
            path=key,
        )
    if len(key) > MAX_KEY_PART_BYTES // 4:  # nearly all keys are short and cannot exceed either limit
        _validate_length(key)
    return key


def _validate_length(key: str) -> None:
    encoded = key.encode()
    longest = max(len(part) for part in encoded.split(b"/"))
    if len(encoded) > MAX_KEY_BYTES or longest > MAX_KEY_PART_BYTES:
        raise InvalidRequestError(
            f"storage key too long: {len(encoded)} bytes, longest part {longest}; at most {MAX_KEY_BYTES} and "
            f"{MAX_KEY_PART_BYTES} are allowed: {key[:80]!r}...",
            path=key,
        )


def validate_prefix(prefix: str) -> str:
    """Return the prefix. Raises ``InvalidRequestError`` unless it is "" or a folder with a trailing slash."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequestError(f"invalid prefix {prefix!r}: a folder to list ends with a slash", path=prefix)
    if prefix:
        validate_key(prefix[:-1] + "/x")
    return prefix


def check_create(key: str, size: int, largest: int) -> None:
    """Refuse a key or a body that ``put_if_absent`` must not send.

    Raises ``InvalidRequestError`` for an empty body, ``RecordListTooLargeError`` over the ``largest``.
    """
    validate_key(key)
    if size == 0:
        raise InvalidRequestError(f"put_if_absent of {key} with an empty body: some storages would overwrite", path=key)
    if size > largest:
        raise RecordListTooLargeError(
            f"put_if_absent of {key} with {size} bytes, over the limit of {largest}: split it", path=key
        )


def check_range(key: str, position: int, length: int) -> None:
    """Raise ``InvalidRequestError`` for a negative position or length, which some clients count from the end."""
    if position < 0 or length < 0:
        raise InvalidRequestError(f"read of {length} bytes at {position} of {key}: neither may be negative", path=key)


def check_size(path: str, size: int, max_bytes: int | None) -> None:
    """Raise ``CorruptMetadataError`` for an object with more than ``max_bytes``, if given."""
    if max_bytes is not None and size > max_bytes:
        raise CorruptMetadataError(
            f"{path} has more than the {max_bytes} bytes that an object of its kind can have", path=path
        )


def not_written(error: Exception) -> Exception:
    """Return the error, marked to say that nothing was or will be written: for failures a store is certain of."""
    if isinstance(error, StorageError):
        error.context["nothing_written"] = True
    return error


def is_hidden(name: str) -> bool:
    """Return whether a file name is that of a temporary file or a lock, which listings leave out."""
    return name.startswith(TEMPORARY_PREFIX) or name == LOCK_NAME


def is_unfinished(name: str) -> bool:
    """Return whether a file name is one that a store gives to a file until it is complete: the prefix and 16 bytes in
    base64url (``ids``). Files of other programs with that prefix are theirs."""
    return _UNFINISHED.fullmatch(name) is not None
