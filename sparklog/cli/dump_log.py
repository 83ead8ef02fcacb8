"""``sparklog dump-log``: Kafka's kafka-dump-log. Prints ``.log`` and ``.index`` files, verifies them, compares them.

Needs no cluster: it works on files, wherever a store can read them. The offsets it prints begin at the number in the
file's name, which is where the writer expected them; with --bootstrap-server they are those of the commit log, which is
the authority. Exit code 1 where any damage was found, or no file was one of these.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.common import CommandParser, UsageError, complain, failure_code, logger, require
from sparklog.types import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.cli.deserializers import Deserializer
    from sparklog.cli.segment_file import Batch, Placement, SegmentFile

_NUMBER = re.compile(r"([0-9]{1,20})(?:[^0-9]|$)")
_DECODERS = (
    "--offsets-decoder", "--transaction-log-decoder", "--cluster-metadata-decoder", "--remote-log-metadata-decoder",
    "--share-group-state-decoder",
)  # fmt: skip


def parser() -> CommandParser:
    options = CommandParser(
        "dump-log",
        "Print segment files and their indexes, verify every checksum, and say where the two disagree.",
        "sparklog dump-log --files /data/log/orders-0/00000000000000000000-Xy….log --print-data-log",
        "--files FILE[,FILE…] [OPTIONS]",
    )
    options.add_connection()
    options.add_argument("--files", metavar="FILES", help="comma-separated .log and .index files, as paths or URLs")
    options.add_argument(
        "--print-data-log", action="store_true", help="print the records of a .log, keys and values too"
    )
    options.add_argument("--deep-iteration", action="store_true", help="print the records without keys and values")
    options.add_argument("--skip-record-metadata", action="store_true", help="print keys and values alone")
    options.add_argument("--verify-index-only", action="store_true", help="check an .index against its .log, silently")
    options.add_argument("--index-sanity-check", action="store_true", help="check an .index by itself")
    options.add_argument("--max-bytes", metavar="BYTES", type=int, help="stop after the batches that start within this")
    for part in ("value", "key"):
        options.add_argument(
            f"--{part}-decoder-class",
            nargs="?",
            const="StringDecoder",
            metavar="CLASS",
            help=f"how a {part} is shown: StringDecoder (default), LongDecoder, IntegerDecoder and others",
        )
    options.add_without_effect("--max-message-size", metavar="BYTES", type=int)
    options.add_without_effect(*_DECODERS)
    return options


class _Show(NamedTuple):
    """What is to be printed of a ``.log``."""

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
        raise UsageError(f"--files {options.files!r} has an empty name")
    damaged, dumped = False, 0
    for name in names:
        print(f"Dumping {name}")
        if name.endswith(".log"):
            damaged |= _dump_log(name, options, show)
        elif name.endswith(".index"):
            damaged |= _dump_index(name, options)
        else:
            complain(f"Ignoring unknown file {name}: it ends neither in .log nor in .index")
            continue
        dumped += 1
    return failure_code(options) if damaged or not dumped else 0


def _show(options: argparse.Namespace) -> _Show:
    from sparklog.cli.deserializers import deserializer

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
    from sparklog.cli.segment_file import SegmentFile

    return SegmentFile(name, _storage_options(options), name_number(name))


def _storage_options(options: argparse.Namespace) -> dict[str, object]:
    from sparklog.cli.common import read_properties_file, storage_options

    properties = read_properties_file(options.command_config, "--command-config") if options.command_config else {}
    return storage_options(options, properties)


def name_number(name: str) -> int:
    """The base offset that the file's name says its writer expected, 0 where it says none."""
    found = _NUMBER.match(name.rpartition("/")[2])
    return int(found.group(1)) if found else 0


def _place(segment: SegmentFile, options: argparse.Namespace) -> Sequence[Placement]:
    """What the commit log says about the file. Only asked for by the flag: files are dumped without a cluster."""
    if not options.bootstrap_server:
        _stamp(segment, options)
        return []
    from sparklog.cli.common import connect

    placements = segment.place(connect(options))
    if not placements:
        print(f"The commit log of {options.bootstrap_server} does not name this file: none of it is visible to readers")
    for placement in placements:
        print(printable(placement))
    return placements


