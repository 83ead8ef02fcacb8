"""``sparklog producer-perf-test``: Kafka's kafka-producer-perf-test, on the Python producer.

A record's latency is the time from ``send`` to its commit; in a transaction, to the transaction's commit. Payloads are
letters that depend only on the seed, so that two runs send the same.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from sparklog.cli.arguments.client_properties import add_properties, client_arguments, read_properties
from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, connect_client, require
from sparklog.cli.commands.clients.throughput import (
    MEGABYTE,
    RateLimit,
    StopRequest,
    letters,
    percentiles,
    print_metrics,
)
from sparklog.cli.output.json_output import add_json, metrics_of, print_json
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.output.documents import SendingRate
    from sparklog.client.producer.futures import FutureRecordMetadata
    from sparklog.client.producer.producer import Producer
    from sparklog.clock import Clock

KEPT_LATENCIES = 500_000
"""Largest number of latencies kept, an even sample; percentiles are computed from it."""
SHOWN_ERRORS = 5
POLL_SECONDS = 0.001
"""Interval of checking the futures while nothing is sent: the precision of a latency."""
DEFAULT_TRANSACTION_MS = 3000
CLIENT_ID = "perf-producer-client"


def parser() -> CommandParser:
    options = CommandParser(
        "producer-perf-test",
        "Send records as fast as the producer can, or at a rate, and print records/sec, MB/sec and latencies.",
        "sparklog producer-perf-test --bootstrap-server /data/log --topic orders --num-records 1000000 \\\n"
        "      --record-size 100 --throughput -1 --command-property linger.ms=5 batch.size=262144",
        "--topic TOPIC --num-records N --throughput N [OPTIONS]",
    )
    options.add_value("--topic", "TOPIC", "the topic to send to")
    options.add_number("--num-records", "N", "how many records")
    options.add_value("--throughput", "N", "at most N records per second, or -1 for no limit", type=float)
    payload = options.add_group("Payload (exactly one)")
    payload.add_number("--record-size", "BYTES", "length of the values")
    payload.add_value("--payload-file", "FILE", "values from this UTF-8 file, in random order")
    payload.add_switch("--payload-monotonic", "0, 1, 2, … as text")
    options.add_value("--payload-delimiter", "TEXT", "between values in the file (\\n)", default="\\n")
    options.add_number("--record-key-range", "N", "keys are 0 to N-1")
    options.add_value(
        "--key-distribution",
        "KIND",
        "no keys (none), one after the other (range), or random",
        default="none",
        choices=("none", "range", "random"),
    )
    options.add_number("--random-seed", "SEED", "of payloads and keys (0)", default=0)
    add_properties(options, "--producer.config", "linger.ms, batch.size, acks", "--producer-props")
    options.add_switch("--print-metrics", "print the producer's metrics at the end")
    options.add_value("--transactional-id", "ID", "send in transactions with this id")
    options.add_number("--transaction-duration-ms", "MS", "send in transactions, each committed after this time")
    options.add_number("--warmup-records", "N", "also print results without the first N", default=0)
    options.add_number("--reporting-interval", "MS", "time between two lines (5000)", default=5000)
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    _check(options)
    properties = read_properties(options)
    payloads = _Payloads(options)
    from sparklog.client.producer.config import DEFAULTS
    from sparklog.client.producer.producer import Producer

    arguments: dict[str, Any] = {"client_id": CLIENT_ID, **client_arguments(properties, DEFAULTS)}
    cluster = connect_client(options, "Producer")
    transaction_ms = _transaction_ms(options, arguments, cluster.log.ids.write_id)
    clock = cluster.log.clock
    with Producer(cluster=cluster, **arguments) as producer:
        code = _measure(options, producer, payloads, clock, transaction_ms)
        if options.print_metrics and not options.json:
            print_metrics(producer.metrics(), str(arguments["client_id"]))
        return code


# -- options


def _check(options: argparse.Namespace) -> None:
    require(options, "topic", "num-records", "throughput")
    payloads = [options.record_size is not None, options.payload_file is not None, options.payload_monotonic]
    if sum(payloads) != 1:
        raise UsageError("exactly one of --record-size, --payload-file and --payload-monotonic is required")
    if options.num_records <= 0:
        raise UsageError("--num-records should be greater than zero.")
    if max(options.warmup_records, 0) >= options.num_records:
        raise UsageError(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
    for name in ("record-size", "transaction-duration-ms", "reporting-interval", "record-key-range"):
        value = getattr(options, name.replace("-", "_"))
        if value is not None and value <= 0:
            raise UsageError(f"--{name} should be greater than zero.")
    if options.throughput == 0:
        raise UsageError("invalid --throughput 0: must be positive, or -1 for no limit")
    if options.key_distribution != "none" and options.record_key_range is None:
        raise UsageError("--record-key-range is required when --key-distribution is 'range' or 'random'.")
    if options.key_distribution == "none" and options.record_key_range is not None:
        raise UsageError("--key-distribution must be 'range' or 'random' when --record-key-range is specified.")


def _transaction_ms(options: argparse.Namespace, arguments: dict[str, Any], new_id: Callable[[], str]) -> int | None:
    """Return the duration of a transaction, None without transactions; sets ``transactional_id`` in the arguments."""
    transactional_id = options.transactional_id or arguments.get("transactional_id")
    if transactional_id is None and options.transaction_duration_ms is None:
        return None
    arguments["transactional_id"] = transactional_id or f"performance-producer-{new_id()}"
    return int(options.transaction_duration_ms or DEFAULT_TRANSACTION_MS)


class _Payloads:
    """Generates the value and key of each record number, deterministic for a seed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._seed = f"{options.random_seed}:".encode()
        self._size = options.record_size
        self._monotonic = options.payload_monotonic
        self._keys = options.key_distribution
        self._key_range = options.record_key_range
        self._values = [] if options.payload_file is None else list(_read_payloads(options))

    def value(self, number: int) -> bytes:
        if self._monotonic:
            return b"%d" % number
        if self._values:
            return self._values[self._draw(b"v", number) % len(self._values)]
        return letters(self._seed + b"%d" % number, self._size)

    def key(self, number: int) -> bytes | None:
        if self._keys == "range":
            return b"%d" % (number % self._key_range)
        return b"%d" % (self._draw(b"k", number) % self._key_range) if self._keys == "random" else None

    def _draw(self, what: bytes, number: int) -> int:
        return int.from_bytes(hashlib.shake_128(self._seed + what + b"%d" % number).digest(8), "big")


