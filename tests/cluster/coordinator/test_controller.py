"""Locations fail in every possible way; one controller notices and elects leaders in one commit."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker, cordon_broker, move_broker, remove_broker, replace_location
from sparklog.coordinator.controller import CHECK_TRIES, LEASE_KEY, RENEW_SECONDS, Controller
from sparklog.coordinator.health import Health
from sparklog.errors import (
    BrokerNotAvailableError,
    DuplicateBrokerRegistrationError,
    IndeterminateCommitError,
    PolicyViolationError,
    SparklogError,
    StorageError,
    UnsupportedStoreError,
)
from sparklog.log.broker_files import CHECK_KEY, read_identity
from sparklog.protocol.decide import elections
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.brokers import is_online
from sparklog.protocol.decide.replicas import CaughtUp, expand_isr
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import PartitionState, State
from sparklog.store.base import BytesLike, Store
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import (
    FULL,
    OUTAGE,
    PERMISSION,
    UNAVAILABLE,
    Call,
    Fault,
    FaultyStore,
    SimulatedCrash,
)
from sparklog.testing.substitutes import substituted
from tests.cluster.coordinator.helpers import append_values, write_values
from tests.controllers import check_once
from tests.waiting import waiting_at

EVERY_STEP = 1.0


def new_cluster(store: Store | None = None) -> Coordinator:
    return create_cluster(store or MemoryStore(uuid.uuid4().hex), clock=ManualClock())


def with_two_disks(tmp_path: Path) -> tuple[Coordinator, Path, Path]:
    """Topic orders on brokers 1 and 2, led by broker 1, whose locations are folders."""
    cluster = new_cluster()
    disks = tmp_path / "disk1", tmp_path / "disk2"
    for disk in disks:
        add_broker(cluster, str(disk))
    cluster.create_topic("orders", assignment=[[1, 2]])
    return cluster, *disks


def orders(cluster: Coordinator) -> PartitionState:
    return cluster.refresh().partition("orders", 0)


@contextmanager
def failing(location: Path, kind: str) -> Iterator[FaultyStore]:
    """Every call of the location fails in this way, including calls of stores that are already open."""
    store = FaultyStore(open_store(str(location)), seed=1, rates={kind: EVERY_STEP})
    with substituted(store):
        yield store


# -- registering and removing brokers


def test_a_registered_location_has_a_file_with_its_identity(tmp_path: Path) -> None:
    cluster = new_cluster()
    assert add_broker(cluster, str(tmp_path / "disk")) == 1
    identity = read_identity(open_store(str(tmp_path / "disk")))
    assert identity is not None
    assert (identity.cluster_id, identity.broker) == (cluster.state.cluster_id, 1)
    assert cluster.state.brokers[1].url == str(tmp_path / "disk")


def test_an_interrupted_registration_is_completed_under_the_same_id(tmp_path: Path) -> None:
    cluster = new_cluster()
    add_broker(cluster, str(tmp_path / "other"), 5)
    with failing(tmp_path / "disk", OUTAGE) as store:
        store.heal()
        cluster.log.store = FaultyStore(cluster.log.store, seed=1, rates={PERMISSION: EVERY_STEP})
        with pytest.raises(SparklogError):
            add_broker(cluster, str(tmp_path / "disk"))
    cluster.log.store = cluster.log.store.wrapped
    assert add_broker(cluster, str(tmp_path / "disk")) == 6
    assert sorted(cluster.state.brokers) == [0, 5, 6]


def test_a_location_of_another_cluster_or_with_a_root_in_it_is_refused(tmp_path: Path) -> None:
    add_broker(new_cluster(), str(tmp_path / "disk"))
    create_cluster(open_store(str(tmp_path / "root")))
    cluster = new_cluster()
    with pytest.raises(DuplicateBrokerRegistrationError, match="cluster"):
        add_broker(cluster, str(tmp_path / "disk"))
    with pytest.raises(DuplicateBrokerRegistrationError, match="root of a cluster"):
        add_broker(cluster, str(tmp_path / "root"))
    with pytest.raises(UnsupportedStoreError):
        add_broker(cluster, "ftp://host/disk")
    assert sorted(cluster.refresh().brokers) == [0]


def test_a_location_that_refuses_writes_is_not_registered(tmp_path: Path) -> None:
    cluster = new_cluster()
    with failing(tmp_path / "disk", FULL), pytest.raises(StorageError):
        add_broker(cluster, str(tmp_path / "disk"))
    assert sorted(cluster.refresh().brokers) == [0]


def test_a_removed_location_can_be_registered_again_elsewhere(tmp_path: Path) -> None:
    cluster = new_cluster()
    add_broker(cluster, str(tmp_path / "disk"))
    remove_broker(cluster, 1)
    assert add_broker(new_cluster(), str(tmp_path / "disk"), 3) == 3
    with pytest.raises(PolicyViolationError):
        remove_broker(cluster, 0)


def test_a_moved_location_must_have_the_same_broker_id(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    with pytest.raises(BrokerNotAvailableError):
        move_broker(cluster, 1, str(tmp_path / "elsewhere"))
    os.rename(disk, tmp_path / "elsewhere")
    assert move_broker(cluster, 1, str(tmp_path / "elsewhere"))
    assert not move_broker(cluster, 1, str(tmp_path / "elsewhere"))
    assert {finding.health for finding in Controller(cluster).check().findings} == {Health.OK}


def test_cordoning_twice_changes_nothing(tmp_path: Path) -> None:
    cluster, _, _ = with_two_disks(tmp_path)
    assert cordon_broker(cluster, 1)
    assert not cordon_broker(cluster, 1)
    assert cordon_broker(cluster, 1, False)


# -- which process is the controller


def test_the_first_process_to_check_is_the_controller_and_renews_its_lease(tmp_path: Path) -> None:
    cluster, _, _ = with_two_disks(tmp_path)
    first, second = Controller(cluster), Controller(cluster)
    assert first.check().epoch == 1
    version = cluster.state.version
    for _ in range(5):
        cluster.log.clock.sleep(5)
        assert second.check().epoch == 0
        assert first.check().epoch == 1
    assert cluster.state.version == version


def test_a_controller_that_sends_no_heartbeat_is_replaced_and_its_commits_are_refused(tmp_path: Path) -> None:
    location = FaultyStore(open_store(str(tmp_path / "disk1")))
    with substituted(location):
        cluster, disk, _ = with_two_disks(tmp_path)
        first, second = Controller(cluster), Controller(cluster)
        assert first.check().epoch == 1
    epochs: list[int] = []

    def stall(step: int, call: Call) -> None:
        while len(epochs) < 4 and not second.epoch:
            cluster.log.clock.sleep(4)
            epochs.append(second.check().epoch)

    location.before = stall
    assert first.check().epoch == 0
    assert epochs == [0, 0, 0, 2]
    shutil.rmtree(disk)
    assert first.check().epoch == 0
    assert orders(cluster).leader == 1


def test_a_candidate_that_checks_less_often_than_the_timeout_takes_over_at_the_third_check(tmp_path: Path) -> None:
    cluster, _, _ = with_two_disks(tmp_path)
    Controller(cluster).check()
    second = Controller(cluster)
    epochs = []
    for _ in range(3):
        cluster.log.clock.sleep(300)
        epochs.append(second.check().epoch)
    assert epochs[0] == 0
    assert epochs[-1] == 2


def test_a_controller_that_resigns_is_replaced_immediately(tmp_path: Path) -> None:
    cluster, _, _ = with_two_disks(tmp_path)
    assert check_once(cluster).epoch == 1
    assert check_once(cluster).epoch == 2
    with pytest.raises(StorageError):
        cluster.store.get(LEASE_KEY)


def test_a_single_pass_waits_for_the_lease_of_a_dead_controller(tmp_path: Path) -> None:
    cluster, _, _ = with_two_disks(tmp_path)
    Controller(cluster).check()
    before = cluster.log.clock.monotonic()
    assert check_once(cluster).epoch == 2
    assert 9 <= cluster.log.clock.monotonic() - before < 11


def test_an_election_with_a_lost_answer_is_recognised_by_its_name(tmp_path: Path) -> None:
    def new_candidate() -> tuple[FaultyStore, Controller]:
        inner = MemoryStore(uuid.uuid4().hex)
        new_cluster(inner)
        store = FaultyStore(inner)
        candidate = Controller(open_cluster(store, clock=ManualClock()))
        store.reset_counts()
        return store, candidate

    undisturbed, other = new_candidate()
    other.check()
    step = [call.operation for call in undisturbed.calls].index("put_if_absent") + 1
    store, candidate = new_candidate()
    store.inject(Fault(step, OUTAGE))
    with pytest.raises((IndeterminateCommitError, StorageError)):
        candidate.check()
    store.reopen()
    assert candidate.coordinator.refresh().controller.epoch == 1
    assert candidate.check().epoch == 1


# -- locations that fail


def test_a_vanished_location_is_offline_after_one_pass_and_is_not_recreated(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    controller = Controller(cluster)
    assert [finding.health for finding in controller.check().findings] == [Health.OK, Health.OK]
    os.rename(disk, tmp_path / "away")
    version = cluster.state.version
    check = controller.check()
    assert [finding.health for finding in check.findings] == [Health.FAILED, Health.OK]
    assert "not mounted" in check.findings[0].why
    assert check.elected == [("orders", 0)]
    assert cluster.state.version == version + 1
    assert (orders(cluster).leader, orders(cluster).isr, orders(cluster).leader_epoch) == (2, (2,), 1)
    assert not disk.exists()
    os.rename(tmp_path / "away", disk)
    assert [finding.health for finding in controller.check().findings] == [Health.OK, Health.OK]
    assert cluster.state.brokers[1].online
    assert orders(cluster).isr == (2,)


@pytest.mark.parametrize("kind", [PERMISSION, FULL])
def test_a_read_only_or_full_location_fails_immediately(tmp_path: Path, kind: str) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    with failing(disk, kind):
        cluster.brokers.forget()
        check = Controller(cluster).check()
    assert [finding.health for finding in check.findings] == [Health.FAILED, Health.OK]
    assert orders(cluster).leader == 2
    assert cluster.log.clock.monotonic() == 0


def test_requests_to_a_location_that_does_not_answer_are_retried_before_it_fails(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    with failing(disk, UNAVAILABLE) as store:
        cluster.brokers.forget()
        check = Controller(cluster).check()
        assert store.counts["get"] == CHECK_TRIES
    assert [finding.health for finding in check.findings] == [Health.UNANSWERED, Health.OK]
    assert orders(cluster).leader == 2


def test_a_single_missing_answer_is_not_a_failure(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    store = FaultyStore(open_store(str(disk)))
    store.inject(Fault(1, UNAVAILABLE), Fault(4, UNAVAILABLE))
    with substituted(store):
        cluster.brokers.forget()
        assert [finding.health for finding in Controller(cluster).check().findings] == [Health.OK, Health.OK]


def test_a_location_with_stale_reads_fails(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    controller = Controller(cluster)
    controller.check()
    with substituted(FaultyStore(open_store(str(disk)), stale_reads=10)):
        cluster.brokers.forget()
        assert [finding.health for finding in controller.check().findings] == [Health.FAILED, Health.OK]
    assert orders(cluster).leader == 2


def test_a_location_where_another_disk_is_mounted_fails(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    add_broker(new_cluster(), str(tmp_path / "foreign"))
    os.rename(disk, tmp_path / "away")
    os.rename(tmp_path / "foreign", disk)
    assert Controller(cluster).check().findings[0].health is Health.FAILED


def test_an_older_copy_of_a_location_is_reported_and_leaves_the_isr(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    controller = Controller(cluster)
    controller.check()
    shutil.copytree(disk, tmp_path / "copy")
    controller.check()
    shutil.rmtree(disk)
    os.rename(tmp_path / "copy", disk)
    check = controller.check()
    assert [finding.health for finding in check.findings] == [Health.WENT_BACK, Health.OK]
    assert (orders(cluster).leader, orders(cluster).isr) == (2, (2,))
    assert [finding.health for finding in controller.check().findings] == [Health.OK, Health.OK]


def test_a_location_without_its_latest_check_is_treated_as_an_older_copy(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    controller = Controller(cluster)
    controller.check()
    (disk / CHECK_KEY).unlink()
    assert controller.check().findings[0].health is Health.WENT_BACK
    assert orders(cluster).isr == (2,)


class ReadOnlyStore(FaultyStore):
    """Returns what it holds, and refuses writes."""

    def put(self, key: str, data: BytesLike) -> None:
        raise StorageError(f"{key}: read-only file system", path=key)


def test_a_read_only_older_copy_is_offline_and_causes_no_commit_at_every_pass(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    controller = Controller(cluster)
    controller.check()
    (disk / CHECK_KEY).unlink()
    with substituted(ReadOnlyStore(open_store(str(disk)))):
        cluster.brokers.forget()
        assert controller.check().findings[0].health is Health.FAILED
        version = cluster.refresh().version
        controller.check()
        assert cluster.refresh().version == version
        assert not cluster.state.brokers[1].online
    cluster.brokers.forget()
    assert controller.check().findings[0].health is Health.WENT_BACK
    assert cluster.refresh().brokers[1].online
    assert cluster.state.brokers[1].lost_files_at > version
    assert controller.check().findings[0].health is Health.OK


def test_a_controller_that_dies_before_its_commit_leaves_the_loss_to_the_next_one(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    first = Controller(cluster)
    first.check()
    shutil.copytree(disk, tmp_path / "copy")
    first.check()
    shutil.rmtree(disk)
    os.rename(tmp_path / "copy", disk)

    def die(step: int, call: Call) -> None:
        if call.operation == "put_if_absent":
            raise SimulatedCrash

    cluster.log.store = FaultyStore(cluster.log.store, before=die)
    with pytest.raises(SimulatedCrash):
        first.check()
    cluster.log.store = cluster.log.store.wrapped
    cluster.store.delete(LEASE_KEY)
    assert Controller(cluster).check().findings[0].health is Health.WENT_BACK
    assert orders(cluster).isr == (2,)


def test_an_empty_location_is_accepted_as_a_replacement_on_request(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    controller = Controller(cluster)
    controller.check()
    shutil.rmtree(disk)
    assert controller.check().findings[0].health is Health.FAILED
    replace_location(cluster, 1)
    assert controller.check().findings[0].health is Health.WENT_BACK
    assert controller.check().findings[0].health is Health.OK
    assert (disk / CHECK_KEY).exists()
    assert (disk / IDENTITY_KEY).exists()


def test_an_unavailable_root_is_an_error_and_takes_no_broker_offline(tmp_path: Path) -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    cluster = new_cluster(inner)
    add_broker(cluster, str(tmp_path / "disk"))
    controller = Controller(cluster)
    controller.check()
    cluster.log.store = FaultyStore(inner, seed=1, rates={UNAVAILABLE: EVERY_STEP})
    with pytest.raises(StorageError):
        controller.check()
    cluster.log.store = inner
    assert cluster.refresh().brokers[1].online


# -- elections


def test_leadership_returns_to_the_preferred_leader_after_a_while(tmp_path: Path) -> None:
    cluster, disk, _ = with_two_disks(tmp_path)
    controller = Controller(cluster)
    os.rename(disk, tmp_path / "away")
    controller.check()
    os.rename(tmp_path / "away", disk)
    controller.check()
    cluster.log.clock.sleep(301)
    assert controller.check().preferred == []
    state = cluster.refresh()
    caught_up = CaughtUp("orders", state.topics["orders"].topic_id, 0, 1, 0, state.version)
    cluster.submit(lambda state: expand_isr(state, [caught_up]))
    cluster.log.clock.sleep(301)
    assert controller.check().preferred == [("orders", 0)]
    assert orders(cluster).leader == 1


def test_leadership_stays_once_the_cluster_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller is suspended since it read the setting."""
    cluster, disk, _ = with_two_disks(tmp_path)
    controller = Controller(cluster)
    os.rename(disk, tmp_path / "away")
    controller.check()
    os.rename(tmp_path / "away", disk)
    controller.check()
    state = cluster.refresh()
    caught_up = CaughtUp("orders", state.topics["orders"].topic_id, 0, 1, 0, state.version)
    cluster.submit(lambda state: expand_isr(state, [caught_up]))
    cluster.log.clock.sleep(301)
    find = elections.imbalance

    def find_early(state: State) -> dict[int, float]:
        found = find(state)
        keep = partial(alter_configs, topic="", changes={"auto.leader.rebalance.enable": "false"})
        open_cluster(cluster.store).submit(keep)
        return found

    monkeypatch.setattr(elections, "imbalance", find_early)
    assert controller.check().preferred == []
    assert orders(cluster).leader == 2


