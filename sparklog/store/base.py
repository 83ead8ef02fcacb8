"""What every storage offers: a handful of calls on keys, with exact outcomes.

Rules:

* A key is a relative path of ``/``-separated parts. An object is visible whole or not at all, never in part.
* ``put_if_absent`` is the arbiter of commits: of any number of callers, in any number of processes, at most one is told
  that it won. Its outcomes are three: it returns (won), it raises ``ObjectExistsError`` (the key is taken, perhaps by
  the caller's own earlier request, whose answer was lost), or it raises another ``StorageError``, of whatever kind:
  the outcome is unknown, read the key back. Clients retry by themselves, so even a refusal (403) may answer the second
  of two requests whose first was stored. Only an error with ``nothing_written=True`` is certain: the store raises it
  where nothing was sent, or where what was sent cannot take effect any more. An error that is no ``StorageError``
  (``InvalidRequestError``) is raised before anything is sent.
* The outcome of a ``put``, a ``delete`` or an ``OutputFile.close`` that raises is unknown as well. On a storage behind
  a network it may take effect later, even after a later request of the same caller.
* "Does not exist" and "exists" are answers about the key. A missing bucket, a web page of a proxy and an answer cut
  short are none: they are other ``StorageError``s. Whatever a client raises comes out as a ``StorageError``.
* When a write returns, it is as durable as the storage can make it.
* Nothing is cached: what another process wrote a moment ago is seen.

Not for: deciding anything. Retrying, reading back and comparing belong to the commit log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from sparklog.errors import InvalidRequestError, RecordListTooLargeError, StorageError
from sparklog.limits import MAX_COMMIT_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

BytesLike: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"
"""Anything with one contiguous run of bytes. It is not copied where the storage's client can do without."""

MAX_KEY_BYTES = 900
"""bytes of a key in UTF-8. S3 admits 1024 with the root's prefix, which has to fit as well."""

MAX_KEY_PART_BYTES = 255
"""bytes between two slashes: what local disks admit, and a topic's folder needs (249 of a name and a number)."""

TEMPORARY_PREFIX = ".tmp-"
"""How the names of unfinished files begin, beside their target. No key has such a name and no listing shows one."""

LOCK_NAME = ".lock"
"""The name of an advisory lock's file. Like a temporary name it is neither a key nor listed."""


class ObjectInfo(NamedTuple):
    """One object of a listing: ``size`` in bytes, ``modified_ms`` by the storage's clock, since the epoch."""

    key: str
    size: int
    modified_ms: int


class InputFile(Protocol):
    """Random access to one object. Thread-safe. Use it where it was opened: it is not picklable."""

    key: str

    @property
    def size(self) -> int:
        """Bytes of the object. A remote storage may be asked at the first use."""

    @property
    def bytes_read(self) -> int:
        """Bytes handed out so far."""

    def read_at(self, position: int, length: int) -> pa.Buffer:
        """The bytes ``[position, position + length)``, or those of them that exist: shorter at the end of the object,
        empty past it."""

    def close(self) -> None:
        """Let go of it. Buffers handed out stay valid. Closing twice is fine."""


class OutputFile(Protocol):
    """A streaming write of one object. Not thread-safe, not picklable.

    Nothing is visible under the key before ``close`` returns. As a context manager it closes at the end of the block
    and aborts if the block raises.
    """

    key: str

    def write(self, data: BytesLike) -> int:
        """Append, and return how many bytes that was: always all of them. The caller may reuse ``data`` afterwards."""

    def tell(self) -> int:
        """Bytes written so far."""

    def close(self) -> None:
        """Publish the object under its key, durably, replacing what is there. Closing twice is fine.

        When it raises, the stream is aborted, and whether the object is under its key is unknown: the answer to a
        request that took effect may be lost."""

    def abort(self) -> None:
        """Drop what was written; nothing appears under the key, unless a ``close`` was sent before. Does nothing after
        ``close``. Never raises for a storage that does not answer: what is left then is invisible (see
        ``remove_unfinished``)."""

    def __enter__(self) -> OutputFile: ...

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None: ...


