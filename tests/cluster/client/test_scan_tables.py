"""Scanning a topic as a table: typed columns, filters and older versions, the same in history and after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import sparklog
from sparklog import limits
from sparklog.client.scan.row_filter import parse_filter
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    CorruptRecordError,
    DataLossError,
    InvalidConfigurationError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from sparklog.format.column_bounds import ColumnBounds
from sparklog.format.parquet.delta_stats import TypedBounds, decode_bounds, encode_stats
from sparklog.format.parquet.pages import read_footer
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide.topics import alter_configs
from sparklog.testing.clusters import Cluster, cluster
from tests.cluster.maintenance.logs import Written, append, live

SCHEMA = "customer string, amount double, count int, day date, price decimal(9, 2), tags array<string>"
TYPED = {"history.format": "delta", "segment.ms": "180000", "value.format": "json", "value.schema": SCHEMA}
TYPED_NAMES = ["customer", "amount", "count", "day", "price", "tags", "_unfit"]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def order(number: int) -> bytes | None:
    if number % 10 == 7:
        return b"no json" if number % 20 == 7 else None
    fields = {
        "customer": f"c{number:03}",
        "amount": number / 4,
        "count": None if number % 4 == 0 else number,
        "day": (date(2026, 1, 1) + timedelta(number)).isoformat(),
        "price": f"{number}.25",
        "tags": ["x"] * (number % 3),
    }
    return json.dumps(fields).encode()


def append_orders(log: Coordinator, numbers: range, minute: int, partition_number: int = 0) -> None:
    rows = [Written(b"k%d" % (number % 5), order(number), minute) for number in numbers]
    append(log, "orders", *(rows[first : first + 4] for first in range(0, len(rows), 4)), partition=partition_number)


def fill(c: Cluster) -> None:
    """Two partitions of three history segments with 20 records each, and as many records after them."""
    c.create_topic("orders", 2, TYPED)
    for number in range(2):
        for part in range(4):
            append_orders(c.coordinator, range(20 * part, 20 * part + 20), 4 * part, number)
    roll(c.coordinator, InProcess())
    assert [segment.is_history for segment in live(c.coordinator, "orders")] == [True, True, True, False]


@pytest.fixture(scope="module")
def orders() -> Iterator[Cluster]:
    """Only for tests that change nothing."""
    with cluster() as c:
        fill(c)
        yield c


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The same in files, with a row group for every few records."""
    monkeypatch.setattr(limits, "TARGET_ROW_GROUP_BYTES", 500)
    with cluster(folder=tmp_path / "log") as c:
        fill(c)
        yield c


def scan(c: Cluster, topic: str = "orders", **more: Any) -> sparklog.Scan:
    return sparklog.scan(topic, c.bootstrap_servers, **more)


