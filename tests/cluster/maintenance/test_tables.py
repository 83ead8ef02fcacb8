"""A topic's Delta table as an independent reader, deltalake, sees it: exactly the history of the log, whatever happened
to the log, to the table, or to its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from pyarrow.dataset import field

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.delta import table_log
from sparklog.delta.publication import application_id
from sparklog.errors import CorruptMetadataError
from sparklog.log.commits.retired_files import files_of, write_removed
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import Finding
from sparklog.maintenance.gc.surplus_replicas import remove_surplus_replicas
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.loop import Loop
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.maintenance.tables import Tables
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.segments import Replacement, SegmentsRequest, change_segments, removed
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FaultyStore
from tests.cluster.maintenance.logs import Written, append, live, records
from tests.cluster.maintenance.published_tables import (
    DELTA,
    alter,
    check,
    cluster_in,
    delete_records,
    delta,
    history_files,
    listed_files,
    log_rows,
    produce,
    publish,
    roll_all,
    rows_of,
    table_rows,
)
from tests.cluster.maintenance.reassignment import reassign

YEAR_10000_US = 253_402_300_800_000_000
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture
def cluster(tmp_path: Path) -> Coordinator:
    """A topic with three segments, two of them history, and nothing published."""
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 2, configs=DELTA)
    produce(coordinator, "t", 1, 3, 5)
    produce(coordinator, "t", 2, 4, partition=1)
    roll_all(coordinator)
    return coordinator


# -- records


def test_a_reader_of_delta_gets_exactly_the_records_of_the_history(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    rows = check(cluster, tmp_path)
    assert [row[:2] for row in rows] == [(0, 0), (0, 1), (1, 0)]


def test_nulls_empty_bytes_headers_and_all_timestamps_are_kept(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 1, configs={**DELTA, "internal.segment.bytes": "1"})
    append(
        coordinator,
        "t",
        [
            Written(None, None, 1),
            Written(b"", b"", 1),
            Written(b"k", b"\x00\xff" * 100, 1, [("h", b""), ("h", b"2"), ("", b"x")], 1),
            Written(b"k", b"v", 1, [], 999_999),
            Written(b"k", b"v", 0, None, -62_135_596_800_000_001),
            Written(b"k", b"v", 0, None, YEAR_10000_US + 1),
        ],
    )
    append(coordinator, "t", [Written()])
    roll_all(coordinator)
    publish(coordinator)
    rows = check(coordinator, tmp_path)
    assert len(rows) == 6
    assert {row.timestamp_us for row in rows} >= {60_000_001, 60_999_999, YEAR_10000_US + 1}


def test_files_are_skipped_by_partition_offset_and_time(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    dataset = delta(tmp_path).to_pyarrow_dataset()
    for condition, files in ((field("partition") == 1, 1), (field("offset") >= 1, 1), (field("partition") == 7, 0)):
        assert len(list(dataset.get_fragments(condition))) == files
        assert rows_of(dataset.to_table(filter=condition)) == rows_of(dataset.to_table().filter(condition))


def test_the_table_says_which_version_of_the_log_it_shows(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    shown = delta(tmp_path).transaction_version(application_id(cluster.state.cluster_id, "t"))
    assert shown == cluster.refresh().version
    parameters = delta(tmp_path).history(1)[0]["operationParameters"]
    assert parameters["version"] == str(shown)


def test_publications_are_rows_of_a_system_table(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    produce(cluster, "t", 7, 9)
    roll_all(cluster)
    publish(cluster)
    table = delta(tmp_path)
    write_deltalake(str(tmp_path / "tables" / "other"), pa.table({"a": [1]}))
    cluster.create_topic("other", 1)
    tables = SystemTables(cluster)
    rows = tables.read("publications", RowSelection(topic="t")).to_pylist()
    assert [row["table_version"] for row in rows] == list(range(table.version() + 1))
    assert {(row["topic"], row["operation"]) for row in rows} == {("t", "PUBLISH")}
    assert rows[-1]["version"] == table.transaction_version(application_id(cluster.state.cluster_id, "t"))
    files = table.get_add_actions(flatten=True)
    assert sum(row["files_added"] - row["files_removed"] for row in rows) == files.num_rows > 0
    sizes = pa.table(files)["size_bytes"].to_pylist()
    assert sum(row["bytes_added"] - row["bytes_removed"] for row in rows) == sum(sizes)
    assert tables.read("publications", RowSelection()).num_rows == len(rows) + 1
    (foreign,) = tables.read("publications", RowSelection(topic="other")).to_pylist()
    assert (foreign["version"], foreign["files_added"]) == (None, 1), "the commit of somebody else"
    later_ms = int(rows[-1]["timestamp"].timestamp() * 1000) + 10**9
    assert tables.read("publications", RowSelection(since_ms=later_ms)).num_rows == 0
    assert tables.read("publications", RowSelection(until_ms=later_ms, topic="t")).num_rows == len(rows)


def test_a_repeated_publication_changes_nothing(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    assert not publish(cluster).changes
    assert delta(tmp_path).version() == 0


# -- changes of the log


def test_rolled_segments_are_added(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    produce(cluster, "t", 7, 9)
    roll_all(cluster)
    assert len(publish(cluster).adds) == 2
    assert len(check(cluster, tmp_path)) == 5


def test_compaction_replaces_files_and_retired_ones_are_deleted_after_the_publication(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 1, configs={**DELTA, **COMPACTED})
    produce(coordinator, "t", *range(1, 20, 2))
    roll_all(coordinator)
    publish(coordinator)
    before = delta(tmp_path)
    compact(coordinator, InProcess())
    publication = publish(coordinator)
    assert publication.removes
    assert not any(add.data_change for add in publication.adds)
    rows = check(coordinator, tmp_path)
    assert len({row.key for row in rows}) == len(rows)
    assert before.to_pyarrow_table().num_rows > len(rows), "a reader of the version before still finds its files"
    assert sweep(coordinator).files
    assert check(coordinator, tmp_path) == rows


def test_retention_and_deleted_records_leave_the_table(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    delete_records(cluster, 1)
    publish(cluster)
    assert [row[:2] for row in check(cluster, tmp_path)] == [(0, 1), (1, 0)]
    retain(cluster)
    alter(cluster, retention_ms="1000")
    retain(cluster)
    assert not publish(cluster).adds
    sweep(cluster)
    assert check(cluster, tmp_path) == []
    assert not history_files(cluster)


def test_records_deleted_within_a_file_stay_in_the_table_until_it_is_rewritten(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 1, configs=DELTA)
    append(coordinator, "t", [Written(b"k", b"%d" % number, 1) for number in range(5)])
    produce(coordinator, "t", 5)
    roll_all(coordinator)
    publish(coordinator)
    delete_records(coordinator, 3)
    result = Tables(coordinator).publish_all(["t"])
    assert result.waiting == ["t-0: the table is exact when a segment with deleted records has been rewritten"]
    assert len(table_rows(tmp_path)) == 5
    roll_all(coordinator)
    problems = sweep(coordinator).problems
    assert problems == []
    assert [row.offset for row in check(coordinator, tmp_path)] == [3, 4]


def test_a_log_start_offset_that_moves_in_every_pass_holds_up_neither_publication_nor_sweep(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 2, configs=DELTA)
    append(coordinator, "t", [Written(b"k", b"%d" % number, 1) for number in range(100)])
    produce(coordinator, "t", 3, 5)
    produce(coordinator, "t", 1, 3, partition=1)
    roll_all(coordinator)
    tables = Tables(coordinator)
    tables.publish("t")
    for number in range(1, 6):
        produce(coordinator, "t", 5 + 2 * number)
        produce(coordinator, "t", 3 + 2 * number, partition=1)
        delete_records(coordinator, 10 * number)
        roll_all(coordinator)
        delete_records(coordinator, 10 * number + 1)  # a client, between the steps of a pass
        retain(coordinator)
        assert tables.publish_all(["t"]).tables == 1
        assert not sweep(coordinator, tables=tables).problems
        assert not coordinator.refresh().removed_files
        rows = table_rows(tmp_path)
        assert [row.offset for row in rows if row.partition == 0] == [*range(10 * number, 101 + number)]
        assert [row.offset for row in rows if row.partition == 1] == [*range(1 + number)]
    roll_all(coordinator)
    tables.publish("t")
    check(coordinator, tmp_path)


def test_a_file_with_deleted_records_that_the_table_never_showed_is_left_out_until_it_is_rewritten(
    tmp_path: Path,
) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 1, configs=DELTA)
    append(coordinator, "t", [Written(b"k", b"%d" % number, 1) for number in range(5)])
    produce(coordinator, "t", 3, 5)
    roll_all(coordinator)
    delete_records(coordinator, 3)
    assert len(Tables(coordinator).publish_all(["t"]).waiting) == 1
    assert [row.offset for row in table_rows(tmp_path)] == [5]
    roll_all(coordinator)
    assert [add.data_change for add in publish(coordinator).adds] == [True], "who follows the table misses nothing"
    assert [row.offset for row in check(coordinator, tmp_path)] == [3, 4, 5]


def test_the_only_segment_of_a_partition_is_rewritten_if_it_has_deleted_records(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 1, configs=DELTA)
    append(coordinator, "t", [Written(b"k", b"%d" % number, 1) for number in range(4)])
    produce(coordinator, "t", 3)
    roll_all(coordinator)
    publish(coordinator)
    topic_id, last = coordinator.state.topic("t").topic_id, live(coordinator, "t")[-1:]
    lost = Replacement(  # as by an election of a leader that lacks the active segment
        topic="t", topic_id=topic_id, partition=0, start_offset=last[0].base_offset, end_offset=last[0].end_offset,
        removed=removed(topic_id, last),
    )  # fmt: skip
    request = SegmentsRequest(version=coordinator.state.version, changes=[lost])
    assert not coordinator.submit(lambda state: change_segments(state, request)).left_out
    delete_records(coordinator, 3)
    roll_all(coordinator)
    publish(coordinator)
    assert [row.offset for row in check(coordinator, tmp_path)] == [3]


def test_a_listing_that_names_a_file_too_early_does_not_delete_what_the_table_lists(
    cluster: Coordinator, tmp_path: Path
) -> None:
    """A listing may name files of a change that was not made, and that leave the log much later."""
    partition = cluster.refresh().partition("t", 0)
    early = list(files_of(partition, live(cluster, "t")[:1]))
    listing = write_removed(cluster.store, cluster.log.ids, cluster.state.version, early, 0)
    cluster.submit(lambda state: Decision([listing], None))
    publish(cluster)
    delete_records(cluster, 1)
    retain(cluster)
    assert early[0].path in {f"tables/t/{path}" for path in listed_files(tmp_path)}
    assert sweep(cluster).files
    assert len(check(cluster, tmp_path)) == 2


def test_a_deleted_topic_leaves_an_empty_table_and_a_new_one_fills_it_again(
    cluster: Coordinator, tmp_path: Path
) -> None:
    tables = Tables(cluster)
    tables.publish_all(["t"])
    first = delta(tmp_path).metadata().id
    delete_topic(cluster, "t")
    assert tables.publish_all([]).removed == 3
    assert table_rows(tmp_path) == []
    sweep(cluster)
    assert not list((tmp_path / "tables/t/_segments").rglob("*.parquet"))
    cluster.create_topic("t", 1, configs=DELTA)
    produce(cluster, "t", 1, 3)
    roll_all(cluster)
    assert [add.data_change for add in publish(cluster).adds] == [True]
    assert len(check(cluster, tmp_path)) == 1
    assert delta(tmp_path).metadata().id != first


def test_a_sweep_empties_the_table_of_a_deleted_topic_before_it_deletes_files(
    cluster: Coordinator, tmp_path: Path
) -> None:
    publish(cluster)
    delete_topic(cluster, "t")
    assert sweep(open_cluster(cluster.store)).files
    assert table_rows(tmp_path) == []


def test_a_topic_that_returns_to_arrow_keeps_its_table_until_its_history_expires(
    cluster: Coordinator, tmp_path: Path
) -> None:
    publish(cluster)
    alter(cluster, history_format="arrow")
    produce(cluster, "t", 7, 9)
    roll_all(cluster)
    assert len(check(cluster, tmp_path)) == 3
    delete_records(cluster, 1)
    retain(cluster)
    assert sweep(cluster).files
    assert [row[:2] for row in check(cluster, tmp_path)] == [(0, 1), (1, 0)]
    alter(cluster, history_format="delta")
    roll_all(cluster)
    publish(cluster)
    assert len(check(cluster, tmp_path)) == 4


def test_fsck_says_that_a_table_lacks_a_column_that_was_added_since(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 1, configs={**DELTA, "value.format": "json", "value.schema": "a string"})
    produce(coordinator, "t", 1, 3, 5)
    roll_all(coordinator)
    publish(coordinator)
    alter(coordinator, value_schema="a string, b string")
    (finding,) = findings(coordinator)
    assert finding.message.endswith(" has other columns or properties")
    publish(coordinator)
    assert not findings(coordinator)


def test_a_topic_that_returned_to_arrow_is_published_and_checked_as_long_as_it_has_history(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 2, configs=DELTA)
    append(coordinator, "t", [Written(b"k", b"%d" % number, 1) for number in range(4)])
    produce(coordinator, "t", 3, 5, 7)
    produce(coordinator, "t", 1, 3, 5, partition=1)
    roll_all(coordinator)
    publish(coordinator)
    alter(coordinator, history_format="arrow")
    delete_records(coordinator, 2)
    delete_records(coordinator, 1, partition=1)
    roll_all(coordinator)  # the first segment of partition 0 becomes Arrow
    assert "table-differs" in {each.kind for each in findings(coordinator)}
    assert Tables(coordinator).publish_all(["t"]).removed == 4
    assert [row[:2] for row in check(coordinator, tmp_path)] == [(1, 1)]
    assert not findings(coordinator)
    alter(coordinator, history_format="delta")
    roll_all(coordinator)
    publish(coordinator)
    assert [row[:2] for row in check(coordinator, tmp_path)] == [(0, 2), (0, 3), (0, 4), (0, 5), (1, 1)]


def test_history_is_kept_for_queries_for_its_delete_delay(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", 1, configs={**DELTA, **COMPACTED, "history.delete.delay.ms": "86400000"})
    produce(coordinator, "t", *range(1, 20, 2))
    roll_all(coordinator)
    assert sweep(coordinator).files, "the .log files before have file.delete.delay.ms"
    publish(coordinator)
    before = delta(tmp_path)
    compact(coordinator, InProcess())
    publish(coordinator)
    result = sweep(coordinator)
    assert (result.files, result.listings_not_due) == (0, 1)
    assert before.to_pyarrow_table().num_rows == 9


# -- locations


def test_files_at_another_location_are_listed_by_their_address(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "my disk #1"
    coordinator = published_at(root, other)
    paths = listed_files_in_log(root)
    assert len(paths) == 2
    rows = []
    for path in paths:
        assert path.startswith("file:///")
        assert "%20" in path
        rows += pq.read_table(unquote(urlsplit(path).path)).column("offset").to_pylist()
    assert sorted(rows) == [row.offset for row in log_rows(coordinator)] == [0, 1]
    assert not [each for each in findings(coordinator) if each.kind.startswith("table")]
    Path(unquote(urlsplit(paths[0]).path)).unlink()
    assert "table-file-gone" in {each.kind for each in findings(coordinator)}


def test_copies_that_a_reassignment_leaves_are_deleted_after_the_table_lists_the_new_ones(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    coordinator = published_at(root, other)
    reassign(coordinator, {("t", 0): [0]}, InProcess())
    assert remove_surplus_replicas(coordinator, 1)
    assert not list(other.rglob("*.parquet"))
    assert [row.offset for row in check(coordinator, root)] == [0, 1]


def published_at(root: Path, other: Path) -> Coordinator:
    """A topic whose only replica is at another location, with a table of two files."""
    coordinator = cluster_in(root)
    add_broker(coordinator, str(other))
    coordinator.create_topic("t", configs=DELTA, assignment=[[1]])
    append_at(coordinator, 1, 1, 3, 5)
    roll_all(coordinator)
    publish(coordinator)
    return coordinator


def append_at(coordinator: Coordinator, broker: int, *minutes: int) -> None:
    from sparklog.client.producer.producer import Producer

    with Producer(cluster=coordinator) as producer:
        for minute in minutes:
            producer.send("t", b"v%d" % minute, timestamp_ms=minute * 60_000).get()
    assert {segment.broker for segment in live(coordinator, "t")} == {broker}


def listed_files_in_log(root: Path) -> list[str]:
    """The paths as they stand in the log, whose form deltalake changes."""
    lines = [
        json.loads(line)
        for path in sorted((root / "tables/t/_delta_log").glob("*.json"))
        for line in path.read_text().splitlines()
    ]
    return [line["add"]["path"] for line in lines if "add" in line]


# -- the log of a table


def test_a_checkpoint_after_ten_publications_is_read_by_others(cluster: Coordinator, tmp_path: Path) -> None:
    tables = Tables(cluster)
    for minute in range(7, 60, 2):
        produce(cluster, "t", minute)
        roll_all(cluster)
        tables.publish("t")
    folder = tmp_path / "tables/t/_delta_log"
    assert sorted(folder.glob("*.parquet"))
    assert (folder / f"{0:020d}.json").exists(), "a suspended publisher could create it again"
    assert len(check(cluster, tmp_path)) == 30
    assert not publish(cluster).changes


# -- mistakes of others


def test_deletes_and_updates_by_others_are_refused(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    rows = check(cluster, tmp_path)
    with pytest.raises(CommitFailedError, match="append-only"):
        delta(tmp_path).delete("offset = 1")
    with pytest.raises(CommitFailedError, match="append-only"):
        delta(tmp_path).update({"value": "null"})
    with pytest.raises((CommitFailedError, DeltaError), match="append-only"):
        write_deltalake(str(tmp_path / "tables/t"), delta(tmp_path).to_pyarrow_table(), mode="overwrite")
    assert check(cluster, tmp_path) == rows


def optimize(folder: Path) -> None:
    delta(folder).optimize.compact()


def append_rows(folder: Path) -> None:
    write_deltalake(str(folder / "tables/t"), delta(folder).to_pyarrow_table(), mode="append")


def restore(folder: Path) -> None:
    delta(folder).restore(0)


def switch_features_on(folder: Path) -> None:
    delta(folder).alter.set_table_properties(
        {"delta.appendOnly": "false", "delta.enableDeletionVectors": "true"}, raise_if_not_exists=False
    )


@pytest.mark.parametrize("mistake", [optimize, append_rows, restore, switch_features_on])
def test_mistakes_are_mended_by_the_next_publication_and_the_log_loses_nothing(
    mistake: Callable[[Path], None], cluster: Coordinator, tmp_path: Path
) -> None:
    publish(cluster)
    produce(cluster, "t", 7, 9)
    roll_all(cluster)
    publish(cluster)
    before, files = check(cluster, tmp_path), listed_files(tmp_path)
    mistake(tmp_path)
    behind = mistake is restore  # which is as it should be
    assert behind or "table-differs" in {each.kind for each in findings(cluster)}
    for full in (False, True):
        delta(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    assert records(cluster, "t")
    assert publish(cluster).changes
    assert check(cluster, tmp_path) == before
    assert listed_files(tmp_path) == files
    assert delta(tmp_path).protocol().min_writer_version == 2
    for full in (False, True):
        delta(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    assert check(cluster, tmp_path) == before
    assert not [each for each in findings(cluster) if each.severity != "info"]


def test_a_restore_before_a_sweep_does_not_bring_deleted_files_back(cluster: Coordinator, tmp_path: Path) -> None:
    tables = Tables(cluster)
    tables.publish("t")
    delete_records(cluster, 1)
    retain(cluster)
    tables.publish("t")
    restore(tmp_path)
    assert len(table_rows(tmp_path)) == 3
    assert sweep(cluster, tables=tables).files
    assert len(check(cluster, tmp_path)) == 2


def test_vacuum_by_others_deletes_no_segment(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    delete_records(cluster, 1)
    retain(cluster)
    publish(cluster)
    before = sorted((tmp_path / "tables").rglob("*.parquet*"))
    for full in (False, True):
        delta(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=full)
    assert sorted((tmp_path / "tables").rglob("*.parquet*")) == before
    assert check(cluster, tmp_path)


def findings(cluster: Coordinator) -> list[Finding]:
    return check_cluster(cluster.store).report.findings


def test_a_damaged_table_is_reported_keeps_its_files_and_is_published_again_without_its_log(
    cluster: Coordinator, tmp_path: Path
) -> None:
    publish(cluster)
    folder = tmp_path / "tables/t/_delta_log"
    (folder / f"{0:020d}.json").write_text('{"add":')
    with pytest.raises(CorruptMetadataError, match=str(folder / f"{0:020d}.json")):
        publish(cluster)
    (finding,) = [each for each in findings(cluster) if each.severity != "info"]
    assert (finding.kind, finding.topic) == ("damaged-table", "t")
    assert "delete the folder tables/t/_delta_log" in finding.action
    delete_records(cluster, 1)
    retain(cluster)
    (problem,) = sweep(cluster).problems
    assert "cannot be read" in problem
    assert len(list((tmp_path / "tables").rglob("*.parquet"))) == 3
    shutil.rmtree(folder)
    publish(cluster)
    assert len(check(cluster, tmp_path)) == 2
    assert sweep(cluster).files
    check(cluster, tmp_path)
    assert not findings(cluster)


def test_a_deleted_table_log_is_published_again_by_a_process_that_knew_the_table(
    cluster: Coordinator, tmp_path: Path
) -> None:
    tables = Tables(cluster)
    tables.publish("t")
    shutil.rmtree(tmp_path / "tables/t/_delta_log")
    with pytest.raises(TableNotFoundError):
        delta(tmp_path)
    tables.publish("t")
    check(cluster, tmp_path)


def test_a_table_beyond_the_log_is_set_right_after_the_root_was_restored(cluster: Coordinator, tmp_path: Path) -> None:
    shutil.copytree(tmp_path, tmp_path / "backup")
    publish(cluster)
    produce(cluster, "t", 7, 9, 11, 13)
    roll_all(cluster)
    publish(cluster)
    shutil.copytree(tmp_path / "tables/t/_delta_log", tmp_path / "backup/tables/t/_delta_log")
    restored = open_cluster(open_store(str(tmp_path / "backup")))
    assert len(publish(restored).removes) == 4
    check(restored, tmp_path / "backup")
    shown = delta(tmp_path / "backup").transaction_version(application_id(restored.state.cluster_id, "t"))
    assert shown == restored.state.version


def test_a_table_that_is_published_during_a_check_is_no_finding(
    cluster: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(cluster)

    def read(self: table_log.TableLog) -> object:
        monkeypatch.setattr(table_log.TableLog, "read", read_now)
        produce(cluster, "t", 7, 9)
        roll_all(cluster)
        publish(cluster)
        return read_now(self)

    read_now = table_log.TableLog.read
    monkeypatch.setattr(table_log.TableLog, "read", read)
    assert not findings(cluster)


# -- garbage collection


def test_a_vacuum_publishes_before_it_deletes_files_whose_listing_was_lost(
    cluster: Coordinator, tmp_path: Path
) -> None:
    publish(cluster)
    delete_records(cluster, 1)
    retain(cluster)
    shutil.rmtree(tmp_path / "meta/removed")
    report = vacuum(cluster, older_than_ms=0, dry_run=False, force=True)
    assert [file.path for file in report.files if file.path.endswith(".parquet")]
    assert len(check(cluster, tmp_path)) == 2


def test_a_vacuum_keeps_files_whose_table_cannot_be_read(cluster: Coordinator, tmp_path: Path) -> None:
    publish(cluster)
    delete_records(cluster, 1)
    retain(cluster)
    shutil.rmtree(tmp_path / "meta/removed")
    (tmp_path / f"tables/t/_delta_log/{0:020d}.json").write_text("{")
    report = vacuum(cluster, older_than_ms=0, dry_run=False, force=True)
    assert not [file.path for file in report.files if ".parquet" in file.path]
    assert any("cannot be read" in problem for problem in report.problems)


# -- damage of one table and the other topics


def damaged_beside_others(folder: Path) -> Coordinator:
    """Topics t1 to t5; the table of t1 has a commit that is a folder, that of t2 a damaged one. A segment of each has
    expired, and one listing names those of all."""
    coordinator = cluster_in(folder)
    names = [f"t{number}" for number in range(1, 6)]
    for name in names:
        coordinator.create_topic(name, 1, configs=DELTA)
        produce(coordinator, name, 1, 3, 5)
    roll_all(coordinator)
    assert Tables(coordinator).publish_all(names).tables == 5
    (folder / f"tables/t1/_delta_log/{1:020d}.json").mkdir()
    (folder / f"tables/t2/_delta_log/{0:020d}.json").write_text('{"add":')
    for name in names:
        delete_records(coordinator, 1, topic=name)
    return coordinator


def test_a_sweep_deletes_the_files_of_other_topics_in_the_listing_of_a_damaged_table(tmp_path: Path) -> None:
    coordinator = damaged_beside_others(tmp_path)
    retain(coordinator)
    result = sweep(coordinator)
    kept = ["t1", "t2"]
    assert [sum(f"table of topic {name} " in problem for problem in result.problems) for name in kept] == [1, 1]
    assert len(result.problems) == 2
    for name in ("t1", "t2", "t3", "t4", "t5"):
        assert len(list((tmp_path / "tables" / name).rglob("*.parquet"))) == (2 if name in kept else 1), name
    assert coordinator.refresh().removed_files, "the next sweep retries the listing"
    for name in kept:
        shutil.rmtree(tmp_path / f"tables/{name}/_delta_log")
    assert sweep(coordinator).files == 2
    assert not coordinator.refresh().removed_files


def test_many_listings_of_damaged_tables_do_not_stop_a_sweep(tmp_path: Path) -> None:
    coordinator = damaged_beside_others(tmp_path)
    for offset in (1, 2):
        for name in ("t1", "t2", "t3", "t4", "t5"):
            delete_records(coordinator, offset, topic=name)
            retain(coordinator, [name])
    assert len(coordinator.refresh().removed_files) >= 10
    asked: list[str] = []
    store = FaultyStore(coordinator.store, before=lambda step, call: asked.append(f"{call.operation} {call.key}"))
    result = sweep(open_cluster(store))
    assert len(result.problems) == 2
    assert len(coordinator.refresh().removed_files) == 4
    assert [asked.count(f"list tables/{name}/_delta_log/") for name in ("t1", "t2")] == [1, 1]


def test_a_vacuum_deletes_the_orphans_of_other_topics_beside_a_damaged_table(tmp_path: Path) -> None:
    coordinator = damaged_beside_others(tmp_path)
    orphans = {
        name: tmp_path / f"tables/{name}/_segments/partition=0/{0:020d}-v1-orphan.parquet" for name in ("t1", "t3")
    }
    for orphan in orphans.values():
        orphan.write_bytes(b"x")
    report = vacuum(coordinator, older_than_ms=0, dry_run=False, force=True)
    assert {name for name, orphan in orphans.items() if orphan.exists()} == {"t1"}
    assert sum("table of topic t1 " in problem for problem in report.problems) == 1


def test_a_publication_reports_damaged_tables_under_their_names_and_publishes_the_others(tmp_path: Path) -> None:
    coordinator = damaged_beside_others(tmp_path)
    context = MaintenanceContext(coordinator, lambda _: InProcess())
    context.tables.publish_all(context.topics())
    delete_topic(coordinator, "t1")
    for name in ("t3", "t4", "t5"):
        produce(coordinator, name, 7, 9)
    roll_all(coordinator)
    for tables in (3, 0):
        (report,) = Loop(steps(context, ["publication"]), coordinator.log.clock).once()
        assert report.counts["tables_published"] == tables
        assert [problem.startswith(name) for problem, name in zip(report.problems, ("t2: ", "t1: "), strict=True)] == [
            True,
            True,
        ]
    context.close()


@pytest.mark.parametrize("damage", [b"PAR1", b"PAR1" + b"\0" * 400 + b"PAR1", b"x" * 99])
def test_a_damaged_checkpoint_is_reported_and_stops_no_other_table(damage: bytes, tmp_path: Path) -> None:
    coordinator = damaged_beside_others(tmp_path)
    (tmp_path / f"tables/t3/_delta_log/{20:020d}.checkpoint.parquet").write_bytes(damage)
    assert {each.topic for each in findings(coordinator) if each.kind == "damaged-table"} == {"t2", "t3"}
    result = Tables(coordinator).publish_all(["t3", "t4"])
    assert ([name for name, _ in result.failed], result.tables) == (["t3"], 1)


# -- the maintenance


def test_the_maintenance_publishes_and_reports(cluster: Coordinator, tmp_path: Path) -> None:
    context = MaintenanceContext(cluster, lambda _: InProcess())
    reports = {report.step: report for report in Loop(steps(context, ["publication"]), cluster.log.clock).once()}
    context.close()
    assert reports["publication"].counts == {"tables_published": 1, "files_added": 3, "files_removed": 0}
    assert not reports["publication"].problems
    check(cluster, tmp_path)


def test_topics_without_tables_are_left_alone(tmp_path: Path) -> None:
    coordinator = cluster_in(tmp_path)
    coordinator.create_topic("t", configs={"segment.ms": "60000"})
    produce(coordinator, "t", 1, 3, 5)
    roll_all(coordinator)
    assert Tables(coordinator).publish_all(["t"]).tables == 0
    assert not (tmp_path / "tables").exists()
