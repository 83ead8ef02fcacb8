"""One commit: the only thing that ever changes a cluster, and every action it may hold.

It carries any number of actions that take effect together. Every field has bounds (``bounds``); unknown ones are
refused, since ignoring one could mean ignoring a change. How a commit is stored is for ``commit_bytes``.

Not for: what a commit means (``fold``) or which one to write (``decide``).
"""

from __future__ import annotations

import msgspec

from sparklog.protocol.bounds import (
    ActionsPath,
    ActionsSize,
    Assignment,
    Assignors,
    Batches,
    BatchNumber,
    Broker,
    Brokers,
    Bytes,
    ConfigNames,
    Configs,
    Files,
    Format,
    Group,
    Hex32,
    Hex32OrEmpty,
    Hex64,
    IntOrNone,
    LeaderEpoch,
    LogOffset,
    LogOffsetOrNone,
    Long,
    Milliseconds,
    Name,
    NeededVersion,
    Offset,
    Partition,
    ProducerEpoch,
    ProducerEpochOrNone,
    ProducerId,
    ProducerIdOrNone,
    RecordCount,
    Records,
    Row,
    Text,
    Timestamp,
    TopicName,
    Version,
)

GENESIS_DIGEST = "0" * 64
"""``previous`` of the first commit of a cluster."""


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Common settings of everything stored in a commit."""


class Run(_Struct, frozen=True, kw_only=True):
    """A run of record batches in one ``.log`` file on one broker: what one append added to one partition.

    Normally a whole file; several runs share a file when one task wrote to many partitions. Row ``first_row`` of the
    file is the run's first record, so record ``offset = base_offset + (row - first_row)``. Sizes are bytes of the
    ``.log``, timestamps microseconds since the epoch. ``replicas`` are the brokers that hold the file under this path
    when there are several, ``broker`` among them; empty means ``broker`` alone.
    """

    path: Name
    broker: Broker = 0
    replicas: Brokers = []
    first_batch: BatchNumber = 0
    batches: Batches
    first_row: Row = 0
    records: Records
    size_bytes: Bytes
    min_timestamp_us: Long
    max_timestamp_us: Long


class _Action(_Struct, frozen=True, tag_field="action"):
    """One change; the ``action`` field says which."""


class RegisterBroker(_Action, tag="register_broker", frozen=True, kw_only=True):
    """A storage location joins; ``url`` of broker 0 is empty: the root itself, wherever it is mounted."""

    broker: Broker
    url: Text = ""


class UnregisterBroker(_Action, tag="unregister_broker", frozen=True, kw_only=True):
    """A storage location that holds no replica any more leaves."""

    broker: Broker


class ChangeBroker(_Action, tag="change_broker", frozen=True, kw_only=True):
    """What is known of a location changes: ``online`` is what its checks say, a ``cordoned`` one gets no new replicas.

    ``url`` moves it, and is empty where it stays. Left out fields do not change. ``lost_files``: it was found to hold
    less than it did, so nothing counts that was known of it or written to it before.
    """

    broker: Broker
    online: bool | None = None
    cordoned: bool | None = None
    url: Text = ""
    lost_files: bool = False


class ElectController(_Action, tag="elect_controller", frozen=True, kw_only=True):
    """A coordinator takes over the controller's work; a higher epoch fences the controllers before it."""

    controller: Name
    controller_epoch: LeaderEpoch


class ChangePartition(_Action, tag="change_partition", frozen=True, kw_only=True):
    """Leadership, in-sync replicas or replicas of a partition change; lists are whole, ``leader`` -1 means none.

    ``adding`` and ``removing`` are the replicas that a reassignment under way brings and takes; while there is one,
    ``replicas`` holds both kinds.
    """

    topic: TopicName
    topic_id: Name
    partition: Partition
    leader: IntOrNone
    leader_epoch: LeaderEpoch
    isr: Brokers
    replicas: Brokers
    adding: Brokers = []
    removing: Brokers = []


class CreateTopic(_Action, tag="create_topic", frozen=True, kw_only=True):
    """A topic with one replica list per partition; the first replica is the preferred leader."""

    topic: TopicName
    topic_id: Name
    replicas: Assignment
    configs: Configs = {}


class CreatePartitions(_Action, tag="create_partitions", frozen=True, kw_only=True):
    """Partitions added after the existing ones."""

    topic: TopicName
    topic_id: Name
    replicas: Assignment


class DeleteTopic(_Action, tag="delete_topic", frozen=True, kw_only=True):
    """A topic and all its records leave the log; its files become orphans."""

    topic: TopicName
    topic_id: Name


class AlterConfig(_Action, tag="alter_config", frozen=True, kw_only=True):
    """Dynamic configs of a topic, or of the whole cluster when ``topic`` is empty."""

    topic: Text = ""
    set: Configs = {}
    delete: ConfigNames = []


