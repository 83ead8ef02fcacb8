"""Rebuilds a lost or damaged ``.index`` without a sound copy from its ``.log``, if that can be trusted.

The checksums of a ``.log`` are only in its index. So an index that is rebuilt from the file proves nothing: it would
declare any bytes to be right. It is written only if other evidence vouches for the bytes:

* the rest of a damaged index: all its checksums of the file match it, or only such checksums are damaged, and the
  index's own one says what they were; or
* the files at two brokers, written independently, are identical, byte for byte.

In any case the file must have the runs that the commit log names. The producers of its batches are taken from the
commits that appended them, or from the damaged index; if both are lost, the batches have no producer.

Rules: never guesses. A file for which no evidence vouches is refused, with the reason.
Not for: files whose index has a sound copy (``file_repair``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sparklog import limits
from sparklog.errors import CorruptionError, CorruptMetadataError, ObjectNotFoundError, SparklogError
from sparklog.format.index import NO_PRODUCER, BatchProducer, ProducerOf, decode_index
from sparklog.format.index_rebuild import (
    producers_in,
    rebuild_index,
    vouches_for,
    vouches_for_history,
    with_lengths_of,
)
from sparklog.log.commits.commit_files import read_commit
from sparklog.maintenance.fsck.file_checks import LiveRun, Reads, run_fault
from sparklog.protocol.commits import Append
from sparklog.protocol.file_names import index_path
from sparklog.store.base import Store


class Rebuilt(NamedTuple):
    """The result: the index and why it can be trusted, or empty bytes and why not."""

    data: bytes
    why: str


def rebuild_from_log(root: Store, stores: Mapping[int, Store], path: str, runs: Sequence[LiveRun]) -> Rebuilt:
    """Rebuild the index of ``path`` from the copies of its ``.log`` at these brokers. Raises StorageError."""
    damaged = list(_read_damaged(stores, path))
    by_commits = _Producers(root, runs)
    rebuilt: dict[int, bytes] = {}
    reasons: list[str] = []
    for broker, store in stores.items():
        try:
            data = _rebuild(store, path, runs, by_commits)
        except ObjectNotFoundError:
            continue  # most brokers are not replicas
        except CorruptionError as error:
            reasons.append(f"broker {broker}: {error}")
            continue
        fault = next((why for run in runs if (why := run_fault(run.segment, decode_index(data, path), {}))), "")
        if fault:
            reasons.append(f"broker {broker}: the .log is not the one that the commit log names: {fault}")
            continue
        for remains in damaged:
            index = _select_vouched(remains, data, partial(_rebuild, store, path, runs), by_commits)
            if index:
                return Rebuilt(index, "the rest of the damaged index vouches for the .log")
        twin = next((other for other, index in rebuilt.items() if index == data), -1)
        if twin >= 0:
            return Rebuilt(data, f"the .log is the same on brokers {twin} and {broker}")
        rebuilt[broker] = data
    if rebuilt:
        reasons.append(
            "the .log can be read and matches the commit log, but nothing says that its bytes are those that were "
            "written: without the checksums of its index a changed byte would go unnoticed"
        )
    return Rebuilt(b"", "; ".join(reasons) or "no .log is left")


def _read_damaged(stores: Mapping[int, Store], path: str) -> Iterator[bytes]:
    for store in stores.values():
        try:
            yield store.get(index_path(path), limits.MAX_INDEX_BYTES)
        except (ObjectNotFoundError, CorruptMetadataError):
            continue


def _rebuild(store: Store, path: str, runs: Sequence[LiveRun], producer_of: ProducerOf) -> bytes:
    size = store.info(path).size
    base_offset = min((run.segment.base_offset for run in runs), default=0)
    has_gaps = any(run.segment.has_gaps for run in runs)
    with Reads(store, path) as read_at:
        return rebuild_index(read_at, size, f"{store.root}/{path}", producer_of, base_offset, has_gaps)


def _select_vouched(
    remains: bytes, data: bytes, rebuild: Callable[[ProducerOf], bytes], by_commits: _Producers
) -> bytes:
    """Return the index to write if the ``remains`` of a damaged one vouch for the file, else empty bytes.

    ``data`` is the one made of the file and the commits alone. The result is the original index, if that can be
    determined: what it states of producers and decoded lengths may only be in the remains.
    """
    is_history = decode_index(data, "a rebuilt index").summary.is_parquet
    if not (vouches_for_history if is_history else vouches_for)(remains, data):
        return b""
    by_remains = rebuild(producers_in(remains))
    for candidate in (data, by_remains, with_lengths_of(remains, data), with_lengths_of(remains, by_remains)):
        if candidate[-4:] == remains[-4:]:
            return candidate
    return data if by_commits.is_complete else by_remains


class _Producers:
    """The producers of the batches of live runs, from the commits that appended them. Callable as ``ProducerOf``."""

    def __init__(self, root: Store, runs: Sequence[LiveRun]) -> None:
        self._runs: list[tuple[range, Append]] = []
        for run in runs:
            segment, append = run.segment, _find_append(root, run)
            if append is not None:
                self._runs.append((range(segment.first_batch, segment.first_batch + segment.batches), append))
        self.is_complete = len(self._runs) == len(runs)

    def __call__(self, batch: int, row: int) -> BatchProducer:
        for batches, append in self._runs:
            if batch in batches:
                sequence = append.base_sequence
                if sequence >= 0:
                    sequence = (sequence + row - append.run.first_row) % 2**31
                return BatchProducer(append.producer_id, append.producer_epoch, sequence)
        return NO_PRODUCER


def _find_append(root: Store, run: LiveRun) -> Append | None:
    """Return the action that appended a segment; None if its commit was removed, or the segment replaced others."""
    segment = run.segment
    try:
        commit = read_commit(root, segment.version).commit
    except SparklogError:
        return None
    named = (run.topic, segment.partition, segment.base_offset, segment.path)
    appends = (action for action in commit.actions if isinstance(action, Append))
    for append in appends:
        if (append.topic, append.partition, append.base_offset, append.run.path) == named:
            return append
    return None
