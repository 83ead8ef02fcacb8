"""Typed columns in the history of a topic and in its Delta table."""

from __future__ import annotations

import itertools
import json
import struct
import threading
from datetime import datetime, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder

import sparklog
from sparklog import limits
from sparklog.client.admin.client import AdminClient
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import InvalidConfigurationError, InvalidRecordError
from sparklog.format.parquet import writer as parquet_writer
from sparklog.format.parquet.writer import ParquetSegmentWriter
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments import files
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide.topics import alter_configs
from sparklog.schema.languages.ddl import parse_ddl
from sparklog.schema.values.typed_values import ValueReader
from tests.cluster.log.typed_orders import TYPED, close_and_roll, create_orders, published_table
from tests.cluster.maintenance.logs import Written, append, live, records

ROOTS = itertools.count()
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SCHEMA = "customer string, amount double"
CONFIGS = {**TYPED, "value.schema": SCHEMA}
VALUES = [b'{"customer":"a","amount":1.5}', b"{}", None, b"no json", b'{"customer":5}', b'{"customer":"b","more":1}']


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    return create_orders(tmp_path / "log", CONFIGS, VALUES)


def typed_rows(log: Coordinator, *names: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in names) for row in published_table(log).to_pylist()]


def set_schema(log: Coordinator, schema: str) -> None:
    log.submit(partial(alter_configs, topic="orders", changes={"value.schema": schema}))


def test_values_are_in_the_typed_columns_and_all_bytes_are_kept(log: Coordinator) -> None:
    before = records(log, "orders")
    close_and_roll(log)
    assert records(log, "orders")[:-1] == before
    assert typed_rows(log, "offset", "customer", "amount", "_unfit", "value") == [
        (0, "a", 1.5, False, VALUES[0]),
        (1, None, None, False, VALUES[1]),
        (2, None, None, False, VALUES[2]),
        (3, None, None, True, VALUES[3]),
        (4, None, None, True, VALUES[4]),
        (5, "b", None, False, VALUES[5]),
    ]
    assert not check_cluster(log.store).report.findings


def test_records_that_do_not_fit_are_counted_where_the_topic_is_described(log: Coordinator) -> None:
    with AdminClient(bootstrap_servers=log.store.root) as admin:
        assert [topic["unfit_records"] for topic in admin.describe_topics(["orders"])] == [0]
        append(log, "orders", [Written(b"last", b'{"customer":"active"}', 60)])
        assert roll(log, InProcess()).records_that_do_not_fit == 2
        assert [topic["unfit_records"] for topic in admin.describe_topics(["orders"])] == [2]
        set_schema(log, f"{SCHEMA}, more int")
        log.submit(partial(alter_configs, topic="orders", changes={"cleanup.policy": "compact"}))
        append(log, "orders", [Written(b"k3", b"{}", 61), Written(b"k9", b'{"more":"1"}', 61)])
        close_and_roll(log, 180)
        assert [topic["unfit_records"] for topic in admin.describe_topics(["orders"])] == [3]
        compact(log, InProcess())
        assert [topic["unfit_records"] for topic in admin.describe_topics(["orders"])] == [2]
    assert not check_cluster(log.store).report.findings


def test_topics_whose_values_are_not_compared_with_a_schema_have_no_count(log: Coordinator) -> None:
    log.create_topic("plain")
    log.create_topic("arrow", configs={"value.format": "json", "value.schema": SCHEMA})
    with AdminClient(bootstrap_servers=log.store.root) as admin:
        counts = {topic["name"]: topic["unfit_records"] for topic in admin.describe_topics()}
    assert counts == {"plain": None, "arrow": None, "orders": 0}


def test_a_file_whose_statistics_fail_is_discarded(log: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ParquetSegmentWriter) -> str:
        raise OverflowError

    monkeypatch.setattr(ParquetSegmentWriter, "stats", property(fail))
    with pytest.raises(OverflowError):
        close_and_roll(log)
    assert not [path for path in Path(log.store.root).rglob("*") if ".parquet" in path.name]


