"""Typed topics whose fields are named like the log's own columns: every reader has them below ``value_``."""

from __future__ import annotations

import io
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.compute as pc
import pytest

import sparklog
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidConfigurationError
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.protocol.decide.topics import alter_configs
from tests.cluster.log.typed_orders import TYPED, close_and_roll, create_orders, published_table
from tests.cluster.maintenance.logs import records

NAMES = ("partition", "offset", "timestamp", "key", "value", "headers", "topic", "timestampType")
FLAGS = ("_unfit", "_key_unfit", "_value_kept")
EVENT = {name: number for number, name in enumerate((*NAMES, *FLAGS))}
TYPED_EVENT = {f"value_{name}": number for name, number in EVENT.items()}
DDL = ", ".join(f"{name} bigint" for name in EVENT)
JSON_SCHEMA = json.dumps({"type": "object", "properties": {name: {"type": "integer"} for name in EVENT}})
AVRO: dict[str, Any] = {"type": "record", "name": "event", "fields": [{"name": name, "type": "long"} for name in EVENT]}


def alter_schema(log: Coordinator, schema: str) -> None:
    log.submit(lambda state: alter_configs(state, "orders", {"value.schema": schema}))


def avro_value() -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, AVRO, EVENT)
    return data.getvalue()


def json_value() -> bytes:
    return json.dumps(EVENT, separators=(",", ":")).encode()


@pytest.mark.parametrize("keep", ["true", "false"])
@pytest.mark.parametrize("schema", [DDL, JSON_SCHEMA, "avro"])
def test_scan_history_and_table_have_the_fields_under_names_of_their_own(
    tmp_path: Path, schema: str, keep: str
) -> None:
    is_avro = schema == "avro"
    configs = {**TYPED, "value.schema": schema, "value.keep": keep}
    if is_avro:
        configs.update({"value.schema": json.dumps(AVRO), "value.format": "avro", "value.keep": "true"})
    written = [avro_value() if is_avro else json_value(), b"unfit", None]
    log = create_orders(tmp_path / "log", configs, written)

    def scanned() -> list[dict[str, Any]]:
        table = sparklog.scan("orders", log.store.root, columns=[*TYPED_EVENT, "_unfit", "offset"]).to_arrow()
        return table.to_pylist()[:3]

    nulls = dict.fromkeys(TYPED_EVENT)
    expected: list[dict[str, Any]] = [
        {**TYPED_EVENT, "_unfit": False, "offset": 0},
        {**nulls, "_unfit": True, "offset": 1},
        {**nulls, "_unfit": False, "offset": 2},
    ]
    assert scanned() == expected
    close_and_roll(log)
    assert scanned() == expected
    assert [record.value for record in records(log, "orders")][:3] == written
    shown = published_table(log).to_pylist()
    assert [{name: row[name] for name in expected[0]} for row in shown] == expected
    if keep == "false" and not is_avro:
        assert [row["_value_kept"] for row in shown] == [False, True, True]
    assert shown[0]["timestamp"] == datetime(1970, 1, 1, tzinfo=timezone.utc)  # the record's own
    filtered = sparklog.scan("orders", log.store.root, columns=["offset"], filter=pc.field("value_offset") == 1)
    assert filtered.to_arrow()["offset"].to_pylist() == [0]
    assert not check_cluster(log.store).report.findings


def test_such_a_field_may_be_added_later_unless_its_column_is_that_of_another(tmp_path: Path) -> None:
    log = create_orders(tmp_path / "log", {**TYPED, "value.schema": "a int, value_key string"}, [b'{"value_key":"x"}'])
    close_and_roll(log)
    with pytest.raises(InvalidConfigurationError, match="'value_key' of the value and the field 'key' of the value"):
        alter_schema(log, "a int, key int, value_key string")
    alter_schema(log, "a int, value_key string, timestamp string")
    rows = sparklog.scan("orders", log.store.root, columns=["value_key", "value_timestamp"]).to_arrow().to_pylist()
    assert rows[0] == {"value_key": "x", "value_timestamp": None}


def test_a_field_of_a_key_may_have_the_name_of_the_flag(tmp_path: Path) -> None:
    configs = {**TYPED, "value.schema": "a int", "key.format": "json", "key.schema": "_unfit string, timestamp string"}
    log = create_orders(tmp_path / "log", configs, [b"{}"])
    with sparklog.Producer(bootstrap_servers=log.store.root) as producer:
        producer.send("orders", key=b'{"_unfit":"x","timestamp":"y"}', value=b"{}").get()
    rows = sparklog.scan("orders", log.store.root, columns=["key__unfit", "key_timestamp", "_key_unfit"])
    assert rows.to_arrow().to_pylist()[-1] == {"key__unfit": "x", "key_timestamp": "y", "_key_unfit": False}
