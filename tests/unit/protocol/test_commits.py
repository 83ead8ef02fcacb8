"""Commits as bytes: encoding round-trips, and all other bytes are an error."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime, timezone
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog import limits
from sparklog.errors import CorruptMetadataError, InvalidRequestError, RecordListTooLargeError, UnsupportedVersionError
from sparklog.protocol import levels
from sparklog.protocol.commit_bytes import FORMAT, decode_commit, encode_to_store
from sparklog.protocol.commits import (
    GENESIS_DIGEST,
    AcknowledgeRevocation,
    Action,
    AlterConfig,
    Append,
    ApplicationWrite,
    ChangeBroker,
    ChangePartition,
    Commit,
    CommitOffsets,
    CommittedOffset,
    CreatePartitions,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteRecords,
    DeleteSegments,
    DeleteTopic,
    ElectController,
    FenceWriters,
    ForgetApplications,
    ForgetPartitionProducers,
    ForgetProducers,
    ForgetRemovedFiles,
    GroupPartition,
    InitProducer,
    JoinGroup,
    LeaveGroup,
    LiveSegment,
    MoveCluster,
    RegisterBroker,
    RemovedSegments,
    RemoveFiles,
    ReplaceSegments,
    ResetTime,
    Run,
    UnregisterBroker,
    WrittenRange,
    commit_key,
)

names = st.text(min_size=1, max_size=20)
counts = st.integers(0, 2**62)
rows = st.integers(0, limits.MAX_ROWS_PER_FILE)
epochs = st.integers(0, limits.MAX_PRODUCER_EPOCH)
runs = st.builds(
    Run,
    path=names,
    broker=st.integers(0, 9),
    first_batch=st.integers(0, 99),
    batches=st.integers(1, 99),
    first_row=rows,
    records=st.integers(1, 2**31),
    size_bytes=counts,
    min_timestamp_us=st.integers(-(2**63), 2**63 - 1),
    max_timestamp_us=st.integers(-(2**63), 2**63 - 1),
)
replicas = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=4)
configs = st.dictionaries(names, st.text(max_size=10), max_size=3)
partitions = st.integers(0, limits.MAX_PARTITIONS_PER_TOPIC - 1)
ranges = st.builds(WrittenRange, topic=names, topic_id=names, partition=partitions, base_offset=counts, records=counts)
offsets = st.builds(
    CommittedOffset, topic=names, topic_id=names, partition=partitions, offset=counts, metadata=st.text(max_size=5)
)
actions = st.one_of(
    st.builds(RegisterBroker, broker=st.integers(0, 9), url=st.text(max_size=9)),
    st.builds(CreateTopic, topic=names, topic_id=names, replicas=replicas, configs=configs),
    st.builds(CreatePartitions, topic=names, topic_id=names, replicas=replicas),
    st.builds(DeleteTopic, topic=names, topic_id=names),
    st.builds(AlterConfig, topic=st.text(max_size=5), set=configs, delete=st.lists(names, max_size=2)),
    st.builds(
        Append,
        topic=names,
        topic_id=names,
        partition=partitions,
        base_offset=counts,
        run=runs,
        log_append_time=st.booleans(),
        producer_id=st.integers(-1, 2**40),
    ),
    st.builds(
        ApplicationWrite,
        application=names,
        application_version=st.integers(-5, 2**62),
        ranges=st.lists(ranges, max_size=3),
    ),
    st.builds(InitProducer, producer_id=counts, producer_epoch=epochs, transactional_id=st.text(max_size=5)),
    st.builds(CommitOffsets, group=names, offsets=st.lists(offsets, max_size=3)),
)


def commit_of(*acts: object, version: int = 7) -> Commit:
    return Commit(
        format=FORMAT,
        version=version,
        write_id="w",
        timestamp=1,
        previous=GENESIS_DIGEST,
        checksum="0" * 32,
        actions=list(acts),  # type: ignore[arg-type]
    )


def integer_fields(action: Action) -> list[str]:
    """The integer fields of the action and of its parts, as paths."""
    paths: list[str] = []

    def walk(value: object, path: str) -> None:
        if isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                walk(getattr(value, name), f"{path}.{name}" if path else name)
        elif isinstance(value, list) and value:
            walk(value[0], f"{path}.0")
        elif isinstance(value, int) and not isinstance(value, bool):
            paths.append(path)

    walk(action, "")
    return paths


def with_field(action: Action, path: str, value: int) -> Action:
    def changed(part: object, names: list[str]) -> object:
        if not names:
            return value
        if isinstance(part, list):
            return [changed(part[0], names[1:]), *part[1:]]
        assert isinstance(part, msgspec.Struct)
        return msgspec.structs.replace(part, **{names[0]: changed(getattr(part, names[0]), names[1:])})

    return changed(action, path.split("."))  # type: ignore[return-value]


def forge(good: bytes, bad: bytes) -> bytes:
    """The bytes of a commit of an action, with that changed to another value and a matching digest."""
    return rewritten(commit_of(msgspec.json.decode(good, type=Action)), good, bad)


RUN = Run(path="p", batches=1, records=1, size_bytes=1, min_timestamp_us=1, max_timestamp_us=1, replicas=[0])
REMOVED = RemovedSegments(segments=1, size_bytes=1, checksum="0" * 32)
OF_PARTITION: dict[str, Any] = {"topic": "t", "topic_id": "i", "partition": 0}
ALL_ACTIONS: list[Action] = [
    RegisterBroker(broker=1),
    UnregisterBroker(broker=1),
    ChangeBroker(broker=1),
    ElectController(controller="c", controller_epoch=1),
    ChangePartition(**OF_PARTITION, leader=0, leader_epoch=1, isr=[0], replicas=[0], adding=[1], removing=[2]),
    CreateTopic(topic="t", topic_id="i", replicas=[[0]]),
    CreatePartitions(topic="t", topic_id="i", replicas=[[0]]),
    Append(**OF_PARTITION, base_offset=0, run=RUN, producer_id=1, producer_epoch=1, base_sequence=1),
    ReplaceSegments(
        **OF_PARTITION,
        start_offset=0,
        end_offset=1,
        removed=REMOVED,
        added=[LiveSegment(base_offset=0, end_offset=1, run=RUN, delete_horizon_ms=1)],
        cleaned_offset=1,
    ),
    DeleteSegments(**OF_PARTITION, end_offset=1, removed=REMOVED),
    DeleteRecords(**OF_PARTITION, log_start_offset=1),
    RemoveFiles(listing="l", files=1, size_bytes=1, delay_ms=1),
    FenceWriters(version=1),
    ResetTime(time_ms=1),
    ApplicationWrite(
        application="a", application_version=1, ranges=[WrittenRange(**OF_PARTITION, base_offset=0, records=1)]
    ),
    InitProducer(producer_id=1, producer_epoch=1, committed_epoch=1),
    CommitOffsets(group="g", generation=1, offsets=[CommittedOffset(**OF_PARTITION, offset=1, leader_epoch=1)]),
    JoinGroup(group="g", member="m", session_timeout_ms=1, rebalance_timeout_ms=1),
    DeleteOffsets(group="g", partitions=[GroupPartition(**OF_PARTITION)]),
    ForgetProducers(producers=[1]),
    ForgetPartitionProducers(**OF_PARTITION, producers=[1]),
]
"""One of each action that has an integer field."""


def test_samples_cover_every_action_with_an_integer() -> None:
    tried = {type(action) for action in ALL_ACTIONS}
    without = {
        DeleteTopic,
        AlterConfig,
        ForgetApplications,
        ForgetApplications,
        ForgetPartitionProducers,
        ForgetProducers,
        ForgetRemovedFiles,
        MoveCluster,
        LeaveGroup,
        AcknowledgeRevocation,
        DeleteGroup,
    }
    assert tried | without == set(get_args(Action))


@given(st.lists(actions, max_size=5))
def test_commits_of_any_actions_round_trip(acts: list[object]) -> None:
    commit = commit_of(*acts)
    data, digest, _ = encode_to_store(commit)
    assert decode_commit(data, 7) == (commit, digest)


def test_a_commit_is_one_line_of_json_that_ends_with_its_digest() -> None:
    data, digest, _ = encode_to_store(commit_of(RegisterBroker(broker=0)))
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    shown = json.loads(data)
    assert list(shown)[-1] == "digest"
    assert shown["digest"] == digest
    assert shown["actions"] == [{"action": "register_broker", "broker": 0}]


def test_every_single_bit_flip_of_a_commit_is_detected() -> None:
    data, _, _ = encode_to_store(commit_of(DeleteTopic(topic="orders", topic_id="abc")))
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptMetadataError) as caught:
            decode_commit(bytes(damaged), 7)
        assert commit_key(7) in str(caught.value)


def test_every_truncation_of_a_commit_is_detected() -> None:
    data, _, _ = encode_to_store(commit_of(DeleteTopic(topic="orders", topic_id="abc")))
    for length in range(len(data)):
        with pytest.raises(CorruptMetadataError):
            decode_commit(data[:length], 7)


def test_a_commit_stored_under_another_number_is_refused() -> None:
    data, _, _ = encode_to_store(commit_of(version=7))
    with pytest.raises(CorruptMetadataError, match="commit 7"):
        decode_commit(data, 8)


def test_a_commit_of_a_newer_format_asks_for_an_upgrade() -> None:
    data = b'{"format":99,"version":7,"anything":"else"}'
    with pytest.raises(UnsupportedVersionError, match="upgrade"):
        decode_commit(data, 7)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_never_decoded_as_a_commit(data: bytes) -> None:
    with pytest.raises((CorruptMetadataError, UnsupportedVersionError)):
        decode_commit(data, 0)


def rewritten(commit: Commit, old: bytes, new: bytes) -> bytes:
    """A commit's bytes as a newer program might have written them, with a correct digest."""
    data, _, _ = encode_to_store(commit)
    body = data[: data.rindex(b',"digest"')]
    assert old in body
    body = body.replace(old, new)
    return body + b',"digest":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


