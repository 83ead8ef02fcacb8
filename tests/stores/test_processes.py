"""Behaviour that needs several processes: races, kills, forks. Runs on every store that processes can share."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparklog.errors import ObjectNotFoundError
from sparklog.store.base import Store
from tests.stores import processes

KINDS = "shared"  # see conftest.py
RACERS = 16
SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def process(target: Any, *arguments: Any) -> Iterator[Any]:
    """A process that is killed at the end of the block."""
    started = SPAWN.Process(target=target, args=arguments, daemon=True)
    started.start()
    try:
        yield started
    finally:
        started.kill()
        started.join()


def test_exactly_one_of_many_processes_creates_each_key(store: Store) -> None:
    barrier, answers, pickled = SPAWN.Barrier(RACERS), SPAWN.Queue(), pickle.dumps(store)
    racers = [SPAWN.Process(target=processes.race, args=(pickled, n, barrier, answers)) for n in range(RACERS)]
    for racer in racers:
        racer.start()
    won = dict(answers.get(timeout=300) for _ in racers)
    for racer in racers:
        racer.join()
    winners = {key: number for number, keys in won.items() for key in keys}
    assert sum(map(len, won.values())) == len(winners) == processes.KEYS
    for key, number in winners.items():
        assert store.get(f"meta/commits/{key}.json") == b"%d of %d" % (number, key)
    assert len(list(store.list())) == processes.KEYS
    assert store.remove_unfinished(1 << 60) == 0


def test_process_killed_in_a_stream_leaves_nothing_visible(store: Store) -> None:
    ready = SPAWN.Event()
    with process(processes.stream_forever, pickle.dumps(store), ready):
        assert ready.wait(120)
    with pytest.raises(ObjectNotFoundError):
        store.get("orders-0/1.log")
    assert list(store.list()) == []


def test_remains_of_a_killed_stream_can_be_removed(store: Store, kind: str) -> None:
    store.put("orders-0/0.log", b"1")
    file = store.open_output("orders-0/1.log")
    for _ in range(20):
        file.write(bytes(1024 * 1024))
    assert store.remove_unfinished(1_600_000_000_000) == 0  # too recent
    # Google and Microsoft delete unfinished uploads by themselves.
    assert store.remove_unfinished(1 << 60) == (0 if kind in ("gcs", "azure") else 1)
    assert store.remove_unfinished(1 << 60) == 0
    assert [info.key for info in store.list()] == ["orders-0/0.log"]
    file.abort()


@pytest.mark.parametrize("after_seconds", [0.0, 0.011, 0.023])
def test_process_killed_between_writes_leaves_only_complete_objects(store: Store, after_seconds: float) -> None:
    ready = SPAWN.Event()
    with process(processes.create_forever, pickle.dumps(store), ready) as writer:
        assert ready.wait(120)
        writer.join(after_seconds)
    objects = list(store.list())
    assert len(objects) >= 6
    for info in objects:
        data = store.get(info.key)
        assert len(data) == int(data.split()[0]) + 10


def test_forked_child_works_or_is_refused_and_its_parent_continues(store: Store, kind: str) -> None:
    answers = SPAWN.Queue()
    with process(processes.use_in_forked_child, pickle.dumps(store), answers):
        status, keys = answers.get(timeout=60)
    if kind == "hdfs":  # its client hangs in such a child
        assert status == processes.REFUSED
        assert keys == ["parent", "stream"]
    else:
        assert status == 0
        assert keys == ["child", "parent", "stream"]
