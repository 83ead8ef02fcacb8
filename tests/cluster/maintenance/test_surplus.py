"""Surplus replicas that a reassignment leaves are deleted, and nothing that a replica needs."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import brokers, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker, cordon_broker, replace_location
from sparklog.coordinator.removals import (
    LATE_REQUEST_MS,
    REMOVALS,
    delete_notes,
    end_removals,
    note_begin,
    note_removal,
)
from sparklog.errors import BrokerNotAvailableError, SparklogError
from sparklog.maintenance.gc import surplus_replicas
from sparklog.maintenance.gc.surplus_replicas import remove_surplus_replicas
from sparklog.maintenance.gc.vacuum import NO_REPLICA, vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.decide.brokers import cordon
from sparklog.protocol.decide.locations import Removal, begin_removal, end_removal
from sparklog.protocol.decide.replicas import alter_reassignments
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.records import Record, append_records
from sparklog.testing.substitutes import substituted
from sparklog.types import TopicPartition
from tests.cluster.maintenance.reassignment import reassign
from tests.cluster.maintenance.replicas import TOPIC, Replicas
from tests.sample import chosen


def moved(tmp_path: Path) -> Replicas:
    """Partition 0 has moved from brokers 1 and 2 to 2 and 3; partition 1 is still on 1 and 2."""
    replicas = Replicas(tmp_path, locations=3, assignment=[[1, 2], [1, 2]])
    replicas.produce(3, 0)
    replicas.produce(2, 1)
    reassign(replicas.cluster, {(TOPIC, 0): [2, 3]}, InProcess())
    return replicas


def test_only_surplus_replicas_are_deleted(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    assert len(remove_surplus_replicas(replicas.cluster, 1, dry_run=True)) == 6
    assert len(replicas.files(1)) == 10
    assert len(remove_surplus_replicas(replicas.cluster, 1)) == 6
    assert sorted(replicas.files(1)) == sorted(
        key for path in replicas.live_paths(1) for key in (path, path.replace(".log", ".index"))
    )
    assert remove_surplus_replicas(replicas.cluster, 2) == remove_surplus_replicas(replicas.cluster, 3) == []
    assert not replicas.cluster.refresh().brokers[1].cordoned
    assert [replicas.read(number) for number in (0, 1)] == [replicas.sent[number] for number in (0, 1)]


def test_a_replica_cannot_be_added_again_while_its_files_are_deleted(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    refused: list[object] = []

    def reassign_back(step: int, call: Call) -> None:
        if call.operation == "delete" and not refused:
            outcome = replicas.cluster.submit(lambda state: alter_reassignments(state, {(TOPIC, 0): [2, 1]}))
            refused.append(outcome[TopicPartition(TOPIC, 0)])

    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=reassign_back)):
        replicas.cluster.brokers.forget()
        remove_surplus_replicas(replicas.cluster, 1)
    assert refused[0] is not None
    replicas.cluster.brokers.forget()
    reassign(replicas.cluster, {(TOPIC, 0): [2, 1]}, InProcess())
    assert set(replicas.live_paths(0)) <= set(replicas.files(1))


def test_a_deletion_that_is_served_late_hits_no_copy_that_was_stored_again() -> None:
    """A client of a remote storage has sent it twice: a name is not used again while that may be on its way."""
    clock = ManualClock()
    root, disk = MemoryStore("late-root", clock), FaultyStore(MemoryStore("late-disk", clock))
    with substituted(root), substituted(disk), substituted(MemoryStore("late-other", clock)):
        cluster = create_cluster(root, clock=clock)
        for url in ("memory://late-disk", "memory://late-other"):
            add_broker(cluster, url)
        cluster.create_topic(TOPIC, assignment=[[1]])
        with Producer(cluster=cluster) as producer:
            producer.send(TOPIC, b"value").get(10)
        reassign(cluster, {(TOPIC, 0): [2]}, InProcess())
        disk.calls.clear()
        deleted = remove_surplus_replicas(cluster, 1)
        assert len(deleted) == 2
        late = [call.key for call in disk.calls if call.operation == "delete" and call.key.startswith(TOPIC)]

        def move_back() -> bool:
            outcome = cluster.submit(lambda state: alter_reassignments(state, {(TOPIC, 0): [1]}))
            return outcome[TopicPartition(TOPIC, 0)] is None

        end_removals(cluster)
        assert not move_back()
        for key in late:  # served now, at the latest
            disk.delete(key)
        clock.advance(LATE_REQUEST_MS / 1000)
        end_removals(cluster)
        assert list(root.list(REMOVALS)) == []
        assert move_back()


@pytest.mark.parametrize("cordoned", [True, False])
def test_a_cordon_that_an_operator_has_set_or_lifted_is_not_changed_by_a_removal(cordoned: bool) -> None:
    clock = ManualClock()
    cluster = create_cluster(MemoryStore(f"cordon-{cordoned}", clock), clock=clock)
    add_broker(cluster, f"memory://cordon-disk-{cordoned}", 1)
    removal = cluster.submit(lambda state: begin_removal(state, 1))
    note_removal(cluster.store, removal)
    cordon_broker(cluster, 1, cordoned)
    clock.advance(LATE_REQUEST_MS / 1000)
    end_removals(cluster)
    assert cluster.refresh().brokers[1].cordoned is cordoned


def test_a_removal_takes_over_the_cordon_of_one_that_has_ended() -> None:
    """Both at a remote storage, within the time in which a deletion may be on its way."""
    clock = ManualClock()
    cluster = create_cluster(MemoryStore("two-removals", clock), clock=clock)
    for number in (1, 2):
        add_broker(cluster, f"memory://two-removals-{number}", number)
    for topic in ("first", "second"):
        cluster.create_topic(topic, assignment=[[1]])
        append_records(cluster, topic, [Record(value=b"value")])
    for topic in ("first", "second"):
        reassign(cluster, {(topic, 0): [2]}, InProcess())
        assert len(remove_surplus_replicas(cluster, 1)) == 2
        clock.advance(LATE_REQUEST_MS / 1000 - 1)
    end_removals(cluster)
    assert cluster.refresh().brokers[1].cordoned, "the second one may have a deletion on its way"
    clock.advance(1)
    end_removals(cluster)
    assert not cluster.refresh().brokers[1].cordoned
    assert list(cluster.store.list(REMOVALS)) == []


def test_an_operators_cordon_outlasts_the_removal_during_which_it_was_set(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    operator = open_cluster(replicas.cluster.store.root)
    changes: list[bool] = []

    def cordon(step: int, call: Call) -> None:
        if call.operation == "delete" and call.key.startswith(TOPIC) and not changes:
            changes.append(cordon_broker(operator, 1))

    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=cordon)):
        replicas.cluster.brokers.forget()
        problems: list[str] = []
        remove_surplus_replicas(replicas.cluster, 1, problems=problems)
    assert changes == [False], "no change: it was cordoned"
    assert ["uncordon" in problem for problem in problems] == [True]
    assert replicas.cluster.refresh().brokers[1].cordoned
    assert list(replicas.cluster.store.list(REMOVALS)) == []


def test_a_removal_that_an_operator_has_stopped_does_not_go_on_once_the_broker_is_cordoned_again(
    tmp_path: Path,
) -> None:
    replicas = moved(tmp_path)
    operator = open_cluster(replicas.cluster.store.root)
    lists: list[int] = []
    changes: list[bool] = []

    def use_again(step: int, call: Call) -> None:
        if call.operation != "list" or changes:
            return
        lists.append(step)
        if len(lists) == 2:  # the removal has cordoned the broker, and looks for its files
            changes.append(cordon_broker(operator, 1, False))
            reassign(operator, {(TOPIC, 0): [1]}, InProcess())
            changes.append(cordon_broker(operator, 1))

    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=use_again)):
        replicas.cluster.brokers.forget()
        remove_surplus_replicas(replicas.cluster, 1)
    assert changes == [True, True]
    assert set(replicas.live_paths(0)) <= set(replicas.files(1))
    assert replicas.cluster.refresh().brokers[1].cordoned


def test_a_removal_that_ends_while_an_operator_cordons_its_broker_does_not_lift_that() -> None:
    ended: list[bool] = []

    def end(step: int, call: Call) -> None:
        if call.operation == "list" and call.key.startswith(REMOVALS) and begun and not ended:
            ended.append(cluster.submit(lambda state: end_removal(state, begun[0])))
            root.delete(note)

    begun: list[Removal] = []
    root = FaultyStore(MemoryStore("cordon-at-the-end"), before=end)
    cluster = create_cluster(root)
    add_broker(cluster, "memory://cordon-at-the-end-disk", 1)
    note = note_begin(root, 1, "n")
    begun.append(cluster.submit(lambda state: begin_removal(state, 1)))
    assert cordon_broker(cluster, 1), "it is a change now"
    assert ended == [True]
    assert cluster.refresh().brokers[1].cordoned


def test_the_note_of_a_removal_that_begins_while_an_operator_lifts_a_cordon_is_kept() -> None:
    """The operator's commit does not stop it: a later one has to find the note."""
    looked: list[int] = []
    begun: list[str] = []

    def begin(step: int, call: Call) -> None:
        if call.operation == "list" and call.key.startswith(REMOVALS):
            looked.append(step)
        elif looked and not begun:
            begun.append(f"{REMOVALS}1-begun-second")
            assert note_begin(root, 1, "second") == begun[0]

    root = FaultyStore(MemoryStore("begun-while-lifted"), before=begin)
    cluster = create_cluster(root)
    add_broker(cluster, "memory://begun-while-lifted-disk", 1)
    cluster.submit(lambda state: cordon(state, 1, True))
    note_begin(root, 1, "first")
    assert cordon_broker(cluster, 1, False)
    assert [info.key for info in root.list(REMOVALS)] == begun


