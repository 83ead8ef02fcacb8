"""The lists of segments in a checkpoint: the files of each topic, and its few segments that are in no file yet.

The lists are stored in parts like the heads (see ``tiers``), each a JSON object of rows by kind::

    {"files":[["<topic id>",[{"key":"meta/checkpoints/….segments","size":5210,"crc":1,"rows":12}]],…],
     "tails":[["<topic id>",200,[[0,40,43,3,"orders-0/….log",…],…]],…]}

``files``: the ``.segments`` files of a topic, oldest first. ``tails``: segments that the checkpoint of this version
added to a topic, each an array of the fields of ``Segment``. A topic that grew by a few segments costs a row and no
file; once its tails have about ``TAIL_SEGMENTS``, they move to a file. So a checkpoint of a thousand topics that grew a
little is one object instead of a thousand.

Rules: a list is files, then tails by version. Immutable and thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa
from immutables import Map

from sparklog.errors import CorruptMetadataError
from sparklog.log.checkpoints.files import MEND, read_rows, read_segments_file, translate_damage
from sparklog.log.checkpoints.tiers import FileReference, PartReference, Row, RowEncoding, Rows
from sparklog.log.parallel import map_parallel
from sparklog.log.segments import columns_of, to_part
from sparklog.protocol.segments import Segment
from sparklog.store.base import Store

TAIL_SEGMENTS = 32
"""segments after which a topic's tails move to a file, about: 0.5 to 1.5 times as many, depending on the topic, so that
not all topics reach it in the same checkpoint."""


class _Stored(Segment, frozen=True, array_like=True):
    """A segment as an array of its fields; absent ones have their defaults."""


class _Rows(msgspec.Struct):
    files: list[tuple[str, msgspec.Raw]] = []
    tails: list[tuple[str, int, msgspec.Raw]] = []


_FILES_DECODER = msgspec.json.Decoder(list[FileReference] | None)
_TAIL_DECODER = msgspec.json.Decoder(list[_Stored] | None)
_ENCODER = msgspec.json.Encoder()
ENCODING = RowEncoding(_ENCODER, msgspec.json.Decoder(_Rows))


class TopicList(NamedTuple):
    """A topic's list: files, and encoded tails by version. ``waiting`` is the number of segments in the tails."""

    files: tuple[FileReference, ...] = ()
    tails: tuple[tuple[int, bytes], ...] = ()
    waiting: int = 0


class Lists:
    """All lists of one checkpoint."""

    def __init__(self, topics: Map[str, TopicList]) -> None:
        self._topics = topics

    def topic_ids(self) -> Iterable[str]:
        return self._topics

    def of(self, topic_id: str) -> TopicList:
        """Return the list of a topic, empty if it has none."""
        return self._topics.get(topic_id, _NONE)

    def files(self) -> list[FileReference]:
        """Return all files that the lists name."""
        return [file for _, listed in sorted(self._topics.items()) for file in listed.files]

    def count_rows(self) -> int:
        return sum(bool(listed.files) + len(listed.tails) for listed in self._topics.values())

    def changed(self, changes: Mapping[str, TopicList]) -> Lists:
        """Return these lists with those of some topics replaced, or removed if empty."""
        changed = self._topics.mutate()
        for topic_id, listed in changes.items():
            if listed == _NONE:
                changed.pop(topic_id, None)
            else:
                changed[topic_id] = listed
        return Lists(changed.finish())

    def rows(self, changes: Mapping[str, TopicList]) -> dict[str, list[Row]]:
        """Return the rows that store such a change."""
        files: list[Row] = []
        tails: list[Row] = []
        for topic_id, listed in sorted(changes.items()):
            before = self.of(topic_id)
            if listed.files != before.files:
                files.append((topic_id, list(listed.files) or None))
            old, new = dict(before.tails), dict(listed.tails)
            for version in sorted(old.keys() | new.keys()):
                if old.get(version) != new.get(version):
                    tails.append((topic_id, version, msgspec.Raw(new[version]) if version in new else None))
        return {kind: rows for kind, rows in (("files", files), ("tails", tails)) if rows}

    def all_rows(self) -> dict[str, list[Row]]:
        return Lists(Map()).rows(dict(self._topics))


