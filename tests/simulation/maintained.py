"""A simulated cluster whose logs are rolled, compacted, deleted and swept while writers and readers run.

Writers write real segment files, readers read them with ``LogReader``, and maintenance is what ``sparklog maintain``
runs. The seed decides about storage failures; processes are killed and restarted, and suspended at a call for longer
than any age limit, as by SIGSTOP. Time is virtual, so the limits are the real ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial

import pyarrow as pa

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    CommitConflictError,
    IndeterminateCommitError,
    OffsetOutOfRangeError,
    SparklogError,
    StaleWriteError,
    StorageError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
    UnlinkedHistoryError,
)
from sparklog.format.schema import columns_present, record_schema
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.log.settings import LogSettings
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from sparklog.store.memory import forget_space
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    LOST_ANSWER,
    UNAVAILABLE,
    Call,
    FaultyStore,
    SimulatedCrash,
    SimulatedInterrupt,
)
from sparklog.types import TopicPartition
from tests.simulation.machines import set_clock_now_and_then, some_machines
from tests.simulation.scheduler import Machine, Simulation
from tests.simulation.truth import READER_ERROR, Stored, Truth, WatchedStore, rows

RATES = {UNAVAILABLE: 0.005, LOST_ANSWER: 0.005, CRASH_BEFORE: 0.001, CRASH_AFTER: 0.001}
NOTHING_FAILS: Mapping[str, float] = {}

SEGMENT_SECONDS = 150
"""``segment.ms`` of all topics: a few appends make a segment."""

DELETE_DELAY_SECONDS = 60
VACUUM_SECONDS = 300
"""The age limit of the vacuum: shorter than many stops."""

MACHINES = 6
"""Number of computers that the processes run on."""

STOP_RATE = 0.002
STOP_SECONDS = (30.0, 2000.0)
"""How long processes are stopped: up to longer than commits and checkpoints are kept."""

RETENTION_BYTES = 1500
"""``retention.bytes`` of the topic SHORT: a few segments."""

KEPT, SHORT, COMPACTED, RENEWED = "kept", "short", "compacted", "renewed"
PARTITIONS = 2
TOPICS: Mapping[str, Mapping[str, str]] = {
    KEPT: {"retention.ms": "-1"},
    SHORT: {"retention.ms": "-1", "retention.bytes": str(RETENTION_BYTES)},
    COMPACTED: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "200000",
        "min.compaction.lag.ms": "100000",
        "internal.segment.bytes": "1200",
    },
    RENEWED: {"retention.ms": "-1"},
}
"""RENEWED is repeatedly deleted and created."""

COMMON = {
    "segment.ms": str(SEGMENT_SECONDS * 1000),
    "file.delete.delay.ms": str(DELETE_DELAY_SECONDS * 1000),
    "history.delete.delay.ms": str(DELETE_DELAY_SECONDS * 1000),
}
CLUSTER_CONFIGS = {"metadata.max.retention.ms": "60000"}
KEYS = [b"a", b"b", b"c", b"d"]


SETTINGS = LogSettings(checkpoint_interval_commits=5, min_commits_kept=0)
"""Many checkpoints; commits are removed as soon as they are old enough."""


class World:
    """One run: the storage, the truth about it, and the actors. ``busy`` are the actors whose work ends."""

    def __init__(self, seed: int, rates: Mapping[str, float] = RATES, stop_rate: float = STOP_RATE) -> None:
        self.simulation = Simulation(seed)
        self.random: random.Random = self.simulation.random
        self.rates = rates
        self.stop_rate = stop_rate
        self.name = f"maintained-{seed}"
        self.lives: list[FaultyStore] = []
        self.busy: set[str] = set()
        self.writers: list[Writer] = []
        self.counts: Counter[str] = Counter()
        self.machines = some_machines(self.simulation, MACHINES)
        self.store = WatchedStore(self.name, self.simulation)
        cluster = create_cluster(self.store, clock=self.simulation, ids=self.simulation.ids(), settings=SETTINGS)
        cluster.submit(partial(alter_configs, topic="", changes=CLUSTER_CONFIGS))
        self.configs = {"message.timestamp.type": "LogAppendTime"} if seed % 2 else {}
        self.has_tables = seed % 4 > 1
        if self.has_tables:
            self.configs["history.format"] = "delta"
        for topic in TOPICS:
            self.create_topic(cluster, topic)
        self.truth = Truth(self.store)

    def create_topic(self, cluster: Coordinator, topic: str) -> None:
        cluster.create_topic(topic, PARTITIONS, configs={**COMMON, **TOPICS[topic], **self.configs})

    def open(self, rates: Mapping[str, float] | None = None) -> Coordinator:
        """Start a new process: its own view of the storage, with its own faults and stops."""
        store = self.simulation.store(self.store, self.rates if rates is None else rates, self._stop)
        self.lives.append(store)
        while True:
            try:
                return Coordinator(
                    CommitLog.open(store, self.simulation.clock, self.simulation.ids(), settings=SETTINGS)
                )
            except StorageUnavailableError:
                continue

    def _stop(self, call: Call) -> float:
        self.counts["set clocks"] += set_clock_now_and_then(self.simulation)
        if self.random.random() >= self.stop_rate:
            return 0.0
        seconds = self.random.uniform(*STOP_SECONDS)
        machine = self.simulation.clock
        if isinstance(machine, Machine) and self.random.random() < 0.2:
            self.counts["suspended"] += 1
            machine.suspend(seconds)
            return 0.0
        self.counts["stopped"] += 1
        return seconds

    def pause(self, longest_seconds: float) -> None:
        self.simulation.sleep(self.random.uniform(0, longest_seconds))

    def spawn(self, name: str, work: Callable[[], None], ends: bool = True) -> None:
        """Start an actor. The run ends once all actors with ``ends`` are done."""

        def until_done() -> None:
            try:
                work()
            finally:
                self.busy.discard(name)

        if ends:
            self.busy.add(name)
        self.simulation.spawn(name, until_done if ends else work, self.random.choice(self.machines))

    def run(self, strict: bool = True) -> None:
        """``strict``: no actor may fail."""
        with nullcontext() if strict else suppress(AssertionError):
            self.simulation.run()

    def close(self) -> None:
        forget_space(self.name)

    def later(self, seconds: float) -> Coordinator:
        """Return the cluster without faults and stops, once all actors are done, that many seconds later."""
        self.simulation.advance(seconds)
        return Coordinator(
            CommitLog.open(self.store, _Later(self.simulation), self.simulation.ids(), settings=SETTINGS)
        )


class _Later:
    """The clock after the run, on which a sleep only advances the time."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def now_ms(self) -> int:
        return self._simulation.now_ms()

    def monotonic(self) -> float:
        return self._simulation.monotonic()

    def sleep(self, seconds: float) -> None:
        self._simulation.advance(seconds)


