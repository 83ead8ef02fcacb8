"""``sparklog producer-perf-test``: Kafka's kafka-producer-perf-test, on the Python producer.

A record's latency is the time from ``send`` to its commit; in a transaction, to the transaction's commit. Payloads are
letters that depend on the seed alone, so that two runs send the same.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from sparklog.cli.client_properties import add_properties, client_arguments, read_properties
from sparklog.cli.common import CommandParser, UsageError, bootstrap_server, complain, require
from sparklog.cli.json_output import add_json, metrics_of, print_json
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.documents import SendingRate
    from sparklog.cli.throughput import StopRequest
    from sparklog.client.futures import FutureRecordMetadata
    from sparklog.client.producer import Producer
    from sparklog.clock import Clock

MEGABYTE = 1024 * 1024
KEPT_LATENCIES = 500_000
"""Of so many records at most the latency is kept, evenly spread; percentiles are taken of these."""
SHOWN_ERRORS = 5
SHORTEST_WAIT_SECONDS = 0.001
"""Between two looks at the futures while nothing is sent: the exactness of a latency."""
DEFAULT_TRANSACTION_MS = 3000
CLIENT_ID = "perf-producer-client"
_LETTERS = bytes(65 + byte % 26 for byte in range(256))


def parser() -> CommandParser:
    options = CommandParser(
        "producer-perf-test",
        "Send records as fast as the producer can, or at a rate, and print records/sec, MB/sec and latencies.",
        "sparklog producer-perf-test --bootstrap-server /data/log --topic orders --num-records 1000000 \\\n"
        "      --record-size 100 --throughput -1 --command-property linger.ms=5 batch.size=262144",
        "--topic TOPIC --num-records N --throughput N [OPTIONS]",
    )
    options.add_connection()
    options.add_argument("--topic", metavar="TOPIC", help="the topic to send to")
    options.add_argument("--num-records", metavar="N", type=int, help="how many records")
    options.add_argument("--throughput", metavar="N", type=float, help="at most N records a second, or -1")
    payload = options.add_argument_group("What is sent (exactly one)")
    payload.add_argument("--record-size", metavar="BYTES", type=int, help="length of the values")
    payload.add_argument("--payload-file", metavar="FILE", help="values from this UTF-8 file, in random order")
    payload.add_argument("--payload-monotonic", action="store_true", help="0, 1, 2, … as text")
    options.add_argument("--payload-delimiter", metavar="TEXT", default="\\n", help="between values in the file (\\n)")
    options.add_argument("--record-key-range", metavar="N", type=int, help="keys are 0 to N-1")
    options.add_argument(
        "--key-distribution", metavar="KIND", default="none", choices=("none", "range", "random"),
        help="no keys (none), one after the other (range), or random",
    )  # fmt: skip
    options.add_argument("--random-seed", metavar="SEED", type=int, default=0, help="of payloads and keys (0)")
    add_properties(options, "--producer.config", "linger.ms, batch.size, acks", "--producer-props")
    options.add_argument("--print-metrics", action="store_true", help="print the producer's metrics at the end")
    options.add_argument("--transactional-id", metavar="ID", help="send in transactions with this id")
    options.add_argument(
        "--transaction-duration-ms", metavar="MS", type=int, help="send in transactions that are committed so often"
    )
    options.add_argument("--warmup-records", metavar="N", type=int, default=0, help="results also without the first N")
    options.add_argument("--reporting-interval", metavar="MS", type=int, default=5000, help="between lines (5000)")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    _check(options)
    properties = read_properties(options)
    root, storage_options = bootstrap_server(options)
    payloads = _Payloads(options)
    from sparklog.client.config import cluster_of
    from sparklog.client.producer import Producer
    from sparklog.client.producer_config import DEFAULTS

    arguments: dict[str, Any] = {"client_id": CLIENT_ID, **client_arguments(properties, DEFAULTS)}
    cluster = cluster_of("Producer", {"bootstrap_servers": root, "storage_options": storage_options})
    transaction_ms = _transaction_ms(options, arguments, cluster.log.ids.write_id)
    clock = cluster.log.clock
    with Producer(cluster=cluster, **arguments) as producer:
        code = _measure(options, producer, payloads, clock, transaction_ms)
        if options.print_metrics and not options.json:
            from sparklog.cli.throughput import print_metrics

            print_metrics(producer.metrics(), str(arguments["client_id"]))
        return code


# -- options


def _check(options: argparse.Namespace) -> None:
    require(options, "topic")
    for name in ("num-records", "throughput"):
        if getattr(options, name.replace("-", "_")) is None:
            raise UsageError(f'Missing required argument "[{name}]"')
    given = [options.record_size is not None, options.payload_file is not None, options.payload_monotonic]
    if sum(given) != 1:
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
        raise UsageError("--throughput 0 would send nothing; give -1 for no limit")
    if options.key_distribution != "none" and options.record_key_range is None:
        raise UsageError("--record-key-range is required when --key-distribution is 'range' or 'random'.")
    if options.key_distribution == "none" and options.record_key_range is not None:
        raise UsageError("--key-distribution must be 'range' or 'random' when --record-key-range is specified.")


def _transaction_ms(options: argparse.Namespace, arguments: dict[str, Any], new_id: Callable[[], str]) -> int | None:
    """How long a transaction lasts, None without transactions; a transactional id is put among the arguments."""
    chosen = options.transactional_id or arguments.get("transactional_id")
    if chosen is None and options.transaction_duration_ms is None:
        return None
    arguments["transactional_id"] = chosen or f"performance-producer-{new_id()}"
    return int(options.transaction_duration_ms or DEFAULT_TRANSACTION_MS)


class _Payloads:
    """Values and keys by the number of the record, the same ones for the same seed."""

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
        return hashlib.shake_128(self._seed + b"%d" % number).digest(self._size).translate(_LETTERS)

    def key(self, number: int) -> bytes | None:
        if self._keys == "range":
            return b"%d" % (number % self._key_range)
        return b"%d" % (self._draw(b"k", number) % self._key_range) if self._keys == "random" else None

    def _draw(self, what: bytes, number: int) -> int:
        return int.from_bytes(hashlib.shake_128(self._seed + what + b"%d" % number).digest(8), "big")


def _read_payloads(options: argparse.Namespace) -> Iterator[bytes]:
    path, delimiter = options.payload_file, options.payload_delimiter
    said = sys.stderr if options.json else sys.stdout
    print(f"Reading payloads from: {printable(path)}", file=said)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--payload-file: {path} cannot be read: {error}") from error
    if not text:
        raise UsageError("File does not exist or empty file provided.")
    delimiter = delimiter.replace("\\n", "\n").replace("\\t", "\t") or "\n"
    parts = text.split(delimiter)
    parts = parts[:-1] if parts[-1] == "" else parts
    print(f"Number of records read: {len(parts)}", file=said)
    yield from (part.encode() for part in parts)


# -- measuring


class _Stats:
    """Counts and latencies in milliseconds, in all and since the last line. Not thread-safe."""

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
        self._count = self._bytes = self._total_ms = self._longest_ms = 0
        self._window = [0, 0, 0, 0]
        self.quiet = False

    def record(self, size: int, latency_ms: int, now: float) -> None:
        if self._count % self._every == 0:
            self._latencies.append(latency_ms)
        self._count += 1
        self._bytes += size
        self._total_ms += latency_ms
        self._longest_ms = max(self._longest_ms, latency_ms)
        window = self._window
        window[0] += 1
        window[1] += size
        window[2] += latency_ms
        window[3] = max(window[3], latency_ms)
        if now - self._window_start >= self._interval:
            self._report(now)

    def _report(self, now: float) -> None:
        count, size, total, longest = self._window
        seconds = max(now - self._window_start, 0.001)
        if self._steady and count == self._count:
            print("In steady state.", file=self._lines)
        if not self.quiet:
            print(
                f"{count} records sent, {count / seconds:.1f} records/sec ({size / seconds / MEGABYTE:.2f} MB/sec), "
                f"{total / count:.1f} ms avg latency, {longest:.1f} ms max latency.",
                file=self._lines,
                flush=True,
            )
        self._window, self._window_start = [0, 0, 0, 0], now

    def rate(self) -> SendingRate:
        """All that was taken down, until now."""
        from sparklog.cli.documents import Latencies, SendingRate

        seconds = max(self._clock.monotonic() - self._start, 0.001)
        ordered = sorted(self._latencies) or [0]
        p50, p95, p99, p999 = (ordered[min(int(p * len(ordered)), len(ordered) - 1)] for p in (0.5, 0.95, 0.99, 0.999))
        return SendingRate(
            records=self._count,
            size_bytes=self._bytes,
            seconds=seconds,
            records_per_second=self._count / seconds,
            mb_per_second=self._bytes / seconds / MEGABYTE,
            latency_ms=Latencies(
                avg=self._total_ms / max(self._count, 1), max=self._longest_ms, p50=p50, p95=p95, p99=p99, p999=p999
            ),
        )


def _total(rate: SendingRate, steady: bool) -> str:
    """Kafka's last line."""
    late = rate.latency_ms
    return (
        f"{rate.records}{' steady state' if steady else ''} records sent, {rate.records_per_second:f} "
        f"records/sec ({rate.mb_per_second:.2f} MB/sec), "
        f"{late.avg:.2f} ms avg latency, {late.max:.2f} ms max latency, "
        f"{late.p50} ms 50th, {late.p95} ms 95th, {late.p99} ms 99th, {late.p999} ms 99.9th."
    )


