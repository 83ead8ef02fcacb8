"""S3 says of a missing object that access is denied, to those who may not list it: nothing is decided on that alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import ObjectNotFoundError, SparklogError, StoragePermissionError
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.protocol.commits import commit_key
from sparklog.store.process_local import start_over
from sparklog.store.s3 import S3Store
from tests.stores.s3_stub import NO, Answer, Step, StubS3, stub_s3


@pytest.fixture
def stub() -> Iterator[StubS3]:
    start_over()
    with stub_s3() as server:
        server.hide_missing = True
        yield server


def open_stub(stub: StubS3) -> S3Store:
    return S3Store("s3://bucket/root", stub.options())


def test_listing_tells_a_missing_object_from_a_missing_right(stub: StubS3) -> None:
    store = open_stub(stub)
    store.put("there", b"1")
    store.put("missing-too", b"1")
    for read, method in ((store.get, "get"), (store.info, "head")):
        with pytest.raises(ObjectNotFoundError):
            read("missing")  # though another name begins with it
        stub.script(method, "root/there", [Step(NO, Answer("xml", 403, "AccessDenied"))])
        with pytest.raises(StoragePermissionError, match=r"/there: .*lack s3:GetObject on it; conf/policies") as caught:
            read("there")
        assert "ListBucket" not in str(caught.value)


def test_without_the_right_to_list_the_error_names_both_rights(stub: StubS3) -> None:
    stub.deny_lists = True
    store = open_stub(stub)
    for read in (store.get, store.info):
        with pytest.raises(StoragePermissionError, match=r"s3:GetObject on it.*lack s3:ListBucket"):
            read("missing")


def test_wrong_secret_is_not_mistaken_for_a_missing_object(stub: StubS3) -> None:
    stub.script("list", "root/missing", [Step(NO, Answer("xml", 403, "SignatureDoesNotMatch"))])
    with pytest.raises(StoragePermissionError, match="check the credentials: AWS_ACCESS_KEY_ID"):
        open_stub(stub).info("missing")


def test_cluster_works_where_missing_objects_are_denied(stub: StubS3) -> None:
    options = stub.options()
    create_cluster("s3://bucket/root", options).create_topic("t", partitions=1)
    with Producer(bootstrap_servers="s3://bucket/root", storage_options=options) as producer:
        assert [producer.send("t", b"%d" % number).get(30).offset for number in range(3)] == [0, 1, 2]
    start_over()
    with Consumer(
        "t", bootstrap_servers="s3://bucket/root", storage_options=options, auto_offset_reset="earliest"
    ) as consumer:
        assert [record.value for record in itertools.islice(consumer, 3)] == [b"0", b"1", b"2"]
    assert check_cluster(open_stub(stub)).report.findings == []


def test_without_the_right_to_list_nothing_is_written_or_called_corrupt(stub: StubS3) -> None:
    options = stub.options()
    create_cluster("s3://bucket/root", options).create_topic("t", partitions=1)
    cluster = open_cluster("s3://bucket/root", options)
    before = dict(stub.objects)
    stub.deny_lists = True
    for attempt in (cluster.refresh, lambda: cluster.create_topic("u", partitions=1)):
        with pytest.raises(StoragePermissionError, match="s3:ListBucket"):
            attempt()
    start_over()
    with pytest.raises(StoragePermissionError, match="s3:ListBucket"):
        open_cluster("s3://bucket/root", options)
    assert stub.objects == before


def test_refused_commit_names_the_right(stub: StubS3) -> None:
    cluster = create_cluster("s3://bucket/root", stub.options())
    stub.script("put", f"root/{commit_key(cluster.state.version + 1)}", [Step(NO, Answer("xml", 403, "AccessDenied"))])
    with pytest.raises(SparklogError, match="lack s3:PutObject on it; conf/policies/s3") as caught:
        cluster.create_topic("t", partitions=1)
    assert isinstance(caught.value.__cause__, StoragePermissionError)  # which no client retries
