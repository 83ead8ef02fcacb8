"""The Python clients against a real Kafka broker on this machine and its clients: kafka-python, and librdkafka below
confluent-kafka. Prints a table and writes JSON below artifacts/benchmarks/.

make bench-kafka                                     everything, minutes on 2 idle cores
.venv/bin/python benchmarks/kafka_peer.py --quick    fewer records and runs, for a look

Values have 100 bytes, topics 4 partitions, nothing is compressed, and every client waits for acks=all. Each reads what
its own kind has written. kafka-python has its default settings, librdkafka those with which it was fastest. The broker
leaves syncing to the system, as Kafka does by default; sparklog has its files synced before it acknowledges.

Without Maven or Java 17 nothing is measured, and the exit code is 0; without confluent-kafka its side is left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import (
    Figure,
    Settings,
    interleaved,
    median,
    milliseconds,
    percentile,
    print_table,
    scratch,
    speed_ratio,
    spread,
)
from benchmarks.run import write_json
from scripts.servers import kafka as broker
from scripts.servers.common import ServerFailed, Skipped
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster

VALUE = bytes(range(100))
PARTITIONS = 4
MESSAGES_AT_ONCE = 1_000
"""Of librdkafka's consume(): more, or larger fetches, are not faster. Nor is produce_batch() than produce()."""

TOPICS: Mapping[str, Mapping[str, str]] = {
    "records": {},
    "records-to-read": {},
    "columns": {},
    "columns-to-read": {},
    "one": {},
    "one-synced": {"flush.messages": "1"},
}
"""Topics of the broker, with their configs; the log has the same, whose records are synced in any case."""

OURS, KAFKA_PYTHON, LIBRDKAFKA = "sparklog", "kafka-python", "librdkafka"
Side = Callable[[], object]


