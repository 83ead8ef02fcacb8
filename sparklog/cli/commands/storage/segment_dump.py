"""Dumps ``.log`` and ``.index`` files as documents of ``dump-log``, each batch before the next is read.

Not for: reading the files (``segment_file``), options and printing (``dump_log``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from sparklog.cli.arguments.parser import logger
from sparklog.cli.commands.storage.segment_file import Batch, SegmentFile
from sparklog.cli.output.deserializers import Deserializer
from sparklog.cli.output.documents import (
    DumpedBatch,
    DumpedEnd,
    DumpedEntry,
    DumpedLine,
    DumpedMismatch,
    DumpedRecord,
    DumpedRun,
    DumpedStart,
)
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import InvalidRecordError, SparklogError
from sparklog.protocol.file_names import log_path_of, root_of

_NUMBER = re.compile(r"([0-9]{1,20})(?:[^0-9]|$)")


class Show(NamedTuple):
    records: bool
    contents: bool
    metadata: bool
    max_bytes: int | None
    key: Deserializer
    value: Deserializer


class Dump(NamedTuple):
    """How files are opened, and the cluster whose commits name them, None to dump without one."""

    storage_options: Mapping[str, object]
    connect: Callable[[], Coordinator] | None

    def dump_log(self, name: str, show: Show) -> Iterator[DumpedLine]:
        with self._open(name) as segment:
            yield DumpedLine(file=name, start=self._start(segment))
            sound = not segment.index_damaged
            first: int | None = None
            for batch in segment.batches():
                position = batch.document.position
                first = position if first is None else first
                if show.max_bytes is not None and position - first >= show.max_bytes:
                    yield DumpedLine(file=name, end=_end(sound, complete=False))
                    return
                sound = sound and not batch.document.fault
                yield DumpedLine(file=name, batch=_with_records(batch, show))
            yield DumpedLine(file=name, end=_end_of(segment, sound, []))

    def dump_index(self, name: str, alone: bool, with_entries: bool) -> Iterator[DumpedLine]:
        """Dump an index, and compare it with its file unless it is to be checked ``alone``."""
        with self._open(log_path_of(name)) as segment:
            if segment.index is None or alone:
                fault = segment.index_fault or None
                start = DumpedStart(base_offset=segment.base_offset, runs=None, index_fault=fault)
                yield DumpedLine(file=name, start=start)
                yield DumpedLine(file=name, end=_end(segment.index is not None))
                return
            yield DumpedLine(file=name, start=self._start(segment))
            for batch, entry in enumerate(segment.index.entries if with_entries else ()):
                offset = segment.first_offset(batch, entry)
                yield DumpedLine(file=name, entry=DumpedEntry(offset=offset, position=entry.position))
            yield DumpedLine(file=name, end=_end_of(segment, True, list(segment.mismatches())))

    def _open(self, name: str) -> SegmentFile:
        return SegmentFile(name, self.storage_options, name_number(name))

    def _start(self, segment: SegmentFile) -> DumpedStart:
        """Return what is known before the contents, with the file's runs in the commit log if there is a cluster."""
        runs = None
        if self.connect is None:
            self._read_append_times(segment)
        else:
            runs = [
                DumpedRun.of(run.segment, topic=run.topic, commit_version=run.segment.version)
                for run in segment.find_runs(self.connect())
            ]
        return DumpedStart(base_offset=segment.base_offset, runs=runs, index_fault=segment.index_fault or None)

    def _read_append_times(self, segment: SegmentFile) -> None:
        """Look up whether records have the time of their append, if the file lies below the root of its cluster.

        Best effort: the cluster may be unreadable, and the dumped file all that is left of it.
        """
        root = root_of(segment.folder)
        try:
            if root:
                segment.read_append_times(open_cluster(root, dict(self.storage_options)))
        except SparklogError as error:
            logger.debug("cannot read append times from the commit log below %s: %s", root, error)


def name_number(name: str) -> int:
    """Return the base offset in a file's name, which its writer expected; 0 if the name has none."""
    match = _NUMBER.match(name.rpartition("/")[2])
    return int(match.group(1)) if match else 0


def _end(sound: bool, complete: bool = True) -> DumpedEnd:
    return DumpedEnd(sound=sound, complete=complete, mismatches=[], fault=None, trailing_bytes=0)


def _end_of(segment: SegmentFile, sound: bool, mismatches: list[DumpedMismatch]) -> DumpedEnd:
    fault, trailing = segment.end_fault()
    sound = sound and not (fault or trailing or mismatches)
    return replace(_end(sound), mismatches=mismatches, fault=fault or None, trailing_bytes=trailing)


def _with_records(batch: Batch, show: Show) -> DumpedBatch:
    if not show.records or batch.records is None or batch.document.fault:
        return batch.document
    keys, values, headers = (batch.records.column(name).to_pylist() for name in ("key", "value", "headers"))
    stamps = batch.records.column("timestamp").view("int64").to_pylist()
    records = [
        DumpedRecord(
            offset=batch.offset(row),
            timestamp_ms=batch.timestamp_ms(stamps[row]),
            key_size=None if key is None else len(key),
            value_size=None if value is None else len(value),
            sequence=batch.sequence(row),
            header_keys=[header["key"] for header in headers[row] or ()],
            key=_decode(key, show.key) if show.contents else None,
            value=_decode(value, show.value) if show.contents else None,
        )
        for row, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return replace(batch.document, records=records)


def _decode(data: bytes | None, decode: Deserializer) -> str | None:
    if data is None:
        return None
    try:
        return decode(data).decode("utf-8", "replace")
    except InvalidRecordError as error:
        return f"({error.message})"
