"""Repairs data files, as tasks: a damaged or missing file is rewritten from the copies at other brokers.

The index comes first: a sound one of the committed file, from any broker, or one rebuilt from the ``.log`` (see
``index_repair``). It has the checksum of every part of the ``.log``, so the file is assembled part by part from the
copies that have them intact: two copies that are damaged in different places make one sound file.

Rules: everything is verified before it is written, and read back afterwards. A file appears complete under its name or
not at all, and the bytes are the same whichever process writes them, so a repair may be killed at any step and run
again. A file that cannot be repaired completely is repaired as far as possible; it never gets worse. Parts that no copy
has are left unchanged.
Not for: which files to repair (``repair``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from sparklog import limits
from sparklog.errors import ObjectNotFoundError, SparklogError, StorageError
from sparklog.format.checksum import crc32c
from sparklog.format.index import Index, Region, decode_index
from sparklog.format.segment_reader import ReadAt
from sparklog.format.verification import regions
from sparklog.maintenance.fsck.file_checks import UNKNOWN, CopyCheck, FileCopy, LiveRun, Reads, check_copy, offsets_of
from sparklog.maintenance.fsck.index_repair import rebuild_from_log
from sparklog.maintenance.fsck.kinds import Repair
from sparklog.protocol.file_names import index_path
from sparklog.store.base import Store


class RepairTask(NamedTuple):
    """One file to repair: the copies at brokers that should have it (``targets``), the stores of all brokers, and the
    ``root`` with the commits."""

    root: Store
    stores: dict[int, Store]
    path: str
    targets: tuple[FileCopy, ...]
    dry_run: bool = False

    @property
    def runs(self) -> list[LiveRun]:
        """All live runs in the file, in the order of their batches."""
        runs = {run for copy in self.targets for run in copy.runs}
        return sorted(runs, key=lambda run: run.segment.first_batch)


def repair_file(task: RepairTask) -> list[Repair]:
    """Repair the copies of one file. A storage failure is the reason of a refused repair, not an error."""
    try:
        return _repair(task)
    except SparklogError as error:
        return [_refuse(copy, copy.path, str(error)) for copy in task.targets]


def _refuse(copy: FileCopy, key: str, why: str) -> Repair:
    return Repair(what="not repaired", path=key, broker=copy.broker, done=False, why_not=why)


def _repair(task: RepairTask) -> list[Repair]:
    runs = tuple(task.runs)
    results = {broker: check_copy(store, FileCopy(task.path, broker, runs)) for broker, store in task.stores.items()}
    unsound = [copy for copy in task.targets if not results[copy.broker].is_sound]
    if not unsound:
        return []
    data, origin = _find_index(task, results.values())
    if not data:
        return [_refuse(copy, index_path(task.path), f"no index that can be trusted: {origin}") for copy in unsound]
    index = decode_index(data, index_path(task.path))
    repairs: list[Repair] = []
    for copy in unsound:
        repairs += _repair_copy(task, copy, index, data, origin)
    return repairs


def _find_index(task: RepairTask, results: Collection[CopyCheck]) -> tuple[bytes, str]:
    """Return the bytes of the right index and their origin; if there is none, empty bytes and the reason."""
    with_index = [result for result in results if result.has_index]
    indexes = {result.index_crc32c for result in with_index}
    logs = {result.log_crc32c for result in results if result.is_sound and result.log_crc32c != UNKNOWN}
    if len(indexes) > 1 or len(logs) > 1:
        return b"", "the copies on several brokers are each sound, but differ"
    for result in with_index:
        data = task.stores[result.copy.broker].get(index_path(task.path), limits.MAX_INDEX_BYTES)
        if crc32c(data) == result.index_crc32c:
            return data, f"from broker {result.copy.broker}"
    return rebuild_from_log(task.root, task.stores, task.path, task.runs)


# -- one copy


def _repair_copy(task: RepairTask, copy: FileCopy, index: Index, data: bytes, origin: str) -> Iterator[Repair]:
    """Write what a copy lacks: the ``.log`` first, so that an index is never beside a ``.log`` of another file."""
    store = task.stores[copy.broker]
    plan = _find_sources(task, copy, regions(index))
    if any(choice.broker != copy.broker for choice in plan) or _has_wrong_size(store, task.path, index):
        yield _write_log(task, copy, index, plan)
    if _read_index(store, task.path) != data:
        yield _write_index(task, copy, data, origin)


class _Source(NamedTuple):
    broker: int
    read_at: ReadAt


class _Choice(NamedTuple):
    """The broker from which a part of the file is taken; -1 if no copy has it."""

    region: Region
    broker: int


def _find_sources(task: RepairTask, copy: FileCopy, parts: Iterable[Region]) -> list[_Choice]:
    with ExitStack() as stack:
        brokers = _own_first(task, copy)
        sources = [_Source(broker, stack.enter_context(reads)) for broker in brokers if (reads := _open(task, broker))]
        return [_choose_source(part, sources) for part in parts]


def _own_first(task: RepairTask, copy: FileCopy) -> list[int]:
    """Return all brokers, that of the copy first."""
    return sorted(task.stores, key=lambda broker: broker != copy.broker)


def _open(task: RepairTask, broker: int) -> Reads | None:
    try:
        task.stores[broker].info(task.path)
        return Reads(task.stores[broker], task.path)
    except StorageError:
        return None


def _choose_source(region: Region, sources: Sequence[_Source]) -> _Choice:
    for source in sources:
        try:
            data = source.read_at(region.position, region.length)
        except StorageError:
            continue
        if data.size == region.length and crc32c(data) == region.crc32c:
            return _Choice(region, source.broker)
    return _Choice(region, -1)


def _has_wrong_size(store: Store, path: str, index: Index) -> bool:
    """Whether a file that has all its parts is longer than what was written, or missing."""
    try:
        return store.info(path).size != index.summary.log_length
    except ObjectNotFoundError:
        return True


def _read_index(store: Store, path: str) -> bytes:
    try:
        return store.get(index_path(path), limits.MAX_INDEX_BYTES)
    except SparklogError:
        return b""


def _write_log(task: RepairTask, copy: FileCopy, index: Index, plan: Sequence[_Choice]) -> Repair:
    missing = [choice.region for choice in plan if choice.broker < 0]
    sources = sorted({choice.broker for choice in plan} - {copy.broker, -1})
    why_not = f"no copy has {_describe_lost(copy, index, missing)}" if missing else ""
    if not sources and missing:
        return _refuse(copy, copy.path, why_not)
    fallback = _find_fallback(task, copy, missing)
    if fallback is None:
        return _refuse(copy, copy.path, f"{why_not}, and none is long enough")
    what = "truncated to the length that was written"
    if sources:
        what = f"assembled from broker {' and '.join(map(str, sources))}"
    if not task.dry_run:
        _copy_regions(task, copy, plan, fallback)
        _check_written(task, copy, index, missing)
    return Repair(what=what, path=copy.path, broker=copy.broker, done=not task.dry_run, why_not=why_not)


def _describe_lost(copy: FileCopy, index: Index, missing: Sequence[Region]) -> str:
    """Return which parts of a file no copy has, with their offsets if they have live records."""
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


def _find_fallback(task: RepairTask, copy: FileCopy, missing: Sequence[Region]) -> int | None:
    """Return a broker whose damaged bytes fill the parts that no copy has intact, so that the other parts keep their
    position; None if no copy is long enough."""
    if not missing:
        return copy.broker
    end = max(region.position + region.length for region in missing)
    for broker in _own_first(task, copy):
        try:
            if task.stores[broker].info(copy.path).size >= end:
                return broker
        except StorageError:
            continue
    return None


def _copy_regions(task: RepairTask, copy: FileCopy, plan: Sequence[_Choice], fallback: int) -> None:
    """Write the file; parts are verified again as they are copied. Raises StorageError, also if a part that no copy
    had was put back meanwhile: nothing is written then."""
    readers: dict[int, ReadAt] = {}
    with ExitStack() as stack, task.stores[copy.broker].open_output(copy.path) as output:
        for region, broker in plan:
            source = broker if broker >= 0 else fallback
            if source not in readers:
                readers[source] = stack.enter_context(Reads(task.stores[source], copy.path))
            data = readers[source](region.position, region.length)
            if broker >= 0 and crc32c(data) != region.crc32c:
                raise StorageError(f"{copy.path} on broker {broker} changed while it was copied", path=copy.path)
            output.write(data)
        for region, broker in _find_sources(task, copy, (choice.region for choice in plan if choice.broker < 0)):
            if broker >= 0:
                raise StorageError(
                    f"batch {region.batch} of {copy.path} was put back on broker {broker} while it was copied without: "
                    "repair it again",
                    path=copy.path,
                )


def _check_written(task: RepairTask, copy: FileCopy, index: Index, missing: Sequence[Region]) -> None:
    """Read a written file back. Raises StorageError if it differs from what was written."""
    missing_positions = {region.position for region in missing}
    with Reads(task.stores[copy.broker], copy.path) as read_at:
        for region in regions(index):
            if region.position in missing_positions:
                continue
            if crc32c(read_at(region.position, region.length)) != region.crc32c:
                raise _other_bytes_error(copy.path, copy.broker)


def _other_bytes_error(key: str, broker: int) -> StorageError:
    return StorageError(f"{key} on broker {broker}: reading it back returned other bytes than were written", path=key)


def _write_index(task: RepairTask, copy: FileCopy, data: bytes, origin: str) -> Repair:
    key = index_path(copy.path)
    store = task.stores[copy.broker]
    if not task.dry_run:
        with store.open_output(key) as output:
            output.write(data)
        if store.get(key, limits.MAX_INDEX_BYTES) != data:
            raise _other_bytes_error(key, copy.broker)
    return Repair(
        what=f"written {origin}" if origin.startswith("from") else f"rebuilt from the .log: {origin}",
        path=key,
        broker=copy.broker,
        done=not task.dry_run,
    )
