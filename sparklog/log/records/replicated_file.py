"""One segment file on several brokers, written at the same time.

Every byte goes to each broker as it comes; nothing is read back or encoded twice. A broker that fails is left out, and
the file goes on as long as one is left: who may do without which of them is decided when the file is to be appended.

Rules: as for one file: nothing is visible before the end, both files of a broker are durable when it counts as holding
them. What a broker that failed has kept is an orphan.
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
from sparklog.store.local import close_together

logger = logging.getLogger(__name__)


class _Copy(NamedTuple):
    broker: int
    store: Store
    output: OutputFile


class ReplicatedFile:
    """The ``.log`` of one key, open on several brokers. Not thread-safe.

    ``failed`` are the brokers that are left out. Raises StorageError, the first broker's, where none can be written.
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
                self._leave_out(broker, error)
            except BaseException:
                self.abort()
                raise
        self._check_any()

    @property
    def brokers(self) -> list[int]:
        """Those that were written to so far, in the order given."""
        return [copy.broker for copy in self._copies]

    def write(self, data: BytesLike) -> None:
        """Append to every copy. Raises StorageError where none is left."""
        for copy in list(self._copies):
            try:
                copy.output.write(data)
            except StorageError as error:
                self._drop(copy, error)
        self._check_any()

    def finish(self, index: bytes) -> None:
        """Make the ``.log`` and its ``.index`` durable on every broker, all at the same time.

        Raises StorageError where that works on none; what was written is aborted then.
        """
        first, *others = self._copies
        with ThreadPoolExecutor(max(len(others), 1), "sparklog-replica") as threads:
            # Without threads, as when the interpreter ends, one after another.
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
                    self._drop(copy, error)
        self._check_any()

    def abort(self) -> None:
        """Leave nothing under the key, as far as the storages allow."""
        for copy in self._copies:
            _abort(copy.output)

    def _publish(self, copy: _Copy, index: bytes) -> None:
        output = copy.store.open_output(index_path(self._key))
        try:
            output.write(index)
        except BaseException:
            _abort(output)
            raise
        close_together(copy.output, output)

    def _drop(self, copy: _Copy, error: StorageError) -> None:
        _abort(copy.output)
        self._copies.remove(copy)
        self._leave_out(copy.broker, error)

    def _leave_out(self, broker: int, error: StorageError) -> None:
        self.failed.append(broker)
        self._error = self._error or error
        logger.warning("broker %d does not get %s: %s", broker, self._key, error)

    def _check_any(self) -> None:
        if not self._copies:
            assert self._error is not None
            raise self._error


def _abort(output: OutputFile) -> None:
    """A location that fails may fail at this too: what it keeps is an orphan, and no reason to stop the others."""
    with suppress(StorageError):
        output.abort()
