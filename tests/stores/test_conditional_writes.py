"""A server that ignores the condition of conditional writes is refused; an unreachable one is not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import ClusterNotFoundError, ObjectNotFoundError, StorageError, UnsupportedStoreError
from sparklog.ids import SeededIds
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.store import conditional_write_probe
from sparklog.store.conditional_write_probe import PROBED, probe_conditional_writes, require_conditional_writes
from sparklog.store.process_local import start_over
from sparklog.store.s3 import S3Store
from tests.stores import s3_answers
from tests.stores.s3_answers import OPERATIONS, says_taken
from tests.stores.s3_stub import DROP, HONEST, NO, YES, Answer, Step, StubS3, stub_s3


@pytest.fixture(scope="module", params=[False, True], ids=["honours", "ignores"])
def stub(request: pytest.FixtureRequest) -> Iterator[StubS3]:
    with stub_s3(ignore_conditions=request.param) as server:
        yield server


@pytest.fixture(autouse=True)
def forget() -> None:
    """Every test acts as a process that has written nothing yet."""
    start_over()


def open_store(stub: StubS3, root: str) -> S3Store:
    return S3Store(f"s3://bucket/{root}", stub.options())


def objects_below(stub: StubS3, root: str) -> list[str]:
    return sorted(key.removeprefix(f"{root}/") for key in stub.objects if key.startswith(f"{root}/"))


def test_only_a_server_that_ignores_the_condition_is_refused(stub: StubS3) -> None:
    store = open_store(stub, "plain")
    if stub.ignore_conditions:
        with pytest.raises(UnsupportedStoreError, match="ignores If-None-Match") as caught:
            probe_conditional_writes(store, SeededIds(1))
        assert stub.endpoint in str(caught.value)
        assert "versitygw" in str(caught.value)  # the message names alternatives
    else:
        probe_conditional_writes(store, SeededIds(1))
    assert objects_below(stub, "plain") == []


def test_no_cluster_is_created_on_a_server_that_ignores_the_condition() -> None:
    with stub_s3(ignore_conditions=True) as stub:
        with pytest.raises(UnsupportedStoreError, match="ignores If-None-Match"):
            create_cluster("s3://bucket/created", stub.options())
        assert objects_below(stub, "created") == []
        with pytest.raises(ClusterNotFoundError):
            open_cluster("s3://bucket/created", stub.options())


def test_only_writers_are_refused_if_a_cluster_was_moved_to_such_a_server() -> None:
    with stub_s3() as stub:
        cluster = create_cluster("s3://bucket/moved", stub.options())
        cluster.create_topic("t", partitions=1)
        copied = dict(stub.objects)
    with stub_s3(ignore_conditions=True) as bad:
        bad.objects.update(copied)
        cluster = open_cluster("s3://bucket/moved", bad.options())
        assert "t" in cluster.state.topics
        for _ in range(2):
            with pytest.raises(UnsupportedStoreError, match="ignores If-None-Match"):
                cluster.create_topic("u", partitions=1)
        with Producer(bootstrap_servers="s3://bucket/moved", storage_options=bad.options()) as producer:
            future = producer.send("t", b"x")
            with pytest.raises(UnsupportedStoreError):
                future.get(30)
        commits = [key for key in bad.objects if "/meta/commits/" in key]
        assert commits == [key for key in copied if "/meta/commits/" in key]


def test_a_passed_trial_is_remembered_in_the_cluster_for_this_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with stub_s3() as stub:
        create_cluster("s3://bucket/remembered", stub.options())
        (remembered,) = [key for key in objects_below(stub, "remembered") if key.startswith(PROBED)]
        assert stub.endpoint.encode() in stub.objects[f"remembered/{remembered}"]
        start_over()  # as another process does
        before = sum(count for (operation, _), count in stub.requests.items() if operation == "put")
        open_cluster("s3://bucket/remembered", stub.options()).create_topic("t", partitions=1)
        after = sum(count for (operation, _), count in stub.requests.items() if operation == "put")
        assert after == before + 2  # a look at the storage's time, and the commit, but no trial
        copied = dict(stub.objects)
    with stub_s3(ignore_conditions=True) as bad:  # the result of another server says nothing about this one
        bad.objects.update(copied)
        with pytest.raises(UnsupportedStoreError):
            require_conditional_writes(open_store(bad, "remembered"), SeededIds(1))


def test_the_remembered_trial_is_not_a_finding_of_fsck() -> None:
    with stub_s3() as stub:
        cluster = create_cluster("s3://bucket/checked", stub.options())
        assert list(cluster.store.list(PROBED))
        assert check_cluster(cluster.store).report.findings == []


def test_reader_writes_nothing() -> None:
    with stub_s3() as stub:
        create_cluster("s3://bucket/read", stub.options()).create_topic("t", partitions=1)
        for key in [key for key in stub.objects if PROBED in key]:
            del stub.objects[key]
        written = {key: count for key, count in stub.requests.items() if key[0] in ("put", "delete", "begin")}
        cluster = open_cluster("s3://bucket/read", stub.options())
        cluster.refresh()
        cluster.segments("t")
        assert written == {key: count for key, count in stub.requests.items() if key[0] in ("put", "delete", "begin")}


def test_outage_is_a_storage_error_that_has_certainly_written_nothing(stub: StubS3) -> None:
    store = open_store(stub, "outage")
    ids = SeededIds(5)
    for _ in range(conditional_write_probe.TRIALS):
        stub.script("put", f"outage/{PROBED}trial-{ids.write_id()}", [Step(NO, Answer("xml", 403, "ExpiredToken"))])
    with pytest.raises(StorageError, match="ExpiredToken") as caught:
        require_conditional_writes(store, SeededIds(5))
    assert caught.value.nothing_written


def test_store_that_cannot_ignore_the_condition_is_not_probed(tmp_path: object) -> None:
    cluster = create_cluster(str(tmp_path))
    cluster.create_topic("t", partitions=1)
    with pytest.raises(ObjectNotFoundError):
        cluster.store.info(f"{PROBED}x")
    assert not list(cluster.store.list(PROBED))


def test_lost_answer_to_the_second_write_is_not_a_failed_condition() -> None:
    with stub_s3(ignore_conditions=True) as stub:
        store, key = open_store(stub, "lost"), f"lost/{PROBED}trial-{SeededIds(9).write_id()}"
        honest = Step(YES, Answer(HONEST))
        stub.script("put", key, [honest, Step(YES, Answer(DROP)), Step(NO, Answer("html", 412))])
        with pytest.raises(UnsupportedStoreError):
            probe_conditional_writes(store, SeededIds(9))


def test_server_whose_answers_contradict_its_effects_is_refused() -> None:
    with stub_s3(ignore_conditions=True) as stub:
        store, key = open_store(stub, "liar"), f"liar/{PROBED}trial-{SeededIds(9).write_id()}"
        stub.script("put", key, [Step(YES, Answer(HONEST)), Step(YES, Answer("xml", 412, "PreconditionFailed"))])
        with pytest.raises(UnsupportedStoreError):
            probe_conditional_writes(store, SeededIds(9))


def outcomes(
    stub: StubS3, points: list[tuple[Step, ...]], number: int
) -> Iterator[tuple[object, BaseException | None]]:
    """The outcomes of the probe for each of these answers to the ``number``-th write of its first trial."""
    client = open_store(stub, "generated")
    ids = [f"{index}-{len(stub.requests)}" for index in range(len(points))]

    def play(name: str, steps: tuple[Step, ...]) -> BaseException | None:
        store = open_store(stub, f"generated/{name}")
        store.client = client.client  # one connection pool for all
        before = [Step(YES, Answer(HONEST))] * number
        stub.script("put", f"generated/{name}/{PROBED}trial-{SeededIds(1).write_id()}", [*before, *steps])
        try:
            probe_conditional_writes(store, SeededIds(1))
        except (StorageError, UnsupportedStoreError) as error:
            return error
        return None

    with ThreadPoolExecutor(64) as threads:
        yield from zip(points, threads.map(play, ids, points), strict=True)


def check_generated(stub: StubS3, points: list[tuple[Step, ...]]) -> None:
    for number in (0, 1):
        for steps, error in outcomes(stub, points, number):
            if stub.ignore_conditions:
                assert error is not None, f"{steps} for write {number}: accepted, although it ignores the condition"
            else:
                refused = isinstance(error, UnsupportedStoreError)
                assert not refused, f"{steps} for write {number}: refused, although it honours the condition"


CREATE = next(operation for operation in OPERATIONS if operation.name == "create")


def steps_of(stub: StubS3) -> list[Step]:
    """A server that ignores the condition never reports that it failed."""
    honest = [Step(YES, Answer(HONEST))]
    possible = [step for step in s3_answers.steps(CREATE) if not says_taken(step.answer)]
    return honest + possible if stub.ignore_conditions else list(s3_answers.steps(CREATE))


def test_probe_neither_accepts_in_doubt_nor_refuses_in_an_outage_for_a_sample_of_answers(stub: StubS3) -> None:
    steps = steps_of(stub)
    check_generated(stub, random.Random(1).sample(list(itertools.product(steps, steps)), 60))


@pytest.mark.faults
def test_probe_neither_accepts_in_doubt_nor_refuses_in_an_outage_for_any_answer(stub: StubS3) -> None:
    steps = steps_of(stub)
    check_generated(stub, [(step,) for step in steps])
    check_generated(stub, random.Random(2).sample(list(itertools.product(steps, steps)), 1000))
