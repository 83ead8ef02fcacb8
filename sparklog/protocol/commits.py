"""One commit: the only thing that ever changes a cluster, and the bytes it is stored as.

A commit is one JSON object on one line, readable with ``cat``, stored as ``meta/commits/<20 digits>.json``. It carries
any number of actions that take effect together. Its last field, ``digest``, is the SHA-256 of all bytes before it, and
``previous`` repeats the digest of the commit before, so an edited or exchanged commit is found when it is read::

    {"format":1,"version":7,"write_id":"k3…","timestamp":1790000000000,"previous":"9f…","checksum":"00…",
     "writer":"…","actions":[{"action":"append","topic":"orders","partition":0,"base_offset":42,…}],"digest":"c1…"}

Rules: bytes from storage are untrusted (size-limited, every field validated by msgspec, never pickled); a commit of a
newer ``format`` is refused; unknown fields are refused, since ignoring one could mean ignoring a change.
Not for: what a commit means (``fold``) or which one to write (``decide``).
"""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, NamedTuple

import msgspec

from sparklog import limits
from sparklog.errors import (
    CorruptMetadataError,
    InvalidRequestError,
    RecordListTooLargeError,
    UnsupportedVersionError,
)

FORMAT = 1
"""The commit format this code writes; it reads this one and older ones."""

GENESIS_DIGEST = "0" * 64
"""``previous`` of the first commit of a cluster."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Small = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Hex32 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Hex64 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


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
    broker: Small = 0
    replicas: list[Small] = []
    first_batch: Count = 0
    batches: Annotated[int, msgspec.Meta(ge=1, le=limits.MAX_BATCHES_PER_FILE)]
    first_row: Count = 0
    records: Annotated[int, msgspec.Meta(ge=1)]
    size_bytes: Count
    min_timestamp_us: Long
    max_timestamp_us: Long


class _Action(_Struct, frozen=True, tag_field="action"):
    """One change; the ``action`` field says which."""


class RegisterBroker(_Action, tag="register_broker", frozen=True, kw_only=True):
    """A storage location joins; ``url`` of broker 0 is empty: the root itself, wherever it is mounted."""

    broker: Small
    url: str = ""


class UnregisterBroker(_Action, tag="unregister_broker", frozen=True, kw_only=True):
    """A storage location that holds no replica any more leaves."""

    broker: Small


class ChangeBroker(_Action, tag="change_broker", frozen=True, kw_only=True):
    """What is known of a location changes: ``online`` is what its checks say, a ``cordoned`` one gets no new replicas.

    ``url`` moves it, and is empty where it stays. Left out fields do not change. ``lost_files``: it was found to hold
    less than it did, so nothing counts that was known of it or written to it before.
    """

    broker: Small
    online: bool | None = None
    cordoned: bool | None = None
    url: str = ""
    lost_files: bool = False


class ElectController(_Action, tag="elect_controller", frozen=True, kw_only=True):
    """A coordinator takes over the controller's work; a higher epoch fences the controllers before it."""

    controller: Name
    controller_epoch: Count


class ChangePartition(_Action, tag="change_partition", frozen=True, kw_only=True):
    """Leadership, in-sync replicas or replicas of a partition change; lists are whole, ``leader`` -1 means none.

    ``adding`` and ``removing`` are the replicas that a reassignment under way brings and takes; while there is one,
    ``replicas`` holds both kinds.
    """

    topic: Name
    topic_id: Name
    partition: Count
    leader: Small
    leader_epoch: Count
    isr: list[Small]
    replicas: list[Small]
    adding: list[Small] = []
    removing: list[Small] = []


class CreateTopic(_Action, tag="create_topic", frozen=True, kw_only=True):
    """A topic with one replica list per partition; the first replica is the preferred leader."""

    topic: Name
    topic_id: Name
    replicas: list[list[int]]
    configs: dict[str, str] = {}


class CreatePartitions(_Action, tag="create_partitions", frozen=True, kw_only=True):
    """Partitions added after the existing ones."""

    topic: Name
    topic_id: Name
    replicas: list[list[int]]


