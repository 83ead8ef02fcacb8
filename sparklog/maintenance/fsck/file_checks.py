"""Checks data files, as tasks: each ``.log`` and ``.index`` is read once, and compared with the commit log.

A task has some files, each at one broker, with the stores to read them from; it is picklable and needs no cluster. The
whole file is checked, also parts without live segments, since replicas have to be equal byte for byte.

    the .index     its own checksum, and that it has the runs of batches that the commit log names: batches, rows,
                   bytes, timestamps within the segment's
    the .log       every byte by the checksums in the index (not with ``fast``); its length, schema and footer; the
                   record count in every message; explicit offsets that increase

Rules: damage is a finding, not an error; so is a storage failure, for the files that it concerns.
Not for: what other replicas have, and what can be repaired from where (``replica_checks``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from sparklog import limits
from sparklog.errors import CorruptionError, ObjectNotFoundError, SparklogError, StorageError
from sparklog.format.checksum import crc32c
from sparklog.format.index import Index, decode_index
from sparklog.format.open_segment import open_segment
from sparklog.format.segment_reader import ReadAt
from sparklog.format.verification import Damage, Verification, first_cut, verify
from sparklog.log.records.index_checks import find_run_fault
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.kinds import ERROR, WARNING, Finding
from sparklog.protocol.file_names import index_path
from sparklog.protocol.segments import Segment
from sparklog.store.base import Store

UNKNOWN = -1
"""In place of a checksum that could not be computed."""

_NOTHING = pa.py_buffer(b"")


class LiveRun(NamedTuple):
    """A live segment of a topic: a run of batches in a file."""

    topic: str
    segment: Segment


class FileCopy(NamedTuple):
    """One file at one broker, with its live runs in the order of their batches."""

    path: str
    broker: int
    runs: tuple[LiveRun, ...]

    @property
    def size_bytes(self) -> int:
        """The approximate size to read: the bytes of the runs, without the index and the footer."""
        return sum(run.segment.size_bytes for run in self.runs)


class FileTask(NamedTuple):
    """Files to check, and the stores of their brokers. ``fast``: skip the checksums of batches."""

    stores: dict[int, Store]
    copies: tuple[FileCopy, ...]
    fast: bool = False


class CopyCheck(NamedTuple):
    """The result of checking one file at one broker. The checksums are those of all bytes, ``UNKNOWN`` if not read.

    ``has_index``: the ``.index`` is sound and belongs to the committed file. Only then ``bad_batches`` is set: the
    damaged batches of the ``.log`` (-1: the parts around the batches), or None if the whole ``.log`` is missing.
    """

    copy: FileCopy
    findings: list[Finding]
    log_crc32c: int = UNKNOWN
    index_crc32c: int = UNKNOWN
    batches: int = 0
    bytes_read: int = 0
    has_index: bool = False
    bad_batches: tuple[int, ...] | None = None

    @property
    def is_sound(self) -> bool:
        return not self.findings

    def has(self, batch: int) -> bool:
        """Whether a batch can be copied from here."""
        return self.has_index and self.bad_batches is not None and batch not in self.bad_batches


def check_files(task: FileTask) -> list[CopyCheck]:
    """Check the files of a task, one after the other."""
    return [check_copy(task.stores[copy.broker], copy, task.fast) for copy in task.copies]


def check_copy(store: Store, copy: FileCopy, fast: bool = False) -> CopyCheck:
    """Check one file at one broker. Faults are findings of the result; never raises for them."""
    key = index_path(copy.path)
    try:
        data = store.get(key, limits.MAX_INDEX_BYTES)
        index = decode_index(data, f"{store.root}/{key}")
        index.check()
    except ObjectNotFoundError:
        return CopyCheck(copy, [*_missing_log(store, copy), *_missing(store, copy, kinds.MISSING_INDEX, key)])
    except CorruptionError as error:
        damaged = _of_all_runs(copy, kinds.DAMAGED_INDEX, key, error.message)
        return CopyCheck(copy, [*_missing_log(store, copy), *damaged])
    except SparklogError as error:  # including a format that is newer than this version of sparklog
        return CopyCheck(copy, [*_of_all_runs(copy, kinds.UNREADABLE, key, str(error))])
    return _check_log(store, copy, index, data, fast)


def _check_log(store: Store, copy: FileCopy, index: Index, data: bytes, fast: bool) -> CopyCheck:
    try:
        verification = _verify(store, copy.path, index, fast)
    except ObjectNotFoundError:
        missing = list(_missing(store, copy, kinds.MISSING_LOG, copy.path))
        fits = not any(run_fault(run.segment, index, {}) for run in copy.runs)
        return CopyCheck(copy, missing, index_crc32c=crc32c(data), bytes_read=len(data), has_index=fits)
    except StorageError as error:
        return CopyCheck(copy, list(_of_all_runs(copy, kinds.UNREADABLE, copy.path, str(error))))
    faults = {run: fault for run in copy.runs if (fault := run_fault(run.segment, index, verification.offsets))}
    return CopyCheck(
        copy,
        findings=list(_wrong_runs(copy, index, verification, faults) if faults else _damage(copy, index, verification)),
        log_crc32c=UNKNOWN if fast else verification.crc32c,
        index_crc32c=crc32c(data),
        batches=0 if fast else len(index),
        bytes_read=len(data) + verification.bytes_read,
        has_index=not faults,
        bad_batches=_bad_batches(index, verification),
    )


def _bad_batches(index: Index, verification: Verification) -> tuple[int, ...]:
    bad = [damage.batch for damage in verification.damage]
    if verification.cut_short:
        bad += [*range(bad[-1], len(index)), -1] if bad[-1] >= 0 else []
    return tuple(sorted(set(bad)))


def _verify(store: Store, key: str, index: Index, fast: bool) -> Verification:
    path = f"{store.root}/{key}"
    with Reads(store, key) as read_at:
        if not fast:
            return verify(read_at, index, path)
        summary = index.summary
        size = summary.header_length + summary.log_length - summary.footer_position
        try:
            open_segment(read_at, index, path).check_file()
        except CorruptionError as error:
            written = store.info(key).size
            damage = Damage(first_cut(index, written), written, error.message)
            return Verification([damage], 0, size, written < summary.log_length, {})
        return Verification([], 0, size, False, {})


class Reads:
    """Reads one file. On a local disk by system calls, since a bad sector under a memory map would kill the process;
    elsewhere through an open file, which reads ahead. Not thread-safe.

    The bytes read last are kept, so a small file is read by one call, however often it is accessed.
    """

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key
        self._file = None if store.is_local else store.open_input(key)
        self._start = 0
        self._data = _NOTHING
        self._end: int | None = None

    def __enter__(self) -> ReadAt:
        return self._read if self._file is None else self._file.read_at

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self, position: int, length: int) -> pa.Buffer:
        if self._end is not None:
            length = min(length, self._end - position)
        if length <= 0:
            return _NOTHING
        if position < self._start or position + length > self._start + self._data.size:
            self._fetch(position, length)
        at = position - self._start
        return self._data.slice(at, min(length, self._data.size - at))

    def _fetch(self, position: int, length: int) -> None:
        """Read a range, and one byte more, to find out whether the file ends here."""
        self._start, self._data = position, _NOTHING  # releases the previous bytes, so that their memory is reused
        self._data = pa.py_buffer(self._store.get_range(self._key, position, length + 1))
        if self._data.size <= length:
            self._end = position + self._data.size


# -- an index against the commit log


def run_fault(segment: Segment, index: Index, offsets: dict[int, tuple[int, int]]) -> str:
    """Return how an index differs from the commit log in a segment; empty if they agree."""
    fault = find_run_fault(segment, index)
    if fault:
        return fault
    entries = [index.entry(segment.first_batch + number) for number in range(segment.batches)]
    size = sum(entry.length for entry in entries)
    if size != segment.size_bytes:
        return f"the commit names {segment.size_bytes} bytes, but the index has {size}"
    if segment.append_time_ms < 0:
        earliest = min(entry.min_timestamp_us for entry in entries)
        latest = max(entry.max_timestamp_us for entry in entries)
        if (earliest, latest) != (segment.min_timestamp_us, segment.max_timestamp_us):
            return (
                f"the commit names timestamps {segment.min_timestamp_us} to {segment.max_timestamp_us}, but the index "
                f"has {earliest} to {latest}"
            )
    return _offsets_fault(segment, index, offsets)


def _offsets_fault(segment: Segment, index: Index, offsets: dict[int, tuple[int, int]]) -> str:
    """Return what is wrong with stored offsets: they increase up to the run's end, and begin where the index says."""
    base = segment.base_offset if index.summary.is_parquet else 0
    before = -1
    for number in range(segment.first_batch, segment.first_batch + segment.batches):
        if number not in offsets:
            continue
        first, last = (offset - base for offset in offsets[number])
        indexed = offsets_of(segment, index, number, number)[0] - segment.base_offset
        if first <= before or last >= segment.end_offset - segment.base_offset or first != indexed:
            return (
                f"the commit names offsets {segment.base_offset} to {segment.end_offset - 1}, but batch {number} has "
                f"{segment.base_offset + first} to {segment.base_offset + last} after {segment.base_offset + before}, "
                f"and begins at {segment.base_offset + indexed} in the index"
            )
        before = last
    return ""


