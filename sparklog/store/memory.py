"""Objects in the memory of this process, for tests, examples and simulations.

All stores of one name in a process share their objects, so ``open_store("memory://a")`` behaves like an address.
A pickled store finds its objects again in the process that made them; in another process it finds an empty space.

Rules: every call holds the space's lock, so each is atomic; without it a create could not arbitrate.

Not for: sharing between processes (Spark's workers), or durable data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparklog.clock import Clock, SystemClock
from sparklog.errors import ObjectExistsError, ObjectNotFoundError
from sparklog.limits import MAX_CREATE_BYTES
from sparklog.store.base import (
    BufferFile,
    BytesLike,
    Deleted,
    ObjectInfo,
    Store,
    StreamedFile,
    check_create,
    check_range,
    check_size,
    validate_key,
    validate_prefix,
)
from sparklog.store.process_local import ProcessLock


class _Space:
    """The objects of one name. ``lock`` guards them."""

    def __init__(self) -> None:
        self.lock = ProcessLock()
        self.objects: dict[str, tuple[bytes, int]] = {}


_spaces: dict[str, _Space] = {}


def forget_space(name: str) -> None:
    """Drop the objects of a name. Open stores keep theirs; a store opened later starts empty."""
    _spaces.pop(name, None)


class MemoryStore(Store):
    """A named space of objects. Thread-safe; picklable within its process."""

    parallel_requests = 1
    largest_create_bytes = MAX_CREATE_BYTES
    is_private = True
    has_own_clock = False

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        """``name`` is the part after ``memory://``: the space, and optionally a folder in it."""
        space, _, folder = name.strip("/").partition("/")
        self.root = f"memory://{name.strip('/')}"
        self._clock = clock or SystemClock()
        self.has_own_clock = clock is not None
        self.space = _spaces.setdefault(space, _Space())
        self._folder = f"{folder}/" if folder else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (MemoryStore, (self.root.removeprefix("memory://"), self._clock if self.has_own_clock else None))

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        data = self._object(key)[0]
        check_size(f"{self.root}/{key}", len(data), max_bytes)
        return data

    def get_range(self, key: str, position: int, length: int) -> bytes:
        check_range(key, position, length)
        return self._object(key)[0][position : position + length]

    def put(self, key: str, data: BytesLike) -> None:
        name = self._folder + validate_key(key)
        body = bytes(data)
        with self.space.lock.held:
            self.space.objects[name] = (body, self._clock.now_ms())

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        body = bytes(data)
        check_create(key, len(body), self.largest_create_bytes)
        name = self._folder + key
        with self.space.lock.held:
            if name in self.space.objects:
                raise ObjectExistsError(f"{self.root}/{key} exists", path=f"{self.root}/{key}")
            self.space.objects[name] = (body, self._clock.now_ms())

    def delete(self, key: str) -> None:
        name = self._folder + validate_key(key)
        with self.space.lock.held:
            self.space.objects.pop(name, None)

    def delete_exactly(self, key: str, data: bytes) -> Deleted:
        name = self._folder + validate_key(key)
        with self.space.lock.held:
            if self.space.objects.get(name, (None,))[0] != data:
                return Deleted.BEFORE
            del self.space.objects[name]
            return Deleted.NOW

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        start = self._folder + validate_prefix(prefix)
        skip = len(self._folder)
        with self.space.lock.held:
            infos = [
                ObjectInfo(name[skip:], len(data), modified_ms)
                for name, (data, modified_ms) in self.space.objects.items()
                if name.startswith(start)
            ]
        return iter(sorted(infos))

    def keys_after(self, folder: str, key: str) -> Sequence[str] | None:
        return [info.key for info in self.list(folder) if info.key > key]

    def info(self, key: str) -> ObjectInfo:
        data, modified_ms = self._object(key)
        return ObjectInfo(key, len(data), modified_ms)

    def open_input(self, key: str) -> BufferFile:
        return BufferFile(key, f"{self.root}/{key}", pa.py_buffer(self._object(key)[0]))

    def open_output(self, key: str) -> MemoryOutputFile:
        validate_key(key)
        return MemoryOutputFile(key, self)

    def _object(self, key: str) -> tuple[bytes, int]:
        name = self._folder + validate_key(key)
        with self.space.lock.held:
            stored = self.space.objects.get(name)
        if stored is None:
            raise ObjectNotFoundError(f"{self.root}/{key} does not exist", path=f"{self.root}/{key}")
        return stored


class MemoryOutputFile(StreamedFile):
    """Buffers the bytes and stores them under the key at ``close``. Not thread-safe."""

    def __init__(self, key: str, store: MemoryStore) -> None:
        super().__init__(key, f"{store.root}/{key}")
        self._store = store
        self._data = bytearray()

    def _send(self, view: memoryview) -> None:
        self._data += view

    def _publish(self) -> None:
        self._open = False
        self._store.put(self.key, self._data)

    def _discard(self) -> None:
        self._open = False