def rows(c: Cluster, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scan(c, **more).to_arrow().to_pylist()
    return found


def history_files(c: Cluster, partition_number: int = 0) -> list[Path]:
    segments = live(c.coordinator, "orders", partition_number)
    return [Path(c.coordinator.store.root) / segment.path for segment in segments if segment.is_history]


# -- typed columns


def test_typed_columns_are_the_same_in_history_and_after_it(orders: Cluster) -> None:
    found = rows(orders, columns=["offset", "value", *TYPED_NAMES])
    assert len(found) == 160
    for row in found:
        number = row["offset"]
        assert row["value"] == order(number)
        assert row["_unfit"] == (number % 20 == 7)
        fits = number % 10 != 7
        assert row["customer"] == (f"c{number:03}" if fits else None)
        assert row["amount"] == (number / 4 if fits else None)
        assert row["count"] == (number if fits and number % 4 else None)
        assert row["day"] == (date(2026, 1, 1) + timedelta(number) if fits else None)
        assert row["tags"] == (["x"] * (number % 3) if fits else None)
        assert str(row["price"]) == (f"{number}.25" if fits else "None")


@pytest.mark.parametrize("columns", [["amount"], ["tags", "partition"], ["_unfit", "key"], ["offset", "customer"]])
def test_columns_of_both_kinds_are_in_the_requested_order(orders: Cluster, columns: list[str]) -> None:
    table = scan(orders, columns=columns).to_arrow()
    assert table.column_names == columns
    assert table.equals(scan(orders, columns=["offset", "key", "partition", *TYPED_NAMES]).to_arrow().select(columns))


def test_the_default_is_the_columns_of_every_topic(orders: Cluster) -> None:
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert scan(orders).schema.names == names


def test_history_is_what_readers_of_the_delta_table_see(files: Cluster) -> None:
    Tables(files.coordinator).publish("orders")
    delta = DeltaTable(f"{files.coordinator.store.root}/tables/orders").to_pyarrow_table()
    order_of_rows = [("partition", "ascending"), ("offset", "ascending")]
    columns = ["partition", "offset", "value", *TYPED_NAMES]
    scanned = scan(files, columns=columns, end={0: 60, 1: 60}).to_arrow()
    assert scanned.to_pylist() == delta.sort_by(order_of_rows).select(columns).to_pylist()


def test_fields_that_a_file_does_not_have_are_null_in_history_and_read_after_it(files: Cluster) -> None:
    log = files.coordinator
    before = scan(files, columns=["customer", "_unfit"])
    log.submit(partial(alter_configs, topic="orders", changes={"value.schema": f"{SCHEMA}, more int"}))
    append(log, "orders", [Written(b"k", b'{"customer":"new","more":5}', 13)])
    assert before.to_arrow().num_rows == 160
    found = rows(files, columns=["offset", "customer", "more", "_unfit"], partitions=[0])
    assert found[0] == {"offset": 0, "customer": "c000", "more": None, "_unfit": False}
    assert found[-1] == {"offset": 80, "customer": "new", "more": 5, "_unfit": False}
    assert rows(files, columns=["offset"], filter=pc.field("more").is_valid()) == [{"offset": 80}]
    assert len(rows(files, columns=["offset"], filter=pc.field("more").is_null())) == 160


def test_files_without_the_column_of_a_filter_are_not_opened(files: Cluster) -> None:
    log = files.coordinator
    log.submit(partial(alter_configs, topic="orders", changes={"value.schema": f"{SCHEMA}, more int"}))
    append(log, "orders", [Written(b"k", b'{"more":5}', 13)])
    for path in history_files(files):
        path.unlink()
    assert rows(files, columns=["offset"], filter=[("more", ">", 1)], partitions=[0]) == [{"offset": 80}]


def test_files_from_before_the_schema_have_null_in_all_typed_columns() -> None:
    with cluster() as c:
        c.create_topic("orders", 1, {"history.format": "delta", "segment.ms": "180000"})
        append_orders(c.coordinator, range(3), 0)
        append_orders(c.coordinator, range(3), 10)
        roll(c.coordinator, InProcess())
        schema = {name: TYPED[name] for name in ("value.format", "value.schema")}
        c.coordinator.submit(partial(alter_configs, topic="orders", changes=schema))
        found = rows(c, columns=["customer", "_unfit"])
        assert found[:3] == [{"customer": None, "_unfit": None}] * 3
        assert found[3:] == [{"customer": f"c00{number}", "_unfit": False} for number in range(3)]
        wanted = ~pc.coalesce(pc.field("_unfit"), pc.scalar(False))
        assert len(rows(c, columns=["offset"], filter=wanted)) == 6


def test_a_scan_reads_the_same_after_its_records_became_history_and_were_compacted(files: Cluster) -> None:
    log = files.coordinator
    columns = ["offset", "value", "customer", "tags", "_unfit"]
    scanned = scan(files, columns=columns)
    before = scanned.to_arrow()
    append_orders(log, range(80, 100), 60)
    roll(log, InProcess())
    assert scanned.to_arrow().equals(before)
    rolled = [segment.path for number in range(2) for segment in live(log, "orders", number)]
    changes = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    log.submit(partial(alter_configs, topic="orders", changes=changes))
    assert compact(log, InProcess()).records_removed
    now = [segment.path for number in range(2) for segment in live(log, "orders", number)]
    for path in rolled:
        if path not in now:
            log.store.delete(path)
    kept = scanned.to_arrow().to_pylist()
    assert 0 < len(kept) < before.num_rows
    assert [row for row in kept if row not in before.to_pylist()] == []
    assert rows(files, columns=["offset", "count"], partitions=[0])[-1] == {"offset": 99, "count": 99}


# -- filters


FILTERS = {
    "partition": [("partition", "=", 1)],
    "offsets": [("offset", ">=", 25), ("offset", "<", 45)],
    "one offset": pc.field("offset") == 77,
    "time": pc.field("timestamp") >= EPOCH + timedelta(minutes=8),
    "key": [("key", "=", b"k3")],
    "value": pc.field("value").is_null(),
    "text": pc.field("customer") > "c055",
    "texts": [("customer", "in", ["c003", "c063", "none"])],
    "starts": pc.starts_with(pc.field("customer"), "c01"),
    "number": (pc.field("amount") > 4) & (pc.field("amount") < 6),
    "nulls": pc.field("count").is_null(),
    "not null": pc.field("count").is_valid() & (pc.field("offset") < 30),
    "day": [("day", "<", date(2026, 1, 5))],
    "decimal": pc.field("price") == Decimal("33.25"),
    "list": pc.list_value_length(pc.field("tags")) == 2,
    "unfit": pc.field("_unfit"),
    "either": [[("amount", "<", 1)], [("partition", "=", 0), ("offset", ">", 75)]],
    "other than": ~(pc.field("amount") > 1),
    "arithmetic": pc.field("amount") * 2 + pc.field("offset") > 110,
    "nothing": [("amount", ">", 1e9)],
    "everything": pc.field("offset") >= 0,
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("columns", [["partition", "offset"], ["value", "offset", "customer", "topic"]])
def test_a_filter_returns_the_rows_that_pass_it(orders: Cluster, name: str, columns: list[str]) -> None:
    given = FILTERS[name]
    everything = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", *TYPED_NAMES]
    expression = pc.field("partition") < 0 if name == "nothing" else given
    expected = scan(orders, columns=everything).to_arrow()
    if isinstance(expression, list):
        from pyarrow.parquet import filters_to_expression

        expression = filters_to_expression(expression)
    expected = expected.filter(expression).select(columns)
    assert expected.num_rows < 160 or name == "everything"
    assert scan(orders, columns=columns, filter=given).to_arrow().equals(expected)


@pytest.mark.parametrize(
    "given",
    [
        [("offset", "<", 40)],
        [("timestamp", "<", EPOCH + timedelta(minutes=6))],
        [("amount", "<", 9.5)],
        [("customer", "<=", "c035")],
        [("day", "<", date(2026, 2, 9))],
        [("price", "<", Decimal(39))],
        pc.field("amount").isin([3, 4]),
    ],
    ids=str,
)
def test_files_whose_bounds_do_not_fit_a_filter_are_not_opened(files: Cluster, given: Any) -> None:
    expected = rows(files, columns=["offset", "value"], filter=given)
    assert expected
    for number in range(2):
        history_files(files, number)[2].unlink()
    assert rows(files, columns=["offset", "value"], filter=given, end={0: 60, 1: 60}) == expected
    with pytest.raises(DataLossError, match=history_files(files)[2].name):
        rows(files, columns=["offset", "value"])


@pytest.mark.parametrize(
    "given",
    [[("offset", "<", 4)], [("price", "<", Decimal(1))], [("customer", "<", "c004")], [("count", "in", [1, 2, 3])]],
    ids=str,
)
def test_row_groups_whose_bounds_do_not_fit_a_filter_are_not_read(files: Cluster, given: Any) -> None:
    expected = rows(files, columns=["offset", "value"], filter=given, partitions=[0])
    path = history_files(files)[0]
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[-8:-4], "little") + 8
    groups = read_footer(pa.py_buffer(bytes(data[-length:]))).groups
    assert len(groups) > 2
    last = groups[-1].columns
    for position in range(last[0].position, last[-1].position + last[-1].length):
        data[position] ^= 255
    path.write_bytes(data)
    assert rows(files, columns=["offset", "value"], filter=given, partitions=[0]) == expected
    with pytest.raises(CorruptRecordError, match=path.name):
        rows(files, columns=["offset", "amount"])


def test_partitions_that_a_filter_excludes_are_not_read(files: Cluster) -> None:
    for path in history_files(files, 1):
        path.unlink()
    assert len(rows(files, columns=["value"], filter=[("partition", "=", 0)])) == 80
    assert len(rows(files, columns=["value"], filter=pc.field("partition") < 1)) == 80


def test_a_filter_skips_compacted_records() -> None:
    with cluster() as c:
        c.create_topic("orders", 1, {**TYPED, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        for part in range(3):
            append_orders(c.coordinator, range(20 * part, 20 * part + 20), 4 * part)
        roll(c.coordinator, InProcess())
        assert compact(c.coordinator, InProcess()).records_removed
        all_rows = rows(c, columns=["offset", "amount", "customer"])
        for given, passes in (
            (pc.field("amount") > 8, lambda row: (row["amount"] or 0) > 8),
            (pc.field("offset") > 30, lambda row: row["offset"] > 30),
        ):
            found = rows(c, columns=["offset", "amount", "customer"], filter=given)
            assert found == [row for row in all_rows if passes(row)]
            assert found
        assert rows(c, columns=["offset"], filter=pc.field("offset") > 30) == [
            {"offset": row["offset"]} for row in all_rows if row["offset"] > 30
        ]


def test_log_append_time_is_what_a_filter_compares() -> None:
    with cluster() as c:
        c.create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime"})
        append(c.coordinator, "orders", [Written(None, b"v", 1)], log_append_time=True)
        assert len(rows(c, columns=["offset"], filter=[("timestamp", ">", EPOCH + timedelta(days=365))])) == 1
        assert rows(c, columns=["offset"], filter=[("timestamp", "<", EPOCH + timedelta(days=365))]) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (pc.field("nope") == 1, "unknown column 'nope'; choose from key, value, topic"),
        (pc.field("tags", "inner") == 1, "scan"),
        (pc.field(0) == b"k", "name columns"),
        (pc.field("offset") == "five", "values of the types int64, string cannot be compared"),
        ([("key", "in", "abc")], "'in' takes a list of values, not 'abc'"),
        (pc.field("offset") + 1, "must evaluate to bool"),
        ("offset > 3", "expression of pyarrow.compute, or a list of tuples"),
        ([], "list of tuples"),
        ([("offset", ">")], "not a tuple of column, operator and value"),
        ([("ofset", ">", 3)], "unknown column 'ofset'; choose from .*; did you mean offset"),
        ([("offset", "~", 3)], "unknown operator '~'; choose from =, ==, !="),
        ([("key", "=", None)], r"no row passes a comparison with None; .*field\('key'\).is_null\(\)"),
        ([("timestamp", ">", datetime(2026, 1, 1))], "no time zone"),
        (5, "list of tuples"),
        ([("offset", "in", [5, "7"])], "values of the types int64, string cannot be compared"),
        ([("offset", "not in", ["7"])], "values of the types int64, string cannot be compared"),
        ([("value", "in", [7])], "cannot be compared"),
    ],
)
def test_a_filter_that_cannot_be_evaluated_is_refused(orders: Cluster, given: Any, words: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=words) as caught:
        scan(orders, filter=given)
    assert "scan(filter=" in str(caught.value)


NUMBERS = pa.schema([pa.field("a", pa.float64()), pa.field("f", pa.float32()), pa.field("s", pa.string())])


@pytest.mark.parametrize(
    "given",
    [
        pc.field("a").isin([0.0]),
        pc.field("a").isin([1.5, 0.0]),
        pc.divide(pc.scalar(1.0), pc.field("a")) > 0,
        ~pc.field("a").isin([-0.0]),
        ~(pc.field("a") < float("nan")),
        ~(pc.field("f") <= float("nan")),
    ],
    ids=str,
)
def test_bounds_of_zeros_and_comparisons_with_nan_leave_out_no_row_that_passes(given: Any) -> None:
    columns = {"a": pa.array([0.0, 0.0]), "f": pa.array([1.0, 2.0], pa.float32()), "s": pa.array(["x", "y"])}
    typed = TypedBounds()
    typed.add(columns)
    bounds = decode_bounds(encode_stats(2, (0, 1), (0, 0), {}, typed.stats), list(NUMBERS))
    assert set(bounds) == set(NUMBERS.names)
    row_filter = parse_filter(given, NUMBERS)
    assert row_filter.apply(pa.RecordBatch.from_pydict(columns)).num_rows
    assert row_filter.admits({name: bounds[name] for name in row_filter.columns})


@pytest.mark.parametrize("may_be_null", [False, True])
@pytest.mark.parametrize("given", [datetime(2026, 11, 1, 3), date(2026, 11, 1)])
def test_bounds_of_days_leave_out_no_row_that_equals_one_of_some_times(given: date, may_be_null: bool) -> None:
    """Arrow converts the times to days, and does not where the bounds are equal."""
    days = pa.schema([pa.field("day", pa.date32()), pa.field("n", pa.int64())])
    row_filter = parse_filter(pc.field("day").isin([given]) & (pc.field("n") > 0), days)
    day = pa.scalar(date(2026, 11, 1))
    assert row_filter.apply(pa.RecordBatch.from_pylist([{"day": day.as_py(), "n": 1}], days)).num_rows == 1
    assert row_filter.admits({"day": ColumnBounds(day, day, may_be_null)})


def test_bounds_of_days_leave_out_other_days() -> None:
    days = pa.schema([pa.field("day", pa.date32())])
    day = pa.scalar(date(2026, 11, 2))
    assert not parse_filter(pc.field("day").isin([date(2026, 11, 1)]), days).admits({"day": ColumnBounds(day, day)})


WHOLE = pa.schema([pa.field("n", pa.int64())])


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("value", [2.5, -2.5, 3.0, -0.0, 2.0**53])
def test_whole_numbers_that_a_fraction_cannot_state_are_compared_with_one(operator: str, value: float) -> None:
    """Arrow converts the column for it, and fails at such a row."""
    numbers = [-(2**63), -3, -2, 0, 2, 3, 2**53, 2**53 + 1, 2**63 - 1]
    compare = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}[operator]
    batch = pa.record_batch([pa.array(numbers, pa.int64())], WHOLE)
    found = parse_filter([("n", operator, value)], WHOLE).apply(batch).column(0).to_pylist()
    assert found == [number for number in numbers if compare(number, value)]


