"""Which files a query of ``sparklog.table`` needs, and how they are described to Spark."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.protocol.history import history_of
from sparklog.protocol.segments import NO_APPEND_TIME, Segment, offsets_in
from sparklog.spark.history.files import HistoryFile, hadoop_address, select_files
from sparklog.spark.history.java import encode_status
from sparklog.spark.source.filters import Pruning, Span


def segment(base_offset: int, end_offset: int, history: bool = True, stats: str = "") -> Segment:
    path = (
        f"tables/t/_segments/partition=0/{base_offset:020d}-v1-a.parquet" if history else f"t-0/{base_offset:020d}.log"
    )
    records = end_offset - base_offset
    return Segment(
        0, base_offset, end_offset, records, path, 0, 0, 1, 0, 10, 0, 0, NO_APPEND_TIME, 0, 1, True, -1, stats
    )


def spans(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    return [(each.base_offset, each.end_offset) for each in segments]


def test_history_ends_at_the_first_segment_that_is_none() -> None:
    segments = [segment(0, 5), segment(5, 9), segment(9, 12, history=False), segment(12, 20)]
    assert spans(list(history_of(segments, 0))) == [(0, 5), (5, 9)]
    assert spans(list(history_of(segments, 5))) == [(5, 9)]
    assert spans(list(history_of(segments, 7))) == [(5, 9)]
    assert spans(list(history_of(segments, 9))) == []


@pytest.mark.parametrize("stats", ["", "{}", "[]", "nonsense", '{"minValues":{"offset":1}}', "9" * 5000])
def test_statistics_without_offsets_are_none(stats: str) -> None:
    assert offsets_in(stats) is None
    assert segment(3, 9, stats=stats).begins_before(4)
    assert not segment(3, 9, stats=stats).begins_before(3)


def test_statistics_say_where_a_file_with_gaps_begins() -> None:
    stats = '{"numRecords":2,"minValues":{"offset":5},"maxValues":{"offset":7},"nullCount":{}}'
    assert offsets_in(stats) == (5, 7)
    assert not segment(3, 9, stats=stats).begins_before(5)
    assert segment(3, 9, stats=stats).begins_before(6)


FILES = [
    HistoryFile(f"file:///{number}", 100, number % 2, 10 * number, 10 * number + 9, number, number)
    for number in range(6)
]


def test_only_files_that_can_have_rows_are_selected() -> None:
    def numbers(pruning: Pruning) -> list[int]:
        return [FILES.index(file) for file in select_files(FILES, "t", pruning)]

    assert numbers(Pruning()) == [0, 1, 2, 3, 4, 5]
    assert numbers(Pruning(partitions=frozenset({1}))) == [1, 3, 5]
    assert numbers(Pruning(partition_span=Span(1, 9))) == [1, 3, 5]
    assert numbers(Pruning(offsets=Span(9, 20))) == [0, 1, 2]
    assert numbers(Pruning(timestamps_us=Span(4))) == [4, 5]
    assert numbers(Pruning(topics=frozenset({"other"}))) == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/data/log/t", "file:///data/log/t"),
        ("s3://bucket/log/t", "s3a://bucket/log/t"),
        ("hdfs://namenode:8020/log/t", "hdfs://namenode:8020/log/t"),
    ],
)
def test_addresses_are_those_of_hadoops_file_systems(address: str, expected: str) -> None:
    assert hadoop_address(address) == expected


@given(st.integers(0, 2**62), st.text(min_size=1, max_size=300))
def test_a_file_status_states_path_and_length_as_protobuf(size: int, name: str) -> None:
    path = f"file:///{name}".encode(errors="surrogatepass").decode(errors="replace")
    encoded = encode_status(HistoryFile(path, size, 0, 0, 0, 0, 0))
    (length,) = struct.unpack_from(">i", encoded)
    message = encoded[4:]
    assert len(message) == length
    fields = dict(_read_fields(message))
    assert (fields[1], fields[2], fields[3]) == (2, path.encode(), size)


def _read_fields(message: bytes) -> list[tuple[int, object]]:
    fields: list[tuple[int, object]] = []
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        value, at = _read_varint(message, at)
        if tag & 7 == 2:
            fields.append((tag >> 3, message[at : at + value]))
            at += value
        else:
            fields.append((tag >> 3, value))
    return fields


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        shift += 7
        at += 1
        if message[at - 1] < 128:
            return value, at
