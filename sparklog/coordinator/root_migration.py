"""Closes a root, and opens the cluster at another one.

The last commit of a closed root is ``move_cluster``: whoever reads it, and every writer has to before the next number,
is told the new address (ClusterMovedError). At the new root, which has this commit too or, where the old one was lost,
does not, the next commit says that the cluster has arrived, and that broker 0 is the old root.

Rules: each step may be repeated, and a crash between two of them leaves a cluster that nobody writes to, in one place.
Not for: copying the commit log (``maintenance.mirror``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import ClusterMovedError, CommitConflictError, InvalidRequestError
from sparklog.ids import Ids
from sparklog.log.broker_files import encode_identity
from sparklog.log.commits.commit_log import CommitLog, Outcome
from sparklog.log.creation import create_object
from sparklog.log.layout import read_cluster_file
from sparklog.protocol.commits import Action, ChangeBroker, Commit, MoveCluster
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.probe import require_conditional_writes

ROOT_BROKER = 0


def is_closed(commit: Commit) -> bool:
    """Whether this commit closes a root."""
    return any(isinstance(action, MoveCluster) and action.url for action in commit.actions)


def close_root(root: Store, cluster_id: str, new_root: str, clock: Clock, ids: Ids) -> int:
    """Commit that the cluster goes on at ``new_root``, and make this one a location of it; returns the last version.

    Raises ClusterNotFoundError, InvalidRequestError for another cluster's root, ClusterMovedError where it has moved
    to a third place, StorageError, CorruptMetadataError.
    """
    known = read_cluster_file(root).cluster_id
    if known != cluster_id:
        raise InvalidRequestError(f"{root.root} is the root of cluster {known}, not of {cluster_id}", path=root.root)

    def close(state: State) -> list[Action]:
        if state.moved_to not in ("", new_root):
            raise ClusterMovedError(f"{root.root} has moved to {state.moved_to} already", path=root.root)
        return [] if state.moved_to else [MoveCluster(url=new_root)]

    version = _commit(CommitLog(root, clock, ids, moved=True), close)
    create_object(root, IDENTITY_KEY, encode_identity(cluster_id, ROOT_BROKER), limits.MAX_CLUSTER_FILE_BYTES)
    return version


def open_root(root: Store, old_root: str, clock: Clock, ids: Ids) -> int:
    """Commit at the new root that the cluster is here, and that broker 0 is the old root; returns the version."""

    def settle(state: State) -> list[Action]:
        actions: list[Action] = []
        if state.moved_to:
            actions.append(MoveCluster())
        broker = state.brokers.get(ROOT_BROKER)
        if broker is not None and not broker.url:
            actions.append(ChangeBroker(broker=ROOT_BROKER, url=old_root))
        return actions

    return _commit(CommitLog(root, clock, ids, moved=True), settle)


def _commit(log: CommitLog, decide: Callable[[State], Sequence[Action]]) -> int:
    for _ in range(limits.COMMIT_ATTEMPTS):
        actions = decide(log.refresh())
        if actions:
            require_conditional_writes(log.store, log.ids)
        if not actions or log.attempt(actions) is Outcome.WON:
            return log.state.version
    raise CommitConflictError(
        f"other writers won every attempt to commit to {log.store.root}; try again", path=log.store.root
    )
