"""The newest checkpoint names missing files: its writer was stopped for so long that a clean-up took them for
orphans, and stored its manifest after that."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import CorruptMetadataError
from sparklog.log.checkpoints import checkpoint, lists
from sparklog.log.checkpoints.checkpoint import read_newest
from sparklog.log.checkpoints.tiers import FileReference
from sparklog.log.layout import BOUNDARY_KEY, CHECKPOINTS, Boundary, write_boundary
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.records import Record, append_records


@pytest.fixture(autouse=True)
def _a_file_for_each_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "TAIL_SEGMENTS", 0)


def segment_files(store: Store, manifest: checkpoint.Manifest) -> list[FileReference]:
    return checkpoint.read_lists(store, manifest).files()


def cluster_whose_newest_checkpoint_lacks_a_file(checkpoints: int) -> Coordinator:
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex))
    cluster.create_topic("orders")
    for number in range(checkpoints):
        append_records(cluster, "orders", [Record(value=b"%d" % number)])
        manifest = cluster.log.write_checkpoint()
    for file in segment_files(cluster.store, manifest):
        cluster.store.delete(file.key)
    append_records(cluster, "orders", [Record(value=b"after")])
    return cluster


@pytest.mark.parametrize("checkpoints", [1, 3])
def test_the_commits_since_an_older_checkpoint_are_used_instead(checkpoints: int) -> None:
    store = cluster_whose_newest_checkpoint_lacks_a_file(checkpoints).store
    opened = open_cluster(store)
    opened_state = opened.state
    assert len(opened.segments("orders").partition(0)) == checkpoints + 1
    assert len(opened.segments("orders", opened_state).partition(0)) == checkpoints + 1
    assert opened.state.digest == opened_state.digest


def test_a_newer_checkpoint_can_be_written_after_it() -> None:
    store = cluster_whose_newest_checkpoint_lacks_a_file(3).store
    open_cluster(store).log.write_checkpoint()
    assert len(open_cluster(store).segments("orders").partition(0)) == 4


def test_it_is_an_error_if_those_commits_were_removed() -> None:
    store = cluster_whose_newest_checkpoint_lacks_a_file(3).store
    opened = open_cluster(store)
    write_boundary(store, Boundary(opened.state.version - 1))
    with pytest.raises(CorruptMetadataError, match="missing"):
        opened.segments("orders")


class ReplacedDuringRead(FaultyStore):
    """The root is restored to ``snapshot`` and gets other commits, after the newest checkpoint was found incomplete
    and before the commits since an older one are read."""

    def __init__(self, inner: Store, snapshot: dict[str, bytes]) -> None:
        super().__init__(inner, before=self._replace)
        self._plain = inner
        self._snapshot = snapshot
        self.armed = False
        self._found = False

    def _replace(self, step: int, call: Call) -> None:
        self._found = self._found or (self.armed and call.operation == "list" and call.key == CHECKPOINTS)
        if not self._found or call.key != BOUNDARY_KEY:
            return
        self.armed = self._found = False
        for info in list(self._plain.list()):
            self._plain.delete(info.key)
        for key, data in self._snapshot.items():
            self._plain.put(key, data)
        other = open_cluster(self._plain)
        for number in range(6):
            other.submit(partial(alter_configs, topic="orders", changes={"retention.ms": str(10**9 + number)}))


@pytest.mark.parametrize("replaced", [True, False])
def test_restarting_from_an_older_checkpoint_is_an_unlinked_jump_if_the_root_was_replaced(replaced: bool) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    cluster = create_cluster(store)
    cluster.create_topic("orders")
    append_records(cluster, "orders", [Record(value=b"0")])
    cluster.log.write_checkpoint()
    snapshot = {info.key: store.get(info.key) for info in store.list()}
    append_records(cluster, "orders", [Record(value=b"1")])
    manifest = cluster.log.write_checkpoint()
    for file in segment_files(store, manifest):
        store.delete(file.key)
    append_records(cluster, "orders", [Record(value=b"2")])
    watched = ReplacedDuringRead(store, snapshot)
    opened = open_cluster(watched)
    assert opened.state == cluster.state
    watched.armed = replaced
    if replaced:
        with pytest.raises(CorruptMetadataError):  # the list and the state are of different histories
            opened.segments("orders").partition(0)
    else:
        assert len(opened.segments("orders").partition(0)) == 3
    assert not watched.armed
    assert opened.state == open_cluster(store).state
    assert opened.log.unlinked_jumps == replaced


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_stalled_writer_withdraws_a_checkpoint_whose_files_were_removed() -> None:
    clock = Clock()
    inner = create_cluster(MemoryStore(uuid.uuid4().hex), clock=clock).store

    def stopped(step: int, call: Call) -> None:
        if call.operation == "put" and call.key.endswith(".json") and "latest" not in call.key:
            clock.now += 10_000
            for info in list(inner.list(CHECKPOINTS)):
                if info.key.endswith(".segments"):
                    inner.delete(info.key)

    cluster = open_cluster(FaultyStore(inner, before=stopped), clock=clock)
    cluster.create_topic("orders")
    append_records(cluster, "orders", [Record(value=b"one")])
    with pytest.raises(CorruptMetadataError, match="withdrawn"):
        cluster.log.write_checkpoint()
    assert read_newest(inner) is None
    assert len(open_cluster(inner, clock=clock).segments("orders").partition(0)) == 1
