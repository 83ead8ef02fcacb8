"""The files of a Spark job count by the state whose stores they were written to, in the history in which they were
begun."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster, shared_cluster
from sparklog.coordinator.brokers import add_broker, move_broker
from sparklog.coordinator.shared import forget_shared
from sparklog.errors import NotLeaderOrFollowerError, RootReplacedError
from tests.cluster.spark.helpers import across, batches, write_job, writer

ROUTED = "topic string, value string"
VALUE = "value string"


def cluster(tmp_path: Path) -> tuple[Coordinator, Path, Path]:
    """A cluster with topic t at broker 1, which is in a folder of its own."""
    root, disk = tmp_path / "root", tmp_path / "disk"
    coordinator = create_cluster(str(root))
    add_broker(coordinator, str(disk))
    coordinator.create_topic("t", assignment=[[1]])
    return coordinator, root, disk


def values(root: Path) -> list[bytes | None]:
    coordinator = open_cluster(str(root))
    state = coordinator.refresh()
    with LogReader(coordinator) as reader:
        end = state.partition("t", 0).log_end_offset
        return [record.value for record in reader.records("t", 0, 0, end, state)]


def test_a_task_names_files_after_the_state_of_its_stores(tmp_path: Path) -> None:
    coordinator, root, disk = cluster(tmp_path)
    job = writer(root, ROUTED)
    shutil.copytree(disk, tmp_path / "moved")
    assert move_broker(coordinator, 1, str(tmp_path / "moved"))
    message = across(job).write(iter(batches(ROUTED, [{"topic": "t", "value": "a"}])))
    with pytest.raises(NotLeaderOrFollowerError, match="write the records again"):
        across(job).commit([message])
    shutil.rmtree(disk)
    write_job(root, ROUTED, [batches(ROUTED, [{"topic": "t", "value": "b"}])])
    assert values(root) == [b"b"]


@pytest.mark.parametrize("opened", ["anew", "again by the shared coordinator"])
@pytest.mark.parametrize("restored_to", ["before the job began", "after the job began"])
def test_a_root_that_was_restored_refuses_the_files_of_a_job_from_before(
    tmp_path: Path, restored_to: str, opened: str
) -> None:
    root = tmp_path / "root"
    coordinator = create_cluster(str(root))
    coordinator.create_topic("t")
    write_job(root, VALUE, [batches(VALUE, [{"value": "before"}])], topic="t")
    if restored_to == "before the job began":
        shutil.copytree(root, tmp_path / "backup")
    write_job(root, VALUE, [batches(VALUE, [{"value": "later"}])], topic="t")
    job = writer(root, VALUE, topic="t")
    if restored_to == "after the job began":
        write_job(root, VALUE, [batches(VALUE, [{"value": "others"}])], topic="t")
        shutil.copytree(root, tmp_path / "backup")
    message = across(job).write(iter(batches(VALUE, [{"value": "late"}])))
    write_job(root, VALUE, [batches(VALUE, [{"value": "more"}])], topic="t")
    restore(root, tmp_path / "backup")
    if opened == "anew":
        forget_shared(str(root))
    for value in ("1", "2", "3"):  # so that the restored log has the job's version, too
        write_job(root, VALUE, [batches(VALUE, [{"value": value}])], topic="t")
    read = values(root)
    with pytest.raises(RootReplacedError):
        across(job).commit([message])
    assert values(root) == read


def restore(root: Path, backup: Path) -> None:
    shutil.rmtree(root)
    shutil.copytree(backup, root)


def test_a_job_whose_first_commit_was_removed_is_committed_if_its_files_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    coordinator = create_cluster(str(root))
    coordinator.create_topic("t")
    job = writer(root, VALUE, topic="t")
    messages: list[Any] = [across(job).write(iter(batches(VALUE, [{"value": name}]))) for name in "ab"]
    coordinator.create_topic("other")
    forget_shared(str(root))
    log = shared_cluster(str(root)).log
    monkeypatch.setattr(type(log), "find_digest", lambda self, version: None)
    monkeypatch.setattr("sparklog.coordinator.begun_files.find_digest", lambda log, begun: None)
    across(job).commit(messages[:1])
    assert values(root) == [b"a"]
    shutil.rmtree(root / "t-0")
    with pytest.raises(RootReplacedError, match="is gone"):
        across(job).commit(messages[1:])
