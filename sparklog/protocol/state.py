"""The state of a cluster: the result of folding commits 0 to version.

It contains no segments, so it is small enough for every process that commits to hold it whole. The lists of segments
are large, are kept per topic (``log.segments``), and are loaded only for the topics that are needed.

Immutable, and therefore thread-safe: a new state shares unchanged parts with the old one, so a state held by a reader
is a consistent snapshot of every topic for as long as the reader keeps it.

Maps that grow with the cluster are persistent (``immutables.Map``): changing one entry costs the same whatever their
size. Their iteration order is arbitrary and differs between processes: sort where order matters. Small ones are plain
dicts, which are never modified. Not for: how commits change it (``fold``).
"""

from __future__ import annotations

from typing import Any

import msgspec
from immutables import Map

from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.protocol import levels
from sparklog.protocol.commits import GENESIS_DIGEST, WrittenRange
from sparklog.types import TopicPartition

NO_TIMESTAMP_US = -(2**63)
"""``max_timestamp_us`` of a partition without records."""

EMPTY: Map[Any, Any] = Map()


class _Frozen(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base class of the parts of the state. Immutable objects form no cycles, so the garbage collector need not track
    the hundreds of thousands that there may be."""


class SequenceRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One recorded append of a producer: sequences ``first..last`` got the offsets from ``base_offset`` on."""

    first: int
    last: int
    base_offset: int
    records: int


class PartitionProducer(_Frozen, frozen=True, kw_only=True):
    """State of one idempotent producer in a partition: its epoch and its latest appends, newest last."""

    epoch: int
    appends: tuple[SequenceRange, ...]
    timestamp_ms: int


class SegmentChange(msgspec.Struct, frozen=True, array_like=True):
    """A commit replaced or deleted segments of offsets ``[start, end)``."""

    version: int
    start: int
    end: int


class PartitionState(_Frozen, frozen=True, kw_only=True):
    """One partition: its replicas and its offsets.

    Records ``[log_start_offset, log_end_offset)`` are readable; the high watermark is the log end offset, since only
    committed records have offsets at all. ``size_bytes`` is the total of the live ``.log`` runs.

    ``isr`` are the replicas that hold every live segment, ``leader`` is one of them, -1 if none is available.
    ``adding`` and ``removing`` belong to a reassignment in progress. Records before ``cleaned_offset`` have been
    compacted. ``changes`` are the latest ``limits.SEGMENT_CHANGES_KEPT`` replacements and deletions, oldest first.
    ``followed_from`` maps a replica that is not in sync to the offset from which on every append was written to it too.
    ``producers_forgotten_at`` is the version of the newest commit that forgot a producer of this partition (-1: none).
    ``unfit`` is the number of records in history segments that do not fit the topic's schema.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    segments: int = 0
    size_bytes: int = 0
    max_timestamp_us: int = NO_TIMESTAMP_US
    producers: Map[int, PartitionProducer] = EMPTY
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    cleaned_offset: int = 0
    changes: tuple[SegmentChange, ...] = ()
    followed_from: dict[int, int] = {}
    producers_forgotten_at: int = -1
    unfit: int = 0

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset


class SchemaVersion(_Frozen, frozen=True, kw_only=True):
    """A version of a topic's schema: its text as stored in the config, and the commit that first set it.

    ``ids`` are the ids that it has in schema registries, which writers put in front of values.
    """

    text: str
    version: int
    timestamp_ms: int
    ids: tuple[int, ...] = ()


class TopicState(_Frozen, frozen=True, kw_only=True):
    """One topic. ``checksum`` is that of its live segments, so a deletion need not load them.

    ``schemas`` are the versions of its schemas, by config, oldest first: number 1 is the first (``schema_versions``).
    """

    name: str
    topic_id: str
    created_ms: int
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str] = {}
    checksum: str = "0" * 32
    schemas: dict[str, tuple[SchemaVersion, ...]] = {}


class BrokerState(_Frozen, frozen=True, kw_only=True):
    """A storage location; an empty ``url`` is the root itself. ``online`` is the result of its latest check.

    A ``cordoned`` one keeps its replicas and gets no new ones. At version ``lost_files_at`` it was found to have lost
    files, or was moved (-1: never): any file begun before may be missing.
    """

    broker: int
    url: str = ""
    online: bool = True
    cordoned: bool = False
    lost_files_at: int = -1


class ControllerState(_Frozen, frozen=True, kw_only=True):
    """The coordinator that checks the brokers; only the newest epoch may change leaders. Epoch 0: none yet."""

    controller: str = ""
    epoch: int = 0


class RemovedFiles(_Frozen, frozen=True, kw_only=True):
    """Files retired at ``version`` that may be deleted from ``delete_at_ms`` on."""

    version: int
    delete_at_ms: int
    files: int
    size_bytes: int


class ProducerState(_Frozen, frozen=True, kw_only=True):
    """A transactional producer's id and the only epoch that may still write.

    ``committed_epoch`` is that of its newest transaction, -1 before the first; ``timestamp_ms`` of the last change.
    """

    epoch: int
    transactional_id: str = ""
    committed_epoch: int = -1
    timestamp_ms: int = 0


class ApplicationState(_Frozen, frozen=True, kw_only=True):
    """The newest numbered write of an application and its result."""

    version: int
    commit_version: int
    ranges: tuple[WrittenRange, ...]
    source_digest: str = ""


def offset_key(topic_id: str, partition: int) -> str:
    """Return the key of a group's offset in ``GroupState.offsets``."""
    return f"{topic_id}:{partition}"


class GroupOffset(_Frozen, frozen=True, kw_only=True):
    """A group's next offset in one partition of the topic with this id."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    timestamp_ms: int


Partitions = dict[str, tuple[int, ...]]
"""Partition numbers by topic."""


class MemberState(_Frozen, frozen=True, kw_only=True):
    """A member of a group. It holds ``assigned`` and ``revoking``: no other member may have these partitions.

    It reads those in ``assigned``, and must release those in ``revoking`` as soon as it can. Timeouts are in ms.
    """

    instance_id: str = ""
    client_id: str = ""
    host: str = ""
    topics: tuple[str, ...] = ()
    assignors: tuple[str, ...] = ()
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = 0
    assigned: Partitions = {}
    revoking: Partitions = {}


class GroupState(_Frozen, frozen=True, kw_only=True):
    """A consumer group: its members, the target assignment of this generation, and its committed offsets.

    ``target`` is the assignor's result by member; partitions of it that another member still holds are assigned once
    that member releases them. ``offsets`` have the keys of ``offset_key``. ``empty_since_ms``: when the last member
    left.
    """

    generation: int = 0
    assignor: str = ""
    members: dict[str, MemberState] = {}
    target: dict[str, Partitions] = {}
    offsets: Map[str, GroupOffset] = EMPTY
    empty_since_ms: int = 0

    @property
    def name_of_state(self) -> str:
        """``Empty``, ``PreparingRebalance`` or ``Stable``, as in Kafka."""
        if not self.members:
            return "Empty"
        settled = all(member.assigned == self.target.get(name, {}) for name, member in self.members.items())
        return "Stable" if settled else "PreparingRebalance"


class Indexes(_Frozen, frozen=True, kw_only=True):
    """Indexes derived from the rest of the state, so that lookups need no search (see ``indexes``).

    ``transactional_ids``: producer ids by transactional id. ``topic_names``: topics by the key under which names
    collide. ``subscribers``: by topic name, the groups with a member that subscribes to it. ``offsets``: by topic id,
    the number of offsets that each group has of it.
    """

    transactional_ids: Map[str, int] = EMPTY
    topic_names: Map[str, str] = EMPTY
    subscribers: Map[str, Map[str, bool]] = EMPTY
    offsets: Map[str, Map[str, int]] = EMPTY


class State(_Frozen, frozen=True, kw_only=True):
    """A cluster at one version. ``version`` -1 is the empty cluster before its first commit.

    ``removed_files`` are keyed by their listing. Files begun at or before version ``writer_fence`` can no longer be
    appended. ``moved_to`` is the root where the cluster continues, empty if it is this one. ``level`` is the highest of
    its commits (see ``levels``). ``indexes`` are derived and not stored.
    """

    cluster_id: str
    version: int = -1
    timestamp_ms: int = 0
    digest: str = GENESIS_DIGEST
    checksum: str = "0" * 32
    next_producer_id: int = 0
    topics: Map[str, TopicState] = EMPTY
    brokers: dict[int, BrokerState] = {}
    configs: dict[str, str] = {}
    producers: Map[int, ProducerState] = EMPTY
    applications: Map[str, ApplicationState] = EMPTY
    groups: Map[str, GroupState] = EMPTY
    removed_files: Map[str, RemovedFiles] = EMPTY
    controller: ControllerState = ControllerState()
    writer_fence: int = -1
    moved_to: str = ""
    level: int = levels.FIRST
    indexes: Indexes = Indexes()

    def topic(self, name: str) -> TopicState:
        """Return the topic, or raise UnknownTopicOrPartitionError."""
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(
                f"topic {name!r} does not exist at version {self.version}; `sparklog topics --list` shows the topics",
                topic=name,
            )
        return topic

    def committed(self, group: str, topic: str, partition: int) -> GroupOffset | None:
        """Return a group's offset in the current topic of this name, None without one or without such a group."""
        group_state, topic_state = self.groups.get(group), self.topics.get(topic)
        if group_state is None or topic_state is None:
            return None
        return group_state.offsets.get(offset_key(topic_state.topic_id, partition))

    def committed_offsets(self, group: str) -> dict[TopicPartition, GroupOffset]:
        """Return a group's offsets in existing topics; those of a topic that was deleted or recreated do not count."""
        return {
            TopicPartition(offset.topic, offset.partition): offset
            for _, offset in sorted(self.groups.get(group, GroupState()).offsets.items())
            if self.committed(group, offset.topic, offset.partition) is offset
        }

    def topics_in_order(self) -> list[TopicState]:
        """Return all topics, sorted by name."""
        return [self.topics[name] for name in sorted(self.topics)]

    def find_partition(self, topic: str, partition: int) -> PartitionState | None:
        """Return the partition, None if there is none with this number in an existing topic."""
        partitions = self.topics[topic].partitions if topic in self.topics else ()
        return partitions[partition] if 0 <= partition < len(partitions) else None

    def partition(self, topic: str, partition: int) -> PartitionState:
        """Return the partition, or raise UnknownTopicOrPartitionError."""
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise missing_partition(topic, partition, len(partitions))
        return partitions[partition]


def missing_partition(topic: str, partition: int, count: int) -> UnknownTopicOrPartitionError:
    """Return the error for a partition that a topic of ``count`` partitions lacks."""
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}", topic=topic, partition=partition
    )
