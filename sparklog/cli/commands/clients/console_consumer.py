"""``sparklog console-consumer``: Kafka's kafka-console-consumer. Prints records as lines, and waits for more.

Records of a partition are printed in offset order; across partitions there is no order, as in Kafka. It waits for a
topic that does not exist yet, and reads partitions that appear later from their beginning. With ``--group`` it reads
the partitions assigned to it; without, it reads all partitions and commits nothing. Offsets of printed records are
committed automatically and at the end: a batch that could not be printed is not committed.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from sparklog.cli.arguments.client_properties import client_arguments, read_properties
from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    connect,
    given,
    parse_pairs,
    read_command_config,
    read_properties_file,
)
from sparklog.cli.arguments.patterns import subscribe, topic_filter
from sparklog.cli.arguments.process import OutputError, silence_output
from sparklog.cli.commands.clients.throughput import StopRequest
from sparklog.errors import InvalidRecordError
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC, validate_topic_name

if TYPE_CHECKING:
    from sparklog.cli.commands.clients.console_source import GroupSource, TopicSelection
    from sparklog.cli.output.formatters import MessageFormatter
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.client.consumer.records import ConsumerRecord
    from sparklog.coordinator import Coordinator

FLUSH_RECORDS = 1000
"""records between two flushes of the output while more are available; it is also flushed before every wait."""
FOREVER_SECONDS = 10.0**9
POLL_SECONDS = 0.2
"""Longest delay until a stop request takes effect. Polling costs no request: the consumer reads ahead by itself."""
CATCH_UP_SECONDS = 0.01
"""Longest poll after the timeout, while existing records are still being read."""
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
GROUP_SETTINGS = {
    "group_instance_id",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "partition_assignment_strategy",
    "session_timeout_ms",
}
"""Arguments of a consumer that mean nothing without a group."""


def parser() -> CommandParser:
    options = CommandParser(
        "console-consumer",
        "Print records, one line each, and wait for more until it is stopped.",
        "sparklog console-consumer --bootstrap-server /data/log --topic orders --from-beginning --max-messages 10 \\\n"
        "      --formatter-property print.key=true --formatter-property print.offset=true",
        "(--topic TOPIC | --include REGEX) [OPTIONS]",
    )
    options.add_value("--topic", "TOPIC", "the topic to read")
    options.add_value("--include", "REGEX", "read all topics that match this regular expression")
    options.add_number("--partition", "N", "read only this partition, from its end")
    options.add_value("--offset", "N|earliest|latest", "where to start in --partition (latest)")
    options.add_switch("--from-beginning", "start with the earliest records")
    options.add_number("--max-messages", "N", "stop after N records")
    options.add_number("--timeout-ms", "MS", "stop after this time without records")
    options.add_switch("--skip-message-on-error", "skip records that cannot be formatted")
    options.add_values(
        "--formatter-property",
        "NAME=VALUE",
        "fields of a line: print.timestamp, print.partition, print.offset, print.epoch, print.headers, print.key "
        "(all false), print.value (true), key.separator (tab), line.separator, headers.separator, null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer",
    )
    options.add_deprecated("--property", "--formatter-property", metavar="NAME=VALUE", action="append")
    options.add_value("--formatter-config", "FILE", "a properties file with formatter properties")
    options.add_value(
        "--formatter",
        "CLASS",
        "DefaultMessageFormatter (default), LoggingMessageFormatter, NoOpMessageFormatter; for __consumer_offsets "
        "OffsetsMessageFormatter, GroupMetadataMessageFormatter",
        default="DefaultMessageFormatter",
    )
    options.add_value("--key-deserializer", "CLASS", "Kafka's class, such as LongDeserializer")
    options.add_value("--value-deserializer", "CLASS", "the same for values")
    settings = "auto.offset.reset, exclude.internal.topics; with --group also max.poll.records and so on"
    options.add_values("--command-property", "NAME=VALUE", settings)
    options.add_deprecated("--consumer-property", "--command-property", metavar="NAME=VALUE", action="append")
    options.add_deprecated("--consumer.config", "--command-config", metavar="FILE")
    options.add_switch("--enable-systest-events", "print shutdown_complete at the end")
    options.add_value("--group", "GROUP", "read as a member of this group and commit its offsets")
    options.add_value(
        "--isolation-level",
        "LEVEL",
        "read_committed or read_uncommitted: the same here, since open transactions are never visible",
    )
    return options


def run(options: argparse.Namespace) -> int:
    _check(options)
    properties = read_properties(options)
    _check_isolation(options, properties)
    group = _group(options, properties)
    reset = _reset(options, properties)
    from sparklog.cli.commands.clients.console_source import GroupSource, LogSource
    from sparklog.cli.output.formatters import formatter
    from sparklog.client.consumer.config import DEFAULTS
    from sparklog.client.consumer.consumer import Consumer

    lines = formatter(options.formatter, _formatter_properties(options))
    selection = _select(options, properties.get("exclude.internal.topics", "true").strip().lower() == "true")
    start = _start(options, reset)
    coordinator = connect(options)
    arguments: dict[str, Any] = {"client_id": "console-consumer", **client_arguments(properties, DEFAULTS)}
    arguments.update(cluster=coordinator, group_id=group or None, auto_offset_reset=reset if group else "none")
    if not group:
        for name in GROUP_SETTINGS & arguments.keys():  # of a file that members of groups use too
            del arguments[name]
    consumer = Consumer(**arguments)
    limit = -1 if options.max_messages is None else options.max_messages
    source, printed = GroupSource(consumer, coordinator, limit), False
    with StopRequest() as stop:
        try:
            if group:
                _subscribe(options, consumer, coordinator)
            else:
                source = LogSource(consumer, coordinator, limit, selection, start, reset)
            printed = _print_all(options, source, stop, lines)
            source.raise_unreadable()
            return stop.exit_code
        finally:
            consumer.close(autocommit=printed)  # of a group, as enable.auto.commit says


# -- options


def _check(options: argparse.Namespace) -> None:
    if (options.topic is None) == (options.include is None):
        raise UsageError('Exactly one of the following arguments is required: "[topic]", "[include]"')
    if options.partition is None:
        if options.offset is not None:
            raise UsageError("The partition is required when offset is specified.")
        return
    if options.partition < 0:
        raise UsageError(f"invalid --partition {options.partition}: must be 0 or more")
    if options.topic is None:
        raise UsageError("The topic is required when partition is specified.")
    if options.from_beginning and given(options, "offset"):
        raise UsageError("Options from-beginning and offset cannot be specified together.")


def _check_isolation(options: argparse.Namespace, properties: dict[str, str]) -> None:
    levels = {"--isolation-level": options.isolation_level, "isolation.level": properties.get("isolation.level")}
    for name, level in levels.items():
        if level is not None and level not in ISOLATION_LEVELS:
            raise UsageError(f"Invalid value {level} for {name}: choose {' or '.join(ISOLATION_LEVELS)}")


def _group(options: argparse.Namespace, properties: dict[str, str]) -> str:
    """Return the group id, empty without one. Raises UsageError."""
    file = read_command_config(options)
    group_ids = {options.group, properties.get("group.id"), file.get("group.id")} - {None}
    if len(group_ids) > 1:
        quoted = ", ".join(f"'{group_id}'" for group_id in sorted(group_ids))
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--command-property', or via "
            f"'--command-config') do not match. Detected group ids: {quoted}"
        )
    if group_ids and options.partition is not None:
        raise UsageError("Options group and partition cannot be specified together.")
    group = str(group_ids.pop()) if group_ids else ""
    if group and options.topic == CONSUMER_OFFSETS_TOPIC:
        raise UsageError(
            f"{CONSUMER_OFFSETS_TOPIC} is derived from the commit log, so no group has offsets in it; leave out --group"
        )
    return group


def _reset(options: argparse.Namespace, properties: dict[str, str]) -> str:
    """Return auto.offset.reset: where to start, and where to continue if an offset is out of range."""
    reset = properties.get("auto.offset.reset")
    if reset is None:
        return "earliest" if options.from_beginning else "latest"
    if reset not in ("earliest", "latest", "none"):
        raise UsageError(f"invalid auto.offset.reset {reset!r}: must be earliest, latest or none")
    if options.from_beginning and reset != "earliest":
        raise UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    return reset


def _start(options: argparse.Namespace, reset: str) -> str | int:
    """Return ``earliest``, ``latest`` or an offset."""
    text = options.offset
    if text is None:
        return reset
    if text.lower() in ("earliest", "latest"):
        return str(text.lower())
    if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < 2**63:
        return int(text)
    raise UsageError(
        f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a "
        "non-negative long."
    )


def _formatter_properties(options: argparse.Namespace) -> dict[str, str]:
    file = options.formatter_config
    properties = read_properties_file(file, "--formatter-config") if file else {}
    if options.key_deserializer:
        properties["key.deserializer"] = options.key_deserializer
    if options.value_deserializer:
        properties["value.deserializer"] = options.value_deserializer
    properties.update(parse_pairs(options.formatter_property, "--formatter-property"))
    return properties


def _select(options: argparse.Namespace, exclude_internal: bool) -> TopicSelection:
    from sparklog.cli.commands.clients.console_source import TopicSelection

    if options.topic is None:
        return TopicSelection(
            topic_filter(options.include, exclude_internal), f"no topic matches {options.include!r}", None, None
        )
    name = validate_topic_name(options.topic)
    return TopicSelection(lambda other: other == name, f"topic {name!r} does not exist", name, options.partition)


# -- printing


def _subscribe(options: argparse.Namespace, consumer: Consumer, coordinator: Coordinator) -> None:
    if options.topic is not None and options.topic not in coordinator.state.topics:
        complain(f"topic {options.topic!r} does not exist in this cluster yet; waiting for it")
    subscribe(consumer, options)


def _print_all(options: argparse.Namespace, source: GroupSource, stop: StopRequest, lines: MessageFormatter) -> bool:
    """Print records; return whether all that were read were printed."""
    printer = _Printer(lines, options.skip_message_on_error)
    try:
        _consume(options, source, stop, printer)
        printer.flush()
        return True
    except BrokenPipeError:
        complain("Unable to write to standard out, closing consumer.")
        silence_output()
        return False
    except OutputError:  # a full disk: the caller commits nothing, and the command fails
        silence_output()
        raise
    finally:
        printer.close()
        complain(f"Processed a total of {printer.count} messages")
        if options.enable_systest_events:
            print("shutdown_complete")


def _consume(options: argparse.Namespace, source: GroupSource, stop: StopRequest, printer: _Printer) -> None:
    """Print batches until the end condition; a stop request takes effect between two of them."""
    timeout = options.timeout_ms
    timeout_seconds = FOREVER_SECONDS if timeout is None or timeout < 0 else timeout / 1000
    if options.max_messages == 0:
        return
    deadline = source.clock.monotonic() + timeout_seconds
    seconds = 0.0
    while not stop:
        records = source.poll(seconds)
        for record in records:
            printer.show(record)
        printer.flush()  # the next poll may commit their offsets
        if printer.count == options.max_messages:
            return
        now = source.clock.monotonic()
        if records:
            deadline, seconds = now + timeout_seconds, 0.0
            continue
        if source.is_over() or (now >= deadline and source.has_caught_up(now - deadline)):
            return
        seconds = max(min(deadline - now, POLL_SECONDS), CATCH_UP_SECONDS)


class _Printer:
    """Writes lines to stdout and counts records. Not thread-safe."""

    def __init__(self, lines: MessageFormatter, skip_errors: bool) -> None:
        self.count = 0
        self._lines = lines
        self._skip_errors = skip_errors
        self._out: Any = getattr(sys.stdout, "buffer", None)

    def show(self, record: ConsumerRecord) -> None:
        self.count += 1
        try:
            line = self._lines.line(record)
        except InvalidRecordError as error:
            where = f"{record.topic}-{record.partition} offset {record.offset}"
            if not self._skip_errors:
                raise InvalidRecordError(f"{where}: {error.message}", **error.context) from error
            complain(f"skipping {where}: {error.message}")
            return
        if self._out is None:
            sys.stdout.write(line.decode("utf-8", "replace"))
        else:
            self._out.write(line)
        if self.count % FLUSH_RECORDS == 0:
            self.flush()

    def flush(self) -> None:
        sys.stdout.flush()

    def close(self) -> None:
        """Flush the output, ignoring one that cannot be written, which has been reported."""
        try:
            self.flush()
        except (BrokenPipeError, OutputError):
            silence_output()