def offsets_of(segment: Segment, index: Index, first: int, last: int) -> tuple[int, int]:
    """Return the offsets ``[start, end)`` of the batches ``first`` to ``last`` of a segment's run."""
    entry, end = index.entry(first), segment.end_offset
    if index.summary.has_offsets:
        start = segment.base_offset + entry.first_offset
        if last + 1 < segment.first_batch + segment.batches:
            end = segment.base_offset + index.entry(last + 1).first_offset
    else:
        start = segment.base_offset + entry.first_row - segment.first_row
        end = segment.base_offset + index.entry(last).end_row - segment.first_row
    return start, end


# -- findings


def _missing(store: Store, copy: FileCopy, kind: str, key: str) -> Iterator[Finding]:
    return _of_all_runs(copy, kind, key, f"{store.root}/{key} does not exist")


def _missing_log(store: Store, copy: FileCopy) -> Iterator[Finding]:
    """Check whether the log exists that belongs to a missing or damaged index."""
    try:
        store.info(copy.path)
    except ObjectNotFoundError:
        yield from _missing(store, copy, kinds.MISSING_LOG, copy.path)
    except StorageError as error:
        yield from _of_all_runs(copy, kinds.UNREADABLE, copy.path, str(error))


def _of_all_runs(copy: FileCopy, kind: str, key: str, message: str) -> Iterator[Finding]:
    """Return findings that concern all records of the file's live runs."""
    for run in copy.runs:
        yield _finding(copy, run, kind, key, message, (run.segment.base_offset, run.segment.end_offset))


