"""Checkpoints: the state at a version, so that opening a cluster does not cost its age.

    meta/checkpoints/latest.json                          {"manifest": key}: a hint, overwritten; may be stale or absent
    meta/checkpoints/<20 digits>-<write id>.json          the manifest of that version, names the files below
    meta/checkpoints/<20 digits>-<write id>.heads         a part of the heads: rows of topics, groups, … (``heads``)
    meta/checkpoints/<20 digits>-<write id>.lists         a part of the lists of segments (``lists``)
    meta/checkpoints/<20 digits>-<write id>-<n>.segments  segments of one topic: an Arrow file of ``segments.SCHEMA``

Incremental: heads and lists lie in parts, of which a checkpoint adds one with the rows that changed (see ``tiers``); a
manifest repeats the parts of the one before. So a checkpoint costs what changed since, not what there is. Segment files
of a topic are merged when the newer ones outgrow the last, so a topic of n segments has about log n files and each
segment is rewritten about log n times in its life. The list of a topic is written again whole where segments were
replaced or deleted since.

Rules: a checkpoint is derived from commits and never the source of truth; anyone may write one at any time, on the base
of any other one whose commits it has read; every file has its length and CRC32C in the manifest or in a part of the
lists, and is read back before the manifest is stored; damage is an error that names the file, since the commits it
stands for may be gone. A file may also be gone because newer checkpoints have replaced this one (see ``cleanup``): the
error has ``missing`` set then, and whoever reads continues with another checkpoint.

Format 1 (heads in one Arrow file, segment files in the manifest) is read, and built on; it is not written any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from sparklog.log.checkpoints import format_v1 as checkpoint_v1
from sparklog.log.checkpoints import heads, lists
from sparklog.log.checkpoints.files import (
    MEND,
    AnyReference,
    FileReference,
    read_file,
    read_segments_file,
    write_file,
    write_segments_file,
)
from sparklog.log.checkpoints.lists import NO_LISTS, ListCache, Lists, TopicList
from sparklog.log.checkpoints.tiers import PartReference, Plan, Rows, merged, plan
from sparklog.log.layout import CHECKPOINTS, manifest_version, read_certain_boundary
from sparklog.log.parallel import each
from sparklog.log.segments import TopicSegments, merge_parts, to_part
from sparklog.protocol import levels
from sparklog.protocol.commits import commit_key
from sparklog.protocol.fold import Entry
from sparklog.protocol.segments import Segment, SegmentEvent
from sparklog.protocol.state import State, TopicState
from sparklog.store.base import BytesLike, Store

FORMAT = levels.CURRENT
LATEST_KEY = CHECKPOINTS + "latest.json"

MAX_HEAD_PARTS = 40
"""parts of the heads, all of which are read to open a cluster, side by side."""

MAX_LIST_PARTS = 12
"""parts of the lists."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A checkpoint: the state at ``version``, whose newest commit has this digest.

    ``heads`` is the newest part of the heads, the ``older`` ones are before it, oldest first; ``lists`` are the parts
    of the lists, oldest first. ``commit_bytes`` is what the commits up to there took in all, as far as that is known.
    ``segments`` are the segment files by topic id in format 1, which has one part of the heads and none of the lists.
    """

    format: int
    version: int
    heads: PartReference
    segments: dict[str, list[FileReference]]
    commit_bytes: int = 0
    digest: str = ""
    older: list[PartReference] = []
    lists: list[PartReference] = []

    @property
    def head_parts(self) -> list[PartReference]:
        """The parts of the heads, oldest first."""
        return [*self.older, self.heads]


class _Header(msgspec.Struct):
    format: int


class _Latest(msgspec.Struct, frozen=True):
    manifest: str


# Made at import, which one thread does: msgspec 0.22 ends the process with SIGSEGV where two threads at the same time
# are the first to decode a type that holds other types.
_LATEST_DECODER = msgspec.json.Decoder(_Latest)
_MANIFEST_DECODER = msgspec.json.Decoder(Manifest)
_HEADER_DECODER = msgspec.json.Decoder(_Header)


# -- reading


def read_newest(store: Store) -> Manifest | None:
    """The newest checkpoint's manifest, or None where there is none."""
    hinted = _hinted_key(store)
    if hinted is not None:
        try:
            return read_manifest(store, hinted)
        except ObjectNotFoundError:
            pass  # the hint is overwritten by whoever is late, and old checkpoints are removed: look instead
    return read_newest_listed(store)


