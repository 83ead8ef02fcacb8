"""Checks that files to append belong to the timeline of this log and exist.

The version in a file's name is that of the cluster which its writer knew. It says which copies count
(``protocol.decide.brokers.may_lack``), but only in the writer's timeline: in a root that was restored from before that
version, the number is another commit's. A process that opens the root after the restore has not read the former
timeline, so the request states the commit at which its files were begun (``Begun``), and that is compared here.

A root and its locations may also be restored to a version after that one. Then the commits match, but the files are
missing. So a job's files are checked for existence before they are appended. A client's files are checked on local
disks, where a check is cheap, and elsewhere if they were begun over ten seconds ago: those of a long transaction, or of
a commit that is retried. A look that is ten seconds old when the commit is decided is repeated: a process may have
waited for others, or have been suspended.

Rules: reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from sparklog.errors import ObjectNotFoundError, RootReplacedError, SparklogError, StorageError
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.replaced_root import read_log_end, refuse_replaced_root
from sparklog.log.parallel import map_parallel
from sparklog.protocol.commits import Append, Run
from sparklog.protocol.decide.append import AppendRequest, Begun, PartitionAppend, decide_append
from sparklog.protocol.decide.brokers import may_lack
from sparklog.protocol.file_names import begun_at, index_path
from sparklog.protocol.partition_fold import holders
from sparklog.protocol.state import State
from sparklog.store.base import Store

AT_A_TIME = 16
"""Copies that are looked for in parallel."""

WRITTEN_COUNTS_SECONDS = 10.0
"""Seconds after a file was begun for which it is assumed to exist, where a check is a request."""

StoreOf = Callable[[State, int], Store]


def check_begun(log: CommitLog, store_of: StoreOf, request: AppendRequest) -> AppendRequest:
    """Return the request with the copies that count.

    Raises RootReplacedError if files were begun in another timeline than this log's, or are gone; StorageError.
    """
    for begun in request.begun:
        stored = find_digest(log, begun)
        if stored not in (None, begun.digest):
            raise _refuse(log, begun, "that commit is another one now" if stored else "the log ends before it")
    versions = {begun.version for begun in request.begun}
    appends = [append for append in request.appends if begun_at(append.run.path) in versions]
    return _with_present_copies(log, store_of, request, appends)


def check_still_there(log: CommitLog, store_of: StoreOf, request: AppendRequest, seconds: float) -> AppendRequest:
    """Return the request with the copies that exist, of a client that began to write its files ``seconds`` ago. A
    repetition is returned unchanged: what is in the log may have been rolled or compacted since.

    Raises as ``decide_append``, RootReplacedError if files are gone, StorageError.
    """
    brokers = {broker for append in request.appends for broker in holders(append.run)}
    if seconds <= WRITTEN_COUNTS_SECONDS and not _are_local(log.state, store_of, brokers):
        return request
    if find_missing_copy(log.state, store_of, (append.run for append in request.appends)) is None:
        return request
    log.refresh()
    state, timeline = log.state_in_timeline()
    if request.timeline not in (None, timeline):  # refused when it is submitted
        return request
    if not any(isinstance(action, Append) for action in decide_append(state, request).actions):
        return request
    return _with_present_copies(log, store_of, request, request.appends)


def find_missing_copy(state: State, store_of: StoreOf, runs: Iterable[Run]) -> StorageError | None:
    """Return the error of a counted copy of these runs that cannot be found; None if all exist, with their indexes."""
    copies = sorted({(broker, run.path) for run in runs for broker in holders(run)})
    counted = [(broker, path) for broker, path in copies if not may_lack(state, broker, path)]
    return next((error for error in _look_for(state, store_of, counted) if error is not None), None)


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
    log: CommitLog, store_of: StoreOf, request: AppendRequest, checked: Sequence[PartitionAppend]
) -> AppendRequest:
    """Return the request without the copies that are not at their brokers, of the ``checked`` ones. Raises
    RootReplacedError for a file without any copy, StorageError if its locations do not answer."""
    state = log.state
    runs = {append.run.path: append.run for append in checked}
    copies = [
        (broker, path)
        for path, run in sorted(runs.items())
        for broker in holders(run)
        if not may_lack(state, broker, path)  # else it does not count anyway
    ]
    outcomes = dict(zip(copies, _look_for(state, store_of, copies), strict=True))
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
            raise refuse_replaced_root(
                log.store, f"{path}, which was written to be appended, is gone: {why[0].message}"
            )
    appends = [
        msgspec.structs.replace(append, run=_on(append.run, present.get(append.run.path, ())))
        for append in request.appends
    ]
    return msgspec.structs.replace(request, appends=appends)


def _look_for(state: State, store_of: StoreOf, copies: Sequence[tuple[int, str]]) -> list[StorageError | None]:
    """Look for copies; return the error of each that is not there or whose location does not answer."""
    are_local = _are_local(state, store_of, {broker for broker, _ in copies})
    return map_parallel(partial(_look, state, store_of), copies, 1 if are_local else AT_A_TIME)


def _are_local(state: State, store_of: StoreOf, brokers: Iterable[int]) -> bool:
    """Return whether brokers are folders of this machine; False if a location cannot be opened."""
    try:
        return all(store_of(state, broker).is_local for broker in brokers)
    except SparklogError:
        return False


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