FILTERS = [
    ds.field("text") == "x" * 33,
    ds.field("text") == "y" * 5000,
    ds.field("sure") == pa.scalar(True),
    ds.field("_unfit") == pa.scalar(False),
    ds.field("money") == pa.scalar(Decimal("123456789012345678.05"), pa.decimal128(20, 2)),
    ds.field("money").is_valid(),
    ds.field("raw") == b"hi",
    ds.field("empty").is_null(),
    ds.field("whole") == 1,
    ds.field("key") == b"k",
]


@pytest.mark.parametrize("chosen", FILTERS, ids=lambda chosen: str(chosen)[:30])
def test_delta_rs_finds_the_rows_of_each_column(chosen: ds.Expression, tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    schema = "text string, sure boolean, money decimal(20,2), raw binary, empty string, whole int, list array<int>"
    log.create_topic("orders", 1, configs={**CONFIGS, "value.schema": schema})
    value = b'"sure":true,"money":"123456789012345678.05","raw":"aGk=","whole":1,"list":[1]}'
    append(log, "orders", [Written(b"k", b'{"text":"%s",' % text + value) for text in (b"x" * 33, b"y" * 5000)])
    close_and_roll(log)
    assert Tables(log).publish("orders") is not None
    table = DeltaTable(f"{log.store.root}/tables/orders")
    expected = table.to_pyarrow_table().filter(chosen).num_rows
    assert table.to_pyarrow_dataset().to_table(filter=chosen).num_rows == expected > 0


@pytest.mark.parametrize("name", ["customer", "amount", "more", "_unfit"])
def test_delta_rs_finds_nulls_in_files_of_before_a_field_was_added(name: str, tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    plain = {name: value for name, value in CONFIGS.items() if not name.startswith("value.")}
    log.create_topic("orders", 1, configs=plain)
    append(log, "orders", [Written(b"k", VALUES[0])])
    close_and_roll(log)
    for minute, schema in ((120, SCHEMA), (180, f"{SCHEMA}, more int")):
        log.submit(partial(alter_configs, topic="orders", changes={"value.format": "json", "value.schema": schema}))
        close_and_roll(log, minute)
    assert Tables(log).publish("orders") is not None
    table = DeltaTable(f"{log.store.root}/tables/orders")
    for chosen in (ds.field(name).is_null(), ds.field(name).is_valid()):
        expected = table.to_pyarrow_table().filter(chosen).column("offset").to_pylist()
        found = table.to_pyarrow_dataset().to_table(filter=chosen).column("offset").to_pylist()
        assert sorted(found) == sorted(expected)


WIDE = ",".join(f"f{number}:decimal(38,2)" for number in range(50))


@pytest.mark.parametrize(
    ("schema", "values", "unfit"),
    [
        (WIDE.replace(":", " "), [b"{}"] * 1000, 0),
        (f"list array<struct<{WIDE}>>", [b'{"list":[{},{},{},{},{}]}'] * 100, 0),
        (f"list array<struct<{WIDE}>>", [b'{"list":[%s{}]}' % (b"{}," * count) for count in (1, 200, 2)], 1),
    ],
)
def test_typed_columns_that_are_larger_than_a_batch_may_be_are_written_in_parts(
    schema: str, values: list[bytes], unfit: int, log: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_BATCH_BYTES", 100_000)
    monkeypatch.setattr(parquet_writer, "MAX_BATCH_BYTES", 100_000)
    log.create_topic("wide", 1, configs={**CONFIGS, "value.schema": schema})
    append(log, "wide", [Written(b"k", value) for value in values])
    before = records(log, "wide")
    append(log, "wide", [Written(b"last", b"{}", 60)])
    roll(log, InProcess())
    assert records(log, "wide")[:-1] == before
    assert live(log, "wide")[0].is_history
    assert live(log, "wide")[0].batches > 1
    assert Tables(log).publish("wide") is not None
    rows = DeltaTable(f"{log.store.root}/tables/wide").to_pyarrow_table(columns=["value", "_unfit"]).to_pylist()
    assert [row["value"] for row in rows if row["_unfit"]] == [max(values, key=len)][:unfit]
    assert not check_cluster(log.store).report.findings


def test_records_that_take_much_memory_are_written_one_by_one(
    log: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_TYPED_BYTES", 1)
    close_and_roll(log)
    assert live(log, "orders")[0].batches == len(VALUES)
    assert typed_rows(log, "value") == [(value,) for value in VALUES]
    assert typed_rows(log, "customer", "_unfit")[::5] == [("a", False), ("b", False)]


def test_an_added_field_is_null_in_older_files_and_read_in_newer_ones(log: Coordinator) -> None:
    close_and_roll(log)
    set_schema(log, f"{SCHEMA}, more int")
    append(log, "orders", [Written(b"k7", b'{"customer":"c","more":7}', 60)])
    close_and_roll(log, minute=120)
    rows = typed_rows(log, "customer", "more", "_unfit")
    assert rows[5] == ("b", None, False)
    assert rows[-1] == ("c", 7, False)
    schema = DeltaTable(f"{log.store.root}/tables/orders").schema()
    assert [field.name for field in schema.fields][-4:] == ["customer", "amount", "more", "_unfit"]


def test_compaction_reads_all_values_by_the_present_schema(log: Coordinator) -> None:
    close_and_roll(log)
    set_schema(log, f"{SCHEMA}, more int")
    log.submit(partial(alter_configs, topic="orders", changes={"cleanup.policy": "compact"}))
    append(log, "orders", [Written(b"k0", b'{"customer":"newest"}', 61)])
    close_and_roll(log, minute=120)
    assert compact(log, InProcess()).records_removed
    assert all(segment.is_history for segment in live(log, "orders")[:-1])
    rows = typed_rows(log, "offset", "customer", "more")
    assert (5, "b", 1) in rows
    assert 0 not in [row[0] for row in rows]


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": ["null", "string"]},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "lines", "type": {"type": "array", "items": "int"}},
    ],
}
ENCODED = b"\x02\x02a" + b"\x00" + b"\x04\x02\x04\x00"
JSON_SCHEMA = {
    "type": "object",
    "properties": {"customer": {"type": "string"}, "amount": {"$ref": "#/$defs/amount"}},
    "required": ["customer"],
    "$defs": {"amount": {"type": ["number", "null"], "minimum": 0}},
}


@pytest.mark.parametrize(
    ("configs", "values", "columns", "expected"),
    [
        (
            {"value.format": "string", "value.schema": ""},
            [b"text", b"\xff", None],
            ("value_string", "_unfit"),
            [("text", False), (None, True), (None, False)],
        ),
        (
            {"value.format": "avro", "value.schema": json.dumps(AVRO)},
            [ENCODED, b"\0\0\0\0\x09" + ENCODED, ENCODED + b"x", None],
            ("customer", "placed", "lines", "_unfit"),
            [("a", EPOCH, [1, 2], False), ("a", EPOCH, [1, 2], False), (*[None] * 3, True), (*[None] * 3, False)],
        ),
        (
            {"value.schema": json.dumps(JSON_SCHEMA, indent=1)},
            [b'{"customer":"a","amount":-2}', b"\0\0\0\0\x09" + b'{"customer":"b"}', b'{"amount":1}'],
            ("customer", "amount", "_unfit"),
            [("a", -2.0, False), ("b", None, False), (None, None, True)],
        ),
    ],
    ids=["string", "avro", "JSON Schema"],
)
def test_values_of_each_format_are_in_the_table(
    configs: dict[str, str],
    values: list[bytes | None],
    columns: tuple[str, ...],
    expected: list[tuple[object, ...]],
    tmp_path: Path,
) -> None:
    log = create_cluster(str(tmp_path / "log"))
    log.create_topic("orders", 1, configs={**CONFIGS, **configs})
    append(log, "orders", [Written(b"k", value) for value in values])
    before = records(log, "orders")
    close_and_roll(log)
    assert live(log, "orders")[0].is_history
    assert records(log, "orders")[:-1] == before
    assert typed_rows(log, *columns) == expected
    assert not check_cluster(log.store).report.findings


def test_lists_in_avro_of_any_length_are_read_from_history_and_after_its_index_is_rebuilt(tmp_path: Path) -> None:
    """Their elements take a byte in a value, those of a default none, and booleans a bit in memory."""
    lists = {"flags": "boolean", "numbers": "int", "later": "boolean"}
    fields = [{"name": name, "type": {"type": "array", "items": item}} for name, item in lists.items()]
    texts = [
        json.dumps({"type": "record", "name": "r", "fields": some})
        for some in (fields[:2], [*fields[:2], {**fields[2], "default": [True] * 1000}])
    ]
    value = b"\xd0\x0f" + b"\1" * 1000 + b"\0" + b"\xd0\x0f" + b"\2" * 1000 + b"\0"
    log = create_cluster(str(tmp_path / "log"))
    log.create_topic("orders", 1, configs={**CONFIGS, "value.format": "avro", "value.schema": texts[0]})
    log.submit(partial(alter_configs, topic="orders", changes={"value.schema": texts[1]}))
    append(log, "orders", [Written(b"k", value), Written(b"k", b"\0\0"), Written(b"k", b"\0\0")])
    expected = [([True] * 1000, [1] * 1000, [True] * 1000), *[([], [], [True] * 1000)] * 2]
    close_and_roll(log)
    scan = partial(sparklog.scan, "orders", log.store.root, columns=list(lists))
    assert [tuple(row.values()) for row in scan().to_arrow().to_pylist()][:-1] == expected
    index = Path(log.store.root, live(log, "orders")[0].index_path)
    index.chmod(0o644)
    index.write_bytes(index.read_bytes()[:-1] + b"x")
    repair_cluster(check_cluster(log.store))
    assert not check_cluster(log.store).report.findings
    assert [tuple(row.values()) for row in scan().to_arrow().to_pylist()][:-1] == expected


def test_values_in_avro_of_writers_with_an_earlier_version_of_the_schema_are_read(tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    texts = [
        json.dumps({"type": "record", "name": "order", "fields": fields})
        for fields in (
            [{"name": "customer", "type": "string"}],
            [{"name": "amount", "type": ["double", "null"]}, {"name": "customer", "type": "string"}],
        )
    ]
    avro = {"value.format": "avro", "value.schema": texts[0], "value.schema.validation": "true"}
    log.create_topic("orders", 1, configs={**CONFIGS, **avro})
    set_schema(log, texts[1])
    with Producer(bootstrap_servers=log.store.root) as producer:
        producer.send("orders", b"\x02a", timestamp_ms=0).get()  # customer alone, as before the change
        producer.send("orders", b"\x00" + struct.pack("<d", 1.5) + b"\x02b", timestamp_ms=0).get()
        with pytest.raises(InvalidRecordError):
            producer.send("orders", b"\x02").get()
    append(log, "orders", [Written(b"last", b"\x02c", 60)])
    assert roll(log, InProcess()).records_that_do_not_fit == 0
    assert typed_rows(log, "customer", "amount", "_unfit") == [("a", None, False), ("b", 1.5, False)]


def test_a_schema_in_avro_cannot_change_so_that_values_are_read_as_others(tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]
    schema, reordered = (json.dumps({"type": "record", "name": "o", "fields": each}) for each in (fields, fields[::-1]))
    log.create_topic("orders", 1, configs={**CONFIGS, "value.format": "avro", "value.schema": schema})
    set_schema(log, reordered)
    set_schema(log, schema)
    append(log, "orders", [Written(b"k", b"\x02\x04")])
    with pytest.raises(InvalidConfigurationError, match="its fields would have another order - at `\\$`"):
        set_schema(log, reordered)


def test_a_roll_that_can_start_no_thread_writes_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = create_cluster(str(tmp_path / "log"))
    log.create_topic("orders", 1, configs=CONFIGS)
    for number in range(5):
        append(log, "orders", [Written(b"k", b'{"amount":%d}' % number)])
    append(log, "orders", [Written(b"last", b"{}", 60)])
    monkeypatch.setattr(limits, "TARGET_ROW_GROUP_BYTES", 1)
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name.startswith("sparklog-encode") and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    roll(log, InProcess())
    assert len(refused) == 1
    assert [(segment.is_history, segment.batches) for segment in live(log, "orders")] == [(True, 5), (False, 1)]
    assert typed_rows(log, "amount") == [(float(number),) for number in range(5)]


def test_a_record_of_which_key_and_value_do_not_fit_is_counted_once(tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    log.create_topic("orders", 1, configs={**CONFIGS, "key.format": "string"})
    log.create_topic("keys", 1, configs={"history.format": "delta", "segment.ms": "60000", "key.format": "string"})
    for topic in ("orders", "keys"):
        append(log, topic, [Written(b"\xff", b"no json"), Written(b"\xff", b"{}"), Written(b"k", b"no json")])
        append(log, topic, [Written(b"last", b"{}", 60)])
    roll(log, InProcess())
    assert {name: state.partitions[0].unfit for name, state in log.refresh().topics.items()} == {"orders": 3, "keys": 2}


def test_keys_have_typed_columns_and_a_flag_of_their_own(tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    key = {"key.format": "json", "key.schema": "customer string, offset int"}
    log.create_topic("orders", 1, configs={**CONFIGS, **key})
    keys = [b'{"customer":"k","offset":3}', b"no json", None]
    append(log, "orders", [Written(key, b'{"customer":"v"}') for key in keys])
    close_and_roll(log)
    assert typed_rows(log, "customer", "_unfit", "key_customer", "key_offset", "_key_unfit") == [
        ("v", False, "k", 3, False),
        ("v", False, None, None, True),
        ("v", False, None, None, False),
    ]
    found = DeltaTable(f"{log.store.root}/tables/orders").to_pyarrow_dataset()
    assert found.to_table(filter=ds.field("key_customer") == "k").num_rows == 1


WIDENED: list[tuple[str, str, list[Any], Any]] = [
    ("tinyint", "bigint", [-128, 127], 2**62),
    ("smallint", "int", [-(2**15), 5], 2**30),
    ("int", "bigint", [-(2**31), 5], -(2**62)),
    ("float", "double", [0.5, -1.5], 1e300),
    ("decimal(7,2)", "decimal(9,2)", ["-12345.67", "0.01"], "1234567.89"),
    ("struct<a:int>", "struct<b:string,a:bigint>", [{"a": 5}, {}], {"a": 2**62, "b": "x"}),
    ("array<struct<a:int>>", "array<struct<a:bigint,b:int>>", [[{"a": 1}], []], [{"a": 2**62, "b": 3}]),
    ("map<string,float>", "map<string,double>", [{"x": 0.5}, {}], {"x": 1e300}),
]


def test_widened_types_are_read_right_from_older_files_by_all_readers(tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    narrow, wide = (", ".join(f"f{n} {case[at]}" for n, case in enumerate(WIDENED)) for at in (0, 1))
    log.create_topic("orders", 1, configs={**CONFIGS, "value.schema": narrow})
    old = [{f"f{n}": case[2][row] for n, case in enumerate(WIDENED)} for row in range(2)]
    new = {f"f{n}": case[3] for n, case in enumerate(WIDENED)}
    append(log, "orders", [Written(b"k", json.dumps(value).encode()) for value in (*old, {})])
    close_and_roll(log)
    set_schema(log, wide)
    append(log, "orders", [Written(b"k", json.dumps(value).encode(), 60) for value in (new, old[0])])
    close_and_roll(log, minute=120)
    assert len([segment for segment in live(log, "orders") if segment.is_history]) == 2
    assert Tables(log).publish("orders") is not None
    path = f"{log.store.root}/tables/orders"
    values = [*old, {}, {}, new, old[0]]
    expected = ValueReader(parse_ddl(wide)).columns(pa.array([json.dumps(value).encode() for value in values]))
    names = [f"f{n}" for n in range(len(WIDENED))]
    rows = pa.table({name: expected[name] for name in names}).to_pylist(maps_as_pydicts="strict")

    def in_order(found: pa.Table) -> list[dict[str, object]]:
        return found.sort_by("offset").select(names).to_pylist(maps_as_pydicts="strict")

    table = DeltaTable(path)
    assert in_order(table.to_pyarrow_table()) == rows
    sql = 'SELECT {} FROM orders ORDER BY "offset"'.format(", ".join(names))
    found = pa.table(QueryBuilder().register("orders", table).execute(sql).read_all())
    assert found.to_pylist(maps_as_pydicts="strict") == rows
    frame = polars.scan_delta(path).select("offset", *names)
    assert in_order(frame.collect().to_arrow(compat_level=polars.CompatLevel.oldest())) == rows
    files = [str(path) for path in (tmp_path / "log" / "tables").rglob("*.parquet")]
    sql = f'SELECT {", ".join(names)}, "offset" FROM read_parquet({files}, union_by_name=true)'
    relation = duckdb.sql(sql)
    assert relation is not None
    assert in_order(relation.to_arrow_table()) == rows
    for name in names[:5]:
        for value in {row[name] for row in rows} - {None}:
            literal = pa.scalar(value, expected[name].type)
            for condition in (ds.field(name) == literal, ds.field(name) > literal, ds.field(name) <= literal):
                every = pa.table({name: expected[name]}).filter(condition).num_rows
                assert table.to_pyarrow_dataset().to_table(filter=condition).num_rows == every
            same = sum(row[name] == value for row in rows)
            assert frame.filter(polars.col(name) == value).collect().height == same
            assert frame.filter(polars.col(name) >= value).collect().height == sum(
                row[name] is not None and row[name] >= value for row in rows
            )


@pytest.mark.parametrize("schema", ["customer string", "customer string, amount float", ""])
def test_a_schema_that_breaks_readers_is_refused_once_there_are_records(log: Coordinator, schema: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="break readers of its table"):
        set_schema(log, schema)
    log.create_topic("empty", 1, configs=CONFIGS)
    changes = {"value.schema": schema}
    log.submit(partial(alter_configs, topic="empty", changes=changes))


def test_deleting_the_schema_is_refused_too(log: Coordinator) -> None:
    deletions = ["value.schema", "value.format"]
    with pytest.raises(
        InvalidConfigurationError, match=r"value\.format of topic 'orders' is json and cannot become none"
    ):
        log.submit(partial(alter_configs, topic="orders", changes={}, deletions=deletions))
    with pytest.raises(InvalidConfigurationError, match="break readers of its table"):
        log.submit(partial(alter_configs, topic="orders", changes={}, deletions=["value.schema"]))


def test_a_cluster_cannot_change_the_schema_of_its_topics(log: Coordinator) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"log\.value\.format"):
        log.submit(partial(alter_configs, topic="", changes={"log.value.format": "none"}))
    for changes in ({"value.format": "none"}, {"value.format": "none", "value.schema": ""}):
        with pytest.raises(InvalidConfigurationError):
            log.submit(partial(alter_configs, topic="orders", changes=changes))


@pytest.mark.parametrize("format", ["string", "avro"])
def test_a_format_cannot_change_once_there_are_records(log: Coordinator, format: str) -> None:
    changes = {"value.format": format, "value.schema": "" if format == "string" else json.dumps(AVRO)}
    with pytest.raises(InvalidConfigurationError, match=f"cannot become {format}: the topic has values of this format"):
        log.submit(partial(alter_configs, topic="orders", changes=changes))
    same = [{"name": name, "type": ["null", kind]} for name, kind in (("customer", "string"), ("amount", "double"))]
    schema = json.dumps({"type": "record", "name": "Order", "fields": same})
    changes = {"value.format": "avro", "value.schema": schema}
    with pytest.raises(InvalidConfigurationError, match=r"value\.format of topic 'orders' is json and cannot become"):
        log.submit(partial(alter_configs, topic="orders", changes=changes))


def test_a_producer_refuses_keys_that_do_not_fit_if_the_topic_says_so(log: Coordinator) -> None:
    changes = {"key.format": "string", "key.schema.validation": "true"}
    log.submit(partial(alter_configs, topic="orders", changes=changes))
    with Producer(bootstrap_servers=log.store.root) as producer:
        producer.send("orders", b"no json", key="ü".encode())
        producer.send("orders", b"no key")
        with pytest.raises(InvalidRecordError, match=r"the key of a record for topic 'orders' .*: it is not text"):
            producer.send("orders", b"{}", key=b"\xff")
        with pytest.raises(InvalidRecordError, match="the key of a record"):
            producer.send_batch("orders", pa.table({"key": [b"\xff"], "value": [b"{}"]}))


def test_a_producer_refuses_values_that_do_not_fit_if_the_topic_says_so(log: Coordinator) -> None:
    log.submit(partial(alter_configs, topic="orders", changes={"value.schema.validation": "true"}))
    with Producer(bootstrap_servers=log.store.root) as producer:
        producer.send("orders", b'{"customer":"c"}')
        producer.send("orders", None, key=b"tombstone")
        with pytest.raises(InvalidRecordError, match="topic 'orders' does not fit its schema"):
            producer.send("orders", b'{"customer":5}')
    assert len(records(log, "orders")) == len(VALUES) + 2
