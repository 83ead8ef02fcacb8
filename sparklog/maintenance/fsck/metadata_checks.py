"""Checks of the metadata: cluster.json, the boundary, every commit that is there, and every checkpoint.

Each commit is read and held against its digest, against the digest that the next one names, and applied to the state:
from the empty state where commit 0 is still there, else from the oldest sound checkpoint that the commits follow on.
On the way every checkpoint is compared with the state and the segment lists that the commits lead to. Where a commit is
missing or damaged, the next sound checkpoint takes over, so what is found is what one break costs and no more.

Rules: reads only; works on clusters that cannot be opened. What is certain is told from what is not: a commit is blamed
for a broken chain only where its neighbours or a checkpoint agree with each other against it.
Not for: whether the lists of segments make sense (``list_checks``), nor the data files.
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
    read_boundary,
    read_cluster_file,
)
from sparklog.log.parallel import each
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.checkpoint_checks import Checkpoints, KeptCheckpoint, newer_version
from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Finding
from sparklog.maintenance.fsck.log_end import commits_beyond
from sparklog.protocol.commit_bytes import decode_commit, stored_digest
from sparklog.protocol.commits import GENESIS_DIGEST, Commit, commit_key
from sparklog.protocol.fold import apply
from sparklog.protocol.indexes import with_indexes
from sparklog.protocol.segments import SegmentEvent, segment_events
from sparklog.protocol.state import State, TopicState
from sparklog.store.base import Store
from sparklog.store.local import LocalStore, list_others

Progress = Callable[[str, int, int], None]
"""(what is being done, how much of it is done, of how much): told now and then."""

_FETCHED_TOGETHER = 32
"""commits that are held at a time, of ``limits.MAX_COMMIT_BYTES`` at most and some kilobytes as a rule."""

_FROM_MIRROR = "restore the commit from a mirror of the commit log or a backup of the root"


def no_progress(what: str, done: int, total: int) -> None:
    """For who does not look."""


@dataclass
class Metadata:
    """What the metadata of a cluster amount to.

    ``state`` is the newest that could be worked out, of version ``last`` unless something is broken for good;
    ``lists`` are its live segments by topic. ``newer``: a later version of sparklog has written some of it, so that
    nothing can be said of the rest.
    """

    state: State
    lists: dict[str, TopicSegments] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    boundary: int = -1
    first: int = -1
    last: int = -1
    commits: int = 0
    checkpoints: list[KeptCheckpoint] = field(default_factory=list)
    newer: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the newest commit's state is known."""
        return self.state.version >= self.last


def check_metadata(store: Store, progress: Progress = no_progress) -> Metadata:
    """Check what is below ``meta/``, and cluster.json. Raises ClusterNotFoundError, UnsupportedVersionError or
    StorageError where nothing can be checked."""
    checkpoints = Checkpoints(store)
    versions, unknown = _listed(store)
    cluster_id, found = _cluster_id(store, checkpoints, bool(versions))
    boundary, more = _boundary(store, versions)
    replay = _Replay(store, checkpoints, cluster_id, boundary)
    replay.run(versions, progress)
    result = replay.result()
    result.findings = [*found, *more, *unknown, *result.findings]
    hint = checkpoints.hint_fault()
    if hint is not None:
        result.findings.append(hint)
    result.findings += [_left_behind(key) for key in checkpoints.unused()]
    result.findings += [_stray(key) for key in checkpoints.stray]
    result.findings += _in_the_way(store, boundary)
    return result