_NONE = TopicList()
NO_LISTS = Lists(Map())


def read_list(store: Store, listed: TopicList) -> list[pa.RecordBatch]:
    """Read the parts of a topic's list, oldest first. Raises CorruptMetadataError, UnsupportedVersionError."""
    parts = map_parallel(lambda file: read_segments_file(store, file), listed.files, store.parallel_requests)
    return [*parts, to_part(tail_segments(listed))] if listed.tails else parts


def tail_segments(listed: TopicList) -> list[Segment]:
    """Return the segments that are in no file, in commit order. Raises CorruptMetadataError."""
    try:
        return [segment for _, body in listed.tails for segment in _TAIL_DECODER.decode(body) or ()]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(f"a checkpoint's list of segments cannot be read: {error}; {MEND}") from error


def add_tail(listed: TopicList, version: int, segments: Sequence[Segment], level: int) -> TopicList:
    """Return the list with the segments that this version's checkpoint adds, with the fields of a level."""
    count = len(columns_of(level))
    body = _ENCODER.encode([msgspec.structs.astuple(segment)[:count] for segment in segments])
    return TopicList(listed.files, (*listed.tails, (version, body)), listed.waiting + len(segments))


def needs_file(topic_id: str, segments: int) -> bool:
    """Return whether a topic with this many segments outside of files should get one."""
    return segments > TAIL_SEGMENTS // 2 + crc32(topic_id.encode()) % max(TAIL_SEGMENTS, 1)


def _from_rows(parts: Iterable[Rows]) -> Lists:
    """Assemble the lists. Raises msgspec.MsgspecError."""
    files: dict[str, tuple[FileReference, ...]] = {}
    tails: dict[str, dict[int, bytes]] = {}
    for part in parts:
        for topic_id, body in part.get("files", ()):
            files[topic_id] = tuple(_FILES_DECODER.decode(body) or ())
        for topic_id, version, body in part.get("tails", ()):
            tails.setdefault(topic_id, {})[version] = bytes(body)
    topics = {topic_id: TopicList(named) for topic_id, named in files.items() if named}
    for topic_id, bodies in tails.items():
        kept = tuple((version, bodies[version]) for version in sorted(bodies) if bodies[version] != b"null")
        if kept:
            count = sum(len(_TAIL_DECODER.decode(body) or ()) for _, body in kept)
            topics[topic_id] = TopicList(files.get(topic_id, ()), kept, count)
    return Lists(Map(topics))


class ListCache:
    """Reads lists of checkpoints of one store, and caches the last ones, so that the next checkpoint's cost less.

    Thread-safe: one lock, held while parts are read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._newest: tuple[tuple[str, ...], Lists] = ((), NO_LISTS)
        self._parts: dict[str, Rows] = {}

    def read(self, parts: Sequence[PartReference]) -> Lists:
        """Return the lists in these parts, oldest first. Raises CorruptMetadataError, StorageError."""
        keys = tuple(part.key for part in parts)
        with self._lock:
            if self._newest[0] == keys:
                return self._newest[1]
            rows_by_key = {part.key: self._parts[part.key] for part in parts if part.key in self._parts}
            absent = [part for part in parts if part.key not in rows_by_key]
            read = map_parallel(partial(read_rows, self._store, ENCODING), absent, self._store.parallel_requests)
            rows_by_key.update((part.key, rows) for part, rows in zip(absent, read, strict=True))
            with translate_damage(self._store, keys[-1] if keys else ""):
                lists = _from_rows(rows_by_key[key] for key in keys)
            self._parts = rows_by_key
            self._newest = (keys, lists)
            return lists

    def put(self, parts: Sequence[PartReference], lists: Lists, added: Mapping[str, Rows]) -> None:
        """Cache the lists of a checkpoint that was just written."""
        keys = tuple(part.key for part in parts)
        with self._lock:
            rows_by_key = {**self._parts, **added}
            self._parts = {key: rows_by_key[key] for key in keys if key in rows_by_key}
            self._newest = (keys, lists)
