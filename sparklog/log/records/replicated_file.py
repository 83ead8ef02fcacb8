"""Writes one segment file to one broker, or to several at the same time, and deletes one that no commit names.

Every write goes to all brokers; nothing is read back or encoded twice. A broker that fails, or whose disk does not
answer for as long as a follower may lag in Kafka, is dropped, and the write continues while enough are left: for an
append one, since its decision tells which brokers may be missing.

Rules: as for one file: nothing is visible before the end, and a broker counts only once both files are durable there.
Files left on a failed broker are orphans. Each copy of several has a thread of its own for each call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa

from sparklog.errors import SparklogError, StorageError
from sparklog.format.index import BatchEntry
from sparklog.log.records.read_order import StoreOf
from sparklog.protocol.commits import Run
from sparklog.protocol.file_names import index_path
from sparklog.protocol.partition_fold import holders
from sparklog.store.base import BytesLike, OutputFile, Store
from sparklog.store.limited import LimitedCall

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0
"""seconds after which a local disk or mount that does not answer is dropped: Kafka's ``replica.lag.time.max.ms``."""

LEAST_BYTES_PER_SECOND = 1 << 20
"""A disk that makes a file durable more slowly than this is dropped, too."""

GATHERED_BYTES = 1 << 20
"""bytes of a file that are written together to several brokers."""


class ReplicatedFile:
    """The ``.log`` of one key, open on its brokers, the leader first. Not thread-safe.

    ``failed`` are the dropped brokers. When fewer than ``least`` are left, the first of their StorageErrors is raised.
    """

    def __init__(self, key: str, targets: Sequence[tuple[int, Store]], least: int = 1) -> None:
        self.failed: list[int] = []
        self._key = key
        self._spare = len(targets) - least
        self._error: StorageError | None = None
        self._copies = [_Copy(broker, store, key) for broker, store in targets]
        self._gathered: list[BytesLike] = []
        self._gathered_bytes = 0
        self._most_gathered = GATHERED_BYTES if len(targets) > 1 else 0
        if not self._most_gathered:
            self._each_copy(partial(_Copy.write, parts=()))  # opens it

    def write(self, data: BytesLike) -> None:
        """Append to every copy. Raises StorageError if too few are left."""
        if not self._most_gathered:
            self._each_copy(partial(_Copy.write, parts=(data,)))
            return
        self._gathered.append(data if isinstance(data, (bytes, pa.Buffer)) else bytes(data))
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= self._most_gathered:
            self._each_copy(partial(_Copy.write, parts=self._take_gathered()))

    def finish(self, index: bytes) -> None:
        """Make the ``.log`` and its ``.index`` durable on every broker, all at the same time.

        Raises StorageError if too few brokers are left; some may have the files then.
        """
        self._each_copy(partial(_Copy.publish, parts=self._take_gathered(), index=index))

    def _take_gathered(self) -> Sequence[BytesLike]:
        gathered, self._gathered, self._gathered_bytes = self._gathered, [], 0
        return gathered

    def _each_copy(self, call: Callable[[_Copy], object]) -> None:
        """Make a call for every copy, all at the same time, and drop those that fail.

        Raises StorageError if too few are left; another error once all calls have ended; an interrupt at once."""
        if not self._most_gathered:
            try:
                call(self._copies[0])
            except StorageError as error:
                self._drop_copy(self._copies[0], error)
            return self._check_enough()
        calls = [(copy, LimitedCall(copy.store.root, partial(call, copy))) for copy in self._copies]
        interrupt: BaseException | None = None
        for copy, made in calls:
            try:
                made.result(copy.seconds)
            except StorageError as error:
                self._drop_copy(copy, error)
            except BaseException as error:
                interrupt = interrupt or error
                if made.is_under_way:  # this thread was interrupted
                    for _, under_way in calls:
                        under_way.give_up()
                    break
        if interrupt is not None:
            raise interrupt
        return self._check_enough()

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
            self._abort_copy(copy)

    def _abort_copy(self, copy: _Copy) -> None:
        with suppress(StorageError):  # what remains is invisible
            if self._most_gathered:
                LimitedCall(copy.store.root, copy.abort).result(copy.seconds)
            else:
                copy.abort()

    def _drop_copy(self, copy: _Copy, error: StorageError) -> None:
        self._abort_copy(copy)
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


class _Copy:
    """The file at one broker. Its calls are made one after another, whichever thread makes them."""

    def __init__(self, broker: int, store: Store, key: str) -> None:
        self.broker = broker
        self.store = store
        self._key = key
        self._output: OutputFile | None = None
        self._bytes = 0

    @property
    def seconds(self) -> float:
        """How long a call may take: without a limit behind a network, where the storage's client has its own."""
        return ANSWER_SECONDS + self._bytes / LEAST_BYTES_PER_SECOND if self.store.is_local else threading.TIMEOUT_MAX

    def write(self, parts: Sequence[BytesLike]) -> OutputFile:
        """Append these parts; return the file, which the first call opens."""
        if self._output is None:
            self._output = self.store.open_output(self._key)
        for part in parts:
            self._bytes += len(part)
            self._output.write(part)
        return self._output

    def publish(self, parts: Sequence[BytesLike], index: bytes) -> None:
        """Append the last parts, and make the file and its index durable."""
        log = self.write(parts)
        output = self.store.open_output(index_path(self._key))
        try:
            output.write(index)
        except BaseException:
            with suppress(StorageError):
                output.abort()
            raise
        log.close_with(output)

    def abort(self) -> None:
        """Abort the copy, best effort: a failed location may fail at this too, which leaves an orphan."""
        if self._output is not None:
            with suppress(StorageError):
                self._output.abort()


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