class SlowOperator:
    """Lifts the cordon of broker 1 before a request of a removal there, but deletes the notes that it has found only
    before a later one; then moves the partition back, has the other copies deleted, and cordons the broker again."""

    def __init__(self, first: int, last: int, is_cordoned: bool) -> None:
        self.first, self.last = first, last
        self.keys: list[str] = []
        self.found: list[str] = []
        raw = MemoryStore(f"slow-operator-{uuid.uuid4().hex}")
        self.cluster = create_cluster(raw)
        for number in (1, 2):
            add_broker(self.cluster, f"memory://{uuid.uuid4().hex}", number)
        self.cluster.create_topic(TOPIC, assignment=[[1]])
        append_records(self.cluster, TOPIC, [Record(value=b"v")])
        reassign(self.cluster, {(TOPIC, 0): [2]}, InProcess())
        if is_cordoned:
            cordon_broker(self.cluster, 1)
        self.removing = open_cluster(FaultyStore(raw, before=self.act))

    def act(self, step: int, call: Call) -> None:
        now = len(self.keys)
        self.keys.append(call.key)
        if now == self.first:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(brokers, "delete_notes", lambda root, keys: self.found.extend(keys))
                cordon_broker(self.cluster, 1, False)
        if now == self.last:
            delete_notes(self.cluster.store, self.found)
            cordon_broker(self.cluster, 1, False)
            reassign(self.cluster, {(TOPIC, 0): [1]}, InProcess())
            remove_surplus_replicas(self.cluster, 2)
            cordon_broker(self.cluster, 1)

    def run(self) -> None:
        remove_surplus_replicas(self.removing, 1)
        with LogReader(self.cluster) as reader:
            state = self.cluster.refresh()
            assert [record.value for record in reader.records(TOPIC, 0, 0, 1, state)] == [b"v"]


