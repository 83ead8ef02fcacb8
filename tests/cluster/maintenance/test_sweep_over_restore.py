"""A sweep or a vacuum that works while the root is restored from a copy deletes no file that the restored log needs."""

from __future__ import annotations

import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import RootReplacedError, UnlinkedHistoryError
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.records.fetch import Fetcher
from sparklog.log.settings import LogSettings
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.local import LocalStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.records import Record, append_records
from tests.sample import chosen

CONFIGS = {"file.delete.delay.ms": "0", "segment.ms": "1000"}
NONE_KEPT = LogSettings(min_commits_kept=0)
WEEK_MS = 8 * 86_400_000


def values(coordinator: Coordinator) -> list[bytes | None]:
    end = coordinator.state.partition("orders", 0).log_end_offset
    segments = coordinator.segments("orders").partition(0)
    parts = Fetcher(coordinator.store_of).read("orders", segments, 0, end, ["value"])
    return [value for part in parts for value in part.batch.column(0).to_pylist()]


def prepare(root: Path, copy: Path, clock: ManualClock, swept: bool) -> None:
    """A log whose small files were rolled, and in a vacuum swept; ``copy`` is from before."""
    cluster = create_cluster(str(root), clock=clock)
    cluster.create_topic("orders")
    cluster.submit(partial(alter_configs, topic="orders", changes=CONFIGS))
    for number in range(6):
        append_records(cluster, "orders", [Record(value=b"%d" % number)])
    shutil.copytree(root, copy)
    clock.advance(3600)
    append_records(cluster, "orders", [Record(value=b"next segment")])
    assert roll(cluster, InProcess()).files_in == 6
    clock.advance(3600)
    if swept:
        assert sweep(cluster).files


def go_on(root: Path, clock: ManualClock) -> None:
    """A client of the restored root commits, and removes the commits that others know."""
    cluster = open_cluster(str(root), clock=clock)
    for number in range(12):
        cluster.submit(partial(alter_configs, topic="orders", changes={"max.message.bytes": str(10**6 + number)}))
    cluster.log.write_checkpoint()
    removed = clean_up(cluster.store, ManualClock(int(time.time() * 1000) + WEEK_MS), cluster.state.configs, NONE_KEPT)
    assert removed.boundary == cluster.state.version


@pytest.mark.sampled
@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("run", ["sweep", "vacuum"])
def test_files_of_a_root_that_is_restored_before_they_are_deleted_are_kept(
    tmp_path: Path, run: str, goes_on: bool
) -> None:
    """Before the requests up to the look that precedes the first deletion. After it, one batch is on its way."""
    clock = ManualClock()
    prepared, copy, root = tmp_path / "prepared", tmp_path / "copy", tmp_path / "root"
    prepare(prepared, copy, clock, swept=run == "vacuum")
    expected = [b"%d" % number for number in range(6)]

    def work(step: int) -> FaultyStore:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(prepared, root)

        def before(number: int, call: Call) -> None:
            if number == step:
                shutil.rmtree(root)
                shutil.copytree(copy, root)
                if goes_on:
                    go_on(root, clock)

        store = FaultyStore(LocalStore(str(root)), before=before)
        cluster = open_cluster(store, clock=clock)
        opened.append(len(store.calls))
        if run == "sweep":
            sweep(cluster)
        else:
            vacuum(cluster, 0, dry_run=False, force=True)
        return store

    opened: list[int] = []
    calls = work(-1).calls
    deletes = (number for number, call in enumerate(calls) if call.operation == "delete")
    data = [number for number in deletes if calls[number].key.startswith("orders-")]
    last = data[0] if data else len(calls)
    refused = 0
    for step in chosen(range(opened[0], last - 12)):
        try:
            work(step)
        except (RootReplacedError, UnlinkedHistoryError):
            refused += 1
        assert values(open_cluster(str(root), clock=clock)) == expected, f"{step} {calls[step]}"
    assert refused
