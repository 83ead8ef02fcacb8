"""Representations of clients, clusters, batches and futures: short, made without requests, and never raising."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.cluster import Cluster
from sparklog.client.condition import Condition
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.group_session import CommitFuture
from sparklog.client.consumer.records import RecordBatches
from sparklog.client.producer.futures import FutureOffsets, FutureRecordMetadata, RecordBatchResult
from sparklog.client.producer.producer import Producer
from sparklog.client.representation import Shown, join_names, shorten
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import KafkaTimeoutError
from sparklog.protocol.commits import Action, CommitOffsets, CommittedOffset
from sparklog.protocol.decide.decision import Decision
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore
from sparklog.types import TopicPartition

EVIL = '<img src=x onerror="alert(1)">'


@pytest.fixture
def store() -> FaultyStore:
    inner = MemoryStore(uuid.uuid4().hex)
    create_cluster(inner).create_topic("orders", 2)
    return FaultyStore(inner)


@pytest.fixture
def cluster(store: FaultyStore) -> Cluster:
    return Cluster(open_cluster(store))


def test_a_producer_shows_its_cluster_ids_and_closed_state(cluster: Cluster) -> None:
    producer = cluster.producer(client_id="shop", transactional_id="orders-1")
    assert repr(producer) == f"<Producer root={cluster.root} client_id=shop transactional_id=orders-1>"
    assert repr(producer) == str(producer)
    producer.close()
    assert repr(producer).endswith(" state=closed>")


def test_a_consumer_shows_its_group_topics_and_partitions(cluster: Cluster) -> None:
    consumer = cluster.consumer("orders", group_id="billing")
    assert repr(consumer) == f"<Consumer root={cluster.root} group_id=billing topics=orders assigned=none>"
    consumer.close()
    assert "state=closed" in repr(consumer)
    alone = cluster.consumer()
    alone.assign([TopicPartition("orders", number) for number in range(2)])
    assert repr(alone) == f"<Consumer root={cluster.root} assigned=orders-0,orders-1>"
    alone.close()
    with cluster.consumer() as by_pattern:
        by_pattern.subscribe(pattern="^ord.*")
        assert "pattern=^ord.*" in repr(by_pattern)


def test_an_admin_client_and_a_cluster_show_their_root(cluster: Cluster) -> None:
    admin = cluster.admin(client_id="ops")
    assert repr(admin) == f"<AdminClient root={cluster.root} client_id=ops>"
    admin.close()
    assert "state=closed" in repr(admin)
    assert repr(cluster) == f"<Cluster root={cluster.root} id={cluster.cluster_id} topics=orders>"


def test_a_representation_makes_no_storage_requests(store: FaultyStore, cluster: Cluster) -> None:
    with cluster.producer() as producer, cluster.consumer("orders") as consumer, cluster.admin() as admin:
        before = len(store.calls)
        for shown in (producer, consumer, admin, cluster):
            assert repr(shown)
            assert shown._repr_html_()
        assert len(store.calls) == before


@pytest.mark.parametrize(
    "kind", [Producer, Consumer, AdminClient, Cluster, FutureRecordMetadata, FutureOffsets, CommitFuture]
)
def test_uninitialised_objects_show_that_they_are_not_ready(kind: type[Shown]) -> None:
    half = kind.__new__(kind)
    assert repr(half) == f"<{kind.__name__} not ready>"
    assert kind.__name__ in half._repr_html_()


def test_an_object_whose_constructor_failed_can_be_shown() -> None:
    producers: list[Producer] = []

    class Kept(Producer):
        def __init__(self, **configs: Any) -> None:
            producers.append(self)
            super().__init__(**configs)

    with pytest.raises(Exception, match="no_such_argument"):
        Kept(no_such_argument=1)
    assert repr(producers[0]) == "<Kept not ready>"


# -- futures


def record_future() -> tuple[RecordBatchResult, FutureRecordMetadata]:
    outcome = RecordBatchResult(Condition(), TopicPartition("orders", 1))
    outcome.stamps.append(5_000_000)
    return outcome, FutureRecordMetadata(outcome, 0)


def test_a_future_shows_whether_it_is_pending_done_or_failed() -> None:
    outcome, future = record_future()
    assert repr(future) == "<FutureRecordMetadata pending>"
    assert '>state</td><td style="text-align:left">pending<' in future._repr_html_()
    outcome.base_offset, outcome.done = 17, True
    assert repr(future) == "<FutureRecordMetadata done topic=orders partition=1 offset=17>"
    outcome, future = record_future()
    outcome.error, outcome.done = KafkaTimeoutError("too late"), True
    assert repr(future).startswith("<FutureRecordMetadata failed error='KafkaTimeoutError: too late")


def test_futures_of_tables_and_commits_show_their_results(cluster: Cluster) -> None:
    with cluster.producer() as producer:
        future = producer.send_batch("orders", pa.table({"value": ["a", "b"]}), partition=0)
        future.get(timeout=30)
    assert "OffsetRange(topic='orders', partition=0, start=0, end=2)" in repr(future)
    commit = CommitFuture({})
    commit.resolve(None)
    assert repr(commit) == "<CommitFuture done result={}>"


# -- record batches


def batches(*rows: tuple[bytes | None, bytes | None]) -> RecordBatches:
    columns = {
        "key": pa.array([key for key, _ in rows], pa.binary()),
        "value": pa.array([value for _, value in rows], pa.binary()),
        "timestamp": pa.array([1_000 * number for number in range(len(rows))], pa.timestamp("us", "UTC")),
    }
    return RecordBatches("orders", 0, 10, pa.record_batch(columns), 0, -1)


def test_record_batches_show_their_offsets_and_size_but_not_their_bytes() -> None:
    shown = repr(batches((b"k", b"v" * 5_000), (b"k", None)))
    assert shown.startswith("<RecordBatches orders-0 offsets=[10,12) records=2 bytes=")
    assert len(shown) < 100


def test_record_batches_in_a_notebook_show_their_first_records_escaped() -> None:
    html = batches((b"<b>", EVIL.encode()), (None, b"\xff\xfe"), *[(b"k", b"v")] * 10)._repr_html_()
    assert "&lt;b&gt;" in html
    assert EVIL not in html
    assert html.count("<tr>") == 1 + 5
    assert r"b&#x27;\xff\xfe&#x27;" in html


def test_unreadable_record_batches_are_shown_without_records() -> None:
    broken = batches((b"k", b"v"))._replace(batch=None)
    assert repr(broken) == "<RecordBatches orders-0>"
    assert "orders-0" in broken._repr_html_()


# -- html


def shows(value: object) -> Shown:
    class Thing(Shown):
        def _facts(self) -> dict[str, object]:
            return {"value": value}

    return Thing()


def test_html_is_escaped() -> None:
    assert EVIL not in shows(EVIL)._repr_html_()
    assert "&lt;img" in shows(EVIL)._repr_html_()


def test_a_cluster_in_a_notebook_lists_its_topics(cluster: Cluster) -> None:
    html = cluster._repr_html_()
    assert '<td style="text-align:left">orders</td>' in html
    assert cluster.root in html


def test_a_cluster_in_a_notebook_lists_its_first_topics_and_groups_escaped(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = f"{EVIL}\x1b[2J\u202e"
    topic_id = cluster.coordinator.state.topic("orders").topic_id
    committed = CommittedOffset(topic="orders", topic_id=topic_id, partition=0, offset=0)
    groups: list[Action] = [CommitOffsets(group=group, offsets=[committed]) for group in (hostile, "z")]
    cluster.coordinator.submit(lambda _: Decision(groups, None))
    html = cluster._repr_html_()
    assert "<caption>consumer groups</caption>" in html
    assert "&lt;img" in html
    assert not any(part in html for part in ("<img", "\x1b", "\u202e"))
    assert '>z</td><td style="text-align:left">Empty<' in html
    monkeypatch.setattr("sparklog.client.cluster.ROWS_SHOWN", 1)
    assert "… and 1 more" in cluster._repr_html_()


def test_long_values_and_lists_are_shortened() -> None:
    assert len(shorten("x" * 5_000)) == 100
    assert len(shorten(b"\xff" * 5_000)) == 100
    assert join_names(f"t{number}" for number in range(9)) == "t0,t1,t2,t3,t4,…(9)"
    assert len(repr(shows("x" * 5_000))) < 150


def fails() -> object:
    raise RuntimeError("dictionary changed size during iteration")


@pytest.mark.parametrize("show", [repr, Shown._repr_html_])
def test_a_concurrent_change_does_not_make_a_representation_raise(show: Callable[[Shown], str]) -> None:
    class Racing(Shown):
        def _facts(self) -> dict[str, object]:
            return {"value": fails()}

    assert "not ready" in show(Racing())


def test_a_failing_repr_of_a_value_is_not_raised() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert "Bad" in repr(shows(Bad()))
    assert "Bad" in shows(Bad())._repr_html_()


def test_clients_are_not_copied(cluster: Cluster) -> None:
    """The end of a copy would close the client."""
    with cluster.consumer() as consumer, cluster.producer() as producer:
        for client in (consumer, producer):
            with pytest.raises(TypeError, match="cannot be copied"):
                copy.copy(client)
