"""What must hold of a cluster while maintenance races with writers and readers, looked at from below.

``WatchedStore`` is the storage under all the faults. Whenever a commit is created there, the ``Truth`` reads it with
the files it names, and compares them with what it knows of every record; whenever a file is deleted, it looks whether
that was part of the log. So a breach is found at the very call that makes it, however short it lasts, and by code that
shares nothing with maintenance but the fold, the names and the reading of one file.

Nothing here is a step of the simulation: it sees all in no time. Findings are kept and not raised, since the code under
test may swallow what is raised in a storage call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sparklog.config.topic_configs import COMPACT, TopicConfig
from sparklog.errors import ObjectNotFoundError, SparklogError
from sparklog.log.layout import CHECKPOINTS, CLOCK_KEY, COMMITS, read_cluster_file
from sparklog.log.records.fetch import Fetcher
from sparklog.protocol import segment_checksum
from sparklog.protocol.commit_bytes import decode_commit
from sparklog.protocol.commits import (
    Action,
    Append,
    Commit,
    CreateTopic,
    DeleteSegments,
    DeleteTopic,
    FenceWriters,
    RemovedSegments,
    RemoveFiles,
    ReplaceSegments,
    commit_key,
)
from sparklog.protocol.file_names import begun_at
from sparklog.protocol.fold import apply
from sparklog.protocol.segments import Segment, index_path, replacement_of, segment_of
from sparklog.protocol.state import State
from sparklog.store.base import BytesLike
from sparklog.store.memory import MemoryStore
from sparklog.types import TopicPartition

MISSING_FILE = "a file of the log is missing"
OVERWRITTEN = "a file of the log was written again"
OFFSETS = "offsets have a gap or are used twice"
CONTENT = "a file holds other records than those it took the place of"
LOST_RECORD = "a record left the log that was the last of its key"
EARLY = "a record left the log too early"
BACK = "a record came back that a tombstone had deleted"
DIRTY = "a key has two records where the log is said to be clean"
DELETED = "more was deleted than retention asks for"
STALE = "a file became part of the log that a vacuum may delete"
REMOVED = "a commit says other things of what it removes"
CHECKSUM = "the checksum is not that of the live segments"
TWICE = "a record is in the log twice"
UNACKNOWLEDGED = "an acknowledged record is not where it was said to be"
READ = "a reader saw something else than there is"
READER_ERROR = "a reader got an error"
LISTED = "the listed segments are not the live ones"
LEAKED = "files stayed that nobody names"
LISTING = "a listing of removed files is gone before its files are"

FINDINGS = (
    MISSING_FILE,
    OVERWRITTEN,
    OFFSETS,
    CONTENT,
    LOST_RECORD,
    EARLY,
    BACK,
    DIRTY,
    DELETED,
    STALE,
    REMOVED,
    CHECKSUM,
    TWICE,
    UNACKNOWLEDGED,
    READ,
    READER_ERROR,
    LISTED,
    LEAKED,
    LISTING,
)


class Finding(NamedTuple):
    """One breach: its kind (one of ``FINDINGS``) and what is wrong, at which version of the cluster."""

    kind: str
    message: str
    version: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} (version {self.version})"


class Stored(NamedTuple):
    """A record as the log has it."""

    key: bytes | None
    value: bytes | None
    timestamp_us: int


class Place:
    """One partition: every record it ever had, which of them are there still, and the files that hold them."""

    def __init__(self) -> None:
        self.records: dict[int, Stored] = {}
        self.present: set[int] = set()
        self.appended_ms: dict[int, int] = {}
        self.segments: list[Segment] = []
        self.end = 0
        self.log_start = 0


class WatchedStore(MemoryStore):
    """A MemoryStore whose ``truth`` is told of every create, overwrite and delete, once it has happened."""

    truth: Truth | None = None

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        super().put_if_absent(key, data)
        if self.truth is not None and key.startswith(COMMITS):
            self.truth.follow()

    def put(self, key: str, data: BytesLike) -> None:
        super().put(key, data)
        if self.truth is not None:
            self.truth.overwritten(key)

    def delete(self, key: str) -> None:
        super().delete(key)
        if self.truth is not None:
            self.truth.deleted(key)


class Truth:
    """Follows the commits of a cluster; see the module. ``findings`` are in the order in which they were made."""

    def __init__(self, store: WatchedStore) -> None:
        self.findings: list[Finding] = []
        self.places: dict[TopicPartition, Place] = {}
        self.seen: Counter[str] = Counter()
        self._store = store
        self._fetcher = Fetcher(lambda broker: store)
        self._live: Counter[str] = Counter()
        self._where: dict[bytes, tuple[TopicPartition, int]] = {}
        self.state = State(cluster_id=read_cluster_file(store).cluster_id)
        store.truth = self
        self.follow()

    def find(self, kind: str, message: str) -> None:
        self.findings.append(Finding(kind, message, self.state.version))

    def place(self, topic: str, partition: int) -> Place:
        return self.places[TopicPartition(topic, partition)]

    def has(self, topic: str, topic_id: str) -> bool:
        """Whether this very topic is there still."""
        found = self.state.topics.get(topic)
        return found is not None and found.topic_id == topic_id

    # -- what happens below

    def follow(self) -> None:
        """Take in the commits that are there now."""
        while True:
            version = self.state.version + 1
            try:
                data = self._store.get(commit_key(version))
            except ObjectNotFoundError:
                return
            commit, digest = decode_commit(data, version)
            before = self.state
            try:
                self.state = apply(before, commit, digest)
            except SparklogError as error:
                self.find(CHECKSUM, f"commit {version} contradicts the state: {error}")
                raise
            for action in commit.actions:
                self._take(before, commit, action)
            if any(isinstance(action, ReplaceSegments | DeleteSegments) for action in commit.actions):
                self._check_checksum()

    def overwritten(self, key: str) -> None:
        if self._live[key] or self._live[_log_of(key)]:
            self.find(OVERWRITTEN, key)

    def deleted(self, key: str) -> None:
        if self._live[_log_of(key)]:
            self.find(MISSING_FILE, f"{key} was deleted, and is part of the log")
        if key in self.state.removed_files:
            self.find(LISTING, f"{key} was deleted, and is to be dealt with still")

    def _take(self, before: State, commit: Commit, action: Action) -> None:
        self.seen[type(action).__name__] += 1
        if isinstance(action, CreateTopic):
            self.places.update({TopicPartition(action.topic, n): Place() for n in range(len(action.replicas))})
        elif isinstance(action, DeleteTopic):
            for place in [place for place in self.places if place.topic == action.topic]:
                for segment in self.places.pop(place).segments:
                    self._let_go(segment.path)
            self._where = {value: at for value, at in self._where.items() if at[0].topic != action.topic}
        elif isinstance(action, Append):
            self._append(before, commit, action)
        elif isinstance(action, ReplaceSegments):
            self._replace(before, commit, action)
        elif isinstance(action, DeleteSegments):
            self._delete(before, action)
        elif isinstance(action, RemoveFiles):
            self._check_listing(action)
        elif isinstance(action, FenceWriters):
            self.seen["fenced files"] += sum(begun_at(path) <= action.version for path in self._live)
        for name, topic in self.state.topics.items():
            for partition, held in enumerate(topic.partitions):
                self.place(name, partition).log_start = held.log_start_offset

    def _check_listing(self, action: RemoveFiles) -> None:
        try:
            self._store.info(action.listing)
        except ObjectNotFoundError:
            self.find(LISTING, f"{action.listing} was named by a commit, and is not there")

    def _append(self, before: State, commit: Commit, action: Append) -> None:
        topic, held = TopicPartition(action.topic, action.partition), self.place(action.topic, action.partition)
        segment = segment_of(action, commit)
        self._check_fence(before, segment.path)
        if segment.base_offset != held.end:
            self.find(OFFSETS, f"{topic} ends at {held.end}, and {segment.path} was appended at {segment.base_offset}")
        for offset, record in self._read(action.topic, segment):
            held.records[offset] = record
            held.present.add(offset)
            held.appended_ms[offset] = commit.timestamp
            if record.value is not None:  # tombstones are not told apart
                earlier = self._where.setdefault(record.value, (topic, offset))
                if earlier != (topic, offset):
                    self.find(TWICE, f"{record.value!r} is at {earlier} and at {topic} offset {offset}")
        held.end = segment.end_offset
        held.segments.append(segment)
        self._live[segment.path] += 1

    def _check_fence(self, before: State, path: str) -> None:
        if begun_at(path) <= before.writer_fence:
            self.find(STALE, f"{path} was begun at or before the fence at {before.writer_fence}")

    def _read(self, topic: str, segment: Segment) -> list[tuple[int, Stored]]:
        try:
            return [
                (offset, record)
                for records in self._fetcher.read(topic, [segment], segment.base_offset, segment.end_offset)
                for offset, record in rows(records.all_offsets(), records.batch)
            ]
        except SparklogError as error:
            self.find(MISSING_FILE, f"{segment.path} became part of {topic} and cannot be read: {error}")
            return []

    # -- segments that go

    def _replace(self, before: State, commit: Commit, action: ReplaceSegments) -> None:
        held = self.place(action.topic, action.partition)
        start, end = action.start_offset, action.end_offset
        what = f"{action.topic}-{action.partition} from {start} to {end}"
        old = self._take_out(held, start, end, action.removed, action.topic_id, what)
        for segment in held.segments:
            if segment.base_offset < end and start < segment.end_offset:
                self.find(OFFSETS, f"{what} was replaced, and {segment.path} has parts of it")
        added = [replacement_of(action.partition, one, commit.version) for one in action.added]
        found: set[int] = set()
        for segment in added:
            self._check_fence(before, segment.path)
            for offset, record in self._read(action.topic, segment):
                if held.records.get(offset) != record or offset not in held.present or offset in found:
                    self.find(CONTENT, f"{segment.path} has {record} at {offset}, not {held.records.get(offset)}")
                found.add(offset)
            self._live[segment.path] += 1
        for segment in old:
            self._let_go(segment.path)
        held.segments = sorted([*held.segments, *added], key=lambda segment: segment.base_offset)
        gone = {offset for offset in held.present if start <= offset < end} - found
        config = TopicConfig.resolve(before.topic(action.topic).configs, before.configs)
        if COMPACT in config.cleanup_policy:
            held.present -= gone
            self._check_compacted(what, held, gone, config, commit.timestamp)
            if action.cleaned_offset >= 0:
                self._check_clean(what, held, action.cleaned_offset)
        elif gone:
            self.find(CONTENT, f"{what} was replaced by {[s.path for s in added]}, and these are gone: {sorted(gone)}")

    def _delete(self, before: State, action: DeleteSegments) -> None:
        held = self.place(action.topic, action.partition)
        what = f"{action.topic}-{action.partition} up to {action.end_offset}"
        old = self._take_out(held, 0, action.end_offset, action.removed, action.topic_id, what)
        for segment in old:
            self._let_go(segment.path)
        held.present = {offset for offset in held.present if offset >= action.end_offset}
        for segment in held.segments:
            if segment.base_offset < action.end_offset:
                self.find(DELETED, f"{what} was deleted, and {segment.path} has parts of it")
        partition = before.partition(action.topic, action.partition)
        config = TopicConfig.resolve(before.topic(action.topic).configs, before.configs)
        left = sum(segment.size_bytes for segment in held.segments)
        beyond_start = [segment for segment in old if segment.end_offset > partition.log_start_offset]
        if beyond_start and (config.retention_bytes < 0 or left < config.retention_bytes):
            self.find(DELETED, f"{what} was deleted and {left} bytes are left, of {config.retention_bytes} to be kept")

    def _let_go(self, path: str) -> None:
        self._live[path] -= 1
        if not self._live[path]:
            del self._live[path]

    def _take_out(
        self, held: Place, start: int, end: int, removed: RemovedSegments, topic_id: str, what: str
    ) -> list[Segment]:
        """The live segments inside this range, which are no longer live."""
        old = [segment for segment in held.segments if start <= segment.base_offset and segment.end_offset <= end]
        held.segments = [segment for segment in held.segments if segment not in old]
        hashes = segment_checksum.total(segment_checksum.segment_hash(topic_id, segment) for segment in old)
        size = sum(segment.size_bytes for segment in old)
        counted = RemovedSegments(segments=len(old), size_bytes=size, checksum=segment_checksum.to_text(hashes))
        if counted != removed:
            self.find(REMOVED, f"{what} says {removed} went, and those were {counted}")
        return old

    def _check_checksum(self) -> None:
        hashes = [
            segment_checksum.segment_hash(self.state.topic(place.topic).topic_id, segment)
            for place, held in self.places.items()
            for segment in held.segments
        ]
        if segment_checksum.to_text(segment_checksum.total(hashes)) != self.state.checksum:
            self.find(CHECKSUM, f"the state says {self.state.checksum}")

    # -- compaction

    def _check_compacted(self, what: str, held: Place, gone: set[int], config: TopicConfig, now_ms: int) -> None:
        lag_ms, keeps_ms = int(str(config.get("min.compaction.lag.ms"))), int(str(config.get("delete.retention.ms")))
        last = _last_by_key(held, held.records)
        left = {held.records[offset].key for offset in held.present}
        for offset in sorted(gone):
            record = held.records[offset]
            age_ms = now_ms - record.timestamp_us // 1000
            if age_ms < lag_ms:
                self.find(EARLY, f"{what}: {record} at {offset} is {age_ms} ms old, and its lag is {lag_ms}")
            if last[record.key] != offset:
                continue
            if record.value is not None:
                self.find(LOST_RECORD, f"{what}: {record} at {offset}")
            elif now_ms - held.appended_ms[offset] < keeps_ms:
                self.find(EARLY, f"{what}: tombstone {record} at {offset} is kept for {keeps_ms} ms")
            elif record.key in left:
                self.find(
                    BACK, f"{what}: the tombstone of {record.key!r} at {offset} went, and what it deletes did not"
                )

    def _check_clean(self, what: str, held: Place, cleaned_offset: int) -> None:
        keys = Counter(held.records[offset].key for offset in held.present if offset < cleaned_offset)
        twice = [key for key, times in keys.items() if times > 1]
        if twice:
            self.find(DIRTY, f"{what}: {twice} below {cleaned_offset}")

    # -- what others see

    def acknowledged(self, place: TopicPartition, base_offset: int, records: Sequence[Stored], by: str) -> None:
        """Who wrote these records was told that they begin at this offset. Timestamps are the topic's business."""
        held = self.places[place]
        for offset, sent in enumerate(records, base_offset):
            found = held.records.get(offset)
            if found is None or found[:2] != sent[:2]:
                self.find(UNACKNOWLEDGED, f"{sent} of {by} at {place} offset {offset}, where {found} is")

    def check_read(
        self, place: TopicPartition, start: int, end: int, found: Sequence[tuple[int, Stored]], by: str
    ) -> None:
        """Somebody has just read ``[start, end)``, of a state whose log start and end that range was inside of."""
        held = self.places[place]
        offsets = [offset for offset, _ in found]
        what = f"{by} read {place} from {start} to {end}"
        if offsets != sorted(set(offsets)) or (offsets and not start <= offsets[0] <= offsets[-1] < end):
            self.find(READ, f"{what} and got offsets {offsets}")
        wrong = [(offset, record) for offset, record in found if held.records.get(offset) != record]
        if wrong:
            self.find(READ, f"{what}: {wrong[0]} is not {held.records.get(wrong[0][0])}")
        got = set(offsets)
        missing = [offset for offset in held.present if start <= offset < end and offset not in got]
        if missing:
            self.find(READ, f"{what} and got no offsets {sorted(missing)}")

    def check_out_of_range(self, place: TopicPartition, start: int, error: SparklogError, by: str) -> None:
        """A reader was told that what it began to read is deleted."""
        if start >= self.places[place].log_start:
            self.find(READER_ERROR, f"{by}: {place} from {start}: {error!r}, and nothing was deleted there")

    # -- in the end

    def check_end(self) -> None:
        """Once nothing is under way: every live file is there, and no record is missing."""
        keys = {info.key for info in self._store.list("")}
        for path in self._live:
            for key in (path, index_path(path)):
                if key not in keys:
                    self.find(MISSING_FILE, f"{key} in the end")
        for place, held in self.places.items():
            found = {offset: record for segment in held.segments for offset, record in self._read(place.topic, segment)}
            if {offset: held.records.get(offset) for offset in held.present} != found:
                self.find(CONTENT, f"{place} holds {len(found)} records in the end, and should {len(held.present)}")
            if held.segments and held.segments[-1].end_offset > held.end:
                self.find(OFFSETS, f"{place} has segments after its end {held.end}")
            self._check_nothing_lost(place, held)

    def _check_nothing_lost(self, place: TopicPartition, held: Place) -> None:
        config = TopicConfig.resolve(self.state.topic(place.topic).configs, self.state.configs)
        kept = range(held.log_start, held.end)
        if COMPACT not in config.cleanup_policy and not held.present.issuperset(kept):
            self.find(LOST_RECORD, f"{place}: {sorted(set(kept) - held.present)}")
        for key, offset in _last_by_key(held, kept).items() if COMPACT in config.cleanup_policy else ():
            if offset not in held.present and held.records[offset].value is not None:
                self.find(LOST_RECORD, f"{place}: the last record of {key!r} at {offset}")

    def check_listed(self, place: TopicPartition, segments: Iterable[Segment]) -> None:
        """What a newly opened cluster lists."""
        listed = list(segments)
        if listed != self.places[place].segments:
            self.find(LISTED, f"{place}: {listed} instead of {self.places[place].segments}")

    def check_leaked(self, allowed: Iterable[str] = ()) -> None:
        """After the last sweep and vacuum: no data file and no listing but those that are named."""
        keys = {info.key for info in self._store.list("")}
        named = {*allowed, *self._live, *map(index_path, self._live), *self.state.removed_files}
        others = ("cluster.json", "meta/boundary.json", CLOCK_KEY, COMMITS, CHECKPOINTS)
        leaked = [key for key in keys if key not in named and not key.startswith(others)]
        if leaked or self.state.removed_files:
            self.find(LEAKED, f"{sorted(leaked)}, listings {sorted(self.state.removed_files)}")


def rows(offsets: Sequence[int], batch: object) -> list[tuple[int, Stored]]:
    """Arrow records as (offset, record)."""
    columns = batch.to_pydict()  # type: ignore[attr-defined]
    count = len(offsets)
    keys, values = columns.get("key", [None] * count), columns.get("value", [None] * count)
    stamps = batch.column("timestamp").view("int64").to_pylist()  # type: ignore[attr-defined]
    return [(offset, Stored(*record)) for offset, *record in zip(offsets, keys, values, stamps, strict=True)]


def _last_by_key(held: Place, offsets: Iterable[int]) -> dict[bytes | None, int]:
    """Of the records that could be read; a file that could not is a finding of its own."""
    return {held.records[offset].key: offset for offset in sorted(offsets) if offset in held.records}


def _log_of(key: str) -> str:
    return key.removesuffix(".index") + ".log" if key.endswith(".index") else key