def catch_up(store: Store, known: Metadata) -> Metadata:
    """What the metadata are once the commits are applied that came since; nothing is checked anew.

    The same where the next commit is not there or does not apply.
    """
    state, lists = known.state, _Lists()
    while True:
        try:
            commit, digest, _ = commit_files.read_commit(store, state.version + 1)
            state = apply(state, commit, digest)
        except (CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError):
            break
        lists.take(commit)
    for name, listed in known.lists.items():
        if name in state.topics and state.topics[name].topic_id == listed.topic.topic_id:
            with contextlib.suppress(CorruptMetadataError):  # it was found to be wrong, and stays so
                lists.start(listed.topic.topic_id, listed.table())
    found = {name: lists.of(topic) for name, topic in sorted(state.topics.items())}
    return Metadata(state=state, lists=found, boundary=known.boundary, first=known.first, last=state.version)


def _listed(store: Store) -> tuple[list[int], list[Finding]]:
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
        message="a stray file: no part of sparklog writes objects of this name, and none reads it",
        action="delete it, once you know that nobody needs it: editors, file managers, NFS and tools that copy or "
        "synchronise folders leave such files",
        path=key,
    )


def _in_the_way(store: Store, boundary: int) -> Iterator[Finding]:
    """What is not a file, and has the name of one that has to be stored."""
    for folder in (COMMITS, META, CHECKPOINTS):
        for key, kind in list_others(store, folder):
            version = commit_version(key)
            if key in (BOUNDARY_KEY, LATEST_KEY) or (version is not None and version > boundary):
                stops = "every writer stops" if version is not None else "every clean-up of the metadata fails"
                yield Finding(
                    kind=kinds.IN_THE_WAY,
                    severity=WARNING if version is None else ERROR,
                    message=f"{kind} lies where sparklog has to store a file: {stops} there",
                    action=f"move {store.root}/{key} away; nothing of sparklog's is in it",
                    path=key,
                    version=-1 if version is None else version,
                )


def _left_behind(key: str) -> Finding:
    return Finding(
        kind=kinds.ORPHAN_FILE,
        severity=INFO,
        message="a file of a checkpoint that is not there: its writer died, or the checkpoint was removed",
        action="`sparklog vacuum` removes it",
        path=key,
    )


def _cluster_id(store: Store, checkpoints: Checkpoints, has_commits: bool) -> tuple[str, list[Finding]]:
    """The cluster's id, and what is wrong with cluster.json. Checkpoints repeat the id: those of this history."""
    known = next(
        (kept.state.cluster_id for kept in reversed(checkpoints.kept) if kept.state and _is_ours(store, kept)), ""
    )
    try:
        found = read_cluster_file(store).cluster_id
    except (CorruptMetadataError, ClusterNotFoundError) as error:
        if not has_commits and not checkpoints.kept:
            raise
        _refuse_mirror(store)
        return known, [_of_cluster_file(str(error), known)]
    if known and known != found:
        return known, [_of_cluster_file(f"{CLUSTER_KEY} is of cluster {found}, the checkpoints are of {known}", known)]
    return found, []


def _refuse_mirror(store: Store) -> None:
    """A mirror has commits and no cluster.json, as it should be."""
    with contextlib.suppress(ObjectNotFoundError):
        store.info(MIRROR_KEY)
        raise ClusterNotFoundError(
            f"{store.root} is a mirror of a commit log, not a cluster; check the cluster itself, or promote the mirror",
            path=store.root,
        )


def _is_ours(store: Store, kept: KeptCheckpoint) -> bool:
    """Whether a commit of this log, the checkpoint's own or the one after it, has or names the digest it is of."""
    if not kept.is_sound or kept.state is None:
        return False
    own, after = read_commit(store, kept.version), read_commit(store, kept.version + 1)
    return kept.state.digest in (own[1] if own else None, after[0].previous if after else None)


def read_commit(store: Store, version: int) -> tuple[Commit, str] | None:
    """A commit, without what lies beside it, and its digest; None where there is none, or its bytes are not those of
    one."""
    if version < 0:
        return None
    try:
        return decode_commit(store.get(commit_key(version), limits.MAX_COMMIT_BYTES), version)
    except (CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError):
        return None


