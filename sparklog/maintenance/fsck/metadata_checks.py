"""Checks the metadata: cluster.json, the boundary, every commit, and every checkpoint.

Each commit is checked against its own digest and the digest that the next one names, and applied to the state: to the
empty state if commit 0 still exists, else to the oldest sound checkpoint that the commits continue. Every checkpoint is
compared with the state and the segment lists that the commits lead to. After a missing or damaged commit, the check
continues from the next sound checkpoint, so one break causes only the findings that it must.

Rules: reads only; works on clusters that cannot be opened. Findings distinguish what is certain from what is not: a
commit is blamed for a broken chain only if its neighbours or a checkpoint contradict it consistently.
Not for: whether the segment lists are consistent (``list_checks``), and data files (``file_checks``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from immutables import Map
from msgspec.structs import replace

from sparklog import limits
from sparklog.errors import (
    ClusterNotFoundError,
    CorruptionError,
    CorruptMetadataError,
    ObjectNotFoundError,
    SparklogError,
    UnsupportedVersionError,
)
from sparklog.log.checkpoints.checkpoint import LATEST_KEY
from sparklog.log.checkpoints.lists import TopicList
from sparklog.log.commits import commit_files
from sparklog.log.layout import (
    BOUNDARY_KEY,
    CHECKPOINTS,
    CLUSTER_KEY,
    COMMITS,
    META,
    MIRROR_KEY,
    commit_version,
    exists,
    find_trace_of_commits,
    manifest_version,
    read_boundary,
    read_certain_boundary,
    read_cluster_file,
)
from sparklog.log.parallel import map_parallel
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.checkpoint_checks import Checkpoints, KeptCheckpoint, newer_version
from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Finding
from sparklog.maintenance.fsck.log_end import commits_beyond
from sparklog.protocol.commit_bytes import decode_commit, stored_digest
from sparklog.protocol.commits import GENESIS_DIGEST, Commit, commit_key
from sparklog.protocol.fold import fold
from sparklog.protocol.indexes import with_indexes
from sparklog.protocol.segments import SegmentEvent, segment_events
from sparklog.protocol.state import State, TopicState
from sparklog.store.base import Store

Progress = Callable[[str, int, int], None]
"""Called from time to time with what is being counted, how many are done, and the total."""

_FETCHED_TOGETHER = 32
"""Commits in memory at a time, each at most ``limits.MAX_COMMIT_BYTES``, usually some kilobytes."""

_FROM_MIRROR = (
    "restore the commit from a mirror of the commit log (`sparklog fsck --repair --mirror ROOT`) or a backup of the "
    "root; move a commit that is stored under its number away, do not overwrite it"
)
_NO_COMMITS = (
    "mount or restore all of `meta/`, or promote a mirror of the commit log; write nothing to the root before that: it "
    "would be lost"
)
_NONE_IF_RESTORED = (
    "If the root was restored from an older copy, none is missing: a client of its former self left the commits behind "
    "the hole, and what is said about these is to be done"
)


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


@dataclass
class FoundMetadata:
    """The checked metadata of a cluster.

    ``state`` is the newest state that could be derived, that of version ``last`` unless the log is broken before it;
    ``lists`` are its live segments by topic. ``newer``: a later version of sparklog has written some objects, so that
    the rest cannot be checked. ``continued`` is the version of the last checkpoint that covers damaged commits before
    it, -1 if none does.
    """

    state: State
    lists: dict[str, TopicSegments] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    first: int = -1
    last: int = -1
    commits: int = 0
    checkpoints: list[KeptCheckpoint] = field(default_factory=list)
    newer: bool = False
    continued: int = -1

    @property
    def is_whole(self) -> bool:
        """Whether the newest commit's state is known."""
        return self.state.version >= self.last


