"""Keeps rollups of commits, so that lag and throughput are known for longer than commits are kept.

    done = keep_rollups(coordinator)

Commits are rolled up in thousands, and, however few they are, when half of the time has passed for which they are
kept.

Rules: a rollup is derived, and nothing refers to it. Two processes that write the same one do no harm. A damaged commit
is left out and reported; those before and after it are rolled up.
Not for: what a rollup holds (``monitoring.rollups``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptMetadataError
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.log.commits.commit_files import read_commit, read_commits
from sparklog.log.layout import read_certain_boundary
from sparklog.log.parallel import map_parallel
from sparklog.monitoring.commit_rows import CommitRows
from sparklog.monitoring.rollups import ROLLED_TABLES, ROLLUPS, RolledCommits, commits_of, encode_rollup, rollup_key
from sparklog.protocol.features import is_allowed
from sparklog.protocol.levels import ROLLUPS as ROLLUPS_FEATURE
from sparklog.protocol.state import State
from sparklog.store.base import Store

ROLLUP_COMMITS = 5_000
"""Commits that a rollup holds at most; once there are so many, it is made."""

ROLLUP_ACTIONS = 1_000_000
"""Actions of commits that a rollup holds at most, about."""


@dataclass
class RollupResult:
    """How many commits were rolled up, into how many files of how many bytes, and how many old files were deleted.

    ``damaged`` are the errors of the commits that could not be read.
    """

    commits: int = 0
    files: int = 0
    size_bytes: int = 0
    deleted: int = 0
    damaged: list[CorruptMetadataError] = field(default_factory=list)


def keep_rollups(coordinator: Coordinator) -> RollupResult:
    """Write the rollups that are due, and delete those that are too old. Does nothing below the level of rollups.

    Raises StorageError; CorruptMetadataError if a damaged commit hides which rollups are due, or of this timeline.
    """
    store = coordinator.store
    boundary = read_certain_boundary(store)  # first: what another process removes after this, it has rolled up before
    rolled = {info.key: commits for info in store.list(ROLLUPS) if (commits := commits_of(info.key)) is not None}
    state = coordinator.refresh()  # last: so it has all commits that other processes have rolled up
    unwanted = _find_foreign(store, state, boundary, rolled)
    result = RollupResult()
    if not is_allowed(ROLLUPS_FEATURE, state.level):
        return result
    first = max([boundary, *(commits.last for key, commits in rolled.items() if key not in unwanted)]) + 1
    last = _find_last_due(coordinator, state, first)
    while first <= last:
        first = _roll_up(coordinator, first, last, result) + 1
    unwanted.update(_find_too_old(coordinator, state, rolled))
    map_parallel(store.delete, unwanted, store.parallel_requests)
    result.deleted = len(unwanted)
    return result


def _find_last_due(coordinator: Coordinator, state: State, first: int) -> int:
    """Return the last commit to roll up if ``first`` is the first; it is less than ``first`` if none is due."""
    config = ClusterConfig.resolve(state.configs)
    kept_ms = config.metadata_max_retention_ms
    if 0 <= config.system_retention_ms <= max(kept_ms // 2, 0):
        return -1  # the commits are kept for longer than their rollups would be
    if state.version + 1 - first >= ROLLUP_COMMITS:
        return state.version
    if kept_ms < 0 or first > state.version:
        return -1
    now_ms = coordinator.log.expiry_clock.now_ms()
    return newest_version_before(coordinator.store, state.version, now_ms - kept_ms // 2)


def _roll_up(coordinator: Coordinator, first: int, last: int, result: RollupResult) -> int:
    """Roll up commits from ``first`` on: up to ``last``, as many as one rollup may hold, or up to a damaged one.

    Returns the last version that was rolled up, or that of the damaged commit.
    """
    rows = CommitRows()
    version, last_ms, actions, digest = first - 1, 0, 0, ""
    damaged: list[CorruptMetadataError] = []
    try:
        for stored in read_commits(coordinator.store, first, min(last, first + ROLLUP_COMMITS - 1)):
            rows.add(stored.commit, stored.size)
            version, last_ms, digest = stored.commit.version, stored.commit.timestamp, stored.digest
            actions += len(stored.commit.actions)
            if actions >= ROLLUP_ACTIONS:
                break
    except CorruptMetadataError as error:
        damaged.append(error)
    if version >= first:
        _write(coordinator, rows, RolledCommits(first, version, last_ms, digest[:16]), result)
    result.damaged += damaged
    return version + len(damaged)


def _write(coordinator: Coordinator, rows: CommitRows, commits: RolledCommits, result: RollupResult) -> None:
    data = encode_rollup({name: rows.table(name) for name in ROLLED_TABLES})
    with coordinator.store.open_output(rollup_key(commits, data)) as output:
        output.write(data)
    result.commits += commits.last + 1 - commits.first
    result.files += 1
    result.size_bytes += len(data)


def _find_foreign(store: Store, state: State, boundary: int, rolled: Mapping[str, RolledCommits]) -> set[str]:
    """Return the rollups of another timeline: the root was restored from a copy that is older than they are.

    If the last commit of one is kept and has its digest, those before it are of this timeline, too.
    """
    foreign: set[str] = set()
    for key, commits in sorted(rolled.items(), key=lambda each: each[1], reverse=True):
        if commits.last <= state.version and (
            commits.last <= boundary or read_commit(store, commits.last).digest.startswith(commits.digest)
        ):
            break
        foreign.add(key)
    return foreign


def _find_too_old(coordinator: Coordinator, state: State, rolled: Mapping[str, RolledCommits]) -> Iterator[str]:
    kept_ms = ClusterConfig.resolve(state.configs).system_retention_ms
    before_ms = coordinator.log.expiry_clock.now_ms() - kept_ms
    return (key for key, commits in rolled.items() if kept_ms >= 0 and commits.last_ms < before_ms)
