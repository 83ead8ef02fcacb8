"""Checks a storage location: it is the registered one, accepts a write, returns it, and has lost nothing since the last
check.

    OK           all of that
    UNANSWERED   no answer, or a transient error
    FAILED       it answers but is unusable: not mounted, read-only, full, or it returns other bytes
    UNKNOWN      this machine cannot open it, for lack of a client: that says nothing about the location
    OTHER_ADDRESS  the root has recorded it under another address of its own: this process, with another mount path or a
                 copy of the root, concludes nothing
    WENT_BACK    it is usable, but its files are older than before: a copy was restored, or a disk was replaced

A location that went back is recognised by its latest check, which is older than the one stored below the root; the
check is not written again before the loss is committed (``note_check``), so that a crash in between loses nothing.

Rules: no retries, no decisions; see ``controller``.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sparklog.errors import BrokerNotAvailableError, SparklogError, StorageUnavailableError
from sparklog.log.broker_files import (
    CHECK_KEY,
    LatestCheck,
    read_check,
    read_identity,
    read_note,
    write_check,
    write_note,
)
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY

TRIAL_KEY = "broker-check.tmp"
"""Key of a temporary object that tests whether a location accepts writes."""


class Health(Enum):
    """The result of a check; see the module."""

    OK = "ok"
    UNANSWERED = "unanswered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    OTHER_ADDRESS = "other address"
    WENT_BACK = "went back"


class BrokerFinding(NamedTuple):
    """The result of a broker's check; ``why`` is for people, and empty if OK."""

    broker: int
    health: Health
    why: str = ""


def check_location(
    root: Store, store: Store, cluster_id: str, broker: int, check: LatestCheck, for_older: bool = False
) -> BrokerFinding:
    """Check a location once; ``check`` is its number, ``for_older`` as for ``write_note``. Raises StorageError only if
    the root does not answer."""
    noted = read_note(root, broker, check.controller_epoch)
    try:
        finding = _examine(store, cluster_id, broker, check, noted)
    except StorageUnavailableError as error:
        return BrokerFinding(broker, Health.UNANSWERED, error.message)
    except SparklogError as error:
        return BrokerFinding(broker, Health.FAILED, error.message)
    if finding.health is Health.OK:
        write_note(root, broker, check, noted.controller_epoch != check.controller_epoch, for_older)
    return finding


def _examine(store: Store, cluster_id: str, broker: int, check: LatestCheck, noted: LatestCheck) -> BrokerFinding:
    check_identity(store, cluster_id, broker)
    stored = read_check(store, CHECK_KEY)
    if stored < noted:
        store.put(TRIAL_KEY, b"1")  # a location that refuses writes is unusable, and could not store a new check
        store.delete(TRIAL_KEY)
        return BrokerFinding(
            broker,
            Health.WENT_BACK,
            f"{store.root} went back: its latest check is {_describe(stored)}, but {_describe(noted)} was stored "
            "there; files written in between are missing",
        )
    write_check(store, CHECK_KEY, check)
    if read_check(store, CHECK_KEY) != check:
        return BrokerFinding(broker, Health.FAILED, f"{store.root} does not return what was written to it")
    return BrokerFinding(broker, Health.OK)


def _describe(check: LatestCheck) -> str:
    root = f" and root epoch {check.root_epoch}" if check.root_epoch else ""
    return f"number {check.check} of controller epoch {check.controller_epoch}{root}"


def check_identity(store: Store, cluster_id: str, broker: int, url: str = "elsewhere") -> None:
    """Raise BrokerNotAvailableError unless a location is this broker; the root (no ``url``) always is."""
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


def note_check(root: Store, store: Store, broker: int, check: LatestCheck, for_older: bool = False) -> None:
    """Store a new check of a location that went back, once its loss is in the log; ``for_older`` as for ``write_note``.
    Raises StorageError."""
    write_check(store, CHECK_KEY, check)
    write_note(root, broker, check, for_older=for_older)