class DeleteTopic(_Action, tag="delete_topic", frozen=True, kw_only=True):
    """A topic and all its records leave the log; its files become orphans."""

    topic: Name
    topic_id: Name


class AlterConfig(_Action, tag="alter_config", frozen=True, kw_only=True):
    """Dynamic configs of a topic, or of the whole cluster when ``topic`` is empty."""

    topic: str = ""
    set: dict[str, str] = {}
    delete: list[str] = []


class Append(_Action, tag="append", frozen=True, kw_only=True):
    """Records ``[base_offset, base_offset + run.records)`` of one partition.

    ``log_append_time`` says that the commit's timestamp is every record's timestamp. The producer fields are Kafka's;
    -1 where the producer is not idempotent. ``base_sequence`` counts records, and wraps after 2^31 - 1.
    """

    topic: Name
    topic_id: Name
    partition: Count
    base_offset: Offset
    leader_epoch: Count = 0
    run: Run
    log_append_time: bool = False
    producer_id: Long = -1
    producer_epoch: Small = -1
    base_sequence: Small = -1


class LiveSegment(_Struct, frozen=True, kw_only=True):
    """A segment that takes the place of others: records of offsets ``[base_offset, end_offset)``, all in ``run``.

    Where ``run.records`` is less than the range, compaction left gaps, and the file says each record's offset.
    ``append_time``: the timestamps in the file are those of the commits that appended the records. A ``closed`` one is
    a segment in Kafka's sense that nothing is added to; one that is not is part of the active segment.
    ``delete_horizon_ms`` is the time after which its tombstones may go, -1 where it has none or it is not known yet.
    """

    base_offset: Offset
    end_offset: Offset
    leader_epoch: Count = 0
    append_time: bool = False
    closed: bool = True
    delete_horizon_ms: Long = -1
    run: Run


class RemovedSegments(_Struct, frozen=True, kw_only=True):
    """What the segments amount to that leave the log: how many, bytes of their runs, sum of their hashes."""

    segments: Count
    size_bytes: Count
    checksum: Hex32


class ReplaceSegments(_Action, tag="replace_segments", frozen=True, kw_only=True):
    """The segments that make up offsets ``[start_offset, end_offset)`` of a partition give way to others.

    Offsets of records never change; those that ``added`` does not hold are gone. Both ends are ends of live segments.
    ``cleaned_offset`` is where the part that compaction has been through ends, -1 where that does not change.
    """

    topic: Name
    topic_id: Name
    partition: Count
    start_offset: Offset
    end_offset: Offset
    removed: RemovedSegments
    added: list[LiveSegment] = []
    cleaned_offset: Long = -1


class DeleteSegments(_Action, tag="delete_segments", frozen=True, kw_only=True):
    """The oldest segments of a partition, all that end at or before ``end_offset``, leave the log.

    The log starts at ``end_offset`` then, or where it started before if that is later.
    """

    topic: Name
    topic_id: Name
    partition: Count
    end_offset: Offset
    removed: RemovedSegments


class DeleteRecords(_Action, tag="delete_records", frozen=True, kw_only=True):
    """The log of a partition starts at ``log_start_offset`` from now on; segments below it leave it later."""

    topic: Name
    topic_id: Name
    partition: Count
    log_start_offset: Offset


class RemoveFiles(_Action, tag="remove_files", frozen=True, kw_only=True):
    """Files that this commit takes out of the log, named in the object ``listing``, may go after ``delay_ms``."""

    listing: Name
    files: Count
    size_bytes: Count
    delay_ms: Count


class ForgetRemovedFiles(_Action, tag="forget_removed_files", frozen=True, kw_only=True):
    """The files of these listings are deleted."""

    listings: list[Name]


class FenceWriters(_Action, tag="fence_writers", frozen=True, kw_only=True):
    """Files that were begun at this version of the cluster or before can no longer become part of the log.

    So those that are not part of it by now never will be, and may be deleted.
    """

    version: Count


class MoveCluster(_Action, tag="move_cluster", frozen=True, kw_only=True):
    """The cluster goes on at the root ``url``, and no commit follows here; empty where it has arrived."""

    url: str = ""


