"""Promotes a mirror: it becomes the root of its cluster.

    promote("s3://other/log", "/data/log")

* If the old root answers, a last commit closes the cluster there (``move_cluster``), the mirror gets that commit too,
  and nothing is lost. Clients of the old root are told the new address.
* If it does not answer, what was committed after the mirror's version is lost, which requires ``force``. Once the old
  back, ``coordinator.closed_root.close_root`` closes it; the controller does so as soon as it can reach it.

There is one new root: the closing commit names the mirror that it was made for, and no other one is promoted, forced or
not. Where no closing commit can be read, the locations tell: the promoted mirror is their owner, in the next epoch,
before it is a root (``coordinator.ownership``); another mirror of the replaced root is refused. So a mirror may own
them while the closing commit names another one: it gets that commit, too, unless it made its own first commit before.

Records are not at the mirror: they are at the brokers, and those of broker 0 stay at the old root, which is its
location afterwards.

Each call of the old root or a location has ``ANSWER_SECONDS``: one that hangs is one that does not answer. Locations
are written to before the old root is closed, so that none is waited for while the cluster has no root.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.coordinator import open_cluster
from sparklog.coordinator.closed_root import ROOT_BROKER, close_root, is_superseded, move_root, open_root
from sparklog.coordinator.health import TRIAL_KEY, check_identity
from sparklog.coordinator.verified_replicas import verify_replicas
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterMovedError,
    ClusterNotFoundError,
    InvalidRequestError,
    PolicyViolationError,
    SparklogError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.log.broker_files import allow_location
from sparklog.log.checkpoints import checkpoint
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.replaced_root import holds_commit, read_log_end
from sparklog.log.creation import create_object
from sparklog.log.layout import (
    CLUSTER_KEY,
    MIRROR_KEY,
    encode_cluster_file,
    read_cluster_file,
)
from sparklog.log.owner_files import (
    address_of,
    has_noted_epoch,
    note_former_root,
    read_former_roots,
    read_owner,
    read_root,
    read_source_epoch,
    write_epoch,
    write_owner,
)
from sparklog.log.parallel import map_parallel
from sparklog.maintenance.mirror import MirrorFile, is_cluster_root, mirror, read_mirror_file
from sparklog.maintenance.mirrored_log import MirrorAsRoot, closed_for, settle_boundary
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.ownership import OwnerRecord, RootIdentity, next_epoch
from sparklog.protocol.state import BrokerState, State
from sparklog.store.base import Store
from sparklog.store.limited import LimitedStore
from sparklog.store.location import may_contact
from sparklog.store.open import open_store

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 30.0
"""seconds that a call of the old root or a location may take: longer than the controller waits by default, since an old
root that has no answer by then is replaced with loss, if that is forced."""


class PromotionResult(NamedTuple):
    """The result of a promotion: the version at which the cluster continues, and whether later commits may be lost."""

    version: int
    old_root: str
    may_have_lost: bool


def promote(
    target_url: str,
    old_root_url: str,
    storage_options: Mapping[str, object] | None = None,
    force: bool = False,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> PromotionResult:
    """Make a mirror the root of its cluster. If interrupted, run it again.

    The old root becomes the location of broker 0. Raises InvalidRequestError if the target is not a mirror, or if the
    old root does not answer or cannot be read and ``force`` was not given: the message says from which version on
    commits are lost. Forced or not, it is raised if the old root was closed for another mirror, or a location is owned
    by another root, whose commits the target does not have.
    """
    target, old = open_store(target_url, storage_options), _open_limited(old_root_url, storage_options)
    clock, ids = clock or SystemClock(), ids or RandomIds()
    mirror_file = read_mirror_file(target)
    if mirror_file is not None and not is_cluster_root(target):
        check_not_closed_for_another(target)
    if mirror_file is not None and not _is_source(old, target, mirror_file):
        raise InvalidRequestError(
            f"{old.root} is not the root that {target.root} mirrors, which is {mirror_file.source}; give that root",
            path=old.root,
        )
    if mirror_file is None or is_cluster_root(target):
        result = _finish_promotion(target, old, mirror_file, storage_options, force, clock, ids)
        _verify_replicas(target, storage_options, clock, ids)
        return result
    if _is_interrupted(target, mirror_file):  # else its log is reported as damaged: its end is not copied yet
        with suppress(SparklogError):
            mirror(old, target, clock)
    new_root = MirrorAsRoot(target, mirror_file.cluster_id)
    replaced_epoch = _find_replaced_epoch(new_root, old, storage_options, clock, ids)
    _allow_before_closing(target, old, clock, ids)
    may_have_lost = _close_old_root(target, old, mirror_file, replaced_epoch, storage_options, force, clock, ids)
    check_not_closed_for_another(target)  # it has got that commit only now, if the old root failed before it was closed
    settle_boundary(target)
    claim_locations(new_root, old, replaced_epoch, storage_options, clock, ids)
    version = _move_to_new_root(target, old, mirror_file.cluster_id, storage_options, clock, ids)
    _verify_replicas(target, storage_options, clock, ids)
    return PromotionResult(version, old.root, may_have_lost)


def _verify_replicas(target: Store, storage_options: Mapping[str, object] | None, clock: Clock, ids: Ids) -> None:
    """Let replicas that lack files leave the ISR. The cluster is promoted whether or not that succeeds."""
    try:
        verify_replicas(open_cluster(target, storage_options, clock, ids))
    except SparklogError as error:
        logger.warning("it was not verified that the replicas in sync have all files: %s; run `sparklog fsck`", error)


def _is_interrupted(target: Store, mirror_file: MirrorFile) -> bool:
    """Return whether the last pass was interrupted between the copy of a checkpoint and its end."""
    newest = checkpoint.read_newest_listed(target)
    return newest is not None and newest.version > mirror_file.version


def _close_old_root(
    target: Store,
    old: Store,
    mirror_file: MirrorFile,
    replaced_epoch: int,
    storage_options: Mapping[str, object] | None,
    force: bool,
    clock: Clock,
    ids: Ids,
) -> bool:
    """Close the old root and mirror its last commit; return whether commits may be lost. Raises InvalidRequestError,
    before the old root is closed if a third root owns a location."""
    refusal: InvalidRequestError | None = None
    try:
        mirror(old, target, clock)
        state = CommitLog(old, clock, ids, moved=True).refresh()
        found = _look_at_locations(state, old, storage_options)
        refusal = None if state.moved_to == target.root else _find_refusal(target, old, found, replaced_epoch)
        if refusal is None:
            _try_to_write(location.store for location in found.values() if location.store.root != old.root)
            close_root(old, mirror_file.cluster_id, target.root, clock, ids)
            mirror(old, target, clock)
    except ClusterMovedError as error:
        raise InvalidRequestError(
            f"nothing was promoted: {error.message}. Promote that mirror; if it is lost, mirror {old.root} "
            "to that address again, and promote it",
            path=target.root,
        ) from error
    except SparklogError as error:
        with suppress(SparklogError):  # the root may be closed in spite of the error: the mirror tells, once up to date
            mirror(old, target, clock)
        may_have_lost = not _is_complete(target)
        if may_have_lost and not force:
            newest = read_mirror_file(target) or mirror_file
            raise InvalidRequestError(
                f"the old root {old.root} cannot be read to its end ({_describe(error)}), and the mirror "
                f"{target.root} has commits up to {newest.version}: what was committed from {newest.version + 1} on is "
                "lost if it is promoted. Bring the old root back, or give --force (force=True)",
                version=newest.version,
                path=target.root,
            ) from error
        return may_have_lost
    if refusal is not None:
        raise refusal
    return False


def check_not_closed_for_another(target: Store) -> None:
    """Raise InvalidRequestError if the mirror has the commit that closed the root, for another mirror."""
    closed = closed_for(target)
    if closed not in ("", target.root):
        raise InvalidRequestError(
            f"nothing was promoted: the root that {target.root} mirrors was closed for {closed}, which is the root of "
            "the cluster, or the mirror to promote",
            path=target.root,
        )


def claim_locations(
    target: Store,
    old: Store,
    replaced_epoch: int,
    storage_options: Mapping[str, object] | None,
    clock: Clock,
    ids: Ids,
) -> None:
    """Give the new root the next epoch, and make it the owner of the locations that answer, the old root among them;
    the controller claims the others when they answer.

    Raises InvalidRequestError, with no location claimed, if a third root owns one: one that has replaced the old root,
    or whose commits the new one does not have; or if the old root, which had ``replaced_epoch`` when the promotion
    began, took over meanwhile.
    """
    state = CommitLog(target, clock, ids, moved=True).refresh()
    found = _look_at_locations(state, old, storage_options, logging.WARNING)
    ended = _end_promotions(target, state, old, found, storage_options)
    refusal = _find_refusal(target, old, found, replaced_epoch, ended)
    if refusal is not None:
        raise refusal
    _claim(target, state, found, replaced_epoch)


def _claim(target: Store, state: State, found: Mapping[int, _Location], replaced_epoch: int) -> None:
    """Store an epoch after all that were seen, and record it at these locations. Who owns them afterwards is looked
    up before the root is opened: others write there, too, and this process may have been suspended."""
    records = [location.record for location in found.values()]
    epoch = next_epoch(replaced_epoch, read_root(target).epoch, *(record.epoch for record in records if record))
    write_epoch(target, epoch)
    record = OwnerRecord(epoch, state.version, state.digest, address_of(target))
    for number, location in found.items():
        try:
            write_owner(location.store, target, state.cluster_id, number, record)
        except SparklogError as error:
            logger.warning("broker %d at %s is claimed when it answers: %s", number, location.store.root, error)


def _open_limited(url: str, storage_options: Mapping[str, object] | None) -> Store:
    return LimitedStore(open_store(url, storage_options), ANSWER_SECONDS)


def _try_to_write(locations: Iterable[Store]) -> None:
    """Write to these locations: one whose writes wait, as of a frozen file system, is not asked again by this process
    before they have ended."""

    def write(store: Store) -> None:
        try:
            store.put(TRIAL_KEY, b"1")
            store.delete(TRIAL_KEY)
        except SparklogError as error:
            logger.warning("%s is claimed when it takes writes: %s", store.root, error)

    stores = list(locations)
    map_parallel(write, stores, len(stores))


class _Location(NamedTuple):
    """A broker's location that answers, with its owner record."""

    store: Store
    record: OwnerRecord | None


