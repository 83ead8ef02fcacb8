"""``sparklog dump-log``: Kafka's kafka-dump-log. Prints ``.log`` and ``.index`` files, verifies them, compares them.

It needs no cluster: it works on files in any storage. The printed offsets begin at the number in the file's name, the
offset that the writer expected; with --bootstrap-server they are those of the commit log, which is authoritative. Exit
code 1 if any damage was found, or if no file was a .log or .index.

Files are read batch by batch, and each batch is printed before the next is read: as Kafka's lines (``dump_lines``), or
with --json as one object per line (``dump_documents``).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, failure_code, logger, require
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.types import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.cli.commands.storage.segment_file import Batch, Mismatch, SegmentFile
    from sparklog.cli.output.deserializers import Deserializer
    from sparklog.cli.output.dump_documents import (
        DumpedBatch,
        DumpedEnd,
        DumpedLine,
        DumpedRecord,
        DumpedRun,
        DumpedStart,
    )

_NUMBER = re.compile(r"([0-9]{1,20})(?:[^0-9]|$)")
_DECODERS = (
    "--offsets-decoder", "--transaction-log-decoder", "--cluster-metadata-decoder", "--remote-log-metadata-decoder",
    "--share-group-state-decoder",
)  # fmt: skip


def parser() -> CommandParser:
    options = CommandParser(
        "dump-log",
        "Print segment files and their indexes, verify every checksum, and report differences between the two.",
        "sparklog dump-log --files /data/log/orders-0/00000000000000000000-Xy….log --print-data-log",
        "--files FILE[,FILE…] [OPTIONS]",
    )
    options.add_connection()
    options.add_value("--files", "FILES", "comma-separated .log and .index files, as paths or URLs")
    options.add_switch("--print-data-log", "print the records of a .log with keys and values")
    options.add_switch("--deep-iteration", "print the records without keys and values")
    options.add_switch("--skip-record-metadata", "print only keys and values (--json: no effect)")
    options.add_switch("--verify-index-only", "check an .index against its .log, silently")
    options.add_switch("--index-sanity-check", "check an .index by itself")
    options.add_number("--max-bytes", "BYTES", "stop after the batches that start within this")
    for part in ("value", "key"):
        options.add_argument(
            f"--{part}-decoder-class",
            nargs="?",
            const="StringDecoder",
            metavar="CLASS",
            help=f"decoder of {part}s: StringDecoder (default), LongDecoder, IntegerDecoder and others",
        )
    add_json(options, what="one JSON object per line")
    options.add_without_effect("--max-message-size", metavar="BYTES", type=int)
    options.add_without_effect(*_DECODERS)
    return options


class _Show(NamedTuple):
    """What to print of a ``.log``."""

    records: bool
    contents: bool
    metadata: bool
    max_bytes: int | None
    key: Deserializer
    value: Deserializer


def run(options: argparse.Namespace) -> int:
    require(options, "files")
    show = _show(options)
    names = [name.strip() for name in options.files.split(",")]
    if not all(names):
        raise UsageError(f"invalid --files {options.files!r}: contains an empty name")
    sound, dumped = True, 0
    for name in names:
        if not options.json:
            print(f"Dumping {printable(name)}")
        if name.endswith(".log"):
            dumped_lines = _dump_log(name, options, show)
        elif name.endswith(".index"):
            dumped_lines = _dump_index(name, options)
        else:
            complain(f"Ignoring unknown file {name}: its name does not end in .log or .index")
            continue
        dumped += 1
        for line in dumped_lines:
            _print(line, options, show)
            sound = sound and (line.end is None or line.end.sound)
    return 0 if sound and dumped else failure_code(options)


def _print(line: DumpedLine, options: argparse.Namespace, show: _Show) -> None:
    from sparklog.cli.output.dump_lines import complain_of, lines

    if options.json:
        print_json(line)
    else:
        for text in lines(line, show.metadata, show.contents):
            print(text)
        if line.end is not None and options.index_sanity_check and line.file.endswith(".index") and line.end.sound:
            print(f"{printable(line.file)} passed sanity check.")
    complain_of(line)


def _show(options: argparse.Namespace) -> _Show:
    from sparklog.cli.output.deserializers import deserializer

    special = any(getattr(options, flag[2:].replace("-", "_")) for flag in _DECODERS)
    contents = bool(options.print_data_log or options.key_decoder_class or options.value_decoder_class or special)
    return _Show(
        records=options.deep_iteration or contents,
        contents=contents,
        metadata=not options.skip_record_metadata,
        max_bytes=options.max_bytes,
        key=deserializer(options.key_decoder_class or "StringDecoder"),
        value=deserializer(options.value_decoder_class or "StringDecoder"),
    )


def _open(name: str, options: argparse.Namespace) -> SegmentFile:
    from sparklog.cli.commands.storage.segment_file import SegmentFile

    return SegmentFile(name, _storage_options(options), name_number(name))


def _storage_options(options: argparse.Namespace) -> dict[str, object]:
    from sparklog.cli.arguments.parser import read_properties_file, storage_options

    properties = read_properties_file(options.command_config, "--command-config") if options.command_config else {}
    return storage_options(options, properties)


def name_number(name: str) -> int:
    """Return the base offset in a file's name, which its writer expected; 0 if the name has none."""
    match = _NUMBER.match(name.rpartition("/")[2])
    return int(match.group(1)) if match else 0


