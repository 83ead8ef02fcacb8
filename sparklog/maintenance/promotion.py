"""Promotes a mirror: it becomes the root of its cluster.

    promote("s3://other/log", "/data/log")

* If the old root answers, a last commit closes the cluster there (``move_cluster``), the mirror gets that commit too,
  and nothing is lost. Clients of the old root are told the new address.
* If it does not answer, what was committed after the mirror's version is lost, which requires ``force``. Once the old
  back, ``coordinator.closed_root.close_root`` closes it; the controller does so as soon as it can reach it.

There is one new root: the closing commit names the mirror that it was made for, and no other one is promoted, forced or
not. Where no closing commit can be read, the locations tell: the promoted mirror is their owner, in the next epoch,
before it is a root (``coordinator.ownership``); another mirror, which does not have the commits of that one, is
refused.

Records are not at the mirror: they are at the brokers, and those of broker 0 stay at the old root, which is its
location afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.coordinator.closed_root import ROOT_BROKER, close_root, open_root
from sparklog.coordinator.health import check_identity
from sparklog.errors import (
    ClusterAlreadyExistsError,
    ClusterMovedError,
    ClusterNotFoundError,
    InvalidRequestError,
    SparklogError,
)
from sparklog.ids import Ids, RandomIds
from sparklog.log.broker_files import allow_location
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.replaced_root import read_log_end
from sparklog.log.creation import create_object
from sparklog.log.layout import (
    CLUSTER_KEY,
    MIRROR_KEY,
    encode_cluster_file,
    read_cluster_file,
)
from sparklog.log.owner_files import address_of, read_owner, read_root, write_epoch, write_owner
from sparklog.maintenance.mirror import MirrorFile, is_cluster_root, mirror, read_mirror_file
from sparklog.maintenance.mirrored_log import MirrorAsRoot, closed_for, settle_boundary
from sparklog.protocol.decide.ownership import OwnerRecord, next_epoch
from sparklog.protocol.state import BrokerState
from sparklog.store.base import Store
from sparklog.store.location import may_contact
from sparklog.store.open import open_store

logger = logging.getLogger(__name__)


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
    target, old = open_store(target_url, storage_options), open_store(old_root_url, storage_options)
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
        return _finish_promotion(target, old, mirror_file, clock, ids)
    _allow_before_closing(target, old, clock, ids)
    may_have_lost = False
    try:
        mirror(old, target, clock)
        close_root(old, mirror_file.cluster_id, target.root, clock, ids)
        mirror(old, target, clock)
    except ClusterMovedError as error:
        raise InvalidRequestError(
            f"nothing was promoted: {error.message}. That is the mirror to promote; if it is lost, mirror {old.root} to "
            "that address again, and promote it",
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
    settle_boundary(target)
    new_root = MirrorAsRoot(target, mirror_file.cluster_id)
    claim_locations(new_root, old, storage_options, clock, ids)
    data = encode_cluster_file(mirror_file.cluster_id)
    if create_object(target, CLUSTER_KEY, data, limits.MAX_CLUSTER_FILE_BYTES) != data:
        _check_same_cluster(target, mirror_file.cluster_id)
    version = _move_to_new_root(target, old, mirror_file.cluster_id, clock, ids)
    return PromotionResult(version, old.root, may_have_lost)


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
    target: Store, old: Store, storage_options: Mapping[str, object] | None, clock: Clock, ids: Ids
) -> None:
    """Give the new root the next epoch, and make it the owner of the locations that answer, the old root among them;
    the controller claims the others when they do.

    Raises InvalidRequestError, with nothing changed, if the owner of a location is neither the old root nor known to
    the log of the new one: then a third root is in use.
    """
    state = CommitLog(target, clock, ids, moved=True).refresh()
    locations = {number: broker.url or old.root for number, broker in state.brokers.items()}
    stores: dict[int, Store] = {}
    epochs = [read_root(target).epoch]
    with suppress(SparklogError):
        epochs.append(read_root(old).epoch)
    for number, url in locations.items():
        try:
            store = open_store(url, storage_options)
            if url != old.root:
                check_identity(store, state.cluster_id, number)
            elif read_cluster_file(store).cluster_id != state.cluster_id:
                continue
            record = read_owner(store, state.cluster_id)
        except SparklogError as error:
            logger.warning("broker %d at %s is claimed when it answers: %s", number, url, error)
            continue
        stores[number] = store
        if record is not None:
            _check_known(target, old, store, record)
            epochs.append(record.epoch)
    epoch = next_epoch(*epochs)
    write_epoch(target, epoch)
    record = OwnerRecord(epoch, state.version, state.digest, address_of(target))
    for number, store in stores.items():
        try:
            write_owner(store, target, state.cluster_id, number, record)
        except SparklogError as error:
            logger.warning("broker %d at %s is claimed when it answers: %s", number, store.root, error)


def _check_known(target: Store, old: Store, store: Store, record: OwnerRecord) -> None:
    """Refuse a promotion if a location is owned by a root other than the old one, whose commits the mirror lacks."""
    if record.root in (address_of(old), address_of(target)):
        return
    end = read_log_end(target, record.version, with_boundary=True)
    if end.digest != record.digest and end.removed_up_to < record.version:
        raise InvalidRequestError(
            f"nothing was promoted: {store.root} belongs to the root {record.root} (root epoch {record.epoch}, version "
            f"{record.version}), whose commits {target.root} does not have; promote a mirror of that root, or give it "
            "as --bootstrap-server",
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
    target: Store, old: Store, mirror_file: MirrorFile | None, clock: Clock, ids: Ids
) -> PromotionResult:
    """Finish a promotion that was interrupted after ``cluster.json`` was written."""
    try:
        cluster = read_cluster_file(target)
    except ClusterNotFoundError as error:
        raise InvalidRequestError(
            f"{target.root} is not a mirror: it has no {MIRROR_KEY}; give the location that `mirror` copied to",
            path=target.root,
        ) from error
    if mirror_file is None and CommitLog(target, clock, ids, moved=True).refresh().brokers[ROOT_BROKER].url != old.root:
        raise InvalidRequestError(
            f"{target.root} is not a mirror of {old.root}: it is the root of a cluster; were the addresses swapped?",
            path=target.root,
        )
    version = _move_to_new_root(target, old, cluster.cluster_id, clock, ids)
    return PromotionResult(version, old.root, False)


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


def _move_to_new_root(target: Store, old: Store, cluster_id: str, clock: Clock, ids: Ids) -> int:
    """Commit at the new root that the cluster is there now, after its locations are allowed; return the version.

    Closing the old root, which is only a broker's location from now on, is best effort."""
    brokers = CommitLog(target, clock, ids, moved=True).refresh().brokers.values()
    _allow_locations(target, old, brokers, ids)
    version = open_root(target, old.root, clock, ids)
    target.delete(MIRROR_KEY)
    try:
        close_root(old, cluster_id, target.root, clock, ids)
    except SparklogError as error:
        logger.warning(
            "could not close the old root %s: %s; do not write to it. The controller closes it as soon as it can reach "
            "it",
            old.root,
            _describe(error),
        )
    return version


def _is_complete(target: Store) -> bool:
    """Whether the mirror has the commit that closed the old root for it."""
    return closed_for(target) == target.root


def _describe(error: SparklogError) -> str:
    """Return why the old root failed, without the usual advice to create a cluster if there is none."""
    return f"it has no {CLUSTER_KEY}" if isinstance(error, ClusterNotFoundError) else error.message
