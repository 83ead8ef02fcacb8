"""A location that lost files does not count as having any file that was seen there, or written there, before that."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from sparklog.coordinator.brokers import replace_location
from sparklog.errors import NotLeaderOrFollowerError
from sparklog.log.layout import segment_key
from sparklog.maintenance.replicas.file_copies import is_sound
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.commits import Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.replicas import CaughtUp, expand_isr
from sparklog.store.open import open_store
from tests.cluster.maintenance.replicas import TOPIC, Replicas


def assert_in_sync_replicas_are_complete(replicas: Replicas, number: int = 0) -> None:
    for broker in replicas.partition(number).isr:
        store = open_store(str(replicas.disk(broker)))
        assert all(is_sound(store, path) for path in replicas.live_paths(number)), f"broker {broker} lacks files"


def empty_location(replicas: Replicas, number: int) -> None:
    """Replace the location of a broker with an empty one, and let the controller detect it."""
    shutil.rmtree(replicas.disk(number))
    replicas.disk(number).mkdir()
    replicas.cluster.brokers.forget()
    replace_location(replicas.cluster, number)
    replicas.controller.check()


def test_a_replica_that_loses_its_files_after_it_was_checked_does_not_join_the_isr(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.controller.check()
    replicas.produce(acks=1)
    assert replicas.partition().isr == (1,)
    state = replicas.cluster.refresh()
    copy_files_without_joining(replicas)
    caught_up = CaughtUp(TOPIC, state.topics[TOPIC].topic_id, 0, 2, state.partition(TOPIC, 0).log_end_offset, 0)
    caught_up = caught_up._replace(version=state.version)
    empty_location(replicas, 2)
    expanded = replicas.cluster.submit(partial(expand_isr, caught_up=[caught_up]))
    assert_in_sync_replicas_are_complete(replicas)
    assert [replica.broker for replica, _ in expanded.left_out] == [2]
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (1, 2)
    assert_in_sync_replicas_are_complete(replicas)


def copy_files_without_joining(replicas: Replicas) -> None:
    for path in replicas.disk(1).rglob("*"):
        if path.suffix in (".log", ".index"):
            copy = replicas.disk(2) / path.relative_to(replicas.disk(1))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)


def written_file(replicas: Replicas, brokers: tuple[int, ...]) -> PartitionAppend:
    """A file as a job has written it to these brokers, to append it later."""
    replicas.produce(1)
    live = list(replicas.cluster.segments(TOPIC).partition(0))[-1]
    state = replicas.cluster.refresh()
    path = segment_key(TOPIC, 0, live.end_offset, state.version, "job")
    for broker in brokers:
        for suffix in (".log", ".index"):
            source = replicas.disk(broker) / live.path.replace(".log", suffix)
            shutil.copy(source, replicas.disk(broker) / path.replace(".log", suffix))
    run = Run(
        path=path,
        broker=brokers[0],
        batches=1,
        size_bytes=live.size_bytes,
        records=1,
        min_timestamp_us=live.min_timestamp_us,
        max_timestamp_us=live.max_timestamp_us,
        replicas=list(brokers),
    )
    return PartitionAppend(topic=TOPIC, topic_id=state.topics[TOPIC].topic_id, partition=0, run=run)


def test_a_copy_written_before_its_location_was_emptied_does_not_count_when_it_is_appended(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.controller.check()
    item = written_file(replicas, (1, 2))
    empty_location(replicas, 2)
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (1, 2)
    replicas.cluster.append(AppendRequest(appends=[item]))
    assert_in_sync_replicas_are_complete(replicas)
    assert replicas.partition().isr == (1,)
    replicate(replicas.cluster, InProcess())
    assert replicas.partition().isr == (1, 2)
    assert_in_sync_replicas_are_complete(replicas)


def test_a_leader_whose_copy_does_not_count_loses_leadership(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.controller.check()
    item = written_file(replicas, (1, 2))
    empty_location(replicas, 1)
    replicate(replicas.cluster, InProcess())
    replicas.cluster.append(AppendRequest(appends=[item]))
    assert_in_sync_replicas_are_complete(replicas)
    assert replicas.partition().isr == (2,)


def test_a_file_whose_only_copy_was_lost_must_be_written_again(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.controller.check()
    item = written_file(replicas, (2,))
    empty_location(replicas, 2)
    replicate(replicas.cluster, InProcess())
    end = replicas.partition().log_end_offset
    with pytest.raises(NotLeaderOrFollowerError, match="write the records again"):
        replicas.cluster.append(AppendRequest(appends=[item]))
    assert replicas.partition().log_end_offset == end


def test_the_last_in_sync_replica_that_lost_files_is_replaced_by_one_that_has_them(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.produce(2)
    replicas.controller.check()
    copy = replicas.copy_of(1)
    replicas.produce(2)
    replicas.controller.check()
    replicas.unmount(2)
    replicas.controller.check()
    replicas.put_back(copy, 1)
    replicas.mount(2)
    replicas.controller.check()
    assert replicas.partition().isr == (1,)
    replicate(replicas.cluster, InProcess())
    assert_in_sync_replicas_are_complete(replicas)
    assert replicas.partition().isr == (1, 2)
    assert replicas.read() == replicas.sent[0]
