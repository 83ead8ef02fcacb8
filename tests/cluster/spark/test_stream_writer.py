"""The streaming writer as Spark would run it, but without Spark: micro-batches are committed once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.shared import forget_shared
from sparklog.errors import InvalidOptionError, InvalidRequestError, RootReplacedError, UnlinkedHistoryError
from sparklog.protocol.decide.topics import alter_configs
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import RowWriter
from sparklog.spark.stream.checkpoint import batch_sources
from sparklog.spark.stream.lag_listener import find_lag
from sparklog.spark.stream.offsets import PlannedAt, StreamOffsets
from sparklog.spark.stream.writer import SparklogStreamCommitMessage, SparklogStreamWriter
from sparklog.store.local import LocalStore
from sparklog.types import TopicPartition
from tests.cluster.client.test_producer_restored_roots import pass_by
from tests.cluster.log.test_replaced_root import restore, take_snapshot
from tests.cluster.spark.helpers import across, batches, cluster, schema_of, values, write_rows

DDL = "value string"


def writer(folder: Path, **options: str) -> SparklogStreamWriter:
    return SparklogStreamWriter(sink_options({"path": str(folder), "topic": "copies", **options}), schema_of(DDL))


def written(job: SparklogStreamWriter, texts: list[str], query: str = "q1") -> SparklogStreamCommitMessage:
    """The message that a task of a query sends to the commit."""
    rows = batches(DDL, [{"value": text} for text in texts])
    return across(SparklogStreamCommitMessage(RowWriter.write(across(job), iter(rows)), query))


def test_a_micro_batch_is_one_commit_of_all_its_tasks(tmp_path: Path) -> None:
    log = cluster(tmp_path, copies=1)
    job = writer(tmp_path)
    before = log.refresh().version
    across(job).commit([written(job, ["a"]), written(job, ["b"])], 0)
    assert log.refresh().version == before + 1
    assert values(tmp_path, subscribe="copies") == [b"a", b"b"]


def test_only_one_of_two_instances_of_a_query_commits_a_batch(tmp_path: Path) -> None:
    log = cluster(tmp_path, copies=1)
    job = writer(tmp_path)
    zombie, restarted = written(job, ["a"]), written(job, ["a"])
    across(job).commit([restarted], 4)
    across(job).commit([zombie], 4)
    with pytest.raises(InvalidRequestError, match="micro-batch 3 of query:q1:copies comes after number 4"):
        across(job).commit([written(job, ["late"])], 3)
    assert values(tmp_path, subscribe="copies") == [b"a"]
    across(job).commit([written(job, ["b"])], 5)
    assert values(tmp_path, subscribe="copies") == [b"a", b"b"]
    assert log.refresh().applications["query:q1:copies"].version == 5


def test_queries_number_their_batches_independently(tmp_path: Path) -> None:
    cluster(tmp_path, copies=1)
    job = writer(tmp_path)
    job.commit([written(job, ["a"], "q1")], 0)
    job.commit([written(job, ["b"], "q2")], 0)
    assert values(tmp_path, subscribe="copies") == [b"a", b"b"]


def test_a_batch_without_rows_or_tasks_commits_nothing(tmp_path: Path) -> None:
    log = cluster(tmp_path, copies=1)
    job = writer(tmp_path)
    before = log.refresh().version
    job.commit([written(job, [])], 0)
    job.commit([], 1)
    assert log.refresh().version == before


def test_rows_without_a_query_are_refused(tmp_path: Path) -> None:
    cluster(tmp_path, copies=1)
    job = writer(tmp_path)
    with pytest.raises(InvalidRequestError, match="expected exactly one"):
        job.commit([written(job, ["a"], "")], 0)
    with pytest.raises(InvalidRequestError, match="expected exactly one"):
        job.commit([written(job, ["a"], "q1"), written(job, ["b"], "q2")], 0)


def test_files_of_a_failed_batch_are_deleted(tmp_path: Path) -> None:
    cluster(tmp_path, copies=1)
    job = writer(tmp_path)
    message = written(job, ["a"])
    across(job).abort([message], 0)
    assert (tmp_path / message.appends[0].run.path).exists(), "the outcome of a failed commit is unknown"
    across(job).abort([message, None], 0)
    assert not (tmp_path / message.appends[0].run.path).exists()


def test_write_numbers_of_batch_jobs_are_refused_in_a_stream(tmp_path: Path) -> None:
    cluster(tmp_path, copies=1)
    with pytest.raises(InvalidOptionError, match="numbers its micro-batches itself"):
        writer(tmp_path, txnAppId="nightly", txnVersion="1")


@pytest.mark.parametrize("overwrite", [False, True])
def test_every_output_mode_appends(tmp_path: Path, overwrite: bool) -> None:
    cluster(tmp_path, copies=1)
    source = SparklogDataSource({"path": str(tmp_path), "topic": "copies"})
    assert isinstance(source.streamWriter(schema_of(DDL), overwrite), SparklogStreamWriter)


def test_committing_offsets_requires_the_checkpoint(tmp_path: Path) -> None:
    cluster(tmp_path, copies=1)
    with pytest.raises(InvalidOptionError, match="set option checkpointLocation"):
        writer(tmp_path, **{"kafka.group.id": "copier"})
    writer(tmp_path, **{"kafka.group.id": "copier", "commitOffsets": "false"})


def checkpoint(folder: Path, batch_id: int, *lines: object, version: str = "v1") -> str:
    """The offset log of a query as Spark writes it."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    offsets = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    if version == "v2":
        offsets = [f"{number}:{line}" for number, line in enumerate(offsets)][::-1]
    text = "\n".join([version, "{}", *offsets])
    (folder / "offsets" / str(batch_id)).write_text(text)
    return str(folder)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_consumer_offsets_are_committed_with_the_output(tmp_path: Path, version: str) -> None:
    log = cluster(tmp_path / "log", copies=1, orders=2)
    state = log.refresh()
    write_rows(tmp_path / "log", "value string, partition int", [{"value": "v", "partition": 1}], topic="orders")
    ids = f"$ids:{state.cluster_id}:orders={state.topic('orders').topic_id}"
    other = {"elsewhere": {"0": 9}, "$ids": {"cluster": "another", "topics": {}}}
    sources = ({"orders": {"0": 0, "1": 1}, ids: {}}, "-", '{"logOffset":3}', other)
    location = checkpoint(tmp_path / "c", 0, *sources, version=version)
    job = writer(tmp_path / "log", **{"kafka.group.id": "copier", "checkpointLocation": location})
    before = log.refresh().version
    job.commit([written(job, ["a"])], 0)
    state = log.refresh()
    assert state.version == before + 1
    assert {one.partition: one.offset for one in state.groups["copier"].offsets.values()} == {0: 0, 1: 1}
    with pytest.raises(InvalidRequestError, match="has no offsets of micro-batch 1"):
        job.commit([written(job, ["b"])], 1)
    location = checkpoint(tmp_path / "c", 2, other)
    job = writer(tmp_path / "log", **{"kafka.group.id": "copier", "checkpointLocation": f"file:{location}"})
    with pytest.raises(InvalidRequestError, match="source and sink are in the same cluster"):
        job.commit([written(job, ["b"])], 2)