def check_metadata(store: Store, progress: Progress = no_progress) -> FoundMetadata:
    """Check all objects below ``meta/``, and cluster.json. Raises ClusterNotFoundError, UnsupportedVersionError or
    StorageError if nothing can be checked."""
    checkpoints = Checkpoints(store)
    versions, unknown = _list_commits(store)
    cluster_id, of_cluster = _check_cluster_file(store, checkpoints, bool(versions))
    boundary, of_boundary = _check_boundary(store, versions)
    replay = _Replay(store, checkpoints, cluster_id, boundary)
    replay.run(versions, progress)
    result = replay.result()
    if not versions and not checkpoints.kept and (trace := find_trace_of_commits(store)):
        message = f"there are no commits, but {trace} shows that there were some"
        result.findings.append(_of_commit(kinds.LOST_HISTORY, 0, message, _NO_COMMITS))
    if not of_boundary and not result.newer and (versions or checkpoints.kept):
        of_boundary = list(_find_boundary_beyond(store, result))
    result.findings = [*of_cluster, *of_boundary, *unknown, *result.findings]
    hint = checkpoints.hint_fault()
    if hint is not None:
        result.findings.append(hint)
    result.findings += [_unused(key) for key in checkpoints.unused()]
    result.findings += [_stray(key) for key in checkpoints.stray]
    result.findings += _find_in_the_way(store, boundary)
    return result


def catch_up(store: Store, metadata: FoundMetadata) -> FoundMetadata:
    """Apply the commits since ``metadata`` was checked; return the result. Nothing is checked again.

    Stops at the first commit that does not exist or does not apply.
    """
    state, lists = metadata.state, _Lists()
    while True:
        try:
            commit, digest, _ = commit_files.read_commit(store, state.version + 1)
            state = fold(state, commit, digest).state
        except (CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError):
            break
        lists.take(commit)
    for name, segments in metadata.lists.items():
        if name in state.topics and state.topics[name].topic_id == segments.topic.topic_id:
            with contextlib.suppress(CorruptMetadataError):  # a list that was damaged before remains so
                lists.start(segments.topic.topic_id, segments.table())
    by_topic = {name: lists.of(topic) for name, topic in sorted(state.topics.items())}
    return FoundMetadata(state=state, lists=by_topic, first=metadata.first, last=state.version)


def _list_commits(store: Store) -> tuple[list[int], list[Finding]]:
    """Return the versions of all commits, and findings for other objects in their folder."""
    versions: list[int] = []
    unknown: list[Finding] = []
    for info in store.list(COMMITS):
        version = commit_version(info.key)
        if version is not None:
            versions.append(version)
        else:
            unknown.append(_stray(info.key))
    return sorted(versions), unknown


def _stray(key: str) -> Finding:
    return Finding(
        kind=kinds.UNKNOWN_OBJECT,
        severity=INFO,
        message="a stray file: sparklog neither writes nor reads objects of this name",
        action="delete it, once you know that it is not needed: editors, file managers, NFS and tools that copy or "
        "synchronise folders leave such files",
        path=key,
    )


def _find_in_the_way(store: Store, boundary: int) -> Iterator[Finding]:
    """Find objects other than files under the names of files that have to be stored."""
    for folder in (COMMITS, META, CHECKPOINTS):
        for key, kind in store.list_others(folder):
            version = commit_version(key)
            if key in (BOUNDARY_KEY, LATEST_KEY) or (version is not None and version > boundary):
                stops = "every writer stops" if version is not None else "every clean-up of the metadata fails"
                yield Finding(
                    kind=kinds.IN_THE_WAY,
                    severity=WARNING if version is None else ERROR,
                    message=f"{kind} has the name of a file that sparklog has to store: {stops} there",
                    action=f"move {store.root}/{key} away; it has no data of sparklog",
                    path=key,
                    version=-1 if version is None else version,
                )


def _unused(key: str) -> Finding:
    return Finding(
        kind=kinds.ORPHAN_FILE,
        severity=INFO,
        message="a file of a checkpoint that does not exist: its writer died, or the checkpoint was removed",
        action="`sparklog vacuum` removes it",
        path=key,
    )