def _of_cluster_file(message: str, known: str) -> Finding:
    return Finding(
        kind=kinds.CLUSTER_FILE,
        severity=WARNING if known else ERROR,
        message=message,
        action="run `sparklog fsck --repair`, which writes it again: the checkpoints hold the id"
        if known
        else "restore it from a backup of the root: the cluster's id is nowhere else",
        repairable=bool(known),
        path=CLUSTER_KEY,
    )


def _boundary(store: Store, versions: list[int]) -> tuple[int, list[Finding]]:
    """The boundary; where it cannot be read, all before the first commit that is there counts as removed."""
    try:
        return read_boundary(store), []
    except CorruptMetadataError as error:
        finding = Finding(
            kind=kinds.DAMAGED_BOUNDARY,
            severity=WARNING,
            message=error.message,
            action="run `sparklog fsck --repair`, which writes it again if a sound checkpoint stands for all commits "
            "that are not there",
            repairable=True,
            path=BOUNDARY_KEY,
        )
        return (versions[0] - 1 if versions else -1), [finding]


_Stored = bytes | CorruptMetadataError | ObjectNotFoundError
"""A commit's bytes, or why there are none."""


def _read_ahead(store: Store, versions: Sequence[int]) -> Iterator[_Stored]:
    """The commits of these versions, in order; from elsewhere than a local disk many are fetched at a time."""
    fetch = partial(_fetch, store)
    if isinstance(store, LocalStore):
        yield from map(fetch, versions)
        return
    for first in range(0, len(versions), _FETCHED_TOGETHER):
        yield from each(fetch, versions[first : first + _FETCHED_TOGETHER])


def _fetch(store: Store, version: int) -> _Stored:
    try:
        return store.get(commit_key(version), limits.MAX_COMMIT_BYTES)
    except (CorruptMetadataError, ObjectNotFoundError) as error:
        return error


class _Lists:
    """The lists of segments that the commits so far lead to, by topic id. Not thread-safe."""

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
        """One table of a topic's list, kept in place of what it was made from. Raises CorruptMetadataError."""
        table = self.of(topic).table()
        self._parts[topic.topic_id] = [table]
        self._events.pop(topic.topic_id, None)
        return table

    def forget_but(self, live: set[str]) -> None:
        for gone in (self._parts.keys() | self._events.keys()) - live:
            self._parts.pop(gone, None)
            self._events.pop(gone, None)