class WrittenRange(_Struct, frozen=True, kw_only=True):
    """What an application's write added to one partition."""

    topic: Name
    topic_id: Name
    partition: Count
    base_offset: Offset
    records: Count


class ApplicationWrite(_Action, tag="application_write", frozen=True, kw_only=True):
    """An application's numbered write happened in this commit; the same or a lower number is never written again."""

    application: Name
    application_version: Long
    ranges: list[WrittenRange] = []


class InitProducer(_Action, tag="init_producer", frozen=True, kw_only=True):
    """A producer id in its next epoch; a higher epoch fences the lower ones.

    ``committed_epoch`` is the epoch whose transaction this very commit is, -1 where it is none.
    """

    producer_id: Offset
    producer_epoch: Count
    transactional_id: str = ""
    committed_epoch: Small = -1


class ForgetProducers(_Action, tag="forget_producers", frozen=True, kw_only=True):
    """These transactional producers have been silent for long, or are to be forgotten: what they have not committed yet
    never is. A transactional id that comes back gets a new producer id.
    """

    producers: list[Offset]


class ForgetPartitionProducers(_Action, tag="forget_partition_producers", frozen=True, kw_only=True):
    """A partition remembers the appends of these producers no longer: one that is repeated would be stored twice."""

    topic: Name
    topic_id: Name
    partition: Count
    producers: list[Offset]


class ForgetApplications(_Action, tag="forget_applications", frozen=True, kw_only=True):
    """Nothing is known any more of these applications' writes: one that is repeated would be stored twice."""

    applications: list[Name]


class CommittedOffset(_Struct, frozen=True, kw_only=True):
    """A group's position in one partition: the next offset to read."""

    topic: Name
    topic_id: Name
    partition: Count
    offset: Offset
    leader_epoch: Small = -1
    metadata: str = ""


class CommitOffsets(_Action, tag="commit_offsets", frozen=True, kw_only=True):
    """Positions of a consumer group; generation -1 is a commit from outside the group's membership."""

    group: Name
    generation: Small = -1
    offsets: list[CommittedOffset]


class JoinGroup(_Action, tag="join_group", frozen=True, kw_only=True):
    """A member joins a group, or changes what it subscribes to; timeouts are milliseconds.

    ``assignors`` are those it has, best first. A member with an ``instance_id`` that another one has takes its place.
    """

    group: Name
    member: Name
    instance_id: str = ""
    client_id: str = ""
    host: str = ""
    topics: list[str] = []
    assignors: list[str] = []
    session_timeout_ms: Count = 0
    rebalance_timeout_ms: Count = 0


class LeaveGroup(_Action, tag="leave_group", frozen=True, kw_only=True):
    """Members are gone; ``reason`` tells people why."""

    group: Name
    members: list[Name]
    reason: str = ""


class AcknowledgeRevocation(_Action, tag="acknowledge_revocation", frozen=True, kw_only=True):
    """A member has stopped reading what it had to give up; others may have it."""

    group: Name
    member: Name


class DeleteGroup(_Action, tag="delete_group", frozen=True, kw_only=True):
    """A group without members is forgotten with its offsets."""

    group: Name


class GroupPartition(_Struct, frozen=True, kw_only=True):
    """A partition that a group has an offset of."""

    topic: Name
    topic_id: Name
    partition: Count


class DeleteOffsets(_Action, tag="delete_offsets", frozen=True, kw_only=True):
    """Positions of a group are forgotten."""

    group: Name
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
)


class SpilledActions(_Struct, frozen=True, kw_only=True):
    """Where the actions of a commit are that are too many to lie in it: an object of ``size`` bytes at ``path``.

    It holds a JSON array of ``count`` actions, and ``sha256`` is the hash of all its bytes.
    """

    path: Annotated[str, msgspec.Meta(pattern=r"\Ameta/actions/[0-9]{20}-[A-Za-z0-9_-]{1,64}\.json\Z")]
    size: Annotated[int, msgspec.Meta(ge=1, le=limits.MAX_SPILLED_ACTIONS_BYTES)]
    sha256: Hex64
    count: Count


