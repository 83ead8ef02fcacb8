"""``sparklog console-producer``: Kafka's kafka-console-producer. Each line of stdin becomes a record.

Lines are batched: those that arrive within the linger time go into one commit. On a terminal each line is sent as soon
as it is typed. A line that cannot be sent ends the command with an error that names it; the lines before it are sent.
On SIGINT, SIGTERM and SIGHUP it ends after sending every line that was read; on a second one it ends immediately.
"""

from __future__ import annotations

import argparse
import codecs
import os
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from sparklog import limits
from sparklog.cli.arguments.client_properties import read_properties
from sparklog.cli.arguments.line_reader import InputLine, LineReader
from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    connect,
    logger,
    parse_pairs,
    read_properties_file,
    require,
)
from sparklog.cli.commands.clients.throughput import StopRequest
from sparklog.errors import MessageSizeTooLargeError
from sparklog.errors.suggestions import did_you_mean

if TYPE_CHECKING:
    from sparklog.cli.commands.clients.line_sender import LineSender, Retries
    from sparklog.clock import Clock

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 1}
"""The tool waits for an answer with 0 too: nothing that was read is lost."""
PROPERTIES = frozenset(
    {"acks", "batch.size", "compression.type", "delivery.timeout.ms", "linger.ms", "retries", "retry.backoff.ms"}
)
"""Settings of Kafka's producer that have an effect here."""
BATCH_RECORDS = 100_000
BATCH_BYTES = 16 * 1024 * 1024
"""Largest size of a commit, so that memory stays bounded however fast the input is. Kafka's 16 KiB are per partition
and request; a commit costs more than a request, and large commits are cheaper to read."""
READ_BYTES = 64 * 1024
MAX_WAIT_SECONDS = 86_400.0
"""Longest wait for the next line before those that were read are sent; ``select`` refuses very large timeouts."""


def parser() -> CommandParser:
    options = CommandParser(
        "console-producer",
        "Send each line of standard input as a record.",
        "printf 'k1:hello\\nk2:world\\n' | sparklog console-producer --bootstrap-server /data/log --topic orders \\\n"
        "      --reader-property parse.key=true --reader-property key.separator=:",
        "--topic TOPIC [OPTIONS]",
    )
    options.add_value("--topic", "TOPIC", "the topic to send to")
    options.add_values(
        "--reader-property",
        "NAME=VALUE",
        "how a line is parsed: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab), "
        "headers.separator (,), headers.key.separator (:), null.marker, ignore.error",
    )
    options.add_deprecated("--property", "--reader-property", metavar="NAME=VALUE", action="append")
    options.add_value("--reader-config", "FILE", "a properties file with reader properties")
    options.add_value("--line-reader", "CLASS", "only LineMessageReader", default="LineMessageReader")
    options.add_switch("--sync", "one commit for each line")
    options.add_argument(
        "--compression-codec",
        nargs="?",
        const="gzip",
        metavar="CODEC",
        help="none, gzip (if no codec is named), snappy, lz4 or zstd; the topic's compression.type takes precedence",
    )
    options.add_number("--batch-size", "BYTES", "largest size of a commit in bytes (16777216)")
    options.add_deprecated(
        "--max-partition-memory-bytes", "--batch-size", dest="partition_bytes", metavar="BYTES", type=int
    )
    options.add_number("--timeout", "MS", "how long a line waits for others to share its commit (1000)")
    options.add_values(
        "--command-property",
        "NAME=VALUE",
        "acks, compression.type, linger.ms, batch.size, retries, retry.backoff.ms, delivery.timeout.ms; others "
        "have no effect here",
    )
    options.add_deprecated("--producer-property", "--command-property", metavar="NAME=VALUE", action="append")
    options.add_deprecated("--producer.config", "--command-config", metavar="FILE")
    options.add_value(
        "--request-required-acks",
        "ACKS",
        "which replicas must have a line before the next is sent: all in sync (-1, all), or the leader (1, 0)",
    )
    options.add_number(
        "--message-send-max-retries",
        "N",
        "number of retries (default: 3 if replicas are missing; until delivery.timeout.ms, 120000, if the storage "
        "does not answer)",
    )
    options.add_number("--retry-backoff-ms", "MS", "how long to wait before the first retry (100)")
    for flag in (
        "--request-timeout-ms", "--metadata-expiry-ms", "--max-block-ms", "--max-memory-bytes", "--socket-buffer-size",
    ):  # fmt: skip
        options.add_without_effect(flag, metavar="VALUE", type=int)
    return options


