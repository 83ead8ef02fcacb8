"""Measure the producer: records one by one and by columns, one record sent and flushed, and 16 processes at once.

Targets for records are multiples of kafka-python's 42,000 records/s with a broker on the same machine. The reference of
the columns is the same bytes written to a file and synced; that of a flushed record is a file made durable.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.commit import durable_create
from benchmarks.measure import (
    ROOT,
    Figure,
    Settings,
    interleaved,
    median,
    milliseconds,
    percentile,
    rate,
    scratch,
    where_time_goes,
)
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster, open_cluster

VALUE = bytes(range(100))
KAFKA_PYTHON = 42_000
"""records/s of 100 bytes that kafka-python produces to a broker on the same machine."""
PROCESSES = 16
PARTITIONS = 4


def run(settings: Settings) -> list[Figure]:
    with scratch("clients") as folder:
        create_cluster(str(folder / "log")).create_topic("records", PARTITIONS)
        with Producer(bootstrap_servers=str(folder / "log")) as producer:
            latency = _latency(producer, folder, settings)  # first: the disk is busy for long after the others
            processes = _processes(settings)
            return [*_rates(producer, folder, settings), latency, processes]


# -- rates


def _rates(producer: Producer, folder: Path, settings: Settings) -> list[Figure]:
    rows = 1_000_000 if settings.quick else 2_000_000
    records = rows // 4
    values = pa.array([VALUE] * rows, pa.binary())
    keys = pa.array([b"key-%d" % (number % 10_000) for number in range(rows)], pa.binary())
    tables = {"columns": pa.table({"value": values}), "columns with keys": pa.table({"key": keys, "value": values})}

    def send() -> None:
        for _ in range(records):
            producer.send("records", VALUE)
        producer.flush()

    def send_table(table: pa.Table) -> None:
        future = producer.send_batch("records", table)
        producer.flush()
        assert future.succeeded()

    samples = interleaved(
        3 if settings.quick else 5,
        {
            "send": send,
            **{name: lambda table=table: send_table(table) for name, table in tables.items()},  # type: ignore[misc]
            "raw": lambda: _write_raw(folder / "raw", rows * len(VALUE)),
        },
    )
    raw = f"bytes written and synced {rate(rows, median(samples['raw']))}"
    ratio = (records / median(samples["send"])) / KAFKA_PYTHON
    return [
        Figure(
            "send() of 100 bytes, flushed",
            rate(records, median(samples["send"])),
            f"kafka-python {KAFKA_PYTHON:,} records/s",
            ratio,
            ">= 5",
            ratio >= 5,
            samples=samples,
        ),
        *(_columns(name, rows, samples, raw) for name in tables),
    ]


def _columns(name: str, rows: int, samples: dict[str, list[float]], raw: str) -> Figure:
    seconds = median(samples[name])
    return Figure(
        f"send_batch() of 100 bytes by {name}, flushed",
        rate(rows, seconds),
        raw,
        median(samples["raw"]) / seconds,
        ">= 2 M rows/s",
        rows / seconds >= 2e6,
    )


def _write_raw(path: Path, size: int) -> None:
    chunk = bytes(1024 * 1024)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(size // len(chunk)):
        os.write(file, chunk)
    os.fsync(file)
    os.close(file)
    path.unlink()


# -- latency


def _latency(producer: Producer, folder: Path, settings: Settings) -> Figure:
    (folder / "durable").mkdir()

    def one() -> None:
        producer.send("records", VALUE)
        producer.flush()

    sides = {"one": one, "raw": lambda: durable_create(folder / "durable", VALUE)}
    samples = interleaved(100 if settings.quick else 1000, sides, warm=20)
    seconds = median(samples["one"])
    return Figure(
        "one record sent and flushed",
        f"{milliseconds(seconds)} (p99 {milliseconds(percentile(samples['one'], 99))})",
        f"durable create {milliseconds(median(samples['raw']))}",
        median(samples["raw"]) / seconds,
        "<= 2 ms",
        seconds <= 0.002,
        _where(folder),
        samples,
    )


def _where(folder: Path) -> str:
    """Do in this thread, where it can be profiled, what the producer's own thread does with one record."""
    with Producer(bootstrap_servers=str(folder / "log"), linger_ms=60_000) as producer:

        def deliver() -> None:
            producer.send("records", VALUE)
            producer._sender.deliver(producer._accumulator.take())

        return where_time_goes(lambda: [deliver() for _ in range(200)])


# -- processes


def _processes(settings: Settings) -> Figure:
    """Let each process repeatedly send a record and wait for it: every record is a commit."""
    seconds = 3 if settings.quick else 10
    with scratch("producers") as folder:
        create_cluster(str(folder)).create_topic("records", PARTITIONS)
        words = [sys.executable, "-m", "benchmarks.clients", str(folder), str(seconds)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        started = [subprocess.Popen(words, cwd=ROOT, **pipes) for _ in range(PROCESSES)]  # type: ignore[call-overload]
        for process in started:
            assert process.stdout.readline() == "ready\n"
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [json.loads(process.communicate()[0]) for process in started]
        counts, failed = [one["sent"] for one in found], sum(one["failed"] for one in found)
        sent = sum(counts)
        state = open_cluster(str(folder)).state
        stored = sum(partition.log_end_offset for partition in state.topic("records").partitions)
        assert stored == sent + PROCESSES, f"{stored} records in the log, {sent} acknowledged"
    return Figure(
        f"producers in {PROCESSES} processes, a commit for each record",
        f"{sent / seconds:,.0f} commits/s, {failed} failed",
        f"each {min(counts) / seconds:,.0f} to {max(counts) / seconds:,.0f}",
        None,
        ">= 500, 0 failed",
        sent / seconds >= 500 and not failed,
    )


def main(folder: str, seconds: str) -> None:
    """One of the processes."""
    with Producer(bootstrap_servers=folder) as producer:
        producer.send("records", VALUE).get()
        print("ready", flush=True)
        sys.stdin.readline()
        sent = failed = 0
        end = time.perf_counter() + float(seconds)
        while time.perf_counter() < end:
            future = producer.send("records", VALUE)
            producer.flush()
            sent, failed = sent + future.succeeded(), failed + future.failed()
    print(json.dumps({"sent": sent, "failed": failed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
