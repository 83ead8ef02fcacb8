"""All storage operations of the project in one table, for the tests that inject faults at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from sparklog import limits
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.brokers import add_broker, cordon_broker, remove_broker
from sparklog.coordinator.group_member import GroupMember
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.delta.table_log import TableLog
from sparklog.errors import (
    AlreadyExistsError,
    BrokerIdNotRegisteredError,
    ClusterMovedError,
    InvalidTxnStateError,
    SparklogError,
)
from sparklog.log.checkpoints.checkpoint import LATEST_KEY
from sparklog.log.commits import cleanup
from sparklog.log.layout import ACTIONS, BOUNDARY_KEY, CLUSTER_KEY
from sparklog.log.settings import LogSettings
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.mirror import mirror, read_mirror_file
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol import levels
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.features import raise_level
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, leave_group
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.decide.topics import alter_configs, create_partitions
from sparklog.protocol.file_names import index_path
from sparklog.spark.group.task import ConsumeContext, ConsumeSettings, ConsumeTask
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import RowWriter, SparklogCommitMessage, SparklogWriter
from sparklog.spark.stream.writer import SparklogStreamCommitMessage, SparklogStreamWriter
from sparklog.testing.faulty_store import SimulatedCrash, SimulatedInterrupt
from sparklog.testing.records import Record, append_records
from sparklog.types import TopicPartition
from tests.cluster.maintenance.logs import Written, append, live
from tests.cluster.maintenance.reassignment import reassign
from tests.cluster.spark.helpers import batches, schema_of
from tests.controllers import check_once
from tests.crash.worlds import DAY, ROOT, SPARK_PATH, WAIT, Expected, Operation, Process, World

EXISTING = (("a", 0), ("a", 1), ("b", 0))


def two_topics(process: Process, level: int = levels.CURRENT) -> None:
    """Records in each partition, and a checkpoint."""
    cluster = create_cluster(process.stores[ROOT], clock=process.clock, level=level)
    cluster.create_topic("a", 2)
    cluster.create_topic("b", 1)
    for topic, partition in EXISTING:
        append(cluster, topic, [Written(value=b"old %s %d" % (topic.encode(), partition))], partition=partition)
    cluster.log.write_checkpoint()


# -- clusters and topics


def create(process: Process, expected: Expected) -> None:
    create_cluster(process.stores[ROOT], clock=process.clock)


def create_again(process: Process) -> None:
    with suppress(AlreadyExistsError):
        create_cluster(process.stores[ROOT], clock=process.clock)


def change_topics(process: Process, expected: Expected) -> None:
    cluster = process.open()
    cluster.create_topic("new", 3)
    cluster.submit(partial(create_partitions, topic="a", total=3))
    cluster.submit(partial(alter_configs, topic="a", changes={"retention.ms": "123456789"}))
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("a", 0): 1})))
    expected.group_offsets["g", 0] = 1


def delete_a_topic(process: Process, expected: Expected) -> None:
    delete_topic(process.open(), "b")


def is_deleted_or_whole(world: World, cluster: Coordinator, expected: Expected) -> None:
    assert not (expected.finished and "b" in cluster.state.topics)
    after = world.records()
    for partition, records in world.before.items():
        assert after.get(partition, [] if partition[0] == "b" else None) in (records, [])
        assert partition[0] == "b" or after[partition] == records


# -- producers


def sends(process: Process, expected: Expected, **configs: Any) -> None:
    """Several flushes; each runs whether or not the one before failed."""
    with Producer(cluster=process.open(), linger_ms=60_000, retry_backoff_ms=0, **configs) as producer:
        for number in range(4):
            for topic, partition in EXISTING[number % 2 :]:
                value = b"%s%d-%d" % (topic.encode(), partition, number)
                expected.futures[value] = ((topic, partition), producer.send(topic, value, partition=partition))
            producer.flush(WAIT)


def produce(process: Process, expected: Expected) -> None:
    sends(process, expected)


def produce_without_idempotence(process: Process, expected: Expected) -> None:
    expected.once = False  # a request without an answer is sent again
    sends(process, expected, enable_idempotence=False)


def produce_without_retries(process: Process, expected: Expected) -> None:
    sends(process, expected, retries=0)


def produce_much(process: Process, expected: Expected) -> None:
    """A flush whose actions are stored in a separate object."""
    _produce_widely(process, expected, limits.MAX_SPILLED_ACTIONS_BYTES)


def produce_too_much(process: Process, expected: Expected) -> None:
    """A flush that does not fit into one commit, to partitions that share a file."""
    _produce_widely(process, expected, 1_500)


def _produce_widely(process: Process, expected: Expected, max_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_INLINE_ACTIONS_BYTES", 600)
        patch.setattr(limits, "MAX_SPILLED_ACTIONS_BYTES", max_bytes)
        with Producer(cluster=process.open(), linger_ms=60_000, retry_backoff_ms=0) as producer:
            for number in range(2):
                for partition in range(6):
                    value = b"%d-%d" % (partition, number)
                    expected.futures[value] = (("wide", partition), producer.send("wide", value, partition=partition))
                producer.flush(WAIT)


def wide(process: Process) -> None:
    create_cluster(process.stores[ROOT], clock=process.clock).create_topic("wide", 6)


def transact(process: Process, expected: Expected, meanwhile: Callable[[int], object] = lambda number: None) -> None:
    """Three transactions, the second of which is aborted; a failed one is aborted before the next. ``meanwhile`` is
    called in each, with its number, before it ends."""
    producer = Producer(
        cluster=process.open(), transactional_id="tx", retry_backoff_ms=0, linger_ms=60_000, max_block_ms=10_000
    )
    try:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            unit = set()
            for topic, partition in EXISTING:
                value = b"%s%d-%d" % (topic.encode(), partition, number)
                unit.add(value)
                expected.futures[value] = ((topic, partition), producer.send(topic, value, partition=partition))
                if number == 1:
                    producer.flush()
            expected.units.append(unit)
            producer.send_offsets_to_transaction({("b", 0): number}, "g")
            meanwhile(number)
            _end_transaction(producer, abort=number == 1)
    finally:
        with suppress(SparklogError):
            producer.close()


def upgrade(process: Process, expected: Expected) -> None:
    """The level is raised while a transaction is open; then another client sets a config that needs it."""

    def upgrade_meanwhile(number: int) -> None:
        cluster = process.open()
        if number == 0:
            cluster.submit(partial(raise_level, level=levels.CURRENT))
        else:
            cluster.submit(partial(alter_configs, topic="a", changes={"history.format": "delta"}))
            cluster.log.write_checkpoint()

    transact(process, expected, upgrade_meanwhile)


def upgrade_again(process: Process) -> None:
    process.open().submit(partial(raise_level, level=levels.CURRENT))


def check_upgrade(world: World, cluster: Coordinator, expected: Expected) -> None:
    """Check that the level is the new one, and what the transactions wrote."""
    assert cluster.state.level == levels.CURRENT
    check_group_of_transactions(world, cluster, expected)


def _end_transaction(producer: Producer, abort: bool) -> None:
    """Abort a failed transaction; retry the commit where it may have happened."""
    for _ in range(5):
        try:
            producer.abort_transaction() if abort else producer.commit_transaction()
            return
        except (SparklogError, SimulatedInterrupt):
            try:
                producer.abort_transaction()
            except InvalidTxnStateError:
                return  # it was committed
            except (SparklogError, SimulatedInterrupt):
                continue
            return
    raise InvalidTxnStateError("no outcome after five attempts")


def check_group_of_transactions(world: World, cluster: Coordinator, expected: Expected) -> None:
    """Check that the group's offset is that of the last stored transaction."""
    stored = {value for records in world.records().values() for _, value in records}
    committed = [number for number, unit in enumerate(expected.units) if unit <= stored]
    group = cluster.state.groups.get("g")
    offset = next(iter(group.offsets.values())).offset if group else -1
    assert offset == max(committed, default=-1)