@pytest.mark.parametrize("operator", ["in", "not in"])
def test_fractions_in_a_list_equal_no_whole_number(operator: str) -> None:
    numbers = [5, 2**53 + 1]
    given = [("n", operator, [5.0, 2.5, float("inf")])]
    found = parse_filter(given, WHOLE).apply(pa.record_batch([pa.array(numbers)], WHOLE)).column(0).to_pylist()
    assert found == ([5] if operator == "in" else [2**53 + 1])


def test_an_expression_that_fails_at_a_row_is_named() -> None:
    row_filter = parse_filter(pc.field("n") > 2.5, WHOLE)
    with pytest.raises(InvalidConfigurationError, match=r"\(n > 2.5\) cannot be evaluated on a row: .*cast the column"):
        row_filter.apply(pa.record_batch([pa.array([2**53 + 1])], WHOLE))


def test_bounds_that_a_filter_cannot_compare_leave_out_nothing() -> None:
    row_filter = parse_filter(pc.field("n").cast("float64", safe=False) == 2.0**53, WHOLE)
    bounds = ColumnBounds(pa.scalar(2**53 + 1), pa.scalar(2**53 + 1))
    assert row_filter.admits({"n": bounds})


def test_long_texts_that_arrow_cuts_within_a_character_can_be_looked_for() -> None:
    row_filter = parse_filter([("s", "in", ["é" * 101, "x"])], NUMBERS)
    assert row_filter.columns == ["s"]
    assert row_filter.apply(pa.RecordBatch.from_pylist([{"s": "é" * 101}, {"s": "é"}], NUMBERS)).num_rows == 1