DELETION = commit_of(DeleteTopic(topic="orders", topic_id="abc"))
DESTRUCTIVE = re.compile("restore|delete|damaged|corrupt|edited")


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (b"delete_topic", b"forget_topic", "forget_topic"),
        (b'"topic_id":"abc"', b'"topic_id":"abc","gently":true', "gently"),
        (b'"write_id"', b'"signature":"x","write_id"', "signature"),
        (b'"timestamp":1', b'"timestamp":"now"', "timestamp"),
    ],
)
def test_unknown_contents_of_an_intact_commit_are_unsupported_not_corrupt(old: bytes, new: bytes, what: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=what) as caught:
        decode_commit(rewritten(DELETION, old, new), 7)
    assert "unknown version" in str(caught.value)
    assert not DESTRUCTIVE.search(str(caught.value))


@pytest.mark.parametrize("more", [b"", b',"needs":"7.1.0"', b',"needs":"7.1.0","actions_in":"meta/lists/1"'])
def test_a_commit_of_a_newer_level_names_the_version_it_needs(more: bytes) -> None:
    newer = rewritten(DELETION, b'{"format":%d' % FORMAT, b'{"format":7' + more)
    newer = rewritten_action(newer)
    with pytest.raises(UnsupportedVersionError, match="upgrade") as caught:
        decode_commit(newer, 7)
    assert ("needs sparklog 7.1.0 or newer" in str(caught.value)) == bool(more)
    assert "what was acknowledged stays in the log" in str(caught.value)
    assert not DESTRUCTIVE.search(str(caught.value).replace("Nothing is damaged", ""))


