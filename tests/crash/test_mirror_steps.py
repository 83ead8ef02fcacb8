"""Mirroring and promoting, killed or without an answer at every step: the mirror can be opened at any time, and after a
retry there is one root that has every record.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sparklog.coordinator import open_cluster
from sparklog.errors import ClusterMovedError, SparklogError
from sparklog.maintenance.mirror import mirror, read_mirror_file
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.store.base import Store
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import UNAVAILABLE, Fault, FaultyStore, SimulatedCrash, every_crash
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.replicas import Replicas


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


def test_after_a_crash_at_any_step_of_a_promotion_a_retry_leaves_one_root(tmp_path: Path) -> None:
    replicas, target = prepared(tmp_path / "0")
    addresses = [target.root, replicas.cluster.store.root]
    stores = [FaultyStore(open_store(address)) for address in addresses]
    with substituted(stores[0]), substituted(stores[1]):
        promote(addresses[0], addresses[1])
    number = 0
    for index, counted in enumerate(stores):
        for fault in every_crash(counted.calls):
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
