"""The bytes of commits and checkpoints of a Delta log, and what is read of those that others wrote or damaged."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.delta import actions, table_log
from sparklog.delta.actions import Add, Line, Metadata, Protocol, Remove, TableSnapshot, Transaction
from sparklog.delta.checkpoint import decode_checkpoint, encode_checkpoint
from sparklog.delta.table_log import TableLog
from sparklog.errors import CorruptMetadataError, RecordListTooLargeError
from sparklog.store.base import ObjectInfo
from sparklog.store.memory import MemoryStore

FOLDER = "tables/t/_delta_log/"

texts = st.text(st.characters(codec="utf-8"), max_size=8)
paths = st.builds("p{}.parquet".format, st.integers(0, 9))
longs = st.integers(0, 2**63 - 1)
adds = st.builds(
    Add,
    path=paths,
    partition_values=st.dictionaries(texts, texts, max_size=2),
    size=longs,
    modification_time=longs,
    data_change=st.booleans(),
    stats=st.none() | texts,
)
removes = st.builds(Remove, path=paths, deletion_timestamp=st.none() | longs, data_change=st.booleans())
metadata = st.builds(
    Metadata,
    id=texts,
    schema_string=texts,
    name=st.none() | texts,
    partition_columns=st.lists(texts, max_size=2),
    configuration=st.dictionaries(texts, texts, max_size=2),
    created_time=st.none() | longs,
)
lines = st.one_of(
    st.builds(Line, add=adds),
    st.builds(Line, remove=removes),
    st.builds(Line, meta_data=metadata),
    st.builds(Line, txn=st.builds(Transaction, app_id=texts, version=longs)),
    st.builds(
        Line,
        protocol=st.builds(Protocol, st.just(3), st.just(7), st.lists(texts, max_size=2), st.lists(texts, max_size=2)),
    ),
)


@given(st.lists(lines, max_size=8))
def test_commits_are_read_as_they_were_written(written: list[Line]) -> None:
    assert actions.decode_commit(actions.encode_commit(written)) == written


@given(st.lists(lines, max_size=8), metadata)
def test_checkpoints_are_read_as_the_table_that_was_written(written: list[Line], table: Metadata) -> None:
    snapshot = actions.apply(TableSnapshot(), 7, [Line(meta_data=table, protocol=Protocol()), *written])
    data, count = encode_checkpoint(snapshot)
    assert count == 2 + len(snapshot.transactions) + len(snapshot.files)
    read = decode_checkpoint(7, data)
    assert {key: _without_change(add) for key, add in snapshot.files.items()} == dict(read.files)
    assert (read.version, read.protocol, read.metadata) == (7, snapshot.protocol, snapshot.metadata)
    assert dict(read.transactions) == dict(snapshot.transactions)


def _without_change(add: Add) -> Add:
    return Add(add.path, add.partition_values, add.size, add.modification_time, False, add.stats)


def test_fields_and_actions_of_others_are_ignored() -> None:
    data = b"\n".join(
        [
            b'{"commitInfo":{"operation":"WRITE","operationMetrics":{"a":[1,{"b":null}]}}}',
            b'{"domainMetadata":{"domain":"x","configuration":"{}","removed":false}}',
            b'{"add":{"path":"a","partitionValues":{"partition":null},"size":3,"modificationTime":4,"dataChange":true,'
            b'"tags":{"k":"v"},"baseRowId":7,"stats":null}}',
            b"",
            b'{"cdc":{"path":"_change_data/a"}}',
        ]
    )
    snapshot = actions.apply(TableSnapshot(), 0, actions.decode_commit(data))
    assert snapshot.files == {"a": Add("a", {"partition": None}, 3, 4, True)}


def test_a_checkpoint_of_another_writer_may_have_more_and_fewer_columns() -> None:
    add = {"path": "a%20b", "partitionValues": [("partition", "1")], "size": 3, "modificationTime": 4, "tags": "x"}
    kind = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", pa.map_(pa.string(), pa.string())),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("tags", pa.string()),
        ]
    )
    sink = io.BytesIO()
    pq.write_table(pa.table({"add": pa.array([None, {**add, "dataChange": True}], kind), "sidecar": [1, 2]}), sink)
    snapshot = decode_checkpoint(3, sink.getvalue())
    assert snapshot.files == {"a b": Add("a%20b", {"partition": "1"}, 3, 4, True)}
    assert snapshot.metadata is None


def log_of(*commits: list[Line]) -> tuple[MemoryStore, TableLog]:
    store = MemoryStore(uuid.uuid4().hex)
    log = TableLog(store, "t")
    log.read()
    for written in commits:
        assert log.commit(written)
    return store, log


def file(name: str) -> Line:
    return Line(add=Add(path=name, partition_values={}, size=1, modification_time=1, data_change=True))


def test_a_table_is_read_from_its_commits() -> None:
    store, log = log_of([file("a")], [file("b"), Line(remove=Remove("a"))])
    for reader in (log, TableLog(store, "t")):
        snapshot = reader.read()
        assert (snapshot.version, [*snapshot.files]) == (1, ["b"])


def test_only_one_of_two_writers_creates_a_version() -> None:
    store, log = log_of([file("a")])
    other = TableLog(store, "t")
    other.read()
    assert other.commit([file("b")])
    assert not log.commit([file("c")])
    assert [*log.read().files] == ["a", "b"]
    assert log.commit([file("c")])
    assert [*other.read().files] == ["a", "b", "c"]


def test_a_folder_that_was_deleted_and_filled_again_is_read_anew() -> None:
    store, log = log_of([file("a")], [file("b")])
    for info in list(store.list(FOLDER)):
        store.delete(info.key)
    assert log.read().version == -1
    again = TableLog(store, "t")
    again.read()
    assert again.commit([file("x")])
    assert again.commit([file("y")])
    assert [*log.read().files] == ["x", "y"]


def test_a_commit_that_replaced_the_own_one_is_noticed_though_its_number_is_the_same() -> None:
    store, log = log_of([file("a")], [file("b")])
    key = f"{FOLDER}{1:020d}.json"
    store.put(key, store.get(key).replace(b'"b"', b'"c"'))
    assert [*log.read().files] == ["a", "c"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"add":{"path":"a"}}\n',
        b"\xff\xfe",
        b'{"add":' + b"[" * 100_000,
        b'{"txn":{"appId":"a","version":"x"}}',
    ],
    ids=["empty", "cut", "incomplete", "binary", "deep", "wrong type"],
)
def test_a_damaged_commit_is_an_error_that_names_the_file(data: bytes) -> None:
    store, _ = log_of([file("a")], [file("b")], [file("c")])
    key = f"{FOLDER}{1:020d}.json"
    store.put(key, data)
    if not data:  # an empty commit changes nothing
        assert [*TableLog(store, "t").read().files] == ["a", "c"]
        return
    with pytest.raises(CorruptMetadataError, match=key) as raised:
        TableLog(store, "t").read()
    assert raised.value.path == f"{store.root}/{key}"
    assert "delete the folder" in raised.value.message


def test_a_missing_commit_is_an_error_that_says_which() -> None:
    store, _ = log_of([file("a")], [file("b")], [file("c")])
    store.delete(f"{FOLDER}{1:020d}.json")
    with pytest.raises(CorruptMetadataError, match="lacks the commit of version 1"):
        TableLog(store, "t").read()


class OneIncompleteListing(MemoryStore):
    """Its first listing lacks an object that was created while it was made."""

    hidden = ""

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        hidden, self.hidden = self.hidden, ""
        return (info for info in super().list(prefix) if info.key != hidden)


def test_a_listing_that_was_made_while_others_committed_is_repeated() -> None:
    store = OneIncompleteListing(uuid.uuid4().hex)
    log = TableLog(store, "t")
    log.read()
    for name in "abc":
        assert log.commit([file(name)])
    store.hidden = f"{FOLDER}{1:020d}.json"
    assert [*TableLog(store, "t").read().files] == ["a", "b", "c"]


def log_with_checkpoint() -> tuple[MemoryStore, TableLog]:
    store, log = log_of(
        [Line(meta_data=Metadata("id", "{}"), protocol=Protocol())], *[[file(f"f{n}")] for n in range(10)]
    )
    assert log.write_checkpoint()
    return store, log


def test_a_checkpoint_replaces_the_commits_before_it() -> None:
    store, log = log_with_checkpoint()
    assert not log.write_checkpoint()
    for version in range(10):
        store.delete(f"{FOLDER}{version:020d}.json")
    assert log.commit([file("new")])
    snapshot = TableLog(store, "t").read()
    assert (snapshot.version, len(snapshot.files)) == (11, 11)
    hint = json.loads(store.get(f"{FOLDER}_last_checkpoint"))
    assert (hint["version"], hint["numOfAddFiles"]) == (10, 10)


def test_a_truncated_checkpoint_is_an_error_that_names_the_file() -> None:
    store, log = log_with_checkpoint()
    key = f"{FOLDER}{10:020d}.checkpoint.parquet"
    sound = bytes(store.get(key))
    for size in (0, 1, 4, 12, len(sound) // 2, len(sound) - 1):
        store.put(key, sound[:size])
        with pytest.raises(CorruptMetadataError, match=key):
            TableLog(store, "t").read()
    store.put(key, sound)
    assert TableLog(store, "t").read().files.keys() == log.read().files.keys()


def test_a_checkpoint_of_actions_without_needed_fields_is_an_error_that_names_the_file() -> None:
    store, _ = log_with_checkpoint()
    key = f"{FOLDER}{10:020d}.checkpoint.parquet"
    sink = io.BytesIO()
    pq.write_table(pa.table({"add": pa.array([{"path": "a"}])}), sink)
    store.put(key, sink.getvalue())
    with pytest.raises(CorruptMetadataError, match=key):
        TableLog(store, "t").read()


def test_a_commit_larger_than_readers_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = log_of()
    monkeypatch.setattr(table_log, "MAX_TABLE_FILE_BYTES", 100)
    with pytest.raises(RecordListTooLargeError):
        log.commit([file("a" * 100)])


def test_a_writer_that_was_suspended_for_long_cannot_win_an_old_number() -> None:
    store, suspended = log_of([file("a")])
    other = TableLog(store, "t")
    for number in range(40):
        other.read()
        assert other.commit([file(f"g{number}")])
        other.write_checkpoint()
    assert len([info for info in store.list(FOLDER) if info.key.endswith(".json")]) == 41
    assert not suspended.commit([file("gone")])


def test_a_checkpoint_that_is_late_does_not_lower_the_hint() -> None:
    store, late = log_of(
        [Line(meta_data=Metadata("id", "{}"), protocol=Protocol())], *[[file(f"f{n}")] for n in range(10)]
    )
    other = TableLog(store, "t")
    other.read()
    for number in range(5):
        assert other.commit([file(f"g{number}")])
    assert other.write_checkpoint()
    assert late.write_checkpoint()
    assert json.loads(store.get(f"{FOLDER}_last_checkpoint"))["version"] == 15
    assert TableLog(store, "t").read().version == 15


def test_a_checkpoint_with_a_changed_byte_is_an_error_or_says_the_same() -> None:
    store, _ = log_with_checkpoint()
    written = TableLog(store, "t").read()
    key = f"{FOLDER}{10:020d}.checkpoint.parquet"
    sound, noticed = bytes(store.get(key)), 0
    end_of_pages = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    for at in range(4, end_of_pages, 7):
        store.put(key, sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :])
        try:
            read = TableLog(store, "t").read()
        except CorruptMetadataError:
            noticed += 1
        else:
            assert read == written
    assert noticed > end_of_pages // 14


def in_parts(store: MemoryStore, version: int, parts: int) -> list[str]:
    """Replace a checkpoint by one in parts, as others write; the commits before are cleaned."""
    key = f"{FOLDER}{version:020d}.checkpoint.parquet"
    table = pq.read_table(pa.BufferReader(bytes(store.get(key))))
    store.delete(key)
    keys = [key.replace(".parquet", f".{part:010d}.{parts:010d}.parquet") for part in range(1, parts + 1)]
    for number, part_key in enumerate(keys):
        sink = io.BytesIO()
        pq.write_table(table.take(list(range(number, table.num_rows, parts))), sink)
        store.put(part_key, sink.getvalue())
    for old in range(version):
        store.delete(f"{FOLDER}{old:020d}.json")
    return keys


@pytest.mark.parametrize("parts", [1, 3])
def test_a_checkpoint_of_others_in_parts_is_read_if_all_are_there(parts: int) -> None:
    store, log = log_with_checkpoint()
    written = TableLog(store, "t").read()
    keys = in_parts(store, 10, parts)
    read = TableLog(store, "t").read()
    assert (read.protocol, read.metadata, dict(read.files)) == (written.protocol, written.metadata, dict(written.files))
    assert log.read().version == 10
    store.delete(keys[0])
    with pytest.raises(CorruptMetadataError, match="lacks the commit of version 0"):
        TableLog(store, "t").read()