@pytest.mark.sampled
@pytest.mark.parametrize("is_cordoned", [False, True])
def test_a_removal_suspended_at_any_step_takes_nothing_that_was_moved_back(is_cordoned: bool) -> None:
    undisturbed = SlowOperator(-1, -1, is_cordoned)
    undisturbed.run()
    # It looks at the log last, by two requests, before it asks whether the location is the root's, and deletes.
    steps = range(undisturbed.keys.index("meta/epochs/") - 1)
    assert len(steps) > 10
    for first, last in chosen((first, last) for first in steps for last in steps if first <= last):
        try:
            SlowOperator(first, last, is_cordoned).run()
        except SparklogError as error:
            raise AssertionError(f"an operator before requests {first} and {last}") from error


@pytest.mark.parametrize("is_noted", [False, True])
def test_copies_are_kept_once_the_replica_that_had_them_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    """A vacuum deletes for minutes, or is suspended; the other disk dies, and is replaced."""
    monkeypatch.setattr(surplus_replicas, "DELETED_TOGETHER", 2)
    replicas = Replicas(tmp_path, locations=2, assignment=[[1]])
    replicas.produce(5)
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())
    lost: list[bool] = []

    def lose(step: int, call: Call) -> None:
        if call.operation == "delete" and call.key.startswith(f"{TOPIC}-") and not lost:
            lost.append(True)
            shutil.rmtree(replicas.disk(2))
            if is_noted:
                replicas.disk(2).mkdir()
                replace_location(open_cluster(replicas.cluster.store.root), 2)

    problems: list[str] = []
    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=lose)):
        vacuuming = open_cluster(replicas.cluster.store.root)
        assert len(remove_surplus_replicas(vacuuming, 1, problems=problems)) == 2
    assert len(replicas.files(1)) == 8
    assert "the replicas that had them were lost meanwhile" in problems[0]