def appended_to(cluster: Coordinator, values: list[bytes], disks: list[Path], brokers: list[int]) -> None:
    """Append records in a file that these brokers hold."""
    item = write_values(cluster, "orders", 0, values)
    for disk in disks:
        for path in (item.run.path, item.run.path.removesuffix(".log") + ".index"):
            open_store(str(disk)).put(path, cluster.store.get(path))
    run = msgspec.structs.replace(item.run, broker=brokers[0], replicas=brokers)
    cluster.append(AppendRequest(appends=[msgspec.structs.replace(item, run=run)]))


def test_an_out_of_sync_replica_becomes_leader_only_if_the_topic_allows_it(tmp_path: Path) -> None:
    cluster, first, second = with_two_disks(tmp_path)
    controller = Controller(cluster)
    controller.check()
    appended_to(cluster, [b"a", b"b"], [first, second], [1, 2])
    os.rename(second, tmp_path / "away")
    controller.check()
    appended_to(cluster, [b"c"], [first], [1])
    os.rename(tmp_path / "away", second)
    os.rename(first, tmp_path / "lost")
    assert controller.check().unclean == []
    assert (orders(cluster).leader, orders(cluster).isr) == (-1, (1,))
    cluster.submit(partial(alter_configs, topic="orders", changes={"unclean.leader.election.enable": "true"}))
    assert controller.check().unclean == [("orders", 0)]
    partition = orders(cluster)
    assert (partition.leader, partition.isr, partition.log_end_offset, partition.segments) == (2, (2,), 3, 1)
    appended_to(cluster, [b"d"], [second], [2])
    assert orders(cluster).log_end_offset == 4
    assert [segment.base_offset for segment in cluster.segments("orders").partition(0)] == [0, 3]


