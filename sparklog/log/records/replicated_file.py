"""Writes one segment file to one broker, or to several at the same time, and deletes one that no commit names.

Every write goes to all brokers; nothing is read back or encoded twice. A broker that fails is dropped, and the write
continues while enough are left: for an append one, since its decision tells which brokers may be missing.

Rules: as for one file: nothing is visible before the end, and a broker counts only once both files are durable there.
Files left on a failed broker are orphans.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from sparklog.errors import SparklogError, StorageError
from sparklog.format.index import BatchEntry
from sparklog.log.parallel import map_parallel
from sparklog.log.records.read_order import StoreOf
from sparklog.protocol.commits import Run
from sparklog.protocol.file_names import index_path
from sparklog.protocol.partition_fold import holders
from sparklog.store.base import BytesLike, OutputFile, Store

logger = logging.getLogger(__name__)


class _Copy(NamedTuple):
    broker: int
    store: Store
    output: OutputFile


class ReplicatedFile:
    """The ``.log`` of one key, open on its brokers, the leader first. Not thread-safe.

    ``failed`` are the dropped brokers. When fewer than ``least`` are left, the first of their StorageErrors is raised.
    """

    def __init__(self, key: str, targets: Sequence[tuple[int, Store]], least: int = 1) -> None:
        self.failed: list[int] = []
        self._key = key
        self._spare = len(targets) - least
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
        self._check_enough()

    def write(self, data: BytesLike) -> None:
        """Append to every copy. Raises StorageError if too few are left."""
        for copy in list(self._copies):
            try:
                copy.output.write(data)
            except StorageError as error:
                self._drop_copy(copy, error)
        self._check_enough()

    def finish(self, index: bytes) -> None:
        """Make the ``.log`` and its ``.index`` durable on every broker, all at the same time.

        Raises StorageError if too few brokers are left; some may have the files then.
        """

        def publish(copy: _Copy) -> StorageError | None:
            try:
                self._publish(copy, index)
            except StorageError as error:
                return error
            return None

        copies = list(self._copies)
        for copy, error in zip(copies, map_parallel(publish, copies, len(copies)), strict=True):
            if error is not None:
                self._drop_copy(copy, error)
        self._check_enough()

    def run(self, entries: Sequence[BatchEntry], first_batch: int = 0) -> Run:
        """Return the run of these batches, as a commit names it: on the brokers that have not failed."""
        brokers = [copy.broker for copy in self._copies]
        return Run(
            path=self._key,
            broker=brokers[0],
            replicas=brokers if len(brokers) > 1 else [],
            first_batch=first_batch,
            batches=len(entries),
            first_row=entries[0].first_row,
            records=sum(entry.count for entry in entries),
            size_bytes=sum(entry.length for entry in entries),
            min_timestamp_us=min(entry.min_timestamp_us for entry in entries),
            max_timestamp_us=max(entry.max_timestamp_us for entry in entries),
        )

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
        if len(self.failed) <= self._spare:
            logger.warning(
                "broker %d: write of %s failed, continuing without this replica: %s", broker, self._key, error
            )

    def _check_enough(self) -> None:
        if len(self.failed) > self._spare:
            self.abort()
            assert self._error is not None
            raise self._error


def _abort(output: OutputFile) -> None:
    """Abort a copy, best effort: a failed location may fail at this too, which leaves an orphan."""
    with suppress(StorageError):
        output.abort()


def discard(runs: Iterable[Run], store_of: StoreOf) -> None:
    """Delete files that certainly no commit names, or ever will. Best effort: what remains is a harmless orphan."""
    for broker, path in sorted({(broker, run.path) for run in runs for broker in holders(run)}):
        delete_copy(broker, path, store_of)


def delete_copy(broker: int, path: str, store_of: StoreOf) -> None:
    """Delete a ``.log`` and its ``.index`` at a broker. As ``discard``."""
    try:
        store = store_of(broker)
        store.delete(index_path(path))
        store.delete(path)
    except SparklogError as error:
        logger.warning("broker %d: deleting %s failed, leaving it as an orphan: %s", broker, path, error)