# -- writers


class Batch:
    """Records for partitions of one topic, with the producer's sequences; retried until they are acknowledged."""

    def __init__(self, topic: str, records: dict[int, list[Stored]], sequences: dict[int, int]) -> None:
        self.topic = topic
        self.records = records
        self.sequences = sequences


class Writer:
    """A producer that keeps its identity and sequences through restarts, and retries requests without an answer."""

    def __init__(self, world: World, number: int, batches: int) -> None:
        self.world = world
        self.name = f"w{number}"
        self.producer_id = 100 + number
        self.left = batches
        self.sequences: dict[TopicPartition, int] = {}
        self.batch: Batch | None = None
        self.values = 0
        world.writers.append(self)

    def work(self) -> None:
        while self.left > 0:
            try:
                self.live()
            except (SimulatedCrash, SimulatedInterrupt):
                self.world.counts["killed"] += 1

    def live(self) -> None:
        coordinator = self.world.open()
        while self.left > 0:
            if self.batch is None:
                self.world.pause(120)
                self.batch = self.draw()
            try:
                self.send(coordinator, self.batch)
            except (IndeterminateCommitError, CommitConflictError, StorageUnavailableError):
                continue
            except UnknownTopicOrPartitionError:
                self.give_up(coordinator, self.batch)
            self.batch = None
            self.left -= 1

    def give_up(self, coordinator: Coordinator, batch: Batch) -> None:
        """Forget the sequences of a topic that was deleted."""
        if batch.topic != RENEWED:
            raise AssertionError(f"{batch.topic} is never deleted")
        for partition in batch.records:
            self.sequences.pop(TopicPartition(batch.topic, partition), None)
        with suppress(StorageUnavailableError):
            coordinator.refresh()

    def draw(self) -> Batch:
        chance = self.world.random
        topic = chance.choice(list(TOPICS))
        chosen = sorted(chance.sample(range(PARTITIONS), chance.randint(1, PARTITIONS)))
        records = {partition: [self.record(topic) for _ in range(chance.randint(1, 4))] for partition in chosen}
        sequences = {partition: self.sequences.get(TopicPartition(topic, partition), 0) for partition in chosen}
        return Batch(topic, records, sequences)

    def record(self, topic: str) -> Stored:
        self.values += 1
        chance = self.world.random
        key = chance.choice(KEYS) if topic == COMPACTED or chance.random() < 0.3 else None
        value = None if topic == COMPACTED and chance.random() < 0.25 else b"%s.%d" % (self.name.encode(), self.values)
        return Stored(key, value, self.world.simulation.now_ms() * 1000 - chance.randrange(5_000_000))

    def send(self, coordinator: Coordinator, batch: Batch) -> None:
        """Retry until there is an answer: with the same file, or with a new one as a restarted process would."""
        appends = self.write(coordinator, batch)
        while True:
            try:
                result = coordinator.append(AppendRequest(appends=appends))
                break
            except StaleWriteError:
                self.world.counts["stale"] += 1
                coordinator.refresh()
                appends = self.write(coordinator, batch)
            except (IndeterminateCommitError, StorageUnavailableError):
                if self.world.random.random() < 0.5:
                    raise
        for appended in result.appended:
            partition = TopicPartition(batch.topic, appended.partition)
            records = batch.records[appended.partition]
            self.sequences[partition] = batch.sequences[appended.partition] + len(records)
            if self.world.truth.has(batch.topic, appended.topic_id):  # else it was deleted since
                self.world.truth.acknowledged(partition, appended.base_offset, records, self.name)

    def write(self, coordinator: Coordinator, batch: Batch) -> list[PartitionAppend]:
        """One file for all partitions of the batch, durable and not visible yet."""
        state = coordinator.state
        topic = state.topic(batch.topic)
        first = min(batch.records)
        expected = topic.partitions[first].log_end_offset
        key = segment_key(batch.topic, first, expected, state.version, coordinator.log.ids.write_id())
        has_key = any(record.key is not None for records in batch.records.values() for record in records)
        writer = SegmentFileWriter(coordinator.store, key, has_key=has_key)
        try:
            for partition, records in batch.records.items():
                sequence = batch.sequences[partition]
                writer.start_run(RunTarget(batch.topic, topic.topic_id, partition, self.producer_id, 0, sequence))
                writer.write(_arrow(records, has_key))
        except StorageError:
            writer.abort()
            raise
        return writer.finish()


