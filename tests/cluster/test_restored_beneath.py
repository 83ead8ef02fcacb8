"""A root is restored from a copy that includes its newest commit. The log looks unchanged, but files written after the
copy are missing: writers check that their files exist before they commit them."""

from __future__ import annotations

import shutil
import uuid
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.producer.batch_files import PartitionRun, write_files
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.begun_files import WRITTEN_COUNTS_SECONDS
from sparklog.errors import RootReplacedError, StorageError
from sparklog.log.commits.retired_files import REMOVED
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.producers import init_producer
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.file_names import is_data_file
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, CountingStore, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.simulation.location_actors import batch_of, metadata_of

WAIT = 30
"""Seconds. Only a broken test waits this long."""


def send(cluster: Coordinator, *values: bytes) -> None:
    with Producer(cluster=cluster) as producer:
        for value in values:
            producer.send("t", value).get(WAIT)


def read(root: str | Store) -> list[bytes | None]:
    cluster = open_cluster(root)
    end = cluster.state.partition("t", 0).log_end_offset
    with LogReader(cluster) as reader:
        return [record.value for record in reader.records("t", 0, 0, end, cluster.state)]


class LocalRoot:
    """A root in a folder, with topic "t" and a record, and a copy of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "root"
        self._copy = folder / "copy"
        self.url = str(self.path)
        self.clock = ManualClock()
        self.cluster = create_cluster(self.url, clock=self.clock)
        self.cluster.create_topic("t")
        send(self.cluster, b"first")

    def copy(self) -> None:
        shutil.copytree(self.path, self._copy, ignore=shutil.ignore_patterns("leases"))

    def restore(self) -> None:
        self.path.rename(self.path.with_name("former"))
        shutil.copytree(self._copy, self.path)


def test_a_transaction_whose_files_are_gone_is_not_committed(tmp_path: Path) -> None:
    root = LocalRoot(tmp_path)
    producer = Producer(bootstrap_servers=root.url, transactional_id="x")
    producer.init_transactions()
    root.copy()
    producer.begin_transaction()
    producer.send("t", b"gone")
    producer.flush()
    root.restore()
    with pytest.raises(RootReplacedError, match="which was written to be appended, is gone"):
        producer.commit_transaction()
    assert read(root.url) == [b"first"]


@pytest.mark.parametrize("seconds", [0.0, WRITTEN_COUNTS_SECONDS + 1])
def test_a_storage_behind_a_network_is_asked_for_files_that_were_written_long_ago(seconds: float) -> None:
    clock, store = ManualClock(), CountingStore(MemoryStore(uuid.uuid4().hex))
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("t")
    producer = Producer(cluster=cluster, transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"kept")
    producer.flush()
    clock.advance(seconds)
    store.reset_counts()
    producer.commit_transaction()
    looks = [call.key for call in store.calls if call.operation == "info" and is_data_file(call.key)]
    assert len(looks) == (2 if seconds else 0)
    assert read(store) == [b"kept"]


def test_files_are_looked_for_again_by_a_process_that_was_suspended_before_its_commit(tmp_path: Path) -> None:
    root = LocalRoot(tmp_path)
    looked, restored = [False], [False]

    def restore_after_the_look(_: int, call: Call) -> None:
        if is_data_file(call.key):
            looked[0] = looked[0] or call.operation == "info"
        elif looked[0] and not restored[0]:
            restored[0] = True
            root.clock.advance(WRITTEN_COUNTS_SECONDS + 1)
            root.restore()

    root.copy()
    cluster = open_cluster(FaultyStore(open_store(root.url), before=restore_after_the_look), clock=root.clock)
    began = cluster.elapsed.now()
    run = PartitionRun(0, [batch_of("t", [b"gone"], root.clock.now_ms() * 1000)], -1)
    request = AppendRequest(appends=write_files(cluster, metadata_of(cluster, "t"), [run]))
    with pytest.raises(RootReplacedError, match="which was written to be appended, is gone"):
        cluster.append(request, began)
    assert (restored, read(root.url)) == ([True], [b"first"])


def test_a_repeated_commit_is_a_repetition_whatever_became_of_its_files(tmp_path: Path) -> None:
    """They may have been rolled, compacted and deleted since."""
    root = LocalRoot(tmp_path)
    cluster = root.cluster
    identity, began = cluster.submit(init_producer), cluster.elapsed.now()
    run = PartitionRun(0, [batch_of("t", [b"second"], root.clock.now_ms() * 1000)], 0)
    request = AppendRequest(appends=write_files(cluster, metadata_of(cluster, "t"), [run], identity))
    assert not cluster.append(request, began).duplicate
    (root.path / request.appends[0].run.path).unlink()
    assert cluster.append(request, began).duplicate


def prepare_roll(root: LocalRoot) -> None:
    changes = {"segment.ms": "1000", "file.delete.delay.ms": "0"}
    root.cluster.submit(partial(alter_configs, topic="t", changes=changes))
    for number in range(5):
        send(root.cluster, b"%d" % number)
    root.clock.advance(3600)
    send(root.cluster, b"last")
    root.clock.advance(3600)
    root.copy()


PREPARED = [b"first", b"0", b"1", b"2", b"3", b"4", b"last"]
"""The records of a root that is prepared for a roll."""


def test_a_roll_whose_files_are_gone_replaces_nothing(tmp_path: Path) -> None:
    root = LocalRoot(tmp_path)
    prepare_roll(root)

    def restore(step: int, call: Call) -> None:
        if written and not is_restored:
            is_restored.append(True)
            root.restore()
        elif call.operation == "close" and call.key.startswith(REMOVED):  # the listing, after the files
            written.append(call.key)

    written: list[str] = []
    is_restored: list[bool] = []
    with (
        substituted(FaultyStore(root.cluster.store, before=restore)),
        pytest.raises(StorageError, match="nothing was replaced"),
    ):
        roll(open_cluster(root.url, clock=root.clock), InProcess())
    assert read(root.url) == PREPARED


def test_neither_sweep_nor_vacuum_delete_what_replaces_lost_files_if_their_listing_is_missing(tmp_path: Path) -> None:
    root = LocalRoot(tmp_path)
    prepare_roll(root)
    before = {path.name for path in root.path.rglob("*.log")}
    roll(root.cluster, InProcess())
    for path in root.path.rglob("*.log"):
        if path.name not in before:
            path.unlink()
            path.with_suffix(".index").unlink()
    for path in (root.path / REMOVED).iterdir():
        path.unlink()
    root.clock.advance(86_400 * 8)
    root.cluster.submit(partial(alter_configs, topic="", changes={"log.retention.hours": "1000"}))
    root.clock.advance(86_400 * 8)
    cluster = open_cluster(root.url, clock=root.clock)
    for problems in (sweep(cluster).problems, vacuum(cluster, dry_run=False).problems):
        assert any("may be the only copy of its records" in problem for problem in problems)
        assert before <= {path.name for path in root.path.rglob("*.log")}
    repair_cluster(check_cluster(root.url))
    assert read(root.url) == PREPARED
