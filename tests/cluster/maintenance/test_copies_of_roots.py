"""What runs at a copy of a root, or at a root that was replaced, does not disturb the root in use: it deletes nothing
that identifies a location, writes no check there, and closes no root. Nor does a controller that was replaced."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.brokers import add_broker, remove_broker
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.health import Health
from sparklog.coordinator.ownership import check_owned
from sparklog.coordinator.take_over import take_over
from sparklog.errors import BrokerNotAvailableError, ClusterMovedError, SparklogError
from sparklog.log.broker_files import NOTES, read_note
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.protocol.commits import ElectController
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.ownership import OwnerRecord, RootIdentity, is_another_roots
from sparklog.protocol.state import State
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.replicas import Replicas


def look(cluster: Coordinator) -> list[Health]:
    """Let a new controller look at all locations, with the next controller epoch."""
    controller = Controller(cluster)
    findings = controller.check(wait=True).findings
    with suppress(SparklogError):
        controller.resign()
    return [finding.health for finding in findings]


def copied(tmp_path: Path, leases: bool = False, is_used: bool = True) -> tuple[Replicas, Coordinator]:
    """A cluster with a free location, and a copy of its root from before that got a replica."""
    replicas = Replicas(tmp_path, locations=2, assignment=((1,),))
    replicas.produce()
    look(replicas.cluster)
    ignored = () if leases else ("leases",)
    shutil.copytree(tmp_path / "root", tmp_path / "copy", ignore=shutil.ignore_patterns(*ignored))
    if is_used:
        replicas.cluster.create_topic("later", assignment=[[2]])
    return replicas, open_cluster(str(tmp_path / "copy"))


def content(disk: Path) -> dict[str, bytes]:
    return {str(path.relative_to(disk)): path.read_bytes() for path in sorted(disk.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("leases", [False, True])
def test_a_broker_that_is_removed_in_a_copy_keeps_its_location_for_the_original(tmp_path: Path, leases: bool) -> None:
    replicas, copy = copied(tmp_path, leases)
    before = content(replicas.disk(2))
    remove_broker(copy, 2)
    assert content(replicas.disk(2)) == before
    assert look(replicas.cluster) == [Health.OK, Health.OK]
    with pytest.raises(BrokerNotAvailableError):
        add_broker(copy, str(replicas.disk(2)))


def test_a_removal_that_was_suspended_leaves_a_location_that_another_root_took_over_since(tmp_path: Path) -> None:
    replicas, copy = copied(tmp_path, is_used=False)
    for name in ("broker-check.json", "owners/", "broker.json"):
        with suppress(SparklogError):
            add_broker(replicas.cluster, str(replicas.disk(2)), 2)
        look(replicas.cluster)
        taken: list[int] = []

        def meanwhile(step: int, call: Call, name: str = name, taken: list[int] = taken) -> None:
            if call.operation == "delete" and call.key.startswith(name) and not taken:
                taken.append(take_over(copy, force=True).epoch)

        with substituted(FaultyStore(open_store(str(replicas.disk(2))), before=meanwhile)):
            replicas.cluster.brokers.forget()
            remove_broker(replicas.cluster, 2)
        replicas.cluster.brokers.forget()
        assert taken
        if name == "broker-check.json":
            check_owned(copy, 2)
        assert take_over(replicas.cluster, force=True).epoch > taken[0]


def test_a_controller_of_a_copy_writes_nothing_at_locations_of_the_original(tmp_path: Path) -> None:
    replicas, copy = copied(tmp_path)
    for _ in range(3):
        look(replicas.cluster)
    before = {number: content(replicas.disk(number)) for number in (1, 2)}
    assert look(copy) == [Health.FAILED, Health.FAILED]
    assert {number: content(replicas.disk(number)) for number in (1, 2)} == before
    assert look(replicas.cluster) == [Health.OK, Health.OK]


@pytest.mark.parametrize("leases", [False, True])
def test_a_copy_of_a_promoted_root_does_not_close_the_old_root_that_comes_back(tmp_path: Path, leases: bool) -> None:
    replicas = Replicas(tmp_path, locations=0, assignment=((0,),))
    replicas.produce()
    mirror(replicas.cluster.store, open_store(str(tmp_path / "mirror")))
    (tmp_path / "root").rename(tmp_path / "away")
    promote(str(tmp_path / "mirror"), str(tmp_path / "root"), force=True)
    ignored = () if leases else ("leases",)
    shutil.copytree(tmp_path / "mirror", tmp_path / "copy", ignore=shutil.ignore_patterns(*ignored))
    (tmp_path / "away").rename(tmp_path / "root")
    assert look(open_cluster(str(tmp_path / "copy"))) == [Health.FAILED]
    replicas.cluster.refresh()  # not closed
    assert look(open_cluster(str(tmp_path / "mirror"))) == [Health.OK]
    with pytest.raises(ClusterMovedError, match=f"{tmp_path}/mirror"):
        replicas.cluster.refresh()
    assert look(open_cluster(str(tmp_path / "copy"))) == [Health.FAILED]


def test_a_check_that_is_noted_late_does_not_hide_that_a_location_went_back(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(1)
    look(replicas.cluster)
    done: list[str] = []

    def meanwhile(step: int, call: Call) -> None:
        if call.operation == "put" and call.key.startswith(f"{NOTES}1") and not done:
            done.append(call.key)
            copy = replicas.copy_of(1)
            other = replicas.cluster
            epoch = other.refresh().controller.epoch
            elect = ElectController(controller="other", controller_epoch=epoch + 1)

            def decide(state: State) -> Decision[None]:
                return Decision([elect], None)

            other.submit(decide)
            next_one = Controller(other)
            next_one.name = "other"
            assert all(finding.health is Health.OK for finding in next_one.check().findings)
            replicas.produce(2)
            replicas.put_back(copy, 1)

    late = open_cluster(FaultyStore(open_store(str(tmp_path / "root")), before=meanwhile))
    Controller(late).check(wait=True)
    assert done
    final = Controller(replicas.cluster)
    final.name = "other"
    assert [finding.health for finding in final.check().findings] == [Health.WENT_BACK, Health.OK]
    assert replicas.partition().isr == (2,)


def test_notes_of_older_controllers_are_deleted_and_the_latest_one_counts(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.cluster.store.put(f"{NOTES}1", b'{"controller_epoch":0,"check":7,"time_ms":1}')
    assert read_note(replicas.cluster.store, 1).check == 7
    for _ in range(3):
        look(replicas.cluster)
    names = sorted(info.key for info in replicas.cluster.store.list(NOTES))
    epoch = replicas.cluster.refresh().controller.epoch
    assert names == [f"{NOTES}{broker}-{epoch:020d}" for broker in (1, 2)]
    assert read_note(replicas.cluster.store, 1).controller_epoch == epoch


def test_a_location_is_another_roots_by_a_higher_epoch_or_by_an_address() -> None:
    own = RootIdentity("/root", 1)
    cases = (
        (0, "/root", False),
        (0, "/b", False),
        (1, "/root", False),
        (1, "/b", True),
        (2, "/root", True),
        (2, "/b", True),
    )
    assert not is_another_roots(own, None)
    for epoch, root, expected in cases:
        assert is_another_roots(own, OwnerRecord(epoch, 5, "d", root)) is expected