def _read_payloads(options: argparse.Namespace) -> Iterator[bytes]:
    path, delimiter = options.payload_file, options.payload_delimiter
    output = sys.stderr if options.json else sys.stdout
    print(f"Reading payloads from: {printable(path)}", file=output)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--payload-file: {path} cannot be read: {error}") from error
    if not text:
        raise UsageError("File does not exist or empty file provided.")
    delimiter = delimiter.replace("\\n", "\n").replace("\\t", "\t") or "\n"
    parts = text.split(delimiter)
    parts = parts[:-1] if parts[-1] == "" else parts
    print(f"Number of records read: {len(parts)}", file=output)
    yield from (part.encode() for part in parts)


# -- measuring


class _Stats:
    """Counts and latencies in milliseconds, in total and since the last line. Not thread-safe."""

    def __init__(
        self, clock: Clock, records: int, interval_ms: int, steady: bool = False, lines: TextIO | None = None
    ) -> None:
        self._lines = lines
        self._clock = clock
        self._interval = interval_ms / 1000
        self._every = max(1, records // KEPT_LATENCIES)
        self._steady = steady
        self._start = self._window_start = clock.monotonic()
        self._latencies: list[int] = []
        self._count = self._bytes = self._total_ms = self._max_ms = 0
        self._window = [0, 0, 0, 0]
        self.quiet = False

    def record(self, size: int, latency_ms: int, now: float) -> None:
        if self._count % self._every == 0:
            self._latencies.append(latency_ms)
        self._count += 1
        self._bytes += size
        self._total_ms += latency_ms
        self._max_ms = max(self._max_ms, latency_ms)
        window = self._window
        window[0] += 1
        window[1] += size
        window[2] += latency_ms
        window[3] = max(window[3], latency_ms)
        if now - self._window_start >= self._interval:
            self._report(now)

    def _report(self, now: float) -> None:
        count, size, total, max_ms = self._window
        seconds = max(now - self._window_start, 0.001)
        if self._steady and count == self._count:
            print("In steady state.", file=self._lines)
        if not self.quiet:
            print(
                f"{count} records sent, {count / seconds:.1f} records/sec ({size / seconds / MEGABYTE:.2f} MB/sec), "
                f"{total / count:.1f} ms avg latency, {max_ms:.1f} ms max latency.",
                file=self._lines,
                flush=True,
            )
        self._window, self._window_start = [0, 0, 0, 0], now

    def rate(self) -> SendingRate:
        from sparklog.cli.output.documents import Latencies, SendingRate

        seconds = max(self._clock.monotonic() - self._start, 0.001)
        ordered = sorted(self._latencies) or [0]
        p50, p95, p99, p999 = percentiles(ordered, 0.5, 0.95, 0.99, 0.999)
        return SendingRate(
            records=self._count,
            size_bytes=self._bytes,
            seconds=seconds,
            records_per_second=self._count / seconds,
            mb_per_second=self._bytes / seconds / MEGABYTE,
            latency_ms=Latencies(
                avg=self._total_ms / max(self._count, 1), max=self._max_ms, p50=p50, p95=p95, p99=p99, p999=p999
            ),
        )


def _total(rate: SendingRate, steady: bool) -> str:
    latency = rate.latency_ms
    return (
        f"{rate.records}{' steady state' if steady else ''} records sent, {rate.records_per_second:f} "
        f"records/sec ({rate.mb_per_second:.2f} MB/sec), "
        f"{latency.avg:.2f} ms avg latency, {latency.max:.2f} ms max latency, "
        f"{latency.p50} ms 50th, {latency.p95} ms 95th, {latency.p99} ms 99th, {latency.p999} ms 99.9th."
    )


class _Run:
    """A measurement. It checks futures in the order of sending, between two records and while waiting: several times as
    fast as callbacks. Not thread-safe."""

    def __init__(
        self, options: argparse.Namespace, producer: Producer, payloads: _Payloads, clock: Clock, stop: StopRequest
    ) -> None:
        self._options = options
        self._producer = producer
        self._payloads = payloads
        self._clock = clock
        self._stop = stop
        self._pending: deque[tuple[FutureRecordMetadata, float, int, list[_Stats]]] = deque()
        self._lines = sys.stderr if options.json else sys.stdout
        self.stats = [_Stats(clock, options.num_records, options.reporting_interval, lines=self._lines)]
        self.failed = 0

    def send_all(self, transaction_ms: int | None) -> None:
        options, producer, clock = self._options, self._producer, self._clock
        throttle = RateLimit(clock, options.throughput, self._stop, self.check_futures)
        in_transaction, transaction_start = 0, 0.0
        for number in range(options.num_records):
            if self._stop:
                break
            if transaction_ms is not None and not in_transaction:
                producer.begin_transaction()
                transaction_start = clock.monotonic()
            if number == options.warmup_records > 0:
                remaining = options.num_records - number
                self.stats[0].quiet = True
                steady = _Stats(clock, remaining, options.reporting_interval, steady=True, lines=self._lines)
                self.stats = [self.stats[0], steady]
            value = self._payloads.value(number)
            start = clock.monotonic()
            future = producer.send(options.topic, value, self._payloads.key(number))
            self._pending.append((future, start, len(value), self.stats))
            in_transaction += 1
            if transaction_ms is not None and (start - transaction_start) * 1000 >= transaction_ms:
                producer.commit_transaction()
                in_transaction = 0
            self.check_futures()
            throttle.wait(number + 1)
        if transaction_ms is not None and in_transaction:
            producer.commit_transaction()

    def check_futures(self) -> None:
        pending = self._pending
        if not pending or not pending[0][0].is_done:
            return
        now = self._clock.monotonic()
        while pending and pending[0][0].is_done:
            future, start, size, stats = pending.popleft()
            if future.exception is not None:
                self._count_failure(future.exception)
                continue
            for entry in stats:
                entry.record(size, int((now - start) * 1000), now)

    def finish(self) -> None:
        """Wait for all records that were sent, and close the producer."""
        closing = threading.Thread(target=self._producer.close, name="sparklog-perf-close")
        closing.start()
        while closing.is_alive():
            self.check_futures()
            closing.join(POLL_SECONDS)
        self.check_futures()

    def _count_failure(self, error: BaseException) -> None:
        self.failed += 1
        if self.failed <= SHOWN_ERRORS:
            complain(f"{type(error).__name__}: {error}")


def _measure(
    options: argparse.Namespace, producer: Producer, payloads: _Payloads, clock: Clock, transaction_ms: int | None
) -> int:
    if options.warmup_records > 0 and not options.json:
        print(
            f"Warmup first {options.warmup_records} records. Steady state results will print after the complete test "
            "summary."
        )
    if transaction_ms is not None:
        producer.init_transactions()
    with StopRequest() as stop:
        measurement = _Run(options, producer, payloads, clock, stop)
        measurement.send_all(transaction_ms)
        measurement.finish()
    _print(options, measurement, producer)
    if measurement.failed:
        complain(f"{measurement.failed} records could not be sent")
        return 1
    return stop.exit_code


def _print(options: argparse.Namespace, measurement: _Run, producer: Producer) -> None:
    from sparklog.cli.output.documents import ProducerPerformance

    rates = [stats.rate() for stats in measurement.stats]
    if options.json:
        steady = rates[1] if len(rates) > 1 else None
        metrics = metrics_of(producer, options)
        print_json(ProducerPerformance(total=rates[0], steady_state=steady, failed=measurement.failed, metrics=metrics))
        return
    for number, rate in enumerate(rates):
        print(_total(rate, steady=number > 0))
