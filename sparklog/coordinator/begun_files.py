"""Checks that files which another process wrote belong to the history that this one appends them to.

The version in a file's name is that of the cluster which its writer knew. It says which copies count
(``protocol.decide.brokers.may_lack``), but only in the writer's history: in a root that was restored from before that
version, the number is another commit's, and the files may be gone with the folder. A process that opens the root after
the restore has not read the former history, so the request states the commit (``Begun``), and it is compared here.

Rules: reads only, and usually not even that: this process knows the digests of the commits that it has read lately. If
the commit has been removed, since the write took long, its files are looked for instead.
Not for: clients that append what they wrote themselves (``AppendRequest.history``).
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.errors import RootReplacedError
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.replaced_root import read_log_end, refuse_replaced_root
from sparklog.log.layout import exists
from sparklog.protocol.decide.append import AppendRequest, Begun
from sparklog.protocol.decide.brokers import may_lack
from sparklog.protocol.file_names import begun_at, index_path
from sparklog.protocol.partition_fold import holders
from sparklog.protocol.state import State
from sparklog.store.base import Store

StoreOf = Callable[[State, int], Store]


def check_begun(log: CommitLog, store_of: StoreOf, request: AppendRequest) -> None:
    """Raise RootReplacedError unless the files of a request were begun in the history of this log; StorageError."""
    for begun in request.begun:
        stored = _find_digest(log, begun)
        if stored == begun.digest:
            continue
        if stored is not None:
            raise _refuse(log.store, begun, "that commit is another one now" if stored else "the log ends before it")
        _check_copies(log, store_of, request, begun)


def _find_digest(log: CommitLog, begun: Begun) -> str | None:
    """Return the digest of a commit of this log, empty if the log ends before it, None if the commit was removed."""
    state = log.state if log.state.version >= begun.version else log.refresh()
    if state.version < begun.version:
        return ""
    known = log.find_digest(begun.version)
    if known is not None:
        return known
    end = read_log_end(log.store, begun.version, with_boundary=False)
    if end.digest is None or end.digest == begun.digest:
        return end.digest
    end = read_log_end(log.store, begun.version, with_boundary=True)
    return None if end.removed_up_to >= begun.version else end.digest  # removed: it may be a stalled writer's create


def _check_copies(log: CommitLog, store_of: StoreOf, request: AppendRequest, begun: Begun) -> None:
    """Raise RootReplacedError unless every copy is at its broker: after a restore of the root, and of locations with
    it, what was written before would be missing."""
    state = log.state
    copies = {
        (broker, append.run.path)
        for append in request.appends
        for broker in holders(append.run)
        if begun_at(append.run.path) == begun.version and not may_lack(state, broker, append.run.path)
    }
    for broker, path in sorted(copies):
        store = store_of(state, broker)
        if not (exists(store, path) and exists(store, index_path(path))):
            raise _refuse(log.store, begun, f"that commit was removed since, and {path} is not on broker {broker}")


def _refuse(store: Store, begun: Begun, why: str) -> RootReplacedError:
    return refuse_replaced_root(store, f"files to append were begun at commit {begun.version}, and {why}")
