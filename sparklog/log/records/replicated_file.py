"""Writes one segment file to several brokers at the same time.

Every write goes to all brokers; nothing is read back or encoded twice. A broker that fails is dropped, and the write
continues while one is left: the decision of the append tells which brokers may be missing.

Rules: as for one file: nothing is visible before the end, and a broker counts only once both files are durable there.
Files left on a failed broker are orphans.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from sparklog.errors import StorageError
from sparklog.protocol.segments import index_path
from sparklog.store.base import BytesLike, OutputFile, Store

logger = logging.getLogger(__name__)


class _Copy(NamedTuple):
    broker: int
    store: Store
    output: OutputFile


class ReplicatedFile:
    """The ``.log`` of one key, open on several brokers. Not thread-safe.

    ``failed`` are the dropped brokers. Raises the first broker's StorageError if none can be written.
    """

    def __init__(self, key: str, targets: Sequence[tuple[int, Store]]) -> None:
        self.failed: list[int] = []
        self._key = key
        self._error: StorageError | None = None
        self._copies: list[_Copy] = []
        for broker, store in targets:
            try:
                self._copies.append(_Copy(broker, store, store.open_output(key)))
            except StorageError as error:
                self._drop_broker(broker, error)
            except BaseException:
                self.abort()
                raise
        self._check_any()

    @property
    def brokers(self) -> list[int]:
        """The brokers that have not failed, in the given order."""
        return [copy.broker for copy in self._copies]

    def write(self, data: BytesLike) -> None:
        """Append to every copy. Raises StorageError if none is left."""
        for copy in list(self._copies):
            try:
                copy.output.write(data)
            except StorageError as error:
                self._drop_copy(copy, error)
        self._check_any()

    def finish(self, index: bytes) -> None:
        """Make the ``.log`` and its ``.index`` durable on every broker, all at the same time.

        Raises StorageError if it fails on all; the files are aborted then.
        """
        first, *others = self._copies
        with ThreadPoolExecutor(max(len(others), 1), "sparklog-replica") as threads:
            # Without threads, as when the interpreter exits, one after another.
            started: list[tuple[_Copy, Future[None] | None]] = []
            for copy in others:
                future: Future[None] | None = None
                with suppress(RuntimeError):
                    future = threads.submit(self._publish, copy, index)
                started.append((copy, future))
            outcomes = [(first, None), *started]
            for copy, future in outcomes:
                try:
                    if future is None:
                        self._publish(copy, index)
                    else:
                        future.result()
                except StorageError as error:
                    self._drop_copy(copy, error)
        self._check_any()

    def abort(self) -> None:
        """Delete the unfinished copies, best effort."""
        for copy in self._copies:
            _abort(copy.output)

    def _publish(self, copy: _Copy, index: bytes) -> None:
        output = copy.store.open_output(index_path(self._key))
        try:
            output.write(index)
        except BaseException:
            _abort(output)
            raise
        copy.output.close_with(output)

    def _drop_copy(self, copy: _Copy, error: StorageError) -> None:
        _abort(copy.output)
        self._copies.remove(copy)
        self._drop_broker(copy.broker, error)

    def _drop_broker(self, broker: int, error: StorageError) -> None:
        self.failed.append(broker)
        self._error = self._error or error
        logger.warning("broker %d: write of %s failed, continuing without this replica: %s", broker, self._key, error)

    def _check_any(self) -> None:
        if not self._copies:
            assert self._error is not None
            raise self._error


def _abort(output: OutputFile) -> None:
    """Abort a copy, best effort: a failed location may fail at this too, which leaves an orphan."""
    with suppress(StorageError):
        output.abort()
