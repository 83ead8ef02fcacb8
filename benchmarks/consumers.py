"""Consumers: records and Arrow batches per second, the time to a waiting consumer, rebalances, and the cost of waiting.

The rates are figures of this machine; kafka-python with a broker on one like it iterates 65,000 records of 100 bytes a
second, librdkafka 2.0 million when tuned. Records are written once and read from the page cache.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, sleep

import pyarrow as pa

from benchmarks.measure import Figure, Settings, median, milliseconds, percentile, scratch
from sparklog.client.consumer.consumer import Consumer
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.group_member import GroupMember
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore
from sparklog.testing.records import Record, append_records

VALUE_BYTES = 100
PARTITIONS = 4
BATCH_RECORDS = 9000

ITERATION_TARGET = 455_000
BATCHES_TARGET = 5_000_000
LATENCY_TARGET_SECONDS = 0.020
REBALANCE_TARGET_SECONDS = 0.100
REBALANCE_COMMITS = 2
IDLE_REQUESTS_TARGET = 2.0


def run(settings: Settings) -> list[Figure]:
    with scratch("consumers") as folder:
        root = folder / "cluster"
        coordinator = create_cluster(str(root))
        records = write_topic(coordinator, settings.rows // 2)
        figures = [
            rate("iteration over a Consumer", records, settings, ITERATION_TARGET, lambda: iterate(root, records)),
            rate("poll(), 500 records at a time", records, settings, 0, lambda: poll(root, records)),
            rate("poll_batches()", records, settings, BATCHES_TARGET, lambda: poll_batches(root, records)),
            latency(root, 50 if settings.quick else 200),
        ]
    with scratch("rebalance") as folder:
        figures += rebalances(create_cluster(str(folder / "cluster")), 3 if settings.quick else 10)
    return [*figures, *idle(10 if settings.quick else 30)]


# -- rates


def write_topic(coordinator: Coordinator, records: int) -> int:
    """A topic of values of 100 bytes, and how many there are: whole batches of about 1 MiB."""
    coordinator.create_topic("events", PARTITIONS)
    data = os.urandom(VALUE_BYTES * BATCH_RECORDS)
    ends = pa.array(range(0, len(data) + 1, VALUE_BYTES), pa.int32())
    column = pa.Array.from_buffers(pa.binary(), BATCH_RECORDS, [None, ends.buffers()[1], pa.py_buffer(data)])
    stamps = pa.array([1_700_000_000_000_000] * BATCH_RECORDS, pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([column, stamps], names=["value", "timestamp"])
    batches = max(1, records // PARTITIONS // BATCH_RECORDS)
    runs: list[PartitionAppend] = []
    for partition in range(PARTITIONS):
        key = segment_key("events", partition, 0, coordinator.state.version, coordinator.log.ids.write_id())
        writer = SegmentFileWriter(coordinator.store, key, has_key=False)
        writer.start_run(RunTarget("events", coordinator.state.topic("events").topic_id, partition))
        for _ in range(batches):
            writer.write(batch)
        runs += writer.finish()
    coordinator.append(AppendRequest(appends=runs))
    return batches * BATCH_RECORDS * PARTITIONS


def rate(name: str, records: int, settings: Settings, target: int, action: Callable[[], float]) -> Figure:
    action()
    samples = [action() for _ in range(settings.runs)]
    value = records / median(samples)
    return Figure(
        name,
        f"{value / 1e6:.2f} M records/s",
        f"{VALUE_BYTES} B values",
        None,
        f">= {target / 1e6:.3g} M/s" if target else "",
        value >= target if target else None,
        f"{records / max(samples) / 1e6:.2f} to {records / min(samples) / 1e6:.2f}",
        {"seconds": samples},
    )


def iterate(root: Path, records: int) -> float:
    with Consumer("events", bootstrap_servers=str(root), auto_offset_reset="earliest") as consumer:
        start = perf_counter()
        left = records
        for _ in consumer:
            left -= 1
            if not left:
                return perf_counter() - start
    raise AssertionError("the consumer ended early")


def poll(root: Path, records: int) -> float:
    with Consumer("events", bootstrap_servers=str(root), auto_offset_reset="earliest") as consumer:
        start, seen = perf_counter(), 0
        while seen < records:
            seen += sum(map(len, consumer.poll(1000).values()))
        return perf_counter() - start


def poll_batches(root: Path, records: int) -> float:
    with Consumer("events", bootstrap_servers=str(root), auto_offset_reset="earliest") as consumer:
        start, seen = perf_counter(), 0
        while seen < records:
            seen += sum(found.batch.num_rows for found in consumer.poll_batches(1000))
        return perf_counter() - start


# -- latency


def latency(root: Path, runs: int) -> Figure:
    """From the call that sends one record to the poll that returns it; the sender has a coordinator of its own, and
    the consumer has been waiting for 50 ms."""
    sender = open_cluster(str(root))
    sender.create_topic("single", 1)
    samples: list[float] = []
    with Consumer("single", cluster=open_cluster(str(root)), auto_offset_reset="latest") as consumer:
        consumer.poll(50)
        for _ in range(runs):
            sent: list[float] = []
            thread = threading.Thread(target=send_one, args=(sender, sent))
            thread.start()
            assert consumer.poll(10_000), "the record did not come"
            samples.append(perf_counter() - sent[0])
            thread.join()
    return Figure(
        "one record to a waiting consumer, fsync",
        milliseconds(median(samples)),
        "",
        None,
        f"<= {milliseconds(LATENCY_TARGET_SECONDS)}",
        median(samples) <= LATENCY_TARGET_SECONDS,
        f"p99 {milliseconds(percentile(samples, 99))}",
        {"seconds": samples},
    )


def send_one(sender: Coordinator, sent: list[float]) -> None:
    sleep(0.05)
    sent.append(perf_counter())
    append_records(sender, "single", [Record(value=b"x" * VALUE_BYTES)])


# -- rebalances


def rebalances(coordinator: Coordinator, runs: int) -> list[Figure]:
    coordinator.create_topic("wide", 1000)
    with ThreadPoolExecutor(100) as pool:
        return [rebalance(coordinator, pool, name, runs) for name in ("cooperative-sticky", "range")]


def rebalance(coordinator: Coordinator, pool: ThreadPoolExecutor, assignor: str, runs: int) -> Figure:
    """Measure 100 members of one process and 1,000 partitions: one member joins, then one leaves, each until stable."""

    def join() -> GroupMember:
        member = GroupMember(coordinator, f"g-{assignor}", assignors=(assignor,))
        member.join(["wide"])
        return member

    members = list(pool.map(lambda _: join(), range(100)))
    settle(pool, members)
    samples: list[float] = []
    commits: list[int] = []
    for number in range(2 * runs):
        version, start = coordinator.state.version, perf_counter()
        if number % 2:
            members.pop(50).leave()
        else:
            members.append(join())
        settle(pool, members)
        samples.append(perf_counter() - start)
        commits.append(coordinator.state.version - version)
    for member in members:
        member.leave()
    return Figure(
        f"rebalance, 100 members, 1,000 partitions, {assignor}",
        f"{milliseconds(median(samples))}, {median([float(count) for count in commits]):g} commits",
        "",
        None,
        f"<= {milliseconds(REBALANCE_TARGET_SECONDS)}, {REBALANCE_COMMITS} commits",
        median(samples) <= REBALANCE_TARGET_SECONDS and sorted(commits)[len(commits) // 2] <= REBALANCE_COMMITS,
        f"slowest {milliseconds(max(samples))}, most {max(commits)} commits",
        {"seconds": samples},
    )


def settle(pool: ThreadPoolExecutor, members: list[GroupMember]) -> None:
    while True:
        waiting = [member for member in members if member.reconcile().to_acknowledge]
        if not waiting:
            return
        list(pool.map(GroupMember.acknowledge, waiting))


# -- waiting


def idle(seconds: int) -> list[Figure]:
    """Count the requests of an idle consumer on a storage that is treated as an object store."""
    figures = []
    for group in (None, "g"):
        store = FaultyStore(MemoryStore(f"idle-{group}"))
        create_cluster(store).create_topic("quiet", 4)
        with Consumer(
            "quiet", cluster=open_cluster(store), group_id=group, tail_backoff_max_ms=1000, enable_auto_commit=True
        ) as consumer:
            consumer.poll(15_000)  # until the back-off is at its longest
            store.reset_counts()
            start = perf_counter()
            consumer.poll(seconds * 1000)
            requests = sum(store.counts.values()) / (perf_counter() - start)
            counts = ", ".join(f"{name} {count}" for name, count in sorted(store.counts.items()))
        figures.append(
            Figure(
                f"requests of an idle consumer {'in a group' if group else 'without a group'}",
                f"{requests:.2f} requests/s",
                "",
                None,
                f"<= {IDLE_REQUESTS_TARGET:g}/s",
                requests <= IDLE_REQUESTS_TARGET,
                counts,
            )
        )
    return figures
