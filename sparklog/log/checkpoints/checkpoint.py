"""Checkpoints: the stored state at a version, so that the cost of opening a cluster does not grow with its age.

    meta/checkpoints/latest.json                          {"manifest": key}: a hint, overwritten; may be stale or absent
    meta/checkpoints/<20 digits>-<write id>.json          the manifest of that version; names the files below
    meta/checkpoints/<20 digits>-<write id>.heads         a part of the heads: rows of topics, groups, … (``heads``)
    meta/checkpoints/<20 digits>-<write id>.lists         a part of the lists of segments (``lists``)
    meta/checkpoints/<20 digits>-<write id>-<n>.segments  segments of one topic: an Arrow file of ``segments.SCHEMA``

Incremental: heads and lists are stored in parts, of which a checkpoint adds one with the changed rows (see ``tiers``);
a manifest repeats the parts of the previous one. So the cost of a checkpoint is that of the changes, not of the state.
Segment files of a topic are merged when the newer ones outgrow the last, so a topic of n segments has about log n files
and each segment is rewritten about log n times in its life. The list of a topic is rewritten completely if segments
were replaced or deleted since.

Rules: a checkpoint is derived from commits and never the source of truth; any process may write one at any time, based
on any other one whose commits it has read; every file has its length and CRC32C in the manifest or in a part of the
lists, and is read back before the manifest is stored; damage is an error that names the file, since the commits up to
it may be removed. A file may also be missing because newer checkpoints have replaced this one (see ``cleanup``): the
error has ``missing`` set then, and a reader continues with another checkpoint.

Format 1 (heads in one Arrow file, segment files in the manifest) is read and built on, but no longer written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec
import pyarrow as pa

from sparklog import limits
from sparklog.errors import (
    CorruptMetadataError,
    ObjectNotFoundError,
    SparklogError,
)
from sparklog.format.checksum import crc32c
from sparklog.ids import Ids
from sparklog.log.checkpoints import heads, lists, read_v1
from sparklog.log.checkpoints.files import (
    read_file,
    read_rows,
    read_segments_file,
    translate_damage,
    write_file,
    write_segments_file,
)
from sparklog.log.checkpoints.lists import NO_LISTS, ListCache, Lists, TopicList
from sparklog.log.checkpoints.tiers import FileReference, PartReference, RowEncoding, Rows, TierPlan, merge_rows, plan
from sparklog.log.layout import CHECKPOINTS, exists, manifest_version, read_certain_boundary
from sparklog.log.parallel import call_both, map_parallel
from sparklog.log.segments import TopicSegments, merge_parts, to_part
from sparklog.protocol import levels
from sparklog.protocol.commits import commit_key
from sparklog.protocol.features import check_written
from sparklog.protocol.fold import Entry
from sparklog.protocol.segments import Segment, SegmentEvent
from sparklog.protocol.state import State, TopicState
from sparklog.store.base import BytesLike, Store

LATEST_KEY = CHECKPOINTS + "latest.json"

MAX_HEAD_PARTS = 40
"""Maximum of parts of the heads, all of which are read, in parallel, to open a cluster."""

MAX_LIST_PARTS = 12
"""Maximum of parts of the lists."""

_STATES_NEEDS = 3
"""The first level whose manifests state the version that they need."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint: the state at ``version``, whose newest commit has this digest.

    ``heads`` is the newest part of the heads, ``older`` are the others, oldest first; ``lists`` are the parts of the
    lists, oldest first. ``commit_bytes`` is the size of all commits up to there, as far as it is known.
    ``segments`` are the segment files by topic id in format 1, which has one part of the heads and none of the lists.
    ``needs`` is the oldest version of sparklog that reads it, empty before level 3: a cluster is opened from its newest
    checkpoint, so this is where an older program learns of a later level.
    """

    format: int
    version: int
    heads: PartReference
    segments: dict[str, list[FileReference]]
    commit_bytes: int = 0
    digest: str = ""
    older: list[PartReference] = []
    lists: list[PartReference] = []
    needs: str = ""

    @property
    def head_parts(self) -> list[PartReference]:
        """The parts of the heads, oldest first."""
        return [*self.older, self.heads]


class _Latest(msgspec.Struct, frozen=True):
    manifest: str


# Created at import, in one thread: msgspec 0.22 crashes with SIGSEGV if two threads are the first to decode a nested
# type at the same time.
_LATEST_DECODER = msgspec.json.Decoder(_Latest)
_MANIFEST_DECODER = msgspec.json.Decoder(Manifest)


# -- reading


def read_newest(store: Store, known: Manifest | None = None) -> Manifest | None:
    """Return the newest checkpoint's manifest, None if there is none. ``known``, one that was read before, is not read
    again."""
    hinted = _hinted_key(store)
    if hinted is not None and known is not None and hinted == known.heads.key.removesuffix(".heads") + ".json":
        return known
    if hinted is not None:
        with suppress(ObjectNotFoundError):  # the hint may be stale, and its checkpoint deleted: list instead
            return read_manifest(store, hinted)
    return read_newest_listed(store)


def read_newest_listed(store: Store) -> Manifest | None:
    """Return the newest checkpoint's manifest by listing: correct even if the hint is stale, but slower."""
    missing = ""
    while keys := _list_manifests(store):
        try:
            return read_manifest(store, keys[0])
        except ObjectNotFoundError:  # this process stalled since the listing, and newer ones have replaced it
            if keys[0] == missing:
                raise
            missing = keys[0]
    return None


