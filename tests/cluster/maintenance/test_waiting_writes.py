"""A location or a root some of whose calls wait, as the writes of a frozen file system, stops nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.coordinator import open_cluster
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.take_over import take_over
from sparklog.errors import InvalidRequestError
from sparklog.log.owner_files import read_owner
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.brokers import online_brokers
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.file_names import is_data_file
from sparklog.store.open import open_store
from tests.cluster.maintenance.replicas import TOPIC, Replicas
from tests.waiting import WRITES, waiting_at

DATA = [b"0:0", b"0:1", b"0:2"]


def prepared(folder: Path) -> Replicas:
    """Topic orders is on broker 2, and nothing is on broker 1."""
    return Replicas(folder, assignment=[[2]])


@pytest.mark.parametrize("operation", ["put_if_absent", "delete", "get", "list"])
def test_files_elsewhere_are_deleted_while_calls_of_a_location_wait(tmp_path: Path, operation: str) -> None:
    with waiting_at(tmp_path / "disk1") as waiting:
        replicas = prepared(tmp_path)
        configs = {"file.delete.delay.ms": "0", "segment.ms": "1000"}
        replicas.cluster.submit(lambda state: alter_configs(state, TOPIC, configs))
        sweep(replicas.cluster)
        replicas.produce(5)
        replicas.clock.advance(3600)
        replicas.produce(1)
        roll(replicas.cluster, InProcess())
        replicas.clock.advance(3600)
        before = replicas.files(2)
        waiting.operations = {operation}
        assert sweep(replicas.cluster).files == 5
        assert len(before) - len(replicas.files(2)) == 10


def test_the_files_of_a_location_whose_deletions_wait_are_deleted_once_they_end(tmp_path: Path) -> None:
    with waiting_at(tmp_path / "disk2") as waiting:
        replicas = prepared(tmp_path)
        configs = {"file.delete.delay.ms": "0", "segment.ms": "1000"}
        replicas.cluster.submit(lambda state: alter_configs(state, TOPIC, configs))
        replicas.produce(5)
        replicas.clock.advance(3600)
        replicas.produce(1)
        roll(replicas.cluster, InProcess())
        replicas.clock.advance(3600)
        sweep(replicas.cluster, check=lambda: setattr(waiting, "operations", {"delete"}))
        assert [is_data_file(call.key) for call in waiting.calls] == [True]
        waiting.end()
        while sweep(replicas.cluster).listings == 0:
            pass
        assert sorted(path for path in replicas.files(2) if path.endswith(".log")) == sorted(replicas.live_paths())


def test_a_location_whose_writes_wait_is_not_owned_after_a_promotion_and_offline(tmp_path: Path) -> None:
    target = str(tmp_path / "mirror")
    with waiting_at(tmp_path / "disk1") as waiting:
        replicas = prepared(tmp_path)
        replicas.produce(3)
        mirror(replicas.cluster.store, open_store(target))
        waiting.operations = WRITES
        assert not promote(target, str(tmp_path / "root")).may_have_lost
        assert len(waiting.calls) == 1  # and it was not waited for afterwards
        new = open_cluster(target, clock=replicas.clock)
        assert online_brokers(new.state) == {0, 2}
        replicas.cluster, replicas.controller = new, Controller(new)
        replicas.controller.check(wait=True)
        assert online_brokers(new.refresh()) == {0, 2}
        replicas.produce(1)
        assert replicas.read() == [*DATA, b"0:3"]
        waiting.end()
        while 1 not in online_brokers(new.refresh()):
            replicas.controller.check()
    owner = read_owner(open_store(str(replicas.disk(1))), new.state.cluster_id)
    assert owner is not None
    assert owner.root == target


def test_an_old_root_whose_writes_wait_is_replaced_only_when_forced(tmp_path: Path) -> None:
    root, target = str(tmp_path / "root"), str(tmp_path / "mirror")
    replicas = prepared(tmp_path)
    replicas.produce(3)
    mirror(replicas.cluster.store, open_store(target))
    with waiting_at(tmp_path / "root") as waiting:
        waiting.operations = WRITES
        with pytest.raises(InvalidRequestError, match=r"hangs.*give --force"):
            promote(target, root)
        assert promote(target, root, force=True).may_have_lost
        assert len(waiting.calls) == 1
        replicas.cluster = open_cluster(target, clock=replicas.clock)
        assert replicas.read() == DATA
        replicas.produce(1)
    assert replicas.read() == [*DATA, b"0:3"]


def test_a_take_over_ends_at_a_location_whose_writes_wait(tmp_path: Path) -> None:
    with waiting_at(tmp_path / "disk1") as waiting:
        replicas = prepared(tmp_path)
        waiting.operations = WRITES
        assert "hangs" in take_over(replicas.cluster).unreached[1]
        owner = read_owner(open_store(str(replicas.disk(2))), replicas.cluster.state.cluster_id)
        assert owner is not None
        assert owner.epoch == 1
        waiting.end()
        while 1 in take_over(replicas.cluster).unreached:
            pass
