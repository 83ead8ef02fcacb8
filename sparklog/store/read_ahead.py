"""Random access to an object of a remote storage, with read-ahead for sequential readers.

Rules:

* A read that does not continue the previous one fetches exactly its bytes: looking up one batch costs one small
  request.
* A sequence of reads (``START_AFTER_BYTES`` or ``START_AFTER_READS``) starts windows of ``WINDOW_BYTES`` in the
  background, so that a scan finds its data fetched already and a segment costs one stream of requests. A small gap,
  such as a column that a projection skips, does not end the sequence.
* A window that failed before it was needed is fetched again.
* A window shorter than requested is the end of the object; the size need not be requested first.

Not for: caching. Windows behind the reader are dropped.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

import pyarrow as pa

from sparklog.errors import StorageError
from sparklog.store.base import check_range
from sparklog.store.process_local import ProcessLock
from sparklog.store.threads import submit
from sparklog.threads import Threads

WINDOW_BYTES = 4 * 1024 * 1024
"""bytes of one request in a scan: about 50 ms of one connection's bandwidth, against a latency of about 30 ms."""

WINDOWS_AHEAD = 3
"""requests in flight ahead of a scan."""

START_AFTER_BYTES = 1024 * 1024
START_AFTER_READS = 4
"""Length of a sequence, in bytes or in reads, that starts the read-ahead. A lookup of one batch is one to three
neighbouring reads; a scan exceeds this with its first batch of the usual size."""

MAX_GAP_BYTES = 1024 * 1024
"""bytes that a sequential reader may skip."""


class _Window(NamedTuple):
    start: int
    length: int
    data: Future[bytes]

    @property
    def end(self) -> int:
        return self.start + self.length


class ReadAheadFile:
    """One object, read by ranges. Thread-safe, though only one thread at a time benefits from the read-ahead."""

    def __init__(self, key: str, fetch: Callable[[int, int], bytes], measure: Callable[[], int]) -> None:
        """``fetch(position, length)`` returns those bytes, fewer at the end of the object. ``measure()`` returns the
        object's size in bytes. Both are called from several threads concurrently, and raise sparklog's errors."""
        self.key = key
        self.bytes_read = 0
        self._fetch = fetch
        self._measure = measure
        self._lock = ProcessLock()
        self._size: int | None = None
        self._end_of_last = -1
        self._sequential_bytes = 0
        self._sequential_reads = 0
        self._windows: deque[_Window] = deque()
        self._threads: Threads | None = None
        self._pid = os.getpid()
        self._closed = False

    @property
    def size(self) -> int:
        if self._size is None:
            self._size = self._measure()
        return self._size

    def read_at(self, position: int, length: int) -> pa.Buffer:
        check_range(self.key, position, length)
        with self._lock.held:
            windows = self._plan(position, length)
        data = _from_windows(windows, position, length) if windows else self._fetch_exactly(position, length)
        self.bytes_read += data.size
        return data

    def close(self) -> None:
        with self._lock.held:
            self._closed = True
            self._drop_windows()

    def _plan(self, position: int, length: int) -> list[_Window]:
        """Return the windows that hold this range, after starting more; none for a read that is not part of a scan."""
        if self._closed:
            raise StorageError(f"{self.key} was closed before this read", path=self.key)
        if self._pid != os.getpid():  # threads do not survive a fork
            self._threads, self._pid = None, os.getpid()
            self._windows.clear()
        scanning = self._record_read(position, length)
        if length == 0 or (self._size is not None and position >= self._size):
            return []
        if not scanning:
            return self._find_windows(position, length)
        while self._windows and (self._windows[0].end <= position or self._has_failed(self._windows[0])):
            self._windows.popleft()
        if self._windows and self._windows[0].start > position:
            self._windows.clear()
        self._extend(position, length)
        return self._find_windows(position, length)

    def _record_read(self, position: int, length: int) -> bool:
        """Record a read; return whether it continues a scan."""
        if self._end_of_last < 0 or not 0 <= position - self._end_of_last <= MAX_GAP_BYTES:
            self._sequential_bytes = self._sequential_reads = 0
        scanning = self._sequential_bytes >= START_AFTER_BYTES or self._sequential_reads >= START_AFTER_READS
        self._end_of_last = position + length
        self._sequential_bytes += length
        self._sequential_reads += 1
        return scanning

    def _find_windows(self, position: int, length: int) -> list[_Window]:
        windows = [w for w in self._windows if w.start < position + length and w.end > position]
        if not windows or windows[0].start > position:
            return []
        covered = windows[-1].end >= position + length or (self._size is not None and windows[-1].end >= self._size)
        return windows if covered and not any(map(self._has_failed, windows)) else []

    def _extend(self, position: int, length: int) -> None:
        if self._threads is None:
            self._threads = Threads(WINDOWS_AHEAD, thread_name_prefix="sparklog-read-ahead")
        start = self._windows[-1].end if self._windows else position
        while start < position + length or len(self._windows) < WINDOWS_AHEAD:
            if self._size is not None and start >= self._size:
                return
            size = max(WINDOW_BYTES, min(length, position + length - start))
            self._windows.append(_Window(start, size, submit(self._threads, self._fetch_window, start, size)))
            start += size

    def _fetch_window(self, start: int, length: int) -> bytes:
        data = self._fetch(start, length)
        if 0 < len(data) < length:
            self._size = start + len(data)
        return data

    def _fetch_exactly(self, position: int, length: int) -> pa.Buffer:
        return pa.py_buffer(self._fetch(position, length) if length else b"")

    def _has_failed(self, window: _Window) -> bool:
        return window.data.done() and (window.data.cancelled() or window.data.exception() is not None)

    def _drop_windows(self) -> None:
        self._windows.clear()
        if self._threads is not None and self._pid == os.getpid():
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._threads = None


def _from_windows(windows: list[_Window], position: int, length: int) -> pa.Buffer:
    """Return the range from these windows: a slice of a single one, or a copy from several."""
    first = windows[0]
    data = first.data.result()
    if len(windows) == 1:
        start = min(position - first.start, len(data))
        return pa.py_buffer(data).slice(start, min(length, len(data) - start))
    parts = [memoryview(data)[position - first.start :]]
    parts += [memoryview(window.data.result())[: position + length - window.start] for window in windows[1:]]
    return pa.py_buffer(b"".join(parts))