def _arrow(records: Sequence[Stored], has_key: bool) -> pa.RecordBatch:
    schema = record_schema(columns_present(has_key, False))
    columns = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "timestamp": [record.timestamp_us for record in records],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- readers


class Reader:
    """Reads ranges and compares them with the truth; retries after injected faults."""

    def __init__(self, world: World, name: str, rounds: int, rates: Mapping[str, float] | None = None) -> None:
        self.world = world
        self.name = name
        self.left = rounds
        self.rates = rates

    def work(self) -> None:
        while self.left > 0:
            try:
                self.live(self.world.open(self.rates))
            except (SimulatedCrash, SimulatedInterrupt):
                self.world.counts["killed"] += 1

    def live(self, coordinator: Coordinator) -> None:
        with LogReader(coordinator) as reader:
            while self.left > 0:
                self.left -= 1
                try:
                    self.round(reader)
                except UnlinkedHistoryError as error:
                    if not coordinator.log.unlinked_jumps:
                        self.failed(error)
                    self.world.counts["reader stopped for too long"] += 1
                    return
                except StorageUnavailableError as error:
                    if not self.fails:
                        self.failed(error)

    @property
    def fails(self) -> bool:
        """Whether this reader's own storage fails, so that an error is expected."""
        return bool(self.world.rates if self.rates is None else self.rates)

    def round(self, reader: LogReader) -> None:
        raise NotImplementedError

    def failed(self, error: SparklogError) -> None:
        self.world.truth.find(READER_ERROR, f"{self.name}: {error!r}")

    def read(
        self, reader: LogReader, partition: TopicPartition, start: int, end: int, state: State, pause: float = 0
    ) -> bool:
        """Read ``[start, end)`` and check it; pause between parts. Return whether the end was reached."""
        start = max(start, state.partition(*partition).log_start_offset)
        topic_id = state.topic(partition.topic).topic_id
        records: list[tuple[int, Stored]] = []
        try:
            for fetched in reader.fetch(*partition, start, end, ["key", "value", "timestamp"], state):
                records += rows(fetched.records.all_offsets(), fetched.records.batch)
                if pause:
                    self.world.pause(pause)
        except OffsetOutOfRangeError as error:
            if not self.world.truth.has(partition.topic, topic_id):
                return False
            at = records[-1][0] + 1 if records else start
            self.world.truth.check_out_of_range(partition, at, error, self.name)
            self.world.counts["out of range"] += 1
            return False
        except (UnlinkedHistoryError, StorageUnavailableError):
            raise
        except SparklogError as error:
            if self.world.truth.has(partition.topic, topic_id):
                self.failed(error)
            return False
        if not self.world.truth.has(partition.topic, topic_id):
            return False
        self.world.truth.check_read(partition, start, end, records, self.name)
        self.world.counts["reads"] += 1
        return True