class Peer:
    """What is measured: the broker at ``address``, a log in ``folder``, and a producer of each kind.

    Not thread-safe. Consumers are opened for each run and closed after it, so that none reads ahead, or looks for new
    records, in the time of another.
    """

    def __init__(self, stack: ExitStack, address: str, folder: Path, settings: Settings, lacking: str) -> None:
        import kafka  # only now is its folder on sys.path

        self.kafka = kafka
        self.address = address
        self.root = str(folder / "log")
        self.lacking = lacking
        """Why there is no librdkafka, if there is none."""
        self.quick = settings.quick
        self.runs = 3 if settings.quick else settings.runs
        cluster = create_cluster(self.root)
        for topic in TOPICS:
            cluster.create_topic(topic, PARTITIONS)
        with closing(kafka.KafkaAdminClient(bootstrap_servers=address)) as admin:
            topics = {name: {"num_partitions": PARTITIONS, "configs": configs} for name, configs in TOPICS.items()}
            admin.create_topics(topics, wait_for_metadata=True)
        self.ours = stack.enter_context(Producer(bootstrap_servers=self.root))
        self.theirs = stack.enter_context(closing(kafka.KafkaProducer(bootstrap_servers=address)))
        self.sent: dict[str, int] = {}
        """Records sent to each topic of the broker."""

    def count(self, topic: str, rows: int) -> None:
        self.sent[topic] = self.sent.get(topic, 0) + rows

    def check(self) -> None:
        """What the broker has is what was sent to it: flush() of its clients says nothing of failed records."""
        with closing(self.kafka.KafkaConsumer(bootstrap_servers=self.address)) as consumer:
            for topic, rows in self.sent.items():
                places = [self.kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
                stored = sum(consumer.end_offsets(places).values())
                assert stored == rows, f"the broker has {stored} records of {topic}, {rows} were sent"


def run(address: str, settings: Settings, only: Sequence[str]) -> list[Figure]:
    """The figures of these parts. Installs kafka-python, and confluent-kafka if that is to be had."""
    sys.path.append(str(broker.install_client("kafka-python")))
    reason = ""
    try:
        sys.path.append(str(broker.install_client("confluent-kafka")))
    except Skipped as error:
        reason = str(error)
    with scratch("kafka-peer") as folder, ExitStack() as stack:
        peer = Peer(stack, address, folder, settings, reason)
        figures = [PARTS[part](peer) for part in only]
        peer.check()
    return figures


# -- records, against kafka-python


def _send(peer: Peer) -> Figure:
    rows = 50_000 if peer.quick else 200_000
    sides = {
        OURS: lambda: _send_each(peer.ours, "records", rows),
        KAFKA_PYTHON: lambda: _send_each_to_broker(peer, "records", rows),
    }
    return _figure("send() of 100 bytes, flushed", rows, interleaved(peer.runs, sides), KAFKA_PYTHON, ratio=5)


def _send_each(producer: Any, topic: str, rows: int) -> None:
    send = producer.send
    for _ in range(rows):
        send(topic, VALUE)
    producer.flush()


def _send_each_to_broker(peer: Peer, topic: str, rows: int) -> None:
    _send_each(peer.theirs, topic, rows)
    peer.count(topic, rows)


def _iterate(peer: Peer) -> Figure:
    rows, topic = (50_000 if peer.quick else 200_000), "records-to-read"
    _send_each(peer.ours, topic, rows)
    _send_each_to_broker(peer, topic, rows)
    sides = {
        OURS: lambda: _read_each(Consumer, peer.root, topic, rows),
        KAFKA_PYTHON: lambda: _read_each(peer.kafka.KafkaConsumer, peer.address, topic, rows),
    }
    return _figure("iteration over a Consumer", rows, interleaved(peer.runs, sides), KAFKA_PYTHON, ratio=7)


def _read_each(consumer_class: Any, servers: str, topic: str, rows: int) -> float:
    """Seconds from the first request to the last record; connecting and closing are not counted."""
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(consumer_class(topic, bootstrap_servers=servers, **options)) as consumer:
        start, left, size = time.perf_counter(), rows, 0
        for record in consumer:
            size += len(record.value)
            left -= 1
            if not left:
                break
        seconds = time.perf_counter() - start
    assert size == rows * len(VALUE)
    return seconds


def _one(peer: Peer) -> Figure:
    synced = f"{KAFKA_PYTHON}, each record synced"
    sides = {
        OURS: lambda: _send_each(peer.ours, "one", 1),
        KAFKA_PYTHON: lambda: _send_each_to_broker(peer, "one", 1),
        synced: lambda: _send_each_to_broker(peer, "one-synced", 1),
    }
    samples = interleaved(100 if peer.quick else 500, sides, warm=50)
    seconds = median(samples[OURS])
    return Figure(
        "one record sent and flushed",
        f"{milliseconds(seconds)} (p99 {milliseconds(percentile(samples[OURS], 99))})",
        f"{KAFKA_PYTHON} {milliseconds(median(samples[KAFKA_PYTHON]))}, synced {milliseconds(median(samples[synced]))}",
        speed_ratio(samples, OURS, KAFKA_PYTHON),
        "<= 2 ms",
        seconds <= 0.002,
        samples=samples,
    )


# -- columns, against librdkafka


def _send_batch(peer: Peer) -> Figure:
    rows = 500_000 if peer.quick else 2_000_000
    table = _table(rows)
    with ExitStack() as stack:
        sides: dict[str, Side] = {OURS: lambda: _send_table(peer.ours, "columns", table)}
        if not peer.lacking:
            producer = stack.enter_context(_librdkafka_producer(peer))
            sides[LIBRDKAFKA] = lambda: _produce(peer, producer, "columns", rows)
        samples = interleaved(peer.runs, sides)
    return _figure("send_batch() of 100 bytes, flushed", rows, samples, LIBRDKAFKA, 1, 2e6, peer.lacking)


def _table(rows: int) -> pa.Table:
    return pa.table({"value": pa.array([VALUE] * rows, pa.binary())})


def _send_table(producer: Producer, topic: str, table: pa.Table) -> None:
    future = producer.send_batch(topic, table)
    producer.flush()
    assert future.succeeded()


@contextmanager
def _librdkafka_producer(peer: Peer) -> Iterator[Any]:
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": peer.address,
            "acks": "all",
            "linger.ms": 20,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    yield producer
    producer.flush()


def _produce(peer: Peer, producer: Any, topic: str, rows: int) -> None:
    """Without a callback, which would take longer than all else."""
    produce = producer.produce
    for _ in range(rows):
        produce(topic, VALUE)
    left = producer.flush()
    assert not left, f"{left} records are not delivered"
    peer.count(topic, rows)


def _poll_batches(peer: Peer) -> Figure:
    rows, topic = (500_000 if peer.quick else 2_000_000), "columns-to-read"
    _send_table(peer.ours, topic, _table(rows))
    sides: dict[str, Side] = {OURS: lambda: _read_batches(peer.root, topic, rows)}
    if not peer.lacking:
        with _librdkafka_producer(peer) as producer:
            _produce(peer, producer, topic, rows)
        sides[LIBRDKAFKA] = lambda: _consume(peer.address, topic, rows)
    samples = interleaved(peer.runs, sides)
    return _figure("poll_batches() of 100 bytes", rows, samples, LIBRDKAFKA, 1, 5e6, peer.lacking)


def _read_batches(root: str, topic: str, rows: int) -> float:
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(Consumer(topic, bootstrap_servers=root, **options)) as consumer:
        start, left = time.perf_counter(), rows
        while left:
            left -= sum(found.batch.num_rows for found in consumer.poll_batches(timeout_ms=1000))
        return time.perf_counter() - start


def _consume(address: str, topic: str, rows: int) -> float:
    import confluent_kafka

    settings = {
        "bootstrap.servers": address,
        "group.id": "bench",
        "enable.auto.commit": False,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 1_000_000,
        "fetch.message.max.bytes": 16 * 1024 * 1024,
    }
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.list_topics(topic)  # connected, as the others are when their clock starts
        start, left = time.perf_counter(), rows
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while left:
            found = consumer.consume(min(left, MESSAGES_AT_ONCE), 10.0)
            assert found, f"{left} of {rows} records did not come"
            assert found[-1].error() is None, found[-1].error()
            left -= len(found)
        return time.perf_counter() - start


# -- figures


def _figure(
    name: str,
    rows: int,
    samples: dict[str, list[float]],
    reference: str,
    ratio: float,
    least: float = 0,
    reason: str = "",
) -> Figure:
    """``ratio`` is the target against the reference, ``least`` one in records/s beside it."""
    seconds = median(samples[OURS])
    target = f">= {ratio:g}" + (f", >= {least / 1e6:g} M records/s" if least else "")
    met = rows / seconds >= least
    if reason:
        return Figure(name, _rate(rows, seconds), f"none: {reason}", None, target, met and None, samples=samples)
    found = speed_ratio(samples, OURS, reference)
    return Figure(
        name,
        _rate(rows, seconds),
        f"{reference} {_rate(rows, median(samples[reference]))}",
        found,
        target,
        met and found >= ratio,
        f"neighbouring runs {spread(samples, OURS, reference)}",
        samples,
    )


def _rate(rows: int, seconds: float) -> str:
    return f"{rows / seconds:,.0f} records/s"


PARTS: Mapping[str, Callable[[Peer], Figure]] = {
    "send": _send,
    "iterate": _iterate,
    "one": _one,
    "send_batch": _send_batch,
    "poll_batches": _poll_batches,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer records and runs")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="one part; may be repeated")
    parser.add_argument("--runs", type=int, help="runs of each side of a comparison")
    arguments = parser.parse_args()
    settings = Settings(runs=arguments.runs or 5, quick=arguments.quick)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the broker's folder goes too
    try:
        with broker.server() as environment:
            figures = run(environment["SPARKLOG_BENCH_KAFKA"], settings, arguments.only or list(PARTS))
    except Skipped as reason:
        print(f"skipped: {reason}")
        return 0
    except ServerFailed as reason:
        print(f"failed: {reason}", file=sys.stderr)
        return 1
    print_table(figures)
    print(f"\nwritten to {write_json(figures, dataclasses.replace(settings, rows=0))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
