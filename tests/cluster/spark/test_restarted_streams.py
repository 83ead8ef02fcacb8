"""A streaming query that dies at any time and goes on from its checkpoint, while the log goes on too.

Each batch has the same rows whenever it is run, and the batches have every record once, from where the first of them
started.
"""

from __future__ import annotations

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.decide.topics import create_partitions
from sparklog.spark.source.rows import read_schema
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.reader import SparklogStreamReader
from tests.cluster.spark.helpers import cluster
from tests.cluster.spark.test_stream_planner import produce, read
from tests.sample import chosen

SEEDS = range(150)
Row = tuple[str, int, int]


class Killed(Exception):
    """The query's process has died."""


class Query:
    """Runs batches as Spark does: writes the end of a batch to the checkpoint, reads it, and notes that it is over.

    After a restart the newest batch that is not over is run again. Spark asks the source for the start of the first
    batch each time; that of any other is the end of the one before. Without ``has_limits``, before Spark 4.2, it asks
    for the end of a batch first, and does not say where that starts.
    """

    def __init__(self, folder: Path, numbers: random.Random, has_limits: bool, **options: str) -> None:
        self.has_limits = has_limits
        self.folder, self.random, self.options = folder, numbers, options
        self.ends: list[str] = []
        """The checkpoint's ``offsets``."""
        self.finished = 0
        """The number of batches in the checkpoint's ``commits``."""
        self.rows: dict[int, list[Row]] = {}
        """What the sink has of each batch."""
        self.source: SparklogStreamReader | None = None
        self.first: dict[str, int] = {}
        """Where the first batch starts in each partition: at the first answer of the process that began it."""

    def maybe_die(self) -> None:
        if self.random.random() < 0.1:
            self.source = None
            raise Killed

    def begin(self) -> None:
        """Begin again after a death: run the last batch again if it was not finished."""
        if self.source is None:
            chosen = {"path": str(self.folder), "subscribe": "orders", **self.options}
            self.source = SparklogStreamReader(stream_options(chosen), read_schema(False))
            if not self.ends and self.has_limits:
                self.first = self.source.initialOffset()["orders"]
            if self.finished < len(self.ends):
                self.run(len(self.ends) - 1, self.source.initialOffset() if len(self.ends) == 1 else self.end(-2))
        self.maybe_die()

    def plan(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return where the next batch starts and ends."""
        assert self.source is not None
        if self.has_limits:
            start = self.end(-1) if self.ends else self.source.initialOffset()
            return start, self.source.latestOffset(start, self.source.getDefaultReadLimit())
        end = self.source.latestOffset()
        if self.ends:
            return self.end(-1), end
        start = self.source.initialOffset()
        self.first = start["orders"]
        return start, end

    def end(self, batch: int) -> dict[str, Any]:
        return dict(json.loads(self.ends[batch]))

    def run(self, batch: int, start: dict[str, Any]) -> None:
        assert self.source is not None
        found = read(self.source, start, self.end(batch))
        assert self.rows.setdefault(batch, found) == found, f"batch {batch} has other rows when it is run again"
        self.maybe_die()
        self.finished = batch + 1
        self.maybe_die()

    def trigger(self) -> bool:
        """Run the next batch, if there is anything new; return whether there was."""
        self.begin()
        start, end = self.plan()
        if end == start:
            return False
        self.ends.append(json.dumps(end))
        self.maybe_die()
        self.run(len(self.ends) - 1, start)
        assert self.source is not None
        self.source.commit(end)
        return True


class World:
    """One seed: a topic that grows, is cleaned and gets partitions, and a query."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.log, self.folder = cluster(folder, orders=2), folder
        self.counts = [0, 0]
        options = {"startingOffsets": self.random.choice(["earliest", "latest"])}
        if self.random.random() < 0.5:
            options["maxOffsetsPerTrigger"] = str(self.random.choice([1, 3, 10]))
        if self.random.random() < 0.5:
            options["maxPartitions"] = "auto"
        if self.random.random() < 0.5:
            options["kafka.group.id"] = "g"
            if self.random.random() < 0.5:
                del options["startingOffsets"]  # where the group stands
        self.query = Query(folder, self.random, self.random.random() < 0.5, **options)

    def produce(self) -> None:
        counts = [self.random.choice([0, 0, 1, 5]) for _ in self.counts]
        produce(self.folder, "orders", *counts)
        self.counts = [old + new for old, new in zip(self.counts, counts, strict=True)]

    def add_partition(self) -> None:
        self.counts.append(0)
        self.log.submit(partial(create_partitions, topic="orders", total=len(self.counts)))

    def clean(self) -> None:
        """Delete records that no batch will be asked for again."""
        ends = self.query.ends[: self.query.finished]
        if len(ends) >= 2:
            positions = json.loads(ends[-2])["orders"]
            self.log.submit(
                partial(delete_records, offsets={("orders", int(number)): at for number, at in positions.items()})
            )

    def move_group(self) -> None:
        """Another program commits offsets of the query's group."""
        offsets = {("orders", number): self.random.randint(0, count) for number, count in enumerate(self.counts)}
        self.log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets=offsets)))

    def step(self) -> None:
        others = [self.produce, self.produce, self.produce, self.add_partition, self.clean, self.move_group]
        if self.random.random() < 0.4:
            self.random.choice(others)()
        else:
            self.run_query()

    def run_query(self) -> bool:
        try:
            return self.query.trigger()
        except Killed:
            return True

    def check(self) -> None:
        rows = [row for batch in range(len(self.query.ends)) for row in self.query.rows[batch]]
        found: dict[int, list[int]] = {number: [] for number in range(len(self.counts))}
        for _, number, offset in rows:
            found[number].append(offset)
        for number, count in enumerate(self.counts):
            first = self.query.first.get(str(number), 0)
            assert found[number] == list(range(first, count)), f"partition {number}, from {first} to {count}"


@pytest.mark.sampled
@pytest.mark.parametrize("seed", chosen(SEEDS))
def test_a_query_that_dies_at_any_time_has_each_record_once(tmp_path: Path, seed: int) -> None:
    world = World(seed, tmp_path)
    for _ in range(40):
        world.step()
    while world.run_query():
        pass
    world.check()