def read_newest_listed(store: Store) -> Manifest | None:
    """The newest checkpoint's manifest by listing: right also where the hint is stale, and slower."""
    gone = ""
    while keys := _listed(store):
        try:
            return read_manifest(store, keys[0])
        except ObjectNotFoundError:  # this process was stopped since the listing, and newer ones have replaced it
            if keys[0] == gone:
                raise
            gone = keys[0]
    return None


def _listed(store: Store) -> list[str]:
    """The manifests there are, newest first."""
    return sorted(
        (info.key for info in store.list(CHECKPOINTS) if manifest_version(info.key) is not None), reverse=True
    )


def read_newest_state(
    store: Store, listed: bool = False, without: Collection[str] = ()
) -> tuple[Manifest | None, State | None]:
    """The newest checkpoint whose heads are there, and the state it holds; None where there is no checkpoint.

    By the hint, or by listing where that is stale or ``listed`` asks for it. ``without`` are the keys of heads of
    checkpoints that are known to lack files. Raises CorruptMetadataError.
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
    if failure is not None and not isinstance(failure, ObjectNotFoundError) and not _is_complete_without(store):
        raise failure
    return None, None


def _is_complete_without(store: Store) -> bool:
    """Whether all commits are there, so that the state needs no checkpoint: none was ever removed."""
    if read_certain_boundary(store) >= 0:
        return False
    try:
        store.info(commit_key(0))
    except ObjectNotFoundError:
        return False
    return True


def _candidates(store: Store, listed: bool) -> Iterator[str]:
    """Manifests in the order to try them: the hinted one, those listed, and those listed by the time none of these did.

    A process that was stopped since it listed them may find all of them gone, and newer ones there.
    """
    tried: set[str] = set()
    hinted = None if listed else _hinted_key(store)
    found = [hinted] if hinted is not None else _listed(store)
    while found:
        for key in found:
            tried.add(key)
            yield key
        found = [key for key in _listed(store) if key not in tried]


def _hinted_key(store: Store) -> str | None:
    try:
        key = _LATEST_DECODER.decode(store.get(LATEST_KEY, limits.MAX_CLUSTER_FILE_BYTES)).manifest
    except (ObjectNotFoundError, CorruptMetadataError, msgspec.MsgspecError, RecursionError):
        return None  # only a hint: the listing is right
    return key if manifest_version(key) is not None else None


def read_manifest(store: Store, key: str) -> Manifest:
    """A checkpoint's manifest. Raises ObjectNotFoundError, CorruptMetadataError, UnsupportedVersionError."""
    path = f"{store.root}/{key}"
    data = store.get(key, limits.MAX_MANIFEST_BYTES)
    try:
        found = _HEADER_DECODER.decode(data).format
        if found <= FORMAT:
            return _MANIFEST_DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(f"checkpoint {path} cannot be read: {error}; {MEND}", path=path) from error
    raise levels.newer(path, found)


def read_heads(store: Store, manifest: Manifest) -> State:
    """The state that a checkpoint holds. Raises CorruptMetadataError."""
    path = f"{store.root}/{manifest.heads.key}"
    try:
        if manifest.format == 1:
            return checkpoint_v1.read_state(store, manifest.heads)
        parts = each(partial(read_file, store), manifest.head_parts, store.parallel_requests)
        return heads.assemble(_emptied(parts))
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
        raise CorruptMetadataError(f"checkpoint {path} cannot be read: {error}; {MEND}", path=path) from error


def _emptied(parts: list[pa.Buffer]) -> Iterator[BytesLike]:
    """The parts one by one, each let go of before the next."""
    parts.reverse()
    while parts:
        yield memoryview(parts.pop())


