"""After any history of a topic every reader returns the same records and typed columns: ``Consumer``, ``scan``, and at
the version that the Delta table shows delta-rs, Polars and DuckDB, which know nothing of the log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

import sparklog
from sparklog.delta import listing
from sparklog.delta.publication import plan_publication
from sparklog.maintenance import tables
from sparklog.protocol.history import history_of
from sparklog.schema.values.typed_values import ValueReader
from tests.cluster.maintenance.histories import (
    COLUMNS,
    ENDS,
    MAINTENANCE,
    PARTITIONS,
    TOPIC,
    Step,
    TopicUnderTest,
    listed_files,
    rows_with_types,
)
from tests.cluster.maintenance.published_tables import FAULTS, JOBS

partitions, few, kinds = st.integers(0, PARTITIONS - 1), st.integers(1, 5), st.integers(0, 99)
appends: st.SearchStrategy[Step] = st.tuples(st.just("append"), partitions, few, kinds)
steps: st.SearchStrategy[Step] = st.one_of(
    appends,
    appends,
    st.tuples(st.just("transaction"), partitions, few, kinds, st.sampled_from(ENDS)),
    st.tuples(st.just("finish"), st.sampled_from(ENDS[:2])),
    st.tuples(st.just("delete"), partitions, st.floats(0, 1)),
    st.tuples(st.just("expire"), st.floats(0, 1)),
    st.tuples(st.just("schema")),
    st.tuples(st.sampled_from(["roll", *MAINTENANCE])),
    st.tuples(st.just("fail"), st.sampled_from(MAINTENANCE), st.integers(0, 25), st.sampled_from(FAULTS)),
)


def delta_rs(table: Path) -> pa.Table:
    return DeltaTable(str(table)).to_pyarrow_table()


def polars_delta(table: Path) -> pa.Table:
    return polars.scan_delta(str(table)).collect().to_arrow()


def duckdb_parquet(table: Path) -> pa.Table:
    """What DuckDB's own reader of Parquet finds in the files that the table lists."""
    files = list(map(str, listed_files(table)))
    if not files:
        return pa.table({name: pa.array([], kind) for name, kind in EMPTY.items()})
    with duckdb.connect(config={"threads": 1}) as connection:
        return connection.read_parquet(files, hive_partitioning=True, union_by_name=True).to_arrow_table()


EMPTY = dict.fromkeys(COLUMNS, pa.int64()) | {"timestamp": pa.timestamp("us", "UTC")}
READERS = (delta_rs, polars_delta, duckdb_parquet)


def check(topic: TopicUnderTest) -> None:
    """Check what all readers return now."""
    rows = topic.check_log()
    scanned = rows_with_types(sparklog.scan(TOPIC, topic.root).to_arrow())
    assert [row for row, _ in scanned] == rows
    topic.check_table(READERS)


def run(topic: TopicUnderTest, chosen: list[Step]) -> None:
    for step in chosen:
        topic.run(step)
    check(topic)
    for last in ("finish", "roll", "publish"):
        topic.run((last, "commit") if last == "finish" else (last,))
    check(topic)


@settings(max_examples=max(settings().max_examples // 8, 4))
@given(st.booleans(), st.integers(0, 2), st.booleans(), st.lists(steps, min_size=12, max_size=40))
def test_every_reader_returns_the_same_records_and_typed_columns(
    compacted: bool, schema: int, kept: bool, chosen: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        topic = TopicUnderTest(Path(folder), compacted, schema, kept)
        try:
            run(topic, chosen)
        finally:
            topic.close()


# -- what the check is worth

FIXED: list[Step] = [
    ("append", 0, 5, 0),
    ("append", 1, 5, 3),
    ("transaction", 0, 4, 2, "commit"),
    ("roll",),
    ("publish",),
    ("append", 0, 5, 5),
    ("roll",),
    ("compact",),
]
"""A history in which files of the table are replaced by compaction, after which there is a publication."""


def keep_removed_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tables, "plan_publication", lambda *found: plan_publication(*found)._replace(removes=[]))


def skip_a_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(listing, "history_of", lambda *found: list(history_of(*found))[1:])


def delete_listed_files(patch: pytest.MonkeyPatch) -> None:
    """Delete retired files and do not publish, from the second publication on."""
    patch.setattr(tables.Tables, "show", lambda *found: None)
    jobs = chain([JOBS["publish"]], repeat(JOBS["sweep"]))
    patch.setitem(JOBS, "publish", lambda cluster: next(jobs)(cluster))


def scan_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sparklog.Scan, "batches", lambda scan: [*batches(scan), *batches(scan)])


def scan_less(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sparklog.Scan, "batches", lambda scan: [batch.slice(1) for batch in batches(scan)])


def swap_typed_columns(patch: pytest.MonkeyPatch) -> None:
    patch_columns(patch, lambda columns: {**columns, "number": columns["total"], "total": columns["number"]})


def count_no_misfits(patch: pytest.MonkeyPatch) -> None:
    patch_columns(patch, lambda columns: {**columns, "_unfit": pa.array([False] * len(columns["_unfit"]))})


def type_misfits_in_part(patch: pytest.MonkeyPatch) -> None:
    patch_columns(patch, lambda columns: {**columns, "name": pc.if_else(columns["_unfit"], "x", columns["name"])})


def patch_columns(patch: pytest.MonkeyPatch, change: Callable[[dict[str, pa.Array]], dict[str, pa.Array]]) -> None:
    read = ValueReader.columns
    patch.setattr(ValueReader, "columns", lambda *found, **more: change(read(*found, **more)))


batches = sparklog.Scan.batches


def shown_as(folder: Path, name: str) -> set[object]:
    return {typed[name] for _, typed in rows_with_types(delta_rs(folder / "tables" / TOPIC), [name])}


def test_the_fixed_history_passes(tmp_path: Path) -> None:
    run(TopicUnderTest(tmp_path, True, 2), FIXED)
    assert len(shown_as(tmp_path, "_unfit")) > 1


def test_the_fixed_history_passes_if_values_are_left_out(tmp_path: Path) -> None:
    run(TopicUnderTest(tmp_path, True, 2, kept=False), FIXED)
    assert len(shown_as(tmp_path, "_value_kept")) > 1


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (keep_removed_files, "a record is there twice"),
        (skip_a_file, "not the log at version"),
        (delete_listed_files, "files that are gone"),
        (scan_twice, "assert"),
        (scan_less, "assert"),
        (swap_typed_columns, "'number'"),
        (count_no_misfits, "'_unfit': False"),
        (type_misfits_in_part, "'name': 'x'"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_a_fault_of_the_package_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    with pytest.raises(AssertionError, match=message):
        run(TopicUnderTest(tmp_path, True, 2), FIXED)
