"""Every stored format has a level: a change raises it, and a higher one is refused with the version it needs."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.coordinator.reader_leases import READERS, UNREADABLE_MS, read_reader_lease, read_reader_leases
from sparklog.errors import CorruptMetadataError, UnsupportedVersionError
from sparklog.ids import SeededIds
from sparklog.log.broker_files import read_identity
from sparklog.log.commits.retired_files import SCHEMA, RemovedFile, read_removed, write_removed
from sparklog.log.layout import BOUNDARY_KEY, CLUSTER_KEY, MIRROR_KEY, read_boundary_file, read_cluster_file
from sparklog.maintenance.gc.sweep import remove_expired_reader_leases
from sparklog.maintenance.mirror import read_mirror_file
from sparklog.protocol import levels
from sparklog.protocol.commit_bytes import decode_commit
from sparklog.protocol.commits import commit_key
from sparklog.store.base import BytesLike, Store
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.memory import MemoryStore
from tests.golden.make_schemas import FOLDER, describe

NEWER = levels.CURRENT + 1
DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


# -- the table


def test_stored_formats_match_the_current_level() -> None:
    kept = json.loads((FOLDER / f"level-{levels.CURRENT}.json").read_text())
    now = json.loads(json.dumps(describe()))
    changed = sorted(name for name in kept.keys() | now.keys() if kept.get(name) != now.get(name))
    assert not changed, (
        f"what is stored has changed: {', '.join(changed)}. Raise the level in sparklog/protocol/levels.py, keep "
        "clusters of the one before (tests/golden/make_clusters.py), then run tests/golden/make_schemas.py"
    )


def test_every_level_has_its_file_and_its_version() -> None:
    numbers = [level.number for level in levels.LEVELS]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {path.name for path in FOLDER.iterdir()} == {f"level-{number}.json" for number in numbers}
    versions = [tuple(map(int, level.since.split("."))) for level in levels.LEVELS]
    assert versions == sorted(set(versions))
    assert versions[-1] <= tuple(map(int, sparklog.__version__.split(".")[:3]))


def test_every_earlier_level_has_golden_clusters() -> None:
    golden = {path.name for path in FOLDER.parent.glob("cluster-v*")}
    assert {f"cluster-v{level.number}" for level in levels.LEVELS[:-1]} <= golden


def test_the_document_lists_the_levels() -> None:
    rows = re.findall(r"^\| (\d+) \| ([0-9.]+) \| (.+) \|$", DOCUMENT.read_text(), re.M)
    assert rows == [(str(level.number), level.since, level.changes) for level in levels.LEVELS]


# -- commits


def test_the_first_commit_of_a_newer_program_raises_the_level(store: Store) -> None:
    coordinator = create_cluster(store)
    assert coordinator.state.level == levels.CURRENT
    assert json.loads(store.get(commit_key(0)))["needs"] == levels.NEEDS


def add_newer_commit(store: Store, **more: Any) -> int:
    """The newest commit again, as the next one, as if written by a newer program."""
    coordinator = open_cluster(store)
    version = coordinator.state.version + 1
    fields = json.loads(store.get(commit_key(version - 1)))
    fields.pop("digest")
    fields |= {"format": NEWER, "needs": "9.4.0", "version": version, "previous": coordinator.state.digest, **more}
    body = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    digest = hashlib.sha256(body).hexdigest()
    store.put(commit_key(version), body + b',"digest":"' + digest.encode() + b'"}\n')
    return version


def changed(store: Store) -> dict[str, bytes]:
    return {info.key: store.get(info.key) for info in store.list()}


@pytest.mark.parametrize("more", [{}, {"actions": [{"action": "levitate", "height": 3}]}, {"elsewhere": "x"}])
def test_a_newer_commit_stops_readers_and_writers_before_they_write(store: Store, more: dict[str, object]) -> None:
    coordinator = create_cluster(store)
    add_newer_commit(store, **more)
    before = changed(store)
    for use in (coordinator.refresh, lambda: coordinator.create_topic("t"), lambda: open_cluster(store)):
        with pytest.raises(UnsupportedVersionError, match=r"needs sparklog 9\.4\.0 or newer; upgrade"):
            use()
    assert changed(store) == before


class _Late(MemoryStore):
    """A store on which a newer program commits right before our own commit."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.armed = False

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        if self.armed:
            self.armed = False
            add_newer_commit(self)
        super().put_if_absent(key, data)