class Store(Protocol):
    """Objects under one root. Thread-safe, picklable (the copy opens the storage anew), and usable after a fork; where
    a client does not survive that (HDFS), every call in the child raises ``StorageError`` instead of hanging."""

    @property
    def root(self) -> str:
        """Where the keys begin: a path or URL without trailing slash and without credentials."""

    @property
    def parallel_requests(self) -> int:
        """How many requests pay off side by side: 1 where a request costs less than a thread."""

    @property
    def has_own_clock(self) -> bool:
        """Whether times of modification are another clock's than this machine's: a server's."""

    @property
    def is_private(self) -> bool:
        """Whether nobody but this process sees these objects, which end with it."""

    @property
    def endpoint_to_probe(self) -> str:
        """The address of a server that may ignore the condition of ``put_if_absent``, so that it has to be tried once
        (see ``probe.py``); empty where that cannot be. May ask the client for its settings, not the storage."""

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        """The whole object.

        Raises ``ObjectNotFoundError``, and ``CorruptMetadataError`` for one of more than ``max_bytes``.
        """

    def get_range(self, key: str, position: int, length: int) -> bytes:
        """The bytes ``[position, position + length)``, or those of them that exist. Raises ``ObjectNotFoundError``."""

    def put(self, key: str, data: BytesLike) -> None:
        """Write or overwrite in one step: a reader sees the old object or the new one, never a mixture."""

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        """Create the object unless there is one; see this module's rules for the outcomes.

        The body has 1 byte to ``MAX_COMMIT_BYTES``: an S3 server lets an empty one overwrite, and a large one would go
        up in parts, where not every server checks the condition.
        """

    def delete(self, key: str) -> None:
        """Remove the object; one that is missing is fine."""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object below a folder, however deep, in the order of their keys as bytes.

        ``prefix`` is a folder with a trailing slash, or "" for everything. A missing folder is empty.
        """

    def info(self, key: str) -> ObjectInfo:
        """Size and time of one object. Raises ``ObjectNotFoundError``."""

    def open_input(self, key: str) -> InputFile:
        """Open for random access. Raises ``ObjectNotFoundError`` here, or at the first read where opening is free."""

    def open_output(self, key: str) -> OutputFile:
        """Open for a streaming write."""

    def commit_lock(self, while_waiting: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        """A lock that saves racing committers of one machine wasted work. Advisory: it may be no lock at all, may be
        given up on, and a crash of its holder frees it. Correctness rests on ``put_if_absent`` alone.

        ``while_waiting`` may be called now and then for as long as another process holds it."""

    def remove_unfinished(self, before_ms: int) -> int:
        """Remove what crashed writers left invisibly, if last touched before ``before_ms`` (since the epoch).

        Returns how many were removed. Choose a time before which no writer can still be alive.
        """


_BAD_KEY = re.compile(
    r"^/|/$|//"  # empty parts
    r"|(?:^|/)\.{1,2}(?:/|$)"  # "." and ".."
    r"|[\x00-\x1f\x7f\\?:\ud800-\udfff]"  # what a client takes for a slash or a version, what HDFS refuses, no text
    r"|(?:^|/)(?:\.tmp-[^/]*|\.lock)$"  # reserved names
)


def validate_key(key: str) -> str:
    """The key itself, or ``InvalidRequestError``: it must name something below the root and nothing else."""
    if not key or _BAD_KEY.search(key):
        raise InvalidRequestError(
            f"{key!r} is not a storage key: use parts separated by single slashes, none of them '.' or '..', without "
            "control characters, backslashes, question marks and colons, and no file name that starts with "
            f"{TEMPORARY_PREFIX!r} or is {LOCK_NAME!r}",
            path=key,
        )
    if len(key) > MAX_KEY_PART_BYTES // 4:  # short keys, which are nearly all, need no closer look
        _validate_length(key)
    return key


def _validate_length(key: str) -> None:
    encoded = key.encode()
    longest = max(len(part) for part in encoded.split(b"/"))
    if len(encoded) > MAX_KEY_BYTES or longest > MAX_KEY_PART_BYTES:
        raise InvalidRequestError(
            f"storage key of {len(encoded)} bytes whose longest part has {longest}: at most {MAX_KEY_BYTES} and "
            f"{MAX_KEY_PART_BYTES} are allowed: {key[:80]!r}...",
            path=key,
        )


def validate_prefix(prefix: str) -> str:
    """The folder itself ("" or with a trailing slash), or ``InvalidRequestError``."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequestError(f"{prefix!r} is not a folder to list: end it with a slash", path=prefix)
    if prefix:
        validate_key(prefix[:-1] + "/x")
    return prefix


def check_create(key: str, size: int) -> None:
    """Refuse a key or a body that put_if_absent must not carry.

    Raises ``InvalidRequestError`` for an empty body, ``RecordListTooLargeError`` over ``MAX_COMMIT_BYTES``.
    """
    validate_key(key)
    if size == 0:
        raise InvalidRequestError(f"put_if_absent of {key} with an empty body: some storages would overwrite", path=key)
    if size > MAX_COMMIT_BYTES:
        raise RecordListTooLargeError(
            f"put_if_absent of {key} with {size} bytes, over the limit of {MAX_COMMIT_BYTES}: split it", path=key
        )


def check_range(key: str, position: int, length: int) -> None:
    """Refuse a negative position or length, which some clients count from the end: ``InvalidRequestError``."""
    if position < 0 or length < 0:
        raise InvalidRequestError(f"read of {length} bytes at {position} of {key}: neither may be negative", path=key)


def not_written(error: Exception) -> Exception:
    """The same error, which now says that nothing was written and nothing will be: for failures that a store is certain
    of."""
    if isinstance(error, StorageError):
        error.context["nothing_written"] = True
    return error


def is_hidden(name: str) -> bool:
    """Whether a file of this name is a temporary or a lock, which no listing shows."""
    return name.startswith(TEMPORARY_PREFIX) or name == LOCK_NAME
