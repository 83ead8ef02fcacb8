"""Probes whether a server refuses a conditional write of a taken name, which commits rely on.

Some servers with S3's API ignore ``If-None-Match``: two writers then silently overwrite each other's commits.

Rules:

* A trial is two conditional writes of one new name. The server passes if the second is refused because the object
  exists, and the first one's bytes are stored. It fails if the second succeeds and its bytes are stored. Any other
  outcome, such as a lost response, is inconclusive: another name is tried, and after ``TRIALS`` the error is raised. An
  outage never counts as a failed probe, and an inconclusive trial never as a passed one.
* A pass is stored in the cluster per server address, below ``meta/probed/``; so a process that writes reads one small
  object, and one that only reads needs no permission to write.
* Only servers that might fail are probed: a store names them itself (``Store.endpoint_to_probe``).

Not for: whether a condition holds between simultaneous requests. Servers tested with racing requests are listed in
docs/limits-and-guarantees.md.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress

from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.ids import Ids
from sparklog.store.base import Store, not_written
from sparklog.store.process_local import ProcessTable

PROBED = "meta/probed/"
"""Prefix of stored passes, and of the objects of trials."""

TRIALS = 3
"""inconclusive trials, each under a new name, before an error is raised."""

_FIRST, _SECOND = b"the first of two conditional writes", b"the second of two conditional writes"
_MAX_BYTES = 4096

_passed: ProcessTable[tuple[str, str], bool] = ProcessTable()
"""Roots and server addresses that passed, as far as this process knows."""


def require_conditional_writes(store: Store, ids: Ids) -> None:
    """Make sure, before this process's first commit to a root, that its server honours conditional writes.

    Raises UnsupportedStoreError if it does not, StorageError with ``nothing_written`` if that is unknown.
    """
    try:
        endpoint = store.endpoint_to_probe
        if not endpoint:
            return
        with _passed.held:
            if (store.root, endpoint) in _passed.entries:
                return
        key = f"{PROBED}{hashlib.sha256(endpoint.encode()).hexdigest()[:32]}.json"
        if not _has_passed(store, key):
            probe_conditional_writes(store, ids)
            with suppress(StorageError):  # best effort: the next process probes again
                store.put(key, json.dumps({"endpoint": endpoint}).encode() + b"\n")
    except StorageError as error:
        not_written(error)
        raise
    with _passed.held:
        _passed.entries[store.root, endpoint] = True


def probe_conditional_writes(store: Store, ids: Ids) -> None:
    """Run the trials on temporary objects. Raises as ``require_conditional_writes``."""
    for trial in range(TRIALS):
        key = f"{PROBED}trial-{ids.write_id()}"
        try:
            if _run_trial(store, key):
                return
        except StorageError:
            if trial + 1 == TRIALS:
                raise
            continue
        finally:
            with suppress(StorageError):
                store.delete(key)
        raise UnsupportedStoreError(
            f"{store.endpoint_to_probe} ignores If-None-Match: it stored a second object under a name that was "
            f"taken, so two writers to {store.root} would overwrite each other's commits. Nothing was committed. "
            "Use AWS S3, MinIO, Ceph RGW, versitygw or another server that honours conditional writes (a newer "
            "version of this one may), or a root on a disk, HDFS, GCS or Azure",
            path=store.root,
        )


def _run_trial(store: Store, key: str) -> bool:
    """Run one trial; return whether the condition held. Raises StorageError if the trial is inconclusive."""
    store.put_if_absent(key, _FIRST)
    refused = False
    try:
        store.put_if_absent(key, _SECOND)
    except ObjectExistsError:
        refused = True
    stored = store.get(key, _MAX_BYTES)
    if stored != (_FIRST if refused else _SECOND):
        raise StorageUnavailableError(
            f"{store.root}/{key} was reported to {'exist' if refused else 'be written'}, but holds other bytes; retry",
            path=f"{store.root}/{key}",
        )
    return refused


def _has_passed(store: Store, key: str) -> bool:
    try:
        store.get(key, _MAX_BYTES)
    except ObjectNotFoundError:
        return False
    return True
