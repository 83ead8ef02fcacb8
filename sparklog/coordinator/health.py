"""Whether a storage location is well: it is the one that was registered, takes a write, gives it back, and holds what
it held at the last check.

    OK           all of that
    UNANSWERED   no answer, or one that says to try again
    FAILED       it answers, and is not fit: not mounted, read-only, full, or it gives back something else
    UNKNOWN      this machine cannot open it, for want of a client: that says nothing of the location
    WENT_BACK    it is fit, and its files are older than they were: a copy was restored, or a disk was replaced

A location that went back is told by its latest check, which is older than the one noted below the root; the check is
not written anew before a commit has drawn the conclusions (``note_check``), so that a crash in between loses nothing.

Rules: no retrying and no deciding; see ``controller``.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sparklog.errors import BrokerNotAvailableError, SparklogError, StorageUnavailableError
from sparklog.log.broker_files import (
    CHECK_KEY,
    LatestCheck,
    note_key,
    read_check,
    read_identity,
    write_check,
)
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY

TRIAL_KEY = "broker-check.tmp"
"""What is written to a location, and deleted, to see whether it takes a write."""


class Health(Enum):
    """What a check came to; see the module."""

    OK = "ok"
    UNANSWERED = "unanswered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    WENT_BACK = "went back"


class Finding(NamedTuple):
    """What a check of a broker found; ``why`` is for people, and empty where all is well."""

    broker: int
    health: Health
    why: str = ""


def check_location(root: Store, store: Store, cluster_id: str, broker: int, check: LatestCheck) -> Finding:
    """One check of a location, ``check`` is its number. Raises StorageError only where the root does not answer."""
    noted = read_check(root, note_key(broker))
    try:
        finding = _examine(store, cluster_id, broker, check, noted)
    except StorageUnavailableError as error:
        return Finding(broker, Health.UNANSWERED, error.message)
    except SparklogError as error:
        return Finding(broker, Health.FAILED, error.message)
    if finding.health is Health.OK:
        write_check(root, note_key(broker), check)
    return finding


def _examine(store: Store, cluster_id: str, broker: int, check: LatestCheck, noted: LatestCheck) -> Finding:
    check_identity(store, cluster_id, broker)
    found = read_check(store, CHECK_KEY)
    if found < noted:
        store.put(TRIAL_KEY, b"1")  # one that takes no write is not fit, and its check could not be noted anew
        store.delete(TRIAL_KEY)
        return Finding(
            broker,
            Health.WENT_BACK,
            f"{store.root} was checked as number {noted.check} by controller {noted.controller_epoch}, and knows of "
            f"{found.check} by {found.controller_epoch}: what was written in between is not there",
        )
    write_check(store, CHECK_KEY, check)
    if read_check(store, CHECK_KEY) != check:
        return Finding(broker, Health.FAILED, f"{store.root} does not give back what was written to it")
    return Finding(broker, Health.OK)


def check_identity(store: Store, cluster_id: str, broker: int, url: str = "elsewhere") -> None:
    """Raises BrokerNotAvailableError unless a location is the broker it is taken for; the root (no ``url``) is."""
    if not url:
        return
    identity = read_identity(store)
    if identity is None:
        raise BrokerNotAvailableError(
            f"{store.root}/{IDENTITY_KEY} is missing: the location is not mounted, or was emptied", path=store.root
        )
    if (identity.cluster_id, identity.broker) != (cluster_id, broker):
        raise BrokerNotAvailableError(
            f"{store.root} is broker {identity.broker} of cluster {identity.cluster_id}", path=store.root
        )


def note_check(root: Store, store: Store, broker: int, check: LatestCheck) -> None:
    """Begin anew with a location that went back, once its loss is in the log. Raises StorageError."""
    write_check(store, CHECK_KEY, check)
    write_check(root, note_key(broker), check)
