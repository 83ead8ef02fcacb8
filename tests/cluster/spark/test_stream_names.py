"""Which queries commit offsets to a group of their name, and which offsets."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog.coordinator import create_cluster, open_cluster, shared_cluster
from sparklog.coordinator.shared import forget_shared
from sparklog.errors import InvalidRequestError, RootReplacedError, SparklogError, UnlinkedHistoryError
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from sparklog.spark.stream.lag_listener import MAX_QUERIES, LagListener, QueryLag
from sparklog.spark.stream.offsets import PlannedAt, StreamOffsets
from sparklog.spark.stream.query_names import find_group
from sparklog.store.local import LocalStore
from sparklog.types import TopicPartition
from tests.cluster.client.test_producer_restored_roots import pass_by
from tests.cluster.log.test_replaced_root import restore, take_snapshot

SOURCE = {"kafka.bootstrap.servers": "/data/log", "subscribe": "orders"}


def test_a_query_whose_sources_read_one_cluster_has_a_group() -> None:
    found = find_group("audit", [SOURCE, {**SOURCE, "subscribe": "clicks"}])
    assert found is not None
    assert found.name == "audit"


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [{**SOURCE, "kafka.group.id": "chosen"}],
        [{**SOURCE, "KAFKA.GROUP.ID": "chosen"}, SOURCE],
        [{**SOURCE, "commitOffsets": "false"}],
        [SOURCE, {**SOURCE, "kafka.bootstrap.servers": "/data/other"}],
    ],
    ids=["other source", "a group", "a group of one", "opt-out", "two clusters"],
)
def test_other_queries_have_no_group(sources: list[dict[str, str]]) -> None:
    assert find_group("audit", sources, sources_commit=True) is None


def test_a_query_name_that_is_not_a_valid_group_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        find_group("x" * 300, [SOURCE])


def test_only_changed_offsets_are_committed(tmp_path: Path) -> None:
    log = create_cluster(str(tmp_path / "log"))
    topic = log.create_topic("orders", 2)
    group = find_group("audit", [{**SOURCE, "kafka.bootstrap.servers": str(tmp_path / "log")}])
    assert group is not None

    def after(offset: int, topic_id: str = topic) -> dict[str, object]:
        ids = {"cluster": log.state.cluster_id, "topics": {"orders": topic_id}}
        return {"id": "1", "batchId": 0, "sources": [{"endOffset": {"orders": {"0": offset, "1": 0}, "$ids": ids}}]}

    group.commit(after(5))
    version = log.refresh().version
    group.commit(after(5))
    group.commit(after(7, "another topic of that name"))
    assert log.refresh().version == version
    assert {one.partition: one.offset for one in log.state.groups["audit"].offsets.values()} == {0: 5, 1: 0}


@pytest.mark.parametrize(
    ("root", "error", "committed"),
    [
        ("healthy", None, 5),
        ("restored", RootReplacedError, None),
        ("suspended", UnlinkedHistoryError, 3),
        ("suspended and read since", UnlinkedHistoryError, 3),
    ],
)
def test_offsets_of_another_timeline_are_not_committed(
    tmp_path: Path, root: str, error: type[SparklogError] | None, committed: int | None
) -> None:
    folder = str(tmp_path / "log")
    log = create_cluster(folder)
    log.create_topic("orders")
    log.create_topic("t")
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    snapshot = take_snapshot(log.store)
    group = find_group("audit", [{**SOURCE, "kafka.bootstrap.servers": folder}])
    assert group is not None
    state = log.refresh()
    group.commit(progress_at(state, 3))
    listening = shared_cluster(folder)
    log.create_topic("planned")
    end = progress_at(log.refresh(), 5)
    if root == "restored":
        restore(LocalStore(folder), snapshot)
        forget_shared(folder)  # the program is started again
        for name in ("a", "b", "c"):
            open_cluster(folder).create_topic(name)
    elif root.startswith("suspended"):
        pass_by(log.store)
    if root == "suspended and read since":
        listening.refresh()
    with pytest.raises(error) if error else nullcontext():
        group.commit(end)
    assert log_offset(folder) == committed
    group.commit(progress_at(open_cluster(folder).state, 6))
    assert log_offset(folder) == 6


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_listener_reports_the_lag_also_where_it_commits_nothing(
    tmp_path: Path, is_restored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = str(tmp_path / "log")
    log = create_cluster(folder)
    log.create_topic("orders")
    snapshot = take_snapshot(log.store)
    log.create_topic("planned")
    progress = progress_at(log.refresh(), 5)
    if is_restored:
        restore(LocalStore(folder), snapshot)
        forget_shared(folder)
    reported: list[QueryLag] = []
    listener = LagListener(reported.append, root=folder)
    for number in range(MAX_QUERIES + 1):
        name = {"name": "audit"} if number == MAX_QUERIES else {}
        text = json.dumps({**progress, "id": str(number), **name})
        event = SimpleNamespace(progress=SimpleNamespace(json=text, id=number))
        listener.onQueryProgress(cast(Any, event))
    assert reported[-1].query == "audit"
    assert list(listener.progress)[-1] == "audit"
    assert len(listener.progress) == MAX_QUERIES
    assert log_offset(folder) == (None if is_restored else 5)
    assert ("could not commit offsets to consumer group audit" in caplog.text) == is_restored
    no_source = SimpleNamespace(progress=SimpleNamespace(json=json.dumps({"sources": []}), id="none"))
    listener.onQueryProgress(cast(Any, no_source))
    assert len(reported) == MAX_QUERIES + 1


def progress_at(state: State, offset: int) -> dict[str, object]:
    """The progress of a query after a batch that was planned in this state."""
    ids, planned = {"orders": state.topic("orders").topic_id}, PlannedAt(state.version, state.digest)
    end = StreamOffsets({TopicPartition("orders", 0): offset}, state.cluster_id, ids, planned)
    return {"id": "1", "batchId": 0, "sources": [{"endOffset": end.to_json(), "latestOffset": end.to_json()}]}


def log_offset(folder: str) -> int | None:
    committed = open_cluster(folder).state.committed("audit", "orders", 0)
    return None if committed is None else committed.offset


def test_a_group_of_the_sources_is_committed_to_where_spark_does_not_ask_them_again() -> None:
    chosen = {**SOURCE, "kafka.group.id": "chosen"}
    assert find_group("audit", [chosen], sources_commit=True) is None
    found = find_group("audit", [chosen], sources_commit=False)
    assert found is not None
    assert found.name == "chosen"
    unnamed = find_group("", [chosen], sources_commit=False)
    assert unnamed is not None
    assert unnamed.name == "chosen"
    for sources in ([SOURCE], [chosen, {**SOURCE, "kafka.group.id": "other"}], [{**chosen, "commitOffsets": "false"}]):
        assert find_group("", sources, sources_commit=False) is None
