"""A mirror is promoted, and then a mirror of that one: every root that was replaced is closed, also one that was out of
reach, and a promotion that was interrupted is repeated. A promotion of another mirror, or a take-over of the old root,
at the same time leaves no two roots, and no cluster without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from sparklog.coordinator import open_cluster
from sparklog.coordinator.brokers import remove_broker
from sparklog.coordinator.take_over import take_over
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterMovedError,
    ClusterNotFoundError,
    InvalidRequestError,
    PolicyViolationError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.log.layout import COMMITS, MIRROR_KEY
from sparklog.log.owner_files import EPOCHS, OWNERS, read_former_roots
from sparklog.maintenance.mirror import Copier, mirror
from sparklog.maintenance.promotion import promote
from sparklog.protocol.commits import MoveCluster
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore, SimulatedCrash, every_crash
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


@pytest.mark.parametrize("until_stored", [False, True])
def test_a_pass_of_a_mirror_that_was_not_mounted_at_its_beginning_takes_no_commit_from_the_promoted_root(
    tmp_path: Path, until_stored: bool
) -> None:
    chain = Chain(tmp_path)
    chain.produce(3)
    chain.mirror("m1")
    old, newest = chain.promote_while_away("m1"), chain.cluster.state.version - 1
    m1, away = tmp_path / "m1", tmp_path / "away"
    m1.rename(away)

    def mount(step: int, call: Call) -> None:
        is_due = any(m1.glob(f"{COMMITS}*")) if until_stored else creates(call, COMMITS)
        if is_due and away.exists():
            if m1.exists():
                m1.rename(tmp_path / "beneath")
            away.rename(m1)

    copier = Copier(open_store(old), FaultyStore(open_store(str(m1)), before=mount))
    copier.gap = range(newest)  # their commits were removed from the old root
    with pytest.raises(ClusterAlreadyExistsError):
        copier.commit(newest, "")
    chain.cluster = open_cluster(str(m1))
    chain.produce(1)
    assert chain.read() == chain.sent[0]


def creates(call: Call, key: str) -> bool:
    return call.operation == "put_if_absent" and call.key.startswith(key)


class Interrupted(ExitStack):
    """Calls ``meanwhile`` once, before the first creation of ``key`` at one of these addresses of a chain."""

    def __init__(self, chain: Chain, names: Iterable[str], key: str, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        done: list[Call] = []

        def before(step: int, call: Call) -> None:
            if creates(call, key) and not done:
                done.append(call)
                meanwhile()

        for name in names:
            self.enter_context(substituted(FaultyStore(open_store(chain.at(name)), before=before)))


def die() -> None:
    raise SimulatedCrash


@pytest.mark.parametrize("at", [EPOCHS, OWNERS], ids=["before its epoch", "before its claims"])
def test_a_take_over_that_was_overtaken_by_a_promotion_fails_and_is_repeated(tmp_path: Path, at: str) -> None:
    """Neither knows of the other, so both roots have the same epoch."""
    chain = Chain(tmp_path)
    chain.produce(1)
    chain.mirror("m1")
    old = open_cluster(chain.at("root"))
    overtaken = Interrupted(chain, ("root", "disk1"), at, lambda: chain.promote_while_away("m1"))
    with overtaken, pytest.raises(PolicyViolationError, match=chain.at("m1")):
        take_over(open_cluster(chain.at("root")), force=True)
    with pytest.raises(PolicyViolationError, match=f"{chain.at('m1')} is a root"):
        take_over(open_cluster(chain.at("root")))
    assert take_over(old, force=True).unreached == {}
    check_once(chain.cluster)
    assert {number for number, broker in chain.cluster.state.brokers.items() if broker.online} <= {0}
    chain.cluster = old
    chain.produce(1)
    assert chain.read() == chain.sent[0]


def test_a_root_whose_take_over_was_stopped_unseen_is_closed_once_the_promoted_one_takes_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Chain(tmp_path)
    chain.produce(1)
    chain.mirror("m1")
    with Interrupted(chain, ("disk1",), OWNERS, die), pytest.raises(SimulatedCrash):
        take_over(open_cluster(chain.at("root")), force=True)
    old = open_cluster(chain.promote_while_away("m1"))
    check_once(chain.cluster)
    old.refresh()  # it may be in use
    assert f"brokers take-over --force --bootstrap-server {chain.at('m1')}" in caplog.text
    take_over(chain.cluster, force=True)
    check_once(chain.cluster)
    assert chain.at("m1") in chain.moved_to("root")
    chain.produce(1)
    assert chain.read() == chain.sent[0]


class Rivals(Chain):
    """A root that is closed for "m1", whose promotion was killed then. "m2" has no closing commit, and is promoted out
    of reach of the root."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.produce(1)
        for name in ("m1", "m2"):
            self.mirror(name)
        with Interrupted(self, ("m1",), EPOCHS, die), suppress(SimulatedCrash):
            promote(self.at("m1"), self.at("root"))
        self.refused = False

    def promote_m2(self, before: Callable[[int, Call], None] = lambda step, call: None, again: bool = False) -> None:
        self.reaches_root = again

        def look(step: int, call: Call) -> None:
            if not self.reaches_root:
                raise StorageUnavailableError(f"{self.at('root')} does not answer")

        with ExitStack() as stack:
            stack.enter_context(substituted(FaultyStore(open_store(self.at("root")), before=look)))
            stack.enter_context(substituted(FaultyStore(open_store(self.at("m2")), before=before)))
            with suppress(InvalidRequestError, SimulatedCrash):
                promote(self.at("m2"), self.at("root"), force=True)

    def promote_m1(self) -> None:
        self.reaches_root, self.refused = True, False
        try:
            promote(self.at("m1"), self.at("root"))
        except InvalidRequestError:
            self.refused = True
        self.reaches_root = False

    def is_in_use(self, name: str) -> bool:
        try:
            open_cluster(self.at(name)).refresh()
        except (ClusterNotFoundError, ClusterMovedError):
            return False
        return True


@pytest.mark.sampled
@pytest.mark.parametrize("goes_on", [False, True], ids=["killed", "suspended"])
def test_one_of_two_mirrors_becomes_the_root_wherever_the_other_one_was_stopped(tmp_path: Path, goes_on: bool) -> None:
    """The root was closed for m1, and m2 claims the locations: m2 is the root only if it has made its first commit."""
    number, has_stopped = 1, True
    while has_stopped:
        rivals = Rivals(tmp_path / str(number))
        calls: list[Call] = []

        def stop(step: int, call: Call, rivals: Rivals = rivals, calls: list[Call] = calls, at: int = number) -> None:
            calls += [call] if call.operation != "info" else []  # most of these look for commits beyond the end
            if len(calls) == at and calls[-1] is call:
                if not goes_on:
                    die()
                rivals.promote_m1()

        rivals.promote_m2(stop)
        has_stopped = len(calls) >= number
        rivals.promote_m1()
        assert rivals.refused == any(creates(call, COMMITS) for call in calls[: number - 1])
        if rivals.refused:  # its promotion is repeated, as the error says
            rivals.promote_m2(again=number % 2 == 0)
        in_use = [name for name in ("root", "m1", "m2") if rivals.is_in_use(name)]
        assert in_use == ["m2" if rivals.refused else "m1"]
        rivals.cluster = open_cluster(rivals.at(in_use[0]))
        rivals.produce(1)
        assert rivals.read() == rivals.sent[0]
        number += STRIDE
    assert number > 50