def _check_cluster_file(store: Store, checkpoints: Checkpoints, has_commits: bool) -> tuple[str, list[Finding]]:
    """Return the cluster's id, and findings about cluster.json. Checkpoints of this history have the id too."""
    checkpoint_id = next(
        (kept.state.cluster_id for kept in reversed(checkpoints.kept) if kept.state and _is_ours(store, kept)), ""
    )
    try:
        file_id = read_cluster_file(store).cluster_id
    except (CorruptMetadataError, ClusterNotFoundError) as error:
        if not has_commits and not checkpoints.kept:
            raise
        _refuse_mirror(store)
        return checkpoint_id, [_of_cluster_file(str(error), checkpoint_id)]
    if checkpoint_id and checkpoint_id != file_id:
        message = f"{CLUSTER_KEY} is of cluster {file_id}, but the checkpoints are of {checkpoint_id}"
        return checkpoint_id, [_of_cluster_file(message, checkpoint_id)]
    return file_id, []


def _refuse_mirror(store: Store) -> None:
    """Raise ClusterNotFoundError for a mirror, which has commits but no cluster.json."""
    if exists(store, MIRROR_KEY):
        raise ClusterNotFoundError(
            f"{store.root} is a mirror of a commit log, not a cluster; check the cluster itself, or promote the mirror",
            path=store.root,
        )


def _is_ours(store: Store, kept: KeptCheckpoint) -> bool:
    """Whether a checkpoint is of this log: its commit has its digest, or the next commit names it."""
    if not kept.is_sound or kept.state is None:
        return False
    own, after = read_commit(store, kept.version), read_commit(store, kept.version + 1)
    return kept.state.digest in (own[1] if own else None, after[0].previous if after else None)


def read_commit(store: Store, version: int) -> tuple[Commit, str] | None:
    """Return a commit, without spilled actions, and its digest; None if it does not exist or is damaged."""
    if version < 0:
        return None
    try:
        return decode_commit(store.get(commit_key(version), limits.MAX_COMMIT_BYTES), version)
    except (CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError):
        return None


def _of_cluster_file(message: str, checkpoint_id: str) -> Finding:
    return Finding(
        kind=kinds.CLUSTER_FILE,
        severity=WARNING if checkpoint_id else ERROR,
        message=message,
        action="run `sparklog fsck --repair`, which writes it again: the checkpoints have the id"
        if checkpoint_id
        else "restore it from a backup of the root: the cluster's id is stored nowhere else",
        repairable=bool(checkpoint_id),
        path=CLUSTER_KEY,
    )


def _check_boundary(store: Store, versions: list[int]) -> tuple[int, list[Finding]]:
    """Return the boundary, and findings about it; if it cannot be read, all commits before the first one that exists
    count as removed."""
    try:
        return read_boundary(store), []
    except CorruptMetadataError as error:
        finding = Finding(
            kind=kinds.DAMAGED_BOUNDARY,
            severity=WARNING,
            message=error.message,
            action="run `sparklog fsck --repair`, which writes it again if a sound checkpoint covers all commits that "
            "are missing",
            repairable=True,
            path=BOUNDARY_KEY,
        )
        return (versions[0] - 1 if versions else -1), [finding]