def test_consumer_offsets_are_filtered_too(files: Cluster) -> None:
    with sparklog.Consumer(bootstrap_servers=files.bootstrap_servers, group_id="g") as consumer:
        partition_of_topic = sparklog.TopicPartition("orders", 0)
        consumer.assign([partition_of_topic])
        consumer.commit({partition_of_topic: sparklog.OffsetAndMetadata(1)})
    assert scan(files, "__consumer_offsets", filter=[("offset", ">=", 0)]).to_arrow().num_rows == 1
    assert scan(files, "__consumer_offsets", filter=pc.field("value").is_null()).to_arrow().num_rows == 0


def test_polars_duckdb_and_pandas_read_typed_columns(orders: Cluster) -> None:
    scanned = scan(orders, columns=["customer", "amount", "tags", "price"], filter=[("amount", "<", 1)])
    customers = ["c000", "c001", "c002", "c003"] * 2
    assert scanned.to_polars()["customer"].to_list() == customers
    assert scanned.to_polars().lazy().select("amount").sum().collect().item() == 3.0
    assert scanned.to_duckdb().aggregate("sum(amount), sum(price), sum(len(tags))").fetchall() == [(3.0, 14, 6)]
    assert list(scanned.to_pandas()["customer"]) == customers


# -- older versions