def _start(segment: SegmentFile, options: argparse.Namespace) -> DumpedStart:
    from sparklog.cli.output.dump_documents import DumpedStart

    return DumpedStart(
        base_offset=segment.base_offset, runs=_runs(segment, options), index_fault=segment.index_fault or None
    )


def _runs(segment: SegmentFile, options: argparse.Namespace) -> list[DumpedRun] | None:
    """Return the file's runs in the commit log, None without --bootstrap-server: a dump needs no cluster."""
    if not options.bootstrap_server:
        _read_append_times(segment, options)
        return None
    from sparklog.cli.arguments.parser import connect
    from sparklog.cli.output.dump_documents import DumpedRun

    return [
        DumpedRun(
            topic=run.topic,
            partition=run.segment.partition,
            base_offset=run.segment.base_offset,
            end_offset=run.segment.end_offset,
            records=run.segment.records,
            first_batch=run.segment.first_batch,
            batches=run.segment.batches,
            commit_version=run.segment.version,
        )
        for run in segment.find_runs(connect(options))
    ]


def _read_append_times(segment: SegmentFile, options: argparse.Namespace) -> None:
    """Look up whether records have the time of their append, if the file lies below the root of its cluster.

    Best effort: the cluster may be unreadable, and the dumped file all that is left of it.
    """
    from sparklog.coordinator import open_cluster
    from sparklog.errors import SparklogError

    root = segment.folder.rpartition("/")[0]
    try:
        if root:
            segment.read_append_times(open_cluster(root, _storage_options(options)))
    except SparklogError as error:
        logger.debug("cannot read append times from the commit log below %s: %s", root, error)


# -- .log


def _dump_log(name: str, options: argparse.Namespace, show: _Show) -> Iterator[DumpedLine]:
    from sparklog.cli.output.dump_documents import DumpedEnd, DumpedLine

    with _open(name, options) as segment:
        yield DumpedLine(file=name, start=_start(segment, options))
        sound = not segment.index_damaged
        first: int | None = None
        for batch in segment.batches():
            first = batch.position if first is None else first
            if show.max_bytes is not None and batch.position - first >= show.max_bytes:
                end = DumpedEnd(sound=sound, complete=False, mismatches=[], fault=None, trailing_bytes=0)
                yield DumpedLine(file=name, end=end)
                return
            sound = sound and not batch.fault
            yield DumpedLine(file=name, batch=_batch(batch, show))
        yield DumpedLine(file=name, end=_end(segment, sound, []))