def read_up_to(log: Coordinator, offset: int) -> dict[str, object]:
    """The offsets of a query that has read topic orders up to this one, found in the newest state."""
    state = log.refresh()
    ids, found_at = {"orders": state.topic("orders").topic_id}, PlannedAt(state.version, state.digest)
    return StreamOffsets({TopicPartition("orders", 0): offset}, state.cluster_id, ids, found_at).to_json()


@pytest.mark.parametrize("rows", [["a"], []], ids=["rows", "no rows"])
@pytest.mark.parametrize("since", ["healthy", "restored", "removed", "removed while committing"])
def test_offsets_of_another_timeline_are_not_committed_with_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, since: str, rows: list[str]
) -> None:
    """Batch 1 was planned before the root was restored, by a copy of before, and is written and committed after that
    by processes that have not read what was there before."""
    root = str(tmp_path / "log")
    log = cluster(tmp_path / "log", copies=1, orders=1, t=1)
    log.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    options = {"kafka.group.id": "copier", "checkpointLocation": checkpoint(tmp_path / "c", 0, read_up_to(log, 0))}
    job = writer(tmp_path / "log", **options)
    job.commit([written(job, ["first"])], 0)
    snapshot = take_snapshot(LocalStore(root))
    log.create_topic("planned")
    checkpoint(tmp_path / "c", 1, read_up_to(log, 1))
    if since == "restored":
        restore(LocalStore(root), snapshot)
        for name in ("x", "y"):
            open_cluster(root).create_topic(name)
    elif since == "removed":  # in a healthy root
        pass_by(LocalStore(root))
    forget_shared(root)
    job = writer(tmp_path / "log", **options)
    message = written(job, rows)
    if since == "removed while committing":
        when_submitting(monkeypatch, partial(pass_by, LocalStore(root)))
    error = {"restored": RootReplacedError, "removed while committing": UnlinkedHistoryError}.get(since)
    with pytest.raises(error) if error else nullcontext():
        job.commit([message], 1)
    committed = open_cluster(root).state.committed("copier", "orders", 0)
    assert committed is not None
    assert committed.offset == (0 if error else 1)
    assert values(tmp_path / "log", subscribe="copies") == [b"first", *(row.encode() for row in rows if not error)]