@pytest.fixture(scope="module")
def grown() -> Iterator[tuple[Cluster, list[tuple[int, int]]]]:
    """A topic that got a record, then a partition, then records; the version and time after each step."""
    with cluster() as c:
        log, steps = c.coordinator, []
        c.create_topic("first", 1, TYPED)
        c.create_topic("orders", 1, TYPED)

        def note() -> None:
            state = log.refresh()
            steps.append((state.version, state.timestamp_ms))

        note()
        append_orders(log, range(10), 0)
        note()
        with sparklog.AdminClient(bootstrap_servers=c.bootstrap_servers) as admin:
            admin.create_partitions({"orders": sparklog.NewPartitions(2)})
        append_orders(log, range(5), 1, 1)
        append_orders(log, range(10, 20), 4)
        note()
        append_orders(log, range(20, 30), 8)
        roll(log, InProcess())
        yield c, steps


def test_an_older_version_ends_where_the_topic_ended_then(grown: tuple[Cluster, list[tuple[int, int]]]) -> None:
    c, steps = grown
    ends = [scan(c, version=version).end_offsets for version, _ in steps]
    assert ends == [{0: 0}, {0: 10}, {0: 20, 1: 5}]
    found = rows(c, version=steps[1][0], columns=["offset", "customer"])
    assert [row["customer"] for row in found] == [*(f"c{number:03}" for number in range(7)), None, "c008", "c009"]
    assert rows(c, version=steps[2][0], columns=["offset"], filter=[("offset", ">", 17)]) == [
        {"offset": 18},
        {"offset": 19},
    ]
    assert scan(c).end_offsets == {0: 30, 1: 5}