def _find_boundary_beyond(store: Store, checked: FoundMetadata) -> Iterator[Finding]:
    """Find a boundary, or a mark of one, beyond the newest checkpoint although no commit is missing.

    A repair or a clean-up wrote it that was suspended while the root was restored or repaired.
    """
    newest = max((kept.version for kept in checked.checkpoints if kept.is_sound), default=-1)
    boundary = read_certain_boundary(store)
    if not checked.is_whole or boundary <= newest:
        return
    known = {kept.key for kept in checked.checkpoints}
    since = [manifest_version(info.key) for info in store.list(CHECKPOINTS) if info.key not in known]
    if any(version is not None and version >= boundary for version in since):
        return  # a clean-up has moved both since
    is_refused = read_boundary(store) > newest
    yield Finding(
        kind=kinds.DAMAGED_BOUNDARY,
        severity=ERROR if is_refused else WARNING,
        message=f"the boundary says that commits up to {boundary} were removed, but no checkpoint replaces them, and "
        "the commits are there"
        + (": the cluster cannot be opened" if is_refused else f" (by a mark in {CHECKPOINTS})")
        + ". A clean-up or a repair wrote it that was stopped while the root was restored or repaired",
        action="run `sparklog fsck --repair`, which writes it again from the commits that exist",
        repairable=True,
        path=BOUNDARY_KEY,
    )


_Stored = bytes | CorruptMetadataError | ObjectNotFoundError
"""The bytes of a commit, or the error of reading them."""


def _read_ahead(store: Store, versions: Sequence[int]) -> Iterator[_Stored]:
    """Return the commits of these versions, in order, many fetched at a time where that pays off."""
    for first in range(0, len(versions), _FETCHED_TOGETHER):
        yield from map_parallel(
            partial(_fetch, store), versions[first : first + _FETCHED_TOGETHER], store.parallel_requests
        )


def _fetch(store: Store, version: int) -> _Stored:
    try:
        return store.get(commit_key(version), limits.MAX_COMMIT_BYTES)
    except (CorruptMetadataError, ObjectNotFoundError) as error:
        return error


class _Lists:
    """The segment lists after the commits so far, by topic id. Not thread-safe."""

    def __init__(self) -> None:
        self._parts: dict[str, list[pa.RecordBatch]] = {}
        self._events: dict[str, list[SegmentEvent]] = {}

    def take(self, commit: Commit) -> None:
        for topic_id, events in segment_events(commit).items():
            self._events.setdefault(topic_id, []).extend(events)

    def start(self, topic_id: str, table: pa.RecordBatch) -> None:
        self._parts[topic_id] = [table]

    def changed(self, topic_id: str) -> bool:
        return topic_id in self._events

    def of(self, topic: TopicState) -> TopicSegments:
        return TopicSegments(topic, self._parts.get(topic.topic_id, []), self._events.get(topic.topic_id, []))

    def settle(self, topic: TopicState) -> pa.RecordBatch:
        """Combine a topic's list into one table, keep and return it. Raises CorruptMetadataError."""
        table = self.of(topic).table()
        self._parts[topic.topic_id] = [table]
        self._events.pop(topic.topic_id, None)
        return table

    def forget_but(self, live: set[str]) -> None:
        for topic_id in (self._parts.keys() | self._events.keys()) - live:
            self._parts.pop(topic_id, None)
            self._events.pop(topic_id, None)


