"""``sparklog dump-log``: Kafka's kafka-dump-log. Prints segment and index files, verifies, compares.

It needs no cluster: it works on files in any storage. The printed offsets begin at the number in the file's name, the
offset that the writer expected; with --bootstrap-server they are those of the commit log, which is authoritative. Exit
code 1 if any damage was found, or if no file was a .log, .parquet or .index.

Files are read batch by batch, and each batch is printed before the next is read: as Kafka's lines (``dump_lines``), or
with --json as one object per line (``documents``).
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    failure_code,
    read_command_config,
    require,
)
from sparklog.cli.arguments.process import not_text
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.commands.storage.segment_dump import Show
    from sparklog.cli.output.documents import DumpedLine

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
    options.add_value("--files", "FILES", "comma-separated .log, .parquet and .index files, as paths or URLs")
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


def run(options: argparse.Namespace) -> int:
    require(options, "files")
    show = _show(options)
    names = [name.strip() for name in options.files.split(",")]
    if not all(names):
        raise UsageError(f"invalid --files {options.files!r}: contains an empty name")
    for name in names:
        if byte := not_text(name.rpartition("/")[2]):
            raise UsageError(f"--files {name!a}: the byte {byte} of the file's name is not UTF-8; rename the file")
    from sparklog.cli.arguments.parser import connect, storage_options
    from sparklog.cli.commands.storage.segment_dump import Dump

    connects = partial(connect, options) if options.bootstrap_server else None  # a dump needs no cluster
    dump = Dump(storage_options(options, read_command_config(options)), connects)
    sound, dumped = True, 0
    for name in names:
        if not options.json:
            print(f"Dumping {printable(name)}")
        if name.endswith((".log", ".parquet")):
            dumped_lines = dump.dump_log(name, show)
        elif name.endswith(".index"):
            dumped_lines = dump.dump_index(name, options.index_sanity_check, not options.verify_index_only)
        else:
            complain(f"Ignoring unknown file {name}: its name does not end in .log, .parquet or .index")
            continue
        dumped += 1
        for line in dumped_lines:
            _print(line, options, show)
            sound = sound and (line.end is None or line.end.sound)
    return 0 if sound and dumped else failure_code(options)


def _print(line: DumpedLine, options: argparse.Namespace, show: Show) -> None:
    from sparklog.cli.output.dump_lines import complain_of, lines

    if options.json:
        print_json(line)
    else:
        for text in lines(line, show.metadata, show.contents):
            print(text)
        if line.end is not None and options.index_sanity_check and line.file.endswith(".index") and line.end.sound:
            print(f"{printable(line.file)} passed sanity check.")
    complain_of(line)


def _show(options: argparse.Namespace) -> Show:
    from sparklog.cli.commands.storage.segment_dump import Show
    from sparklog.cli.output.deserializers import deserializer

    special = any(getattr(options, flag[2:].replace("-", "_")) for flag in _DECODERS)
    contents = bool(options.print_data_log or options.key_decoder_class or options.value_decoder_class or special)
    return Show(
        records=options.deep_iteration or contents,
        contents=contents,
        metadata=not options.skip_record_metadata,
        max_bytes=options.max_bytes,
        key=deserializer(options.key_decoder_class or "StringDecoder"),
        value=deserializer(options.value_decoder_class or "StringDecoder"),
    )
