"""The base of stores that decorate another one: every call is passed on, unless a class overrides it.

Not for: what is not the same for a decorated store (``guarded_by``, ``commit_lock``, and other defaults of ``Store``).
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.store.base import BytesLike, Deleted, InputFile, ObjectInfo, OutputFile, Store


class WrappedStore(Store):
    """Passes calls on to a store, and says of itself what that one says."""

    def __init__(self, store: Store) -> None:
        self.root = store.root
        self.largest_create_bytes = store.largest_create_bytes
        self._store = store

    @property
    def is_local(self) -> bool:
        return self._store.is_local

    @property
    def parallel_requests(self) -> int:
        return self._store.parallel_requests

    @property
    def has_own_clock(self) -> bool:
        return self._store.has_own_clock

    @property
    def is_private(self) -> bool:
        return self._store.is_private

    @property
    def endpoint_to_probe(self) -> str:
        return self._store.endpoint_to_probe

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        return self._store.get(key, max_bytes)

    def get_range(self, key: str, position: int, length: int) -> bytes:
        return self._store.get_range(key, position, length)

    def put(self, key: str, data: BytesLike) -> None:
        self._store.put(key, data)

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        self._store.put_if_absent(key, data)

    def sync(self, folder: str) -> None:
        self._store.sync(folder)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def delete_exactly(self, key: str, data: bytes) -> Deleted:
        return self._store.delete_exactly(key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._store.list(prefix)

    def info(self, key: str) -> ObjectInfo:
        return self._store.info(key)

    def open_input(self, key: str) -> InputFile:
        return self._store.open_input(key)

    def open_output(self, key: str) -> OutputFile:
        return self._store.open_output(key)
