"""Topics with ``value.keep=false``: history leaves out what its typed columns state, and readers get every byte."""

from __future__ import annotations

import itertools
import json
import tempfile
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

import sparklog
from sparklog.client.admin.client import AdminClient
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import CorruptIndexError, CorruptRecordError, InvalidConfigurationError
from sparklog.format.index import decode_index
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.files import Source
from sparklog.maintenance.segments.replacement import replicas_of
from sparklog.protocol.decide.topics import alter_configs
from tests.cluster.log.typed_orders import TYPED, close_and_roll, create_orders, published_table
from tests.cluster.maintenance.logs import Written, append, live, records
from tests.cluster.maintenance.published_tables import alter
from tests.sample import examples

CONFIGS = {
    **TYPED,
    "value.schema": "customer string, amount double, tags array<string>",
    "value.keep": "false",
}
VALUES = [
    b'{"customer":"a","amount":1.5}',
    b"{}",
    None,
    b"no json",
    b'{"customer":5}',
    b'{"customer":"b","more":1}',
    b'{"amount":1.5,"customer":"a"}',
    b'{"customer":null}',
    b'\0\0\0\0\1{"customer":"a"}',
    b'{"customer":"\xc3\xa9\\n\\"","amount":2.0,"tags":["x",null]}',
]
ELIDED = [0, 1, 9]


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    return create_orders(tmp_path / "log", CONFIGS, VALUES)


def values(log: Coordinator) -> list[bytes | None]:
    return [record.value for record in records(log, "orders")]


def test_every_reader_gets_the_bytes_and_the_table_says_which_are_elided(log: Coordinator) -> None:
    before = records(log, "orders")
    close_and_roll(log)
    assert records(log, "orders")[:-1] == before
    assert sparklog.scan("orders", log.store.root, columns=["value"]).to_arrow()["value"].to_pylist()[:-1] == VALUES
    shown = published_table(log)
    elided = [number not in ELIDED for number in range(len(VALUES))]
    assert shown["_value_kept"].to_pylist() == elided
    assert shown["value"].to_pylist() == [None if number in ELIDED else value for number, value in enumerate(VALUES)]
    assert shown["customer"].to_pylist()[0] == "a"
    files = DeltaTable(f"{log.store.root}/tables/orders").get_add_actions(flatten=True)
    assert pa.table(files)["null_count.value"].to_pylist() == [len(ELIDED) + 1]
    assert not check_cluster(log.store).report.findings


def test_a_scan_filters_by_values_and_says_what_history_keeps(log: Coordinator) -> None:
    close_and_roll(log)
    wanted = pc.field("value") == VALUES[9]
    columns = ["offset", "customer", "value", "_value_kept"]
    found = sparklog.scan("orders", log.store.root, columns=columns, filter=wanted).to_arrow().to_pylist()
    assert found == [{"offset": 9, "customer": 'é\n"', "value": VALUES[9], "_value_kept": False}]
    last = sparklog.scan("orders", log.store.root, columns=columns, start={0: 10}).to_arrow().to_pylist()
    assert [row["_value_kept"] for row in last] == [True]


def test_compaction_and_a_second_roll_keep_the_bytes_and_the_tombstones(log: Coordinator) -> None:
    close_and_roll(log)
    alter(log, "orders", cleanup_policy="compact", value_schema=f"{CONFIGS['value.schema']}, more int")
    append(log, "orders", [Written(b"k0", b'{"customer":"newer"}', 61), Written(b"k5", b'{"more":1}', 61)])
    before = {record.key: record.value for record in records(log, "orders")}
    close_and_roll(log, 180)
    compact(log, InProcess())
    found = records(log, "orders")
    assert {record.key: record.value for record in found if record.key != b"last"} == {
        key: value for key, value in before.items() if key != b"last"
    }
    assert [record.value for record in found if record.key == b"k2"] == [None]
    assert len(found) < len(VALUES) + 4
    shown = published_table(log)
    by_key = dict(zip(shown["key"].to_pylist(), shown["_value_kept"].to_pylist(), strict=True))
    assert by_key[b"k5"] is False
    assert by_key[b"k2"] is True
    assert not check_cluster(log.store).report.findings


def test_files_restore_values_by_the_schema_that_they_were_written_with(log: Coordinator) -> None:
    close_and_roll(log)
    alter(log, "orders", value_schema=f"{CONFIGS['value.schema']}, more int")
    append(log, "orders", [Written(b"k", b'{"customer":"c","more":7}', 60)])
    expected = values(log)
    close_and_roll(log, 120)
    assert values(log)[:-1] == expected
    columns = ["more", "value"]
    assert sparklog.scan("orders", log.store.root, columns=columns).to_arrow().to_pylist()[0] == {
        "more": None,
        "value": VALUES[0],
    }
    assert published_table(log)["_value_kept"].to_pylist()[-2:] == [False, False]