class _Replay:
    """Goes through all commits in order. Not thread-safe; for one check."""

    def __init__(self, store: Store, checkpoints: Checkpoints, cluster_id: str, boundary: int) -> None:
        self._store = store
        self._checkpoints = checkpoints
        self._boundary = boundary
        self._empty = State(cluster_id=cluster_id)
        self._state: State | None = self._empty
        self._lists = _Lists()
        self._best = (self._empty, self._lists)
        self._findings: list[Finding] = []
        self._open: list[Finding] = []  # breaks that no checkpoint has stood in for yet
        self._compared: dict[str, TopicList] = {}
        self._previous: tuple[int, str] = (-1, GENESIS_DIGEST)  # the newest commit read, and its digest
        self._result = Metadata(state=self._empty, boundary=boundary)

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
                self._meet(kept)
            before = version
            progress("commits", done + 1, len(present | at_checkpoints))
        self._result.first, self._result.last = (versions[0], before) if versions else (-1, before)
        self._name_what_lies_beyond(versions)
        self._result.commits = len(versions)

    def result(self) -> Metadata:
        if self._state is not None:
            self._best = (self._state, self._lists)
        state, lists = self._best
        found = self._result
        found.state = state
        found.lists = {name: lists.of(topic) for name, topic in sorted(state.topics.items())}
        whole = state.version >= found.last
        found.findings = [*self._findings, *self._open]
        found.checkpoints = [kept for kept in self._checkpoints.kept if kept.is_sound or self._is_there(kept)]
        found.findings += [kept.finding(whole) for kept in found.checkpoints if not kept.is_sound]
        found.newer = any(finding.kind == kinds.NEWER_VERSION for finding in found.findings)
        return found

    def _name_what_lies_beyond(self, versions: Sequence[int]) -> None:
        """Commits that do not join on, where the break is not one commit's damage."""
        if self._state is not None or self._result.newer:
            return
        end = self._best[0].version
        beyond = [version for version in versions if version > end]
        hole = range(end + 1, beyond[0]) if beyond else range(0)
        does_not_follow = any(one.kind == kinds.BROKEN_CHAIN and one.version in (end, end + 1) for one in self._open)
        if beyond and 0 <= end >= self._boundary and (hole or does_not_follow):
            self._open.append(commits_beyond(self._store, end, beyond, hole))

    def _is_there(self, kept: KeptCheckpoint) -> bool:
        """Old checkpoints are removed while others look at them."""
        try:
            self._store.info(kept.key)
        except ObjectNotFoundError:
            return False
        return True

    # -- commits

    def _skip(self, first: int, end: int, at_checkpoint: bool) -> None:
        """Numbers ``[first, end)`` are not there."""
        if first >= end:
            return
        self._break()
        lost = range(max(first, self._boundary + 1), end)
        if lost:
            names = f"commit {lost[0]} is" if len(lost) == 1 else f"commits {lost[0]} to {lost[-1]} are"
            self._open.append(_of_commit(kinds.MISSING_COMMIT, lost[0], f"{names} not there"))
        elif not at_checkpoint:
            message = f"commits up to {end - 1} were removed, and no sound checkpoint stands for them"
            self._open.append(_of_commit(kinds.LOST_HISTORY, end - 1, message))

    def _break(self) -> None:
        """What follows cannot be applied to what is known."""
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
                    _of_commit(kinds.DAMAGED_COMMIT, version, error.message, self._cure(version, has_next))
                )
            return
        before, self._previous = self._previous, (version, digest)
        if before[0] == version - 1 and before[1] != commit.previous:
            self._blame(version, commit, digest, before[1], has_next)
            self._break()
        elif self._state is not None:
            self._apply(commit, digest)

    def _cure(self, version: int, has_next: bool) -> str:
        """What to do about a damaged commit: where it is the newest one, the log can also end before it."""
        before = version - 1
        if has_next or before < max(self._boundary, 0) or self._best[0].version != before:
            return _FROM_MIRROR
        return (
            f"{_FROM_MIRROR}. Where there is none: it is the newest commit, so stop all writers and run `sparklog fsck "
            f"--repair --end-at {before}`, which moves it away; the log goes on from version {before} then, without "
            "what this commit held"
        )

    def _refuse(self, version: int, stored: _Stored, error: UnsupportedVersionError) -> None:
        """An intact commit with something unknown in it: of a later version, unless the next one knows it otherwise."""
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
            self._state = apply(self._state, commit, digest)
        except CorruptionError as error:
            self._break()
            self._open.append(_of_commit(kinds.BROKEN_CHAIN, commit.version, error.message))
            return
        self._lists.take(commit)
        if commit.version % limits.CHECKPOINT_INTERVAL_COMMITS == 0:
            self._lists.forget_but({topic.topic_id for topic in self._state.topics.values()})

    def _blame(self, version: int, commit: Commit, digest: str, previous: str, has_next: bool) -> None:
        """The bytes of one of two commits are not those of the log: which one do others speak for?"""
        stated = {kept.state.digest for kept in self._checkpoints.at(version - 1) if kept.state is not None}
        message = (
            f"commit {version} follows a commit of digest {commit.previous}, and that of {version - 1} is {previous}"
        )
        if previous in stated or (has_next and self._previous_of(version + 1) not in ("", digest)):
            guilty, who = version, f"{version} was"
        elif commit.previous in stated or has_next:
            guilty, who = version - 1, f"{version - 1} was"
        else:
            guilty, who = version, "one of them was"
        if all(finding.version != guilty for finding in self._open):
            self._open.append(_of_commit(kinds.BROKEN_CHAIN, guilty, f"{message}: {who} edited or replaced"))

    def _previous_of(self, version: int) -> str:
        found = read_commit(self._store, version)
        return found[0].previous if found else ""

    # -- checkpoints

    def _meet(self, kept: KeptCheckpoint) -> None:
        """A checkpoint of the version that has been reached: compare it, or go on from it."""
        if not kept.is_sound or kept.state is None:
            return
        if self._state is not None and self._is_right(kept):
            guilty = kept.version
            message = f"commit {guilty} is not the one that the commit after it and {kept.key} name: it was edited"
            self._break()
            self._open.append(_of_commit(kinds.BROKEN_CHAIN, guilty, message))
        if self._state is None:
            self._go_on_from(kept)
        else:
            self._compare(kept)

    def _is_right(self, kept: KeptCheckpoint) -> bool:
        """Whether the next commit follows the checkpoint's digest rather than that of the commit that was read."""
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
        listed = self._checkpoints.lists(kept, topic)
        if listed is None:
            return False
        try:
            known = self._lists.settle(topic)
        except CorruptionError:
            return True  # ``list_checks`` says what is wrong with it
        if not listed.equals(known):
            what = f"{kept.key} lists other segments of topic {topic.name!r} than the commits lead to"
            kept.blame(kinds.CHECKPOINT_DIFFERS, what)
            return False
        self._compared[topic.topic_id] = keys
        return True

    def _go_on_from(self, kept: KeptCheckpoint) -> None:
        """Take the state of a checkpoint where the commits before it cannot be applied."""
        assert kept.state is not None
        if self._previous[0] == kept.version and self._previous[1] != kept.state.digest:
            if not self._is_right(kept):
                what = f"{kept.key} names {kept.state.digest} as the digest of its commit, which has another"
                kept.blame(kinds.CHECKPOINT_DIFFERS, what)
                return
            self._previous = (-1, "")
        lists = _Lists()
        for topic in kept.state.topics.values():
            listed = self._checkpoints.lists(kept, topic)
            if listed is None:
                return
            lists.start(topic.topic_id, listed)
        self._state, self._lists = kept.state, lists
        if self._previous[0] < kept.version:
            self._previous = (kept.version, kept.state.digest)
        self._findings += [_stood_in_for(finding, kept) for finding in self._open if finding.kind != kinds.LOST_HISTORY]
        self._open = []


