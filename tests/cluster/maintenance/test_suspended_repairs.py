"""A repair of the metadata that is suspended while others repair and continue the log takes nothing from them.

The repair is suspended before each of its requests in turn. Meanwhile another operator mends the same damage, perhaps
in another way, and new clients write; what they were acknowledged has to be there when the first one has resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import SparklogError
from sparklog.log.layout import (
    CHECKPOINTS,
    CLUSTER_KEY,
    Boundary,
    boundary_mark_key,
    encode_cluster_file,
    read_boundary,
    read_certain_boundary,
    write_boundary,
)
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import DAMAGED_BOUNDARY, ERROR, INFO, WARNING
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.mirror import mirror
from sparklog.protocol.commits import commit_key
from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.damaged_clusters import DamagedCluster
from tests.sample import chosen

LAST = 12
"""The version of the cluster before the damage: broker, topic, and eleven appends."""


@pytest.fixture
def cluster(tmp_path: Path) -> DamagedCluster:
    cluster = DamagedCluster(tmp_path, partitions=1)
    while cluster.coordinator.state.version < LAST:
        cluster.append(batches=1)
    mirror(LocalStore(str(cluster.root)), LocalStore(str(tmp_path / "mirror")))
    return cluster


def cut_a_hole(cluster: DamagedCluster) -> None:
    """Commits 8 to 11 are missing, 12 is there."""
    for version in range(8, LAST):
        (cluster.root / commit_key(version)).unlink()


def leave_a_checkpoint(cluster: DamagedCluster) -> None:
    """Commits 0 to 7, and a checkpoint of 12."""
    cluster.coordinator.log.write_checkpoint()
    for version in range(8, LAST + 1):
        (cluster.root / commit_key(version)).unlink()


def damage_one_of_several(cluster: DamagedCluster) -> None:
    """Commit 8 is damaged, 9 to 12 are there."""
    (cluster.root / commit_key(8)).write_bytes(b"{}")


def damage_the_newest(cluster: DamagedCluster) -> None:
    (cluster.root / commit_key(LAST)).write_bytes(b"{}")


class Operators:
    """One operator whose repair is suspended before a request, and another who mends the cluster meanwhile."""

    def __init__(self, cluster: DamagedCluster, other: Callable[[DamagedCluster], None]) -> None:
        self.cluster = cluster
        self.other = other
        self.kept = cluster.folder / "kept"
        shutil.copytree(cluster.root, self.kept)
        self.mirror = LocalStore(str(cluster.folder / "mirror"))
        self.acknowledged: list[bytes] = []
        self.in_flight = Call("", "")

    def repair(self, step: int = -1, **how: Any) -> FaultyStore:
        """Repair the cluster as it was damaged; return the store, with its calls."""
        shutil.rmtree(self.cluster.root)
        shutil.copytree(self.kept, self.cluster.root)

        def before(number: int, call: Call) -> None:
            if number == step:
                self.in_flight = call
                self.mend()

        store = FaultyStore(LocalStore(str(self.cluster.root)), before=before)
        repair_cluster(check_cluster(store), **how)
        return store

    def mend(self) -> None:
        self.other(self.cluster)
        self.cluster.coordinator = self.cluster.reopened()
        for _ in range(6):  # past the numbers that the damage left
            self.cluster.append(batches=1)
        self.acknowledged = self.cluster.values()


def fill_from_the_mirror(cluster: DamagedCluster) -> None:
    check = cluster.check()
    repair_cluster(check, mirrors=[LocalStore(str(cluster.folder / "mirror"))])


def end_before(cluster: DamagedCluster) -> None:
    end = max(int(path.stem) for path in (cluster.root / "meta/commits").iterdir() if int(path.stem) < 8)
    repair_cluster(cluster.check(), end_at=end)


def repair_plainly(cluster: DamagedCluster) -> None:
    repair_cluster(cluster.check())


def end_before_the_newest(cluster: DamagedCluster) -> None:
    repair_cluster(cluster.check(), end_at=LAST - 1)


Damage = Callable[[DamagedCluster], None]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("damage", "how", "other"),
    [
        pytest.param(cut_a_hole, "plain", fill_from_the_mirror, id="the-hole-is-filled"),
        pytest.param(cut_a_hole, "plain", end_before, id="the-log-is-ended-before-the-hole"),
        pytest.param(cut_a_hole, "end", end_before, id="the-log-is-ended-twice"),
        pytest.param(cut_a_hole, "end", fill_from_the_mirror, id="the-hole-is-filled-while-the-log-is-ended"),
        pytest.param(damage_one_of_several, "end", fill_from_the_mirror, id="the-damaged-commit-is-put-back"),
        pytest.param(damage_one_of_several, "end", end_before, id="the-log-is-ended-twice-before-a-damaged-commit"),
        pytest.param(leave_a_checkpoint, "end", fill_from_the_mirror, id="the-commits-of-a-checkpoint-are-put-back"),
        pytest.param(leave_a_checkpoint, "plain", end_before, id="the-covering-checkpoint-is-removed"),
        pytest.param(leave_a_checkpoint, "end", repair_plainly, id="the-log-continues-from-the-checkpoint"),
        pytest.param(damage_the_newest, "mirror", end_before_the_newest, id="the-damaged-commit-is-given-up"),
    ],
)
def test_a_repair_suspended_at_any_step_takes_nothing_from_those_that_went_on(
    cluster: DamagedCluster, damage: Damage, how: str, other: Damage
) -> None:
    damage(cluster)
    operators = Operators(cluster, other)
    arguments: dict[str, Any] = {}
    if how == "mirror":
        arguments = {"mirrors": [operators.mirror]}
    elif how == "end":
        arguments = {"end_at": 7}
    calls = list(operators.repair(**arguments).calls)
    changing = [number for number, call in enumerate(calls) if call.operation in ("put", "put_if_absent", "delete")]
    assert changing
    for step in chosen(range(max(0, changing[0] - 6), len(calls))):
        if calls[step].operation == "list" and step > changing[-1]:
            break  # the check after the repair
        if how == "mirror" and (calls[step].operation, calls[step].key) == ("put", commit_key(LAST)):
            continue  # it replaces what was looked at right before; a disk has no request that is conditioned on bytes
        operators.repair(step, **arguments)
        assert cluster.values() == operators.acknowledged, f"{step} {operators.in_flight}"
        cluster.append(batches=1)


# -- cluster.json


@pytest.mark.sampled
@pytest.mark.parametrize("damage", ["missing", "damaged", "of-another-cluster"])
def test_a_repair_suspended_at_any_step_leaves_the_cluster_json_of_a_cluster_created_meanwhile(
    cluster: DamagedCluster, damage: str
) -> None:
    cluster.coordinator.log.write_checkpoint()
    path, kept = cluster.root / CLUSTER_KEY, cluster.folder / "kept"
    wanted = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(b"{" if damage == "damaged" else encode_cluster_file("A" * 22))
    shutil.copytree(cluster.root, kept)
    created = b""

    def repair(step: int = -1) -> list[Call]:
        shutil.rmtree(cluster.root)
        shutil.copytree(kept, cluster.root)

        def before(number: int, _: Call) -> None:
            nonlocal created
            if number == step:
                shutil.rmtree(cluster.root)
                create_cluster(str(cluster.root))
                created = path.read_bytes()

        store = FaultyStore(LocalStore(str(cluster.root)), before=before)
        with suppress(SparklogError):  # it was checked, and then is another cluster
            repair_cluster(check_cluster(store))
        return list(store.calls)

    calls = repair()
    assert path.read_bytes() == wanted
    written = max(number for number, call in enumerate(calls) if call.key == CLUSTER_KEY and call.operation != "get")
    for step in chosen(range(written, max(0, written - 12), -1)):
        repair(step)
        assert path.read_bytes() == created, calls[step]


# -- a boundary that is beyond the log


@pytest.mark.parametrize("checkpoint_at", [-1, 5, LAST])
@pytest.mark.parametrize("boundary", [3, 9, 40])
def test_a_boundary_beyond_the_newest_checkpoint_is_found_and_corrected(
    cluster: DamagedCluster, boundary: int, checkpoint_at: int
) -> None:
    wanted = cluster.values()
    store = LocalStore(str(cluster.root))
    if checkpoint_at >= 0:
        write_checkpoint_at(cluster, checkpoint_at)
    write_boundary(store, Boundary(boundary))
    is_beyond = boundary > checkpoint_at
    check = cluster.check()
    found = check.report.of_kind(DAMAGED_BOUNDARY)
    assert [finding.severity for finding in found] == ([ERROR] if is_beyond else [])
    repair_cluster(check)
    assert [finding for finding in check.report.left or () if finding.severity != INFO] == []
    assert read_boundary(store) == read_certain_boundary(store) == (-1 if is_beyond else boundary)
    assert cluster.values() == wanted


def write_checkpoint_at(cluster: DamagedCluster, version: int) -> None:
    """Write a checkpoint of an earlier version, by a copy of the root that ends there."""
    copy = cluster.folder / "shorter"
    shutil.copytree(cluster.root, copy)
    for later in range(version + 1, LAST + 1):
        (copy / commit_key(later)).unlink()
    open_cluster(str(copy)).log.write_checkpoint()
    shutil.copytree(copy / CHECKPOINTS, cluster.root / CHECKPOINTS, dirs_exist_ok=True)


def test_a_mark_beyond_the_newest_checkpoint_is_a_warning_and_removed(cluster: DamagedCluster) -> None:
    store = LocalStore(str(cluster.root))
    store.put(boundary_mark_key(9), b"")
    check = cluster.check()
    assert [finding.severity for finding in check.report.of_kind(DAMAGED_BOUNDARY)] == [WARNING]
    repair_cluster(check)
    assert read_certain_boundary(store) == -1
    assert check.report.left == []


def test_a_boundary_whose_commits_are_gone_is_left_as_it_is(cluster: DamagedCluster) -> None:
    """No checkpoint replaces them: that is lost history, and the boundary says what was there."""
    store: Store = LocalStore(str(cluster.root))
    for version in range(4):
        store.delete(commit_key(version))
    write_boundary(store, Boundary(3))
    check = cluster.check()
    assert check.report.of_kind(DAMAGED_BOUNDARY) == []
    repair_cluster(check)
    assert read_boundary(store) == 3