def test_a_time_is_the_newest_version_at_it(grown: tuple[Cluster, list[tuple[int, int]]]) -> None:
    c, steps = grown
    for _, time_ms in steps:
        as_of = scan(c, as_of=time_ms).end_offsets
        assert as_of == scan(c, as_of=EPOCH + timedelta(milliseconds=time_ms)).end_offsets
        assert as_of in [scan(c, version=version).end_offsets for version, _ in steps]
    assert scan(c, as_of=EPOCH + timedelta(days=365_000)).end_offsets == {0: 30, 1: 5}


def test_limits_of_a_scan_of_an_older_version_are_within_it(grown: tuple[Cluster, list[tuple[int, int]]]) -> None:
    c, steps = grown
    version = steps[1][0]
    assert scan(c, version=version, start="latest").start_offsets == {0: 10}
    assert scan(c, version=version, start=EPOCH + timedelta(minutes=4)).start_offsets == {0: 10}
    assert scan(c, version=version, start={0: 4}).to_arrow().num_rows == 6
    with pytest.raises(sparklog.errors.OffsetOutOfRangeError, match="offset 11"):
        scan(c, version=version, end={0: 11})
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 0, not 1"):
        scan(c, version=version, partitions=[1])


def test_versions_that_are_not_known_are_refused(grown: tuple[Cluster, list[tuple[int, int]]]) -> None:
    c, steps = grown
    newest = c.coordinator.refresh().version
    with pytest.raises(InvalidRequestError, match=f"version {newest + 1} does not exist"):
        scan(c, version=newest + 1)
    with pytest.raises(UnknownTopicOrPartitionError, match="did not exist at version 1"):
        scan(c, version=1)
    with pytest.raises(InvalidConfigurationError, match="version or as_of, not both"):
        scan(c, version=1, as_of=5)
    with pytest.raises(InvalidRequestError, match=r"1970-01-01 00:00:00.000 UTC \(0 ms\) is before the first commit"):
        scan(c, as_of=0)
    with pytest.raises(InvalidRequestError, match=f"the time -{10**18} ms is before the first commit"):
        scan(c, as_of=-(10**18))
    with pytest.raises(InvalidConfigurationError, match=r"scan\(as_of=.*time zone"):
        scan(c, as_of=datetime(2026, 1, 1))
    with pytest.raises(InvalidConfigurationError, match="derived from the commit log"):
        scan(c, "__consumer_offsets", version=steps[0][0])
    for version in (True, 1.5, "1"):
        with pytest.raises(InvalidRequestError, match=r"invalid version .*: give a whole number"):
            scan(c, version=version)
    for as_of in (1.5, "2026-01-01", date(2026, 1, 1)):
        with pytest.raises(InvalidRequestError, match=r"invalid as_of .*: give a datetime with a time zone"):
            scan(c, as_of=as_of)