def _list_manifests(store: Store) -> list[str]:
    """List the keys of all manifests, newest first."""
    return sorted(
        (info.key for info in store.list(CHECKPOINTS) if manifest_version(info.key) is not None), reverse=True
    )


def read_newest_state(
    store: Store, listed: bool = False, without: Collection[str] = ()
) -> tuple[Manifest | None, State | None]:
    """Return the newest checkpoint whose heads exist, and its state; None if there is no checkpoint.

    Found by the hint, or by listing if that is stale or with ``listed``. ``without`` are the keys of heads of
    checkpoints known to be incomplete. Raises CorruptMetadataError.
    """
    failure: SparklogError | None = None
    for key in _candidates(store, listed):
        try:
            manifest = read_manifest(store, key)
            if manifest.heads.key not in without:
                return manifest, read_heads(store, manifest)
        except ObjectNotFoundError as error:
            failure = failure or error
        except CorruptMetadataError as error:
            if not error.missing:
                raise
            failure = failure or error
    if failure is not None and not isinstance(failure, ObjectNotFoundError) and not _has_all_commits(store):
        raise failure
    return None, None


def read_state_up_to(store: Store, version: int) -> State | None:
    """Return the state of the newest checkpoint at or below a version, None if none of them is complete.

    Raises CorruptMetadataError.
    """
    for key in _list_manifests(store):
        if (manifest_version(key) or 0) <= version:
            try:
                return read_heads(store, read_manifest(store, key))
            except ObjectNotFoundError:  # removed since it was listed
                continue
            except CorruptMetadataError as error:
                if not error.missing:
                    raise
    return None


def _has_all_commits(store: Store) -> bool:
    """Return whether no commit was ever removed, so that the state needs no checkpoint."""
    return read_certain_boundary(store) < 0 and exists(store, commit_key(0))


def _candidates(store: Store, listed: bool) -> Iterator[str]:
    """Yield manifests in the order to try: the hinted one, the listed ones, and if none works those listed by then.

    A process that stalled after listing them may find all of them deleted, and newer ones there.
    """
    tried: set[str] = set()
    hinted = None if listed else _hinted_key(store)
    candidates = [hinted] if hinted is not None else _list_manifests(store)
    while candidates:
        for key in candidates:
            tried.add(key)
            yield key
        candidates = [key for key in _list_manifests(store) if key not in tried]


def read_hint(store: Store) -> str:
    """Return the key that latest.json names. Raises ObjectNotFoundError, CorruptMetadataError, MsgspecError,
    RecursionError."""
    return _LATEST_DECODER.decode(store.get(LATEST_KEY, limits.MAX_CLUSTER_FILE_BYTES)).manifest


def _hinted_key(store: Store) -> str | None:
    try:
        key = read_hint(store)
    except (ObjectNotFoundError, CorruptMetadataError, msgspec.MsgspecError, RecursionError):
        return None  # only a hint: list instead
    return key if manifest_version(key) is not None else None


def read_manifest(store: Store, key: str) -> Manifest:
    """Read a checkpoint's manifest. Raises ObjectNotFoundError, CorruptMetadataError, UnsupportedVersionError."""
    data = store.get(key, limits.MAX_MANIFEST_BYTES)
    with translate_damage(store, key):
        levels.check_format(f"{store.root}/{key}", data)
        return decode_manifest(data)


def decode_manifest(data: bytes) -> Manifest:
    """Return a manifest that was read before. Raises MsgspecError."""
    return _MANIFEST_DECODER.decode(data)


