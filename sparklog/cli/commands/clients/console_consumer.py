"""``sparklog console-consumer``: Kafka's kafka-console-consumer. Prints records as lines, and waits for more.

Records of a partition are printed in offset order; across partitions there is no order, as in Kafka. It waits for a
topic that does not exist yet, and reads partitions that appear later from their beginning. With ``--group`` it reads
the partitions assigned to it (``group_consumer``); without, it reads all partitions and commits nothing.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    connect,
    given,
    logger,
    parse_pairs,
    read_properties_file,
    silence_output,
)
from sparklog.errors import InvalidRecordError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from sparklog.protocol.group.start_offset import find_start

if TYPE_CHECKING:
    from sparklog.cli.commands.clients.group_consumer import GroupConsumer
    from sparklog.cli.output.formatters import MessageFormatter
    from sparklog.client.consumer.offsets_topic import ConsumerReader
    from sparklog.client.reader import Bounds, ConsumerRecord
    from sparklog.coordinator import Coordinator

FLUSH_RECORDS = 1000
"""records between two flushes of the output while more are available; it is also flushed before every wait."""
FOREVER_SECONDS = 10.0**9
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


def parser() -> CommandParser:
    options = CommandParser(
        "console-consumer",
        "Print records, one line each, and wait for more until it is stopped.",
        "sparklog console-consumer --bootstrap-server /data/log --topic orders --from-beginning --max-messages 10 \\\n"
        "      --formatter-property print.key=true --formatter-property print.offset=true",
        "(--topic TOPIC | --include REGEX) [OPTIONS]",
    )
    options.add_connection()
    options.add_argument("--topic", metavar="TOPIC", help="the topic to read")
    options.add_argument("--include", metavar="REGEX", help="read all topics that match this regular expression")
    options.add_argument("--partition", metavar="N", type=int, help="read only this partition, from its end")
    options.add_argument("--offset", metavar="N|earliest|latest", help="where to start in --partition (latest)")
    options.add_argument("--from-beginning", action="store_true", help="start with the earliest records")
    options.add_argument("--max-messages", metavar="N", type=int, help="stop after N records")
    options.add_argument("--timeout-ms", metavar="MS", type=int, help="stop after this time without records")
    options.add_argument("--skip-message-on-error", action="store_true", help="skip records that cannot be formatted")
    options.add_argument(
        "--formatter-property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="fields of a line: print.timestamp, print.partition, print.offset, print.epoch, print.headers, print.key "
        "(all false), print.value (true), key.separator (tab), line.separator, headers.separator, null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer",
    )
    options.add_deprecated("--property", "--formatter-property", metavar="NAME=VALUE", action="append")
    options.add_argument("--formatter-config", metavar="FILE", help="a properties file with formatter properties")
    options.add_argument(
        "--formatter",
        metavar="CLASS",
        default="DefaultMessageFormatter",
        help="DefaultMessageFormatter (default), LoggingMessageFormatter, NoOpMessageFormatter; for __consumer_offsets "
        "OffsetsMessageFormatter, GroupMetadataMessageFormatter",
    )
    options.add_argument("--key-deserializer", metavar="CLASS", help="Kafka's class, such as LongDeserializer")
    options.add_argument("--value-deserializer", metavar="CLASS", help="the same for values")
    options.add_argument(
        "--command-property",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="auto.offset.reset, exclude.internal.topics; with --group also max.poll.records and so on",
    )
    options.add_deprecated("--consumer-property", "--command-property", metavar="NAME=VALUE", action="append")
    options.add_deprecated("--consumer.config", "--command-config", metavar="FILE")
    options.add_argument("--enable-systest-events", action="store_true", help="print shutdown_complete at the end")
    options.add_argument("--group", metavar="GROUP", help="read as a member of this group and commit its offsets")
    options.add_argument(
        "--isolation-level",
        metavar="LEVEL",
        help="read_committed or read_uncommitted: the same here, since open transactions are never visible",
    )
    return options


def run(options: argparse.Namespace) -> int:
    _check(options)
    properties = _properties(options)
    _check_isolation(options, properties)
    group = _group(options, properties)
    _refuse_offsets_topic_in_group(options, group)
    reset = _reset(options, properties)
    from sparklog.cli.output.formatters import formatter

    lines = formatter(options.formatter, _formatter_properties(options))
    selection = _select(options, properties.get("exclude.internal.topics", "true").strip().lower() == "true")
    coordinator = connect(options)
    if group:
        return _consume_in_group(options, coordinator, group, reset, properties, lines)
    for name in properties.keys() - {"auto.offset.reset", "bootstrap.servers", "exclude.internal.topics"}:
        logger.debug("consumer setting %s has no effect here", name)
    from sparklog.client.consumer.offsets_topic import ConsumerReader

    with ConsumerReader(coordinator) as reader:
        consumer = _Consumer(reader, selection, _start(options, reset), reset, lines.columns)
        return _print_all(options, consumer, lines)


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


def _properties(options: argparse.Namespace) -> dict[str, str]:
    """Return the properties; --command-property overrides --command-config."""
    properties = read_properties_file(options.command_config, "--command-config") if options.command_config else {}
    return {**properties, **parse_pairs(options.command_property, "--command-property")}


def _group(options: argparse.Namespace, properties: dict[str, str]) -> str:
    """Return the group id, empty without one. Raises UsageError."""
    file = read_properties_file(options.command_config, "--command-config") if options.command_config else {}
    group_ids = {options.group, properties.get("group.id"), file.get("group.id")} - {None}
    if len(group_ids) > 1:
        quoted = ", ".join(f"'{group_id}'" for group_id in sorted(group_ids))
        raise UsageError(
            "The group ids provided in different places (directly using '--group', via '--command-property', or via "
            f"'--command-config') do not match. Detected group ids: {quoted}"
        )
    if group_ids and options.partition is not None:
        raise UsageError("Options group and partition cannot be specified together.")
    return str(group_ids.pop()) if group_ids else ""


def _refuse_offsets_topic_in_group(options: argparse.Namespace, group: str) -> None:
    from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC

    if group and options.topic == CONSUMER_OFFSETS_TOPIC:
        raise UsageError(
            f"{CONSUMER_OFFSETS_TOPIC} is derived from the commit log, so no group has offsets in it; leave out --group"
        )


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


class _Selection(NamedTuple):
    """The topics to read, by name, and the only partition if one is given."""

    matches: Callable[[str], bool]
    missing: str
    """Says that no such topic exists."""
    topic: str | None
    partition: int | None


def _select(options: argparse.Namespace, exclude_internal: bool) -> _Selection:
    from sparklog.cli.arguments.patterns import topic_pattern
    from sparklog.protocol.names import is_internal_topic, validate_topic_name

    if options.topic is None:
        pattern = topic_pattern(options.include)

        def matches(name: str) -> bool:
            return bool(pattern.fullmatch(name)) and not (exclude_internal and is_internal_topic(name))

        return _Selection(matches, f"no topic matches {options.include!r}", None, None)
    name = validate_topic_name(options.topic)
    return _Selection(lambda other: other == name, f"topic {name!r} does not exist", name, options.partition)


# -- reading


class _Consumer:
    """Reads partitions and keeps their positions. Not thread-safe."""

    def __init__(
        self, reader: ConsumerReader, selection: _Selection, start: str | int, reset: str, columns: list[str]
    ) -> None:
        self.clock = reader.clock
        self._reader = reader
        self._selection = selection
        self._reset = reset
        self._columns = columns
        self._positions: dict[tuple[str, str, int], int] = {}
        self._state = reader.state
        self._follow(start)
        if not self._positions:
            complain(f"{self._missing()} yet; waiting for it (Ctrl-C stops)")

    def _missing(self) -> str:
        """Say which topic or partition does not exist."""
        topic, partition = self._selection.topic, self._selection.partition
        count = self._reader.partitions(topic) if topic is not None and topic in self._state.topics else 0
        if topic is None or not count:
            return f"{self._selection.missing} in this cluster"
        return f"topic {topic!r} has partitions 0 to {count - 1}, and no partition {partition}"

    def available(self) -> Iterator[ConsumerRecord]:
        """Yield the records after the positions, up to the state last seen, and advance the positions."""
        for key, position in sorted(self._positions.items()):
            topic, topic_id, partition = key
            bounds = self._reader.bounds(topic, partition)
            if bounds is None or bounds.topic_id != topic_id:
                continue
            end = bounds.end
            self._positions[key] = self._within(topic, partition, position)
            try:
                yield from self._read(key, end)
            except OffsetOutOfRangeError:  # the records have just been deleted
                self._state = self._reader.state
                self._positions[key] = self._within(topic, partition, self._positions[key])
            else:
                self._positions[key] = max(self._positions[key], end)

    def _read(self, key: tuple[str, str, int], end: int) -> Iterator[ConsumerRecord]:
        from sparklog.client.reader import to_records

        topic, _, partition = key
        for fetched in self._reader.fetch(topic, partition, self._positions[key], end, self._columns, self._state):
            for record in to_records(topic, partition, fetched):
                self._positions[key] = record.offset + 1
                yield record

    def wait(self, seconds: float) -> None:
        """Wait for a commit, up to ``seconds``."""
        self._state = self._reader.wait(self._state, seconds)
        self._follow("earliest")

    def _follow(self, start: str | int) -> None:
        """Add new partitions, and drop those of deleted topics."""
        from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC

        current: dict[tuple[str, str, int], int] = {}
        for topic in filter(self._selection.matches, {*self._state.topics, CONSUMER_OFFSETS_TOPIC}):
            for partition in self._partitions(topic):
                bounds = self._bounds(topic, partition)
                key = (topic, bounds.topic_id, partition)
                position = self._positions.get(key)
                current[key] = self._first(topic, partition, bounds, start) if position is None else position
        self._positions = current

    def _partitions(self, topic: str) -> range:
        count, only = self._reader.partitions(topic), self._selection.partition
        return range(count) if only is None else range(only, min(only + 1, count))

    def _bounds(self, topic: str, partition: int) -> Bounds:
        """Return the current offsets of a partition. Raises UnknownTopicOrPartitionError."""
        bounds = self._reader.fresh_bounds(topic, partition)
        if bounds is None:
            self._state.partition(topic, partition)
            raise UnknownTopicOrPartitionError(
                f"partition {topic}-{partition} does not exist", topic=topic, partition=partition
            )
        return bounds

    def _first(self, topic: str, partition: int, bounds: Bounds, start: str | int) -> int:
        if isinstance(start, int):
            return start
        offset = find_start(start, bounds.start, bounds.end)
        if offset is None:
            raise OffsetOutOfRangeError(
                f"{topic}-{partition} has no offset to start at, and auto.offset.reset is none", topic=topic
            )
        return offset

    def _within(self, topic: str, partition: int, position: int) -> int:
        """Return the position, or that of auto.offset.reset if it is out of range."""
        bounds = self._bounds(topic, partition)
        start = find_start(self._reset, bounds.start, bounds.end, position)
        if start == position:
            return position
        message = f"offset {position} of {topic}-{partition} is out of range: it has {bounds.start} to {bounds.end}"
        if start is None:
            raise OffsetOutOfRangeError(
                f"{message}, and auto.offset.reset is none", topic=topic, partition=partition, offset=position
            )
        complain(f"{message}; continuing at {self._reset}")
        return start


# -- printing


def _consume_in_group(
    options: argparse.Namespace,
    coordinator: Coordinator,
    group: str,
    reset: str,
    properties: dict[str, str],
    lines: MessageFormatter,
) -> int:
    """Print the records of the partitions assigned to this member. Offsets are committed as enable.auto.commit says."""
    from sparklog.cli.arguments.client_properties import client_arguments
    from sparklog.cli.arguments.patterns import topic_pattern
    from sparklog.cli.commands.clients.group_consumer import GroupConsumer
    from sparklog.cli.commands.clients.throughput import StopRequest
    from sparklog.client.consumer.config import DEFAULTS
    from sparklog.client.consumer.consumer import Consumer

    arguments: dict[str, Any] = {"client_id": "console-consumer", **client_arguments(properties, DEFAULTS)}
    arguments.update(cluster=coordinator, group_id=group, auto_offset_reset=reset)
    consumer = Consumer(**arguments)
    limit = -1 if options.max_messages is None else options.max_messages
    with StopRequest() as stop:
        member = GroupConsumer(consumer, coordinator.log.clock, limit, stop)
        printed = False
        try:
            if options.topic is not None:
                if options.topic not in coordinator.state.topics:
                    complain(f"topic {options.topic!r} does not exist in this cluster yet; waiting for it")
                consumer.subscribe([options.topic])
            else:
                consumer.subscribe(pattern=f"(?:{topic_pattern(options.include).pattern})\\Z")
            code, printed = _print_member(options, member, lines)
            return code or stop.exit_code
        finally:
            member.close(printed)


def _print_member(options: argparse.Namespace, member: GroupConsumer, lines: MessageFormatter) -> tuple[int, bool]:
    """Print records; return the exit code, and whether all records that were read were printed."""
    printer = _Printer(lines, options.skip_message_on_error)
    try:
        _consume(options, member, printer)
        printer.flush()
        return 0, True
    except SystemExit:  # a stop request, between two batches
        printer.flush()
        return 0, True
    except BrokenPipeError:
        complain("Unable to write to standard out, closing consumer.")
        silence_output()
        return 0, False
    finally:
        _conclude(options, printer)


def _print_all(options: argparse.Namespace, consumer: _Consumer, lines: MessageFormatter) -> int:
    """Print records until the end condition or a signal, then their number; return the exit code."""
    printer = _Printer(lines, options.skip_message_on_error)
    try:
        with _CleanTermination():
            _consume(options, consumer, printer)
        return 0
    except BrokenPipeError:
        complain("Unable to write to standard out, closing consumer.")
        silence_output()
        return 0
    except KeyboardInterrupt:
        return 130
    finally:
        _conclude(options, printer)


def _conclude(options: argparse.Namespace, printer: _Printer) -> None:
    printer.close()
    complain(f"Processed a total of {printer.count} messages")
    if options.enable_systest_events:
        print("shutdown_complete")


def _consume(options: argparse.Namespace, consumer: _Consumer | GroupConsumer, printer: _Printer) -> None:
    timeout = options.timeout_ms
    timeout_seconds = FOREVER_SECONDS if timeout is None or timeout < 0 else timeout / 1000
    limit = -1 if options.max_messages is None else options.max_messages
    if limit == 0:
        return
    deadline = consumer.clock.monotonic() + timeout_seconds
    while True:
        before = printer.count
        for record in consumer.available():
            printer.show(record)
            if printer.count == limit:
                return
        printer.flush()
        if printer.count > before:
            deadline = consumer.clock.monotonic() + timeout_seconds
        left = deadline - consumer.clock.monotonic()
        if left <= 0:
            return
        consumer.wait(left)


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
        """Flush the output, ignoring a closed pipe, which has been reported."""
        try:
            self.flush()
        except BrokenPipeError:
            silence_output()


class _CleanTermination:
    """Lets SIGTERM and a closed terminal end the consumer as Ctrl-C does, with exit codes 143 and 129. Main thread
    only."""

    def __enter__(self) -> None:
        from sparklog.cli.commands.clients.throughput import stop_signals

        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in stop_signals():
                self._before[number] = signal.signal(number, self._stop)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @staticmethod
    def _stop(number: int, _: object) -> NoReturn:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)
