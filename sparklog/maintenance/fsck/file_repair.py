"""Repairs of data files, as tasks: a damaged or missing file is written anew from what other brokers have of it.

The index comes first: one that is sound and that of the committed file, from any broker, or one made from the ``.log``
(see ``index_repair``). It has the checksum of every part of the ``.log``, so the file is put together part by part,
from whichever copies have them right: two copies that are damaged in different places make a whole one.

Rules: everything is verified before it is written and read back after. A file appears whole under its name or not at
all, and what is written is the same whoever writes it, so a repair may be killed at any step and run again. A file that
cannot be mended fully is mended as far as possible; it never gets worse. What no copy has stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa

from sparklog import limits
from sparklog.errors import ObjectNotFoundError, SparklogError, StorageError
from sparklog.format.checksum import crc32c
from sparklog.format.index import Index, decode_index
from sparklog.format.segment_reader import ReadAt
from sparklog.format.verification import Region, regions
from sparklog.maintenance.fsck.file_checks import UNKNOWN, CopyResult, FileCopy, LiveRun, Reads, check_copy, offsets_of
from sparklog.maintenance.fsck.index_repair import rebuild_from_log
from sparklog.maintenance.fsck.kinds import Repair
from sparklog.protocol.segments import index_path
from sparklog.store.base import Store


class RepairTask(NamedTuple):
    """One file: which brokers have to have it (``targets``) and where else to look; ``root`` has the commits."""

    root: Store
    stores: dict[int, Store]
    path: str
    targets: tuple[FileCopy, ...]
    dry_run: bool = False

    @property
    def runs(self) -> list[LiveRun]:
        """All live runs in the file, in the order of their batches."""
        found = {run for copy in self.targets for run in copy.runs}
        return sorted(found, key=lambda run: run.segment.first_batch)


def repair_file(task: RepairTask) -> list[Repair]:
    """Mend the copies of one file. A storage that fails is why something was not done, not an error."""
    try:
        return _repair(task)
    except SparklogError as error:
        return [_refused(copy, copy.path, str(error)) for copy in task.targets]


def _refused(copy: FileCopy, key: str, why: str) -> Repair:
    return Repair(what="not repaired", path=key, broker=copy.broker, done=False, why_not=why)


def _repair(task: RepairTask) -> list[Repair]:
    runs = tuple(task.runs)
    results = [check_copy(store, FileCopy(task.path, broker, runs)) for broker, store in task.stores.items()]
    unsound = [copy for copy in task.targets if not _result(results, copy.broker).is_sound]
    if not unsound:
        return []
    data, origin = _trusted_index(task, results)
    if not data:
        return [_refused(copy, index_path(task.path), f"no index that can be trusted: {origin}") for copy in unsound]
    index = decode_index(data, index_path(task.path))
    done: list[Repair] = []
    for copy in unsound:
        done += _mend(task, copy, index, data, origin)
    return done


def _result(results: Sequence[CopyResult], broker: int) -> CopyResult:
    return next(result for result in results if result.copy.broker == broker)


def _trusted_index(task: RepairTask, results: Sequence[CopyResult]) -> tuple[bytes, str]:
    """The bytes of the right index and where they are from; none, and why."""
    having = [result for result in results if result.has_index]
    if len({result.index_crc32c for result in having}) > 1 or _sums_differ(results):
        return b"", "the copies on several brokers are each sound and not the same"
    for result in having:
        data = task.stores[result.copy.broker].get(index_path(task.path), limits.MAX_INDEX_BYTES)
        if crc32c(data) == result.index_crc32c:
            return data, f"from broker {result.copy.broker}"
    return rebuild_from_log(task.root, task.stores, task.path, task.runs)


def _sums_differ(results: Sequence[CopyResult]) -> bool:
    sums = {result.log_crc32c for result in results if result.is_sound and result.log_crc32c != UNKNOWN}
    return len(sums) > 1


# -- one copy


def _mend(task: RepairTask, copy: FileCopy, index: Index, data: bytes, origin: str) -> Iterator[Repair]:
    """Write what this copy lacks: the ``.log`` first, so that an index never stands beside a file it does not fit."""
    store = task.stores[copy.broker]
    with ExitStack() as stack:
        others = [broker for broker in task.stores if broker != copy.broker]
        sources = [_Source(broker, stack.enter_context(reads)) for broker in others if (reads := _opened(task, broker))]
        reads = _opened(task, copy.broker)
        own = _Source(copy.broker, stack.enter_context(reads) if reads else _nothing)
        plan = [_chosen(region, own, sources) for region in regions(index)]
    if any(choice.broker != copy.broker for choice in plan) or _goes_on(store, task.path, index):
        yield _write_log(task, copy, index, plan)
    if _index_of(store, task.path) != data:
        yield _write_index(task, copy, data, origin)


class _Source(NamedTuple):
    broker: int
    read_at: ReadAt


class _Choice(NamedTuple):
    """Where a part of the file is taken from; broker -1 where no copy has it."""

    region: Region
    broker: int


def _nothing(position: int, length: int) -> pa.Buffer:
    return pa.py_buffer(b"")


def _opened(task: RepairTask, broker: int) -> Reads | None:
    try:
        task.stores[broker].info(task.path)
        return Reads(task.stores[broker], task.path)
    except StorageError:
        return None


def _chosen(region: Region, own: _Source, others: Sequence[_Source]) -> _Choice:
    for source in (own, *others):
        try:
            data = source.read_at(region.position, region.length)
        except StorageError:
            continue
        if data.size == region.length and crc32c(data) == region.crc32c:
            return _Choice(region, source.broker)
    return _Choice(region, -1)


def _goes_on(store: Store, path: str, index: Index) -> bool:
    """Whether a file that has all its parts is longer than it was written."""
    try:
        return store.info(path).size != index.summary.log_length
    except ObjectNotFoundError:
        return True


def _index_of(store: Store, path: str) -> bytes:
    try:
        return store.get(index_path(path), limits.MAX_INDEX_BYTES)
    except SparklogError:
        return b""


def _write_log(task: RepairTask, copy: FileCopy, index: Index, plan: Sequence[_Choice]) -> Repair:
    missing = [choice.region for choice in plan if choice.broker < 0]
    helpers = sorted({choice.broker for choice in plan} - {copy.broker, -1})
    if not helpers and missing:
        return _refused(copy, copy.path, f"no copy has {_lost(copy, index, missing)}")
    fallback = _fallback(task, copy, missing)
    if missing and fallback is None:
        return _refused(copy, copy.path, f"no copy has {_lost(copy, index, missing)}, and none is of the right length")
    what = f"put together from broker {_numbers(helpers)}" if helpers else "cut to the length that was written"
    if not task.dry_run:
        _copy_regions(task, copy, plan, fallback)
        _check_written(task, copy, index, missing)
    why_not = f"no copy has {_lost(copy, index, missing)}" if missing else ""
    return Repair(what=what, path=copy.path, broker=copy.broker, done=not task.dry_run, why_not=why_not)


def _numbers(brokers: Sequence[int]) -> str:
    return " and ".join(map(str, brokers))


def _lost(copy: FileCopy, index: Index, missing: Sequence[Region]) -> str:
    """What of a file is in no copy, as offsets where they can be told."""
    batches = sorted({region.batch for region in missing})
    parts = []
    for batch in batches:
        where = [
            f"offsets {start} to {end - 1} of {run.topic}-{run.segment.partition}"
            for run in copy.runs
            if run.segment.first_batch <= batch < run.segment.first_batch + run.segment.batches
            for start, end in [offsets_of(run.segment, index, batch, batch)]
        ]
        parts.append(
            f"batch {batch} ({where[0]})" if where else f"batch {batch}" if batch >= 0 else "its schema or footer"
        )
    return ", ".join(parts)


def _fallback(task: RepairTask, copy: FileCopy, missing: Sequence[Region]) -> int | None:
    """A broker whose damaged bytes stand in for parts that no copy has right, so that the rest finds its place."""
    if not missing:
        return copy.broker
    end = max(region.position + region.length for region in missing)
    for broker in (copy.broker, *(other for other in task.stores if other != copy.broker)):
        try:
            if task.stores[broker].info(copy.path).size >= end:
                return broker
        except StorageError:
            continue
    return None


def _copy_regions(task: RepairTask, copy: FileCopy, plan: Sequence[_Choice], fallback: int | None) -> None:
    """Write the file; parts are verified once more as they are copied. Raises StorageError."""
    with ExitStack() as stack:
        readers: dict[int, ReadAt] = {}
        output = task.stores[copy.broker].open_output(copy.path)
        try:
            for region, broker in plan:
                source = broker if broker >= 0 else fallback
                assert source is not None
                if source not in readers:
                    readers[source] = stack.enter_context(Reads(task.stores[source], copy.path))
                data = readers[source](region.position, region.length)
                if broker >= 0 and crc32c(data) != region.crc32c:
                    raise StorageError(
                        f"{copy.path} on broker {broker} has changed while it was copied", path=copy.path
                    )
                output.write(data)
        except BaseException:
            output.abort()
            raise
        output.close()


def _check_written(task: RepairTask, copy: FileCopy, index: Index, missing: Sequence[Region]) -> None:
    """Raises StorageError where what was written is not what is read back."""
    known = {region.position for region in missing}
    with Reads(task.stores[copy.broker], copy.path) as read_at:
        for region in regions(index):
            if region.position not in known and crc32c(read_at(region.position, region.length)) != region.crc32c:
                raise StorageError(
                    f"{copy.path} was written, and reads otherwise on broker {copy.broker}", path=copy.path
                )


def _write_index(task: RepairTask, copy: FileCopy, data: bytes, origin: str) -> Repair:
    key = index_path(copy.path)
    store = task.stores[copy.broker]
    if not task.dry_run:
        with store.open_output(key) as output:
            output.write(data)
        if store.get(key, limits.MAX_INDEX_BYTES) != data:
            raise StorageError(f"{key} was written, and reads otherwise on broker {copy.broker}", path=key)
    return Repair(
        what=f"written {origin}" if origin.startswith("from") else f"made from the .log: {origin}",
        path=key,
        broker=copy.broker,
        done=not task.dry_run,
    )
