"""What shows that a root was replaced: restored from a copy, or deleted and created again, under a living client.

A client knows the newest commit that it has read by its digest. As long as the stored log continues that timeline, the
object at that number has this digest, or the boundary says that it was removed after a checkpoint had included it.
Otherwise the root holds another timeline, and nothing may be committed on top of it.

Readers compare in ``commit_log`` (``_check_end``), writers in ``commit_attempt`` before they acknowledge, both with the
functions of this module.

Rules: reads only. One read proves nothing while a copy is being restored, and an empty root may be a disk that is not
mounted. Not for: checkpoints (``log.checkpoints.usable_checkpoints``).
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog import limits
from sparklog.clock import Clock
from sparklog.errors import (
    ClusterNotFoundError,
    ObjectNotFoundError,
    RootReplacedError,
    StorageUnavailableError,
    UnlinkedHistoryError,
)
from sparklog.log.commits.commit_files import read_ahead
from sparklog.log.layout import read_boundary, read_cluster_file
from sparklog.log.parallel import call_both
from sparklog.protocol.commit_bytes import stored_digest
from sparklog.protocol.commits import commit_key
from sparklog.retry import pause_after
from sparklog.store.base import Store


class LogEnd(NamedTuple):
    """The stored commit at the number of the newest one that a process knows, and the boundary.

    ``digest`` is that of the stored commit, None if there is none. ``boundary`` is None if it was not read.
    """

    digest: str | None
    boundary: int | None

    @property
    def removed_up_to(self) -> int:
        """The boundary, -1 if it was not read."""
        return -1 if self.boundary is None else self.boundary


def read_log_end(store: Store, version: int, with_boundary: bool) -> LogEnd:
    """Read commit ``version``, and the boundary if requested or if that commit is absent. Raises StorageError."""

    def read_digest() -> str | None:
        try:
            return stored_digest(store.get(commit_key(version), limits.MAX_COMMIT_BYTES))
        except ObjectNotFoundError:
            return None

    if with_boundary:
        return LogEnd(*call_both(read_digest, lambda: read_boundary(store), store.parallel_requests))
    digest = read_digest()
    return LogEnd(digest, read_boundary(store) if digest is None else None)


def holds_commit(store: Store, version: int, digest: str) -> bool:
    """Return whether this commit exists, was not removed, and has this digest. Raises StorageError."""
    end = read_log_end(store, version, with_boundary=True)
    return end.digest == digest and end.removed_up_to < version


def read_next_and_end(store: Store, version: int, with_boundary: bool) -> tuple[list[bytes], LogEnd]:
    """Read the commit after ``version`` if there is one, and the log end at ``version``, in parallel."""
    return call_both(
        lambda: read_ahead(store, version + 1, 1),
        lambda: read_log_end(store, version, with_boundary),
        store.parallel_requests,
    )


def is_withdrawn(store: Store, clock: Clock, version: int, data: bytes) -> bool:
    """Return whether a commit after a missing one is soon withdrawn, as after a restore of the root."""
    for attempt in range(3):
        if read_ahead(store, version, 1) != [data]:
            return True
        clock.sleep(pause_after(attempt))
    return False


def check_mounted(store: Store) -> None:
    """Raise StorageUnavailableError if the root is empty: its disk is not mounted, and may come back."""
    try:
        read_cluster_file(store)
    except ClusterNotFoundError as error:
        raise StorageUnavailableError(
            f"the cluster at {store.root} is missing; if the root is on a mounted disk, mount it again", path=store.root
        ) from error


def read_mounted_log_end(store: Store, version: int, with_boundary: bool) -> LogEnd:
    """Read the log end; if the commit is absent, read again and check that the root exists before and after that.

    Raises StorageUnavailableError if the root is missing, which is not a sign of another timeline.
    """
    end = read_log_end(store, version, with_boundary)
    if end.digest is None:
        check_mounted(store)
        end = read_log_end(store, version, with_boundary)
        check_mounted(store)
    return end


def refuse_other_timeline(store: Store, version: int, end: LogEnd) -> RootReplacedError:
    """Return the error if the newest commit that a client has read is missing or another one."""
    what = "is missing" if end.digest is None else "is another one now"
    return refuse_replaced_root(store, f"commit {version}, the newest one that this client has read, {what}")


def refuse_replaced_root(store: Store, why: str) -> RootReplacedError:
    """Return the error if a root holds another timeline than before."""
    return RootReplacedError(
        f"{store.root} holds another timeline than the one that this client has read: {why}. It was restored from a "
        "copy or created again. This call wrote nothing; what was acknowledged before may be missing there. Close this "
        "client and open the cluster again; `sparklog fsck` shows what the root holds",
        path=store.root,
    )


def refuse_unlinked_timeline(store: Store, what: str) -> UnlinkedHistoryError:
    """Return the error if a checkpoint was loaded that nothing links to what a process had read before; ``what`` may be
    other in the timeline of that."""
    return UnlinkedHistoryError(
        f"{what}: commits of {store.root} were removed before this process had read them, as they are after a long "
        "pause, but also in a root that was restored from a copy meanwhile. Nothing was done. Look again, with a newly "
        "opened cluster; that metadata.max.retention.ms and .bytes are larger makes it rarer",
        path=store.root,
    )
