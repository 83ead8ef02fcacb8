"""Mirroring and promoting, killed or without an answer at every step: the mirror can be opened at any time, and after a
retry there is one root that has every record.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import open_cluster
from sparklog.errors import ClusterMovedError, SparklogError
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.layout import Boundary, write_boundary
from sparklog.log.settings import LogSettings
from sparklog.maintenance.mirror import mirror, read_mirror_file
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.commits import commit_key
from sparklog.store.base import Store
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import UNAVAILABLE, Call, Fault, FaultyStore, SimulatedCrash, every_crash
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.replicas import Replicas
from tests.sample import chosen


def values(root: str) -> list[bytes | None]:
    opened = Replicas.__new__(Replicas)
    opened.cluster = open_cluster(root)
    return opened.read()


def prepared(folder: Path) -> tuple[Replicas, Store]:
    """Return a cluster in a folder and a complete mirror of it in memory."""
    folder.mkdir()
    replicas = Replicas(folder)
    replicas.produce(2)
    target = open_store(f"memory://{uuid.uuid4().hex}")
    mirror(replicas.cluster.store, target)
    return replicas, target


def test_a_mirror_can_be_promoted_after_a_crash_at_any_step_of_an_update(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    root = replicas.cluster.store.root

    def mirrored(fault: Fault | None) -> FaultyStore:
        """Return a mirror of the first commits that was updated until the fault."""
        target = FaultyStore(open_store(f"memory://{uuid.uuid4().hex}"))
        for info in early.list():
            target.wrapped.put(info.key, early.get(info.key))
        target.inject(*([] if fault is None else [fault]))
        try:
            mirror(open_store(root), target)
        except (SimulatedCrash, SparklogError):
            target.reopen()
        return target

    replicas.produce(2)
    early = open_store(f"memory://{uuid.uuid4().hex}")
    mirror(open_store(root), early)
    replicas.produce(2)
    replicas.cluster.log.write_checkpoint()
    replicas.produce(1)
    lost = FaultyStore(open_store(root), seed=1, rates={UNAVAILABLE: 1.0})
    for fault in every_crash(mirrored(None).calls):
        target = mirrored(fault)
        for number in (1, 2):  # each is a world of its own: no other mirror was promoted
            shutil.rmtree(replicas.disk(number) / "owners", ignore_errors=True)
        with substituted(lost):
            promote(target.root, root, force=True)
        promoted = values(target.root)
        assert len(promoted) >= 2
        assert promoted == replicas.sent[0][: len(promoted)], f"{fault}"
        later = mirrored(fault)
        mirror(open_store(root), later.wrapped)
        mirror_file = read_mirror_file(later.wrapped)
        assert mirror_file is not None
        assert mirror_file.version == replicas.cluster.refresh().version, f"{fault}"


@pytest.mark.sampled
def test_after_a_crash_at_any_step_of_a_promotion_a_retry_leaves_one_root(tmp_path: Path) -> None:
    replicas, target = prepared(tmp_path / "0")
    addresses = [target.root, replicas.cluster.store.root]
    stores = [FaultyStore(open_store(address)) for address in addresses]
    with substituted(stores[0]), substituted(stores[1]):
        promote(addresses[0], addresses[1])
    number = 0
    for index, counted in enumerate(stores):
        for fault in chosen(every_crash(counted.calls)):
            number += 1
            replicas, target = prepared(tmp_path / str(number))
            addresses = [target.root, replicas.cluster.store.root]
            store = FaultyStore(open_store(addresses[index]), [fault])
            with substituted(store):
                try:
                    promote(addresses[0], addresses[1])
                except (SimulatedCrash, SparklogError):
                    store.reopen()
            promote(addresses[0], addresses[1])
            assert values(target.root) == replicas.sent[0], f"{fault} at {addresses[index]}"
            with pytest.raises(ClusterMovedError):
                open_cluster(addresses[1])
            assert replicate(open_cluster(target.root), InProcess()).behind == []


def with_gap(folder: Path) -> tuple[Replicas, Store, Store]:
    """Return a cluster, its mirror, and the root, which has removed commits that the mirror does not have yet."""
    folder.mkdir()
    replicas = Replicas(folder)
    replicas.produce(1)
    root, target = open_store(str(folder / "root")), open_store(f"memory://{uuid.uuid4().hex}")
    mirror(root, target)
    replicas.produce(2)
    replicas.cluster.log.write_checkpoint()
    boundary = replicas.cluster.state.version
    write_boundary(root, Boundary(boundary=boundary))
    for version in range(boundary + 1):
        root.delete(commit_key(version))
    replicas.produce(2)
    return replicas, target, root


@pytest.mark.sampled
def test_a_mirror_pass_that_is_suspended_during_a_promotion_takes_nothing_from_the_new_root(tmp_path: Path) -> None:
    _, target, root = with_gap(tmp_path / "count")
    counted = FaultyStore(target)
    mirror(root, counted)
    for paused_at in chosen(range(len(counted.calls))):
        _, target, root = with_gap(tmp_path / str(paused_at))
        acknowledged: list[Any] = []

        def promoted_meanwhile(step: int, call: Call) -> None:
            if step != paused_at:  # noqa: B023
                return
            lost = FaultyStore(open_store(root.root), seed=1, rates={UNAVAILABLE: 1.0})  # noqa: B023
            with substituted(lost):
                promote(target.root, root.root, force=True)  # noqa: B023
            new = Replicas.__new__(Replicas)
            new.cluster, new.sent = open_cluster(target.root), {0: list(new_values(target.root))}  # noqa: B023
            for _ in range(4):
                new.produce(1)
            new.cluster.log.write_checkpoint()
            acknowledged.extend(new.sent[0])  # noqa: B023

        with suppress(SparklogError):
            mirror(root, FaultyStore(target, before=promoted_meanwhile))
        assert len(acknowledged) >= 5
        assert values(target.root) == acknowledged, f"suspended at call {paused_at}: {counted.calls[paused_at]}"
        clean_up(target, ManualClock(), {"metadata.max.retention.ms": "0"}, LogSettings(min_commits_kept=0))
        more = Replicas.__new__(Replicas)
        more.cluster, more.sent = open_cluster(target.root), {0: list(acknowledged)}
        for _ in range(3):
            more.produce(2)
        assert values(target.root) == more.sent[0], f"suspended at call {paused_at}: {counted.calls[paused_at]}"


def new_values(root: str) -> list[bytes]:
    return [value or b"" for value in values(root)]