@pytest.mark.parametrize("command", ["cordon", "drain"])
def test_a_broker_that_is_cordoned_again_has_lost_nothing(tmp_path: Path, command: str) -> None:
    """Scripts repeat such commands. What is open meanwhile is committed, and stays in sync."""
    replicas = Replicas(tmp_path, locations=3)
    admin = AdminClient(cluster=replicas.cluster)
    cordon_broker(replicas.cluster, 1)
    before = replicas.cluster.refresh().brokers[1]
    if command == "drain":
        admin.drain_broker(1)
        admin.drain_broker(1)
    else:
        assert not admin.cordon_broker(1)
    assert replicas.cluster.refresh().brokers[1] == before


def test_a_reader_from_before_the_move_finds_the_new_replicas(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=3)
    replicas.produce()
    old_reader = open_cluster(replicas.cluster.store.root)
    old_state = old_reader.state
    reassign(replicas.cluster, {(TOPIC, 0): [3]}, InProcess())
    for broker in (1, 2):
        remove_surplus_replicas(replicas.cluster, broker)
        assert replicas.files(broker) == {}
    with LogReader(old_reader) as reader:
        assert [record.value for record in reader.records(TOPIC, 0, 0, 3, old_state)] == replicas.sent[0]


def test_surplus_replicas_of_an_offline_broker_are_not_deleted(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    replicas.unmount(1)
    replicas.controller.check()
    with pytest.raises(BrokerNotAvailableError):
        remove_surplus_replicas(replicas.cluster, 1)


def test_a_vacuum_deletes_surplus_replicas_too(tmp_path: Path) -> None:
    replicas = moved(tmp_path)
    dry = vacuum(replicas.cluster)
    assert {(orphan.broker, orphan.why) for orphan in dry.files} == {(1, NO_REPLICA)}
    assert len(replicas.files(1)) == 10
    assert len(vacuum(replicas.cluster, dry_run=False).files) == 6
    assert len(replicas.files(1)) == 4
    assert vacuum(replicas.cluster).files == []