# -- groups


def join_group(process: Process, expected: Expected) -> None:
    """A member joins, commits, sees another member join and leave, and leaves."""
    member = GroupMember(process.open(), "g", assignors=("cooperative-sticky",), session_timeout_ms=10_000)
    other = GroupMember(process.world.opened(), "g", assignors=("cooperative-sticky",), session_timeout_ms=10_000)

    def commit(offset: int) -> None:
        for partition in sorted(member.owned):
            member.commit({(partition.topic, partition.partition): offset})
            expected.group_offsets["g", partition.partition] = offset

    member.join(["a"])
    member.reconcile()
    commit(1)
    member.beat()
    other.join(["a"])
    member.coordinator.refresh()
    if member.reconcile().to_acknowledge:
        member.acknowledge()
        member.reconcile()
    commit(2)
    other.coordinator.refresh()
    other.reconcile()
    other.leave()
    member.beat()
    member.coordinator.refresh()
    member.reconcile()
    commit(3)
    member.leave()


def remove_members(process: Process) -> None:
    cluster = process.open()
    group = cluster.state.groups.get("g")
    if group is not None and group.members:
        cluster.submit(partial(leave_group, group="g", members=list(group.members), reason="expired"))


# -- Spark

DDL = "topic string, key string, value string"


def _rows(task: int, topics: Iterable[str]) -> list[dict[str, Any]]:
    names = list(topics)
    return [{"topic": names[n % len(names)], "key": f"k{n}", "value": f"{task}-{n}"} for n in range(6)]