class Append(_Action, tag="append", frozen=True, kw_only=True):
    """Records ``[base_offset, base_offset + run.records)`` of one partition.

    ``log_append_time`` says that the commit's timestamp is every record's timestamp. The producer fields are Kafka's;
    -1 where the producer is not idempotent. ``base_sequence`` counts records, and wraps after 2^31 - 1.
    """

    topic: TopicName
    topic_id: Name
    partition: Partition
    base_offset: LogOffset
    leader_epoch: LeaderEpoch = 0
    run: Run
    log_append_time: bool = False
    producer_id: ProducerIdOrNone = -1
    producer_epoch: ProducerEpochOrNone = -1
    base_sequence: IntOrNone = -1


class LiveSegment(_Struct, frozen=True, kw_only=True):
    """A segment that takes the place of others: records of offsets ``[base_offset, end_offset)``, all in ``run``.

    Where ``run.records`` is less than the range, compaction left gaps, and the file says each record's offset.
    ``append_time``: the timestamps in the file are those of the commits that appended the records. A ``closed`` one is
    a segment in Kafka's sense that nothing is added to; one that is not is part of the active segment.
    ``delete_horizon_ms`` is the time after which its tombstones may go, -1 where it has none or it is not known yet.
    """

    base_offset: LogOffset
    end_offset: LogOffset
    leader_epoch: LeaderEpoch = 0
    append_time: bool = False
    closed: bool = True
    delete_horizon_ms: Long = -1
    run: Run


class RemovedSegments(_Struct, frozen=True, kw_only=True):
    """What the segments amount to that leave the log: how many, bytes of their runs, sum of their hashes."""

    segments: Files
    size_bytes: Bytes
    checksum: Hex32


class ReplaceSegments(_Action, tag="replace_segments", frozen=True, kw_only=True):
    """The segments that make up offsets ``[start_offset, end_offset)`` of a partition give way to others.

    Offsets of records never change; those that ``added`` does not hold are gone. Both ends are ends of live segments.
    ``cleaned_offset`` is where the part that compaction has been through ends, -1 where that does not change.
    """

    topic: TopicName
    topic_id: Name
    partition: Partition
    start_offset: LogOffset
    end_offset: LogOffset
    removed: RemovedSegments
    added: list[LiveSegment] = []
    cleaned_offset: LogOffsetOrNone = -1


class DeleteSegments(_Action, tag="delete_segments", frozen=True, kw_only=True):
    """The oldest segments of a partition, all that end at or before ``end_offset``, leave the log.

    The log starts at ``end_offset`` then, or where it started before if that is later.
    """

    topic: TopicName
    topic_id: Name
    partition: Partition
    end_offset: LogOffset
    removed: RemovedSegments


class DeleteRecords(_Action, tag="delete_records", frozen=True, kw_only=True):
    """The log of a partition starts at ``log_start_offset`` from now on; segments below it leave it later."""

    topic: TopicName
    topic_id: Name
    partition: Partition
    log_start_offset: Offset


class RemoveFiles(_Action, tag="remove_files", frozen=True, kw_only=True):
    """Files that this commit takes out of the log, named in the object ``listing``, may go after ``delay_ms``."""

    listing: Name
    files: Files
    size_bytes: Bytes
    delay_ms: Milliseconds


class ForgetRemovedFiles(_Action, tag="forget_removed_files", frozen=True, kw_only=True):
    """The files of these listings are deleted."""

    listings: list[Name]


class FenceWriters(_Action, tag="fence_writers", frozen=True, kw_only=True):
    """Files that were begun at this version of the cluster or before can no longer become part of the log.

    So those that are not part of it by now never will be, and may be deleted.
    """

    version: Version


class MoveCluster(_Action, tag="move_cluster", frozen=True, kw_only=True):
    """The cluster goes on at the root ``url``, and no commit follows here; empty where it has arrived."""

    url: Text = ""


class ResetTime(_Action, tag="reset_time", frozen=True, kw_only=True):
    """The log's time was ahead and goes back to ``time_ms``, which is this commit's timestamp."""

    time_ms: Timestamp


class WrittenRange(_Struct, frozen=True, kw_only=True):
    """What an application's write added to one partition."""

    topic: TopicName
    topic_id: Name
    partition: Partition
    base_offset: LogOffset
    records: RecordCount


class ApplicationWrite(_Action, tag="application_write", frozen=True, kw_only=True):
    """An application's numbered write happened in this commit; the same or a lower number is never written again.

    ``source_digest`` is one of what the write was made from, where the writer can tell: the same write has the same.
    """

    application: Name
    application_version: Long
    ranges: list[WrittenRange] = []
    source_digest: Hex32OrEmpty = ""


