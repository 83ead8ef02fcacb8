"""For any history of appends, rolls, compaction, deletions, sweeps, publications and crashes, deltalake reads exactly
the history of the log at the version that the table shows: nothing twice, nothing missing, no file that is gone."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.maintenance.tables import Tables
from tests.cluster.maintenance.logs import Written, append
from tests.cluster.maintenance.published_tables import (
    DELTA,
    FAULTS,
    JOBS,
    Row,
    cluster_in,
    delete_share,
    fail_job,
    listed_files,
    log_rows,
    table_rows,
)
from tests.sample import examples

CONFIGS = {
    **DELTA,
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "1200",
}
PARTITIONS = 2

Step = tuple[object, ...]
partitions = st.integers(0, PARTITIONS - 1)
maintenance = st.sampled_from(list(JOBS))
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("append"), partitions, st.integers(1, 6), st.integers(1, 4)),
    st.tuples(st.just("append"), partitions, st.integers(1, 6), st.integers(1, 4)),
    st.tuples(st.just("delete"), partitions, st.floats(0, 1)),
    st.tuples(maintenance),
    st.tuples(st.just("fail"), maintenance, st.integers(0, 25), st.sampled_from(FAULTS)),
)


class Model:
    """A cluster on a disk, and the rows that its table had when it was last published."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = cluster_in(folder)
        self.cluster.create_topic("t", PARTITIONS, configs=CONFIGS)
        self.shown: list[Row] | None = None
        self.values = 0

    def run(self, step: Step) -> None:
        kind, *arguments = step
        if kind == "append":
            self.append(*arguments)  # type: ignore[arg-type]
        elif kind == "delete":
            delete_share(self.cluster, *arguments)  # type: ignore[arg-type]
        elif kind == "fail":
            fail_job(str(self.folder), *arguments)  # type: ignore[arg-type]
        else:
            JOBS[str(kind)](self.cluster)
        self.check(str(kind))

    def append(self, partition: int, files: int, records: int) -> None:
        for _ in range(files):
            self.values += records
            rows = [Written(b"k%d" % (number % 3), b"%d" % (self.values + number) * 100) for number in range(records)]
            append(self.cluster, "t", rows, partition=partition)

    def check(self, kind: str) -> None:
        """The table is as it was shown before, or shows the log as it is now: no step changes both. A partition of
        which a file waits to be rewritten may lack its oldest records, or still have deleted ones."""
        if not list((self.folder / "tables/t/_delta_log").glob("*.json")):
            return
        missing = [path for path in listed_files(self.folder) if not (self.folder / "tables/t" / path).exists()]
        assert not missing, f"{kind}: the table lists files that are gone"
        rows, now = table_rows(self.folder), log_rows(self.cluster)
        if rows not in (self.shown, now):
            assert {*rows} <= {*(self.shown or ()), *now}, f"{kind}: deleted records appeared again"
            for number, partition in enumerate(self.cluster.refresh().topic("t").partitions):
                live = [row for row in rows if row.partition == number and row.offset >= partition.log_start_offset]
                wanted = [row for row in now if row.partition == number]
                before = [row for row in self.shown or () if row.partition == number]
                listed = [row for row in rows if row.partition == number]
                assert listed == before or live == wanted[len(wanted) - len(live) :], kind
        if kind == "publish" and not self.waits:
            assert rows == now, kind
        self.shown = rows

    @property
    def waits(self) -> bool:
        """Whether the log cannot be shown exactly, since a file has to be rewritten."""
        return bool(Tables(self.cluster).publish_all(["t"]).waiting)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(steps, min_size=5, max_size=25))
def test_the_table_is_the_history_of_the_log_whatever_happens(chosen: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder))
        for step in chosen:
            model.run(step)
        for last in ("roll", "publish", "sweep", "vacuum", "publish"):
            model.run((last,))
        assert model.shown is None or model.shown == log_rows(model.cluster)
