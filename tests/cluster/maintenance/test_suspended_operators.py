"""A command that was suspended before any of its writes, and resumes after another operator's, undoes nothing.

Each command runs once for each of its writes and deletions; the other operator works just before that one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker, remove_broker
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.health import Health
from sparklog.coordinator.ownership import check_owned
from sparklog.coordinator.take_over import take_over
from sparklog.errors import (
    ClusterMovedError,
    DuplicateBrokerRegistrationError,
    SparklogError,
    UnlinkedHistoryError,
)
from sparklog.log.broker_files import encode_identity
from sparklog.log.layout import COMMITS
from sparklog.log.owner_files import read_root, read_source_epoch, write_epoch
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.local import LocalStore
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import WRITES, Call, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.cluster.client.test_producer_restored_roots import pass_by
from tests.cluster.maintenance.replicas import Replicas

CHANGES = frozenset({*WRITES, "delete"})


def suspended(
    addresses: list[str], command: Callable[[Coordinator], object], meanwhile: Callable[[], object], number: int
) -> list[str] | None:
    """Run a command of a process of its own, and the other operator's just before its ``number``-th change at these
    addresses (the first is the root's); return the keys that it deletes afterwards, None if it has fewer changes."""
    changes: list[Call] = []

    def before(step: int, call: Call) -> None:
        if call.operation in CHANGES:
            changes.append(call)
            if len(changes) - 1 == number:
                meanwhile()

    stores = [FaultyStore(open_store(address), before=before) for address in addresses]
    with ExitStack() as stack:
        for store in stores:
            stack.enter_context(substituted(store))
        process = open_cluster(stores[0])
    process.brokers.forget()
    try:
        with ExitStack() as stack:
            for store in stores[1:]:
                stack.enter_context(substituted(store))
            command(process)
    except SparklogError:
        pass  # a command that finds that it is late may fail
    if len(changes) <= number:
        return None
    return [call.key for call in changes[number + 1 :] if call.operation == "delete"]


def every_suspension(tmp_path: Path, check: Callable[[Path, int], bool], at_least: int) -> None:
    number = 0
    while check(tmp_path / str(number), number):
        number += 1
    assert number >= at_least


def test_a_take_over_does_not_set_a_later_one_back(tmp_path: Path) -> None:
    def check(folder: Path, number: int) -> bool:
        folder.mkdir()
        replicas = Replicas(folder)
        root = replicas.cluster.store.root

        def again() -> None:
            for _ in range(2):
                take_over(open_cluster(root))
            look(open_cluster(root))

        epoch_before = read_root(open_store(root)).epoch
        has = suspended([root], take_over, again, number) is not None
        operator = open_cluster(root)
        assert read_root(operator.store).epoch >= epoch_before + (2 if has else 1)
        for broker in (1, 2):
            check_owned(operator, broker)
        return has

    every_suspension(tmp_path, check, at_least=3)


def test_an_epoch_is_never_lowered(tmp_path: Path) -> None:
    root = open_store(str(tmp_path / "root"))
    for epoch in (1, 10, 9, 2):
        write_epoch(root, epoch)
    assert read_root(root).epoch == 10


def test_a_mirroring_does_not_set_the_epoch_of_a_later_one_back(tmp_path: Path) -> None:
    def check(folder: Path, number: int) -> bool:
        folder.mkdir()
        replicas = Replicas(folder, locations=0, assignment=((0,),))
        root, target = replicas.cluster.store.root, str(folder / "mirror")
        take_over(replicas.cluster)

        def again() -> None:
            take_over(open_cluster(root))
            mirror(open_store(root), open_store(target))

        def mirror_there(process: Coordinator) -> None:
            mirror(process.store, open_store(target))

        has = suspended([root, target], mirror_there, again, number) is not None
        assert read_source_epoch(open_store(target)) >= (2 if has else 1)
        return has

    every_suspension(tmp_path, check, at_least=3)


def look(operator: Coordinator) -> list[Health]:
    """Let a controller look at all locations, once."""
    controller = Controller(operator)
    findings = controller.check().findings
    controller.resign()
    return [finding.health for finding in findings]


def assert_in_use(root: str, disk: str) -> None:
    """The location is registered, identified and owned, and its broker goes online."""
    operator = open_cluster(root)
    assert operator.state.brokers[1].url == disk
    check_owned(operator, 1)
    look(operator)  # it may take the location for an older copy, which loses nothing
    assert look(operator) == [Health.OK]
    assert operator.refresh().brokers[1].online


def test_a_removal_undoes_no_later_registration_of_the_same_location(tmp_path: Path) -> None:
    def check(folder: Path, number: int) -> bool:
        folder.mkdir()
        replicas = Replicas(folder, locations=1, assignment=((0,),))
        root, disk = replicas.cluster.store.root, str(replicas.disk(1))
        look(replicas.cluster)

        def register_again() -> None:
            operator = open_cluster(root)
            if 1 in operator.state.brokers:
                remove_broker(operator, 1)
            assert add_broker(operator, disk) == 1
            look(operator)

        deleted = suspended([root, disk], lambda process: remove_broker(process, 1), register_again, number)
        if deleted is None:
            assert list(open_store(disk).list()) == []
        elif 1 in open_cluster(root).state.brokers:  # else the removal came last
            assert_in_use(root, disk)
            assert IDENTITY_KEY not in deleted  # it may be killed before it writes that again
        return deleted is not None

    every_suspension(tmp_path, check, at_least=6)


def test_a_removal_undoes_no_later_registration_of_another_location_under_the_id(tmp_path: Path) -> None:
    def check(folder: Path, number: int) -> bool:
        folder.mkdir()
        replicas = Replicas(folder, locations=1, assignment=((0,),))
        root, disk, other = replicas.cluster.store.root, str(replicas.disk(1)), str(folder / "other")

        def register_another() -> None:
            operator = open_cluster(root)
            if 1 in operator.state.brokers:
                remove_broker(operator, 1)
            assert add_broker(operator, other, 1) == 1
            look(operator)

        deleted = suspended([root, disk], lambda process: remove_broker(process, 1), register_another, number)
        if deleted is not None:
            assert_in_use(root, other)
        return deleted is not None

    every_suspension(tmp_path, check, at_least=5)


def test_a_removal_undoes_no_later_registration_when_the_commits_that_it_knew_are_gone(tmp_path: Path) -> None:
    """Its own work has to end then, but not its undo."""
    replicas = Replicas(tmp_path, locations=1, assignment=((0,),))
    root, disk = replicas.cluster.store.root, str(replicas.disk(1))
    replicas.cluster.create_topic("t", assignment=[[0]])
    replicas.cluster.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "1000"}))
    done: list[str] = []

    def meanwhile(step: int, call: Call) -> None:
        if call == Call("delete", IDENTITY_KEY) and not done:
            done.append("registered again")
            assert add_broker(open_cluster(root), disk) == 1
            pass_by(LocalStore(root))

    with substituted(FaultyStore(open_store(disk), before=meanwhile)), suppress(UnlinkedHistoryError):
        remove_broker(open_cluster(root), 1)
    assert done
    assert_in_use(root, disk)


