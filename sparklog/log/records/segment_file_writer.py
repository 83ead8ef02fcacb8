"""Writes segment files: data first, the commit later.

A file is immutable and has a unique name; until a commit names it, it is invisible, and a crash leaves it as an orphan.
Both the ``.log`` and its ``.index`` are durable before ``finish`` returns, so that a commit never names a file that a
power failure could lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog.errors import InvalidRecordError, SparklogError
from sparklog.format.segment_writer import SegmentWriter
from sparklog.log.records.replicated_file import ReplicatedFile
from sparklog.protocol.decide.append import PartitionAppend
from sparklog.store.base import Store


class RunTarget(NamedTuple):
    """The partition of a run, and the producer's identity if there is one."""

    topic: str
    topic_id: str
    partition: int
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


class SegmentFileWriter:
    """One ``.log`` with its ``.index``, of one or more runs. Not thread-safe.

    ``start_run`` sets the partition of the following batches; the batches of a run are contiguous. With ``has_offsets``
    the last column of each batch is ``offset``: the records' offsets relative to the run's base offset, ascending
    through the run.

    The file is written to ``store``, the location of ``broker``, and to those of the ``replicas`` in parallel. With
    replicas one successful copy suffices; the committed runs name the brokers that have one.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        *,
        codec: str = "none",
        level: int | None = None,
        has_key: bool = True,
        has_headers: bool = False,
        has_offsets: bool = False,
        broker: int = 0,
        replicas: Sequence[tuple[int, Store]] = (),
    ) -> None:
        self.key = key
        self._output = ReplicatedFile(key, [(broker, store), *replicas])
        self._writer = SegmentWriter(
            self._output, codec=codec, level=level, has_key=has_key, has_headers=has_headers, has_offsets=has_offsets
        )
        self._starts: list[tuple[RunTarget, int]] = []
        self._written = 0
        self._has_offsets = has_offsets
        self._last_offset = -1

    @property
    def bytes_written(self) -> int:
        return self._writer.bytes_written

    @property
    def failed(self) -> Sequence[int]:
        """Brokers without the file, because their location failed."""
        return self._output.failed

    def start_run(self, target: RunTarget) -> None:
        """Start a run: the following batches are for this partition."""
        self._starts.append((target, len(self._writer.entries)))
        self._written = 0
        self._last_offset = -1

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch to the current run; its columns must be the file's. Raises InvalidRecordError."""
        target = self._starts[-1][0]
        if self._has_offsets and batch.num_rows and not batch.column(-1)[0].as_py() > self._last_offset:
            raise InvalidRecordError(f"a batch begins at or before explicit offset {self._last_offset} of its run")
        sequence = target.base_sequence
        if sequence >= 0:
            sequence = (sequence + self._written) % 2**31
        self._writer.write(
            batch,
            producer_id=target.producer_id,
            producer_epoch=target.producer_epoch,
            base_sequence=sequence,
        )
        self._written += batch.num_rows
        if self._has_offsets:
            self._last_offset = batch.column(-1)[-1].as_py()

    def finish(self) -> list[PartitionAppend]:
        """Make both files durable on every broker that has not failed, and return the appends to commit.

        Raises StorageError; nothing is visible then.
        """
        try:
            self._output.finish(self._writer.finish())
        except SparklogError:
            self.abort()
            raise
        ends = [*(first for _, first in self._starts[1:]), len(self._writer.entries)]
        runs = zip(self._starts, ends, strict=False)  # a file without runs has an end, and no start
        return [self._to_append(target, first, end) for (target, first), end in runs if end > first]

    def abort(self) -> None:
        """Delete the unfinished file, best effort; a remaining one is an orphan."""
        self._output.abort()

    def _to_append(self, target: RunTarget, first: int, end: int) -> PartitionAppend:
        entries = self._writer.entries[first:end]
        return PartitionAppend(
            topic=target.topic,
            topic_id=target.topic_id,
            partition=target.partition,
            run=self._output.run(entries, first),
            null_keys=any(entry.null_keys for entry in entries),
            producer_id=target.producer_id,
            producer_epoch=target.producer_epoch,
            base_sequence=target.base_sequence,
        )