class _Replay:
    """Replays all commits in order. Not thread-safe; for one check."""

    def __init__(self, store: Store, checkpoints: Checkpoints, cluster_id: str, boundary: int) -> None:
        self._store = store
        self._checkpoints = checkpoints
        self._boundary = boundary
        self._empty = State(cluster_id=cluster_id)
        self._state: State | None = self._empty
        self._lists = _Lists()
        self._best = (self._empty, self._lists)
        self._findings: list[Finding] = []
        self._open: list[Finding] = []  # breaks that no later checkpoint covers yet
        self._compared: dict[str, TopicList] = {}
        self._previous: tuple[int, str] = (-1, GENESIS_DIGEST)  # the newest commit read, and its digest
        self._result = FoundMetadata(state=self._empty)

    def run(self, versions: list[int], progress: Progress) -> None:
        at_checkpoints = {kept.version for kept in self._checkpoints.kept}
        present = set(versions)
        before = -1
        stored = _read_ahead(self._store, versions)
        for done, version in enumerate(sorted(present | at_checkpoints)):
            self._skip(before + 1, version if version in present else version + 1, version in at_checkpoints)
            if version in present:
                self._read(version, next(stored), version + 1 in present)
                if self._result.newer:
                    break
            for kept in self._checkpoints.at(version):
                self._check_checkpoint(kept)
            before = version
            progress("commits", done + 1, len(present | at_checkpoints))
        self._result.first, self._result.last = (versions[0], before) if versions else (-1, before)
        self._add_commits_beyond(versions)
        self._result.commits = len(versions)

    def result(self) -> FoundMetadata:
        if self._state is not None:
            self._best = (self._state, self._lists)
        result = self._result
        result.state, lists = self._best
        result.lists = {name: lists.of(topic) for name, topic in sorted(result.state.topics.items())}
        result.findings = [*self._findings, *self._open]
        # Old ones may be removed during the check.
        result.checkpoints = [kept for kept in self._checkpoints.kept if kept.is_sound or exists(self._store, kept.key)]
        result.findings += [kept.finding(result.is_whole) for kept in result.checkpoints if not kept.is_sound]
        result.newer = any(finding.kind == kinds.NEWER_VERSION for finding in result.findings)
        replaced = max((kept.version for kept in result.checkpoints if kept.kind == kinds.NEWER_VERSION), default=-1)
        result.findings = [
            finding
            for finding in result.findings  # removed commits may be in a checkpoint that only a later version reads
            if finding.kind != kinds.LOST_HISTORY or finding.version > replaced
        ]
        return result

    def _add_commits_beyond(self, versions: Sequence[int]) -> None:
        """Add a finding for commits beyond the end of the log, unless a single damaged commit is the reason."""
        if self._state is not None or self._result.newer:
            return
        end = self._best[0].version
        beyond = [version for version in versions if version > end]
        hole = range(end + 1, beyond[0]) if beyond else range(0)
        does_not_follow = any(
            finding.kind == kinds.BROKEN_CHAIN and finding.version in (end, end + 1) for finding in self._open
        )
        if beyond and 0 <= end >= self._boundary and (hole or does_not_follow):
            self._open = [
                replace(finding, action=f"{_FROM_MIRROR}. {_NONE_IF_RESTORED}")
                if finding.kind == kinds.MISSING_COMMIT and finding.version in hole
                else finding
                for finding in self._open
            ]
            self._open.append(commits_beyond(self._store, end, beyond, hole))

    # -- commits

    def _skip(self, first: int, end: int, at_checkpoint: bool) -> None:
        """Handle missing commits ``[first, end)``."""
        if first >= end:
            return
        self._break()
        lost = range(max(first, self._boundary + 1), end)
        if lost:
            names = f"commit {lost[0]} is" if len(lost) == 1 else f"commits {lost[0]} to {lost[-1]} are"
            self._open.append(_of_commit(kinds.MISSING_COMMIT, lost[0], f"{names} missing"))
        elif not at_checkpoint:
            message = f"commits up to {end - 1} were removed, and no sound checkpoint covers them"
            self._open.append(_of_commit(kinds.LOST_HISTORY, end - 1, message))

    def _break(self) -> None:
        """Drop the current state, to which the next commits cannot be applied; remember the newest one."""
        if self._state is not None and self._state.version >= self._best[0].version:
            self._best = (self._state, self._lists)
        self._state, self._lists = None, _Lists()
        self._compared = {}

    def _read(self, version: int, stored: _Stored, has_next: bool) -> None:
        try:
            if isinstance(stored, SparklogError):
                raise stored
            commit, digest, _ = commit_files.complete_commit(self._store, stored, version)
        except UnsupportedVersionError as error:
            self._refuse(version, stored, error)
            return
        except (CorruptMetadataError, ObjectNotFoundError) as error:
            self._break()
            if isinstance(error, ObjectNotFoundError):  # listed, and removed since?
                self._boundary = max(self._boundary, read_boundary(self._store))
            if version > self._boundary:
                self._open.append(
                    _of_commit(kinds.DAMAGED_COMMIT, version, error.message, self._action_for(version, has_next))
                )
            return
        before, self._previous = self._previous, (version, digest)
        if before[0] == version - 1 and before[1] != commit.previous:
            self._blame(version, commit, digest, before[1], has_next)
            self._break()
        elif self._state is not None:
            self._apply(commit, digest)

    def _action_for(self, version: int, has_next: bool) -> str:
        """Return what to do about a damaged commit: if it is the newest one, the log can also end before it."""
        before = version - 1
        if has_next or before < max(self._boundary, 0) or self._best[0].version != before:
            return _FROM_MIRROR
        return (
            f"{_FROM_MIRROR}. If there is none: it is the newest commit, so stop all writers and run `sparklog fsck "
            f"--repair --end-at {before}`, which moves it away; the log then continues from version {before}, without "
            "the changes of this commit"
        )

    def _refuse(self, version: int, stored: _Stored, error: UnsupportedVersionError) -> None:
        """Handle an intact commit with unknown content: it is of a later version, unless the next commit names another
        digest."""
        assert isinstance(stored, bytes)
        follower = self._previous_of(version + 1)
        self._break()
        if follower and follower != stored_digest(stored):
            message = f"commit {version} is not the one that commit {version + 1} names: it was edited ({error})"
            self._open.append(_of_commit(kinds.DAMAGED_COMMIT, version, message))
            return
        self._open.append(newer_version(str(error), commit_key(version), version))
        self._result.newer = True

    def _apply(self, commit: Commit, digest: str) -> None:
        assert self._state is not None
        try:
            self._state = fold(self._state, commit, digest).state
        except CorruptionError as error:
            self._break()
            self._open.append(_of_commit(kinds.BROKEN_CHAIN, commit.version, error.message))
            return
        self._lists.take(commit)
        if commit.version % limits.CHECKPOINT_INTERVAL_COMMITS == 0:
            self._lists.forget_but({topic.topic_id for topic in self._state.topics.values()})

    def _blame(self, version: int, commit: Commit, digest: str, previous: str, has_next: bool) -> None:
        """Find out which of two commits that do not fit was edited, by the digests that the next commit and checkpoints
        name."""
        stated = {kept.state.digest for kept in self._checkpoints.at(version - 1) if kept.state is not None}
        message = (
            f"commit {version} follows a commit with digest {commit.previous}, but that of {version - 1} is {previous}"
        )
        if previous in stated or (has_next and self._previous_of(version + 1) not in ("", digest)):
            wrong, subject = version, f"{version} was"
        elif commit.previous in stated or has_next:
            wrong, subject = version - 1, f"{version - 1} was"
        else:
            wrong, subject = version, "one of them was"
        if all(finding.version != wrong for finding in self._open):
            self._open.append(_of_commit(kinds.BROKEN_CHAIN, wrong, f"{message}: {subject} edited or replaced"))

    def _previous_of(self, version: int) -> str:
        """Return the digest that a commit names as its predecessor's; empty if it cannot be read."""
        commit = read_commit(self._store, version)
        return commit[0].previous if commit else ""

    # -- checkpoints

    def _check_checkpoint(self, kept: KeptCheckpoint) -> None:
        """Compare a checkpoint of the current version with the state, or continue from it after a break."""
        if not kept.is_sound or kept.state is None:
            return
        if self._state is not None and self._is_right(kept):
            version = kept.version
            message = f"commit {version} is not the one that the commit after it and {kept.key} name: it was edited"
            self._break()
            self._open.append(_of_commit(kinds.BROKEN_CHAIN, version, message))
        if self._state is None:
            self._continue_from(kept)
        else:
            self._compare(kept)

    def _is_right(self, kept: KeptCheckpoint) -> bool:
        """Whether the next commit names the checkpoint's digest, and not that of the commit that was read."""
        assert kept.state is not None
        wrong = self._previous != (kept.version, kept.state.digest)
        return wrong and self._previous_of(kept.version + 1) == kept.state.digest

    def _compare(self, kept: KeptCheckpoint) -> None:
        assert kept.state is not None
        assert self._state is not None
        stored, folded = kept.state, self._state
        if kept.manifest is not None and kept.manifest.format == 1:
            stored, folded = _without_producers(stored), _without_producers(folded)
        if stored != folded:
            differs = _difference(stored, folded)
            kept.blame(kinds.CHECKPOINT_DIFFERS, f"{kept.key} is not the state that the commits lead to: {differs}")
            return
        for topic in self._state.topics.values():
            if not self._same_list(kept, topic):
                return

    def _same_list(self, kept: KeptCheckpoint, topic: TopicState) -> bool:
        assert kept.lists is not None
        keys = kept.lists.of(topic.topic_id)
        if self._compared.get(topic.topic_id) == keys and not self._lists.changed(topic.topic_id):
            return True
        stored = self._checkpoints.lists(kept, topic)
        if stored is None:
            return False
        try:
            folded = self._lists.settle(topic)
        except CorruptionError:
            return True  # ``list_checks`` reports it
        if not stored.equals(folded):
            fault = f"{kept.key} lists other segments of topic {topic.name!r} than the commits lead to"
            kept.blame(kinds.CHECKPOINT_DIFFERS, fault)
            return False
        self._compared[topic.topic_id] = keys
        return True

    def _continue_from(self, kept: KeptCheckpoint) -> None:
        """Take the state of a checkpoint, since the commits before it cannot be applied."""
        assert kept.state is not None
        if self._previous[0] == kept.version and self._previous[1] != kept.state.digest:
            if not self._is_right(kept):
                fault = f"{kept.key} names {kept.state.digest} as the digest of its commit, which has another"
                kept.blame(kinds.CHECKPOINT_DIFFERS, fault)
                return
            self._previous = (-1, "")
        lists = _Lists()
        for topic in kept.state.topics.values():
            segments = self._checkpoints.lists(kept, topic)
            if segments is None:
                return
            lists.start(topic.topic_id, segments)
        self._state, self._lists = kept.state, lists
        if self._previous[0] < kept.version:
            self._previous = (kept.version, kept.state.digest)
        self._findings += [_covered_by(kept, finding) for finding in self._open if finding.kind != kinds.LOST_HISTORY]
        self._open = []
        self._result.continued = kept.version