def test_appending_needs_no_controller(tmp_path: Path) -> None:
    cluster = new_cluster()
    cluster.create_topic("orders")
    assert append_values(cluster, "orders", 0, [b"a"]).appended[0].base_offset == 0
    assert cluster.state.controller.epoch == 0


@pytest.mark.parametrize("operation", ["put", "put_if_absent", "delete", "get", "list"])
def test_a_location_where_calls_of_one_kind_wait_is_offline_until_they_end(tmp_path: Path, operation: str) -> None:
    """As of a frozen file system, whose reads answer; ``put_if_absent`` and ``delete`` are of the owner record."""
    with waiting_at(tmp_path / "disk1") as waiting:
        cluster, _, _ = with_two_disks(tmp_path)
        controller = Controller(cluster)
        assert {finding.health for finding in controller.check(wait=True).findings} == {Health.OK}
        cluster.create_topic("other", assignment=[[2]])
        cluster.log.clock.sleep(RENEW_SECONDS)  # a new owner record is due, and the one before is deleted
        waiting.operations = {operation}
        for _ in range(3):
            assert [finding.health for finding in controller.check().findings] == [Health.UNANSWERED, Health.OK]
        assert len(waiting.calls) == 1  # further checks do not wait in further threads
        assert (orders(cluster).leader, orders(cluster).isr) == (2, (2,))
        waiting.end()
        health = Health.UNANSWERED
        while health is Health.UNANSWERED:
            health = controller.check().findings[0].health
        assert health is Health.OK  # the check that was stored late does not look as if the location went back
        assert is_online(cluster.refresh(), 1)


def test_a_controller_keeps_its_lease_while_a_location_is_slow(tmp_path: Path) -> None:
    cluster, first, _ = with_two_disks(tmp_path)
    cluster.submit(partial(alter_configs, topic="", changes={"broker.heartbeat.interval.ms": "100"}))
    beats: list[int] = []

    def beat() -> int:
        return int(msgspec.json.decode(cluster.store.get(LEASE_KEY))["beat"])

    def answer_after_two_heartbeats(step: int, call: Call) -> None:
        began, ends = beat(), time.monotonic() + 60
        while beat() < began + 2 and time.monotonic() < ends:
            cluster.log.clock.sleep(1)
            time.sleep(0.01)
        beats.append(beat() - began)

    with substituted(FaultyStore(open_store(str(first)), before=answer_after_two_heartbeats)):
        cluster.brokers.forget()
        findings = Controller(cluster).check(wait=True).findings
    assert {finding.health for finding in findings} == {Health.OK}
    assert min(beats) >= 2