class InitProducer(_Action, tag="init_producer", frozen=True, kw_only=True):
    """A producer id in its next epoch; a higher epoch fences the lower ones.

    ``committed_epoch`` is the epoch whose transaction this very commit is, -1 where it is none.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: Text = ""
    committed_epoch: ProducerEpochOrNone = -1


class ForgetProducers(_Action, tag="forget_producers", frozen=True, kw_only=True):
    """These transactional producers have been silent for long, or are to be forgotten: what they have not committed yet
    never is. A transactional id that comes back gets a new producer id.
    """

    producers: list[ProducerId]


class ForgetPartitionProducers(_Action, tag="forget_partition_producers", frozen=True, kw_only=True):
    """A partition remembers the appends of these producers no longer: one that is repeated would be stored twice."""

    topic: TopicName
    topic_id: Name
    partition: Partition
    producers: list[ProducerId]


class ForgetApplications(_Action, tag="forget_applications", frozen=True, kw_only=True):
    """Nothing is known any more of these applications' writes: one that is repeated would be stored twice."""

    applications: list[Name]


class CommittedOffset(_Struct, frozen=True, kw_only=True):
    """A group's position in one partition: the next offset to read."""

    topic: TopicName
    topic_id: Name
    partition: Partition
    offset: Offset
    leader_epoch: IntOrNone = -1
    metadata: Text = ""


class CommitOffsets(_Action, tag="commit_offsets", frozen=True, kw_only=True):
    """Positions of a consumer group; generation -1 is a commit from outside the group's membership."""

    group: Group
    generation: IntOrNone = -1
    offsets: list[CommittedOffset]


class JoinGroup(_Action, tag="join_group", frozen=True, kw_only=True):
    """A member joins a group, or changes what it subscribes to; timeouts are milliseconds.

    ``assignors`` are those it has, best first. A member with an ``instance_id`` that another one has takes its place.
    """

    group: Group
    member: Name
    instance_id: Text = ""
    client_id: Text = ""
    host: Text = ""
    topics: list[TopicName] = []
    assignors: Assignors = []
    session_timeout_ms: Milliseconds = 0
    rebalance_timeout_ms: Milliseconds = 0


class LeaveGroup(_Action, tag="leave_group", frozen=True, kw_only=True):
    """Members are gone; ``reason`` tells people why."""

    group: Group
    members: list[Name]
    reason: Text = ""


class AcknowledgeRevocation(_Action, tag="acknowledge_revocation", frozen=True, kw_only=True):
    """A member has stopped reading what it had to give up; others may have it."""

    group: Group
    member: Name


class DeleteGroup(_Action, tag="delete_group", frozen=True, kw_only=True):
    """A group without members is forgotten with its offsets."""

    group: Group


class GroupPartition(_Struct, frozen=True, kw_only=True):
    """A partition that a group has an offset of."""

    topic: TopicName
    topic_id: Name
    partition: Partition


class DeleteOffsets(_Action, tag="delete_offsets", frozen=True, kw_only=True):
    """Positions of a group are forgotten."""

    group: Group
    partitions: list[GroupPartition]


Action = (
    RegisterBroker
    | CreateTopic
    | CreatePartitions
    | DeleteTopic
    | AlterConfig
    | Append
    | ApplicationWrite
    | InitProducer
    | CommitOffsets
    | JoinGroup
    | LeaveGroup
    | AcknowledgeRevocation
    | DeleteGroup
    | DeleteOffsets
    | ReplaceSegments
    | DeleteSegments
    | DeleteRecords
    | RemoveFiles
    | ForgetRemovedFiles
    | FenceWriters
    | UnregisterBroker
    | ChangeBroker
    | ElectController
    | ChangePartition
    | MoveCluster
    | ForgetProducers
    | ForgetPartitionProducers
    | ForgetApplications
    | ResetTime
)


class SpilledActions(_Struct, frozen=True, kw_only=True):
    """Where the actions of a commit are that are too many to lie in it: an object of ``size`` bytes at ``path``.

    It holds a JSON array of ``count`` actions, and ``sha256`` is the hash of all its bytes.
    """

    path: ActionsPath
    size: ActionsSize
    sha256: Hex64
    count: Files


class Commit(_Struct, frozen=True, kw_only=True):
    """One atomic change of the cluster.

    ``version`` numbers commits from 0 without gaps. ``timestamp`` is milliseconds and grows with every commit, also
    when clocks go back, but for one that has ``ResetTime``. ``checksum`` is that of all live segments once the commit
    is applied (see ``checksum``). ``format`` is the level it is written in, ``needs`` the oldest version of sparklog
    that reads that (see ``levels``). ``writer`` tells people who wrote it; nothing depends on it. Where ``spilled`` is
    set, ``actions`` is empty as stored, and the actions are in the object that it names.
    """

    format: Format
    needs: NeededVersion = ""
    version: Version
    write_id: Name
    timestamp: Timestamp
    previous: Hex64
    checksum: Hex32
    writer: Text = ""
    actions: list[Action]
    spilled: SpilledActions | None = None


def commit_key(version: int) -> str:
    """Where a commit is stored below the root: ``meta/commits/00000000000000000042.json``."""
    return f"meta/commits/{version:020d}.json"
