"""Measure history segments by the size of their row groups: bytes, full read, look-up, and Spark's own Parquet reader.

One partition of rows of 108 bytes and of JSON orders. The reference of the bytes and of sparklog's reader is the same
records in Arrow segments with zstd; that of Spark is the same records in row groups of 128 MiB.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.measure import Figure, Settings, interleaved, median, milliseconds, rate, scratch, speed_ratio, timed
from benchmarks.spark_session import spark_session
from sparklog.format import codecs, schema
from sparklog.format.index import decode_index
from sparklog.format.parquet.reader import ParquetSegmentReader
from sparklog.format.parquet.writer import ParquetSegmentWriter
from sparklog.format.segment_reader import SegmentReader
from sparklog.format.segment_writer import SegmentWriter

MIB = 1024 * 1024
SIZES = (MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 32 * MIB, 128 * MIB)
"""bytes of a row group, before it is encoded"""
START_US = 1_700_000_000_000_000

MakeRows = Callable[[int, int], Iterator[pa.RecordBatch]]
"""Number of rows, and bytes of a batch."""


def run(settings: Settings) -> list[Figure]:
    figures: list[Figure] = []
    with scratch("row-groups") as folder, spark_session(folder) as spark:
        for kind, make in (("plain", plain_rows), ("JSON", json_rows)):
            files = _Files(folder, kind, make, settings.rows // 4)
            figures += files.write()
            figures += files.read(settings.runs)
            figures += files.query(spark, settings.runs)
    return figures


class _Files:
    """The same records in one Arrow file, and in a Parquet file for each size of row groups."""

    def __init__(self, folder: Path, kind: str, make: MakeRows, rows: int) -> None:
        self._kind, self._make, self._rows = kind, make, rows
        self._arrow = folder / f"{kind}.log"
        self._parquet = {f"{size // MIB} MiB": folder / f"{kind}-{size}.parquet" for size in SIZES}

    def write(self) -> Iterator[Figure]:
        seconds = timed(lambda: write_arrow(self._arrow, self._make(self._rows, MIB)))
        size = self._arrow.stat().st_size
        yield Figure(f"{self._kind}, zstd Arrow: written", f"{size / MIB:.1f} MiB", where=f"{seconds:.1f} s")
        for (name, path), group_bytes in zip(self._parquet.items(), SIZES, strict=True):
            seconds = timed(partial(write_parquet, path, self._make(self._rows, group_bytes)))
            value, ratio = f"{path.stat().st_size / MIB:.1f} MiB", path.stat().st_size / size
            yield Figure(f"{self._kind}, {name}: written", value, "Arrow", ratio, where=f"{seconds:.1f} s")

    def read(self, runs: int) -> Iterator[Figure]:
        sides: dict[str, Callable[[], None]] = {
            name: partial(read_all, ParquetSegmentReader, path) for name, path in self._parquet.items()
        }
        samples = interleaved(runs, {**sides, "Arrow": partial(read_all, SegmentReader, self._arrow)})
        for name, seconds in samples.items():
            value = rate(self._rows, median(seconds))
            yield Figure(f"{self._kind}, {name}: read", value, "Arrow", speed_ratio(samples, name, "Arrow"))
        for name, path in self._parquet.items():
            seconds = look_ups(ParquetSegmentReader, path)
            yield Figure(f"{self._kind}, {name}: look up one record", milliseconds(median(seconds)))

    def query(self, spark: SparkSession, runs: int) -> Iterator[Figure]:
        queries = {"scan": scan, "count": count}
        for what, query in queries.items():
            samples = interleaved(runs, {name: partial(query, spark, path) for name, path in self._parquet.items()})
            *_, largest = samples
            for name, seconds in samples.items():
                value, ratio = rate(self._rows, median(seconds)), speed_ratio(samples, name, largest)
                yield Figure(f"{self._kind}, {name}: Spark {what}", value, largest, ratio)


def scan(spark: SparkSession, path: Path) -> None:
    spark.read.parquet(str(path)).write.format("noop").mode("overwrite").save()


def count(spark: SparkSession, path: Path) -> None:
    spark.read.parquet(str(path)).count()


def plain_rows(rows: int, group_bytes: int) -> Iterator[pa.RecordBatch]:
    """Rows of 108 bytes: a key of 8 bytes, a value of 100 of which half is random."""
    source = random.Random(5)

    def record(number: int) -> tuple[bytes, bytes]:
        return b"%08d" % (number % 10_000), b"x" * 50 + source.randbytes(50)

    return _batches(rows, group_bytes // 108, record)


def json_rows(rows: int, group_bytes: int) -> Iterator[pa.RecordBatch]:
    """Orders of 18 fields as JSON."""
    source = random.Random(3)

    def record(number: int) -> tuple[bytes, bytes]:
        fields = {f"f{at}": source.randrange(1000) for at in range(16)}
        text = json.dumps({"customer": f"c{number % 5000}", "amount": source.random() * 100, **fields})
        return b"c%d" % (number % 5000), text.encode()

    return _batches(rows, group_bytes // 240, record)


def _batches(rows: int, size: int, record: Callable[[int], tuple[bytes, bytes]]) -> Iterator[pa.RecordBatch]:
    columns = schema.record_schema()
    for first in range(0, rows, size):
        numbers = range(first, min(first + size, rows))
        keys, values = zip(*map(record, numbers), strict=True)
        times = pa.array([START_US + number * 250 for number in numbers], pa.int64()).cast(schema.TIMESTAMP_TYPE)
        headers = pa.nulls(len(numbers), schema.HEADERS_TYPE)
        arrays = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), times, headers]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def write_parquet(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    with path.open("wb") as sink:
        writer = ParquetSegmentWriter(sink, base_offset=0)
        for batch in batches:
            writer.write(batch)
        path.with_suffix(".index").write_bytes(writer.finish())


def write_arrow(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    with path.open("wb") as sink:
        writer = SegmentWriter(sink, codec=codecs.ZSTD, has_headers=True)
        for batch in batches:
            writer.write(batch)
        path.with_suffix(".index").write_bytes(writer.finish())


def open_reader(kind: type[SegmentReader], path: Path) -> tuple[SegmentReader, int]:
    index = decode_index(path.with_suffix(".index").read_bytes(), str(path))
    file = os.open(path, os.O_RDONLY)
    return kind(lambda at, size: pa.py_buffer(os.pread(file, size, at)), index, str(path)), len(index)


def read_all(kind: type[SegmentReader], path: Path) -> None:
    reader, batches = open_reader(kind, path)
    for number in range(batches):
        reader.read(number)


def look_ups(kind: type[SegmentReader], path: Path) -> list[float]:
    """Seconds to read one batch and take one record, of an open file."""
    reader, batches = open_reader(kind, path)
    choose = random.Random(7)

    def look_up() -> None:
        batch = reader.read(choose.randrange(batches))
        batch.slice(choose.randrange(batch.num_rows), 1).to_pylist()

    look_up()
    return [timed(look_up) for _ in range(30)]