def read_heads(store: Store, manifest: Manifest) -> State:
    """Read the state of a checkpoint. Raises CorruptMetadataError."""
    with translate_damage(store, manifest.heads.key):
        if manifest.format == 1:
            return read_v1.read_state(store, manifest.heads)
        parts = map_parallel(partial(read_file, store), manifest.head_parts, store.parallel_requests)
        return heads.assemble(_drain(parts))


def _drain(parts: list[pa.Buffer]) -> Iterator[BytesLike]:
    """Yield the parts one by one, releasing each before the next."""
    parts.reverse()
    while parts:
        yield memoryview(parts.pop())


def read_digest(store: Store, manifest: Manifest) -> str:
    """Return the digest of a checkpoint's newest commit. Raises CorruptMetadataError."""
    return manifest.digest or read_heads(store, manifest).digest


def read_lists(store: Store, manifest: Manifest, cache: ListCache | None = None) -> Lists:
    """Read the lists of segments of all topics. Raises CorruptMetadataError."""
    if manifest.format == 1:
        return NO_LISTS.changed({topic_id: TopicList(tuple(files)) for topic_id, files in manifest.segments.items()})
    return (cache or ListCache(store)).read(manifest.lists)


def list_files(store: Store, manifest: Manifest, cache: ListCache | None = None) -> list[FileReference]:
    """Return every file that a checkpoint names in its manifest or lists. Raises CorruptMetadataError."""
    return [*manifest.head_parts, *manifest.lists, *read_lists(store, manifest, cache).files()]


def is_whole(store: Store, manifest: Manifest, cache: ListCache | None = None) -> bool:
    """Return whether all files of a checkpoint exist, by listing."""
    sizes = {info.key: info.size for info in store.list(CHECKPOINTS)}
    try:
        named = list_files(store, manifest, cache)
    except CorruptMetadataError as error:
        if error.missing:
            return False
        raise
    return all(sizes.get(file.key) == file.size for file in named)


# -- writing


def write_checkpoint(
    store: Store,
    ids: Ids,
    state: State,
    base: Manifest | None,
    recent: Mapping[str, Sequence[SegmentEvent]],
    commit_bytes: int = 0,
    touched: Iterable[Entry] | None = None,
    cache: ListCache | None = None,
) -> Manifest:
    """Store the state and the changes of segments since ``base``, at the level of the state.

    ``recent`` are the changes of segments by the commits after ``base`` up to ``state.version``, by topic id;
    ``touched`` are at least the entries that these commits changed; None: all of the state is written. No argument is
    modified, and no lock is needed. Raises CorruptMetadataError, StorageError, FeatureLevelError for a state of a level
    that is only read.
    """
    check_written(state.level)
    cache = cache or ListCache(store)
    stem = f"{CHECKPOINTS}{state.version:020d}-{ids.write_id()}"
    before = read_lists(store, base, cache) if base is not None else NO_LISTS
    changes = _write_changed_lists(store, stem, state, before, recent)
    now = before.changed(changes)
    write_heads = partial(_write_heads, store, stem, state, base, touched)
    write_lists = partial(_write_lists, store, stem, base, before, changes, now)
    head_parts, (list_parts, added) = call_both(write_heads, write_lists, store.parallel_requests)
    manifest = Manifest(
        format=state.level,
        version=state.version,
        heads=head_parts[-1],
        segments={},
        commit_bytes=commit_bytes,
        digest=state.digest,
        older=head_parts[:-1],
        lists=list_parts,
        needs=levels.needs_of(state.level) if state.level >= _STATES_NEEDS else "",
    )
    store.put(manifest_key(manifest), msgspec.json.encode(manifest))
    store.put(LATEST_KEY, msgspec.json.encode(_Latest(manifest=manifest_key(manifest))))
    cache.put(list_parts, now, added)
    return manifest


def _write_heads(
    store: Store, stem: str, state: State, base: Manifest | None, touched: Iterable[Entry] | None
) -> list[PartReference]:
    """Write a part of the heads, and return all parts, oldest first."""
    old = base.head_parts if base is not None and base.format > 1 and touched is not None else []
    changed = heads.changed_rows(state, touched or ())
    planned = plan(old, _count(changed), MAX_HEAD_PARTS, partial(heads.count_rows, state))
    rows = _rows_of_part(store, heads.ENCODING, planned, changed, partial(heads.all_rows, state))
    return _write_part(store, f"{stem}.heads", planned, rows, heads.ENCODING.encode(rows))