def when_submitting(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let this happen once, before the next commit of any coordinator."""
    submit = Coordinator.submit

    def resume(coordinator: Coordinator, *request: Any, **more: Any) -> object:
        monkeypatch.undo()
        happens()
        return submit(coordinator, *request, **more)

    monkeypatch.setattr(Coordinator, "submit", resume)


@pytest.mark.parametrize("ids", [{"$ids:c:a=x": {}}, {"$ids": {"cluster": "c", "topics": {"a": "x"}}}])
def test_lag_is_found_in_a_querys_progress(ids: dict[str, object]) -> None:
    source = {"endOffset": {"a": {"0": 5, "1": 2}, **ids}, "latestOffset": {"a": {"0": 9, "1": 2}}}
    progress = {"id": "q", "name": "copier", "batchId": 3, "inputRowsPerSecond": 2.5, "processedRowsPerSecond": None}
    found = find_lag({**progress, "sources": [source, {"endOffset": {"logOffset": 1}}]})
    assert found is not None
    assert found.partitions == {TopicPartition("a", 0): 4, TopicPartition("a", 1): 0}
    assert (found.query, found.min_offsets_behind_latest, found.max_offsets_behind_latest) == ("copier", 0, 4)
    assert (found.avg_offsets_behind_latest, found.input_rows_per_second) == (2.0, 2.5)
    assert find_lag({**progress, "sources": [{"endOffset": "7"}, {}]}) is None


def test_a_batch_has_the_same_digest_in_both_forms_of_the_offset_log(tmp_path: Path) -> None:
    sources = ({"orders": {"0": 5, "1": 1}, "$ids:c:orders=x": {}}, "-")
    found = [
        batch_sources(checkpoint(tmp_path / version, 1, *sources, version=version), {}, 1, str(tmp_path))
        for version in ("v1", "v2")
    ]
    assert found[0].ends
    assert found[0] == found[1]


def test_a_batch_has_the_same_digest_whichever_commit_its_offsets_were_found_in(tmp_path: Path) -> None:
    """So a query that is started from a copy of its checkpoint repeats a batch of the same records."""
    (tmp_path / "offsets").mkdir()
    ends = [',"$ids:c:a=x":{}', ',"$ids:c:a=x,$7=5b":{}', ',"$ids:c:a=x,$81=0f":{}', ',"$ids:c:a=y,$7=5b":{}']
    for number, ids in enumerate(ends):
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"a":{{"0":5}}{ids}}}')
    digests = [batch_sources(str(tmp_path), {}, number, str(tmp_path)).ends for number in range(4)]
    assert digests[0] == digests[1] == digests[2] != digests[3]