def _look_at_locations(
    state: State, old: Store, storage_options: Mapping[str, object] | None, level: int = logging.DEBUG
) -> dict[int, _Location]:
    """Return the locations that answer, by broker, the old root as that of broker 0. ``level`` is for the others."""
    found: dict[int, _Location] = {}
    for number, broker in state.brokers.items():
        url = broker.url or old.root
        try:
            store = _open_limited(url, storage_options)
            if url != old.root:
                check_identity(store, state.cluster_id, number)
            elif read_cluster_file(store).cluster_id != state.cluster_id:
                continue
            found[number] = _Location(store, read_owner(store, state.cluster_id))
        except SparklogError as error:
            logger.log(level, "broker %d at %s is claimed when it answers: %s", number, url, error)
    return found


class _Owned(NamedTuple):
    """Which brokers' locations a promoted root does not own, ``unclaimed``. If another root is in use instead, its
    address is ``in_use``, and ``refusal`` says why."""

    unclaimed: set[int]
    in_use: str = ""
    refusal: InvalidRequestError | None = None


def _look_at_owners(
    target: Store,
    old: Store,
    storage_options: Mapping[str, object] | None,
    clock: Clock,
    ids: Ids,
    force: bool = False,
) -> _Owned:
    """Return what a promoted root owns now: the old one may have taken over again, by the word of its operator.

    A take-over that got the same epoch was before or after the promotion; ``force`` takes it for an earlier one."""
    state, own = CommitLog(target, clock, ids, moved=True).refresh(), read_root(target)
    accepted = own.epoch if force or own.epoch == 0 else -1  # 0: promoted before there were epochs
    owned = _Owned(set(state.brokers))
    for number, (store, record) in _look_at_locations(state, old, storage_options).items():
        if record is None or record.epoch < own.epoch:
            continue
        if record.root == own.address:
            owned.unclaimed.discard(number)
        elif record.root != address_of(old) or record.epoch > accepted:
            owned = _Owned(owned.unclaimed, record.root, _refuse_owned(store, record, target, old))
    if owned.refusal is None:
        with suppress(SparklogError):  # it does not answer
            if is_superseded(old, max(own.epoch, accepted + 1)):
                return _Owned(owned.unclaimed, old.root, _refuse_in_use(target, old))
    return owned