def _write_lists(
    store: Store, stem: str, base: Manifest | None, before: Lists, changes: Mapping[str, TopicList], now: Lists
) -> tuple[list[PartReference], dict[str, Rows]]:
    """Write a part of the lists if they changed. Return all parts, oldest first, and the rows just written by key."""
    old = base.lists if base is not None and base.format > 1 else []
    changed = before.rows(changes)
    if not changed and (old or not now.count_rows()):
        return list(old), {}
    planned = plan(old, _count(changed), MAX_LIST_PARTS, now.count_rows)
    rows = _rows_of_part(store, lists.ENCODING, planned, changed, now.all_rows)
    data = lists.ENCODING.encode(rows)
    list_parts = _write_part(store, f"{stem}.lists", planned, rows, data)
    return list_parts, {list_parts[-1].key: lists.ENCODING.decode(data)}


def _rows_of_part(
    store: Store, encoding: RowEncoding, planned: TierPlan, changed: Rows, all_rows: Callable[[], Rows]
) -> Rows:
    """Return the rows of the new part: all, or the changed ones with those of the parts that are merged into it."""
    if planned.whole:
        return all_rows()
    if not planned.merged:
        return changed
    parts = map_parallel(partial(read_rows, store, encoding), planned.merged, store.parallel_requests)
    return merge_rows([*parts, encoding.decode(encoding.encode(changed))])


def _count(rows: Rows) -> int:
    return sum(len(listed) for listed in rows.values())


def _write_part(store: Store, key: str, planned: TierPlan, rows: Rows, data: bytes) -> list[PartReference]:
    part = PartReference(key=key, size=len(data), crc=crc32c(data), rows=_count(rows), level=planned.level)
    write_file(store, part, data)
    return [*planned.kept, part]


def _write_changed_lists(
    store: Store, stem: str, state: State, before: Lists, recent: Mapping[str, Sequence[SegmentEvent]]
) -> dict[str, TopicList]:
    """Return the changed lists, after writing their files; empty lists for deleted topics."""
    live = {topic.topic_id: topic for topic in state.topics.values()}
    changes = {topic_id: TopicList() for topic_id in before.topic_ids() if topic_id not in live}
    work: list[Callable[[], TopicList]] = []
    grown = sorted(live.keys() & recent.keys())
    for number, topic_id in enumerate(grown):
        topic_list, key = before.of(topic_id), f"{stem}-{number}.segments"
        events = recent[topic_id]
        added = [event for event in events if isinstance(event, Segment)]
        if len(added) < len(events):
            work.append(partial(_rewrite_list, store, key, live[topic_id], topic_list, events, state))
        elif lists.needs_file(topic_id, topic_list.waiting + len(added)):
            work.append(partial(_write_list_file, store, key, topic_list, added, state.level))
        else:
            work.append(partial(lists.add_tail, topic_list, state.version, added, state.level))
    new_lists = map_parallel(lambda function: function(), work, store.parallel_requests)
    return {**changes, **dict(zip(grown, new_lists, strict=True))}


def _rewrite_list(
    store: Store, key: str, topic: TopicState, before: TopicList, events: Sequence[SegmentEvent], state: State
) -> TopicList:
    """Rewrite the list of a topic in which segments were replaced or deleted."""
    listed = TopicSegments(topic, lists.read_list(store, before), events)
    table = listed.table()
    if lists.needs_file(topic.topic_id, table.num_rows):
        return TopicList((write_segments_file(store, key, table, state.level),))
    segments = [segment for number in range(len(topic.partitions)) for segment in listed.partition(number)]
    return lists.add_tail(TopicList(), state.version, segments, state.level) if segments else TopicList()


def _write_list_file(store: Store, key: str, before: TopicList, added: Sequence[Segment], level: int) -> TopicList:
    """Write the list of a topic with new segments to files, without tails; small last files are merged into the new."""
    kept = list(before.files)
    parts = [to_part([*lists.tail_segments(before), *added])]
    rows = parts[0].num_rows
    while kept and kept[-1].rows <= 2 * rows:
        last = kept.pop()
        parts.insert(0, read_segments_file(store, last))
        rows += last.rows
    part = merge_parts(parts) if len(parts) > 1 else parts[0]
    return TopicList((*kept, write_segments_file(store, key, part, level)))


def withdraw(store: Store, manifest: Manifest) -> None:
    """Delete the manifest of an invalid checkpoint; the next clean-up deletes its files."""
    store.delete(manifest_key(manifest))


def manifest_key(manifest: Manifest) -> str:
    """Return the key of a checkpoint's manifest."""
    return manifest.heads.key.removesuffix(".heads") + ".json"
