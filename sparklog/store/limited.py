"""A store whose calls end: one that has no answer in time raises StorageUnavailableError.

A frozen file system, a hung mount or a suspended device keeps the thread of a call for ever, often that of a write
alone: reads are answered from memory. So each call has a thread of its own, which does not keep the process alive.

Rules: a call that was given up may take effect whenever the storage answers again, once. Until it has ended, all calls
of this process to the same address raise: so what it does comes before what is done there afterwards, and a storage
that does not answer takes a thread for each call that was under way, however often it is asked.
Not for: data that the caller changes after a call has failed, unless nobody reads what is stored then, as a copy of a
segment file that is not counted (``log.records.replicated_file``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

import pyarrow as pa

from sparklog.errors import StorageUnavailableError
from sparklog.store.base import BytesLike, Deleted, InputFile, ObjectInfo, OutputFile, Store
from sparklog.store.wrapped import WrappedStore
from sparklog.threads import call_in_thread

Result = TypeVar("Result")

RETRIES_SECONDS = 60.0
"""seconds that a call of a storage behind a network has at least: its client sends a request again, and gives up by
itself after 6 to 10 s if nothing listens, after minutes if nothing comes back."""

LISTED_TOGETHER = 1000
"""Objects of a listing that are one call."""

_PARTS = 10
"""parts in which an answer is waited for: a process that is suspended takes one of them for the storage's silence."""

_given_up: set[tuple[str, Future[Any]]] = set()
"""Calls that have not ended, by the address of their store."""


class LimitedCall(Generic[Result]):
    """A call of the store at this address, in a thread of its own. Not made if an earlier one has no answer yet."""

    def __init__(self, root: str, call: Callable[[], Result]) -> None:
        self._root = root
        self._call = call
        self._is_refused = any(address == root for address, _ in tuple(_given_up))
        self._answer: Future[Result] | None = None
        if not self._is_refused:
            with suppress(RuntimeError):  # no thread can be started now: it is made by ``result``
                self._answer = call_in_thread(call)

    def result(self, seconds: float) -> Result:
        """Wait for the answer. Raises StorageUnavailableError without one in this time, or the error of the call."""
        if self._is_refused:
            raise self._unanswered("an earlier call has no answer yet")
        if self._answer is None:
            return self._call()
        try:
            if any(wait([self._answer], seconds / _PARTS).done for _ in range(_PARTS)):
                return self._answer.result()
        finally:
            self.give_up()  # it hangs, or this thread is interrupted
        raise self._unanswered(f"no answer within {seconds:g} s")

    @property
    def is_under_way(self) -> bool:
        return self._answer is not None and not self._answer.done()

    def give_up(self) -> None:
        """Wait no longer: until the call has ended, all others to its address raise. Without effect once it has."""
        if self._answer is not None and not self._answer.done():
            asked = (self._root, self._answer)
            _given_up.add(asked)
            self._answer.add_done_callback(lambda _: _given_up.discard(asked))

    def _unanswered(self, why: str) -> StorageUnavailableError:
        return StorageUnavailableError(f"{self._root} hangs: {why}", path=self._root)


class LimitedStore(WrappedStore):
    """Wraps a store; each call has this many ``seconds``. Thread-safe. Not picklable."""

    def __init__(self, store: Store, seconds: float) -> None:
        super().__init__(store)
        self._seconds = seconds if store.is_local else max(seconds, RETRIES_SECONDS)

    def _ask(self, call: Callable[..., Result], *args: object) -> Result:
        return LimitedCall(self.root, partial(call, *args)).result(self._seconds)

    @property
    def parallel_requests(self) -> int:
        return self._ask(lambda: self._store.parallel_requests)

    @property
    def has_own_clock(self) -> bool:
        return self._ask(lambda: self._store.has_own_clock)

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        return self._ask(self._store.get, key, max_bytes)

    def get_range(self, key: str, position: int, length: int) -> bytes:
        return self._ask(self._store.get_range, key, position, length)

    def put(self, key: str, data: BytesLike) -> None:
        self._ask(self._store.put, key, data)

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        self._ask(self._store.put_if_absent, key, data)

    def sync(self, folder: str) -> None:
        self._ask(self._store.sync, folder)

    def delete(self, key: str) -> None:
        self._ask(self._store.delete, key)

    def delete_exactly(self, key: str, data: bytes) -> Deleted:
        return self._ask(self._store.delete_exactly, key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        found = self._ask(self._store.list, prefix)
        while some := self._ask(lambda: tuple(islice(found, LISTED_TOGETHER))):
            yield from some

    def keys_after(self, folder: str, key: str) -> Sequence[str] | None:
        return self._ask(self._store.keys_after, folder, key)

    def list_others(self, folder: str) -> Sequence[tuple[str, str]]:
        return self._ask(lambda: tuple(self._store.list_others(folder)))

    def info(self, key: str) -> ObjectInfo:
        return self._ask(self._store.info, key)

    def open_input(self, key: str) -> InputFile:
        return _LimitedInput(self._ask(self._store.open_input, key), self._ask)

    def open_output(self, key: str) -> OutputFile:
        return _LimitedOutput(self._ask(self._store.open_output, key), self._ask)

    def remove_unfinished(self, before_ms: int) -> int:
        return self._ask(self._store.remove_unfinished, before_ms)


class _LimitedInput:
    """An open file whose reads end. Thread-safe."""

    def __init__(self, file: InputFile, ask: Callable[..., Any]) -> None:
        self.key = file.key
        self._file = file
        self._ask = ask

    @property
    def size(self) -> int:
        return int(self._ask(lambda: self._file.size))

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    def read_at(self, position: int, length: int) -> pa.Buffer:
        return self._ask(self._file.read_at, position, length)

    def close(self) -> None:
        self._file.close()


class _LimitedOutput(OutputFile):
    """A streaming write whose calls end. Not thread-safe."""

    def __init__(self, file: OutputFile, ask: Callable[..., Any]) -> None:
        self.key = file.key
        self._file = file
        self._ask = ask

    def write(self, data: BytesLike) -> int:
        return int(self._ask(self._file.write, data))

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._ask(self._file.close)

    def abort(self) -> None:
        with suppress(StorageUnavailableError):  # what remains is invisible
            self._ask(self._file.abort)
