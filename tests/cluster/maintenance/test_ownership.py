"""A root deletes nothing at a location that is not its own: another root's, another broker's, or of a copy's original.

Records stay readable whatever the maintenance of a superseded root, of a restored copy, or with wrong disks does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker, remove_broker
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.health import Health
from sparklog.coordinator.ownership import check_owned
from sparklog.coordinator.take_over import take_over
from sparklog.coordinator.unclean_election import UncleanSearch
from sparklog.errors import (
    BrokerNotAvailableError,
    ClusterAlreadyExistsError,
    ClusterMovedError,
    DuplicateBrokerRegistrationError,
    EligibleLeadersNotAvailableError,
    InvalidRequestError,
    PolicyViolationError,
    SparklogError,
    StorageError,
)
from sparklog.ids import RandomIds
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.owner_files import read_note, read_owner, read_root
from sparklog.log.settings import LogSettings
from sparklog.maintenance import promotion
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import OrphanReport, vacuum
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.mirrored_log import MirrorAsRoot
from sparklog.maintenance.promotion import claim_locations, promote
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.commits import ChangeBroker, ChangePartition
from sparklog.store.base import ObjectInfo
from sparklog.store.local import LocalStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.replicas import TOPIC, Replicas


def swept(cluster: Coordinator) -> OrphanReport:
    """Delete all that maintenance with no patience would delete."""
    sweep(cluster)
    return vacuum(cluster, older_than_ms=0, dry_run=False, force=True)


def values(root: Path | str) -> list[bytes | None]:
    replicas = Replicas.__new__(Replicas)
    replicas.cluster = open_cluster(str(root))
    return replicas.read()


def swap(first: Path, second: Path) -> None:
    """Exchange two disks."""
    first.rename(first.parent / "between")
    second.rename(first)
    (first.parent / "between").rename(second)


def apart(tmp_path: Path) -> Replicas:
    """Partition 0 is on broker 1 alone, partition 1 on broker 2."""
    replicas = Replicas(tmp_path, assignment=((1,), (2,)))
    replicas.produce(number=0)
    replicas.produce(number=1)
    return replicas


# -- wrong disks


def test_a_vacuum_deletes_nothing_on_swapped_disks(tmp_path: Path) -> None:
    replicas = apart(tmp_path)
    swap(replicas.disk(1), replicas.disk(2))
    report = swept(open_cluster(str(tmp_path / "root")))
    assert report.files == []
    assert len(report.problems) == 2
    swap(replicas.disk(1), replicas.disk(2))
    assert (replicas.read(0), replicas.read(1)) == (replicas.sent[0], replicas.sent[1])


def test_nothing_is_written_onto_a_swapped_disk_by_an_open_client(tmp_path: Path) -> None:
    replicas = apart(tmp_path)
    replicas.produce(1, number=0)
    before = {path for number in (1, 2) for path in replicas.disk(number).rglob("*.log")}
    swap(replicas.disk(1), replicas.disk(2))
    with pytest.raises(StorageError, match="another location"):
        replicas.cluster.store_of(1).put("orders-0/x", b"1")
    with pytest.raises(StorageError, match="another location"):
        replicas.cluster.store_of(1).delete("orders-0/x")
    with pytest.raises(StorageError):
        replicas.produce(1, number=0, retries=0, delivery_timeout_ms=1000, request_timeout_ms=500, linger_ms=0)
    swap(replicas.disk(1), replicas.disk(2))
    assert {path for number in (1, 2) for path in replicas.disk(number).rglob("*.log")} == before


def test_another_clusters_disk_is_left_alone(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = apart(tmp_path / "a"), apart(tmp_path / "b")
    swap(first.disk(1), second.disk(1))
    for replicas in (first, second):
        assert [problem for problem in swept(replicas.cluster).problems if "broker 1" in problem]
    swap(first.disk(1), second.disk(1))
    assert first.read(0) == first.sent[0]
    assert second.read(0) == second.sent[0]


def test_a_disk_that_is_unmounted_while_it_is_listed_is_no_candidate_without_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    topic_id = replicas.cluster.refresh().topic(TOPIC).topic_id
    leaderless = ChangePartition(
        topic=TOPIC, topic_id=topic_id, partition=0, leader=-1, leader_epoch=5, isr=[1], replicas=[1, 2]
    )
    offline = ChangeBroker(broker=1, online=False)
    state = replicas.cluster.log.draft([leaderless, offline]).finish(99, "0" * 64)
    whole = UncleanSearch(replicas.cluster, state).find(TOPIC, 0)
    assert (whole.broker, list(whole.lost)) == (2, [])
    listed = LocalStore.list

    def unmounted_meanwhile(store: LocalStore, prefix: str = "") -> Iterator[ObjectInfo]:
        if not prefix and store.root == str(replicas.disk(2)) and replicas.disk(2).exists():
            replicas.unmount(2)
        return listed(store, prefix)

    monkeypatch.setattr(LocalStore, "list", unmounted_meanwhile)
    with pytest.raises(EligibleLeadersNotAvailableError):
        UncleanSearch(replicas.cluster, state).find(TOPIC, 0)


def test_files_found_on_a_swapped_disk_make_no_replica_in_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(acks=1)
    assert replicas.partition().isr == (1,)
    listed = LocalStore.list

    def swapped_meanwhile(store: LocalStore, prefix: str = "") -> Iterator[ObjectInfo]:
        if prefix.startswith(TOPIC):
            swap(replicas.disk(1), replicas.disk(2))
            monkeypatch.setattr(LocalStore, "list", listed)
        return listed(store, prefix)

    replicas.produce(9, acks=1)  # so many that the folder is listed
    monkeypatch.setattr(LocalStore, "list", swapped_meanwhile)
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (1,)


# -- other roots


def forced(replicas: Replicas) -> Path:
    """Mirror the root, promote the mirror while the root is away, and bring the root back."""
    root, target = replicas.folder / "root", replicas.folder / "mirror"
    root.rename(replicas.folder / "lost")
    promote(str(target), str(root), force=True)
    (replicas.folder / "lost").rename(root)
    return target


def test_a_superseded_root_deletes_nothing_at_a_shared_location_nor_at_its_own(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=((1,),))
    replicas.produce()
    mirror(replicas.cluster.store, open_store(str(tmp_path / "mirror")))
    target = forced(replicas)
    old = open_cluster(str(tmp_path / "root"))
    new = Replicas.__new__(Replicas)
    new.cluster, new.sent = open_cluster(str(target)), replicas.sent
    new.produce()
    with pytest.raises(BrokerNotAvailableError, match=r"replaced .*take-over"):
        sweep(old)
    with pytest.raises(BrokerNotAvailableError, match="root epoch 1"):
        swept(old)
    findings = Controller(old).check(wait=True).findings
    assert [finding.health for finding in findings] == [Health.FAILED, Health.FAILED]
    assert values(target) == replicas.sent[0]
    swept(open_cluster(str(target)))
    assert values(target) == replicas.sent[0]


def test_a_root_that_could_not_be_closed_finds_its_successor_in_its_own_folder(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=0, assignment=((0,),))
    replicas.produce()
    root, target = open_store(str(tmp_path / "root")), open_store(str(tmp_path / "mirror"))
    mirror(root, target)
    cluster_id = replicas.cluster.state.cluster_id
    claim_locations(MirrorAsRoot(target, cluster_id), root, 0, None, SystemClock(), RandomIds())
    with pytest.raises(BrokerNotAvailableError, match="replaced"):
        sweep(replicas.cluster)
    assert replicas.read() == replicas.sent[0]


def test_a_record_of_an_older_epoch_that_is_written_late_changes_nothing(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=((1,),))
    replicas.produce()
    mirror(replicas.cluster.store, open_store(str(tmp_path / "mirror")))
    old_record = next(replicas.disk(1).glob("owners/*"))
    data = old_record.read_bytes()
    target = forced(replicas)
    old_record.write_bytes(data)  # of the old root, which was stopped before it wrote
    cluster_id = replicas.cluster.state.cluster_id
    record = read_owner(open_store(str(replicas.disk(1))), cluster_id)
    assert record is not None
    assert (record.epoch, record.root) == (1, str(target))


def test_a_copy_of_a_root_deletes_nothing_until_it_takes_over_and_then_the_original_does_not(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=((1,),))
    replicas.produce()
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    replicas.produce()
    copy = open_cluster(str(tmp_path / "copy"))
    with pytest.raises(BrokerNotAvailableError, match="is a copy of that, or was moved"):
        swept(copy)
    assert replicas.read() == replicas.sent[0]
    with pytest.raises(PolicyViolationError, match="answers"):
        take_over(copy)
    (tmp_path / "root").rename(tmp_path / "retired")
    taken = take_over(copy)
    assert (taken.epoch, taken.unreached) == (1, {})
    swept(copy)
    (tmp_path / "retired").rename(tmp_path / "root")
    with pytest.raises(BrokerNotAvailableError, match="replaced"):
        swept(open_cluster(str(tmp_path / "root")))


def test_a_root_that_was_restored_in_place_deletes_nothing_that_its_former_self_wrote(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=((1,),))
    replicas.produce()
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    replicas.produce()
    sweep(replicas.cluster)  # records the newest commit at the locations
    (tmp_path / "root").rename(tmp_path / "former")
    (tmp_path / "copy").rename(tmp_path / "root")
    with pytest.raises(BrokerNotAvailableError, match="restored from an older copy"):
        swept(open_cluster(str(tmp_path / "root")))
    shutil.rmtree(tmp_path / "root")
    (tmp_path / "former").rename(tmp_path / "root")
    assert values(tmp_path / "root") == replicas.sent[0]


def test_what_a_process_has_read_before_its_root_was_restored_makes_no_location_its_own(tmp_path: Path) -> None:
    """It was suspended before a batch of deletions, after it had looked at the log."""
    replicas = apart(tmp_path)
    swept(replicas.cluster)
    shutil.copytree(tmp_path / "root", tmp_path / "older")
    replicas.produce()
    swept(replicas.cluster)
    check_owned(replicas.cluster, 1)
    shutil.rmtree(tmp_path / "root")
    (tmp_path / "older").rename(tmp_path / "root")
    with pytest.raises(BrokerNotAvailableError, match="restored from an older copy"):
        check_owned(replicas.cluster, 1)


def test_a_root_that_was_restored_without_leases_owns_no_location(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, assignment=((1,),))
    replicas.produce()
    shutil.rmtree(tmp_path / "root" / "leases")
    restored = open_cluster(str(tmp_path / "root"))
    with pytest.raises(BrokerNotAvailableError, match="restored from a backup"):
        swept(restored)
    take_over(restored)
    swept(restored)
    assert values(tmp_path / "root") == replicas.sent[0]


def test_a_location_with_an_older_record_of_this_root_is_its_own_when_that_commit_was_removed(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    shutil.copytree(replicas.disk(1), tmp_path / "older")
    for _ in range(3):
        replicas.produce()
        sweep(replicas.cluster)
    replicas.cluster.log.write_checkpoint()
    shutil.rmtree(replicas.disk(1))
    (tmp_path / "older").rename(replicas.disk(1))
    remove_commits(tmp_path / "root")
    assert sweep(open_cluster(str(tmp_path / "root"))).problems == []


def remove_commits(root: Path) -> None:
    """Remove the commits that the newest checkpoint has."""
    cluster = open_cluster(str(root))
    settings = LogSettings(min_commit_age_ms=0, min_commits_kept=1)
    configs = {"metadata.max.retention.bytes": "1", "metadata.max.retention.ms": "1"}
    assert clean_up(cluster.store, SystemClock(), configs, settings).commits


def test_a_location_is_claimed_when_registered_and_its_record_is_renewed(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    store, cluster_id = open_store(str(replicas.disk(1))), replicas.cluster.state.cluster_id
    first = read_owner(store, cluster_id)
    assert first is not None
    assert (first.epoch, first.root) == (0, str(tmp_path / "root"))
    replicas.produce()
    replicas.controller.check()
    renewed = read_owner(store, cluster_id)
    assert renewed is not None
    assert renewed.version > first.version
    assert read_note(replicas.cluster.store, 1) == renewed
    assert len(list(store.list("owners/"))) == 1
    for path in (replicas.disk(2) / "owners").iterdir():  # as before there were owners
        path.unlink()
    check_owned(replicas.cluster, 2)
    assert read_owner(open_store(str(replicas.disk(2))), cluster_id) is not None


def test_a_link_to_a_root_is_the_same_root(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    assert swept(open_cluster(str(tmp_path / "link"))).problems == []


# -- several mirrors


def test_a_root_that_was_closed_for_a_mirror_is_not_continued_by_another(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    for name in ("m1", "m2"):
        mirror(replicas.cluster.store, open_store(str(tmp_path / name)))
    replicas.produce(1)
    promote(str(tmp_path / "m1"), str(tmp_path / "root"))
    for force in (False, True):
        with pytest.raises(InvalidRequestError, match=f"nothing was promoted.*{tmp_path}/m1"):
            promote(str(tmp_path / "m2"), str(tmp_path / "root"), force=force)
        assert not (tmp_path / "m2" / "cluster.json").exists()
    (tmp_path / "root").rename(tmp_path / "lost")  # its closing commit was mirrored by the attempts
    with pytest.raises(InvalidRequestError, match=f"{tmp_path}/m1"):
        promote(str(tmp_path / "m2"), str(tmp_path / "root"), force=True)
    assert values(tmp_path / "m1") == replicas.sent[0]


def test_of_two_mirrors_that_are_forced_one_becomes_the_root(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce()
    for name in ("mirror", "m2"):
        mirror(replicas.cluster.store, open_store(str(tmp_path / name)))
    replicas.produce(1)
    mirror(replicas.cluster.store, open_store(str(tmp_path / "mirror")))
    forced(replicas)
    (tmp_path / "root").rename(tmp_path / "lost")
    with pytest.raises(InvalidRequestError, match=f"belongs to the root {tmp_path}/mirror"):
        promote(str(tmp_path / "m2"), str(tmp_path / "root"), force=True)
    assert not (tmp_path / "m2" / "cluster.json").exists()
    assert read_root(open_store(str(tmp_path / "m2"))).epoch == 0


def mirrored_twice(tmp_path: Path) -> Replicas:
    replicas = Replicas(tmp_path, locations=1, assignment=((1,),))
    replicas.produce()
    for name in ("mirror", "m2"):
        mirror(replicas.cluster.store, open_store(str(tmp_path / name)))
    return replicas


def test_of_two_equal_mirrors_that_are_forced_one_becomes_the_root(tmp_path: Path) -> None:
    replicas = mirrored_twice(tmp_path)
    (tmp_path / "root").rename(tmp_path / "lost")
    promote(str(tmp_path / "mirror"), str(tmp_path / "root"), force=True)
    new = Replicas.__new__(Replicas)
    new.cluster, new.sent = open_cluster(str(tmp_path / "mirror")), replicas.sent
    new.produce()
    with pytest.raises(InvalidRequestError, match=f"nothing was promoted.*belongs to the root {tmp_path}/mirror"):
        promote(str(tmp_path / "m2"), str(tmp_path / "root"), force=True)
    assert not (tmp_path / "m2" / "cluster.json").exists()
    assert values(tmp_path / "mirror") == replicas.sent[0]


class Killed(BaseException):
    """The process ends here."""


def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Path | None = None) -> Replicas:
    """Promote a mirror while the root, and a disk, are away; the process is killed when the mirror is a root."""

    def killed(*_: object) -> int:
        raise Killed

    replicas = mirrored_twice(tmp_path)
    away = [path for path in (tmp_path / "root", disk) if path is not None]
    for path in away:
        path.rename(tmp_path / f"{path.name}-away")
    with monkeypatch.context() as patch:
        patch.setattr(promotion, "close_root", killed)
        with pytest.raises(Killed):
            promote(str(tmp_path / "mirror"), str(tmp_path / "root"), force=True)
    for path in away:
        (tmp_path / f"{path.name}-away").rename(path)
    replicas.cluster = open_cluster(str(tmp_path / "root"))
    return replicas


def test_an_interrupted_promotion_does_not_continue_when_the_old_root_has_later_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = interrupted(tmp_path, monkeypatch)
    replicas.produce()
    with pytest.raises(InvalidRequestError, match="take-over"):  # and the root is not closed for it
        promote(str(tmp_path / "m2"), str(tmp_path / "root"))
    replicas.produce()
    with pytest.raises(InvalidRequestError, match=r"answers again.*take-over"):
        promote(str(tmp_path / "mirror"), str(tmp_path / "root"))
    replicas.produce()
    assert values(tmp_path / "root") == replicas.sent[0]
    take_over(replicas.cluster, force=True)
    for force in (False, True):
        with pytest.raises(InvalidRequestError, match=f"belongs to the root {tmp_path}/root"):
            promote(str(tmp_path / "mirror"), str(tmp_path / "root"), force=force)
    promote(str(tmp_path / "m2"), str(tmp_path / "root"))
    assert values(tmp_path / "m2") == replicas.sent[0]


def test_an_interrupted_promotion_does_not_continue_when_another_mirror_was_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = interrupted(tmp_path, monkeypatch, tmp_path / "disk1")
    replicas.produce()
    promote(str(tmp_path / "m2"), str(tmp_path / "root"))
    for lost in (False, True):
        if lost:  # then the location says so
            (tmp_path / "root").rename(tmp_path / "lost")
        with pytest.raises(InvalidRequestError, match="nothing was promoted"):
            promote(str(tmp_path / "mirror"), str(tmp_path / "root"), force=True)
    assert values(tmp_path / "m2") == replicas.sent[0]


def test_an_interrupted_promotion_continues_when_the_old_root_has_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = interrupted(tmp_path, monkeypatch)
    promote(str(tmp_path / "mirror"), str(tmp_path / "root"))
    assert values(tmp_path / "mirror") == replicas.sent[0]
    with pytest.raises(ClusterMovedError):
        open_cluster(str(tmp_path / "root"))


def test_a_closed_root_is_not_opened_by_repeating_its_promotion(tmp_path: Path) -> None:
    replicas = mirrored_twice(tmp_path)
    promote(str(tmp_path / "mirror"), str(tmp_path / "root"))
    promote(str(tmp_path / "mirror"), str(tmp_path / "root"))
    mirror(open_store(str(tmp_path / "mirror")), open_store(str(tmp_path / "m3")))
    promote(str(tmp_path / "m3"), str(tmp_path / "mirror"))
    with pytest.raises(InvalidRequestError, match=f"closed for {tmp_path}/m3"):
        promote(str(tmp_path / "mirror"), str(tmp_path / "root"))
    assert values(tmp_path / "m3") == replicas.sent[0]


def test_a_second_promotion_is_of_a_later_epoch_and_writes_nothing_to_locations_that_it_has_not_claimed(
    tmp_path: Path,
) -> None:
    replicas = mirrored_twice(tmp_path)
    promote(str(tmp_path / "mirror"), str(tmp_path / "root"))
    mirror(open_store(str(tmp_path / "mirror")), open_store(str(tmp_path / "m3")))
    away = [tmp_path / name for name in ("root", "mirror", "disk1")]
    for path in away:
        path.rename(tmp_path / f"{path.name}-away")
    promote(str(tmp_path / "m3"), str(tmp_path / "mirror"), force=True)
    for path in away:
        (tmp_path / f"{path.name}-away").rename(path)
    assert read_root(open_store(str(tmp_path / "m3"))).epoch == 2
    new = Replicas.__new__(Replicas)
    new.cluster, new.sent = open_cluster(str(tmp_path / "m3")), replicas.sent
    assert not new.cluster.state.brokers[1].online
    assert new.cluster.state.partition(TOPIC, 0).leader == -1
    Controller(new.cluster).check(wait=True)
    with pytest.raises(SparklogError):
        swept(open_cluster(str(tmp_path / "mirror")))
    new.produce()
    assert values(tmp_path / "m3") == replicas.sent[0]


# -- a cluster in a location


def test_no_cluster_and_no_mirror_is_put_into_a_location(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path / "a", locations=1, assignment=((1,),))
    other = create_cluster(str(tmp_path / "other"))
    for folder in (replicas.disk(1), replicas.disk(1) / "deep" / "inside"):
        with pytest.raises(DuplicateBrokerRegistrationError, match="location of a broker"):
            create_cluster(str(folder))
        with pytest.raises(DuplicateBrokerRegistrationError, match="location of a broker"):
            mirror(other.store, open_store(str(folder)))
        assert not (folder / "cluster.json").exists()
    with pytest.raises(DuplicateBrokerRegistrationError, match="inside"):
        add_broker(other, str(replicas.disk(1) / "deep"))
    mirror(replicas.cluster.store, open_store(str(tmp_path / "m")))
    with pytest.raises(DuplicateBrokerRegistrationError, match="mirror"):
        add_broker(other, str(tmp_path / "m"))
    with pytest.raises(ClusterAlreadyExistsError):
        create_cluster(str(tmp_path / "other"))


def test_a_cluster_is_not_created_where_a_disk_with_a_location_is_mounted_meanwhile(tmp_path: Path) -> None:
    """The process was suspended between its look and its first write."""
    replicas = apart(tmp_path)
    folder = replicas.disk(1)
    folder.rename(tmp_path / "away")
    folder.mkdir()
    before = {path.relative_to(tmp_path / "away") for path in (tmp_path / "away").rglob("*.*")}

    def mount(step: int, call: Call) -> None:
        if call == Call("put_if_absent", "cluster.json"):
            folder.rmdir()
            (tmp_path / "away").rename(folder)

    with pytest.raises(DuplicateBrokerRegistrationError, match="location of a broker"):
        create_cluster(FaultyStore(open_store(str(folder)), before=mount))
    assert {path.relative_to(folder) for path in folder.rglob("*.*")} == before
    swept(replicas.cluster)
    assert replicas.read() == replicas.sent[0]


def test_a_root_that_is_mounted_while_a_cluster_is_created_there_stays(tmp_path: Path) -> None:
    """Also one that was replaced, and is the location of its cluster's broker 0."""
    replicas = apart(tmp_path)
    root, target = tmp_path / "root", open_store(str(tmp_path / "mirror"))
    mirror(replicas.cluster.store, target)
    promote(target.root, str(root))
    root.rename(tmp_path / "away")
    root.mkdir()
    before = {path.relative_to(tmp_path / "away") for path in (tmp_path / "away").rglob("*.*")}

    def mount(step: int, call: Call) -> None:
        if call == Call("put_if_absent", "cluster.json"):
            shutil.rmtree(root)
            (tmp_path / "away").rename(root)

    with pytest.raises(SparklogError):
        create_cluster(FaultyStore(open_store(str(root)), before=mount))
    assert {path.relative_to(root) for path in root.rglob("*.*")} == before


def test_a_location_of_another_root_of_the_cluster_is_not_registered(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=0, assignment=((0,),))
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    add_broker(replicas.cluster, str(tmp_path / "disk"))
    with pytest.raises(BrokerNotAvailableError, match="is a copy of that"):
        add_broker(open_cluster(str(tmp_path / "copy")), str(tmp_path / "disk"))


def test_an_unregistered_location_belongs_to_nobody(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=1, assignment=((0,),))
    remove_broker(replicas.cluster, 1)
    assert list(open_store(str(replicas.disk(1))).list()) == []
    assert read_note(replicas.cluster.store, 1) is None
    other = create_cluster(str(tmp_path / "other"))
    assert add_broker(other, str(replicas.disk(1))) == 1
