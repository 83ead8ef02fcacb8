"""A mirror is promoted, and then a mirror of that one: every root that was replaced is closed, also one that was out of
reach, and a promotion that was interrupted is repeated."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sparklog.coordinator import open_cluster
from sparklog.coordinator.brokers import remove_broker
from sparklog.errors import ClusterMovedError, SparklogError
from sparklog.log.layout import MIRROR_KEY
from sparklog.log.owner_files import read_former_roots
from sparklog.maintenance.mirror import Copier, mirror
from sparklog.maintenance.promotion import promote
from sparklog.protocol.commits import MoveCluster
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FaultyStore, SimulatedCrash, every_crash
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.replicas import Replicas
from tests.controllers import check_once
from tests.sample import STRIDE


class Chain(Replicas):
    """The root "root", and mirrors "m1", "m2" … beside it; ``cluster`` is at the one that was promoted last."""

    def at(self, name: str) -> str:
        return str(self.folder / name)

    def mirror(self, name: str) -> None:
        mirror(self.cluster.store, open_store(self.at(name)))

    def promote(self, name: str, force: bool = False) -> None:
        promote(self.at(name), self.cluster.store.root, force=force)
        self.cluster = open_cluster(self.at(name))

    def promote_while_away(self, name: str) -> str:
        """Promote a mirror while the root is out of reach; return that root, which is back afterwards."""
        old = Path(self.cluster.store.root)
        old.rename(self.folder / "away")
        self.promote(name, force=True)
        (self.folder / "away").rename(old)
        return str(old)

    def moved_to(self, name: str) -> str:
        with pytest.raises(ClusterMovedError) as moved:
            open_cluster(self.at(name)).refresh()
        return str(moved.value)


def remove_broker_0(chain: Chain) -> None:
    remove_broker(chain.cluster, 0)


@pytest.mark.parametrize("prepare", [lambda chain: None, remove_broker_0], ids=["", "without broker 0"])
def test_each_root_that_was_out_of_reach_is_closed_when_it_is_back(
    tmp_path: Path, prepare: Callable[[Chain], None]
) -> None:
    chain = Chain(tmp_path)
    chain.produce(1)
    chain.mirror("m1")
    first = chain.promote_while_away("m1")
    prepare(chain)
    chain.produce(1)
    chain.mirror("m2")
    second = chain.promote_while_away("m2")
    assert set(read_former_roots(chain.cluster.store).values()) == {first, second}
    check_once(chain.cluster)
    assert chain.at("m2") in chain.moved_to("root")
    assert chain.at("m2") in chain.moved_to("m1")
    assert read_former_roots(chain.cluster.store) == {}
    chain.produce(1)
    assert chain.read() == chain.sent[0]


def test_a_mirror_that_is_promoted_by_force_has_a_first_commit_of_its_own(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    for name in ("m1", "m2"):
        chain.mirror(name)
        before = chain.cluster.refresh().version
        chain.promote_while_away(name)
        first = next(chain.cluster.log.commits(before + 1, before + 1))
        assert any(isinstance(action, MoveCluster) for action in first.actions)


def test_a_root_that_has_lost_broker_0_is_promoted_twice(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    chain.mirror("m1")
    chain.promote("m1")
    remove_broker_0(chain)
    chain.produce(1)
    chain.mirror("m2")
    m1 = chain.cluster.store.root
    chain.promote("m2")
    promote(chain.at("m2"), m1)  # repeated: nothing is left to do
    assert chain.at("m2") in chain.moved_to("m1")
    assert chain.read() == chain.sent[0]


@pytest.mark.sampled
@pytest.mark.parametrize("stopped_at", ["m2", "m1"])
def test_a_second_promotion_is_repeated_from_any_step(tmp_path: Path, stopped_at: str) -> None:
    def prepare(number: int) -> Chain:
        chain = Chain(tmp_path / str(number))
        chain.produce(1)
        chain.mirror("m1")
        chain.promote("m1")
        chain.produce(1)
        chain.mirror("m2")
        return chain

    counted = prepare(0)
    store = FaultyStore(open_store(counted.at(stopped_at)))
    with substituted(store):
        counted.promote("m2")
    for number, fault in list(enumerate(every_crash(store.calls), 1))[::STRIDE]:
        chain = prepare(number)
        with (
            substituted(FaultyStore(open_store(chain.at(stopped_at)), [fault])),
            suppress(SimulatedCrash, SparklogError),
        ):
            promote(chain.at("m2"), chain.at("m1"))
        chain.promote("m2")
        assert chain.at("m2") in chain.moved_to("m1")
        assert chain.read() == chain.sent[0]


def test_a_repeated_promotion_keeps_what_clients_have_written_meanwhile(tmp_path: Path) -> None:
    """A pass of the mirror that was suspended over the promotion stores a checkpoint of the old root, which is newer
    than all commits of the new one."""
    chain = Chain(tmp_path)
    chain.produce(1)
    chain.mirror("m1")
    mirrored = list(chain.sent[0])
    chain.produce(20)
    manifest = chain.cluster.log.write_checkpoint()
    target, mirror_file = open_store(chain.at("m1")), (tmp_path / "m1" / MIRROR_KEY).read_bytes()
    old = chain.promote_while_away("m1")
    target.put(MIRROR_KEY, mirror_file)  # it was interrupted before it deleted that
    chain.sent[0] = mirrored
    chain.produce(1)
    assert chain.cluster.state.version < manifest.version
    Copier(open_store(old), target).checkpoint(manifest, lambda: "")
    promote(chain.at("m1"), old, force=True)
    chain.cluster = open_cluster(chain.at("m1"))
    assert chain.read() == chain.sent[0]