def read_digest(store: Store, manifest: Manifest) -> str:
    """The digest of the commit that a checkpoint is of. Raises CorruptMetadataError."""
    return manifest.digest or read_heads(store, manifest).digest


def read_lists(store: Store, manifest: Manifest, cache: ListCache | None = None) -> Lists:
    """The lists of segments of all topics. Raises CorruptMetadataError."""
    if manifest.format == 1:
        return NO_LISTS.changed({topic_id: lists.as_list(files) for topic_id, files in manifest.segments.items()})
    return (cache or ListCache(store)).read(manifest.lists)


def files_of(store: Store, manifest: Manifest, cache: ListCache | None = None) -> list[AnyReference]:
    """Every file that a checkpoint names, itself or in its lists. Raises CorruptMetadataError."""
    return [*manifest.head_parts, *manifest.lists, *read_lists(store, manifest, cache).files()]


def is_whole(store: Store, manifest: Manifest, cache: ListCache | None = None) -> bool:
    """Whether every file that a checkpoint names is there, by listing them all."""
    sizes = {info.key: info.size for info in store.list(CHECKPOINTS)}
    try:
        named = files_of(store, manifest, cache)
    except CorruptMetadataError as error:
        if error.missing:
            return False
        raise
    return all(sizes.get(file.key) == file.size for file in named)


def read_segments(store: Store, files: Sequence[FileReference]) -> list[pa.RecordBatch]:
    """The parts of one topic, oldest first. Raises CorruptMetadataError."""
    return each(partial(read_segments_file, store), files, store.parallel_requests)


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
    """Store the state and what became of segments since ``base``.

    ``recent`` is what the commits after ``base`` up to ``state.version`` did to lists of segments, by topic id;
    ``touched`` are the entries that these commits may have changed, and more does no harm. None: all of the state is
    written. Nothing that is given is changed, and no lock is needed. Raises CorruptMetadataError, StorageError.
    """
    cache = cache or ListCache(store)
    stem = f"{CHECKPOINTS}{state.version:020d}-{ids.write_id()}"
    known = read_lists(store, base, cache) if base is not None else NO_LISTS
    changes = _changed_lists(store, stem, state, known, recent)
    now = known.changed(changes)
    write_heads = partial(_write_heads, store, stem, state, base, touched)
    write_lists = partial(_write_lists, store, stem, base, known, changes, now)
    (head_parts, _), (list_parts, added) = each(_call, (write_heads, write_lists), store.parallel_requests)
    manifest = Manifest(
        format=FORMAT,
        version=state.version,
        heads=head_parts[-1],
        segments={},
        commit_bytes=commit_bytes,
        digest=state.digest,
        older=head_parts[:-1],
        lists=list_parts,
    )
    store.put(_manifest_key(manifest), msgspec.json.encode(manifest))
    store.put(LATEST_KEY, msgspec.json.encode(_Latest(manifest=_manifest_key(manifest))))
    cache.put(list_parts, now, added)
    return manifest


_WrittenPart = tuple[list[PartReference], dict[str, Rows]]
"""All parts, oldest first, and the rows of those just written by key."""


def _call(function: Callable[[], _WrittenPart]) -> _WrittenPart:
    return function()


def _write_heads(
    store: Store, stem: str, state: State, base: Manifest | None, touched: Iterable[Entry] | None
) -> _WrittenPart:
    old = base.head_parts if base is not None and base.format > 1 and touched is not None else []
    changed = heads.changed_rows(state, touched or ())
    planned = plan(old, _count(changed), MAX_HEAD_PARTS, partial(heads.count_rows, state))
    if planned.whole:
        rows: Rows = heads.all_rows(state)
    else:
        parts = each(partial(_read_raw_heads, store), planned.merged, store.parallel_requests)
        rows = merged([*parts, heads.raw_rows(heads.encode_rows(changed))], whole=False) if parts else changed
    return _write_part(store, f"{stem}.heads", planned, rows, heads.encode_rows(rows))


def _read_raw_heads(store: Store, part: PartReference) -> Rows:
    data, path = read_file(store, part), f"{store.root}/{part.key}"
    try:
        return heads.raw_rows(memoryview(data))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(f"checkpoint file {path} cannot be read: {error}; {MEND}", path=path) from error


