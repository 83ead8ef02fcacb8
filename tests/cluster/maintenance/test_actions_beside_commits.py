"""Commits with spilled actions: checks read them, mirrors copy them, repairs restore them."""

from __future__ import annotations

import uuid

import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.layout import ACTIONS
from sparklog.log.settings import LogSettings
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.protocol.commits import commit_key
from sparklog.store.memory import MemoryStore
from tests.cluster.maintenance.logs import Written, append, records


@pytest.fixture
def cluster() -> Coordinator:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))
    coordinator.create_topic("t")
    spilling = open_cluster(coordinator.store, settings=LogSettings(max_inline_actions=0))
    append(spilling, "t", [Written(value=b"beside")])
    append(coordinator, "t", [Written(value=b"inside")])
    assert len(list(coordinator.store.list(ACTIONS))) == 1
    return coordinator


def values(coordinator: Coordinator) -> list[bytes | None]:
    return [record.value for record in records(coordinator, "t")]


def test_a_check_reads_spilled_actions(cluster: Coordinator) -> None:
    report = check_cluster(cluster.store).report
    assert report.findings == []
    assert report.checked.segments == 2


def test_a_check_reports_missing_or_damaged_spilled_actions(cluster: Coordinator) -> None:
    (key,) = (info.key for info in cluster.store.list(ACTIONS))
    data = cluster.store.get(key)
    cluster.store.put(key, data[:-1] + b"x")
    assert not check_cluster(cluster.store).report.clean
    cluster.store.delete(key)
    assert not check_cluster(cluster.store).report.clean


def test_a_mirror_has_spilled_actions(cluster: Coordinator) -> None:
    target = MemoryStore(uuid.uuid4().hex)
    mirror(cluster.store, target)
    promote(target.root, cluster.store.root)
    assert values(open_cluster(target)) == [b"beside", b"inside"]


@pytest.mark.parametrize("commit_too", [False, True])
def test_a_repair_restores_spilled_actions_from_a_mirror(cluster: Coordinator, commit_too: bool) -> None:
    target = MemoryStore(uuid.uuid4().hex)
    mirror(cluster.store, target)
    (key,) = (info.key for info in cluster.store.list(ACTIONS))
    cluster.store.delete(key)
    if commit_too:
        cluster.store.delete(commit_key(2))
    check = check_cluster(cluster.store)
    repair_cluster(check, mirrors=[target])
    assert check.report.clean
    assert values(open_cluster(cluster.store)) == [b"beside", b"inside"]