def _withdraw(target: Store, epoch: int, other: _Owned, clock: Clock, ids: Ids) -> InvalidRequestError:
    """Close a new root, if it is one, for the one that is in use instead, so that no client writes to it; return the
    error."""
    why = "" if other.refusal is None else other.refusal.message
    if not is_cluster_root(target):
        return other.refusal or InvalidRequestError(why, path=target.root)
    move_root(target, other.in_use, clock, ids, epoch)
    return InvalidRequestError(
        f"{why}. {target.root} was a root by then, and is closed for {other.in_use}: what clients wrote to it is there "
        "alone; delete it before you mirror to it again",
        path=target.root,
    )


def _refuse_in_use(target: Store, old: Store, shown_by: str = "") -> InvalidRequestError:
    return InvalidRequestError(
        f"nothing was promoted: {old.root} took over its locations since this promotion was begun, and is in use"
        f"{shown_by}. To keep it, delete {target.root}, and mirror to it again. To "
        "give up what it has, stop everything that uses it, and promote again; if that is refused, run `sparklog "
        f"brokers take-over --force --bootstrap-server {shlex.quote(target.root)}` before",
        path=old.root,
    )


def _find_replaced_epoch(
    target: Store, old: Store, storage_options: Mapping[str, object] | None, clock: Clock, ids: Ids
) -> int:
    """Return the epoch of the root that is replaced: as it says, as its locations say, and as it was mirrored."""
    epochs = [read_source_epoch(target)]
    with suppress(SparklogError):  # it does not answer
        epochs.append(read_root(old).epoch)
    with suppress(SparklogError):  # nothing, or not all, was mirrored yet
        found = _look_at_locations(CommitLog(target, clock, ids, moved=True).refresh(), old, storage_options)
        records = [location.record for location in found.values()]
        epochs += [record.epoch for record in records if record is not None and record.root == address_of(old)]
    return max(epochs)


