"""A location is away while a file is rolled, and is then the only one that is left: it has the records all the same, in
the files from before the roll."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from sparklog.coordinator.brokers import replace_location
from sparklog.errors import DataLossError
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.topics import alter_configs
from tests.cluster.maintenance.replicas import TOPIC, Replicas

DAY_SECONDS = 86_400.0


def lost_after_a_roll(tmp_path: Path, unclean: bool) -> Replicas:
    """Both locations had all records; broker 2 was away when they were rolled at broker 1, which is lost then."""
    replicas = Replicas(tmp_path)
    changes = {"unclean.leader.election.enable": str(unclean).lower()}
    replicas.cluster.submit(partial(alter_configs, topic=TOPIC, changes=changes))
    replicas.produce(6)
    assert replicas.partition().isr == (1, 2)
    replicas.unmount(2)
    replicas.controller.check()
    assert roll(replicas.cluster, InProcess()).files_in == 6
    replicas.mount(2)
    shutil.rmtree(replicas.disk(1))
    return replicas


def collect_garbage(replicas: Replicas) -> None:
    """Delete what may be deleted, long after every delay."""
    for _ in range(2):
        replicas.clock.advance(10 * DAY_SECONDS)
        sweep(replicas.cluster)
        vacuum(replicas.cluster, dry_run=False)


def repair(replicas: Replicas) -> list[str]:
    """Repair by fsck; the findings that are left."""
    store = replicas.cluster.store
    repair_cluster(check_cluster(store, clock=replicas.clock))
    return [
        each.message for each in check_cluster(store, clock=replicas.clock).report.findings if each.severity == "error"
    ]


def test_an_unclean_election_loses_nothing_that_the_new_leader_has_in_older_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replicas = lost_after_a_roll(tmp_path, unclean=True)
    assert replicas.controller.check().unclean == [(TOPIC, 0)]
    assert replicas.partition().leader == 2
    assert "run `sparklog fsck --repair`" in caplog.text
    with pytest.raises(DataLossError, match="cannot be read from any of their brokers"):
        replicas.read()
    collect_garbage(replicas)
    assert repair(replicas) == []
    assert replicas.read() == replicas.sent[0]
    replicas.produce(2)
    assert replicas.read() == replicas.sent[0]


def test_what_the_new_leader_has_in_no_file_leaves_the_log_as_ever(tmp_path: Path) -> None:
    replicas = lost_after_a_roll(tmp_path, unclean=True)
    for path in replicas.disk(2).rglob("*.log"):
        path.unlink()
    assert replicas.controller.check().unclean == [(TOPIC, 0)]
    assert replicas.read() == []


def test_fsck_writes_records_again_from_a_replica_that_is_not_in_sync(tmp_path: Path) -> None:
    replicas = lost_after_a_roll(tmp_path, unclean=False)
    replicas.controller.check()
    replicas.disk(1).mkdir()
    replace_location(replicas.cluster, 1)
    replicas.controller.check()
    collect_garbage(replicas)
    assert repair(replicas) == []
    assert replicas.read() == replicas.sent[0]