class Commit(_Struct, frozen=True, kw_only=True):
    """One atomic change of the cluster.

    ``version`` numbers commits from 0 without gaps. ``timestamp`` is milliseconds and grows with every commit, also
    when clocks go back. ``checksum`` is that of all live segments once the commit is applied (see ``checksum``).
    ``writer`` tells people who wrote it; nothing depends on it. Where ``spilled`` is set, ``actions`` is empty as
    stored, and the actions are in the object that it names.
    """

    format: int
    version: Count
    write_id: Name
    timestamp: Count
    previous: Hex64
    checksum: Hex32
    writer: str = ""
    actions: list[Action]
    spilled: SpilledActions | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Commit)
_ACTIONS_DECODER = msgspec.json.Decoder(list[Action])
_DIGEST_FIELD = b',"digest":"'
_TAIL_BYTES = len(_DIGEST_FIELD) + 64 + len(b'"}\n')


def commit_key(version: int) -> str:
    """Where a commit is stored below the root: ``meta/commits/00000000000000000042.json``."""
    return f"meta/commits/{version:020d}.json"


def actions_key(version: int, write_id: str) -> str:
    """Where the actions of a commit lie that has too many: ``meta/actions/00000000000000000042-<write id>.json``."""
    return f"meta/actions/{version:020d}-{write_id}.json"


class EncodedCommit(NamedTuple):
    """A commit as it is stored: its bytes, their digest, and the bytes of the object beside it (none where empty)."""

    data: bytes
    digest: str
    spilled: bytes = b""


def encode_to_store(commit: Commit) -> EncodedCommit:
    """The stored bytes of a commit, whose actions go into an object of their own (``actions_key``) where they are many.

    Raises RecordListTooLargeError over ``limits.MAX_SPILLED_ACTIONS_BYTES``, InvalidRequestError as ``encode_commit``.
    """
    if len(commit.actions) <= limits.MAX_INLINE_ACTIONS:
        data = _encode_readable(commit)
        if len(data) <= limits.MAX_INLINE_ACTIONS_BYTES:
            return EncodedCommit(*_sign(data))
    beside = _encode_actions(commit)
    spilled = SpilledActions(
        path=actions_key(commit.version, commit.write_id),
        size=len(beside),
        sha256=hashlib.sha256(beside).hexdigest(),
        count=len(commit.actions),
    )
    data = _encode_readable(msgspec.structs.replace(commit, actions=[], spilled=spilled))
    return EncodedCommit(*_sign(data), beside)


def _encode_actions(commit: Commit) -> bytes:
    try:
        data = _ENCODER.encode(commit.actions)
        if len(data) <= limits.MAX_SPILLED_ACTIONS_BYTES:
            _ACTIONS_DECODER.decode(data)
    except _UNREADABLE as error:
        raise _unreadable(commit, error) from error
    if len(data) > limits.MAX_SPILLED_ACTIONS_BYTES:
        raise RecordListTooLargeError(
            f"the commit would take {len(data):,} bytes for {len(commit.actions):,} actions, and a commit may have "
            f"{limits.MAX_SPILLED_ACTIONS_BYTES:,}; write fewer partitions from fewer tasks (repartition or coalesce "
            "before writing), or split the work into several writes",
            size=len(data),
        )
    return data


def with_actions(commit: Commit, actions: list[Action]) -> Commit:
    """A commit as it was before its actions were put beside it."""
    return msgspec.structs.replace(commit, actions=actions, spilled=None)


def decode_actions(data: bytes, spilled: SpilledActions, version: int) -> list[Action]:
    """The actions that lie beside a commit. Raises CorruptMetadataError."""
    if len(data) != spilled.size or hashlib.sha256(data).hexdigest() != spilled.sha256:
        raise _corrupt(spilled.path, f"it is not the object of {spilled.size:,} bytes that commit {version} names")
    try:
        actions = _ACTIONS_DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _corrupt(spilled.path, str(error)) from error
    if len(actions) != spilled.count:
        raise _corrupt(spilled.path, f"it holds {len(actions):,} actions, and commit {version} says {spilled.count:,}")
    return actions