def _stamp(segment: SegmentFile, options: argparse.Namespace) -> None:
    """Look up whether records carry the time of their append, where the file lies below the root of its cluster.

    That need not be readable: what is dumped may be all that is left.
    """
    from sparklog.coordinator import open_cluster
    from sparklog.errors import SparklogError

    root = segment.folder.rpartition("/")[0]
    try:
        if root:
            segment.stamp(open_cluster(root, _storage_options(options)))
    except SparklogError as error:
        logger.debug("no commit log is asked for the times of appends: %s", error)


# -- .log


def _dump_log(name: str, options: argparse.Namespace, show: _Show) -> bool:
    """Print a .log; whether it is damaged."""
    with _open(name, options) as segment:
        print(f"Log starting offset: {segment.base_offset}")
        _place(segment, options)
        if segment.index_fault:
            complain(segment.index_fault)
        damaged = bool(segment.index_damaged)
        first: int | None = None
        for batch in segment.batches():
            first = batch.position if first is None else first
            if show.max_bytes is not None and batch.position - first >= show.max_bytes:
                return damaged
            print(_batch_line(batch))
            if batch.fault:
                complain(f"  {batch.fault}")
                damaged = True
            elif show.records and batch.records is not None:
                _print_records(batch, batch.records, show)
        fault, trailing = segment.end_fault()
        if trailing:
            print(f"Found {trailing} invalid bytes at the end of {name.rpartition('/')[2]}")
        if fault:
            complain(fault)
        return damaged or bool(fault or trailing)


def _batch_line(batch: Batch) -> str:
    kind, timestamp = batch.timestamp
    horizon = "OptionalLong.empty" if batch.delete_horizon_ms < 0 else f"OptionalLong[{batch.delete_horizon_ms}]"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
        f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} isTransactional: false "
        f"isControl: false deleteHorizonMs: {horizon} position: {batch.position} {kind}: {timestamp} "
        f"size: {batch.size} magic: {batch.magic} compresscodec: {batch.codec} crc: {batch.crc} "
        f"isvalid: {'false' if batch.fault else 'true'}"
    )


def _print_records(batch: Batch, records: pa.RecordBatch, show: _Show) -> None:
    keys, values, headers = (records.column(name).to_pylist() for name in ("key", "value", "headers"))
    stamps = records.column("timestamp").view("int64").to_pylist()
    for row, (key, value) in enumerate(zip(keys, values, strict=True)):
        parts: list[str] = []
        if show.metadata:
            kind, stamp = batch.stamp(stamps[row])
            names = ",".join(printable(header["key"]) for header in headers[row] or ())
            parts.append(
                f"offset: {batch.offset(row)} {kind}: {stamp} keySize: {_size(key)} valueSize: {_size(value)} "
                f"sequence: {batch.sequence(row)} headerKeys: [{names}]"
            )
        if show.contents:
            parts += [
                f"{what}: {_shown(data, decode)}"
                for what, data, decode in (("key", key, show.key), ("payload", value, show.value))
                if data is not None
            ]
        print("| " + " ".join(parts))


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _shown(data: bytes, decode: Deserializer) -> str:
    from sparklog.errors import InvalidRecordError

    try:
        return decode(data).decode("utf-8", "replace")
    except InvalidRecordError as error:
        return f"({error.message})"


# -- .index


def _dump_index(name: str, options: argparse.Namespace) -> bool:
    """Print and verify an .index; whether it, or its agreement with the .log, is damaged."""
    log_name = name.removesuffix(".index") + ".log"
    with _open(log_name, options) as segment:
        if segment.index is None:
            complain(segment.index_fault)
            return True
        if options.index_sanity_check:
            segment.index.check()
            print(f"{name} passed sanity check.")
            return False
        placements = _place(segment, options)
        if not options.verify_index_only:
            logger.debug("%d runs placed by the commit log", len(placements))
            for batch, entry in enumerate(segment.index.entries):
                print(f"offset: {segment.first_offset(batch, entry)} position: {entry.position}")
        mismatches = list(segment.mismatches())
        others = [mismatch for mismatch in mismatches if mismatch.what != "timestamp"]
        if others:
            complain(f"Mismatches in :{name}")
        for mismatch in others:
            complain(f"  {mismatch.shown(segment)}")
        if len(others) < len(mismatches):
            complain(f"Found timestamp mismatch in :{name}")
        for mismatch in mismatches:
            if mismatch.what == "timestamp":
                complain(f"  {mismatch.shown(segment)}")
        fault, trailing = segment.end_fault()
        if fault or trailing:
            complain(fault or f"Found {trailing} invalid bytes at the end of {log_name.rpartition('/')[2]}")
        return bool(mismatches or fault or trailing)