def spark_write(process: Process, expected: Expected) -> None:
    """Run a job of two tasks as Spark does: any failure is followed by an abort in another process."""
    expected.units.append({b"%d-%d" % (task, n) for task in range(2) for n in range(6)})
    options = {"path": SPARK_PATH, "txnAppId": "job", "txnVersion": "7"}
    writer = SparklogWriter(sink_options(options), schema_of(DDL), clock=process.clock)
    messages: list[SparklogCommitMessage | None] = [None, None]
    try:
        for task in range(2):
            messages[task] = writer.write(iter(batches(DDL, _rows(task, ("a", "b")))))
        writer.commit(list(messages))
    except (SimulatedCrash, SparklogError):
        process.stores[ROOT].reopen()
        writer.abort(list(messages))
        raise


def check_spark_write(world: World, cluster: Coordinator, expected: Expected) -> None:
    """Check that the rows are stored if the job succeeded, and once each after a rerun."""
    assert not expected.finished or "job" in cluster.state.applications
    with world.process() as process, suppress(SparklogError):
        spark_write(process, Expected())
    stored = [value for records in world.records().values() for _, value in records]
    assert all(stored.count(value) == 1 for value in expected.units[0])


def stream_write(process: Process, expected: Expected) -> None:
    """Two micro-batches of a query; a failed one is rerun by the next process (see the check)."""
    for batch in range(2):
        expected.units.append({b"%d-%d" % (batch, n) for n in range(6)})
    for batch in range(2):
        _micro_batch(process, batch)


def _micro_batch(process: Process, batch: int) -> None:
    writer = SparklogStreamWriter(sink_options({"path": SPARK_PATH}), schema_of(DDL), clock=process.clock)
    messages: list[SparklogStreamCommitMessage | None] = [None]
    try:
        written = RowWriter.write(writer, iter(batches(DDL, _rows(batch, ("a", "b")))))
        messages[0] = SparklogStreamCommitMessage(written, "query")
        writer.commit(list(messages), batch)
    except (SimulatedCrash, SparklogError):
        process.stores[ROOT].reopen()
        writer.abort(list(messages), batch)
        raise


