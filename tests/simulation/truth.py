"""The invariants of a cluster while maintenance races with writers and readers, checked at the storage.

``WatchedStore`` is the storage below all faults. Whenever a commit is created there, ``Truth`` reads it and the files
it names, and compares them with the expected records; whenever a file is deleted, it checks that the file was not part
of the log. So a violation is detected at the call that causes it, however short it lasts, by code that shares only the
fold, the names and the reading of one file with maintenance.

Nothing here is a step of the simulation: the checks take no time. Findings are collected and not raised, since the code
under test may swallow exceptions of a storage call.
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
from sparklog.protocol.file_names import begun_at, index_path, is_table_log
from sparklog.protocol.fold import fold
from sparklog.protocol.segments import Segment, replacement_of, segment_of
from sparklog.protocol.state import State
from sparklog.store.base import BytesLike
from sparklog.store.memory import MemoryStore
from sparklog.types import TopicPartition
from tests.simulation.published import DIFFERS, GONE, History, TableWatch, history_of

MISSING_FILE = "a file of the log is missing"
OVERWRITTEN = "a file of the log was overwritten"
OFFSETS = "offsets have a gap or are used twice"
CONTENT = "a file differs from the records it replaced"
LOST_RECORD = "the last record of a key was removed"
EARLY = "a record was removed too early"
BACK = "a record deleted by a tombstone reappeared"
DIRTY = "a key has two records in the clean part of the log"
DELETED = "more was deleted than retention allows"
STALE = "a file that a vacuum may delete became part of the log"
REMOVED = "a commit misstates the segments it removes"
CHECKSUM = "the checksum differs from that of the live segments"
TWICE = "a record is in the log twice"
UNACKNOWLEDGED = "an acknowledged record is not at its offset"
READ = "a reader saw wrong records"
READER_ERROR = "a reader got an error"
LISTED = "the listed segments differ from the live ones"
LEAKED = "orphans remain"
LISTING = "a listing was deleted before its files"
TABLE_GONE, TABLE_DIFFERS = GONE, DIFFERS

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
    TABLE_GONE,
    TABLE_DIFFERS,
)


class Finding(NamedTuple):
    """One violation: its kind (one of ``FINDINGS``) and what is wrong, at which version of the cluster."""

    kind: str
    message: str
    version: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} (version {self.version})"


class Stored(NamedTuple):
    """A record as it is stored in the log."""

    key: bytes | None
    value: bytes | None
    timestamp_us: int


class ExpectedPartition:
    """One partition: every record it ever had, which of them still exist, and its segments."""

    def __init__(self) -> None:
        self.records: dict[int, Stored] = {}
        self.present: set[int] = set()
        self.appended_ms: dict[int, int] = {}
        self.segments: list[Segment] = []
        self.end = 0
        self.log_start = 0


class WatchedStore(MemoryStore):
    """A MemoryStore that notifies ``truth`` after every create, overwrite and delete."""

    truth: Truth | None = None

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        super().put_if_absent(key, data)
        if self.truth is not None and key.startswith(COMMITS):
            self.truth.follow()
        if self.truth is not None and is_table_log(key):
            self.truth.tables.committed(key, bytes(data))

    def put(self, key: str, data: BytesLike) -> None:
        super().put(key, data)
        if self.truth is not None:
            self.truth.overwritten(key)

    def delete(self, key: str) -> None:
        super().delete(key)
        if self.truth is not None:
            self.truth.deleted(key)


class Truth:
    """Follows the commits of a cluster and checks them; ``findings`` are in chronological order."""

    def __init__(self, store: WatchedStore) -> None:
        self.findings: list[Finding] = []
        self.partitions: dict[TopicPartition, ExpectedPartition] = {}
        self.seen: Counter[str] = Counter()
        self._store = store
        self._fetcher = Fetcher(lambda broker: store)
        self._live: Counter[str] = Counter()
        self._where: dict[bytes, tuple[TopicPartition, int]] = {}
        self.tables = TableWatch(self.find, self._exists)
        self.state = State(cluster_id=read_cluster_file(store).cluster_id)
        store.truth = self
        self.follow()

    def find(self, kind: str, message: str) -> None:
        self.findings.append(Finding(kind, message, self.state.version))

    def partition(self, topic: str, partition: int) -> ExpectedPartition:
        return self.partitions[TopicPartition(topic, partition)]

    def has(self, topic: str, topic_id: str) -> bool:
        """Whether the topic with this id still exists."""
        state = self.state.topics.get(topic)
        return state is not None and state.topic_id == topic_id

    # -- changes of the storage

    def follow(self) -> None:
        """Apply the commits created since the last call."""
        while True:
            version = self.state.version + 1
            try:
                data = self._store.get(commit_key(version))
            except ObjectNotFoundError:
                return
            commit, digest = decode_commit(data, version)
            before = self.state
            try:
                self.state = fold(before, commit, digest).state
            except SparklogError as error:
                self.find(CHECKSUM, f"commit {version} contradicts the state: {error}")
                raise
            for action in commit.actions:
                self._apply(before, commit, action)
            self._follow_histories(before)
            if any(isinstance(action, ReplaceSegments | DeleteSegments) for action in commit.actions):
                self._check_checksum()

    def _follow_histories(self, before: State) -> None:
        for name in {*before.topics, *self.state.topics}:
            topic = self.state.topics.get(name)
            histories = [
                history_of(self.partition(name, number).segments, partition.log_start_offset)
                for number, partition in enumerate(() if topic is None else topic.partitions)
            ]
            files, inexact = (frozenset[str]().union(*(each[kind] for each in histories)) for kind in (0, 1))
            self.tables.log_changed(name, self.state.version, History(files, inexact))

    def _exists(self, key: str) -> bool:
        try:
            self._store.info(key)
        except ObjectNotFoundError:
            return False
        return True

    def overwritten(self, key: str) -> None:
        if self._live[key] or self._live[_log_of(key)]:
            self.find(OVERWRITTEN, key)

    def deleted(self, key: str) -> None:
        if self._live[_log_of(key)]:
            self.find(MISSING_FILE, f"{key} was deleted although it is part of the log")
        self.tables.deleted(key)
        if key in self.state.removed_files:
            self.find(LISTING, f"{key} was deleted although its files are still to be deleted")

    def _apply(self, before: State, commit: Commit, action: Action) -> None:
        self.seen[type(action).__name__] += 1
        if isinstance(action, CreateTopic):
            self.partitions.update(
                {TopicPartition(action.topic, n): ExpectedPartition() for n in range(len(action.replicas))}
            )
        elif isinstance(action, DeleteTopic):
            for topic_partition in [
                topic_partition for topic_partition in self.partitions if topic_partition.topic == action.topic
            ]:
                for segment in self.partitions.pop(topic_partition).segments:
                    self._release(segment.path)
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
            for number, partition in enumerate(topic.partitions):
                self.partition(name, number).log_start = partition.log_start_offset

    def _check_listing(self, action: RemoveFiles) -> None:
        try:
            self._store.info(action.listing)
        except ObjectNotFoundError:
            self.find(LISTING, f"{action.listing} is named by a commit but missing")

    def _append(self, before: State, commit: Commit, action: Append) -> None:
        topic, expected = TopicPartition(action.topic, action.partition), self.partition(action.topic, action.partition)
        segment = segment_of(action, commit)
        self._check_fence(before, segment.path)
        if segment.base_offset != expected.end:
            self.find(
                OFFSETS, f"{topic} ends at {expected.end}, and {segment.path} was appended at {segment.base_offset}"
            )
        for offset, record in self._read(action.topic, segment):
            expected.records[offset] = record
            expected.present.add(offset)
            expected.appended_ms[offset] = commit.timestamp
            if record.value is not None:  # tombstones have no unique value
                earlier = self._where.setdefault(record.value, (topic, offset))
                if earlier != (topic, offset):
                    self.find(TWICE, f"{record.value!r} is at {earlier} and at {topic} offset {offset}")
        expected.end = segment.end_offset
        expected.segments.append(segment)
        self._live[segment.path] += 1

    def _check_fence(self, before: State, path: str) -> None:
        if begun_at(path) <= before.writer_fence:
            self.find(STALE, f"{path} was started at or before the fence at {before.writer_fence}")

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

    # -- removed segments

    def _replace(self, before: State, commit: Commit, action: ReplaceSegments) -> None:
        expected = self.partition(action.topic, action.partition)
        start, end = action.start_offset, action.end_offset
        what = f"{action.topic}-{action.partition} from {start} to {end}"
        old = self._remove(expected, start, end, action.removed, action.topic_id, what)
        for segment in expected.segments:
            if segment.base_offset < end and start < segment.end_offset:
                self.find(OFFSETS, f"{what} was replaced, and {segment.path} has parts of it")
        added = [replacement_of(action.partition, segment, commit.version) for segment in action.added]
        copied: set[int] = set()
        for segment in added:
            self._check_fence(before, segment.path)
            for offset, record in self._read(action.topic, segment):
                if expected.records.get(offset) != record or offset not in expected.present or offset in copied:
                    self.find(CONTENT, f"{segment.path} has {record} at {offset}, not {expected.records.get(offset)}")
                copied.add(offset)
            self._live[segment.path] += 1
        for segment in old:
            self._release(segment.path)
        expected.segments = sorted([*expected.segments, *added], key=lambda segment: segment.base_offset)
        dropped = {offset for offset in expected.present if start <= offset < end} - copied
        config = TopicConfig.resolve(before.topic(action.topic).configs, before.configs)
        if COMPACT in config.cleanup_policy:
            expected.present -= dropped
            self._check_compacted(what, expected, dropped, config, commit.timestamp)
            if action.cleaned_offset >= 0:
                self._check_clean(what, expected, action.cleaned_offset)
            return
        deleted = {offset for offset in dropped if offset < expected.log_start}
        expected.present -= deleted  # by DeleteRecords, and a history segment is rewritten without them
        if dropped - deleted:
            self.find(
                CONTENT, f"{what} was replaced by {[s.path for s in added]}, without the offsets {sorted(dropped)}"
            )

    def _delete(self, before: State, action: DeleteSegments) -> None:
        expected = self.partition(action.topic, action.partition)
        what = f"{action.topic}-{action.partition} up to {action.end_offset}"
        old = self._remove(expected, 0, action.end_offset, action.removed, action.topic_id, what)
        for segment in old:
            self._release(segment.path)
        expected.present = {offset for offset in expected.present if offset >= action.end_offset}
        for segment in expected.segments:
            if segment.base_offset < action.end_offset:
                self.find(DELETED, f"{what} was deleted, and {segment.path} has parts of it")
        partition = before.partition(action.topic, action.partition)
        config = TopicConfig.resolve(before.topic(action.topic).configs, before.configs)
        remaining = sum(segment.size_bytes for segment in expected.segments)
        beyond_start = [segment for segment in old if segment.end_offset > partition.log_start_offset]
        if beyond_start and (config.retention_bytes < 0 or remaining < config.retention_bytes):
            self.find(
                DELETED,
                f"{what} was deleted; {remaining} bytes remain, less than retention.bytes {config.retention_bytes}",
            )

    def _release(self, path: str) -> None:
        self._live[path] -= 1
        if not self._live[path]:
            del self._live[path]

    def _remove(
        self, expected: ExpectedPartition, start: int, end: int, removed: RemovedSegments, topic_id: str, what: str
    ) -> list[Segment]:
        """Return the live segments within this range, and remove them from the live ones."""
        old = [segment for segment in expected.segments if start <= segment.base_offset and segment.end_offset <= end]
        expected.segments = [segment for segment in expected.segments if segment not in old]
        hashes = segment_checksum.total(segment_checksum.segment_hash(topic_id, segment) for segment in old)
        size = sum(segment.size_bytes for segment in old)
        counted = RemovedSegments(segments=len(old), size_bytes=size, checksum=segment_checksum.to_text(hashes))
        if counted != removed:
            self.find(REMOVED, f"{what} states {removed}, but {counted} were removed")
        return old

    def _check_checksum(self) -> None:
        hashes = [
            segment_checksum.segment_hash(self.state.topic(topic_partition.topic).topic_id, segment)
            for topic_partition, expected in self.partitions.items()
            for segment in expected.segments
        ]
        if segment_checksum.to_text(segment_checksum.total(hashes)) != self.state.checksum:
            self.find(CHECKSUM, f"the state says {self.state.checksum}")

    # -- compaction

    def _check_compacted(
        self, what: str, expected: ExpectedPartition, dropped: set[int], config: TopicConfig, now_ms: int
    ) -> None:
        lag_ms, keeps_ms = int(str(config.get("min.compaction.lag.ms"))), int(str(config.get("delete.retention.ms")))
        last = _last_by_key(expected, expected.records)
        remaining = {expected.records[offset].key for offset in expected.present}
        for offset in sorted(dropped):
            record = expected.records[offset]
            age_ms = now_ms - record.timestamp_us // 1000
            if age_ms < lag_ms:
                self.find(EARLY, f"{what}: {record} at {offset} is {age_ms} ms old, less than the lag of {lag_ms}")
            if last[record.key] != offset:
                continue
            if record.value is not None:
                self.find(LOST_RECORD, f"{what}: {record} at {offset}")
            elif now_ms - expected.appended_ms[offset] < keeps_ms:
                self.find(EARLY, f"{what}: tombstone {record} at {offset} is kept for {keeps_ms} ms")
            elif record.key in remaining:
                self.find(
                    BACK,
                    f"{what}: the tombstone of {record.key!r} at {offset} was removed before the records it deletes",
                )

    def _check_clean(self, what: str, expected: ExpectedPartition, cleaned_offset: int) -> None:
        keys = Counter(expected.records[offset].key for offset in expected.present if offset < cleaned_offset)
        twice = [key for key, times in keys.items() if times > 1]
        if twice:
            self.find(DIRTY, f"{what}: {twice} below {cleaned_offset}")

    # -- observations of clients

    def acknowledged(
        self, topic_partition: TopicPartition, base_offset: int, records: Sequence[Stored], by: str
    ) -> None:
        """Check records acknowledged at this offset, except their timestamps, which the topic may replace."""
        expected = self.partitions[topic_partition]
        for offset, sent in enumerate(records, base_offset):
            stored = expected.records.get(offset)
            if stored is None or stored[:2] != sent[:2]:
                self.find(UNACKNOWLEDGED, f"{sent} of {by} at {topic_partition} offset {offset}, where {stored} is")

    def check_read(
        self, topic_partition: TopicPartition, start: int, end: int, records: Sequence[tuple[int, Stored]], by: str
    ) -> None:
        """Check what a reader got for ``[start, end)``, a range within the log of the state it used."""
        expected = self.partitions[topic_partition]
        offsets = [offset for offset, _ in records]
        what = f"{by} read {topic_partition} from {start} to {end}"
        if offsets != sorted(set(offsets)) or (offsets and not start <= offsets[0] <= offsets[-1] < end):
            self.find(READ, f"{what} and got offsets {offsets}")
        wrong = [(offset, record) for offset, record in records if expected.records.get(offset) != record]
        if wrong:
            self.find(READ, f"{what}: {wrong[0]} is not {expected.records.get(wrong[0][0])}")
        got = set(offsets)
        missing = [offset for offset in expected.present if start <= offset < end and offset not in got]
        if missing:
            self.find(READ, f"{what} and got no offsets {sorted(missing)}")

    def check_out_of_range(self, topic_partition: TopicPartition, start: int, error: SparklogError, by: str) -> None:
        """Check an error which says that records from ``start`` are deleted."""
        if start >= self.partitions[topic_partition].log_start:
            self.find(READER_ERROR, f"{by}: {topic_partition} from {start}: {error!r}, but nothing was deleted there")

    # -- final checks

    def check_end(self) -> None:
        """Check after the run that every live file exists and no record is missing."""
        keys = {info.key for info in self._store.list("")}
        for path in self._live:
            for key in (path, index_path(path)):
                if key not in keys:
                    self.find(MISSING_FILE, f"{key} at the end")
        for topic_partition, expected in self.partitions.items():
            stored = {
                offset: record
                for segment in expected.segments
                for offset, record in self._read(topic_partition.topic, segment)
            }
            if {offset: expected.records.get(offset) for offset in expected.present} != stored:
                self.find(
                    CONTENT,
                    f"{topic_partition} has {len(stored)} records at the end instead of {len(expected.present)}",
                )
            if expected.segments and expected.segments[-1].end_offset > expected.end:
                self.find(OFFSETS, f"{topic_partition} has segments after its end {expected.end}")
            self._check_nothing_lost(topic_partition, expected)

    def _check_nothing_lost(self, topic_partition: TopicPartition, expected: ExpectedPartition) -> None:
        config = TopicConfig.resolve(self.state.topic(topic_partition.topic).configs, self.state.configs)
        kept = range(expected.log_start, expected.end)
        if COMPACT not in config.cleanup_policy and not expected.present.issuperset(kept):
            self.find(LOST_RECORD, f"{topic_partition}: {sorted(set(kept) - expected.present)}")
        for key, offset in _last_by_key(expected, kept).items() if COMPACT in config.cleanup_policy else ():
            if offset not in expected.present and expected.records[offset].value is not None:
                self.find(LOST_RECORD, f"{topic_partition}: the last record of {key!r} at {offset}")

    def check_listed(self, topic_partition: TopicPartition, segments: Iterable[Segment]) -> None:
        """Check the segment list of a newly opened cluster."""
        listed = list(segments)
        if listed != self.partitions[topic_partition].segments:
            self.find(LISTED, f"{topic_partition}: {listed} instead of {self.partitions[topic_partition].segments}")

    def check_leaked(self, allowed: Iterable[str] = ()) -> None:
        """Check after the last sweep and vacuum that there are only data files and listings that commits name."""
        keys = {info.key for info in self._store.list("")}
        named = {*allowed, *self._live, *map(index_path, self._live), *self.state.removed_files}
        others = ("cluster.json", "meta/boundary.json", CLOCK_KEY, COMMITS, CHECKPOINTS)
        leaked = [key for key in keys if key not in named and not key.startswith(others) and not is_table_log(key)]
        if leaked or self.state.removed_files:
            self.find(LEAKED, f"{sorted(leaked)}, listings {sorted(self.state.removed_files)}")


def rows(offsets: Sequence[int], batch: object) -> list[tuple[int, Stored]]:
    """Return Arrow records as (offset, record)."""
    columns = batch.to_pydict()  # type: ignore[attr-defined]
    count = len(offsets)
    keys, values = columns.get("key", [None] * count), columns.get("value", [None] * count)
    stamps = batch.column("timestamp").view("int64").to_pylist()  # type: ignore[attr-defined]
    return [(offset, Stored(*record)) for offset, *record in zip(offsets, keys, values, stamps, strict=True)]


def _last_by_key(expected: ExpectedPartition, offsets: Iterable[int]) -> dict[bytes | None, int]:
    """Return the last offset of each key among the readable records; unreadable files are separate findings."""
    return {expected.records[offset].key: offset for offset in sorted(offsets) if offset in expected.records}


def _log_of(key: str) -> str:
    return key.removesuffix(".index") + ".log" if key.endswith(".index") else key