def _finding(
    copy: FileCopy, run: LiveRun, kind: str, key: str, message: str, offsets: tuple[int, int], batch: int = -1
) -> Finding:
    start, end = offsets
    return Finding(
        kind=kind,
        severity=ERROR,
        message=message,
        path=key,
        broker=copy.broker,
        topic=run.topic,
        partition=run.segment.partition,
        start_offset=start,
        end_offset=end,
        batch=batch,
    )


def _wrong_runs(
    copy: FileCopy, index: Index, verification: Verification, faults: dict[LiveRun, str]
) -> Iterator[Finding]:
    """Return findings for an index that is not that of the committed file: either the index alone, or both files are
    wrong."""
    fits = not verification.damage
    kind, key = (kinds.WRONG_SEGMENT, copy.path) if fits else (kinds.INDEX_MISMATCH, index_path(copy.path))
    for run, fault in faults.items():
        wrong = "the file is not the one" if fits else "the index is not that of the file"
        message = f"{wrong} that commit {run.segment.version} names: {fault}"
        yield _finding(copy, run, kind, key, message, (run.segment.base_offset, run.segment.end_offset))


def _damage(copy: FileCopy, index: Index, verification: Verification) -> Iterator[Finding]:
    is_alone = all(damage.batch < 0 for damage in verification.damage)
    for number, damage in enumerate(verification.damage):
        if verification.cut_short and number == len(verification.damage) - 1:
            yield from _cut_short(copy, index, damage.batch, damage.what, is_alone)
        elif damage.batch < 0:
            yield _around_batches(copy, index, damage.what, is_alone)
        else:
            yield _of_batch(copy, index, damage.batch, damage.what)