class _Run:
    """One measurement. Futures are looked at in the order of sending, between two records and while waiting: that is
    several times as fast as a callback for each. Not thread-safe."""

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
        from sparklog.cli.throughput import Throttle

        options, producer, clock = self._options, self._producer, self._clock
        throttle = Throttle(clock, options.throughput, self._stop, self.look)
        in_transaction, began = 0, 0.0
        for number in range(options.num_records):
            if self._stop:
                break
            if transaction_ms is not None and not in_transaction:
                producer.begin_transaction()
                began = clock.monotonic()
            if number == options.warmup_records > 0:
                left = options.num_records - number
                self.stats[0].quiet = True
                steady = _Stats(clock, left, options.reporting_interval, steady=True, lines=self._lines)
                self.stats = [self.stats[0], steady]
            value = self._payloads.value(number)
            start = clock.monotonic()
            future = producer.send(options.topic, value, self._payloads.key(number))
            self._pending.append((future, start, len(value), self.stats))
            in_transaction += 1
            if transaction_ms is not None and (start - began) * 1000 >= transaction_ms:
                producer.commit_transaction()
                in_transaction = 0
            self.look()
            throttle.wait(number + 1)
        if transaction_ms is not None and in_transaction:
            producer.commit_transaction()

    def look(self) -> None:
        """Take down those that are committed or have failed by now."""
        pending = self._pending
        if not pending or not pending[0][0].is_done:
            return
        now = self._clock.monotonic()
        while pending and pending[0][0].is_done:
            future, start, size, stats = pending.popleft()
            if future.exception is not None:
                self._failure(future.exception)
                continue
            for one in stats:
                one.record(size, int((now - start) * 1000), now)

    def finish(self) -> None:
        """Wait for all that was sent, and close the producer."""
        closing = threading.Thread(target=self._producer.close, name="sparklog-perf-close")
        closing.start()
        while closing.is_alive():
            self.look()
            closing.join(SHORTEST_WAIT_SECONDS)
        self.look()

    def _failure(self, error: BaseException) -> None:
        self.failed += 1
        if self.failed <= SHOWN_ERRORS:
            complain(f"{type(error).__name__}: {error}")


def _measure(
    options: argparse.Namespace, producer: Producer, payloads: _Payloads, clock: Clock, transaction_ms: int | None
) -> int:
    from sparklog.cli.throughput import StopRequest

    if options.warmup_records > 0 and not options.json:
        print(
            f"Warmup first {options.warmup_records} records. Steady state results will print after the complete test "
            "summary."
        )
    if transaction_ms is not None:
        producer.init_transactions()
    with StopRequest() as stop:
        measured = _Run(options, producer, payloads, clock, stop)
        measured.send_all(transaction_ms)
        measured.finish()
    _print(options, measured, producer)
    if measured.failed:
        complain(f"{measured.failed} records could not be sent")
        return 1
    return stop.exit_code


def _print(options: argparse.Namespace, measured: _Run, producer: Producer) -> None:
    from sparklog.cli.documents import ProducerPerformance

    rates = [one.rate() for one in measured.stats]
    if options.json:
        steady = rates[1] if len(rates) > 1 else None
        metrics = metrics_of(producer, options)
        print_json(ProducerPerformance(total=rates[0], steady_state=steady, failed=measured.failed, metrics=metrics))
        return
    for number, rate in enumerate(rates):
        print(_total(rate, steady=number > 0))
