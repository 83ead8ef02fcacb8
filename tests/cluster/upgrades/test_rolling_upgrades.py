"""Programs of 0.2.0 and of this version share a cluster of level 2 in any order; after the upgrade the old ones stop.

Real processes of both packages. What runs next is drawn with a seed, and nothing else is left to chance.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.clock import SystemClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.reader_leases import ReaderLease
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.local import LocalStore
from tests.cluster.upgrades.versions import NEW, OLD, Process, RefusedError, processes
from tests.level_contents import find_beyond_level

NEEDS = "needs sparklog 0.3.0 or newer"
STEPS = ["roll", "retention", "compaction", "deletion", "cleanup", "expiry"]
TOPIC_CONFIGS = {"file.delete.delay.ms": "0", "internal.segment.bytes": "2000"}


class Shared:
    """A cluster of level 2, a process of the old version and two of this one, and what was written by them."""

    def __init__(self, root: Path, started: list[Process]) -> None:
        self.root = root
        self.store = LocalStore(str(root))
        self.all = started
        self.old, self.new, self.other_new = started
        self.written: dict[int, list[str]] = {0: [], 1: [], 2: []}
        self.read: Counter[tuple[int, int, str]] = Counter()
        self.number = 0

    def produce(self, process: Process, partition: int, transaction: str = "", abort: bool = False) -> None:
        values = [f"value {self.number + number}" for number in range(4)]
        self.number += len(values)
        process.ask("produce", "orders", partition, values, transaction, abort)
        if not abort:
            self.written[partition] += values

    def consume(self, process: Process) -> int:
        records = process.ask("consume", "readers", "orders")
        self.read.update((partition, offset, value) for partition, offset, value in records)
        return len(records)

    def refuses(self, process: Process, *request: Any) -> bool:
        """Whether a process refuses to do this since it needs an upgrade; maintenance lists that as problems."""
        process.begin(*request)
        return self.ends_in_refusal(process)

    def ends_in_refusal(self, process: Process) -> bool:
        try:
            problems = process.finish()
        except RefusedError as error:
            return NEEDS in error.message
        return isinstance(problems, list) and bool(problems) and all(NEEDS in each for each in problems)

    def contents(self) -> dict[str, bytes]:
        """Everything stored, but the leases of members, which are renewed in the background."""
        return {info.key: self.store.get(info.key) for info in self.store.list() if not info.key.startswith("leases/")}

    def check_read(self) -> None:
        """Each record was read exactly once by the group, in the order in which it was written."""
        by_partition = {partition: [] for partition in self.written}  # type: dict[int, list[str]]
        for partition, _, value in sorted(self.read):
            by_partition[partition].append(value)
        assert by_partition == self.written
        assert set(self.read.values()) == {1}


@pytest.fixture(scope="module")
def started() -> Iterator[list[Process]]:
    with processes(OLD, NEW, NEW) as started:
        yield started


@pytest.fixture
def shared(tmp_path: Path, started: list[Process]) -> Shared:
    root = tmp_path / "root"
    create_cluster(str(root), level=2)
    versions = [process.ask("open", str(root)) for process in started]
    assert versions == [["0.2.0", 2], [sparklog.__version__, 2], [sparklog.__version__, 2]]
    started[0].ask("create_topic", "orders", 3, TOPIC_CONFIGS)
    return Shared(root, started)


def take_turns(shared: Shared, seed: int, turns: int) -> None:
    draw = random.Random(seed)
    for _ in range(turns):
        process = draw.choice(shared.all)
        kind = draw.choice(["produce", "produce", "transaction", "consume", "consume", "maintain", "checkpoint"])
        if kind == "produce":
            shared.produce(process, draw.randrange(3))
        elif kind == "transaction":
            shared.produce(process, draw.randrange(3), f"transaction-{shared.all.index(process)}", draw.random() < 0.3)
        elif kind == "consume":
            shared.consume(process)
        elif kind == "maintain":
            assert process.ask("maintain", draw.sample(STEPS, 3)) == []
        else:
            process.ask("checkpoint")


def read_the_rest(shared: Shared, members: list[Process]) -> None:
    while sum(shared.read.values()) < sum(map(len, shared.written.values())):
        for process in members:
            shared.consume(process)


@pytest.mark.parametrize("seed", range(2))
def test_a_rolling_upgrade_loses_and_doubles_nothing_and_ends_with_the_level(shared: Shared, seed: int) -> None:
    take_turns(shared, seed, 40)
    read_the_rest(shared, shared.all)
    shared.check_read()
    assert [process.ask("fsck") for process in (shared.old, shared.new)] == [[], []]
    assert find_beyond_level(shared.store, 2) == []

    shared.old.ask("close")  # its member leaves, as a job does that is stopped for its upgrade
    assert shared.new.ask("upgrade", 3) == {"metadata.version": "OK"}
    before = shared.contents()
    requests: list[tuple[Any, ...]] = [
        ("version",),
        ("create_topic", "more", 1, {}),
        ("produce", "orders", 0, ["lost"]),
        ("produce", "orders", 0, ["lost"], "transaction-0"),
        ("consume", "readers", "orders"),
        ("maintain", STEPS),
    ]
    for request in requests:
        assert shared.refuses(shared.old, *request)
    assert shared.contents() == before
    with pytest.raises(RefusedError, match=NEEDS):
        shared.old.ask("open", str(shared.root))
    assert shared.contents() == before
    assert {finding.partition(" ")[0] for finding in shared.old.ask("fsck")} == {"newer-version"}

    shared.new.ask("create_topic", "history", 1, {"history.format": "delta"})
    shared.produce(shared.other_new, 1)
    read_the_rest(shared, [shared.new, shared.other_new])
    shared.check_read()
    assert shared.other_new.ask("maintain", STEPS) == []
    assert shared.new.ask("fsck") == []


def test_programs_that_run_during_the_raise_notice_it(shared: Shared) -> None:
    for process in shared.all:
        shared.produce(process, 0)
    shared.new.ask("upgrade", 3)
    shared.produce(shared.other_new, 0)
    assert shared.other_new.ask("version") == [sparklog.__version__, 3]
    stored = set(shared.contents())
    with pytest.raises(RefusedError, match=NEEDS):  # an open producer, which may have staged a file for its next commit
        shared.produce(shared.old, 0)
    assert {key for key in set(shared.contents()) - stored if key.startswith("meta/")} == set()
    assert shared.new.ask("fsck") == []
    read_the_rest(shared, [shared.other_new])
    shared.check_read()


STALLS = {
    "before the commit of a merge": ("put_if_absent", "meta/commits/", "maintain", (["roll"],)),
    "before it deletes a retired file": ("delete", "orders-", "maintain", (["deletion"],)),
    "before it stores a manifest": ("put", "meta/checkpoints/", "checkpoint", ()),
}


@pytest.mark.parametrize("when", STALLS)
def test_old_work_that_ends_after_the_raise_does_no_harm(shared: Shared, when: str) -> None:
    method, part, request, arguments = STALLS[when]
    for _ in range(12):
        shared.produce(shared.new, 0)
    if request == "maintain" and arguments == (["deletion"],):
        shared.new.ask("maintain", ["roll"])
        shared.new.ask("checkpoint")
    shared.old.ask("stall", method, part)
    shared.old.begin(request, *arguments)
    assert part in shared.old.finish()["stalled"]
    shared.new.ask("upgrade", 3)
    for _ in range(12):
        shared.produce(shared.new, 0)
    shared.new.ask("maintain", STEPS)
    newest = shared.new.ask("checkpoint")
    shared.old.begin("go on")
    assert shared.ends_in_refusal(shared.old) or request == "checkpoint"
    assert json.loads(shared.store.get(f"meta/commits/{newest:020d}.json"))["format"] == 3
    assert shared.new.ask("fsck") == []
    assert shared.other_new.ask("open", str(shared.root)) == [sparklog.__version__, 3]
    read_the_rest(shared, [shared.new])
    shared.check_read()


def test_an_old_reader_lease_and_a_new_one_are_respected_by_both(shared: Shared) -> None:
    lease = ReaderLease("reader", 1, 3_600_000).renewed(shared.store, SystemClock())
    for _ in range(6):
        shared.produce(shared.new, 2)
    for process in (shared.old, shared.new):
        files = {info.key for info in shared.store.list("orders-2/")}
        assert process.ask("maintain", ["roll", "deletion"]) == []
        assert files <= {info.key for info in shared.store.list("orders-2/")}
    lease.close(shared.store)
    assert shared.old.ask("maintain", ["deletion"]) == []
    assert not files <= {info.key for info in shared.store.list("orders-2/")}


@pytest.mark.parametrize(("before", "after"), [("old", "new"), ("new", "old"), ("new", "new")])
def test_a_location_that_went_back_is_noticed_by_the_controller_of_the_other_version(
    shared: Shared, tmp_path: Path, before: str, after: str
) -> None:
    """A disk broke, and its backup is mounted, which lacks files."""
    cluster, disks = open_cluster(str(shared.root)), [tmp_path / "disk1", tmp_path / "disk2"]
    for disk in disks:
        add_broker(cluster, str(disk))
    cluster.submit(partial(alter_configs, topic="", changes={"broker.session.timeout.ms": "2000"}))
    cluster.create_topic("t", assignment=[[1, 2]])
    controllers = {"old": shared.old, "new": shared.new}
    assert shared.old.ask("maintain", ["elections"]) == []
    assert controllers[before].ask("maintain", ["elections"]) == []
    shutil.copytree(disks[0], tmp_path / "backup")
    shared.new.ask("produce", "t", 0, ["lost on disk 1"])
    for _ in range(3):
        assert controllers[before].ask("maintain", ["elections"]) == []
    shutil.rmtree(disks[0])
    (tmp_path / "backup").rename(disks[0])
    controllers[after].ask("maintain", ["elections"])
    assert cluster.refresh().partition("t", 0).isr == (2,)