def test_a_topic_can_leave_out_values_later_but_not_keep_them_again(log: Coordinator) -> None:
    configs = {name: value for name, value in CONFIGS.items() if name != "value.keep"}
    log.create_topic("kept", 1, configs=configs)
    append(log, "kept", [Written(b"k", VALUES[0]), Written(b"k", VALUES[0], 60)])
    with AdminClient(bootstrap_servers=log.store.root) as admin:
        assert admin.describe_topics(["kept"])
    log.submit(partial(alter_configs, topic="kept", changes={"value.keep": "false"}))
    with pytest.raises(InvalidConfigurationError, match="'kept' is false and cannot become true"):
        log.submit(partial(alter_configs, topic="kept", changes={"value.keep": "true"}))
    with pytest.raises(InvalidConfigurationError, match="'kept' is false and cannot become true"):
        log.submit(partial(alter_configs, topic="kept", changes={}, deletions=["value.keep"]))
    log.create_topic("empty", 1, configs=CONFIGS)
    log.submit(partial(alter_configs, topic="empty", changes={"value.keep": "true"}))


def test_a_segment_that_is_fetched_ahead_is_restored(log: Coordinator) -> None:
    close_and_roll(log)
    (segment, *_) = live(log, "orders")
    source = Source("orders", segment, replicas_of(log, log.state.partition("orders", 0)))
    source.fetch()
    assert source.read(0, ["value"]).column(0).to_pylist() == VALUES
    source.close()


@pytest.mark.parametrize("position", [70, -6], ids=["a number of rows", "a checksum of values"])
def test_fsck_rebuilds_a_damaged_index(position: int, log: Coordinator) -> None:
    before = values(log)
    close_and_roll(log)
    segment = live(log, "orders")[0]
    intact = log.store.get(segment.index_path)
    index = bytearray(intact)
    index[position] ^= 1
    log.store.put(segment.index_path, bytes(index))
    repair_cluster(check_cluster(log.store))
    assert not check_cluster(log.store).report.findings
    assert log.store.get(segment.index_path) == intact
    assert values(open_cluster(log.store))[: len(before)] == before


def test_a_damaged_typed_column_is_an_error_that_names_the_file(log: Coordinator) -> None:
    close_and_roll(log)
    (segment, *_) = live(log, "orders")
    path = Path(log.store.root) / segment.path
    data = bytearray(path.read_bytes())
    entry = decode_index((Path(log.store.root) / segment.index_path).read_bytes(), "").entry(0)
    data[entry.position + entry.metadata_length // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=path.name):
        records(log, "orders")
    assert check_cluster(log.store).report.findings


@pytest.mark.parametrize(
    "positions", [[8], [12], [24], [70], [64 + 48], [64 + 56], [64 + 120 + 4], [-1], [64 + 56, -1], [64 + 120 + 4, -1]]
)
def test_a_damaged_index_is_rebuilt_if_its_rest_vouches_for_the_file(positions: list[int], log: Coordinator) -> None:
    before = records(log, "orders")
    close_and_roll(log)
    index = Path(log.store.root) / live(log, "orders")[0].index_path
    for retired in Path(log.store.root).glob("orders-*/*.log"):  # else the segment is written again from these
        if retired.name not in {Path(segment.path).name for segment in live(log, "orders")}:
            retired.unlink()
    damaged = bytearray(index.read_bytes())
    for position in positions:
        damaged[position] ^= 1
    index.chmod(0o644)
    index.write_bytes(damaged)
    check = check_cluster(log.store)
    assert [finding.kind for finding in check.report.findings] == ["damaged-index"]
    repair_cluster(check)
    is_vouched = len(positions) == 1  # else a checksum, of typed columns or of the values, and that of the index
    assert {repair.done for repair in check.report.repairs} == {is_vouched}  # else retired files are refused, too
    assert bool(check_cluster(log.store).report.findings) != is_vouched
    if is_vouched:
        assert records(open_cluster(log.store), "orders")[:-1] == before


def test_a_file_with_its_index_in_place_of_another_of_as_many_records_is_an_error(log: Coordinator) -> None:
    close_and_roll(log)
    append(log, "orders", [Written(b"other", b'{"customer":"other"}', 60)] * (len(VALUES) - 1))
    close_and_roll(log, 120)
    first, second, _ = live(log, "orders")
    assert first.records == second.records
    for one, other in ((first.path, second.path), (first.index_path, second.index_path)):
        before, after = log.store.get(one), log.store.get(other)
        log.store.put(one, after)
        log.store.put(other, before)
    with pytest.raises(CorruptIndexError, match=r"the commit names a file of .* bytes, but the index one of"):
        records(open_cluster(log.store), "orders")


ROOTS = itertools.count()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "customer": st.text(max_size=5) | JSON,
        "amount": st.floats(allow_nan=False, allow_infinity=False) | JSON,
        "tags": st.lists(st.none() | st.text(max_size=2), max_size=2) | JSON,
    },
)
ANY_VALUE = st.one_of(
    ROWS.map(lambda row: json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")),
    ROWS.map(lambda row: json.dumps(row).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=9),
    st.none(),
)


@settings(deadline=None, max_examples=examples(10))
@given(st.lists(ANY_VALUE, min_size=1, max_size=40))
def test_any_values_come_back_through_roll_and_compaction(chosen: list[bytes | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = create_orders(Path(folder) / "log", {**CONFIGS, "cleanup.policy": "compact"}, chosen)
        append(log, "orders", [Written(b"k0", chosen[0], 1)])
        close_and_roll(log)
        expected = [*chosen, chosen[0], b'{"customer":"active"}']
        assert values(log) == expected
        compact(log, InProcess())
        assert values(log) == expected[1:]
        scanned = sparklog.scan("orders", log.store.root, columns=["value"]).to_arrow()
        assert scanned["value"].to_pylist() == expected[1:]
