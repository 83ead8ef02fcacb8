"""Commits, the only way to change a cluster, and every action that a commit may hold.

A commit holds any number of actions that take effect together. Every field has bounds (``bounds``); unknown fields are
refused, since ignoring one could mean ignoring a change.

Not for: the stored bytes (``commit_bytes``), the effect of a commit (``fold``), what to commit (``decide``).
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
    """Base class of everything stored in a commit."""


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


class _TopicAction(_Action, frozen=True, kw_only=True):
    """A change of one topic. The id tells it from an earlier or later topic of the same name."""

    topic: TopicName
    topic_id: Name


class PartitionAction(_TopicAction, frozen=True, kw_only=True):
    """A change of one partition."""

    partition: Partition


class RegisterBroker(_Action, tag="register_broker", frozen=True, kw_only=True):
    """A storage location is registered; ``url`` of broker 0 is empty: the root itself, wherever it is mounted."""

    broker: Broker
    url: Text = ""


class UnregisterBroker(_Action, tag="unregister_broker", frozen=True, kw_only=True):
    """A storage location that holds no replica is removed."""

    broker: Broker


class ChangeBroker(_Action, tag="change_broker", frozen=True, kw_only=True):
    """A location changes: ``online`` is the result of its checks, a ``cordoned`` one gets no new replicas.

    A ``url`` that is not empty moves it. Omitted fields do not change. ``lost_files``: the location was found to hold
    less than before, so nothing that was known about it or written to it before counts.
    """

    broker: Broker
    online: bool | None = None
    cordoned: bool | None = None
    url: Text = ""
    lost_files: bool = False


class ElectController(_Action, tag="elect_controller", frozen=True, kw_only=True):
    """A coordinator becomes the controller; a higher epoch fences earlier controllers."""

    controller: Name
    controller_epoch: LeaderEpoch


class ChangePartition(PartitionAction, tag="change_partition", frozen=True, kw_only=True):
    """Leader, in-sync replicas or replicas of a partition change; lists are complete, ``leader`` -1 means none.

    ``adding`` and ``removing`` are the replicas that a reassignment in progress adds and removes; meanwhile
    ``replicas`` contains both.
    """

    leader: IntOrNone
    leader_epoch: LeaderEpoch
    isr: Brokers
    replicas: Brokers
    adding: Brokers = []
    removing: Brokers = []


class CreateTopic(_TopicAction, tag="create_topic", frozen=True, kw_only=True):
    """A topic with one replica list per partition; the first replica is the preferred leader."""

    replicas: Assignment
    configs: Configs = {}


class CreatePartitions(_TopicAction, tag="create_partitions", frozen=True, kw_only=True):
    """Partitions added after the existing ones."""

    replicas: Assignment


class DeleteTopic(_TopicAction, tag="delete_topic", frozen=True, kw_only=True):
    """A topic and all its records leave the log; its files become orphans."""


class AlterConfig(_Action, tag="alter_config", frozen=True, kw_only=True):
    """Dynamic configs of a topic, or of the whole cluster when ``topic`` is empty."""

    topic: Text = ""
    set: Configs = {}
    delete: ConfigNames = []


class Append(PartitionAction, tag="append", frozen=True, kw_only=True):
    """Records ``[base_offset, base_offset + run.records)`` of one partition.

    With ``log_append_time`` the commit's timestamp is every record's timestamp. The producer fields are Kafka's;
    -1 where the producer is not idempotent. ``base_sequence`` counts records, and wraps after 2^31 - 1.
    """

    base_offset: LogOffset
    leader_epoch: LeaderEpoch = 0
    run: Run
    log_append_time: bool = False
    producer_id: ProducerIdOrNone = -1
    producer_epoch: ProducerEpochOrNone = -1
    base_sequence: IntOrNone = -1


class LiveSegment(_Struct, frozen=True, kw_only=True):
    """A segment that replaces others: records of offsets ``[base_offset, end_offset)``, all in ``run``.

    If ``run.records`` is less than the range, compaction left gaps, and the file contains each record's offset.
    ``append_time``: the timestamps in the file are those of the commits that appended the records. A ``closed`` one is
    a complete segment in Kafka's sense; one that is not is part of the active segment. ``delete_horizon_ms`` is the
    time after which its tombstones may be removed, -1 if it has none or it is not known yet. For a history
    segment, ``stats`` are its statistics as a Delta table states them of a file, ``file_bytes`` is the file's size, and
    ``unfit`` the number of its records that do not fit the topic's schema.
    """

    base_offset: LogOffset
    end_offset: LogOffset
    leader_epoch: LeaderEpoch = 0
    append_time: bool = False
    closed: bool = True
    delete_horizon_ms: Long = -1
    stats: Text = ""
    file_bytes: Bytes = 0
    unfit: RecordCount = 0
    run: Run


class RemovedSegments(_Struct, frozen=True, kw_only=True):
    """Totals of the segments that leave the log: their number, bytes of their runs, sum of their hashes, and ``unfit``,
    as in LiveSegment."""

    segments: Files
    size_bytes: Bytes
    checksum: Hex32
    unfit: RecordCount = 0


class ReplaceSegments(PartitionAction, tag="replace_segments", frozen=True, kw_only=True):
    """The segments of offsets ``[start_offset, end_offset)`` of a partition are replaced.

    Offsets of records never change; records that ``added`` does not contain are removed. Both offsets are boundaries of
    live segments. ``cleaned_offset`` is the end of the compacted part of the log, -1 if that does not change.
    """

    start_offset: LogOffset
    end_offset: LogOffset
    removed: RemovedSegments
    added: list[LiveSegment] = []
    cleaned_offset: LogOffsetOrNone = -1


class DeleteSegments(PartitionAction, tag="delete_segments", frozen=True, kw_only=True):
    """The oldest segments of a partition, all that end at or before ``end_offset``, leave the log.

    The log then starts at ``end_offset``, or at its previous start if that is later.
    """

    end_offset: LogOffset
    removed: RemovedSegments


class DeleteRecords(PartitionAction, tag="delete_records", frozen=True, kw_only=True):
    """The log of a partition now starts at ``log_start_offset``; segments below it are removed later."""

    log_start_offset: Offset


class RemoveFiles(_Action, tag="remove_files", frozen=True, kw_only=True):
    """The files that this commit retires, named in the object ``listing``, may be deleted after ``delay_ms``."""

    listing: Name
    files: Files
    size_bytes: Bytes
    delay_ms: Milliseconds


class ForgetRemovedFiles(_Action, tag="forget_removed_files", frozen=True, kw_only=True):
    """The files of these listings have been deleted."""

    listings: list[Name]


class FenceWriters(_Action, tag="fence_writers", frozen=True, kw_only=True):
    """Files that were begun at or before this version of the cluster can no longer become part of the log.

    So those that are not part of it yet never will be, and may be deleted.
    """

    version: Version


class MoveCluster(_Action, tag="move_cluster", frozen=True, kw_only=True):
    """The cluster continues at the root ``url``, and no commit follows here; empty at the new root."""

    url: Text = ""


class ResetTime(_Action, tag="reset_time", frozen=True, kw_only=True):
    """The log's time was ahead and is set back to ``time_ms``, which is this commit's timestamp."""

    time_ms: Timestamp


class WrittenRange(_Struct, frozen=True, kw_only=True):
    """Records that an application's write added to one partition."""

    topic: TopicName
    topic_id: Name
    partition: Partition
    base_offset: LogOffset
    records: RecordCount


