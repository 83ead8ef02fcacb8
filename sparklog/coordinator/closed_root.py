"""Closes a root, and opens the cluster at another one.

The last commit of a closed root is ``move_cluster``: every reader, and so every writer before its next commit, gets
the new address from it (ClusterMovedError). At the new root, which has this commit too unless the old root was lost,
the next commit completes the move and makes the old root the location of broker 0.

Rules: each step is idempotent; a crash between two of them leaves the cluster at one root, without writers.
Not for: copying the commit log (``maintenance.mirror``).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import ClusterMovedError, InvalidRequestError, PolicyViolationError
from sparklog.ids import Ids
from sparklog.log.broker_files import encode_identity
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.creation import create_object
from sparklog.log.layout import read_cluster_file
from sparklog.log.owner_files import read_root
from sparklog.protocol.commits import Action, ChangeBroker, Commit, MoveCluster
from sparklog.protocol.decide.brokers import online_brokers
from sparklog.protocol.decide.elections import find_changes
from sparklog.protocol.decide.locations import lose_evidence
from sparklog.protocol.state import State
from sparklog.retry import commit_attempts
from sparklog.store.base import Store
from sparklog.store.conditional_write_probe import require_conditional_writes
from sparklog.store.location import IDENTITY_KEY

ROOT_BROKER = 0


def is_closed(commit: Commit) -> bool:
    """Return whether this commit closes a root."""
    return any(isinstance(action, MoveCluster) and action.url for action in commit.actions)


def close_root(
    root: Store,
    cluster_id: str,
    new_root: str,
    clock: Clock,
    ids: Ids,
    epoch: int | None = None,
    check: Callable[[State], None] = lambda state: None,
) -> int:
    """Commit the move to ``new_root`` and make this root a location of it; return the last version. ``epoch`` is that
    of the new root; None if it has none yet, and will continue with all commits of this one. ``check`` gets the state
    that the move follows, and may raise.

    Raises ClusterNotFoundError, InvalidRequestError for another cluster's root, ClusterMovedError if the cluster has
    moved to a third root, PolicyViolationError if this root took over again since the new one was promoted, or
    before, unknown to that one, StorageError, CorruptMetadataError.
    """
    stored_id = read_cluster_file(root).cluster_id
    if stored_id != cluster_id:
        raise InvalidRequestError(
            f"{root.root} is the root of cluster {stored_id}, not of {cluster_id}", path=root.root
        )

    def close(state: State) -> list[Action]:
        if state.moved_to not in ("", new_root):
            raise ClusterMovedError(f"{root.root} has already moved to {state.moved_to}", path=root.root)
        if state.moved_to:
            return []
        if epoch is not None and is_superseded(root, epoch):  # read after the state: a take-over ends with a commit
            raise PolicyViolationError(
                f"{root.root} is not closed for {new_root}: it took over its locations, and may be in use. If "
                f"{new_root} is the cluster's root, run `sparklog brokers take-over --force --bootstrap-server "
                f"{shlex.quote(new_root)}`",
                path=root.root,
            )
        check(state)
        return [MoveCluster(url=new_root)]

    version = _commit(CommitLog(root, clock, ids, moved=True), close)
    create_object(root, IDENTITY_KEY, encode_identity(cluster_id, ROOT_BROKER), limits.MAX_CLUSTER_FILE_BYTES)
    return version


def move_root(root: Store, to: str, clock: Clock, ids: Ids, epoch: int) -> int:
    """Close a new root for another that is in use instead, unless it has moved to a third one, or took over since it
    had this ``epoch``; return the last version."""

    def move(state: State) -> list[Action]:
        is_new = state.moved_to in ("", root.root) and read_root(root).epoch <= epoch
        return [MoveCluster(url=to)] if is_new else []

    return _commit(CommitLog(root, clock, ids, moved=True), move)


def is_superseded(root: Store, epoch: int) -> bool:
    """Return whether a promoted root of this epoch has a successor in the root that it replaced: one that took over
    since. A root that was promoted before there were epochs has epoch 0. Raises StorageError."""
    return read_root(root).epoch >= max(epoch, 1)


def open_root(root: Store, old_root: str, clock: Clock, ids: Ids, unclaimed: Collection[int], is_new: bool) -> int:
    """Complete the move at the new root, with the old root as broker 0 if that had no address; return the version.
    Brokers whose location is ``unclaimed`` are offline from then on: nothing is written where another root may delete
    it. What was seen at the others before counts no more. A root that ``is_new`` has a first commit of its own in any
    case, which no mirror of the old root has. Raises InvalidRequestError if the old root was closed for another one."""

    def settle(state: State) -> list[Action]:
        actions: list[Action] = []
        if state.moved_to not in ("", root.root):  # the closing commit arrived since this promotion looked for it
            raise InvalidRequestError(
                f"nothing was promoted: the cluster has moved to {state.moved_to}, which is its root, or the mirror to "
                "promote",
                path=root.root,
            )
        if state.moved_to or is_new:
            actions.append(MoveCluster())
        broker = state.brokers.get(ROOT_BROKER)
        if broker is not None and not broker.url:
            actions.append(ChangeBroker(broker=ROOT_BROKER, url=old_root))
        offline = online_brokers(state).intersection(unclaimed)
        if offline:
            actions += [ChangeBroker(broker=number, online=False) for number in sorted(offline)]
            actions += find_changes(state, online_brokers(state) - offline, ())
        return [*actions, *lose_evidence(state)] if actions else []

    return _commit(CommitLog(root, clock, ids, moved=True), settle)


def is_promotion(action: Action) -> bool:
    """Return whether an action is one that ``open_root`` commits. Closing, continuing and moving a root look alike."""
    return isinstance(action, MoveCluster) or (
        isinstance(action, ChangeBroker) and action.broker == ROOT_BROKER and bool(action.url)
    )


def _commit(log: CommitLog, decide: Callable[[State], Sequence[Action]]) -> int:
    for _ in commit_attempts(log.clock, log.ids, log.store.root):
        actions = decide(log.refresh())
        if actions:
            require_conditional_writes(log.store, log.ids)
        if not actions or log.attempt(actions) is CommitOutcome.WON:
            break
    return log.state.version