def _write_lists(
    store: Store, stem: str, base: Manifest | None, known: Lists, changes: Mapping[str, TopicList], now: Lists
) -> _WrittenPart:
    old = base.lists if base is not None and base.format > 1 else []
    changed = known.rows(changes)
    if not changed and (old or not now.count_rows()):
        return list(old), {}
    planned = plan(old, _count(changed), MAX_LIST_PARTS, now.count_rows)
    if planned.whole:
        rows: Rows = now.all_rows()
    elif planned.merged:
        parts = each(partial(lists.read_rows, store), planned.merged, store.parallel_requests)
        rows = merged([*parts, lists.raw_rows(lists.encode_rows(changed))], whole=False)
    else:
        rows = changed
    data = lists.encode_rows(rows)
    found, _ = _write_part(store, f"{stem}.lists", planned, rows, data)
    return found, {found[-1].key: lists.raw_rows(data)}


def _count(rows: Rows) -> int:
    return sum(len(listed) for listed in rows.values())


def _write_part(store: Store, key: str, planned: Plan, rows: Rows, data: bytes) -> _WrittenPart:
    part = PartReference(key=key, size=len(data), crc=crc32c(data), rows=_count(rows), level=planned.level)
    write_file(store, part, data)
    return [*planned.kept, part], {}


def _changed_lists(
    store: Store, stem: str, state: State, known: Lists, recent: Mapping[str, Sequence[SegmentEvent]]
) -> dict[str, TopicList]:
    """The lists that are other ones now, with their files written; empty for topics that are gone."""
    live = {topic.topic_id: topic for topic in state.topics.values()}
    changes = {topic_id: TopicList() for topic_id in known.topic_ids() if topic_id not in live}
    work: list[Callable[[], TopicList]] = []
    grown = sorted(live.keys() & recent.keys())
    for number, topic_id in enumerate(grown):
        before, key = known.of(topic_id), f"{stem}-{number}.segments"
        events = recent[topic_id]
        added = [event for event in events if isinstance(event, Segment)]
        if len(added) < len(events):
            work.append(partial(_rewritten, store, key, live[topic_id], before, events, state.version))
        elif lists.needs_file(topic_id, before.waiting + len(added)):
            work.append(partial(_with_file, store, key, before, added))
        else:
            work.append(partial(lists.with_tail, before, state.version, added))
    found = each(lambda function: function(), work, store.parallel_requests)
    return {**changes, **dict(zip(grown, found, strict=True))}


def _rewritten(
    store: Store, key: str, topic: TopicState, before: TopicList, events: Sequence[SegmentEvent], version: int
) -> TopicList:
    """The list of a topic in which segments were replaced or deleted."""
    listed = TopicSegments(topic, lists.read_list(store, before), events)
    table = listed.table()
    if lists.needs_file(topic.topic_id, table.num_rows):
        return TopicList((write_segments_file(store, key, table),))
    segments = [segment for number in range(len(topic.partitions)) for segment in listed.partition(number)]
    return lists.with_tail(TopicList(), version, segments) if segments else TopicList()


def _with_file(store: Store, key: str, before: TopicList, added: Sequence[Segment]) -> TopicList:
    """The list of a topic with new segments, and no tails; last files that are not larger are merged into the new."""
    kept = list(before.files)
    parts = [to_part([*lists.tail_segments(before), *added])]
    rows = parts[0].num_rows
    while kept and kept[-1].rows <= 2 * rows:
        last = kept.pop()
        parts.insert(0, read_segments_file(store, last))
        rows += last.rows
    return TopicList((*kept, write_segments_file(store, key, merge_parts(parts) if len(parts) > 1 else parts[0])))


def withdraw(store: Store, manifest: Manifest) -> None:
    """Take a checkpoint back that turned out to lack files; what is left of it goes with the next clean-up."""
    store.delete(_manifest_key(manifest))


def _manifest_key(manifest: Manifest) -> str:
    return manifest.heads.key.removesuffix(".heads") + ".json"