def test_a_commit_lost_to_a_newer_program_asks_for_an_upgrade() -> None:
    store = _Late(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    store.armed = True
    with pytest.raises(UnsupportedVersionError, match=r"needs sparklog 9\.4\.0"):
        coordinator.create_topic("t")
    with pytest.raises(UnsupportedVersionError):
        decode_commit(store.get(commit_key(1)), 1)


# -- everything else


def read_of_listing(store: Store) -> object:
    return list(read_removed(store, "meta/removed/1.arrow"))


READS: list[tuple[str, dict[str, object], Callable[[Store], object]]] = [
    (CLUSTER_KEY, {"cluster_id": "c"}, read_cluster_file),
    (BOUNDARY_KEY, {"boundary": 7}, read_boundary_file),
    (IDENTITY_KEY, {"cluster_id": "c", "broker": 1}, read_identity),
    (MIRROR_KEY, {"cluster_id": "c", "source": "s", "version": 1, "time_ms": 1}, read_mirror_file),
    (f"{READERS}r", {"version": 1, "until_ms": 1}, lambda store: read_reader_lease(store, f"{READERS}r")),
]


@pytest.mark.parametrize(("key", "fields", "read"), READS)
def test_unknown_fields_are_ignored_and_a_newer_format_is_refused(
    store: Store, key: str, fields: dict[str, object], read: Callable[[Store], object]
) -> None:
    store.put(key, json.dumps({"format": levels.CURRENT, **fields, "more": [1]}).encode())
    assert read(store) is not None
    for more in (fields, {"renamed": 1}):
        store.put(key, json.dumps({"format": NEWER, "needs": "9.4.0", **more}).encode())
        with pytest.raises(UnsupportedVersionError, match=r"needs sparklog 9\.4\.0 or newer; upgrade"):
            read(store)


@pytest.mark.parametrize(("key", "read"), [(key, read) for key, _, read in READS])
@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b'{"format":1}', b"x" * 100_000])
def test_the_error_for_a_corrupt_object_has_its_path(
    store: Store, key: str, read: Callable[[Store], object], content: bytes
) -> None:
    store.put(key, content)
    with pytest.raises(CorruptMetadataError, match=re.escape(f"{store.root}/{key} ")) as raised:
        read(store)
    assert raised.value.path == f"{store.root}/{key}"


def test_a_reader_lease_of_a_newer_format_keeps_files_like_an_unreadable_one(store: Store) -> None:
    store.put(f"{READERS}r", json.dumps({"format": NEWER, "version": 1, "until_ms": 1}).encode())
    modified_ms = store.info(f"{READERS}r").modified_ms
    assert [one.version for one in read_reader_leases(store, modified_ms).valid] == [-1]
    assert read_reader_leases(store, modified_ms + UNREADABLE_MS + 1).valid == []
    assert remove_expired_reader_leases(store, modified_ms + 10 * UNREADABLE_MS, 0) == 0


def listing(columns: dict[str, pa.Array], metadata: dict[str, str]) -> bytes:
    table = pa.table(columns)
    fields = [SCHEMA.field(name) if name in SCHEMA.names else table.schema.field(name) for name in table.column_names]
    table = table.cast(pa.schema(fields)).replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_a_listing_may_have_unknown_columns_but_not_a_newer_format(store: Store) -> None:
    columns = {
        "path": pa.array(["t-0/a.log"]),
        "why": pa.array(["x"]),
        "broker": pa.array([1], pa.int32()),
        "size_bytes": pa.array([9], pa.int64()),
    }
    for metadata in ({}, {"sparklog.format": str(levels.CURRENT)}):
        store.put("meta/removed/1.arrow", listing(columns, metadata))
        assert read_of_listing(store) == [RemovedFile("t-0/a.log", 1, 9)]
    store.put("meta/removed/1.arrow", listing(columns, {"sparklog.format": str(NEWER)}))
    with pytest.raises(UnsupportedVersionError, match="upgrade"):
        read_of_listing(store)


def test_listings_round_trip(store: Store) -> None:
    action = write_removed(store, SeededIds(1), 3, [RemovedFile("t-0/a.log", 1, 9)], 60)
    assert list(read_removed(store, action.listing)) == [RemovedFile("t-0/a.log", 1, 9)]
