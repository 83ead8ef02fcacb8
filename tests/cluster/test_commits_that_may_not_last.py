"""A commit is visible before it is durable: its writer may be killed, or refused by the disk, before the folder is
synced, and a power failure takes the commit away again. Nothing that is not undone with it follows from it before."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.shared import forget_shared
from sparklog.errors import IndeterminateCommitError, KafkaTimeoutError, StorageUnavailableError
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.layout import CHECKPOINTS, COMMITS
from sparklog.log.settings import LogSettings
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.mirror import mirror
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import alter_configs
from sparklog.spark.jobs.batch import was_written
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import SparklogWriter
from sparklog.spark.source.rows import read_schema
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.store import local
from sparklog.store.open import open_store
from tests.cluster.maintenance.replicas import Replicas
from tests.cluster.maintenance.test_suspended_deletions import prepare_retired
from tests.cluster.spark.helpers import batches, schema_of

WAIT = 30
"""Seconds. Only a broken test waits this long."""


class Disk:
    """Refuses to sync folders whose path ends in ``refused``, as a disk that fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = ""
        self._sync = local.sync_folder
        monkeypatch.setattr(local, "sync_folder", self.sync_folder)

    def sync_folder(self, folder: str) -> None:
        if self.refused and f"{folder.rstrip('/')}/".endswith(f"/{self.refused}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(folder)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def set_retention(cluster: Coordinator, value: int) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"log.retention.ms": str(value)}))


def test_a_repetition_is_acknowledged_once_its_commit_is_durable(tmp_path: Path, disk: Disk) -> None:
    root = str(tmp_path / "root")
    create_cluster(root).create_topic("t")
    with Producer(
        bootstrap_servers=root, delivery_timeout_ms=1500, request_timeout_ms=500, retry_backoff_ms=10
    ) as producer:
        producer.send("t", b"first").get(WAIT)
        disk.refused = COMMITS
        refused = producer.send("t", b"second")
        with pytest.raises(KafkaTimeoutError, match=r"not known, .*could not be synced"):
            refused.get(WAIT)
        disk.refused = ""
        producer.send("t", b"third").get(WAIT)


def test_a_request_that_the_log_has_fulfilled_has_an_unknown_outcome_until_it_is_durable(
    tmp_path: Path, disk: Disk
) -> None:
    root = str(tmp_path / "root")
    set_retention(create_cluster(root), 5_000_000)

    def repeat() -> int:
        return open_cluster(root).submit(lambda state: Decision([], state.version))

    disk.refused = COMMITS
    with pytest.raises(IndeterminateCommitError, match=r"commit 1 of .* may not last: .*could not be synced"):
        repeat()
    disk.refused = ""
    assert repeat() == 1


def test_a_numbered_write_that_was_made_before_succeeds_once_it_is_durable(tmp_path: Path, disk: Disk) -> None:
    root = str(tmp_path / "root")
    create_cluster(root).create_topic("t")

    def write() -> None:
        options = sink_options({"path": root, "topic": "t", "txnAppId": "job", "txnVersion": "7"})
        writer = SparklogWriter(options, schema_of("value string"))
        writer.commit([writer.write(iter(batches("value string", [{"value": "once"}])))])

    write()
    disk.refused = COMMITS
    forget_shared(root)  # as in the driver of another run
    with pytest.raises(IndeterminateCommitError, match="may not last"):
        write()
    with pytest.raises(StorageUnavailableError, match="could not be synced"):
        was_written(root, {}, "job", 7)
    disk.refused = ""
    write()
    assert was_written(root, {}, "job", 7)


def test_a_sweep_deletes_nothing_by_a_commit_that_may_not_last(tmp_path: Path, disk: Disk) -> None:
    replicas = Replicas(tmp_path, locations=2, assignment=[[1]])
    prepare_retired(replicas)
    before = set(replicas.files(1))
    disk.refused = COMMITS
    kept = sweep(open_cluster(replicas.cluster.store.root, clock=replicas.clock))
    assert any("could not be synced" in problem for problem in kept.problems)
    assert set(replicas.files(1)) == before
    disk.refused = ""
    sweep(open_cluster(replicas.cluster.store.root, clock=replicas.clock))
    assert set(replicas.files(1)) < before


def test_a_mirror_does_not_get_ahead_of_its_root(tmp_path: Path, disk: Disk) -> None:
    root, target = open_store(str(tmp_path / "root")), open_store(str(tmp_path / "mirror"))
    cluster = create_cluster(root)
    mirror(root, target)
    set_retention(cluster, 5_000_000)
    disk.refused = f"root/{COMMITS}"
    with pytest.raises(StorageUnavailableError, match="could not be synced"):
        mirror(root, target)
    assert len(list(target.list(COMMITS))) == 1
    disk.refused = ""
    assert mirror(root, target).version == 1


def test_a_checkpoint_does_not_get_ahead_of_the_commits(tmp_path: Path, disk: Disk) -> None:
    root = open_store(str(tmp_path / "root"))
    set_retention(create_cluster(root), 5_000_000)
    disk.refused = COMMITS
    with pytest.raises(StorageUnavailableError, match="could not be synced"):
        open_cluster(root).log.write_checkpoint()
    assert not list(root.list(CHECKPOINTS))
    disk.refused = ""
    assert open_cluster(root).log.write_checkpoint().version == 1


def test_commits_stay_while_the_checkpoint_in_their_place_may_not_last(tmp_path: Path, disk: Disk) -> None:
    root, settings = open_store(str(tmp_path / "root")), LogSettings(min_commits_kept=1)
    cluster = create_cluster(root)
    cluster.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    for value in range(5):
        set_retention(cluster, 5_000_000 + value)
    cluster.log.write_checkpoint()
    later = ManualClock(cluster.state.timestamp_ms + 86_400_000)
    before = [info.key for info in root.list(COMMITS)]
    disk.refused = CHECKPOINTS
    with pytest.raises(StorageUnavailableError, match="could not be synced"):
        clean_up(root, later, cluster.state.configs, settings)
    assert [info.key for info in root.list(COMMITS)] == before
    disk.refused = ""
    assert clean_up(root, later, cluster.state.configs, settings).commits > 0


def test_a_commit_whose_answer_is_lost_is_won_once_it_is_durable(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = create_cluster(str(tmp_path / "root"), clock=ManualClock())
    create = local.LocalStore.put_if_absent

    def lose_answer(store: local.LocalStore, key: str, data: bytes) -> None:
        with suppress(StorageUnavailableError):
            create(store, key, data)
        raise StorageUnavailableError("no answer")

    monkeypatch.setattr(local.LocalStore, "put_if_absent", lose_answer)
    disk.refused = COMMITS
    with pytest.raises(IndeterminateCommitError, match="could not be synced"):
        set_retention(cluster, 5_000_000)
    disk.refused = ""
    set_retention(cluster, 5_000_000)


def test_a_stream_does_not_note_the_offsets_of_commits_that_may_not_last(tmp_path: Path, disk: Disk) -> None:
    root = str(tmp_path / "root")
    create_cluster(root).create_topic("t")
    options = stream_options({"path": root, "subscribe": "t", "startingOffsets": "earliest"})
    reader = SparklogStreamReader(options, read_schema(False))
    start = reader.initialOffset()
    with Producer(cluster=open_cluster(root)) as producer:
        producer.send("t", b"v").get(WAIT)
    disk.refused = COMMITS
    with pytest.raises(StorageUnavailableError, match="could not be synced"):
        reader.latestOffset(start, reader.getDefaultReadLimit())
    disk.refused = ""
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) != start
