"""Unclean elections of many partitions: what a pass of the controller asks, and that it comes to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.broker_probes import BrokerProbes
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.unclean_election import UncleanSearch
from sparklog.errors import StoragePermissionError
from sparklog.protocol.decide.brokers import is_online
from sparklog.protocol.decide.elections import UncleanElection
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.base import ObjectInfo
from sparklog.store.local import LocalStore
from tests.cluster.maintenance.replicas import Replicas

PARTITIONS = 12
UNCLEAN = {"unclean.leader.election.enable": "true"}


def leaderless(tmp_path: Path) -> Replicas:
    """Each partition was written at broker 1 alone, which is lost; broker 2 is back."""
    replicas = Replicas(tmp_path, locations=3, assignment=((3,),))
    replicas.cluster.create_topic("lost", assignment=[[1, 2]] * PARTITIONS, configs=UNCLEAN)
    with Producer(cluster=replicas.cluster) as producer:
        for number in range(PARTITIONS):
            producer.send("lost", b"x", partition=number)
    replicas.unmount(2)
    replicas.controller.check()
    replicas.mount(2)
    replicas.unmount(1)
    return replicas


def leaders(cluster: Coordinator) -> set[int]:
    return {partition.leader for partition in cluster.refresh().topic("lost").partitions}


def test_a_location_is_listed_once_for_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = leaderless(tmp_path)
    listings: Counter[str] = Counter()
    listed = LocalStore.list

    def count(store: LocalStore, prefix: str = "") -> Iterator[ObjectInfo]:
        if not prefix:
            listings[Path(store.root).name] += 1
        return listed(store, prefix)

    monkeypatch.setattr(LocalStore, "list", count)
    found = replicas.controller.check()
    assert len(found.unclean) == PARTITIONS
    assert leaders(replicas.cluster) == {2}
    assert listings == {"disk2": 1}


def test_a_location_that_cannot_be_listed_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = leaderless(tmp_path)
    tries: Counter[str] = Counter()
    listed = LocalStore.list

    def refuse(store: LocalStore, prefix: str = "") -> Iterator[ObjectInfo]:
        if not prefix:
            tries[Path(store.root).name] += 1
            raise StoragePermissionError(f"{store.root} may not be listed", path=store.root)
        return listed(store, prefix)

    monkeypatch.setattr(LocalStore, "list", refuse)
    assert replicas.controller.check().unclean == []
    assert leaders(replicas.cluster) == {-1}
    assert tries == {"disk2": 1}


def test_a_folder_that_was_moved_and_linked_is_not_taken_for_lost(tmp_path: Path) -> None:
    """What is behind a link is read, and not listed."""
    replicas = Replicas(tmp_path, locations=3, assignment=((3,),))
    replicas.cluster.create_topic("lost", assignment=[[1, 2]], configs=UNCLEAN)
    with Producer(cluster=replicas.cluster) as producer:
        producer.send("lost", b"x", partition=0)
    replicas.unmount(2)
    replicas.controller.check()
    replicas.mount(2)
    folder, moved = replicas.disk(2) / "lost-0", tmp_path / "moved"
    folder.rename(moved)
    folder.symlink_to(moved)
    replicas.unmount(1)
    assert replicas.controller.check().unclean == []
    assert leaders(replicas.cluster) == {-1}
    folder.unlink()
    moved.rename(folder)
    assert replicas.controller.check().unclean == [("lost", 0)]
    assert leaders(replicas.cluster) == {2}
    assert replicas.cluster.segments("lost").partition(0)


def test_the_controller_keeps_its_lease_while_it_lists_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = leaderless(tmp_path)
    others = [Controller(open_cluster(replicas.cluster.store, clock=replicas.clock)) for _ in range(2)]
    listed = LocalStore.list
    took_over: list[bool] = []

    def slowly(store: LocalStore, prefix: str = "") -> Iterator[ObjectInfo]:
        for info in listed(store, prefix):
            if not prefix and not any(took_over):
                replicas.clock.sleep(3)
                took_over.extend(other.take_over() for other in others)
            yield info

    monkeypatch.setattr(LocalStore, "list", slowly)
    found = replicas.controller.check()
    assert len(took_over) >= 8  # twice the session timeout
    assert not any(took_over)
    assert len(found.unclean) == PARTITIONS
    assert is_online(replicas.cluster.state, 2)
    assert leaders(replicas.cluster) == {2}


def test_the_controller_elects_nobody_that_the_topic_forbids_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists a location for minutes, or is suspended; the disk with all records is back by then."""
    replicas = leaderless(tmp_path)
    find = UncleanSearch.find

    def forbid(search: UncleanSearch, topic: str, number: int) -> UncleanElection:
        found = find(search, topic, number)
        changes = {"unclean.leader.election.enable": "false"}
        open_cluster(str(tmp_path / "root")).submit(partial(alter_configs, topic="lost", changes=changes))
        return found

    monkeypatch.setattr(UncleanSearch, "find", forbid)
    assert replicas.controller.check().unclean == []
    assert leaders(replicas.cluster) == {-1}


def test_replicas_in_sync_that_are_back_lead_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller was suspended since it found them lost, and no other one took over."""
    replicas = leaderless(tmp_path)
    find = UncleanSearch.find

    def mount(search: UncleanSearch, topic: str, number: int) -> UncleanElection:
        found = find(search, topic, number)
        if number == PARTITIONS - 1:
            replicas.mount(1)
        return found

    monkeypatch.setattr(UncleanSearch, "find", mount)
    assert replicas.controller.check().unclean == []
    assert leaders(replicas.cluster) == {-1}
    replicas.controller.check()
    assert leaders(replicas.cluster) == {1}


def test_a_controller_that_was_suspended_since_its_look_elects_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = leaderless(tmp_path)
    ask = BrokerProbes.ask

    def suspend(
        probes: BrokerProbes, coordinator: Coordinator, brokers: Iterable[int], seconds: float
    ) -> dict[int, str | None]:
        answers = ask(probes, coordinator, brokers, seconds)
        if searched:
            replicas.clock.sleep(3600)
        return answers

    find, searched = UncleanSearch.find, list[int]()

    def search(self: UncleanSearch, topic: str, number: int) -> UncleanElection:
        searched.append(number)
        return find(self, topic, number)

    with monkeypatch.context() as patch:
        patch.setattr(BrokerProbes, "ask", suspend)
        patch.setattr(UncleanSearch, "find", search)
        assert replicas.controller.check().unclean == []
    assert leaders(replicas.cluster) == {-1}
    assert len(replicas.controller.check(wait=True).unclean) == PARTITIONS
