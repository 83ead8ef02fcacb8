"""Typed columns in the history of a topic and in its Delta table."""

from __future__ import annotations

import itertools
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from sparklog import limits
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import InvalidConfigurationError, InvalidRecordError
from sparklog.format.parquet import writer as parquet_writer
from sparklog.format.parquet.writer import ParquetSegmentWriter
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments import files
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide.topics import alter_configs
from tests.cluster.maintenance.logs import Written, append, live, records

ROOTS = itertools.count()
SCHEMA = "customer string, amount double"
CONFIGS = {
    "history.format": "delta",
    "segment.ms": "60000",
    "value.format": "json",
    "value.schema": SCHEMA,
    "min.cleanable.dirty.ratio": "0",
}
VALUES = [b'{"customer":"a","amount":1.5}', b"{}", None, b"no json", b'{"customer":5}', b'{"customer":"b","more":1}']


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 1, configs=CONFIGS)
    append(coordinator, "orders", [Written(b"k%d" % number, value) for number, value in enumerate(VALUES)])
    return coordinator


def close_and_roll(log: Coordinator, minute: int = 60) -> None:
    append(log, "orders", [Written(b"last", b'{"customer":"active"}', minute)])
    roll(log, InProcess())


def typed_rows(log: Coordinator, *names: str) -> list[tuple[object, ...]]:
    assert Tables(log).publish("orders") is not None
    rows = DeltaTable(f"{log.store.root}/tables/orders").to_pyarrow_table().sort_by("offset").to_pylist()
    return [tuple(row[name] for name in names) for row in rows]


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


@pytest.mark.parametrize("schema", ["customer string", "customer string, amount float", ""])
def test_a_schema_that_breaks_readers_is_refused_once_there_are_records(log: Coordinator, schema: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="break readers of its table"):
        set_schema(log, schema)
    log.create_topic("empty", 1, configs=CONFIGS)
    changes = {"value.schema": schema}
    log.submit(partial(alter_configs, topic="empty", changes=changes))


def test_deleting_the_schema_is_refused_too(log: Coordinator) -> None:
    deletions = ["value.schema", "value.format"]
    with pytest.raises(InvalidConfigurationError, match="break readers of its table"):
        log.submit(partial(alter_configs, topic="orders", changes={}, deletions=deletions))


def test_a_cluster_cannot_change_the_schema_of_its_topics(log: Coordinator) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"log\.value\.format"):
        log.submit(partial(alter_configs, topic="", changes={"log.value.format": "none"}))
    for changes in ({"value.format": "none"}, {"value.format": "none", "value.schema": ""}):
        with pytest.raises(InvalidConfigurationError):
            log.submit(partial(alter_configs, topic="orders", changes=changes))


def test_a_producer_refuses_values_that_do_not_fit_if_the_topic_says_so(log: Coordinator) -> None:
    log.submit(partial(alter_configs, topic="orders", changes={"value.schema.validation": "true"}))
    with Producer(bootstrap_servers=log.store.root) as producer:
        producer.send("orders", b'{"customer":"c"}')
        producer.send("orders", None, key=b"tombstone")
        with pytest.raises(InvalidRecordError, match="topic 'orders' does not fit its schema"):
            producer.send("orders", b'{"customer":5}')
    assert len(records(log, "orders")) == len(VALUES) + 2
