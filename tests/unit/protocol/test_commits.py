"""Commits as bytes: what was written is read back, and anything else is an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog import limits
from sparklog.errors import CorruptMetadataError, InvalidRequestError, RecordListTooLargeError, UnsupportedVersionError
from sparklog.protocol.commits import (
    FORMAT,
    GENESIS_DIGEST,
    AlterConfig,
    Append,
    ApplicationWrite,
    Commit,
    CommitOffsets,
    CommittedOffset,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    InitProducer,
    RegisterBroker,
    Run,
    WrittenRange,
    commit_key,
    decode_commit,
    encode_commit,
)

names = st.text(min_size=1, max_size=20)
counts = st.integers(0, 2**62)
runs = st.builds(
    Run,
    path=names,
    broker=st.integers(0, 9),
    first_batch=st.integers(0, 99),
    batches=st.integers(1, 99),
    first_row=counts,
    records=st.integers(1, 2**31),
    size_bytes=counts,
    min_timestamp_us=st.integers(-(2**63), 2**63 - 1),
    max_timestamp_us=st.integers(-(2**63), 2**63 - 1),
)
replicas = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), max_size=4)
configs = st.dictionaries(names, st.text(max_size=10), max_size=3)
partitions = st.integers(0, 2**31 - 1)
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
    st.builds(InitProducer, producer_id=counts, producer_epoch=counts, transactional_id=st.text(max_size=5)),
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


@given(st.lists(actions, max_size=5))
def test_a_commit_of_any_actions_is_read_back_as_written(acts: list[object]) -> None:
    commit = commit_of(*acts)
    data, digest = encode_commit(commit)
    assert decode_commit(data, 7) == (commit, digest)


def test_a_commit_is_one_line_of_plain_json_that_ends_with_its_digest() -> None:
    data, digest = encode_commit(commit_of(RegisterBroker(broker=0)))
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    shown = json.loads(data)
    assert list(shown)[-1] == "digest"
    assert shown["digest"] == digest
    assert shown["actions"] == [{"action": "register_broker", "broker": 0}]


def test_every_single_bit_flip_of_a_commit_is_found() -> None:
    data, _ = encode_commit(commit_of(DeleteTopic(topic="orders", topic_id="abc")))
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptMetadataError) as caught:
            decode_commit(bytes(damaged), 7)
        assert commit_key(7) in str(caught.value)


def test_every_truncation_of_a_commit_is_found() -> None:
    data, _ = encode_commit(commit_of(DeleteTopic(topic="orders", topic_id="abc")))
    for length in range(len(data)):
        with pytest.raises(CorruptMetadataError):
            decode_commit(data[:length], 7)


def test_a_commit_stored_under_another_number_is_refused() -> None:
    data, _ = encode_commit(commit_of(version=7))
    with pytest.raises(CorruptMetadataError, match="commit 7"):
        decode_commit(data, 8)


def test_a_commit_of_a_newer_format_asks_for_an_upgrade() -> None:
    data = b'{"format":99,"version":7,"anything":"else"}'
    with pytest.raises(UnsupportedVersionError, match="upgrade"):
        decode_commit(data, 7)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_never_taken_for_a_commit(data: bytes) -> None:
    with pytest.raises((CorruptMetadataError, UnsupportedVersionError)):
        decode_commit(data, 0)


def test_an_unknown_action_is_refused_although_its_digest_is_right() -> None:
    import hashlib

    data, _ = encode_commit(commit_of(DeleteTopic(topic="orders", topic_id="abc")))
    body = data[: data.rindex(b',"digest"')].replace(b"delete_topic", b"forget_topic")
    forged = body + b',"digest":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'
    with pytest.raises(CorruptMetadataError, match="forget_topic"):
        decode_commit(forged, 7)


def test_a_commit_over_the_size_limit_is_refused_before_it_is_written() -> None:
    many = [DeleteTopic(topic="x" * 200, topic_id="i") for _ in range(limits.MAX_COMMIT_BYTES // 200)]
    with pytest.raises(RecordListTooLargeError, match="coalesce"):
        encode_commit(commit_of(*many))


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
def test_a_commit_that_no_reader_would_take_is_refused_before_it_is_written(action: object) -> None:
    with pytest.raises(InvalidRequestError, match="nothing was written"):
        encode_commit(commit_of(action))


@pytest.mark.parametrize("data", [b'{"x":' + b"[" * 100_000, b"[" * 100_000])
def test_json_of_any_depth_is_refused_as_damaged(data: bytes) -> None:
    with pytest.raises(CorruptMetadataError):
        decode_commit(data, 7)
