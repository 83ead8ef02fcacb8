"""What the log says of a location counts only while its root owned it: after a take-over or a promotion replicas that
lack files leave the ISR, so no copy that is the only one is taken for a surplus one."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.take_over import take_over
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.coordinator.verified_replicas import verify_replicas
from sparklog.log.broker_files import CHECK_KEY, read_check
from sparklog.maintenance.gc.surplus_replicas import remove_surplus_replicas
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol import levels
from sparklog.protocol.decide.replicas import alter_reassignments
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.reassignment import reassign
from tests.cluster.maintenance.replicas import TOPIC, Replicas


def move_and_clean_up(replicas: Replicas, to: list[int]) -> None:
    """``reassign-partitions`` and ``vacuum --execute``."""
    reassign(replicas.cluster, {(TOPIC, 0): to}, InProcess())
    vacuum(replicas.cluster, 0, dry_run=False, force=True)


def restore_root(replicas: Replicas, copy: Path) -> None:
    root = replicas.folder / "root"
    shutil.rmtree(root)
    copy.rename(root)
    replicas.cluster = open_cluster(str(root), clock=replicas.clock)
    replicas.controller = Controller(replicas.cluster)


def copy_root(replicas: Replicas) -> Path:
    copy = replicas.folder / "copy-of-root"
    shutil.copytree(replicas.folder / "root", copy, ignore=shutil.ignore_patterns("leases"))
    return copy


def test_a_restored_root_does_not_trust_a_location_whose_files_were_deleted_meanwhile(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=1, assignment=((0, 1),))
    replicas.produce()
    copy = copy_root(replicas)
    delete_topic(replicas.cluster, TOPIC)
    replicas.clock.advance(2 * 86_400)
    sweep(replicas.cluster)
    assert not replicas.files(1)
    restore_root(replicas, copy)
    take_over(replicas.cluster)
    assert replicas.partition().isr == (0,)
    move_and_clean_up(replicas, [1])
    assert replicas.read() == replicas.sent[0]


def test_a_mirror_that_lags_does_not_trust_a_location_from_which_a_replica_was_moved(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    mirror(replicas.cluster.store, open_store(str(tmp_path / "mirror")))
    move_and_clean_up(replicas, [2])
    assert not replicas.files(1)
    (tmp_path / "root").rename(tmp_path / "lost")
    promote(str(tmp_path / "mirror"), str(tmp_path / "root"), force=True)
    replicas.cluster = open_cluster(str(tmp_path / "mirror"), clock=replicas.clock)
    assert replicas.partition().isr == (2,)
    move_and_clean_up(replicas, [1])
    assert replicas.read() == replicas.sent[0]


def test_a_promoted_mirror_notices_an_older_copy_of_a_location(tmp_path: Path) -> None:
    """The numbers of its checks were only in the root that is lost."""
    replicas = Replicas(tmp_path)
    replicas.controller.check()
    copy = replicas.copy_of(1)
    replicas.produce()
    mirror(replicas.cluster.store, open_store(str(tmp_path / "mirror")))
    (tmp_path / "root").rename(tmp_path / "lost")
    replicas.put_back(copy, 1)
    promote(str(tmp_path / "mirror"), str(tmp_path / "root"), force=True)
    replicas.cluster = open_cluster(str(tmp_path / "mirror"), clock=replicas.clock)
    assert replicas.partition().isr == (2,)


def test_a_restored_root_notices_an_older_copy_though_its_controllers_have_lower_epochs(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=1, assignment=((0, 1),))
    copy = copy_root(replicas)
    for _ in range(4):
        Controller(replicas.cluster).check(wait=True)
        replicas.cluster.store.delete("leases/controller")
    old_disk = replicas.copy_of(1)
    restore_root(replicas, copy)
    take_over(replicas.cluster)
    replicas.controller.check(wait=True)
    replicas.produce()
    assert replicas.partition().isr == (0, 1)
    replicas.put_back(old_disk, 1)
    assert any("went back" in finding.why for finding in replicas.controller.check(wait=True).findings)
    assert replicas.partition().isr == (0,)
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (0, 1)


def test_a_copy_that_no_replica_in_sync_has_is_not_surplus(tmp_path: Path) -> None:
    """An older copy of a location was mounted, and no controller has looked since."""
    replicas = Replicas(tmp_path)
    copy = replicas.copy_of(1)
    replicas.produce()
    replicas.put_back(copy, 1)
    replicas.cluster.submit(lambda state: alter_reassignments(state, {(TOPIC, 0): [1]}))
    problems: list[str] = []
    assert remove_surplus_replicas(replicas.cluster, 2, problems=problems) == []
    assert len(problems) == 1
    assert f"3 files of {TOPIC}-0 are kept" in problems[0]
    assert len(replicas.files(2)) == 6


def test_a_partition_that_no_replica_has_whole_keeps_its_isr(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    for number, path in enumerate(islice(replicas.live_paths(), 2), 1):
        (replicas.disk(number) / path).unlink()
    verify_replicas(replicas.cluster)
    assert replicas.partition().isr == (1, 2)
    assert "1 partitions, such as orders-0, have no replica that was found to have all files" in caplog.text


def test_a_replica_whose_location_cannot_be_listed_leaves_the_isr(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    replicas.unmount(1)
    verify_replicas(replicas.cluster)
    assert replicas.partition().isr == (2,)
    assert replicas.partition().leader == 2


def test_a_replica_that_lacks_files_leaves_the_isr_of_one_that_cannot_be_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have the only copy, and would be out of sync as soon as something is appended without it."""
    replicas = Replicas(tmp_path)
    replicas.produce()
    replicas.unmount(2)
    (replicas.disk(1) / next(replicas.live_paths())).unlink()
    verify_replicas(replicas.cluster)
    assert replicas.partition().isr == (2,)
    assert "have no replica that was found to have all files" in caplog.text
    replicas.mount(2)
    replicas.controller.check()
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (1, 2)
    assert replicas.read() == replicas.sent[0]


