"""A forced promotion that was suspended, before any of its storage calls, does not take the cluster from an old root
whose operator continues there meanwhile (``brokers take-over``), whether or not that root answers it again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from sparklog.clock import SystemClock
from sparklog.coordinator import open_cluster
from sparklog.coordinator.closed_root import close_root, move_root
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.ownership import check_owned
from sparklog.coordinator.take_over import take_over
from sparklog.errors import (
    BrokerNotAvailableError,
    ClusterMovedError,
    ClusterNotFoundError,
    InvalidRequestError,
    PolicyViolationError,
    StorageUnavailableError,
)
from sparklog.ids import RandomIds
from sparklog.log.layout import CLUSTER_KEY, COMMITS
from sparklog.log.owner_files import EPOCHS, OWNERS, read_owner, read_root, write_owner
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import PromotionResult, promote
from sparklog.protocol.decide.ownership import OwnerRecord
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.replicas import Replicas
from tests.sample import STRIDE


class Promotion:
    """A promotion that does not reach the old root, and is suspended before its ``number``-th call: its operator
    continues with the old root then, which the promotion reaches from then on if it ``returns``."""

    def __init__(self, folder: Path, number: int, returns: bool) -> None:
        self.replicas = Replicas(folder, locations=1, assignment=((1,),))
        self.replicas.produce()
        self.root, self.target = str(folder / "root"), str(folder / "mirror")
        mirror(open_store(self.root), open_store(self.target))
        self.replicas.produce(1)
        self.number, self.returns = number, returns
        self.calls: list[Call] = []
        self.is_running = False
        self.result: PromotionResult | None = None
        away = FaultyStore(open_store(self.root), before=self._reach_root)
        stores = [FaultyStore(open_store(url), before=self._before) for url in (self.target, str(folder / "disk1"))]
        with ExitStack() as stack:
            for store in (away, *stores):
                stack.enter_context(substituted(store))
            self.is_running = True
            try:
                self.result = promote(self.target, self.root, force=True)
            except InvalidRequestError as error:
                self.error = error.message
            self.is_running = False

    @property
    def was_suspended(self) -> bool:
        return len(self.calls) > self.number

    @property
    def had_looked(self) -> bool:
        """Whether it had read who owned the location before it was suspended."""
        read = self.calls[: self.number]
        return any(call.operation == "get" and call.key.startswith(OWNERS) for call in read)

    def _reach_root(self, step: int, call: Call) -> None:
        if self.is_running and not (self.returns and self.was_suspended):
            raise StorageUnavailableError(f"{self.root} does not answer")

    def _before(self, step: int, call: Call) -> None:
        if self.is_running:
            self.calls.append(call)
            if len(self.calls) == self.number + 1:
                self.is_running = False
                self.continue_with_old_root()
                self.is_running = True

    def continue_with_old_root(self) -> None:
        cluster = self.replicas.cluster = open_cluster(self.root)
        assert take_over(cluster, force=True).unreached == {}
        self.replicas.produce(1)
        vacuum(cluster, 0, dry_run=False, force=True)


def has_created(call: Call, key: str) -> bool:
    return call.operation == "put_if_absent" and call.key.startswith(key)


@pytest.mark.sampled
def test_the_old_root_keeps_what_it_acknowledged_and_stays_in_use(tmp_path: Path) -> None:
    number = 0
    while True:
        (tmp_path / str(number)).mkdir()
        promotion = Promotion(tmp_path / str(number), number, returns=number % 2 == 0)
        if not promotion.was_suspended:
            break
        number += STRIDE
        if not promotion.had_looked:  # it was begun, as far as storage can tell, after the take-over
            continue
        try:
            new = open_cluster(promotion.target)
        except (ClusterNotFoundError, ClusterMovedError):  # it is a mirror, or closed for the old root
            assert promotion.result is None
        else:  # it was promoted before the old root took over: then its controller finds that
            assert promotion.result is not None
            assert not any(has_created(call, COMMITS) for call in promotion.calls[promotion.number :])
            Controller(new).check(wait=True)
            assert not new.refresh().brokers[1].online
        replicas = promotion.replicas
        replicas.cluster = open_cluster(promotion.root)
        replicas.produce(1)
        vacuum(replicas.cluster, 0, dry_run=False, force=True)
        assert replicas.read() == replicas.sent[0]
    assert number >= 50
    assert promotion.result is not None


def test_a_withdrawn_root_names_the_one_in_use_and_is_not_promoted_again(tmp_path: Path) -> None:
    calls = Promotion(tmp_path / "whole", 10_000, False).calls
    number = next(number for number, call in enumerate(calls) if has_created(call, CLUSTER_KEY))
    promotion = Promotion(tmp_path / "again", number, False)
    assert "took over" in promotion.error or "belongs to the root" in promotion.error
    with pytest.raises(ClusterMovedError, match=promotion.root):
        open_cluster(promotion.target)
    with pytest.raises(InvalidRequestError, match=f"closed for {promotion.root}"):
        promote(promotion.target, promotion.root, force=True)


def test_a_root_is_closed_only_by_one_of_a_higher_epoch(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=0, assignment=((0,),))
    root, cluster_id = replicas.cluster.store, replicas.cluster.state.cluster_id
    epoch = take_over(replicas.cluster).epoch
    for other in (0, epoch):
        with pytest.raises(PolicyViolationError, match="in use"):
            close_root(root, cluster_id, "memory://new", SystemClock(), RandomIds(), other)
    replicas.produce()
    close_root(root, cluster_id, "memory://new", SystemClock(), RandomIds(), epoch + 1)
    with pytest.raises(ClusterMovedError):
        take_over(replicas.cluster)


def test_a_late_withdrawal_does_not_close_a_root_that_took_over_since(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, locations=0, assignment=((0,),))
    epoch = take_over(replicas.cluster).epoch
    move_root(replicas.cluster.store, "memory://old", SystemClock(), RandomIds(), epoch - 1)
    replicas.produce()


def test_of_two_roots_that_claim_a_location_at_once_one_owns_it(tmp_path: Path) -> None:
    """Neither of them sees the record of the other before it writes its own."""
    replicas = Replicas(tmp_path, locations=1, assignment=((1,),))
    replicas.produce()
    cluster_id, state = replicas.cluster.state.cluster_id, replicas.cluster.refresh()
    disk, own = open_store(str(tmp_path / "disk1")), replicas.cluster.store
    for path in (tmp_path / "disk1" / "owners").iterdir():
        path.unlink()
    other = OwnerRecord(0, state.version + 5, "00" * 32, "/other/root")

    def meanwhile(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and call.key.startswith("owners/"):
            write_owner(disk, open_store(str(tmp_path / "other")), cluster_id, 1, other)

    with substituted(FaultyStore(disk, before=meanwhile)):
        replicas.cluster.brokers.forget()
        with pytest.raises(BrokerNotAvailableError, match="/other/root"):
            check_owned(replicas.cluster, 1)
    assert read_owner(disk, cluster_id) == other
    lower = OwnerRecord(0, 1, "00" * 32, own.root)
    assert write_owner(disk, own, cluster_id, 1, lower) == other


def test_a_take_over_fences_what_was_begun_before_it_and_before_its_claims(tmp_path: Path) -> None:
    """Another root may have deleted that, and the command may be killed after the claims."""
    replicas = Replicas(tmp_path, locations=1, assignment=((1,),))
    begun = [replicas.cluster.state.version]
    fences: list[int] = []

    def look(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and call.key.startswith((EPOCHS, OWNERS)):
            fences.append(open_cluster(str(tmp_path / "root")).state.writer_fence)
            replicas.produce()
            begun.append(replicas.cluster.state.version)

    with ExitStack() as stack:
        for store in (replicas.cluster.store, open_store(str(tmp_path / "disk1"))):
            stack.enter_context(substituted(FaultyStore(store, before=look)))
        take_over(open_cluster(str(tmp_path / "root")))
    fences.append(replicas.cluster.refresh().writer_fence)
    assert len(fences) == 3
    assert [fence >= version for fence, version in zip(fences, begun, strict=True)] == [True] * 3


def test_a_promotion_ends_though_the_old_root_was_closed_while_it_took_over(tmp_path: Path) -> None:
    """Who closed it had looked at its epoch before: the take-over fails, and the new root takes a later epoch."""
    replicas = Replicas(tmp_path, locations=1, assignment=((1,),))
    replicas.produce()
    old, target, disk = (open_store(str(tmp_path / name)) for name in ("root", "mirror", "disk1"))
    mirror(old, target)
    away = FaultyStore(old, before=lambda step, call: fail(StorageUnavailableError("away")))
    with substituted(away):
        promote(target.root, old.root, force=True)

    def close_meanwhile(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and call.key.startswith(EPOCHS):
            close_root(old, replicas.cluster.state.cluster_id, target.root, SystemClock(), RandomIds())

    with substituted(FaultyStore(old, before=close_meanwhile)), pytest.raises(ClusterMovedError):
        take_over(open_cluster(old.root), force=True)
    assert read_root(old).epoch > read_root(target).epoch
    promote(target.root, old.root)
    new = open_cluster(target.root)
    check_owned(new, 1)
    owner = read_owner(disk, new.state.cluster_id)
    assert owner is not None
    assert owner.epoch == read_root(target).epoch > read_root(old).epoch


def fail(error: Exception) -> None:
    raise error