def run(options: argparse.Namespace) -> int:
    require(options, "topic")
    if options.line_reader.rpartition(".")[2] != "LineMessageReader":
        raise UsageError(f"unknown line reader {options.line_reader!r}: must be LineMessageReader")
    settings = _settings(options)
    coordinator = connect(options)
    from sparklog.cli.commands.clients.line_sender import LineSender

    properties = read_properties_file(options.reader_config, "--reader-config") if options.reader_config else {}
    properties.update(parse_pairs(options.reader_property, "--reader-property"))
    reader = LineReader(properties)
    sender = LineSender(coordinator, options.topic, settings.codec, settings.acks, settings.retries)
    sender.check_topic()
    with StopRequest() as stop:
        try:
            _send_all(_Input(sys.stdin, stop), reader, sender, settings, coordinator.log.clock)
        except KeyboardInterrupt:  # a second stop request
            complain(sender.interrupted())
            return stop.exit_code or 130
        return stop.exit_code


class _Settings(NamedTuple):
    codec: str
    batch_bytes: int
    batch_records: int
    linger_ms: int
    acks: int
    retries: Retries


def _settings(options: argparse.Namespace) -> _Settings:
    """Resolve settings: from flags, else --command-property, else --command-config, else Kafka's defaults."""
    properties = read_properties(options)
    for name in properties.keys() - PROPERTIES:
        logger.debug("producer setting %s has no effect here", name)
    codec = options.compression_codec or properties.get("compression.type", "none")
    if codec not in CODECS:
        raise UsageError(f"unknown codec {codec!r}: must be one of {', '.join(CODECS)}{did_you_mean(codec, CODECS)}")
    size = options.batch_size if options.partition_bytes is None else options.partition_bytes
    return _Settings(
        codec=codec,
        batch_bytes=_number(size, properties, "batch.size", BATCH_BYTES),
        batch_records=1 if options.sync else BATCH_RECORDS,
        linger_ms=_number(options.timeout, properties, "linger.ms", 1000),
        acks=_acks(options.request_required_acks or properties.get("acks", "all")),
        retries=_retries(options, properties),
    )


def _retries(options: argparse.Namespace, properties: dict[str, str]) -> Retries:
    from sparklog.cli.commands.clients.line_sender import Retries

    number = None
    if options.message_send_max_retries is not None or "retries" in properties:
        number = _number(options.message_send_max_retries, properties, "retries", 0)
    return Retries(
        number=number,
        backoff_ms=_number(options.retry_backoff_ms, properties, "retry.backoff.ms", 100),
        delivery_timeout_ms=_number(None, properties, "delivery.timeout.ms", 120_000),
    )


def _acks(text: str) -> int:
    if text not in ACKS:
        raise UsageError(f"invalid acks {text!r}: must be one of {', '.join(ACKS)}")
    return ACKS[text]


def _number(flag: int | None, properties: dict[str, str], name: str, default: int) -> int:
    try:
        number = int(properties.get(name, default)) if flag is None else flag
    except ValueError:
        raise UsageError(f"invalid {name} {properties[name]!r}: must be an integer") from None
    if number < 0:
        raise UsageError(f"invalid {name} {number}: must be 0 or more")
    return number