def test_a_file_that_is_shorter_than_another_copy_is_lacking(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    path = replicas.disk(1) / next(replicas.live_paths())
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-1])
    verify_replicas(replicas.cluster)
    assert replicas.partition().isr == (2,)


def test_a_partition_is_verified_that_is_appended_to_at_every_moment(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    copy = replicas.copy_of(1)
    replicas.produce()
    replicas.put_back(copy, 1)

    def append(step: int, call: Call) -> None:
        if call.operation in ("list", "info") and replicas.partition().isr == (1, 2):
            replicas.produce(1)

    cluster = open_cluster(str(tmp_path / "root"))
    with substituted(FaultyStore(open_store(str(replicas.disk(2))), before=append)):
        verify_replicas(cluster)
    assert len(replicas.sent[0]) > 3
    assert replicas.partition().isr == (2,)


@pytest.mark.parametrize(("level", "epoch"), [(2, 0), (levels.CURRENT, 1)])
def test_checks_state_the_epoch_of_the_root_at_a_level_that_0_2_0_does_not_write(
    tmp_path: Path, level: int, epoch: int
) -> None:
    """It does not state one: its checks would look older."""
    cluster = create_cluster(str(tmp_path / "root"), level=level)
    add_broker(cluster, str(tmp_path / "disk"))
    take_over(cluster)
    Controller(cluster).check(wait=True)
    assert read_check(open_store(str(tmp_path / "disk")), CHECK_KEY).root_epoch == epoch


@pytest.mark.parametrize(("level", "warns"), [(2, True), (3, False)])
def test_a_take_over_warns_of_programs_that_know_no_owners(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int, warns: bool
) -> None:
    take_over(create_cluster(str(tmp_path / "root"), level=level))
    assert ("stop `maintain` and `vacuum` of sparklog 0.2.0" in caplog.text) == warns
