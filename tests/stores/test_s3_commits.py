"""Acknowledged records on S3 with lost or wrong answers: the commit is read back, whatever the client reports."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster
from sparklog.protocol.commits import commit_key
from sparklog.types import TopicPartition
from tests.stores.s3_stub import DROP, HONEST, LATE, NO, YES, Answer, Step, StubS3, stub_s3

REFUSALS = {
    "expired token": Answer("xml", 403, "ExpiredToken"),
    "wrong clock": Answer("xml", 403, "RequestTimeTooSkewed"),
    "bad request": Answer("xml", 400, "InvalidRequest"),
    "no bucket": Answer("xml", 404, "NoSuchBucket"),
    "proxy": Answer("html", 407),
    "proxy says yes": Answer("html", 200),
    "precondition": Answer(HONEST),
}


@pytest.fixture(scope="module")
def stub() -> Iterator[StubS3]:
    with stub_s3() as server:
        yield server


@pytest.mark.parametrize(("refusal", "lost"), [*((refusal, DROP) for refusal in REFUSALS), ("expired token", LATE)])
def test_stored_commit_whose_retry_was_refused_is_acknowledged_once(stub: StubS3, refusal: str, lost: str) -> None:
    root = f"s3://bucket/{refusal.replace(' ', '-')}-{lost}"
    cluster = create_cluster(root, stub.options())
    cluster.create_topic("t", partitions=1)
    answer = REFUSALS[refusal]
    with Producer(bootstrap_servers=root, storage_options=stub.options(), enable_idempotence=True) as producer:
        offsets = [producer.send("t", b"%d" % number).get(60).offset for number in range(2)]
        version = cluster.refresh().version + 1
        key = f"{root.removeprefix('s3://bucket/')}/{commit_key(version)}"
        second = Step(YES if answer.form == HONEST else NO, answer)
        stub.script("put", key, [Step(YES, Answer(lost)), second])
        offsets += [producer.send("t", b"%d" % number).get(60).offset for number in range(2, 5)]
        assert stub.steps_left("put", key) == 0
    assert offsets == [0, 1, 2, 3, 4]
    with Consumer(
        "t", bootstrap_servers=root, storage_options=stub.options(), auto_offset_reset="earliest"
    ) as consumer:
        assert [record.value for record in itertools.islice(consumer, 5)] == [b"0", b"1", b"2", b"3", b"4"]
        assert consumer.end_offsets([TopicPartition("t", 0)]) == {TopicPartition("t", 0): 5}
