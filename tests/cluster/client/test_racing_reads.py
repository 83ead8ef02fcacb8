"""Reads that race with rolls, compactions and deletions return records in order, none twice and none missing."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import OffsetOutOfRangeError
from sparklog.store.memory import MemoryStore
from tests.cluster.client.consumers import at, until
from tests.cluster.log.replicated import append_copies, copies, replicated_cluster
from tests.cluster.log.rewriting import delete_files, drop_segments, rewrite
from tests.cluster.log.test_fetch import append_file
from tests.sample import examples

changes = st.one_of(
    st.tuples(st.just("roll"), st.integers(0, 3), st.integers(1, 4), st.just(())),
    st.tuples(st.just("compact"), st.integers(0, 3), st.integers(1, 4), st.sets(st.integers(0, 15))),
    st.tuples(st.just("append"), st.just(0), st.just(0), st.just(())),
    st.tuples(st.just("delete"), st.just(0), st.just(1), st.just(())),
)


class Log:
    """Offsets 0 to 15 of t-0 in four files, and those that remain."""

    def __init__(self) -> None:
        self.admin: Coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))
        self.admin.create_topic("t")
        self.remaining: set[int] = set()
        for _ in range(4):
            self.append()

    @property
    def end(self) -> int:
        return self.admin.state.partition("t", 0).log_end_offset

    def append(self) -> None:
        first = self.end
        append_file(self.admin, {0: [[first, first + 1], [first + 2, first + 3]]})
        self.remaining |= set(range(first, first + 4))

    def change(self, what: str, first: int, count: int, removed: set[int]) -> None:
        segments = self.admin.segments("t", self.admin.refresh()).partition(0)
        if what == "append":
            self.append()
        elif what == "delete" and len(segments) > 1:
            self.remaining -= set(range(segments[0].end_offset))
            delete_files(self.admin.store, drop_segments(self.admin, 1))
        elif what in ("roll", "compact") and first < len(segments):
            self.remaining -= {
                o for o in removed if any(s.base_offset <= o < s.end_offset for s in segments[first:][:count])
            }
            delete_files(self.admin.store, rewrite(self.admin, first, count, keep=self.remaining.__contains__))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(changes, max_size=8), st.integers(0, 15))
def test_a_range_is_read_correctly_while_the_log_changes(script: Any, start: int) -> None:
    log = Log()
    offsets: list[Any] = []
    end, before = log.end, set(log.remaining)
    with LogReader(open_cluster(log.admin.store)) as reader:
        reading = reader.fetch("t", 0, start, end, ["value"])
        try:
            for fetched in reading:
                offsets += fetched.records.all_offsets()
                values = fetched.records.batch.column(0).to_pylist()
                assert values == [b"value-%d" % offset for offset in fetched.records.all_offsets()]
                if script:
                    log.change(*script.pop(0))
        except OffsetOutOfRangeError as error:
            end = error.offset
    assert offsets == sorted(set(offsets))
    assert set(offsets) <= {offset for offset in before if start <= offset < end}
    assert {offset for offset in log.remaining if start <= offset < end} <= set(offsets)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(changes, max_size=6))
def test_a_consumer_reads_correctly_while_the_log_changes(script: Any) -> None:
    log = Log()
    offsets: list[int] = []
    settings: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "tail_backoff_max_ms": 2,
        "max_partition_fetch_bytes": 1,
    }
    with Consumer(cluster=open_cluster(log.admin.store), max_poll_records=3, **settings) as consumer:
        consumer.assign([at(0, "t")])

        def step() -> None:
            offsets.extend(record.offset for records in consumer.poll(5).values() for record in records)
            if script:
                log.change(*script.pop(0))

        until(lambda: not script and consumer.position(at(0, "t")) == log.end, step)
    assert offsets == sorted(set(offsets))
    assert log.remaining <= set(offsets)


@pytest.mark.parametrize("lost", [(0,), (0, 1), (1, 2)])
def test_a_consumer_continues_from_the_remaining_replicas(tmp_path: Path, lost: tuple[int, ...]) -> None:
    admin = replicated_cluster(tmp_path)
    paths = [append_copies(admin, [first, first + 1]) for first in range(0, 20, 2)]
    stores = dict(copies(admin))
    with Consumer(bootstrap_servers=str(tmp_path / "root"), auto_offset_reset="earliest") as consumer:
        consumer.assign([at(0, "t")])
        offsets: list[int] = []
        for broker in lost:
            delete_files(stores[broker], paths)

        def step() -> None:
            offsets.extend(record.offset for records in consumer.poll(20).values() for record in records)

        until(lambda: len(offsets) == 20, step)
    assert offsets == list(range(20))