def _of_commit(kind: str, version: int, message: str, action: str = _FROM_MIRROR) -> Finding:
    return Finding(
        kind=kind,
        severity=ERROR,
        message=f"{message}; nothing after it can be read",
        action=action,
        path=commit_key(version),
        version=version,
    )


def _stood_in_for(finding: Finding, kept: KeptCheckpoint) -> Finding:
    """A break that a later checkpoint bridges: history is lost, the state is not."""
    return Finding(
        kind=finding.kind,
        severity=WARNING,
        message=finding.message.replace(
            "nothing after it can be read", f"the checkpoint of version {kept.version} stands for it"
        ),
        action=f"{_FROM_MIRROR}, or leave it: it is needed for nothing but the proof of what happened",
        path=finding.path,
        version=finding.version,
    )


def _without_producers(state: State) -> State:
    """What has to agree with a checkpoint of level 1, which lacks the producers that its writers took for expired."""
    topics = {
        name: replace(topic, partitions=tuple(replace(partition, producers=Map()) for partition in topic.partitions))
        for name, topic in state.topics.items()
    }
    return with_indexes(replace(state, topics=Map(topics), producers=Map()))


def _difference(stored: State, folded: State) -> str:
    """The first field in which two states differ, for people."""
    for name in State.__struct_fields__:
        if getattr(stored, name) != getattr(folded, name):
            return f"its {name.replace('_', ' ')} differ" if name.endswith("s") else f"its {name} differs"
    return "nothing"