def test_a_claim_that_is_withdrawn_late_is_not_taken_from_a_registration_that_used_it(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=0, assignment=((0,),))
    root, disk, other = replicas.cluster.store.root, str(tmp_path / "disk"), str(tmp_path / "other")
    done: list[str] = []

    def meanwhile(step: int, call: Call) -> None:
        if call == Call("put_if_absent", IDENTITY_KEY) and not done:
            done.append("another location gets the id")
            assert add_broker(open_cluster(root), other) == 1
        elif call == Call("delete", IDENTITY_KEY) and len(done) == 1:
            done.append("the claim is used")
            remove_broker(open_cluster(root), 1)
            assert add_broker(open_cluster(root), disk) == 1

    with substituted(FaultyStore(open_store(disk), before=meanwhile)), pytest.raises(DuplicateBrokerRegistrationError):
        add_broker(open_cluster(root), disk)
    assert len(done) == 2
    assert_in_use(root, disk)


def test_a_location_whose_identity_is_deleted_late_while_it_is_registered_keeps_it(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=1, assignment=((0,),))
    root, disk = replicas.cluster.store.root, str(replicas.disk(1))
    identity = open_store(disk).get(IDENTITY_KEY)
    remove_broker(replicas.cluster, 1)
    open_store(disk).put(IDENTITY_KEY, identity)  # its deletion is still on its way

    def delete(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and call.key.startswith(COMMITS):
            open_store(disk).delete(IDENTITY_KEY)

    assert add_broker(open_cluster(FaultyStore(open_store(root), before=delete)), disk) == 1
    assert_in_use(root, disk)


@pytest.mark.parametrize("is_promoted", [False, True])
def test_a_creation_that_finds_a_location_late_removes_no_cluster_in_use(tmp_path: Path, is_promoted: bool) -> None:
    """Before each request after the first commit: the cluster is used, and another disk is mounted there or its mirror
    promoted."""

    def check(folder: Path, number: int) -> bool:
        root, target = folder / "root", open_store(str(folder / "mirror"))
        requests: list[Call] = []
        used: list[str] = []

        def use(client: Coordinator) -> None:
            with suppress(SparklogError):  # removed before
                client.create_topic("t")
                used.append("t")
            if used and is_promoted:
                mirror(client.store, target)
                promote(target.root, str(root))

        def before(step: int, call: Call) -> None:
            if call == Call("info", IDENTITY_KEY) and (root / commit_key(0)).exists():
                clients.append(open_cluster(str(root)))
                if not is_promoted:
                    (root / IDENTITY_KEY).write_bytes(encode_identity("another", 1))
            if clients:
                requests.append(call)
                if len(requests) - 1 == number:
                    use(clients[0])

        clients: list[Coordinator] = []
        with suppress(DuplicateBrokerRegistrationError):
            create_cluster(FaultyStore(open_store(str(root)), before=before))
        if used and is_promoted:
            with pytest.raises(ClusterMovedError, match="mirror"):
                open_cluster(str(root))
        elif used:
            assert list(open_cluster(str(root)).state.topics) == ["t"]
        return len(requests) > number

    every_suspension(tmp_path, check, at_least=1 if is_promoted else 5)