def _find_refusal(
    target: Store,
    old: Store,
    found: Mapping[int, _Location],
    replaced_epoch: int,
    ended: Collection[str] = (),
) -> InvalidRequestError | None:
    """Return the error if a third root owns one of these locations: one of a higher epoch than the old root has
    replaced it, whatever its records show, unless its promotion was ``ended``; of another one the mirror has to have
    the recorded commit. The old root itself has a higher one if it took over since the promotion began."""
    with suppress(SparklogError):  # it does not answer
        if read_root(old).epoch > replaced_epoch:
            return _refuse_in_use(target, old)
    for store, record in found.values():
        if record is None or record.root in (address_of(target), *ended):
            continue
        if record.epoch <= replaced_epoch:
            if record.root == address_of(old):
                continue
            end = read_log_end(target, record.version, with_boundary=True)
            if end.digest == record.digest or end.removed_up_to >= record.version:
                continue
        return _refuse_owned(store, record, target, old)
    return None


def _end_promotions(
    target: Store,
    state: State,
    old: Store,
    found: Mapping[int, _Location],
    storage_options: Mapping[str, object] | None,
) -> set[str]:
    """End the promotions of other mirrors that have claimed these locations, if the old root is closed for this one;
    return their addresses."""
    ended: set[str] = set()
    if state.moved_to != target.root:
        return ended
    for _, record in found.values():
        if record is not None and record.root not in (address_of(target), address_of(old)):
            with suppress(SparklogError):  # it does not answer
                if _end_promotion(target, state, record, _open_limited(record.root, storage_options)):
                    ended.add(record.root)
    return ended


def _end_promotion(target: Store, state: State, record: OwnerRecord, other: Store) -> bool:
    """Copy the closing commit to another mirror, which is never a root then; return whether it has it. It has not if it
    made its first commit before, as a root does. Raises SparklogError."""
    is_here = has_noted_epoch(other, RootIdentity(record.root, record.epoch))  # else another disk is mounted there
    if not is_here or is_cluster_root(other) or not holds_commit(target, record.version, record.digest):
        return False
    for version in range(record.version + 1, state.version + 1):
        data = target.get(commit_key(version), limits.MAX_COMMIT_BYTES)
        if create_object(other, commit_key(version), data, limits.MAX_COMMIT_BYTES) != data:
            return False
    return closed_for(other) == target.root


def _refuse_owned(store: Store, record: OwnerRecord, target: Store, old: Store) -> InvalidRequestError:
    if record.root == address_of(old):
        return _refuse_in_use(target, old, f": {store.root} belongs to the root {old.root}, epoch {record.epoch}")
    return InvalidRequestError(
        f"nothing was promoted: {store.root} belongs to the root {record.root} (root epoch {record.epoch}, version "
        f"{record.version}), which replaced {old.root} or has commits that {target.root} does not have. If that root "
        "is in use, give it as --bootstrap-server; if its promotion was interrupted, promote it again; if it is lost, "
        f"promote a mirror of it. If it was never in use and {old.root} answers, run `sparklog brokers take-over "
        f"--bootstrap-server {shlex.quote(old.root)}` first. If it is lost with all its mirrors, delete "
        f"{store.root}/owners",
        path=store.root,
    )


