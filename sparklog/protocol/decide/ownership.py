"""Decides whether a root owns a storage location, and so may delete and elect there.

The commit log arbitrates between the writers of one root. Two roots of a cluster (a promoted mirror and the old root
that did not hear of it, a root and its restored copy) have two logs, and know nothing of each other's files. So each
location names its owner: the address of a root, that root's epoch, and the newest commit that the root had read when it
wrote this.

    own = RootIdentity("/data/log", epoch=0)
    judge(own, record, noted, recorded) -> Ownership

A promotion or a take-over gives a root the next epoch: the highest one counts. Within an epoch, a root is a copy if it
is at another address, or its log does not have the recorded commit. A copy that has replaced its original at the same
address may have that commit as well; but it has no note of the location (``leases/`` is not part of a backup), or an
older one than its own log could explain.

Rules: pure. Where it cannot be told, the location is not owned: an operator decides then (`sparklog brokers
take-over`). Not for: which broker a location is (``coordinator.health``), reading and writing records
(``coordinator.ownership``).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class RootIdentity(NamedTuple):
    """A root: its address as every process that deletes uses it, and its epoch; 0 unless it was promoted or took
    over."""

    address: str
    epoch: int


class OwnerRecord(NamedTuple):
    """Who owns a location: ``root`` with its ``epoch``, which had read commit ``version`` with this ``digest``."""

    epoch: int
    version: int
    digest: str
    root: str


class Ownership(Enum):
    """The result; only OWNED and UNCLAIMED permit anything, after the root has claimed what is UNCLAIMED."""

    OWNED = "owned"
    UNCLAIMED = "unclaimed"
    """No root, or one of a lower epoch, is recorded."""
    SUPERSEDED = "superseded"
    """A root of a higher epoch owns it."""
    ANOTHER_ROOT = "another root"
    """A root at another address, of the same epoch: this one is a copy, or was moved."""
    ANOTHER_ADDRESS = "another address"
    """A root at another address, of the same epoch, and this one has noted what that one recorded last: this is the
    same root by another mount path, or it was moved, or it is a copy that is as new. Nothing follows from that."""
    UNSEEN_COMMIT = "unseen commit"
    """The log does not have the commit that was recorded there: the root was restored from an older copy. Or that was
    removed as an old one, and the root has noted none that it recorded since."""
    NO_NOTE = "no note"
    """The root has not noted that it owns the location: it was restored from a backup."""


class Recorded(Enum):
    """What a log says of the commit that a record names."""

    KNOWN = "known"
    REMOVED = "removed"
    """Removed as an old one: it may have been another."""
    UNKNOWN = "unknown"
    """It has another commit of this version, or none."""


def judge(
    own: RootIdentity, record: OwnerRecord | None, noted: OwnerRecord | None, recorded: Recorded = Recorded.UNKNOWN
) -> Ownership:
    """Return whether a root owns a location with this record, of which it ``noted`` the latest that it wrote.

    ``recorded``: what its log says of the recorded commit; without effect if the record equals the note. An older
    record than the one noted, whose commit was removed, is its own: a root notes only what it records at a location
    that it owns, and the location was read-only since, or is an older copy.
    """
    if record is None or record.epoch < own.epoch:
        return Ownership.UNCLAIMED
    if record.epoch > own.epoch:
        return Ownership.SUPERSEDED
    if record.root != own.address:
        return Ownership.ANOTHER_ADDRESS if _has_noted(noted, record) else Ownership.ANOTHER_ROOT
    if noted is None or noted.epoch != record.epoch:
        return Ownership.NO_NOTE
    is_older = recorded is Recorded.REMOVED and record.version < noted.version
    if record != noted and recorded is not Recorded.KNOWN and not is_older:
        return Ownership.UNSEEN_COMMIT
    return Ownership.OWNED


def is_another_roots(own: RootIdentity, record: OwnerRecord | None) -> bool:
    """Return whether a record shows that another root owns the location, whatever this one has noted."""
    if record is None:
        return False
    return record.epoch > own.epoch or (record.epoch == own.epoch and record.root != own.address)


def _has_noted(noted: OwnerRecord | None, record: OwnerRecord) -> bool:
    """Return whether a root has noted that it wrote this record, or a later one of the same address: a note is written
    before its record, and was read after it. The note of a copy is older as soon as its original records again."""
    if noted is None or (noted.root, noted.epoch) != (record.root, record.epoch):
        return False
    return noted == record or noted.version > record.version


def next_epoch(*epochs: int) -> int:
    """Return the epoch of a root that is promoted or takes over, after these were seen."""
    return 1 + max(epochs, default=0)
