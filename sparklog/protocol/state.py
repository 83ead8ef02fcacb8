"""The state of a cluster: what the commits 0..version add up to.

These are the heads alone: small, immutable, held whole by every process that commits. The lists of segments are large,
are kept per topic beside the heads (``log.segments``), and are loaded only for the topics in hand.

Immutable: a new state shares with the old one what did not change, so a state held by a reader is a consistent snapshot
of every topic for as long as the reader keeps it. Thread-safe for that reason.

Maps that grow with the cluster are persistent (``immutables.Map``): a change of one entry costs the same whatever their
size. They are mappings like any other, but they iterate in no order that means anything and that two processes share:
sort where order matters. Small ones are plain dicts, which nobody changes.
"""

from __future__ import annotations

from typing import Any

import msgspec
from immutables import Map

from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.protocol import levels
from sparklog.protocol.commits import GENESIS_DIGEST, WrittenRange

NO_TIMESTAMP_US = -(2**63)
"""``max_timestamp_us`` of a partition without records."""

EMPTY: Map[Any, Any] = Map()


class _Frozen(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Common settings of the parts of the state. What is immutable is part of no cycle, so the collector of cycles has
    no business with the hundreds of thousands that there may be."""


class SequenceRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One remembered append of a producer: sequences ``first..last`` got the offsets from ``base_offset`` on."""

    first: int
    last: int
    base_offset: int
    records: int


class PartitionProducer(_Frozen, frozen=True, kw_only=True):
    """What a partition knows of one idempotent producer: its epoch and its latest appends, newest last."""

    epoch: int
    appends: tuple[SequenceRange, ...]
    timestamp_ms: int


class SegmentChange(msgspec.Struct, frozen=True, array_like=True):
    """A commit other than an append changed which segments make up offsets ``[start, end)``."""

    version: int
    start: int
    end: int


class PartitionState(_Frozen, frozen=True, kw_only=True):
    """One partition: who holds it, and how far its log goes.

    Offsets are records: readable are ``[log_start_offset, log_end_offset)``; the high watermark is the log end offset,
    since only committed records have offsets at all. ``size_bytes`` is that of the live ``.log`` runs.

    ``isr`` are the replicas that hold every live segment, ``leader`` is one of them, -1 where none is left. ``adding``
    and ``removing`` are what a reassignment under way does. ``cleaned_offset``: compaction has been through the records
    before it. ``changes`` are the latest ``limits.SEGMENT_CHANGES_KEPT`` replacements and deletions, oldest first.
    ``followed_from``: appends from this offset on were written to that replica too, which is not in sync yet.
    ``producers_forgotten_at`` is the version of the newest commit that forgot a producer of this partition (-1: none).
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

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset


class TopicState(_Frozen, frozen=True, kw_only=True):
    """One topic. ``checksum`` is that of its live segments, so a deletion need not load them."""

    name: str
    topic_id: str
    created_ms: int
    partitions: tuple[PartitionState, ...]
    configs: dict[str, str] = {}
    checksum: str = "0" * 32


class BrokerState(_Frozen, frozen=True, kw_only=True):
    """A storage location; an empty ``url`` is the root itself. ``online`` is what its latest check said.

    A ``cordoned`` one keeps its replicas and gets no new ones. At version ``lost_files_at`` it was found to have lost
    files, or moved (-1: never): files begun before may be missing, whoever wrote them there.
    """

    broker: int
    url: str = ""
    online: bool = True
    cordoned: bool = False
    lost_files_at: int = -1


class ControllerState(_Frozen, frozen=True, kw_only=True):
    """The coordinator that watches the brokers; only the newest epoch may change leadership. Epoch 0: none yet."""

    controller: str = ""
    epoch: int = 0


class RemovedFiles(_Frozen, frozen=True, kw_only=True):
    """Files that are out of the log since ``version`` and may be deleted from ``delete_at_ms`` on."""

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
    """The newest numbered write of an application and what it got."""

    version: int
    commit_version: int
    ranges: tuple[WrittenRange, ...]
    source_digest: str = ""


class GroupOffset(_Frozen, frozen=True, kw_only=True):
    """A group's next offset in one partition of the topic that has this id."""

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
    """A member of a group. It holds ``assigned`` and ``revoking``: nobody else may have these.

    ``assigned`` it reads for as long as it likes; ``revoking`` it gives up as soon as it can. Timeouts are in ms.
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
    """A consumer group: its members, who is to have what in this generation, and its committed offsets.

    ``target`` is the assignor's answer by member; a member's share of it that another member still holds is handed out
    once that one lets go. ``offsets`` are keyed ``topic_id:partition``. ``empty_since_ms``: when the last member left.
    """

    generation: int = 0
    assignor: str = ""
    members: dict[str, MemberState] = {}
    target: dict[str, Partitions] = {}
    offsets: Map[str, GroupOffset] = EMPTY
    empty_since_ms: int = 0

    @property
    def name_of_state(self) -> str:
        """``Empty``, ``PreparingRebalance`` or ``Stable``, as Kafka calls it."""
        if not self.members:
            return "Empty"
        settled = all(member.assigned == self.target.get(name, {}) for name, member in self.members.items())
        return "Stable" if settled else "PreparingRebalance"


class Indexes(_Frozen, frozen=True, kw_only=True):
    """What follows from the rest of the state, kept so that nobody has to look through all of it (see ``indexes``).

    ``transactional_ids``: the producer of each. ``topic_names``: topics by what their names collide under.
    ``subscribers``: the groups with a member that subscribes to a topic, by its name. ``offsets``: how many offsets
    each group has of a topic, by its id.
    """

    transactional_ids: Map[str, int] = EMPTY
    topic_names: Map[str, str] = EMPTY
    subscribers: Map[str, Map[str, bool]] = EMPTY
    offsets: Map[str, Map[str, int]] = EMPTY


class State(_Frozen, frozen=True, kw_only=True):
    """A cluster at one version. ``version`` -1 is the empty cluster before its first commit.

    ``removed_files`` are by the key of their listing. Files begun at or before version ``writer_fence`` cannot be
    appended any more. ``moved_to`` is the root where the cluster goes on, empty where this is it. ``level`` is the
    highest of its commits (see ``levels``). ``indexes`` follow from the rest and are not stored.
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
        """The topic, or UnknownTopicOrPartitionError."""
        found = self.topics.get(name)
        if found is None:
            raise UnknownTopicOrPartitionError(
                f"topic {name!r} does not exist at version {self.version}; `sparklog topics --list` shows what does",
                topic=name,
            )
        return found

    def topics_in_order(self) -> list[TopicState]:
        """All topics by name."""
        return [self.topics[name] for name in sorted(self.topics)]

    def partition(self, topic: str, partition: int) -> PartitionState:
        """The partition, or UnknownTopicOrPartitionError."""
        partitions = self.topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has partitions 0 to {len(partitions) - 1}, not {partition}",
                topic=topic,
                partition=partition,
            )
        return partitions[partition]