def stored_digest(data: bytes) -> str:
    """The digest that a stored commit ends with, unchecked: enough to tell two commits apart."""
    start = len(data) - _TAIL_BYTES + len(_DIGEST_FIELD)
    return data[max(start, 0) : max(start, 0) + 64].decode("ascii", "replace")


def encode_commit(commit: Commit) -> tuple[bytes, str]:
    """The stored bytes of a commit and their digest.

    Raises RecordListTooLargeError over ``limits.MAX_COMMIT_BYTES``, InvalidRequestError for a commit that no reader
    would take: once stored it could not be mended, and the cluster could not be opened any more.
    """
    data, digest = _sign(_encode_readable(commit))
    if len(data) > limits.MAX_COMMIT_BYTES:
        raise RecordListTooLargeError(
            f"the commit would take {len(data):,} bytes for {len(commit.actions):,} actions, and a commit may have "
            f"{limits.MAX_COMMIT_BYTES:,}; write fewer partitions from fewer tasks (repartition or coalesce before "
            "writing), or split the work into several writes",
            size=len(data),
        )
    return data, digest


def _sign(data: bytes) -> tuple[bytes, str]:
    """The JSON with its digest as the last field, and the digest."""
    body = data[:-1]
    digest = hashlib.sha256(body).hexdigest()
    return body + _DIGEST_FIELD + digest.encode() + b'"}\n', digest


def _encode_readable(commit: Commit) -> bytes:
    """JSON that decodes. Fields are checked by the decoder alone, so what is about to be stored goes through it."""
    try:
        data = _ENCODER.encode(commit)
        if len(data) <= limits.MAX_COMMIT_BYTES:
            _DECODER.decode(data)
    except _UNREADABLE as error:
        raise _unreadable(commit, error) from error
    return data


_UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def _unreadable(commit: Commit, error: Exception) -> InvalidRequestError:
    return InvalidRequestError(
        f"commit {commit.version} would not be readable: {error}; nothing was written, correct the request"
    )


def decode_commit(data: bytes, version: int) -> tuple[Commit, str]:
    """The commit stored as ``data`` under number ``version``, and its digest.

    Raises CorruptMetadataError when the bytes are not what was written, UnsupportedVersionError for a newer format.
    """
    path = commit_key(version)
    if len(data) > limits.MAX_COMMIT_BYTES:
        raise _corrupt(path, f"it has {len(data):,} bytes, over the limit of {limits.MAX_COMMIT_BYTES:,}")
    body, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    expected = tail[len(_DIGEST_FIELD) : len(_DIGEST_FIELD) + 64].decode("ascii", "replace")
    actual = hashlib.sha256(body).hexdigest()
    if not tail.startswith(_DIGEST_FIELD) or not tail.endswith(b'"}\n') or expected != actual:
        if hashlib.sha256(_with_our_format(body)).hexdigest() != expected:  # else it is the number that is damaged
            _refuse_newer_format(data, path)
        raise _corrupt(path, f"its digest says {expected!r}, its bytes give {actual!r}: it was edited or cut short")
    try:
        commit = _DECODER.decode(body + b"}")
    except (msgspec.MsgspecError, RecursionError) as error:
        _refuse_newer_format(data, path)
        raise _corrupt(path, str(error)) from error
    if commit.format > FORMAT:
        raise _newer(path, commit.format)
    if commit.version != version:
        raise _corrupt(path, f"it says it is commit {commit.version}")
    return commit, actual


def _with_our_format(body: bytes) -> bytes:
    return re.sub(rb'\A\{"format":\d+', b'{"format":%d' % FORMAT, body)


class _Header(msgspec.Struct):
    format: int


def _refuse_newer_format(data: bytes, path: str) -> None:
    """A commit of a later format may look damaged to this code: say which of the two it is."""
    try:
        found = msgspec.json.decode(data, type=_Header).format
    except (msgspec.MsgspecError, RecursionError):
        return
    if found > FORMAT:
        raise _newer(path, found)


def _newer(path: str, found: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{path} has format {found}, and this sparklog reads up to {FORMAT}; upgrade sparklog", path=path
    )


def _corrupt(path: str, why: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"commit {path} is not what was written: {why}; restore the file from a copy of the root", path=path
    )
