"""Checks that files which another process wrote belong to the history that this one appends them to, and are there.

The version in a file's name is that of the cluster which its writer knew. It says which copies count
(``protocol.decide.brokers.may_lack``), but only in the writer's history: in a root that was restored from before that
version, the number is another commit's. A process that opens the root after the restore has not read the former
history, so the request states the commit at which its files were begun (``Begun``), and that is compared here.

A root and its locations may also be restored to a version after that one: then the commit is the same, and the files
are gone. Only the process in which they were begun notices, since it has read the root since. So another process, such
as one that Spark started for the commit, looks for the files, too.

Rules: reads only, and usually not even that: the process that began the files knows the digest.
Not for: clients that append what they wrote themselves (``AppendRequest.history``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from sparklog.errors import ObjectNotFoundError, RootReplacedError, StorageError
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.replaced_root import read_log_end, refuse_replaced_root
from sparklog.log.parallel import map_parallel
from sparklog.protocol.commits import Run
from sparklog.protocol.decide.append import AppendRequest, Begun
from sparklog.protocol.decide.brokers import may_lack
from sparklog.protocol.file_names import begun_at, index_path
from sparklog.protocol.partition_fold import holders
from sparklog.protocol.state import State
from sparklog.store.base import Store

AT_A_TIME = 16
"""Copies that are looked for in parallel."""

StoreOf = Callable[[State, int], Store]


def check_begun(log: CommitLog, store_of: StoreOf, reader: str, request: AppendRequest) -> AppendRequest:
    """Return the request with the copies that count, for a log that is read by ``reader``.

    Raises RootReplacedError if files were begun in another history than this log's, or are gone; StorageError.
    """
    begun_elsewhere: set[int] = set()
    for begun in request.begun:
        stored = find_digest(log, begun)
        if stored not in (None, begun.digest):
            raise _refuse(log, begun, "that commit is another one now" if stored else "the log ends before it")
        if stored is None or begun.reader != reader:
            begun_elsewhere.add(begun.version)
    if not begun_elsewhere:
        return request
    return _with_present_copies(log, store_of, request, begun_elsewhere)


def find_digest(log: CommitLog, begun: Begun) -> str | None:
    """Return the digest of a commit of this log, empty if the log ends before it, None if the commit was removed."""
    state = log.state if log.state.version >= begun.version else log.refresh()
    if state.version < begun.version:
        return ""
    known = log.find_digest(begun.version)
    if known is not None:
        return known
    end = read_log_end(log.store, begun.version, with_boundary=False)
    if end.digest in (None, begun.digest):
        return end.digest
    end = read_log_end(log.store, begun.version, with_boundary=True)
    return None if end.removed_up_to >= begun.version else end.digest  # removed: it may be a stalled writer's create


def describe_instead(digest: str) -> str:
    """Say what a log has in place of a commit, by the digest that ``find_digest`` has found."""
    return "that commit is another one now" if digest else "the log ends before it"


def _with_present_copies(
    log: CommitLog, store_of: StoreOf, request: AppendRequest, versions: set[int]
) -> AppendRequest:
    """Return the request without the copies that are not at their brokers, of files that were begun at these
    versions. Raises RootReplacedError for a file without any copy, StorageError if its locations do not answer."""
    state = log.state
    runs = {append.run.path: append.run for append in request.appends if begun_at(append.run.path) in versions}
    copies = [
        (broker, path)
        for path, run in sorted(runs.items())
        for broker in holders(run)
        if not may_lack(state, broker, path)  # else it does not count anyway
    ]
    outcomes = dict(zip(copies, map_parallel(partial(_look, state, store_of), copies, AT_A_TIME), strict=True))
    present = {
        path: [broker for broker in holders(run) if outcomes.get((broker, path), "") is None]
        for path, run in runs.items()
    }
    for path, brokers in present.items():
        why = [outcome for (_, at), outcome in outcomes.items() if at == path and outcome is not None]
        if not brokers and why:
            failures = [error for error in why if not isinstance(error, ObjectNotFoundError)]
            if failures:  # it may be there
                raise failures[0]
            raise refuse_replaced_root(log.store, f"{path}, which a job wrote to append it, is gone: {why[0].message}")
    appends = [
        msgspec.structs.replace(append, run=_on(append.run, present.get(append.run.path, ())))
        for append in request.appends
    ]
    return msgspec.structs.replace(request, appends=appends)


def _look(state: State, store_of: StoreOf, copy: tuple[int, str]) -> StorageError | None:
    """Look for a copy; return the error if it is not there or its location does not answer."""
    broker, path = copy
    try:
        store = store_of(state, broker)
        store.info(path)
        store.info(index_path(path))
    except StorageError as error:
        return error
    return None


def _on(run: Run, brokers: list[int] | tuple[int, ...]) -> Run:
    """Return the run as it is on these brokers; unchanged without any, for the decision to refuse."""
    if not brokers or len(brokers) == len(holders(run)):
        return run
    first = run.broker if run.broker in brokers else brokers[0]
    return msgspec.structs.replace(run, broker=first, replicas=list(brokers))


def _refuse(log: CommitLog, begun: Begun, why: str) -> RootReplacedError:
    return refuse_replaced_root(log.store, f"files to append were begun at commit {begun.version}, and {why}")