def check_stream_write(world: World, cluster: Coordinator, expected: Expected) -> None:
    application = cluster.state.applications.get("query:query")
    with world.process() as process:
        for batch in range(application.version if application else 0, 2):
            _micro_batch(process, batch)
    stored = [value for records in world.records().values() for _, value in records]
    assert all(stored.count(value) == 1 for unit in expected.units for value in unit)


def to_consume(process: Process) -> None:
    cluster = create_cluster(process.stores[ROOT], clock=process.clock)
    cluster.submit(
        partial(alter_configs, topic="", changes={"offsets.retention.minutes": "100000"})
    )  # _clean_up advances the clock by nine days
    cluster.create_topic("in", 2)
    cluster.create_topic("copy", 1)
    append_records(cluster, "in", [Record(value=b"%d" % n, partition=n % 2) for n in range(4)])


def consume(process: Process, expected: Expected) -> None:
    """A Spark task that copies the records of a group, two at a time."""
    ends = {TopicPartition("in", number): 2 for number in range(2)}
    settings = ConsumeSettings(root=process.world.url(ROOT), group="g", topics=("in",), max_records=2, ends=ends)

    def copy(records: pa.RecordBatch, context: ConsumeContext) -> None:
        context.send("copy", records.select(["value"]))

    ConsumeTask(settings, copy, 0).run()


def check_consumed(world: World, cluster: Coordinator, expected: Expected) -> None:
    with world.process() as process:
        remove_members(process)
        consume(process, Expected())
    assert sorted(value or b"" for _, value in world.records()["copy", 0]) == [b"0", b"1", b"2", b"3"]


# -- maintenance


def small_files(process: Process) -> None:
    cluster = create_cluster(process.stores[ROOT], clock=process.clock)
    cluster.create_topic("t", 2, configs={"segment.ms": "180000", "file.delete.delay.ms": "1000"})
    for minute in range(6):
        append(cluster, "t", [Written(b"k%d" % minute, b"v%d" % minute, minute)])
    for minute in range(3):
        append(cluster, "t", [Written(None, b"w%d" % minute)], partition=1)
    cluster.log.write_checkpoint()


def roll_all(process: Process, expected: Expected) -> None:
    roll(process.open(), InProcess())


def closed_typed_segments(process: Process) -> None:
    """A table that shows a segment, and closed segments that are to become history."""
    cluster = create_cluster(process.stores[ROOT], clock=process.clock)
    typed = {"value.format": "json", "value.schema": "number bigint"}
    configs = {"history.format": "delta", "segment.ms": "180000", "history.delete.delay.ms": "1000", **typed}
    cluster.create_topic("t", 2, configs={"file.delete.delay.ms": "1000", "retention.ms": "-1", **configs})
    for minute in range(14):
        append(cluster, "t", [Written(b"k%d" % minute, b'{"number":%d}' % minute, minute)])
        if minute == 6:
            roll(cluster, InProcess())
            Tables(cluster).publish("t")
    append(cluster, "t", [Written(None, b"does not fit", 1)], partition=1)


def make_history(process: Process, expected: Expected) -> None:
    cluster = process.open()
    roll(cluster, InProcess())
    Tables(cluster).publish("t")
    process.clock.advance(60)
    sweep(cluster)


def check_table(world: World, cluster: Coordinator, expected: Expected) -> None:
    """Check that the table lists exactly the history after the next publication, and no file that is gone."""
    roll(cluster, InProcess())
    Tables(cluster).publish("t")
    listed = {f"tables/t/{path}" for path in TableLog(cluster.store, "t").read().files}
    history = {segment.path for number in (0, 1) for segment in live(cluster, "t", number) if segment.is_history}
    assert listed == history
    assert len(history) > 2
    assert listed <= {info.key for info in cluster.store.list("tables/")}


