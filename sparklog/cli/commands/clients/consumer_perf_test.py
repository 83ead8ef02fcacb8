"""``sparklog consumer-perf-test``: Kafka's kafka-consumer-perf-test, on the Python consumer.

It reads as a member of a group, by default a new one. Times are printed in the local time zone, as by Kafka's tool.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.arguments.client_properties import add_properties, client_arguments, read_properties
from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, connect_client
from sparklog.cli.arguments.patterns import subscribe
from sparklog.cli.commands.clients.throughput import MEGABYTE, StopRequest, print_metrics
from sparklog.cli.output.json_output import add_json, metrics_of, print_json

if TYPE_CHECKING:
    from sparklog.cli.output.documents import ConsumerPerformance
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.clock import Clock
    from sparklog.types import TopicPartition

POLL_MS = 100
GROUP_NUMBERS = 100_000
NEW_FIELDS = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER = f"start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {NEW_FIELDS}"
DETAILED_HEADER = f"time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {NEW_FIELDS}"


def parser() -> CommandParser:
    options = CommandParser(
        "consumer-perf-test",
        "Read records as fast as the consumer can, and print MB/sec and records/sec.",
        "sparklog consumer-perf-test --bootstrap-server /data/log --topic orders --num-records 1000000",
        "(--topic TOPIC | --include REGEX) --num-records N [OPTIONS]",
    )
    options.add_value("--topic", "TOPIC", "the topic to read")
    options.add_value("--include", "REGEX", "read all topics that match this regular expression")
    options.add_number("--num-records", "N", "stop after N records")
    options.add_deprecated("--messages", "--num-records", dest="messages", metavar="N", type=int)
    options.add_value("--group", "GROUP", "the group to join (perf-consumer-N)")
    options.add_number("--fetch-size", "BYTES", "read ahead per partition (1048576)", default=MEGABYTE)
    options.add_switch("--from-latest", "start at the end if the group has no offset")
    options.add_argument(
        "--timeout", metavar="MS", type=int, nargs="?", default=10_000, const=10_000,
        help="stop after this time without records (10000)",
    )  # fmt: skip
    options.add_switch("--show-detailed-stats", "print a line for each reporting interval")
    options.add_number("--reporting-interval", "MS", "time between two lines (5000)", default=5000)
    options.add_value(
        "--date-format", "FORMAT", "format of times, as for Java's SimpleDateFormat", default="yyyy-MM-dd HH:mm:ss:SSS"
    )
    options.add_switch("--hide-header", "print no header")
    options.add_switch("--print-metrics", "print the consumer's metrics at the end")
    add_properties(options, "--consumer.config", "max.poll.records")
    add_json(options)
    options.add_without_effect("--socket-buffer-size", metavar="BYTES", type=int)
    return options


def run(options: argparse.Namespace) -> int:
    _check(options)
    show = DateFormat(options.date_format)
    properties = read_properties(options)
    cluster = connect_client(options, "Consumer")
    from sparklog.client.consumer.config import DEFAULTS
    from sparklog.client.consumer.consumer import Consumer

    group = options.group or f"perf-consumer-{int(cluster.log.ids.jitter() * GROUP_NUMBERS)}"
    arguments = {
        "client_id": "perf-consumer-client",
        "check_crcs": False,
        **client_arguments(properties, DEFAULTS),
        "group_id": group,
        "max_partition_fetch_bytes": options.fetch_size,
        "auto_offset_reset": "latest" if options.from_latest else "earliest",
    }
    if not options.hide_header and not options.json:
        print(DETAILED_HEADER if options.show_detailed_stats else HEADER)
    clock = cluster.log.clock
    with StopRequest() as stop, Consumer(cluster=cluster, **arguments) as consumer:
        start_ms, start = clock.now_ms(), clock.monotonic()
        measurement = _Measurement(options, consumer, clock, show, stop)
        measurement.consume()
        seconds = max(clock.monotonic() - start, 0.001)
        result = measurement.result(start_ms, clock.now_ms(), seconds)
        if options.json:
            print_json(result)
        elif not options.show_detailed_stats:
            print(_summary(result, show))
        metrics = consumer.metrics()
    if options.print_metrics and not options.json:
        print_metrics(metrics, str(arguments["client_id"]))
    return stop.exit_code


def _check(options: argparse.Namespace) -> None:
    if (options.topic is None) == (options.include is None):
        raise UsageError('Exactly one of the following arguments is required: "[topic]", "[include]"')
    if (options.num_records is None) == (options.messages is None):
        raise UsageError('Exactly one of the following arguments is required: "[messages]", "[num-records]"')
    if options.messages is not None:
        options.num_records = options.messages
    if options.reporting_interval <= 0:
        raise UsageError("Reporting interval must be greater than 0.")


# -- measuring


class _Progress(NamedTuple):
    time: float
    records: int
    size: int


class _Measurement:
    """Reads and counts; observes rebalances as a ConsumerRebalanceListener. Not thread-safe."""

    def __init__(
        self, options: argparse.Namespace, consumer: Consumer, clock: Clock, show: DateFormat, stop: StopRequest
    ) -> None:
        self._options = options
        self._consumer = consumer
        self._clock = clock
        self._show = show
        self._stop = stop
        self._records = self._bytes = 0
        self._joining_since = clock.monotonic()
        self._join_seconds = self._join_seconds_of_line = 0.0
        self._last = _Progress(clock.monotonic(), 0, 0)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._joining_since = self._clock.monotonic()

    on_partitions_lost = on_partitions_revoked

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        elapsed = self._clock.monotonic() - self._joining_since
        self._join_seconds += elapsed
        self._join_seconds_of_line += elapsed

    def consume(self) -> None:
        options, clock = self._options, self._clock
        subscribe(self._consumer, options, self)
        limit, timeout_seconds = options.num_records, options.timeout / 1000
        now = last_record = clock.monotonic()
        while self._records < limit and now - last_record <= timeout_seconds and not self._stop:
            polled = self._consumer.poll(POLL_MS)
            now = clock.monotonic()
            if polled:
                last_record = now
            for records in polled.values():
                self._records += len(records)
                self._bytes += sum(
                    max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0) for record in records
                )
            if polled and now - self._last.time >= options.reporting_interval / 1000:
                self._report(now)
        if self._records < limit and not self._stop:
            complain(
                f"WARNING: Exiting before consuming the expected number of records: timeout ({options.timeout} ms) "
                "exceeded. You can use the --timeout option to increase the timeout."
            )

    def _report(self, now: float) -> None:
        """Print a line with --show-detailed-stats, and start a new interval."""
        seconds = now - self._last.time
        megabytes = (self._bytes - self._last.size) / MEGABYTE
        records = self._records - self._last.records
        join = self._join_seconds_of_line
        fetching = seconds - join
        if self._options.show_detailed_stats:
            rates = (megabytes / fetching, records / fetching) if fetching > 0 else (0.0, 0.0)
            print(
                f"{self._show(self._clock.now_ms())}, 0, {self._bytes / MEGABYTE:.4f}, {megabytes / seconds:.4f}, "
                f"{self._records}, {records / seconds:.4f}, {int(join * 1000)}, {int(fetching * 1000)}, "
                f"{rates[0]:.4f}, {rates[1]:.4f}",
                file=sys.stderr if self._options.json else sys.stdout,
                flush=True,
            )
        self._join_seconds_of_line = 0.0
        self._last = _Progress(now, self._records, self._bytes)

    def result(self, start_ms: int, end_ms: int, seconds: float) -> ConsumerPerformance:
        from sparklog.cli.output.documents import ConsumerPerformance

        megabytes = self._bytes / MEGABYTE
        fetching = max(seconds - self._join_seconds, 0.001)
        return ConsumerPerformance(
            start_ms=start_ms,
            end_ms=end_ms,
            records=self._records,
            size_bytes=self._bytes,
            seconds=seconds,
            records_per_second=self._records / seconds,
            mb_per_second=megabytes / seconds,
            rebalance_ms=int(self._join_seconds * 1000),
            fetch_ms=int(fetching * 1000),
            fetch_records_per_second=self._records / fetching,
            fetch_mb_per_second=megabytes / fetching,
            metrics=metrics_of(self._consumer, self._options),
        )


def _summary(result: ConsumerPerformance, show: DateFormat) -> str:
    return (
        f"{show(result.start_ms)}, {show(result.end_ms)}, {result.size_bytes / MEGABYTE:.4f}, "
        f"{result.mb_per_second:.4f}, {result.records}, {result.records_per_second:.4f}, {result.rebalance_ms}, "
        f"{result.fetch_ms}, {result.fetch_mb_per_second:.4f}, {result.fetch_records_per_second:.4f}"
    )


# -- times

_LETTERS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_FIELDS = {"M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S", "D": "%j", "h": "%I", "a": "%p", "E": "%a", "Z": "%z"}


class DateFormat:
    """Shows milliseconds since 1970 as Java's SimpleDateFormat does: letters y M d D H h m s S a E Z. Raises UsageError
    for others."""

    def __init__(self, pattern: str) -> None:
        self._parts: list[tuple[str, int]] = []
        end = 0
        for match in _LETTERS.finditer(pattern):
            if match.start() != end:
                break
            end = match.end()
            self._parts.append(self._part(pattern, match))
        if end != len(pattern):
            raise UsageError(f"invalid --date-format {pattern!r}: unclosed quote")

    @staticmethod
    def _part(pattern: str, match: re.Match[str]) -> tuple[str, int]:
        """Return a directive of strftime with its width, or (text, 0)."""
        letter, width = match.group(2), len(match.group())
        if letter is None:
            quoted = match.group(1)
            text = match.group() if quoted is None else quoted.replace("''", "'") or "'"
            return text.replace("%", "%%"), 0
        if letter == "y":
            return ("%y" if width == 2 else "%Y"), 0
        if letter == "S":
            return "S", width
        if letter in _FIELDS:
            return _FIELDS[letter], 0
        raise UsageError(f"invalid --date-format {pattern!r}: Illegal pattern character '{letter}'")

    def __call__(self, time_ms: int) -> str:
        moment = datetime.fromtimestamp(time_ms // 1000, tz=timezone.utc).astimezone()
        milliseconds = time_ms % 1000
        return "".join(
            str(milliseconds).zfill(width) if width else moment.strftime(part) for part, width in self._parts
        )