class _Input:
    """Reads lines of stdin as bytes, with a timeout. Not thread-safe.

    It uses the file descriptor if there is one, so that waiting for a line can time out. After a stop request nothing
    more is read; the lines that were read are still returned.
    """

    def __init__(self, stream: Any, stop: StopRequest) -> None:
        self._stream = getattr(stream, "buffer", stream)
        self._stop = stop
        try:
            self._descriptor: int | None = self._stream.fileno()
        except (OSError, ValueError, AttributeError):  # not a real file: it never blocks
            self._descriptor = None
        self.interactive = self._descriptor is not None and os.isatty(self._descriptor) and sys.stdout.isatty()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._lines: list[bytes] = []
        self._returned = 0
        self._ended = False

    def next_line(self, wait_seconds: float | None) -> bytes | None:
        """Return the next line without its line end; None after ``wait_seconds`` (None: no timeout) or at the end of
        the input. Raises MessageSizeTooLargeError for a line that is longer than a record may be."""
        while not self._lines and not self._ended:
            if self._pending_bytes > limits.MAX_RECORD_BYTES:  # the lines before it have been returned
                raise MessageSizeTooLargeError(
                    f"line number {self._returned + 1}: this line and those after it were not sent: it has over "
                    f"{limits.MAX_RECORD_BYTES:,} bytes, more than a record may have"
                )
            if self._stop or not self._ready(wait_seconds):
                return None
            self._read()
        if not self._lines:
            return None
        self._returned += 1
        line = self._lines.pop()
        return line.removeprefix(codecs.BOM_UTF8) if self._returned == 1 else line  # editors begin a file with it

    @property
    def ended(self) -> bool:
        return (self._ended or bool(self._stop)) and not self._lines

    def _ready(self, wait_seconds: float | None) -> bool:
        if self._descriptor is None:
            return True
        descriptors = [self._descriptor]
        if self._stop.descriptor is not None:
            descriptors.append(self._stop.descriptor)
        timeout = None if wait_seconds is None else min(wait_seconds, MAX_WAIT_SECONDS)
        ready = select.select(descriptors, [], [], timeout)[0]
        return self._descriptor in ready and not self._stop

    def _read(self) -> None:
        data = self._stream.read() if self._descriptor is None else os.read(self._descriptor, READ_BYTES)
        if isinstance(data, str):
            data = data.encode()
        self._ended = not data or self._descriptor is None
        *line_ends, rest = data.split(b"\n")
        lines: list[bytes] = []
        for line_end in line_ends:
            lines.append(b"".join([*self._pending, line_end]))
            self._pending, self._pending_bytes = [], 0
        if rest:
            self._pending.append(rest)
            self._pending_bytes += len(rest)
        if self._ended and self._pending:
            lines.append(b"".join(self._pending))
            self._pending = []
        self._lines = [line.removesuffix(b"\r") for line in reversed(lines)]


def _send_all(lines: _Input, reader: LineReader, sender: LineSender, settings: _Settings, clock: Clock) -> None:
    """Send every line. Raises RefusedRecordError for the first line that is refused, and OSError if reading the input
    fails; the lines before it are sent first."""
    while not lines.ended:
        batch: list[InputLine] = []
        try:
            for line in _read_batch(lines, settings, clock):
                batch.append(reader.record(line, sender.sent_lines + len(batch) + 1))
        except Exception:  # an invalid line, or an input that fails, such as a closed terminal
            sender.send(batch)
            raise
        sender.send(batch)


def _read_batch(lines: _Input, settings: _Settings, clock: Clock) -> Iterator[bytes]:
    """Yield the lines of one commit: at least one, unless the input ends, until the commit is full or due."""
    if lines.interactive:
        print(">", end="", flush=True)
    line = lines.next_line(None)
    due = clock.monotonic() + (0 if lines.interactive else settings.linger_ms / 1000)
    records = size = 0
    while line is not None:
        yield line
        records, size = records + 1, size + len(line)
        if records >= settings.batch_records or size >= settings.batch_bytes:
            return
        line = lines.next_line(max(due - clock.monotonic(), 0))
