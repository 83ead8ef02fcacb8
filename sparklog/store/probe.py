"""Whether a server keeps the promise on which commits rest: a conditional write of a taken name is refused.

Some servers with S3's API ignore ``If-None-Match``: two writers then overwrite each other's commits, and nobody is
told.

Rules:

* The trial is two conditional writes of one new name. The server passes if the second is said to find the object, and
  the first one's bytes are there. It fails if the second is said to be stored, and its bytes are there. Anything else,
  such as an answer that was lost, is doubt: another name is tried, and after ``TRIALS`` the error is raised. An outage
  is never taken for a bad server, and doubt never for a good one.
* A pass is remembered in the cluster, for each address of a server, below ``meta/probed/``; so a process that writes
  reads one small object, and one that only reads needs no right to write.
* Only what is known to be possible elsewhere is tried: a store says so itself (``Store.endpoint_to_probe``).

Not for: whether a condition holds between requests at the same moment. Servers whose requests were raced are named in
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

PROBED = "meta/probed/"
"""Where passes are remembered, and where trials take place."""

TRIALS = 3
"""new names to try before doubt is an error."""

_FIRST, _SECOND = b"the first of two conditional writes", b"the second of two conditional writes"
_MAX_BYTES = 4096

_passed: set[tuple[str, str]] = set()
"""Roots with the address of their server, of which this process knows that it passed."""


def require_conditional_writes(store: Store, ids: Ids) -> None:
    """Before the first commit of this process to a root: make sure that its server refuses what it has to refuse.

    Raises UnsupportedStoreError where it does not, and StorageError, with ``nothing_written``, where that is unknown.
    """
    try:
        endpoint = store.endpoint_to_probe
        if not endpoint or (store.root, endpoint) in _passed:
            return
        key = f"{PROBED}{hashlib.sha256(endpoint.encode()).hexdigest()[:32]}.json"
        if not _is_remembered(store, key):
            probe_conditional_writes(store, ids)
            with suppress(StorageError):  # the next process will try it again
                store.put(key, json.dumps({"endpoint": endpoint}).encode() + b"\n")
    except StorageError as error:
        not_written(error)
        raise
    _passed.add((store.root, endpoint))


def probe_conditional_writes(store: Store, ids: Ids) -> None:
    """Try it on objects of their own, which are deleted again. Errors as ``require_conditional_writes``."""
    for trial in range(TRIALS):
        key = f"{PROBED}trial-{ids.write_id()}"
        try:
            holds = _try(store, key)
        except StorageError:
            if trial + 1 == TRIALS:
                raise
        else:
            if holds:
                return
            raise UnsupportedStoreError(
                f"{store.endpoint_to_probe} ignores If-None-Match: it stored a second object under a name that was "
                f"taken, so two writers to {store.root} would overwrite each other's commits. Nothing was committed. "
                "Use AWS S3, MinIO, Ceph RGW, versitygw or another server that honours conditional writes (a newer "
                "version of this one may), or a root on a disk, HDFS, GCS or Azure",
                path=store.root,
            )
        finally:
            with suppress(StorageError):
                store.delete(key)


def _try(store: Store, key: str) -> bool:
    """Whether the condition holds. Raises StorageError where this trial does not tell."""
    store.put_if_absent(key, _FIRST)
    try:
        store.put_if_absent(key, _SECOND)
    except ObjectExistsError:
        refused = True
    else:
        refused = False
    found = store.get(key, _MAX_BYTES)
    if found != (_FIRST if refused else _SECOND):
        raise StorageUnavailableError(
            f"{store.root}/{key} was said to {'exist' if refused else 'be written'}, and holds something else; retry",
            path=f"{store.root}/{key}",
        )
    return refused


def _is_remembered(store: Store, key: str) -> bool:
    try:
        store.get(key, _MAX_BYTES)
    except ObjectNotFoundError:
        return False
    return True
