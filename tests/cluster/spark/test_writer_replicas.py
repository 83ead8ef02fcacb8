"""Spark's writers with replicas: the brokers that a task writes to, shared files, and refusals in the driver."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.coordinator import shared_cluster
from sparklog.errors import InvalidOptionError, InvalidRecordError, NotEnoughReplicasError, NotLeaderOrFollowerError
from sparklog.protocol.commits import ChangeBroker
from sparklog.protocol.decide.topics import alter_configs
from sparklog.spark.group.output import TaskSends
from sparklog.spark.options import sink_options
from sparklog.spark.sink.topic_targets import target_of
from sparklog.spark.sink.writer import RowWriter
from sparklog.spark.stream.writer import SparklogStreamCommitMessage, SparklogStreamWriter
from sparklog.testing.faulty_store import ERROR, UNAVAILABLE, Fault, FaultyStore
from tests.cluster.spark.helpers import Row, across, batches, cluster, schema_of, write_job, writer
from tests.replicated import Brokers, brokers

VALUE = "value string"
KEYED = "key string, value string"
PLACED = "value string, partition int"
ROUTED = "topic string, key string, value string"


def write(broker_set: Brokers, ddl: str, *tasks: list[Row], **options: str) -> list[Any]:
    """A batch job of these tasks to topic t."""
    jobs = [batches(ddl, rows) for rows in tasks]
    return write_job(Path(broker_set.root), ddl, jobs, **{"topic": "t", **options})


def down(broker_set: Brokers, broker: int, kind: str = ERROR) -> None:
    broker_set.stores[broker].inject(*(Fault(step, kind) for step in range(1000)))


# -- brokers of rows


def test_every_in_sync_replica_has_the_rows_of_all_tasks(tmp_path: Path) -> None:
    with brokers(tmp_path) as broker_set:
        messages = write(broker_set, VALUE, [{"value": "a"}], [{"value": "b"}])
        assert broker_set.values(0) == broker_set.values(1) == [b"a", b"b"]
        assert [append.run.replicas for message in messages for append in message.appends] == [[0, 1], [0, 1]]
        assert broker_set.partition().isr == (0, 1)


def test_only_partitions_with_the_same_brokers_share_a_file(tmp_path: Path) -> None:
    with brokers(tmp_path, 3, factor=2, partitions=6) as broker_set:
        (message,) = write(
            broker_set, PLACED, [{"value": str(number), "partition": number % 6} for number in range(60)]
        )
        paths: dict[str, set[frozenset[int]]] = {}
        for append in message.appends:
            replicas = frozenset(broker_set.partition("t", append.partition).replicas)
            assert frozenset(append.run.replicas) == replicas
            paths.setdefault(append.run.path, set()).add(replicas)
        assert [len(sets) for sets in paths.values()] == [1, 1, 1]
        for number in range(6):
            expected = [str(value).encode() for value in range(60) if value % 6 == number]
            for broker in broker_set.partition("t", number).replicas:
                assert broker_set.values(broker, partition=number) == expected


def test_single_replica_partitions_are_written_to_their_own_brokers(tmp_path: Path) -> None:
    with brokers(tmp_path, 3, factor=1, partitions=3) as broker_set:
        write(broker_set, PLACED, [{"value": str(number), "partition": number} for number in range(3)])
        for number in range(3):
            assert broker_set.values(number, partition=number) == [str(number).encode()]
            assert len(broker_set.files(number)) == 2


@pytest.mark.parametrize("option", ["acks", "kafka.acks"])
def test_with_acks_1_only_the_leader_has_the_rows(tmp_path: Path, option: str) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as broker_set:
        write(broker_set, VALUE, [{"value": "a"}], **{option: "1"})
        assert (broker_set.values(0), broker_set.files(1), broker_set.partition().isr) == ([b"a"], [], (0,))


def test_a_replica_costs_one_more_copy_of_the_bytes(tmp_path: Path) -> None:
    """Each location gets the same bytes, as many as the only one gets without a replica."""
    rows: list[Row] = [{"value": f"{number}" * 50} for number in range(5000)]
    sizes: list[list[int]] = []
    for count in (1, 2):
        with brokers(tmp_path / str(count), count) as broker_set:
            write(broker_set, VALUE, rows)
            sizes.append(
                [
                    sum(Path(s.root, f).stat().st_size for f in broker_set.files(n))
                    for n, s in enumerate(broker_set.stores)
                ]
            )
    assert sizes[1] == sizes[0] * 2


def test_a_topic_created_by_a_job_has_the_replication_factor_of_the_cluster(tmp_path: Path) -> None:
    with brokers(tmp_path, 3) as broker_set:
        broker_set.coordinator.submit(
            partial(alter_configs, topic="", changes={"default.replication.factor": "2", "num.partitions": "4"})
        )
        rows: list[Row] = [{"topic": "new", "key": str(number), "value": str(number)} for number in range(40)]
        messages = write(broker_set, ROUTED, rows[:20], rows[20:], topic="")
        assert messages[0].new_topics == messages[1].new_topics
        written: list[bytes] = []
        for number in range(4):
            partition = broker_set.partition("new", number)
            assert len(partition.replicas) == 2
            assert set(partition.isr) == set(partition.replicas)
            first, second = (broker_set.values(broker, "new", number) for broker in partition.replicas)
            assert first == second
            written += first
        assert sorted(written) == sorted(str(number).encode() for number in range(40))


# -- locations that fail


@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE])
def test_a_job_continues_without_a_failed_follower(tmp_path: Path, kind: str) -> None:
    with brokers(tmp_path) as broker_set:
        down(broker_set, 1, kind)
        write(broker_set, VALUE, [{"value": "a"}])
        assert (broker_set.values(0), broker_set.partition().isr, broker_set.partition().leader) == ([b"a"], (0,), 0)


def test_another_replica_leads_if_the_location_of_the_leader_fails(tmp_path: Path) -> None:
    with brokers(tmp_path) as broker_set:
        broker_set.coordinator.create_topic("r", assignment=[[1, 0]])
        down(broker_set, 1)
        write(broker_set, VALUE, [{"value": "a"}], topic="r")
        assert (
            broker_set.values(0, "r"),
            broker_set.partition("r").leader,
            broker_set.partition("r").leader_epoch,
        ) == (
            [b"a"],
            0,
            1,
        )


def test_with_acks_1_a_retried_task_writes_to_the_next_in_sync_replica(tmp_path: Path) -> None:
    with brokers(tmp_path, 3, partitions=2) as broker_set:
        broker_set.lead(1, [1, 2], partition=1)
        state = broker_set.coordinator.refresh()
        leader = target_of(state, "t", acks=1)
        places = [[one for (one,) in leader.after_failures(failures).brokers] for failures in range(4)]
        assert places == [[0, 1], [1, 2], [2, 1], [0, 2]]
        assert target_of(state, "t").after_failures(3).brokers == target_of(state, "t").brokers


def test_a_follower_that_misses_the_file_of_one_task_leaves_the_isr(tmp_path: Path) -> None:
    with brokers(tmp_path) as broker_set:
        job = writer(Path(broker_set.root), VALUE, topic="t")
        first = across(across(job).write(iter(batches(VALUE, [{"value": "a"}]))))
        store = job.stores[1]
        assert isinstance(store, FaultyStore)
        store.inject(Fault(0, ERROR))
        second = across(across(job).write(iter(batches(VALUE, [{"value": "b"}]))))
        across(job).commit([first, second])
        assert (broker_set.values(0), broker_set.partition().isr) == ([b"a", b"b"], (0,))


def test_a_task_whose_file_is_on_too_few_brokers_fails_and_is_retried_by_spark(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as broker_set:
        job = writer(Path(broker_set.root), VALUE, topic="t")
        stores = list(job.stores.values())
        assert isinstance(stores[1], FaultyStore)
        stores[1].inject(Fault(0, ERROR))
        with pytest.raises(NotEnoughReplicasError, match="t-0 has 1 of its replicas"):
            across(job).write(iter(batches(VALUE, [{"value": "a"}])))
        assert broker_set.files(0) == broker_set.files(1) == []
        stores[1].reopen()
        across(job).commit([across(across(job).write(iter(batches(VALUE, [{"value": "a"}]))))])
        assert broker_set.values(0) == broker_set.values(1) == [b"a"]
        assert broker_set.partition().isr == (0, 1)


def test_files_of_a_failed_job_are_deleted_from_every_broker(tmp_path: Path) -> None:
    with brokers(tmp_path) as broker_set:
        job = writer(Path(broker_set.root), VALUE, topic="t")
        message = across(across(job).write(iter(batches(VALUE, [{"value": "a"}]))))
        assert [len(broker_set.files(broker)) for broker in (0, 1)] == [2, 2]
        across(job).abort([message, None])
        assert [broker_set.files(broker) for broker in (0, 1)] == [[], []]


# -- what is refused


def test_too_few_in_sync_replicas_are_refused_in_the_driver(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as broker_set:
        broker_set.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError, match=r"min\.insync\.replicas"):
            writer(Path(broker_set.root), VALUE, topic="t")
        with pytest.raises(NotEnoughReplicasError):
            SparklogStreamWriter(sink_options({"path": broker_set.root, "topic": "t"}), schema_of(VALUE))
        assert broker_set.files(0) == []
        write(broker_set, VALUE, [{"value": "a"}], acks="1")


def test_too_few_in_sync_replicas_of_a_topic_named_by_a_row_are_refused(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as broker_set:
        broker_set.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError):
            write(broker_set, ROUTED, [{"topic": "t", "key": "k", "value": "a"}], topic="")
        assert broker_set.files(0) == []


def test_a_topic_without_a_leader_is_refused_in_the_driver(tmp_path: Path) -> None:
    with brokers(tmp_path, 1) as broker_set:
        broker_set.commit(ChangeBroker(broker=0, online=False))
        broker_set.lead(-1, [0])
        with pytest.raises(NotLeaderOrFollowerError):
            writer(Path(broker_set.root), VALUE, topic="t")


def test_a_commit_with_too_few_copies_is_refused_whole(tmp_path: Path) -> None:
    with brokers(tmp_path, min_insync_replicas="2") as broker_set:
        job = writer(Path(broker_set.root), VALUE, topic="t")
        message = across(across(job).write(iter(batches(VALUE, [{"value": "a"}]))))
        broker_set.lead(0, [0])
        with pytest.raises(NotEnoughReplicasError):
            across(job).commit([message])
        assert broker_set.partition().log_end_offset == 0


@pytest.mark.parametrize("name", ["acks", "kafka.acks"])
def test_acks_accepts_the_values_of_kafkas_producer(name: str) -> None:
    for text, expected in (("all", -1), ("-1", -1), ("1", 1), ("0", 0), ("ALL", -1)):
        assert sink_options({"path": "/x", name: text}).acks == expected
    with pytest.raises(InvalidOptionError, match=f"invalid value '2' for option {name}"):
        sink_options({"path": "/x", name: "2"})
    assert sink_options({"path": "/x"}).acks == -1


def test_two_different_acks_are_refused() -> None:
    assert sink_options({"path": "/x", "acks": "all", "kafka.acks": "-1"}).acks == -1
    with pytest.raises(InvalidOptionError, match="differ"):
        sink_options({"path": "/x", "acks": "all", "kafka.acks": "1"})


# -- streams and groups


def micro_batch(job: SparklogStreamWriter, ddl: str, rows: list[Row]) -> SparklogStreamCommitMessage:
    written = RowWriter.write(across(job), iter(batches(ddl, rows)))
    return across(SparklogStreamCommitMessage(written, "q1"))


def test_a_micro_batch_is_written_to_every_replica_that_does_not_fail(tmp_path: Path) -> None:
    with brokers(tmp_path) as broker_set:
        options = sink_options({"path": broker_set.root, "topic": "t"})
        job = SparklogStreamWriter(options, schema_of(VALUE))
        across(job).commit([micro_batch(job, VALUE, [{"value": "a"}])], 0)
        assert broker_set.values(0) == broker_set.values(1) == [b"a"]
        down(broker_set, 1)
        job = SparklogStreamWriter(options, schema_of(VALUE))
        again = micro_batch(job, VALUE, [{"value": "b"}])
        across(job).commit([again], 1)
        across(job).commit([again], 1)
        assert (broker_set.values(0), broker_set.partition().isr) == ([b"a", b"b"], (0,))


def test_records_sent_by_the_function_of_a_group_are_on_every_replica(tmp_path: Path) -> None:
    with brokers(tmp_path) as broker_set:
        sends = TaskSends(broker_set.root, {})
        sends.add("t", pa.table({"value": ["a"]}))
        appends, new_topics = sends.write()
        assert [append.run.replicas for append in appends] == [[0, 1]]
        assert new_topics == []
        assert len(broker_set.files(0)) == len(broker_set.files(1)) == 2
        sends.discard()
        assert broker_set.files(0) == broker_set.files(1) == []


def test_a_topic_created_by_the_function_of_a_group_has_the_replicas_written_to(tmp_path: Path) -> None:
    with brokers(tmp_path) as broker_set:
        broker_set.coordinator.submit(partial(alter_configs, topic="", changes={"default.replication.factor": "2"}))
        sends = TaskSends(broker_set.root, {})
        sends.add("new", pa.table({"value": ["a"]}))
        appends, (new,) = sends.write()
        assert new.assignment is not None
        assert appends[0].run.replicas == list(new.assignment[0])


# -- compacted topics

NO_KEYS: list[Row] = [{"key": "k", "value": "a"}, {"key": None, "value": "b"}]


def compacted(folder: Path, policy: str = "compact") -> None:
    cluster(folder).create_topic("c", 2, configs={"cleanup.policy": policy})


def nothing_was_written(folder: Path) -> bool:
    return not list(folder.rglob("c-*/*"))


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_batch_job_for_a_compacted_topic_needs_a_column_of_keys(tmp_path: Path, policy: str) -> None:
    compacted(tmp_path, policy)
    with pytest.raises(InvalidRecordError, match="'c' is compacted, and the rows have no column key"):
        writer(tmp_path, VALUE, topic="c")


def test_a_row_without_a_key_for_a_compacted_topic_fails_its_task(tmp_path: Path) -> None:
    compacted(tmp_path)
    with pytest.raises(InvalidRecordError, match=r"'c' is compacted, and a record for it has no key") as raised:
        write_job(tmp_path, KEYED, [batches(KEYED, NO_KEYS)], topic="c")
    assert (raised.value.topic, raised.value.index) == ("c", 1)
    assert nothing_was_written(tmp_path)
    write_job(tmp_path, KEYED, [batches(KEYED, NO_KEYS[:1])], topic="c")


@pytest.mark.parametrize("ddl", [VALUE, KEYED])
def test_a_job_that_began_before_its_topic_was_made_compacted_is_refused_with_a_row_without_a_key(
    tmp_path: Path, ddl: str
) -> None:
    log = cluster(tmp_path, c=1)
    job = writer(tmp_path, ddl, topic="c")
    message = job.write(iter(batches(ddl, [{"value": row["value"]} for row in NO_KEYS])))
    log.submit(partial(alter_configs, topic="c", changes={"cleanup.policy": "compact"}))
    with pytest.raises(InvalidRecordError, match="made compacted while records were written"):
        job.commit([message])
    assert log.refresh().partition("c", 0).log_end_offset == 0


def test_a_row_that_names_a_compacted_topic_needs_a_key(tmp_path: Path) -> None:
    compacted(tmp_path)
    ddl = "topic string, value string"
    with pytest.raises(InvalidRecordError, match="'c' is compacted"):
        write_job(tmp_path, ddl, [batches(ddl, [{"topic": "c", "value": "a"}])])
    rows = [{"topic": "c", **row} for row in NO_KEYS]
    with pytest.raises(InvalidRecordError, match="has no key"):
        write_job(tmp_path, ROUTED, [batches(ROUTED, rows)])
    assert nothing_was_written(tmp_path)


def test_a_stream_into_a_compacted_topic_needs_keys(tmp_path: Path) -> None:
    compacted(tmp_path)
    options = sink_options({"path": str(tmp_path), "topic": "c"})
    with pytest.raises(InvalidRecordError, match="no column key"):
        SparklogStreamWriter(options, schema_of(VALUE))
    with pytest.raises(InvalidRecordError, match="has no key"):
        micro_batch(SparklogStreamWriter(options, schema_of(KEYED)), KEYED, list(NO_KEYS))
    assert nothing_was_written(tmp_path)


def test_the_function_of_a_group_needs_keys_for_a_compacted_topic(tmp_path: Path) -> None:
    compacted(tmp_path)
    shared_cluster(str(tmp_path))
    for table in (pa.table({"value": ["a"]}), pa.Table.from_pylist(NO_KEYS)):
        sends = TaskSends(str(tmp_path), {})
        sends.add("c", table)
        with pytest.raises(InvalidRecordError, match=r"compacted"):
            sends.write()
        sends.discard()
    assert nothing_was_written(tmp_path)
