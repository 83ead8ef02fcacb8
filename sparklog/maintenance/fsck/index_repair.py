"""A lost or damaged ``.index`` without a sound copy anywhere: made from its ``.log``, where that can be trusted.

The checksums of a ``.log`` are in its index alone. So an index that is made from the file vouches for nothing: it would
declare whatever is there to be right. It is written only where something else speaks for the bytes:

* what is left of a damaged index: its own checksum is that of the one made from the file, or all checksums of batches
  in it are those of the file as it is; or
* the file on two brokers, written apart, is the same, byte for byte.

In any case the file has to hold the runs that the commit log names. Who produced its batches is taken from the commits
that appended them, or from the damaged index; where both are gone it is nobody.

Rules: never guesses. What nothing vouches for is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sparklog import limits
from sparklog.errors import CorruptionError, CorruptMetadataError, ObjectNotFoundError, SparklogError
from sparklog.format.index import decode_index
from sparklog.format.index_rebuild import (
    NO_PRODUCER,
    BatchProducer,
    ProducerOf,
    producers_in,
    rebuild_index,
    vouches_for,
)
from sparklog.log.commits.commit_files import read_commit
from sparklog.maintenance.fsck.file_checks import LiveRun, Reads, run_fault
from sparklog.protocol.commits import Append
from sparklog.protocol.segments import index_path
from sparklog.store.base import Store


class Rebuilt(NamedTuple):
    """The outcome: the index and why it can be trusted, or an empty one and why not."""

    data: bytes
    why: str


def rebuild_from_log(root: Store, stores: Mapping[int, Store], path: str, runs: Sequence[LiveRun]) -> Rebuilt:
    """An index for ``path``, from the copies of its ``.log`` on these brokers. Raises StorageError."""
    damaged = list(_damaged(stores, path))
    by_commits = _producers_by_commits(root, runs)
    made: dict[int, bytes] = {}
    reasons: list[str] = []
    for broker, store in stores.items():
        try:
            data = _from(store, path, by_commits)
        except ObjectNotFoundError:
            continue  # most brokers were never to have it
        except CorruptionError as error:
            reasons.append(f"broker {broker}: {error}")
            continue
        fault = next((why for run in runs if (why := run_fault(run.segment, decode_index(data, path), {}))), "")
        if fault:
            reasons.append(f"broker {broker}: the .log is not the one the commit log names: {fault}")
            continue
        for left in damaged:
            found = _vouched(left, data, partial(_from, store, path), by_commits)
            if found:
                return Rebuilt(found, "what is left of the damaged index vouches for the .log")
        twin = next((other for other, same in made.items() if same == data), -1)
        if twin >= 0:
            return Rebuilt(data, f"the .log is the same on brokers {twin} and {broker}")
        made[broker] = data
    if made:
        reasons.append(
            "a .log that can be read and fits the commit log, but nothing says that its bytes are those that were "
            "written: without the checksums of its index a changed byte would go unnoticed"
        )
    return Rebuilt(b"", "; ".join(reasons) or "no .log is left")


def _damaged(stores: Mapping[int, Store], path: str) -> Iterator[bytes]:
    for store in stores.values():
        try:
            yield store.get(index_path(path), limits.MAX_INDEX_BYTES)
        except (ObjectNotFoundError, CorruptMetadataError):
            continue


def _from(store: Store, path: str, producer_of: ProducerOf) -> bytes:
    size = store.info(path).size
    with Reads(store, path) as read_at:
        return rebuild_index(read_at, size, f"{store.root}/{path}", producer_of)


def _vouched(left: bytes, data: bytes, make: Callable[[ProducerOf], bytes], by_commits: _Producers) -> bytes:
    """The index to write where a damaged one vouches for the file: the one that was written, if that can be told."""
    told = make(producers_in(left))
    for made in (data, told):
        if made[-4:] == left[-4:] and vouches_for(left, made):
            return made
    made = data if by_commits.is_complete else told
    return made if vouches_for(left, made) else b""


class _Producers:
    """Who produced the batches of live runs, as the commits that appended them say. Callable as ``ProducerOf``."""

    def __init__(self) -> None:
        self.is_complete = True
        self._runs: list[tuple[range, Append]] = []

    def add(self, run: LiveRun, append: Append | None) -> None:
        segment = run.segment
        if append is None:
            self.is_complete = False
        else:
            self._runs.append((range(segment.first_batch, segment.first_batch + segment.batches), append))

    def __call__(self, batch: int, row: int) -> BatchProducer:
        for batches, append in self._runs:
            if batch in batches:
                sequence = append.base_sequence
                if sequence >= 0:
                    sequence = (sequence + row - append.run.first_row) % 2**31
                return BatchProducer(append.producer_id, append.producer_epoch, sequence)
        return NO_PRODUCER


def _producers_by_commits(root: Store, runs: Sequence[LiveRun]) -> _Producers:
    found = _Producers()
    for run in runs:
        found.add(run, _append_of(root, run))
    return found


def _append_of(root: Store, run: LiveRun) -> Append | None:
    """The action that appended a segment, None where its commit is gone or it took the place of others."""
    segment = run.segment
    try:
        commit = read_commit(root, segment.version).commit
    except SparklogError:
        return None
    named = (run.topic, segment.partition, segment.base_offset, segment.path)
    for action in commit.actions:
        if not isinstance(action, Append):
            continue
        if (action.topic, action.partition, action.base_offset, action.run.path) == named:
            return action
    return None