def rewritten_action(data: bytes) -> bytes:
    body = data[: data.rindex(b',"digest"')].replace(b"delete_topic", b"forget_topic")
    return body + b',"digest":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def test_an_invalid_required_version_is_not_printed() -> None:
    data = rewritten(DELETION, b'{"format":%d' % FORMAT, b'{"format":9,"needs":"\\u001b[2J 1.0"')
    with pytest.raises(UnsupportedVersionError, match="needs a newer sparklog") as caught:
        decode_commit(data, 7)
    assert "\x1b" not in str(caught.value)


def test_a_newer_commit_with_a_wrong_digest_is_corrupt() -> None:
    data = rewritten(DELETION, b'{"format":%d' % FORMAT, b'{"format":9,"needs":"9.0"')
    with pytest.raises(CorruptMetadataError, match="digest"):
        decode_commit(data.replace(b"orders", b"0rders"), 7)


def test_commits_of_every_level_are_read() -> None:
    for level in levels.LEVELS:
        data = rewritten(DELETION, b'{"format":%d' % FORMAT, b'{"format":%d' % level.number)
        assert decode_commit(data, 7)[0].format == level.number


HUGE = 10**30


@pytest.mark.parametrize(
    ("action", "field"),
    [(action, field) for action in ALL_ACTIONS for field in integer_fields(action)],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_integer_out_of_bounds_is_refused_on_write_and_on_read(action: Action, field: str) -> None:
    for value in (HUGE, -HUGE, 2**63, -(2**63) - 1):
        forged = with_field(action, field, value)
        with pytest.raises(InvalidRequestError, match="nothing was written"):
            encode_to_store(commit_of(forged))
        good = json.dumps(msgspec.to_builtins(with_field(action, field, 1)), separators=(",", ":")).encode()
        bad = json.dumps(msgspec.to_builtins(forged), separators=(",", ":")).encode()
        with pytest.raises(UnsupportedVersionError):
            decode_commit(forge(good, bad), 7)


@pytest.mark.parametrize("field", ["version", "timestamp", "format"])
def test_integers_of_the_commit_itself_are_bounded(field: str) -> None:
    present = {"version": b'"version":7', "timestamp": b'"timestamp":1', "format": b'"format":%d' % FORMAT}[field]
    for value in (HUGE, -1, 2**63):
        with pytest.raises(UnsupportedVersionError):
            decode_commit(rewritten(DELETION, present, f'"{field}":{value}'.encode()), 7)


def test_commit_timestamps_after_the_year_9999_are_refused() -> None:
    last = limits.MAX_COMMIT_TIMESTAMP_MS
    assert datetime.fromtimestamp(last / 1000, timezone.utc).year == 9999
    commit = msgspec.structs.replace(DELETION, timestamp=last)
    assert decode_commit(encode_to_store(commit).data, 7)[0] == commit
    with pytest.raises(InvalidRequestError):
        encode_to_store(msgspec.structs.replace(DELETION, timestamp=last + 1))


@pytest.mark.parametrize(
    "action",
    [
        CreateTopic(topic="t" * 250, topic_id="i", replicas=[[0]]),
        CreateTopic(topic="t", topic_id="i", replicas=[[0]] * (limits.MAX_PARTITIONS_PER_TOPIC + 1)),
        AlterConfig(set={f"n{number}": "v" for number in range(limits.MAX_CONFIGS + 1)}),
        AlterConfig(set={"n" * 250: "v"}),
        AlterConfig(set={"n": "v" * (limits.MAX_CONFIG_VALUE_LENGTH + 1)}),
        AlterConfig(delete=["n"] * (limits.MAX_CONFIGS + 1)),
        JoinGroup(group="g", member="m", client_id="c" * (limits.MAX_STORED_TEXT_LENGTH + 1)),
        JoinGroup(group="g" * 250, member="m"),
        JoinGroup(group="g", member="m", assignors=["range"] * 101),
    ],
)
def test_names_texts_and_lists_that_are_too_long_are_refused(action: object) -> None:
    with pytest.raises(InvalidRequestError, match="nothing was written"):
        encode_to_store(commit_of(action))


def test_a_commit_over_the_size_limit_is_refused_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SPILLED_ACTIONS_BYTES", limits.MAX_COMMIT_BYTES)
    many = [DeleteTopic(topic="x" * 200, topic_id="i") for _ in range(limits.MAX_COMMIT_BYTES // 200)]
    with pytest.raises(RecordListTooLargeError, match="coalesce"):
        encode_to_store(commit_of(*many))


@pytest.mark.parametrize(
    "action",
    [
        CommitOffsets(group="g", offsets=[CommittedOffset(topic="t", topic_id="i", partition=0, offset=2**63)]),
        ApplicationWrite(application="a", application_version=2**63),
        ApplicationWrite(application="a", application_version=2**70),
        CreateTopic(topic="", topic_id="i", replicas=[[0]]),
        AlterConfig(set={"name": "\ud800"}),
        AlterConfig(set={"name": 5}),  # type: ignore[dict-item]
    ],
)
def test_a_commit_that_readers_would_refuse_is_not_written(action: object) -> None:
    with pytest.raises(InvalidRequestError, match="nothing was written"):
        encode_to_store(commit_of(action))


@pytest.mark.parametrize("data", [b'{"x":' + b"[" * 100_000, b"[" * 100_000])
def test_deeply_nested_json_is_refused_as_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptMetadataError):
        decode_commit(data, 7)