def _check_same_cluster(target: Store, cluster_id: str) -> None:
    target_id = read_cluster_file(target).cluster_id
    if target_id != cluster_id:
        raise ClusterAlreadyExistsError(
            f"nothing was promoted: {target.root}, a mirror of cluster {cluster_id}, became the root of cluster "
            f"{target_id} in the meantime; use another mirror",
            path=target.root,
        )


def _is_source(old: Store, target: Store, mirror_file: MirrorFile) -> bool:
    """Whether a root is the one that was mirrored. If it has moved since, its ``cluster.json`` decides."""
    if old.root == mirror_file.source:
        return True
    try:
        return old.root != target.root and read_cluster_file(old).cluster_id == mirror_file.cluster_id
    except SparklogError:
        return False


def _finish_promotion(
    target: Store,
    old: Store,
    mirror_file: MirrorFile | None,
    storage_options: Mapping[str, object] | None,
    force: bool,
    clock: Clock,
    ids: Ids,
) -> PromotionResult:
    """Finish a promotion that was interrupted after ``cluster.json`` was written, if no other root is in use since."""
    try:
        cluster = read_cluster_file(target)
    except ClusterNotFoundError as error:
        raise InvalidRequestError(
            f"{target.root} is not a mirror: it has no {MIRROR_KEY}; give the location that `mirror` copied to",
            path=target.root,
        ) from error
    state = CommitLog(target, clock, ids, moved=True).refresh()
    if mirror_file is None and not _has_replaced(target, state, old, clock, ids):
        raise InvalidRequestError(
            f"{target.root} is not a mirror of {old.root}: it is the root of a cluster; were the addresses swapped?",
            path=target.root,
        )
    if state.moved_to not in ("", target.root):
        raise InvalidRequestError(
            f"nothing was promoted: {target.root} was closed for {state.moved_to}, which is the root of the cluster",
            path=target.root,
        )
    owned = _look_at_owners(target, old, storage_options, clock, ids, force)
    if owned.refusal is not None:
        if owned.in_use not in (old.root, address_of(old)) or not _is_closed_for(old, target, clock, ids):
            raise owned.refusal
        # a take-over of the old root was begun, and did not end before that was closed
        _claim(target, state, _look_at_locations(state, old, storage_options), read_root(old).epoch)
    may_have_lost = False
    if mirror_file is not None:
        if force:  # the next epoch, after one that the old root may have
            _claim(target, state, _look_at_locations(state, old, storage_options), 0)
        may_have_lost = _close_for_interrupted(target, old, cluster.cluster_id, force, clock, ids)
    version = _move_to_new_root(target, old, cluster.cluster_id, storage_options, clock, ids)
    return PromotionResult(version, old.root, may_have_lost)


def _close_for_interrupted(target: Store, old: Store, cluster_id: str, force: bool, clock: Clock, ids: Ids) -> bool:
    """Close the old root for a promotion that continues; return whether its commits may be lost. Raises
    InvalidRequestError if it answers, and was closed for another root, or, unless ``force``d, has commits since then
    that the new root cannot get any more."""
    refusals: list[InvalidRequestError] = []

    def check(state: State) -> None:
        end = read_log_end(target, state.version, with_boundary=True)
        if not force and end.digest != state.digest and end.removed_up_to < state.version:
            refusals.append(
                InvalidRequestError(
                    f"nothing was promoted: {old.root} answers again, and has commits up to {state.version} that "
                    f"{target.root}, whose promotion was interrupted, does not have. To keep these, run `sparklog "
                    f"brokers take-over --force --bootstrap-server {shlex.quote(old.root)}`, delete {target.root}, and "
                    "mirror to it again. To lose them, give --force (force=True)",
                    version=state.version,
                    path=target.root,
                )
            )
            raise refusals[0]

    try:
        close_root(old, cluster_id, target.root, clock, ids, read_root(target).epoch, check)
    except ClusterMovedError as error:
        raise InvalidRequestError(f"nothing was promoted: {error.message}", path=target.root) from error
    except PolicyViolationError as error:
        raise _refuse_in_use(target, old) from error
    except SparklogError:  # it does not answer; the controller closes it
        if refusals:
            raise refusals[0] from None
        return True
    return closed_for(target) != target.root


