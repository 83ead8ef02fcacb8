"""Which actions make a topic's table show a version of the log: pure plans, applied as readers of Delta apply them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
import pytest

from sparklog.delta import actions
from sparklog.delta.actions import Add, Line, Metadata, Protocol, Remove, TableSnapshot, Transaction
from sparklog.delta.publication import (
    Publication,
    TopicTable,
    commit_lines,
    path_in_table,
    plan_publication,
    published_version,
    split,
)
from sparklog.format.parquet.delta_stats import encode_stats
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.schema.languages.record_schema import PartSchema, RecordSchema

CLUSTER, TOPIC = "cluster", "orders"


def segment(base: int, end: int, partition: int = 0, name: str = "") -> Segment:
    path = f"tables/orders/_segments/partition={partition}/{base:020d}-v1-{name or end}.parquet"
    return Segment(
        partition=partition, base_offset=base, end_offset=end, first_batch=0, batches=1, first_row=0,
        records=end - base, leader_epoch=0, append_time_ms=NO_APPEND_TIME, min_timestamp_us=0, max_timestamp_us=1000,
        size_bytes=100, path=path, broker=0, version=1, closed=True,
        stats=encode_stats(end - base, (base, end - 1), (0, 1000), {}), file_bytes=100 + end,
    )  # fmt: skip


def table(*segments: Segment, version: int = 7, topic_id: str = "id-1", location: str = "") -> TopicTable:
    files = {path_in_table(TOPIC, each.path, location): each for each in segments}
    return TopicTable(CLUSTER, TOPIC, topic_id, version, 1000 + version, files)


def publish(snapshot: TableSnapshot, wanted: TopicTable) -> tuple[TableSnapshot, Publication]:
    """Apply the plan as a reader does that knows only the bytes of its commit; it must leave nothing to do."""
    publication = plan_publication(snapshot, wanted)
    lines = commit_lines(publication, wanted, "write-1", is_last=True)
    decoded = actions.decode_commit(actions.encode_commit(lines))
    after = actions.apply(snapshot, snapshot.version + 1, decoded)
    assert not plan_publication(after, wanted).changes
    assert published_version(after, CLUSTER, TOPIC) == wanted.version
    return after, publication


def published(*segments: Segment) -> TableSnapshot:
    return publish(TableSnapshot(), table(*segments))[0]


def change(snapshot: TableSnapshot, lines: Iterable[Line]) -> TableSnapshot:
    """A commit of somebody else."""
    return actions.apply(snapshot, snapshot.version + 1, actions.decode_commit(actions.encode_commit(lines)))


def offsets(files: Iterable[Add]) -> list[tuple[int, int]]:
    bounds = [json.loads(add.stats or "") for add in files]
    return [(bound["minValues"]["offset"], bound["maxValues"]["offset"] + 1) for bound in bounds]


def test_the_first_publication_creates_the_table_with_all_files() -> None:
    after, publication = publish(TableSnapshot(), table(segment(0, 5), segment(5, 9), segment(0, 3, partition=1)))
    assert offsets(publication.adds) == [(0, 5), (5, 9), (0, 3)]
    assert all(add.data_change for add in publication.adds)
    assert after.protocol == Protocol(1, 2)
    assert after.metadata is not None
    assert (after.metadata.id, after.metadata.partition_columns) == ("id-1", ["partition"])
    assert after.metadata.configuration["delta.appendOnly"] == "true"


def test_files_of_before_a_field_was_added_are_stated_to_have_nulls_in_it() -> None:
    before = published(segment(0, 5), segment(5, 9))
    wanted = table(segment(0, 5), segment(5, 9))._replace(
        schema=RecordSchema(PartSchema("json", ("a int, list array<int>",))).columns
    )
    _, publication = publish(before, wanted)
    assert [add.data_change for add in publication.adds] == [False, False]
    counts = [json.loads(add.stats or "")["nullCount"] for add in publication.adds]
    assert [(count["a"], count["_unfit"], "list" in count) for count in counts] == [(5, 5, False), (4, 4, False)]


def test_a_topic_without_history_gets_an_empty_table() -> None:
    after, _ = publish(TableSnapshot(), table())
    assert after.metadata is not None
    assert not after.files


def test_a_later_version_of_the_log_with_the_same_history_changes_nothing() -> None:
    assert not plan_publication(published(segment(0, 5)), table(segment(0, 5), version=9)).changes


def test_new_segments_are_added_and_the_others_are_not_named_again() -> None:
    _, publication = publish(published(segment(0, 5)), table(segment(0, 5), segment(5, 9), version=8))
    assert not publication.removes
    assert [(add.data_change, add.path) for add in publication.adds] == [
        (True, "_segments/partition=0/00000000000000000005-v1-9.parquet")
    ]


def test_a_merge_is_no_change_of_data() -> None:
    after, publication = publish(published(segment(0, 5), segment(5, 9)), table(segment(0, 9, name="m"), version=8))
    assert offsets(after.files.values()) == [(0, 9)]
    assert [add.data_change for add in publication.adds] == [False]
    assert [remove.data_change for remove in publication.removes] == [False, False]


def test_a_merge_beside_new_records_marks_only_these_as_new() -> None:
    before = published(segment(0, 5), segment(5, 9), segment(0, 4, partition=1))
    wanted = table(segment(0, 9, name="m"), segment(9, 12), segment(0, 4, partition=1), version=8)
    _, publication = publish(before, wanted)
    assert [
        (bounds, add.data_change) for bounds, add in zip(offsets(publication.adds), publication.adds, strict=True)
    ] == [
        ((0, 9), False),
        ((9, 12), True),
    ]


def test_a_file_of_old_and_new_records_is_new_so_that_nobody_misses_records() -> None:
    _, publication = publish(published(segment(0, 5)), table(segment(0, 9, name="m"), version=8))
    assert [add.data_change for add in publication.adds] == [True]


def test_retention_removes_files_without_taking_records_back() -> None:
    after, publication = publish(published(segment(0, 5), segment(5, 9)), table(segment(5, 9), version=8))
    assert offsets(after.files.values()) == [(5, 9)]
    assert [(remove.data_change, remove.deletion_timestamp) for remove in publication.removes] == [(False, 1008)]
    assert not publication.adds


def test_a_deleted_topic_leaves_an_empty_table() -> None:
    after, publication = publish(published(segment(0, 5)), table(version=8, topic_id=""))
    assert not after.files
    assert publication.metadata is None


def test_a_topic_that_was_created_again_is_another_table_with_new_records() -> None:
    before = published(segment(0, 5))
    again = table(segment(0, 3, name="again"), version=9, topic_id="id-2")
    for earlier in (before, publish(before, table(version=8, topic_id=""))[0]):
        after, publication = publish(earlier, again)
        assert after.metadata is not None
        assert after.metadata.id == "id-2"
        assert offsets(after.files.values()) == [(0, 3)]
        assert [add.data_change for add in publication.adds] == [True]


def foreign(path: str, base: int, end: int) -> Add:
    stats = encode_stats(end - base, (base, end - 1), (0, 1), {})
    return Add(
        path=path, partition_values={"partition": "0"}, size=9, modification_time=1, data_change=False, stats=stats
    )


def remove_of(add: Add) -> Line:
    return Line(remove=Remove(path=add.path, deletion_timestamp=5, partition_values=add.partition_values))


def test_an_optimize_is_undone() -> None:
    before = published(segment(0, 5), segment(5, 9))
    optimized = change(
        before, [*map(remove_of, before.files.values()), Line(add=foreign("partition=0/part-1.parquet", 0, 9))]
    )
    after, publication = publish(optimized, table(segment(0, 5), segment(5, 9), version=8))
    assert {*after.files} == {*before.files}
    assert not any(add.data_change for add in publication.adds)


def test_records_that_others_appended_are_removed() -> None:
    before = published(segment(0, 5))
    appended = change(before, [Line(add=foreign("partition=0/part-1.parquet", 77, 78))])
    after, publication = publish(appended, table(segment(0, 5), version=8))
    assert after.files == before.files
    assert [remove.path for remove in publication.removes] == ["partition=0/part-1.parquet"]


def later(segment: Segment, version: int = 8) -> Segment:
    return msgspec.structs.replace(segment, version=version)


def test_a_row_with_a_large_offset_that_others_appended_does_not_make_later_records_old() -> None:
    before = published(segment(0, 5))
    appended = change(before, [Line(add=foreign("partition=0/part-1.parquet", 10**6, 10**6 + 1))])
    _, publication = publish(appended, table(segment(0, 5), later(segment(5, 9)), version=8))
    assert [add.data_change for add in publication.adds] == [True]


def test_records_before_those_that_the_table_has_are_new() -> None:
    _, publication = publish(published(segment(5, 9)), table(segment(0, 5), segment(5, 9), version=8))
    assert [add.data_change for add in publication.adds] == [True]


@pytest.mark.parametrize("killed_after", range(1, 6))
def test_records_of_a_topic_that_was_created_again_are_new_also_after_a_publication_in_parts_was_killed(
    killed_after: int,
) -> None:
    before = published(*(segment(0, 100, number) for number in range(3)))
    again = table(*(segment(0, 10, number, "new") for number in range(3)), version=9, topic_id="id-2")
    commits = split_lines(plan_publication(before, again), again, 1)
    assert len(commits) == 6
    snapshot = before
    for lines in commits[:killed_after]:
        snapshot = change(snapshot, lines)
        assert snapshot.metadata is not None
        assert snapshot.metadata.id == ("id-2" if not snapshot.files.keys() & before.files.keys() else "id-1")
    rest = plan_publication(snapshot, again).adds
    assert [add.data_change for add in rest] == [True] * min(3, 6 - killed_after)


def test_a_deletion_vector_is_undone() -> None:
    before = published(segment(0, 5))
    (add,) = before.files.values()
    vector: dict[str, object] = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 3, "cardinality": 1}
    lines = [remove_of(add), Line(add=msgspec.structs.replace(add, deletion_vector=vector))]
    deleted = change(before, [Line(protocol=Protocol(3, 7, ["deletionVectors"], ["deletionVectors"])), *lines])
    after, publication = publish(deleted, table(segment(0, 5), version=8))
    assert [remove.deletion_vector for remove in publication.removes] == [vector]
    assert [added.deletion_vector for added in after.files.values()] == [None]
    assert [added.data_change for added in publication.adds] == [False]
    assert after.protocol == Protocol(1, 2)


def test_changed_statistics_and_sizes_are_set_right_without_new_data() -> None:
    before = published(segment(0, 5))
    (add,) = before.files.values()
    for damaged in (msgspec.structs.replace(add, stats=None), msgspec.structs.replace(add, size=1)):
        after, publication = publish(change(before, [Line(add=damaged)]), table(segment(0, 5), version=8))
        assert {key: each.stats for key, each in after.files.items()} == dict.fromkeys(after.files, add.stats)
        assert [each.size for each in after.files.values()] == [add.size]
        assert (publication.removes, [each.data_change for each in publication.adds]) == ([], [False])


def test_changed_properties_and_columns_are_set_right() -> None:
    before = published(segment(0, 5))
    assert before.metadata is not None
    for changed in (
        msgspec.structs.replace(before.metadata, configuration={}),
        msgspec.structs.replace(before.metadata, schema_string="{}"),
    ):
        after, _ = publish(change(before, [Line(meta_data=changed)]), table(segment(0, 5), version=8))
        assert after.metadata is not None
        assert msgspec.structs.replace(after.metadata, created_time=before.metadata.created_time) == before.metadata


def test_a_path_that_another_writer_escapes_more_is_the_same_file() -> None:
    before = published(segment(0, 5))
    (add,) = before.files.values()
    escaped = msgspec.structs.replace(add, path=add.path.replace("=", "%3D"))
    restored = change(before, [remove_of(add), Line(add=escaped)])
    assert not plan_publication(restored, table(segment(0, 5), version=8)).changes
    after, publication = publish(restored, table(version=8))
    assert not after.files
    assert [remove.path for remove in publication.removes] == [escaped.path]


def test_files_at_another_location_have_its_address_escaped() -> None:
    path = segment(0, 5).path
    assert path_in_table(TOPIC, path, "s3://bucket/a") == f"s3://bucket/a/{path}"
    assert path_in_table(TOPIC, path, "/data/my disk#1?") == f"file:///data/my%20disk%231%3F/{path}"
    assert path_in_table(TOPIC, path) == path.removeprefix("tables/orders/")
    assert path_in_table(TOPIC, path, "s3://bucket/my data/50%") == f"s3://bucket/my%20data/50%25/{path}"
    assert path_in_table(TOPIC, path, "abfss://box@a.dfs.x.net/ä") == f"abfss://box@a.dfs.x.net/%C3%A4/{path}"
    assert path_in_table(TOPIC, path, "hdfs://host:8020/a") == f"hdfs://host:8020/a/{path}"
    assert path_in_table(TOPIC, path, "gs://bucket") == f"gs://bucket/{path}"


def test_a_move_to_another_location_is_no_change_of_data() -> None:
    before = published(segment(0, 5))
    after, publication = publish(before, table(segment(0, 5), version=8, location="/data/my disk"))
    assert len(after.files) == len(publication.removes) == 1
    assert [add.data_change for add in publication.adds] == [False]


def split_lines(publication: Publication, wanted: TopicTable, max_bytes: int) -> list[list[Line]]:
    return [
        list(commit_lines(part.publication, wanted, f"write-{number}", part.is_last))
        for number, part in enumerate(split(publication, max_bytes))
    ]


@pytest.mark.parametrize("max_bytes", [1, 2000, 10**6])
def test_a_large_publication_is_split_so_that_no_part_hides_or_repeats_a_record(max_bytes: int) -> None:
    before = published(*(segment(at, at + 2, number) for number in range(3) for at in range(0, 10, 2)))
    merged = [segment(0, 10, number, "m") for number in range(2)]
    new = [segment(at, at + 2, number) for number in range(4) for at in range(10, 20, 2)]
    kept = [segment(at, at + 2, 2) for at in range(0, 10, 2)]
    wanted = table(*merged, *kept, *new, version=8)
    publication = plan_publication(before, wanted)
    commits = split_lines(publication, wanted, max_bytes)
    assert (len(commits) == 1) == (max_bytes == 10**6)
    snapshot, shown = before, {0: 10, 1: 10, 2: 10, 3: 0}
    for number, lines in enumerate(commits, 1):
        snapshot = change(snapshot, lines)
        for partition in range(4):
            files = [add for add in snapshot.files.values() if add.partition_values["partition"] == str(partition)]
            bounds = sorted(offsets(files))
            covered = [offset for start, end in bounds for offset in range(start, end)]
            if covered:
                first = 10 if partition == 3 else 0
                assert covered == list(range(first, covered[-1] + 1)), f"part {number} hides or repeats records"
            assert len(covered) >= shown[partition]
            shown[partition] = len(covered)
        assert published_version(snapshot, CLUSTER, TOPIC) == (8 if number == len(commits) else 7)
    assert not plan_publication(snapshot, wanted).changes


def test_a_first_publication_in_parts_has_its_schema_in_the_first() -> None:
    wanted = table(*(segment(at, at + 1) for at in range(20)))
    commits = split_lines(plan_publication(TableSnapshot(), wanted), wanted, 2000)
    assert len(commits) > 2
    assert [any(line.meta_data for line in lines) for lines in commits] == [True] + [False] * (len(commits) - 1)
    assert [any(line.protocol for line in lines) for lines in commits] == [True] + [False] * (len(commits) - 1)


def test_other_applications_keep_their_transactions() -> None:
    before = change(published(segment(0, 5)), [Line(txn=Transaction("other", 3))])
    after, _ = publish(before, table(segment(0, 5), segment(5, 6), version=8))
    assert after.transactions["other"] == 3


def test_metadata_of_a_table_that_nobody_published_is_replaced() -> None:
    before = TableSnapshot(0, Protocol(1, 2), Metadata(id="x", schema_string="{}"), {}, {})
    after, _ = publish(before, table(segment(0, 5)))
    assert after.metadata is not None
    assert after.metadata.id == "id-1"
