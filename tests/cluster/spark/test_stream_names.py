"""Which queries commit offsets to a group of their name, and which offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.coordinator import create_cluster
from sparklog.errors import InvalidRequestError
from sparklog.spark.stream.query_names import find_group

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