def _allow_locations(target: Store, old: Store, brokers: Iterable[BrokerState], ids: Ids) -> None:
    """Allow clients of the new root to contact the old one, and the locations that they could contact from there.

    Raises StoragePermissionError if only the owner of the new root may do so, StorageError."""
    allow_location(target, old.root, ids)
    for broker in brokers:
        if broker.url and may_contact(broker.url, old.root, ()):
            allow_location(target, broker.url, ids)


def _allow_before_closing(target: Store, old: Store, clock: Clock, ids: Ids) -> None:
    """Allow the locations before the old root is closed, to fail early. Errors as ``_allow_locations``."""
    brokers: Iterable[BrokerState] = ()
    with suppress(SparklogError):  # a root that cannot be read is not closed either
        brokers = CommitLog(old, clock, ids, moved=True).refresh().brokers.values()
    _allow_locations(target, old, brokers, ids)


def _move_to_new_root(
    target: Store,
    old: Store,
    cluster_id: str,
    storage_options: Mapping[str, object] | None,
    clock: Clock,
    ids: Ids,
) -> int:
    """Commit at the new root that the cluster is there now, after its locations are allowed, and that brokers whose
    location it does not own are offline; then make it a root, so that no client writes to it before that. Return the
    version.

    Owners are looked up before each step and after the last one, since an operator may continue with the old root while
    this process is suspended: then InvalidRequestError is raised, and a new root that exists is closed for that one.
    Closing the old root, which is only a broker's location from now on, is best effort otherwise."""
    new_root, is_new = MirrorAsRoot(target, cluster_id), not is_cluster_root(target)
    if is_new:  # a pass of the mirror may jump to a checkpoint at any time until the new root has a commit of its own
        settle_boundary(target)
    brokers = CommitLog(new_root, clock, ids, moved=True).refresh().brokers.values()
    _allow_locations(target, old, brokers, ids)
    epoch = read_root(target).epoch
    owned = _look_at_owners(new_root, old, storage_options, clock, ids)
    if not owned.in_use:
        if is_new:  # else clients have written since, to which a checkpoint of a late pass does not belong
            settle_boundary(target)
        note_former_root(target, old.root)
        version = open_root(new_root, old.root, clock, ids, owned.unclaimed, is_new)
        owned = _look_at_owners(new_root, old, storage_options, clock, ids)
    if not owned.in_use:
        data = encode_cluster_file(cluster_id)
        if create_object(target, CLUSTER_KEY, data, limits.MAX_CLUSTER_FILE_BYTES) != data:
            _check_same_cluster(target, cluster_id)
        owned = _look_at_owners(new_root, old, storage_options, clock, ids)
    if owned.in_use:
        raise _withdraw(target, epoch, owned, clock, ids)
    try:
        close_root(old, cluster_id, target.root, clock, ids, epoch)
    except PolicyViolationError as error:
        other = _Owned(set(), old.root, _refuse_in_use(target, old))
        raise _withdraw(target, epoch, other, clock, ids) from error
    except SparklogError as error:
        logger.warning(
            "could not close the old root %s: %s; do not write to it. The controller closes it as soon as it can reach "
            "it",
            old.root,
            _describe(error),
        )
    target.delete(MIRROR_KEY)
    return version


def _has_replaced(target: Store, state: State, old: Store, clock: Clock, ids: Ids) -> bool:
    """Whether a root is one that the target has replaced: it is broker 0, to be closed, or closed for the target."""
    broker = state.brokers.get(ROOT_BROKER)
    if broker is not None and broker.url == old.root:
        return True
    return old.root in read_former_roots(target).values() or _is_closed_for(old, target, clock, ids)


def _is_closed_for(old: Store, target: Store, clock: Clock, ids: Ids) -> bool:
    """Whether the old root was closed for the target, which is final. False if it does not answer."""
    with suppress(SparklogError):
        return CommitLog(old, clock, ids, moved=True).refresh().moved_to == target.root
    return False


def _is_complete(target: Store) -> bool:
    """Whether the mirror has the commit that closed the old root for it."""
    return closed_for(target) == target.root


def _describe(error: SparklogError) -> str:
    """Return why the old root failed, without the usual advice to create a cluster if there is none."""
    return f"it has no {CLUSTER_KEY}" if isinstance(error, ClusterNotFoundError) else error.message