def _around_batches(copy: FileCopy, index: Index, what: str, is_alone: bool) -> Finding:
    """Return a finding for the schema or the footer: only other programs need these, since sparklog reads by the
    index. ``is_alone``: no batch is damaged."""
    message = f"{what}; all records can still be read" if is_alone else f"{what}; no records are in that part"
    if index.summary.is_parquet:
        message += (" by sparklog" if is_alone else "") + ", but no other Parquet reader can read this file"
    severity = ERROR if index.summary.is_parquet else WARNING
    return Finding(kind=kinds.DAMAGED_FILE, severity=severity, message=message, path=copy.path, broker=copy.broker)


def _of_batch(copy: FileCopy, index: Index, batch: int, what: str) -> Finding:
    message = f"record batch {batch}: {what}"
    for run in copy.runs:
        segment = run.segment
        if segment.first_batch <= batch < segment.first_batch + segment.batches:
            offsets = offsets_of(segment, index, batch, batch)
            return _finding(copy, run, kinds.DAMAGED_BATCH, copy.path, message, offsets, batch)
    return Finding(
        kind=kinds.DAMAGED_BATCH,
        severity=WARNING,
        message=f"{message}; it has no live records",
        path=copy.path,
        broker=copy.broker,
        batch=batch,
    )


def _cut_short(copy: FileCopy, index: Index, batch: int, what: str, is_alone: bool) -> Iterator[Finding]:
    """Return findings for a file that is truncated at ``batch``; -1 means the footer."""
    lost = range(batch, len(index)) if batch >= 0 else range(0)
    concerned = False
    for run in copy.runs:
        segment = run.segment
        first, last = max(segment.first_batch, lost.start), segment.first_batch + segment.batches - 1
        if lost and last >= first:
            offsets = offsets_of(segment, index, first, last)
            yield _finding(copy, run, kinds.DAMAGED_FILE, copy.path, what, offsets, first)
            concerned = True
    if not concerned:
        yield _around_batches(copy, index, what, is_alone)


# -- planning


def plan_tasks(
    copies: Iterable[FileCopy], stores: dict[int, Store], task_bytes: int, fast: bool = False
) -> Iterator[FileTask]:
    """Divide files into tasks of about ``task_bytes``, or ``FILES_PER_TASK`` files; a file is never split."""
    chosen: list[FileCopy] = []
    size = 0
    for copy in copies:
        chosen.append(copy)
        size += copy.size_bytes
        if size >= task_bytes or len(chosen) >= FILES_PER_TASK:
            yield _task(chosen, stores, fast)
            chosen, size = [], 0
    if chosen:
        yield _task(chosen, stores, fast)


FILES_PER_TASK = 500
"""Maximum files of one task, since each costs some milliseconds on an object store, however small it is."""


def _task(copies: list[FileCopy], stores: dict[int, Store], fast: bool) -> FileTask:
    brokers = {copy.broker for copy in copies}
    return FileTask({broker: stores[broker] for broker in sorted(brokers)}, tuple(copies), fast)