def overwritten(process: Process) -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "1",
        "min.cleanable.dirty.ratio": "0",
        "internal.segment.bytes": "1500",
        "delete.retention.ms": "0",
        "file.delete.delay.ms": "1000",
    }
    cluster = create_cluster(process.stores[ROOT], clock=process.clock)
    cluster.create_topic("t", 1, configs=configs)
    for number in range(6):
        append(cluster, "t", [Written(b"k%d" % (number % 2), b"%d" % number, number)])
    append(cluster, "t", [Written(b"k0", None, 7), Written(b"k1", b"last", 7)])
    append(cluster, "t", [Written(b"k2", b"active", 8)])


def compact_all(process: Process, expected: Expected) -> None:
    compact(process.open(), InProcess())


def check_compacted(world: World, cluster: Coordinator, expected: Expected) -> None:
    """Check that the newest value of each key is stored, and no new record."""
    after = world.records()["t", 0]
    assert {(7, b"last"), (8, b"active")} <= set(after)
    assert set(after) <= set(world.before["t", 0])


def expired_records(process: Process) -> None:
    cluster = create_cluster(process.stores[ROOT], clock=process.clock)
    small = {"internal.segment.bytes": "1", "file.delete.delay.ms": "1000"}
    minutes = int(process.clock.now_ms() / 60_000)
    cluster.create_topic("t", 2, configs={**small, "retention.ms": str(int(8 * DAY * 1000))})
    for number in range(3):
        append(cluster, "t", [Written(value=b"old %d" % number, minute=minutes)])
    append(cluster, "t", [Written(value=b"other", minute=minutes)], partition=1)
    process.clock.advance(9 * DAY)
    append(cluster, "t", [Written(value=b"new", minute=minutes + 9 * 24 * 60)])
    cluster.log.write_checkpoint()


def retain_and_sweep(process: Process, expected: Expected) -> None:
    cluster = process.open()
    retain(cluster)
    process.clock.advance(60)
    sweep(cluster)


def delete_records_and_sweep(process: Process, expected: Expected) -> None:
    cluster = process.open()
    cluster.submit(partial(delete_records, offsets={("t", 0): 2, ("t", 1): -1}))
    retain(cluster)
    process.clock.advance(60)
    sweep(cluster)


def check_retained(world: World, cluster: Coordinator, expected: Expected) -> None:
    """Check that what remains is a suffix of what was stored."""
    for partition, before in world.before.items():
        after = world.records()[partition]
        assert after == before[len(before) - len(after) :]
    assert world.records()["t", 0][-1:] == world.before["t", 0][-1:]


def garbage(process: Process) -> None:
    """A deleted topic whose files are due, an orphan, old commits and a lease."""
    two_topics(process)
    cluster = process.open()
    cluster.create_topic("gone", configs={"file.delete.delay.ms": "1000"})
    append(cluster, "gone", [Written(value=b"x")])
    path = live(cluster, "gone")[0].path
    for key in (path, index_path(path)):
        process.stores[ROOT].put(key.replace("gone-0/", "a-0/"), process.stores[ROOT].get(key))
    delete_topic(cluster, "gone")
    process.clock.advance(9 * DAY)
    append(cluster, "a", [Written(value=b"newest")])


def vacuum_all(process: Process, expected: Expected) -> None:
    vacuum(process.open(), dry_run=False)


def checkpoint_and_clean_up(process: Process, expected: Expected) -> None:
    cluster = process.open()
    cluster.log.write_checkpoint()
    cleanup.clean_up(cluster.store, cluster.log.clock, cluster.state.configs)
    append(cluster, "a", [Written(value=b"between")])
    cluster.log.write_checkpoint()
    cleanup.clean_up(cluster.store, cluster.log.clock, cluster.state.configs)


# -- storages