def all_partitions(state: State) -> Iterator[TopicPartition]:
    """Return all existing partitions, in the order of TOPICS."""
    return (TopicPartition(topic, n) for topic in TOPICS if topic in state.topics for n in range(PARTITIONS))


class Tail(Reader):
    """Follows the ends of all partitions from their beginning."""

    def __init__(self, world: World, name: str, rounds: int, rates: Mapping[str, float] | None = None) -> None:
        super().__init__(world, name, rounds, rates)
        self.positions: dict[tuple[str, TopicPartition], int] = {}

    def round(self, reader: LogReader) -> None:
        self.world.pause(100)
        state = reader.refresh()
        for partition in all_partitions(state):
            at = (state.topic(partition.topic).topic_id, partition)
            end = state.partition(*partition).high_watermark
            if self.read(reader, partition, self.positions.get(at, 0), end, state):
                self.positions[at] = end


class Holder(Reader):
    """Takes a state, and reads it much later and slowly, some partitions twice."""

    def round(self, reader: LogReader) -> None:
        state = reader.refresh()
        self.world.pause(self.world.random.choice([1, 100, 1000]))
        for partition in self.world.random.sample(list(all_partitions(state)), 3):
            end = state.partition(*partition).high_watermark
            start = self.world.random.randint(0, end)
            self.read(reader, partition, start, end, state, pause=self.world.random.choice([0, 1, 100]))


class Seeker(Reader):
    """Looks up records by timestamp in the topic that keeps all records."""

    def round(self, reader: LogReader) -> None:
        self.world.pause(200)
        state = reader.refresh()
        partition = TopicPartition(KEPT, self.world.random.randrange(PARTITIONS))
        expected = self.world.truth.partitions[partition]
        end = state.partition(*partition).high_watermark
        if not end:
            return
        wanted = expected.records[self.world.random.randrange(end)].timestamp_us
        try:
            record = reader.find_timestamp(*partition, wanted)
        except StorageUnavailableError:
            raise
        except SparklogError as error:
            self.failed(error)
            return
        right = next(offset for offset in sorted(expected.records) if expected.records[offset].timestamp_us >= wanted)
        if record is None or record.offset != right:
            self.world.truth.find(READER_ERROR, f"{self.name}: the first record at {wanted} is {right}, not {record}")
