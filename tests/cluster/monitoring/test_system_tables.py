"""Each system table states what the cluster holds, or what its commits changed."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

import sparklog
import sparklog.testing
from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import (
    CorruptMetadataError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.layout import COMMITS
from sparklog.log.settings import LogSettings
from sparklog.monitoring import commit_history
from sparklog.monitoring.schemas import COMMIT_TABLES, TABLES
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol import segment_checksum
from sparklog.protocol.commits import (
    Action,
    AlterConfig,
    ApplicationWrite,
    ChangePartition,
    CommitOffsets,
    CommittedOffset,
    DeleteRecords,
    FenceWriters,
    ForgetRemovedFiles,
    LiveSegment,
    RegisterBroker,
    RemovedSegments,
    RemoveFiles,
    ReplaceSegments,
    ResetTime,
    Run,
    WrittenRange,
    commit_key,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import create_partitions, delete_topic
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import CountingStore
from sparklog.testing.records import Record, append_records
from tests.cluster.monitoring.histories import append

NONE_KEPT = LogSettings(min_commits_kept=0, min_commit_age_ms=0, checkpoint_interval_commits=10)


def new_cluster(clock: ManualClock | None = None, settings: LogSettings = NONE_KEPT) -> Coordinator:
    clock = clock or ManualClock()
    return create_cluster(MemoryStore(uuid.uuid4().hex, clock), clock=clock, settings=settings)


def commit(coordinator: Coordinator, *actions: Action) -> int:
    """Commit actions without a decision; return the version."""
    coordinator.submit(lambda _: Decision(list(actions), None))
    return coordinator.refresh().version


def read(coordinator: Coordinator, table: str, **selected: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = SystemTables(coordinator).read(table, RowSelection(**selected)).to_pylist()
    return rows


def columns(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


@pytest.fixture(scope="module")
def busy() -> Iterator[Coordinator]:
    """A cluster in which clients have produced, consumed and committed a transaction."""
    with sparklog.testing.cluster(topics={"orders": 2, "audit": 1}) as cluster:
        address = cluster.bootstrap_servers
        with sparklog.Producer(bootstrap_servers=address, transactional_id="billing") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(4):
                producer.send("orders", b"value", partition=number % 2)
            producer.send("audit", b"value")
            producer.commit_transaction()
        append_records(cluster.coordinator, "orders", [Record(value=b"v", partition=0, timestamp_us=5_000_000)])
        consumer = sparklog.Consumer(
            "orders", bootstrap_servers=address, group_id="readers", client_id="me", auto_offset_reset="earliest"
        )
        try:
            while sum(consumer.position(each) for each in consumer.assignment()) < 5:
                consumer.poll(timeout_ms=100)
            first = sparklog.TopicPartition("orders", 0)
            consumer.commit({first: sparklog.OffsetAndMetadata(1, "checked", -1)})
            yield cluster.coordinator
        finally:
            consumer.close(autocommit=False)


def test_every_table_has_its_columns_and_no_others(busy: Coordinator) -> None:
    for name, table in TABLES.items():
        assert SystemTables(busy).read(name, RowSelection()).schema == table.schema, name


def test_commits_name_each_version_with_its_actions_and_size(busy: Coordinator) -> None:
    rows = read(busy, "commits")
    assert [row["version"] for row in rows] == list(range(busy.state.version + 1))
    assert [row["bytes"] for row in rows] == [len(busy.store.get(commit_key(v), 10**6)) for v in range(len(rows))]
    assert "append" in next(row["kinds"] for row in rows if "init_producer" in row["kinds"] and row["actions"] > 2)


def test_appends_name_records_producer_and_transaction(busy: Coordinator) -> None:
    rows = read(busy, "appends")
    names = ("topic", "partition", "base_offset", "records", "transactional_id")
    assert sorted(columns(rows, *names), key=str) == [
        ("audit", 0, 0, 1, "billing"),
        ("orders", 0, 0, 2, "billing"),
        ("orders", 0, 2, 1, None),
        ("orders", 1, 0, 2, "billing"),
    ]
    assert rows[-1]["producer_id"] is None
    assert rows[-1]["min_timestamp"].timestamp() == 5
    assert len({row["version"] for row in rows}) == 2
    assert columns(read(busy, "appends", topic="orders", partition=1), "partition", "records") == [(1, 2)]


def test_throughput_adds_up_the_appends_of_a_minute(busy: Coordinator) -> None:
    rows = read(busy, "throughput")
    assert sum(row["records"] for row in rows) == 6
    assert sum(row["bytes"] for row in rows) == sum(row["bytes"] for row in read(busy, "appends"))
    assert all(row["minute"].second == 0 for row in rows)


def test_offsets_groups_members_and_lag_agree_on_a_group(busy: Coordinator) -> None:
    offsets = read(busy, "offsets", group="readers")
    names = ("topic", "partition", "offset", "metadata")
    assert columns(offsets, *names)[-1] == ("orders", 0, 1, "checked")
    (group,) = read(busy, "groups")
    lag = read(busy, "lag", group="readers")
    assert (group["group"], group["state"], group["members"], group["topics"]) == ("readers", "Stable", 1, ["orders"])
    assert group["lag"] == sum(row["lag"] for row in lag)
    assert {row["partition"]: row["lag"] for row in lag}[0] == 2
    assert {row["partition"]: row["lag_seconds"] for row in lag}[0] > 0
    (member,) = read(busy, "members")
    assert (member["client_id"], member["assigned"]) == ("me", ["orders-0", "orders-1"])
    assert read(busy, "lag", group="nobody") == []


def test_a_transaction_is_one_row_with_what_it_added(busy: Coordinator) -> None:
    (row,) = read(busy, "transactions")
    assert (row["transactional_id"], row["partitions"], row["records"], row["groups"]) == ("billing", 3, 5, [])
    (producer,) = [row for row in read(busy, "producers") if row["transactional_id"] == "billing"]
    assert producer["producer_id"] == row["producer_id"]


def test_topics_partitions_segments_brokers_and_storage_agree_on_sizes(busy: Coordinator) -> None:
    topics = {row["topic"]: row for row in read(busy, "topics")}
    partitions = read(busy, "partitions")
    segments = read(busy, "segments")
    assert {name: (row["partitions"], row["offsets"]) for name, row in topics.items()} == {
        "audit": (1, 1),
        "orders": (2, 5),
    }
    for name, row in topics.items():
        for column in ("bytes", "segments"):
            assert row[column] == sum(each[column] for each in partitions if each["topic"] == name)
        assert row["bytes"] == sum(each["bytes"] for each in segments if each["topic"] == name)
    (broker,) = read(busy, "brokers")
    assert broker["bytes"] == sum(row["bytes"] for row in topics.values())
    assert columns(read(busy, "storage"), "topic", "live") == [(name, row["bytes"]) for name, row in topics.items()]
    assert {row["topic"] for row in read(busy, "segments", topic="audit")} == {"audit"}
    with pytest.raises(UnknownTopicOrPartitionError, match="nope"):
        read(busy, "segments", topic="nope")


def test_configs_state_who_set_what_and_what_was_reset() -> None:
    coordinator = new_cluster()
    coordinator.create_topic("orders", configs={"retention.ms": "1000"})
    commit(coordinator, AlterConfig(topic="orders", set={"retention.ms": "2000"}))
    commit(coordinator, AlterConfig(topic="orders", delete=["retention.ms"]))
    commit(coordinator, AlterConfig(set={"num.partitions": "3"}))
    assert columns(read(coordinator, "configs"), "topic", "config", "value") == [
        ("orders", "retention.ms", "1000"),
        ("orders", "retention.ms", "2000"),
        ("orders", "retention.ms", None),
        ("", "num.partitions", "3"),
    ]


def test_topic_changes_tell_topics_of_one_name_apart() -> None:
    coordinator = new_cluster()
    first = coordinator.create_topic("orders", 2)
    coordinator.submit(partial(create_partitions, topic="orders", total=5))
    coordinator.submit(partial(delete_topic, topic="orders"))
    second = coordinator.create_topic("orders", 1)
    assert columns(read(coordinator, "topic_changes", topic="orders"), "topic_id", "change", "partitions") == [
        (first, "create", 2),
        (first, "add partitions", 3),
        (first, "delete", None),
        (second, "create", 1),
    ]


def test_appends_of_an_application_and_with_the_commits_time_are_stated_so() -> None:
    coordinator = new_cluster()
    topic_id = coordinator.create_topic("orders")
    written = WrittenRange(topic="orders", topic_id=topic_id, partition=0, base_offset=0, records=2)
    stamped = replace(append(coordinator.state, "orders", 0, 2), log_append_time=True)
    commit(coordinator, stamped, ApplicationWrite(application="job", application_version=1, ranges=[written]))
    (row,) = read(coordinator, "appends")
    assert row["application"] == "job"
    assert row["min_timestamp"] == row["max_timestamp"] == row["timestamp"]


def replacement(coordinator: Coordinator, brokers: list[int], cleaned: int = -1) -> ReplaceSegments:
    """All segments of orders-0, replaced by one that these brokers hold."""
    part, topic_id = coordinator.state.partition("orders", 0), coordinator.state.topic("orders").topic_id
    segments = coordinator.segments("orders", coordinator.state).partition(0)
    checksum = segment_checksum.total(segment_checksum.segment_hash(topic_id, segment) for segment in segments)
    run = Run(
        path="orders-0/00000000000000000000-rolled.log",
        broker=brokers[0],
        replicas=brokers if len(brokers) > 1 else [],
        batches=1,
        records=part.log_end_offset,
        size_bytes=70,
        min_timestamp_us=0,
        max_timestamp_us=0,
    )
    return ReplaceSegments(
        topic="orders",
        topic_id=topic_id,
        partition=0,
        start_offset=0,
        end_offset=part.log_end_offset,
        removed=RemovedSegments(
            segments=part.segments, size_bytes=part.size_bytes, checksum=segment_checksum.to_text(checksum)
        ),
        added=[LiveSegment(base_offset=0, end_offset=part.log_end_offset, run=run)],
        cleaned_offset=cleaned,
    )


def test_maintenance_states_what_it_replaced_retired_and_deleted() -> None:
    coordinator = new_cluster()
    topic_id = coordinator.create_topic("orders")
    for _ in range(2):
        commit(coordinator, append(coordinator.state, "orders", 0))
    commit(coordinator, replacement(coordinator, [0]))
    commit(coordinator, replacement(coordinator, [0], cleaned=2))
    commit(coordinator, RemoveFiles(listing="meta/removed/x", files=2, size_bytes=200, delay_ms=1))
    commit(coordinator, ForgetRemovedFiles(listings=["meta/removed/x"]), FenceWriters(version=1))
    commit(coordinator, DeleteRecords(topic="orders", topic_id=topic_id, partition=0, log_start_offset=1))
    names = ("step", "partition", "segments_removed", "bytes_removed", "segments_added", "bytes_added", "files")
    assert columns(read(coordinator, "maintenance"), *names) == [
        ("roll", 0, 2, 200, 1, 70, None),
        ("compaction", 0, 1, 70, 1, 70, None),
        ("retire files", None, None, 200, None, None, 2),
        ("delete files", None, None, None, None, None, None),
        ("fence writers", None, None, None, None, None, None),
        ("delete records", 0, None, None, None, None, None),
    ]


def change(coordinator: Coordinator, partition: int, leader: int, isr: list[int], replicas: list[int]) -> None:
    topic_id = coordinator.state.topic("orders").topic_id
    epoch = coordinator.state.partition("orders", partition).leader_epoch + 1
    changed = ChangePartition(
        topic="orders",
        topic_id=topic_id,
        partition=partition,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        replicas=replicas,
    )
    commit(coordinator, changed)


@pytest.fixture
def replicated() -> Coordinator:
    """Brokers 0 to 2; orders-0 and orders-1 have lost replicas from the ISR in every way."""
    coordinator = new_cluster()
    commit(coordinator, *(RegisterBroker(broker=number, url=f"memory://b{number}") for number in (1, 2)))
    coordinator.create_topic("orders", assignment=[[0, 1, 2]])
    for replicas in ([0, 1, 2], [0, 2], [0, 2]):
        commit(coordinator, append(coordinator.state, "orders", 0, replicas=replicas))
    change(coordinator, 0, 2, [0, 1, 2], [0, 1, 2])
    commit(coordinator, append(coordinator.state, "orders", 0, replicas=[2, 1]))
    change(coordinator, 0, 2, [1, 2], [1, 2])
    commit(coordinator, replacement(coordinator, [1]))
    coordinator.submit(partial(create_partitions, topic="orders", total=3, assignment=[[1, 2], [0, 1]]))
    commit(coordinator, append(coordinator.state, "orders", 1, replicas=[1]))
    return coordinator


ISR_CHANGES = [
    (0, "create", 0, [0, 1, 2]),
    (0, "append", 0, [0, 2]),
    (0, "change", 2, [0, 1, 2]),
    (0, "append", 2, [1, 2]),
    (0, "change", 2, [1, 2]),
    (0, "replace", None, [1]),
    (1, "add partitions", 1, [1, 2]),
    (2, "add partitions", 0, [0, 1]),
    (1, "append", 1, [1]),
]


def test_replicas_state_every_change_of_the_isr_also_by_appends(replicated: Coordinator) -> None:
    names = ("partition", "cause", "leader", "isr")
    rows = read(replicated, "replicas")
    assert columns(rows, *names) == ISR_CHANGES
    current = {row["partition"]: (row["leader"], row["isr"], row["leader_epoch"]) for row in rows}
    state = replicated.state
    for row in read(replicated, "partitions"):
        assert current[row["partition"]] == (row["leader"], row["isr"], row["leader_epoch"])
        assert row["leader"] == (lambda leader: leader if leader >= 0 else None)(
            state.partition("orders", row["partition"]).leader
        )


def test_replicas_since_a_time_are_the_same_rows(replicated: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_history, "CHUNK_COMMITS", 2)
    rows = read(replicated, "replicas")
    for row in rows:
        since_ms = int(row["timestamp"].timestamp() * 1000)
        wanted = [each for each in rows if each["timestamp"] >= row["timestamp"]]
        assert read(replicated, "replicas", since_ms=since_ms) == wanted


# -- times


def test_since_belongs_to_the_selected_time_and_until_does_not() -> None:
    clock = ManualClock()
    coordinator = new_cluster(clock)
    times = []
    for _ in range(6):
        clock.advance(1)
        commit(coordinator, AlterConfig(set={"num.partitions": "3"}))
        times.append(coordinator.state.timestamp_ms)
    for first, last in ((0, 6), (2, 4), (3, 4), (5, 6), (4, 4)):
        end_ms = times[last] if last < 6 else None
        rows = read(coordinator, "configs", since_ms=times[first], until_ms=end_ms)
        assert [int(row["timestamp"].timestamp() * 1000) for row in rows] == times[first:last]


def test_commits_before_a_reset_of_the_logs_time_count_as_made_at_the_reset() -> None:
    clock = ManualClock()
    coordinator = new_cluster(clock)
    topic_id = coordinator.create_topic("orders")
    start_ms = coordinator.state.timestamp_ms

    def go_on(offset: int) -> int:
        position = CommittedOffset(topic="orders", topic_id=topic_id, partition=0, offset=offset)
        commit(coordinator, append(coordinator.state, "orders", 0), CommitOffsets(group="g", offsets=[position]))
        return coordinator.state.timestamp_ms

    clock.set_ms(start_ms + 1000)
    go_on(0)
    clock.set_ms(start_ms + 9_000_000)
    ahead_ms = go_on(1)
    clock.set_ms(start_ms + 5000)
    commit(coordinator, ResetTime(time_ms=start_ms + 5000))
    go_on(2)
    lags = [(row["offset"], row["log_end_offset"]) for row in read(coordinator, "lag", until_ms=start_ms + 2000)]
    assert lags == [(0, 1)]
    assert [row["offset"] for row in read(coordinator, "lag", until_ms=start_ms + 5000)] == [1]
    assert [row["offset"] for row in read(coordinator, "lag")] == [2]
    recent = read(coordinator, "appends", since_ms=start_ms + 2000)
    assert [row["base_offset"] for row in recent] == [1, 2]
    assert int(recent[0]["timestamp"].timestamp() * 1000) == ahead_ms
    assert [row["base_offset"] for row in read(coordinator, "appends", until_ms=start_ms + 5000)] == [0]


def test_a_mistyped_step_and_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = new_cluster()
    topic_id = coordinator.create_topic("orders")
    position = CommittedOffset(topic="orders", topic_id=topic_id, partition=0, offset=0)
    commit(coordinator, CommitOffsets(group="g", offsets=[position]))
    day = RowSelection(since_ms=coordinator.state.timestamp_ms, until_ms=coordinator.state.timestamp_ms + 86_400_000)
    with pytest.raises(InvalidRequestError, match="into 86,400,000 steps"):
        SystemTables(coordinator).read("lag", day._replace(step_ms=1))
    monkeypatch.setattr(limits, "MAX_LAG_ROWS", 1000)
    with pytest.raises(InvalidRequestError, match="more than 1,000 rows"):
        SystemTables(coordinator).read("lag", day)
    assert len(SystemTables(coordinator).read("lag", day._replace(step_ms=3_600_000))) <= 25


# -- reading commits


def grow(coordinator: Coordinator, commits: int) -> None:
    for _ in range(commits):
        commit(coordinator, append(coordinator.state, "orders", 0))


def versions(tables: SystemTables) -> list[int]:
    known: list[int] = tables.read("commits", RowSelection()).column("version").to_pylist()
    return known


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    monkeypatch.setattr(commit_history, "CHUNK_COMMITS", 8)
    coordinator = new_cluster()
    coordinator.create_topic("orders")
    grow(coordinator, 28)
    return coordinator


def remove_commits(coordinator: Coordinator) -> int:
    """Remove all commits that a checkpoint includes; return the boundary."""
    clock = coordinator.log.clock
    assert isinstance(clock, ManualClock)
    clock.advance(120)
    return clean_up(coordinator.store, clock, {"metadata.max.retention.ms": "60000"}, NONE_KEPT).boundary


def test_each_commit_is_read_once_and_only_as_far_back_as_asked(growing: Coordinator) -> None:
    store = CountingStore(growing.store)
    tables = SystemTables(open_cluster(store, clock=growing.log.clock))
    store.calls.clear()
    tables.read("appends", RowSelection(since_ms=growing.state.timestamp_ms))
    assert sum(COMMITS in call.key for call in store.calls) < 20


def test_removed_commits_stay_in_tables_that_know_them_until_a_chunk_is_full(growing: Coordinator) -> None:
    followed, late = SystemTables(growing), SystemTables(growing)
    assert versions(followed) == list(range(30))
    assert late.first_ms("commits") is None
    boundary = remove_commits(growing)
    assert boundary >= 8
    assert versions(followed) == list(range(30))
    assert versions(SystemTables(growing)) == versions(late) == list(range(boundary + 1, 30))
    assert late.first_ms("commits") == int(
        late.read("commits", RowSelection())["timestamp"][0].as_py().timestamp() * 1000
    )
    grow(growing, 8)
    assert versions(followed)[0] > 0
    assert versions(followed)[-1] == growing.state.version


def test_commits_that_were_removed_before_they_could_be_followed_leave_no_gap(growing: Coordinator) -> None:
    stalled = SystemTables(growing)
    versions(stalled)
    grow(growing, 30)
    boundary = remove_commits(growing)
    assert boundary > 32
    assert versions(stalled) == list(range(boundary + 1, growing.state.version + 1))


def test_a_commit_that_is_lost_is_an_error_and_not_a_short_history(growing: Coordinator) -> None:
    growing.store.delete(commit_key(12))
    with pytest.raises(CorruptMetadataError, match=r"commit 12 is absent.*it is lost"):
        versions(SystemTables(growing))


def test_spilled_actions_are_read_and_their_loss_is_an_error() -> None:
    coordinator = new_cluster(settings=NONE_KEPT._replace(max_inline_actions=2))
    coordinator.create_topic("orders", 4)
    commit(coordinator, *(append(coordinator.state, "orders", number) for number in range(4)))
    tables = SystemTables(coordinator)
    assert len(tables.read("appends", RowSelection())) == 4
    (spilled,) = [info.key for info in coordinator.store.list("meta/actions/")]
    coordinator.store.delete(spilled)
    with pytest.raises(CorruptMetadataError, match="is missing"):
        SystemTables(coordinator).read("appends", RowSelection())


def test_every_table_of_commits_can_be_read_from_any_commit_on(growing: Coordinator) -> None:
    tables = SystemTables(growing)
    for name in COMMIT_TABLES:
        whole = SystemTables(growing).read(name, RowSelection())
        since_ms = growing.state.timestamp_ms - 9
        part = tables.read(name, RowSelection(since_ms=since_ms))
        assert part.to_pylist() == [
            row for row in whole.to_pylist() if int(row["timestamp"].timestamp() * 1000) >= since_ms
        ]


PROGRAM = """
import sys, sparklog
from sparklog.testing import cluster
with cluster(topics={"orders": 1}) as c:
    system = sparklog.system(cluster=c.coordinator)
    for table in ("appends", "lag", "topics", "commits"):
        system.read(table, since="1h") if table != "topics" else system.read(table, topic="orders")
sys.exit("pandas" in sys.modules)
"""


def test_reading_tables_imports_no_pandas() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
