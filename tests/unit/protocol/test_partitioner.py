"""Keys are partitioned as by Kafka's Java client, one at a time and in bulk."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidRecordError
from sparklog.protocol.plan.partitioner import (
    StickyPartitions,
    murmur2,
    partition_for_integer_key,
    partition_for_key,
    partition_integer_keys,
    partition_keys,
    split_by_partition,
)

keys = st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=50)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_matches_the_values_of_kafkas_tests(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(keys, st.integers(1, 1000), st.integers(0, 5))
def test_bulk_partitioning_of_keys_matches_single_keys(items: list[bytes | None], partitions: int, cut: int) -> None:
    array = pa.array(items, pa.binary()).slice(cut)
    expected = [None if key is None else partition_for_key(key, partitions) for key in items[cut:]]
    assert partition_keys(array, partitions).to_pylist() == expected


def test_partitions_are_the_same_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    array = pa.array([b"a", None, b"", b"longer key", b"12", b"-7"], pa.binary())
    bulk = partition_keys(array, 7), partition_integer_keys(array, 7)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert (partition_keys(array, 7), partition_integer_keys(array, 7)) == bulk


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary(), pa.binary()])
def test_every_type_of_key_column_gives_the_same_partitions(kind: pa.DataType) -> None:
    array = pa.array([b"N14228", b"N24211", None], pa.binary()).cast(pa.string()).cast(kind)
    assert partition_keys(array, 8).to_pylist() == [
        partition_for_key(b"N14228", 8),
        partition_for_key(b"N24211", 8),
        None,
    ]


integers = st.integers(-(10**25), 10**25).map(lambda number: str(number).encode())
mixed = st.lists(
    st.one_of(st.none(), integers, st.sampled_from([b"+5", b"1_0", b" 1", b"x", b"\xff", b"1\n"])), max_size=20
)


@given(mixed, st.integers(1, 100))
def test_bulk_partitioning_of_integer_keys_matches_single_keys(items: list[bytes | None], partitions: int) -> None:
    expected = [None if key is None else partition_for_integer_key(key, partitions) for key in items]
    assert partition_integer_keys(pa.array(items, pa.binary()), partitions).to_pylist() == expected


@pytest.mark.parametrize(("key", "expected"), [(b"13", 5), (b"-1", 7), (b"+9", 1), (b"007", 7)])
def test_a_numeric_key_goes_to_its_value_modulo_the_partition_count(key: bytes, expected: int) -> None:
    assert partition_for_integer_key(key, 8) == expected


@pytest.mark.parametrize("key", [b"", b"1_0", b"1 ", b"12a", b"1\n", "١".encode()])
def test_a_key_that_is_not_an_ascii_number_uses_the_default_partitioner(key: bytes) -> None:
    assert partition_for_integer_key(key, 8) == partition_for_key(key, 8)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 20))
def test_records_without_a_key_are_spread_evenly(batches: list[int], partitions: int, first: int) -> None:
    sticky = StickyPartitions(partitions, first)
    rows = [0] * partitions
    for number, size in enumerate(batches):
        chosen = sticky.next_partition(size)
        if number == 0:
            assert chosen == first % partitions
        rows[chosen] += size
    assert max(rows) - min(rows) <= max(batches)


def test_bulk_partitioning_of_keys_of_any_length_matches_single_keys() -> None:
    # More than one round of rows, lengths from zero to many words, and one key far longer than the others.
    items = [bytes([number % 251]) * (number % 70) for number in range(40_000)]
    items[35_000] = b"x" * 300_001
    partitions = partition_keys(pa.array(items, pa.binary()), 31).to_pylist()
    samples = [*range(0, 40_000, 37), 35_000]
    assert [partitions[row] for row in samples] == [partition_for_key(items[row], 31) for row in samples]


@given(st.lists(st.binary(max_size=12), min_size=20, max_size=60), st.integers(1, 50))
def test_bulk_partitioning_of_keys_of_similar_length_matches_single_keys(items: list[bytes], partitions: int) -> None:
    expected = [partition_for_key(key, partitions) for key in items]
    assert partition_keys(pa.array(items, pa.large_binary()), partitions).to_pylist() == expected


@pytest.mark.parametrize("sign", [b"", b"-", b"+"])
def test_an_integer_key_of_any_length_goes_to_its_value_modulo_the_partition_count(sign: bytes) -> None:
    key = sign + b"1" + b"0" * 9_999 + b"3"  # 10 to the power of 10,000 is 1 modulo 9
    expected = -13 % 9 if sign == b"-" else 13 % 9
    assert partition_for_integer_key(key, 9) == expected
    assert partition_integer_keys(pa.array([key, b"4"], pa.binary()), 9).to_pylist() == [expected, 4]


def test_dictionary_encoded_keys_are_partitioned_like_plain_ones() -> None:
    plain = pa.array([b"a", b"b", None, b"a"], pa.binary())
    assert partition_keys(plain.dictionary_encode(), 5).equals(partition_keys(plain, 5))


def test_an_empty_array_yields_no_partitions() -> None:
    assert partition_keys(pa.array([], pa.binary()), 5).equals(pa.array([], pa.int32()))
    assert partition_integer_keys(pa.array([], pa.binary()), 5).equals(pa.array([], pa.int32()))


@pytest.mark.parametrize("numpy", [True, False])
@given(chosen=st.lists(st.integers(0, 299), max_size=100), more=st.sampled_from([0, 100, 70_000]))
def test_splitting_keeps_the_order_of_rows_within_a_partition(numpy: bool, chosen: list[int], more: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not numpy:
            patch.setitem(sys.modules, "numpy", None)
        order, counts = split_by_partition(pa.array(chosen, pa.int32()), 300 + more)
    assert order.to_pylist() == sorted(range(len(chosen)), key=chosen.__getitem__)
    assert counts == [chosen.count(partition) for partition in range(300)] + [0] * more


@pytest.mark.parametrize("chosen", [[0, 3], [-1], [None, 1]])
def test_splitting_refuses_partitions_that_do_not_exist(chosen: list[int | None]) -> None:
    with pytest.raises(InvalidRecordError, match="0 to 2"):
        split_by_partition(pa.array(chosen, pa.int32()), 3)