class ApplicationWrite(_Action, tag="application_write", frozen=True, kw_only=True):
    """This commit contains an application's numbered write; the same or a lower number is not written again.

    ``source_digest`` identifies the data that was written, if the writer provides it: a repeated write has the same.
    """

    application: Name
    application_version: Long
    ranges: list[WrittenRange] = []
    source_digest: Hex32OrEmpty = ""


class InitProducer(_Action, tag="init_producer", frozen=True, kw_only=True):
    """A producer id with its next epoch; a higher epoch fences lower ones.

    ``committed_epoch`` is the epoch whose transaction this commit is, -1 if it is not a transaction.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: Text = ""
    committed_epoch: ProducerEpochOrNone = -1


class ForgetProducers(_Action, tag="forget_producers", frozen=True, kw_only=True):
    """These transactional producers have expired, or were removed by an administrator: what they have not committed yet
    never will be. A transactional id that is used again gets a new producer id.
    """

    producers: list[ProducerId]


class ForgetPartitionProducers(PartitionAction, tag="forget_partition_producers", frozen=True, kw_only=True):
    """A partition forgets the appends of these producers: a repeated one would be stored twice."""

    producers: list[ProducerId]


class ForgetApplications(_Action, tag="forget_applications", frozen=True, kw_only=True):
    """The writes of these applications are forgotten: a repeated one would be stored twice."""

    applications: list[Name]


class GroupPartition(_Struct, frozen=True, kw_only=True):
    """A partition of which a group has an offset."""

    topic: TopicName
    topic_id: Name
    partition: Partition


class CommittedOffset(GroupPartition, frozen=True, kw_only=True):
    """A group's position in one partition: the next offset to read."""

    offset: Offset
    leader_epoch: IntOrNone = -1
    metadata: Text = ""


class CommitOffsets(_Action, tag="commit_offsets", frozen=True, kw_only=True):
    """Positions of a consumer group; generation -1 is a commit from outside the group's membership."""

    group: Group
    generation: IntOrNone = -1
    offsets: list[CommittedOffset]


class JoinGroup(_Action, tag="join_group", frozen=True, kw_only=True):
    """A member joins a group, or changes its subscription; timeouts are milliseconds.

    ``assignors`` are those it supports, preferred first. A member replaces another one with the same ``instance_id``.
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
    """Members leave the group; ``reason`` is informational."""

    group: Group
    members: list[Name]
    reason: Text = ""


class AcknowledgeRevocation(_Action, tag="acknowledge_revocation", frozen=True, kw_only=True):
    """A member has stopped reading its revoked partitions; others may have them."""

    group: Group
    member: Name


class DeleteGroup(_Action, tag="delete_group", frozen=True, kw_only=True):
    """A group without members is deleted with its offsets."""

    group: Group


class DeleteOffsets(_Action, tag="delete_offsets", frozen=True, kw_only=True):
    """Positions of a group are deleted."""

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
    """Reference to the actions of a commit that has too many to contain them: an object of ``size`` bytes at ``path``.

    The object is a JSON array of ``count`` actions, and ``sha256`` is the hash of all its bytes.
    """

    path: ActionsPath
    size: ActionsSize
    sha256: Hex64
    count: Files


class Commit(_Struct, frozen=True, kw_only=True):
    """One atomic change of the cluster.

    ``version`` numbers commits from 0 without gaps. ``timestamp`` is milliseconds and grows with every commit, even
    when clocks go back, except for one with ``ResetTime``. ``checksum`` is that of all live segments after the commit
    (see ``segment_checksum``). ``format`` is the level it is written in, ``needs`` the oldest version of sparklog that
    reads that level (see ``levels``). ``writer`` is informational. If ``spilled`` is set, the stored ``actions`` are
    empty, and the actions are in the object that it names.
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
    """Return the key of a commit: ``meta/commits/00000000000000000042.json``."""
    return f"meta/commits/{version:020d}.json"