def _of_commit(kind: str, version: int, message: str, action: str = _FROM_MIRROR) -> Finding:
    return Finding(
        kind=kind,
        severity=ERROR,
        message=f"{message}; nothing after it can be read",
        action=action,
        path=commit_key(version),
        version=version,
    )


def _covered_by(kept: KeptCheckpoint, finding: Finding) -> Finding:
    """Return the finding for a break that a later checkpoint covers: history is lost, but not the state."""
    covered = finding.message.replace(
        "nothing after it can be read", f"the checkpoint of version {kept.version} covers it"
    )
    action = f"{_FROM_MIRROR}, or ignore this: the commit is needed only as a proof of what happened"
    return replace(finding, severity=WARNING, message=covered, action=action)


def _without_producers(state: State) -> State:
    """Return a state without producers, to compare with a checkpoint of level 1, which lacks those that its writer
    considered expired."""
    topics = {
        name: replace(topic, partitions=tuple(replace(partition, producers=Map()) for partition in topic.partitions))
        for name, topic in state.topics.items()
    }
    return with_indexes(replace(state, topics=Map(topics), producers=Map()))


def _difference(stored: State, folded: State) -> str:
    """Return the first field in which two states differ, as text."""
    for name in State.__struct_fields__:
        if getattr(stored, name) != getattr(folded, name):
            return f"its {name.replace('_', ' ')} differ" if name.endswith("s") else f"its {name} differs"
    return "nothing"