def _end(segment: SegmentFile, sound: bool, mismatches: list[Mismatch]) -> DumpedEnd:
    from sparklog.cli.output.dump_documents import DumpedEnd, DumpedMismatch

    fault, trailing = segment.end_fault()
    return DumpedEnd(
        sound=sound and not (fault or trailing or mismatches),
        complete=True,
        mismatches=[
            DumpedMismatch(batch=mismatch.batch, what=mismatch.what, index=index, log=log)
            for mismatch in mismatches
            for index, log in [mismatch.values(segment)]
        ],
        fault=fault or None,
        trailing_bytes=trailing,
    )


def _batch(batch: Batch, show: _Show) -> DumpedBatch:
    from sparklog.cli.commands.storage.segment_file import UNKNOWN
    from sparklog.cli.output.dump_documents import DumpedBatch

    kind, timestamp_ms = batch.timestamp
    records = None
    if show.records and batch.records is not None and not batch.fault:
        records = _records(batch, batch.records, show)
    return DumpedBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset if batch.count >= 0 else None,
        count=_none_if_negative(batch.count),
        base_sequence=_none_if_negative(batch.base_sequence),
        last_sequence=_none_if_negative(batch.last_sequence),
        producer_id=_none_if_negative(batch.producer_id),
        producer_epoch=_none_if_negative(batch.producer_epoch),
        leader_epoch=batch.leader_epoch,
        delete_horizon_ms=_none_if_negative(batch.delete_horizon_ms),
        position=batch.position,
        size_bytes=batch.size,
        timestamp_type=kind,
        max_timestamp_ms=None if timestamp_ms == UNKNOWN else timestamp_ms,
        magic=batch.magic,
        codec=batch.codec,
        crc=batch.crc,
        fault=batch.fault or None,
        records=records,
    )


def _records(batch: Batch, records: pa.RecordBatch, show: _Show) -> list[DumpedRecord]:
    from sparklog.cli.output.dump_documents import DumpedRecord

    keys, values, headers = (records.column(name).to_pylist() for name in ("key", "value", "headers"))
    stamps = records.column("timestamp").view("int64").to_pylist()
    return [
        DumpedRecord(
            offset=batch.offset(row),
            timestamp_ms=batch.stamp(stamps[row])[1],
            key_size=None if key is None else len(key),
            value_size=None if value is None else len(value),
            sequence=_none_if_negative(batch.sequence(row)),
            header_keys=[header["key"] for header in headers[row] or ()],
            key=_decode(key, show.key) if show.contents else None,
            value=_decode(value, show.value) if show.contents else None,
        )
        for row, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


def _none_if_negative(number: int) -> int | None:
    """Return the number, None for a negative one, which means unknown."""
    return None if number < 0 else number


def _decode(data: bytes | None, decode: Deserializer) -> str | None:
    from sparklog.errors import InvalidRecordError

    if data is None:
        return None
    try:
        return decode(data).decode("utf-8", "replace")
    except InvalidRecordError as error:
        return f"({error.message})"


# -- .index


def _dump_index(name: str, options: argparse.Namespace) -> Iterator[DumpedLine]:
    """Dump and verify an .index, and compare it with its .log unless it is to be checked by itself."""
    from sparklog.cli.output.dump_documents import DumpedEnd, DumpedEntry, DumpedLine, DumpedStart

    log_name = name.removesuffix(".index") + ".log"
    with _open(log_name, options) as segment:
        alone = segment.index is None or options.index_sanity_check
        start = DumpedStart(base_offset=segment.base_offset, runs=None, index_fault=segment.index_fault or None)
        yield DumpedLine(file=name, start=start if alone else _start(segment, options))
        if segment.index is None or alone:
            sound = segment.index is not None
            end = DumpedEnd(sound=sound, complete=True, mismatches=[], fault=None, trailing_bytes=0)
            yield DumpedLine(file=name, end=end)
            return
        if not options.verify_index_only:
            for batch, entry in enumerate(segment.index.entries):
                offset = segment.first_offset(batch, entry)
                yield DumpedLine(file=name, entry=DumpedEntry(offset=offset, position=entry.position))
        yield DumpedLine(file=name, end=_end(segment, True, list(segment.mismatches())))