def replicated(process: Process) -> None:
    cluster = create_cluster(process.stores[ROOT], clock=process.clock)
    for number in (1, 2):
        assert add_broker(cluster, process.world.url(str(number))) == number
    cluster.create_topic("t", assignment=[[1, 2]])
    for number in range(3):
        append_records(cluster, "t", [Record(value=b"%d" % number)])


def behind(process: Process) -> None:
    """Broker 2 lacks what was written with acks=1."""
    replicated(process)
    for number in range(3, 5):
        with Producer(cluster=process.open(), acks=1) as producer:
            producer.send("t", b"%d" % number).get(WAIT)


def produce_replicated(process: Process, expected: Expected) -> None:
    with Producer(cluster=process.open(), linger_ms=60_000, retry_backoff_ms=0) as producer:
        for number in range(3):
            value = b"new %d" % number
            expected.futures[value] = (("t", 0), producer.send("t", value))
            producer.flush(WAIT)


def catch_up(process: Process, expected: Expected) -> None:
    replicate(process.open(), InProcess())


def move_replica(process: Process, expected: Expected) -> None:
    cluster = process.open()
    add_broker(cluster, process.world.url("3"))
    reassign(cluster, {("t", 0): [3, 2]}, InProcess())


def run_brokers(process: Process, expected: Expected) -> None:
    """Add a broker, cordon it, check all brokers, and remove it."""
    cluster = process.open()
    number = add_broker(cluster, process.world.url("3"))
    cordon_broker(cluster, number)
    check_once(cluster)
    remove_broker(cluster, number)


def recover_brokers(process: Process) -> None:
    """Recover as an operator would: repeat an interrupted registration, and let the controller check all locations."""
    cluster = process.open()
    with suppress(AlreadyExistsError):
        add_broker(cluster, process.world.url("3"))
    check_once(cluster)
    replicate(cluster, InProcess())


def withdraw_broker(process: Process) -> None:
    recover_brokers(process)
    with suppress(BrokerIdNotRegisteredError):
        remove_broker(process.open(), 3)


def mirrored(process: Process) -> None:
    """The mirror lacks a few commits, one of which has spilled actions."""
    two_topics(process)
    mirror(process.stores[ROOT], process.stores["mirror"], process.clock)
    _append_with_spilled_actions(process, b"later")
    cluster = process.open()
    cluster.log.write_checkpoint()
    append(cluster, "a", [Written(value=b"latest")])


def _append_with_spilled_actions(process: Process, value: bytes) -> None:
    append(process.open(LogSettings(max_inline_actions=0)), "a", [Written(value=value)])


def mirror_again(process: Process, expected: Expected) -> None:
    mirror(process.stores[ROOT], process.stores["mirror"], process.clock)


def check_mirror(world: World, cluster: Coordinator, expected: Expected) -> None:
    """Check that mirroring continues and ends with the version of the root."""
    with world.process() as process:
        mirror(process.stores[ROOT], process.stores["mirror"], process.clock)
    mirror_file = read_mirror_file(world.store("mirror"))
    assert mirror_file is not None
    assert mirror_file.version == cluster.state.version


def promote_mirror(process: Process, expected: Expected) -> None:
    world = process.world
    promote(world.url("mirror"), world.url(ROOT), clock=process.clock)


def promote_again(process: Process) -> None:
    """Recover as an operator would: repeat the promotion, and let the controller claim what did not answer."""
    promote_mirror(process, Expected())
    process.world.main = "mirror"
    check_once(process.world.opened())
    try:
        process.open()
    except ClusterMovedError:
        return
    raise AssertionError("the old root accepts commits")


def with_mirror(process: Process) -> None:
    """A cluster, still undamaged, and a mirror that has all its commits."""
    two_topics(process)
    cluster = process.open()
    append(cluster, "a", [Written(value=b"later")])
    _append_with_spilled_actions(process, b"beside")
    root, copy = process.stores[ROOT], process.stores["mirror"]
    mirror(root, copy, process.clock)


def repair_commits(process: Process, expected: Expected) -> None:
    inner = process.world.store(ROOT)
    inner.delete(commit_key(3))
    inner.put(commit_key(4), inner.get(commit_key(4)).replace(b'"version":4', b'"version":9'))
    for info in list(inner.list(ACTIONS)):
        inner.delete(info.key)
    _repair(process)


def repair_small_files(process: Process, expected: Expected) -> None:
    inner = process.world.store(ROOT)
    inner.delete(CLUSTER_KEY)
    inner.put(BOUNDARY_KEY, b"{")
    inner.put(LATEST_KEY, b"{")
    _repair(process)


def repair_checkpoint(process: Process, expected: Expected) -> None:
    inner = process.world.store(ROOT)
    heads = next(info.key for info in inner.list("meta/checkpoints/") if info.key.endswith(".heads"))
    inner.put(heads, inner.get(heads)[:-20])
    _repair(process)


def _repair(process: Process) -> None:
    check = check_cluster(process.stores[ROOT], clock=process.clock)
    repair_cluster(check, mirrors=[process.stores["mirror"]])


def repair_again(process: Process) -> None:
    for _ in range(2):
        _repair(process)


OPERATIONS: dict[str, Operation] = {
    "create a cluster": Operation(lambda process: None, create, recover=create_again),
    "change topics": Operation(two_topics, change_topics),
    "delete a topic": Operation(two_topics, delete_a_topic, check=is_deleted_or_whole, keeps=False),
    "produce": Operation(two_topics, produce),
    "produce without idempotence": Operation(two_topics, produce_without_idempotence),
    "produce without retries": Operation(two_topics, produce_without_retries),
    "produce with actions beside the commit": Operation(wide, produce_much),
    "produce more than a commit holds": Operation(wide, produce_too_much),
    "transactions": Operation(two_topics, transact, check=check_group_of_transactions),
    "upgrade": Operation(
        partial(two_topics, level=levels.OLDEST_WRITTEN), upgrade, check=check_upgrade, recover=upgrade_again
    ),
    "group member": Operation(two_topics, join_group, recover=remove_members),
    "spark write": Operation(two_topics, spark_write, check=check_spark_write),
    "stream write": Operation(two_topics, stream_write, check=check_stream_write),
    "group task": Operation(to_consume, consume, check=check_consumed),
    "roll": Operation(small_files, roll_all),
    "history and its table": Operation(closed_typed_segments, make_history, check=check_table),
    "compact": Operation(overwritten, compact_all, check=check_compacted, keeps=False),
    "retention": Operation(expired_records, retain_and_sweep, check=check_retained, keeps=False),
    "delete records": Operation(expired_records, delete_records_and_sweep, check=check_retained, keeps=False),
    "vacuum": Operation(garbage, vacuum_all),
    "checkpoint and clean-up": Operation(garbage, checkpoint_and_clean_up),
    "produce to replicas": Operation(replicated, produce_replicated, (ROOT, "1", "2"), recover=recover_brokers),
    "catch up": Operation(behind, catch_up, (ROOT, "1", "2"), recover=recover_brokers),
    "reassign": Operation(replicated, move_replica, (ROOT, "1", "3"), recover=recover_brokers),
    "brokers": Operation(replicated, run_brokers, (ROOT, "3"), recover=withdraw_broker),
    "mirror": Operation(mirrored, mirror_again, (ROOT, "mirror"), check=check_mirror),
    "promote": Operation(mirrored, promote_mirror, (ROOT, "mirror"), recover=promote_again),
    "repair commits": Operation(with_mirror, repair_commits, (ROOT, "mirror"), recover=repair_again),
    "repair small files": Operation(with_mirror, repair_small_files, recover=repair_again),
    "repair a checkpoint": Operation(with_mirror, repair_checkpoint, recover=repair_again),
}
"""By name. A test that leaves some out must say so."""
