"""The processes of a cluster on several locations: producers, a Spark job, the controller, maintenance and mirrors.

Each runs the real code until it fails or dies, and begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from sparklog.client.condition import Condition
from sparklog.client.producer.batch_files import PartitionRun, write_files
from sparklog.client.producer.record_accumulator import PendingBatch
from sparklog.coordinator import Coordinator
from sparklog.coordinator.controller import LEASE_KEY, Controller
from sparklog.coordinator.take_over import take_over
from sparklog.errors import (
    CommitConflictError,
    CorruptMetadataError,
    IndeterminateCommitError,
    StorageUnavailableError,
)
from sparklog.format.schema import columns_present, record_schema
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.elapsed import Moment
from sparklog.log.layout import COMMITS, commit_version
from sparklog.log.owner_files import read_root
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.metadata_repair import end_log_at
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.commits import Run
from sparklog.protocol.decide.append import AppendRequest, AppendResult, PartitionAppend
from sparklog.protocol.decide.producers import init_producer
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import SparklogCommitMessage, SparklogWriter
from sparklog.types import TopicPartition
from tests.cluster.spark.helpers import batches, schema_of
from tests.simulation.locations import ROOT, TOPICS, VACUUM_SECONDS, Clock, World, failing

MAX_FAILURES = 12
"""failures after which an actor gives up: a cluster may be closed to it for good."""

RULES = SimpleNamespace(codec="none", codec_level=None)
VALUES_ONLY = record_schema(columns_present(False, False))
LENGTHENING = 1.25
"""Factor by which the pauses of maintenance grow."""

LONG_WAITS = (0.0, 0.0, 5.0, 60.0, 600.0, 2500.0)
"""seconds from the first file of an append or job to its commit: an open transaction, a slow job."""


def batch_of(topic: str, values: Sequence[bytes], timestamp_us: int) -> PendingBatch:
    """Return records without keys as the accumulator hands them to the writer of files."""
    batch = PendingBatch(Condition(), TopicPartition(topic, 0), 0.0, 0)
    arrays = [pa.array(values, VALUES_ONLY.field(0).type), pa.array([timestamp_us] * len(values), "int64")]
    columns = [array.cast(field.type) for array, field in zip(arrays, VALUES_ONLY, strict=True)]
    batch.columns = pa.RecordBatch.from_arrays(columns, schema=VALUES_ONLY)
    return batch


def metadata_of(coordinator: Coordinator, topic: str) -> Any:
    """Return what the writer of files asks of a topic's metadata."""
    return SimpleNamespace(name=topic, topic_id=coordinator.state.topic(topic).topic_id, rules=RULES)


class Producer:
    """An idempotent or transactional producer: one commit for records of some topics, perhaps long after the files."""

    def __init__(self, world: World, name: str, batches: int, acks: int = -1, transactional: bool = False) -> None:
        self.world = world
        self.name = name
        self.left = batches
        self.failures = 0
        self.acks = acks
        self.transactional_id = name if transactional else None
        self.values = 0

    def work(self) -> None:
        while self.left > 0 and self.failures < MAX_FAILURES:
            before = self.left
            with failing(self.world, "producer"):
                self.live()
            self.failures += self.left == before
            self.world.pause(20)
            self.world.new_life()

    def live(self) -> None:
        world = self.world
        coordinator = world.open()
        identity = coordinator.submit(partial(init_producer, transactional_id=self.transactional_id or ""))
        timeline = coordinator.log.unlinked_jumps
        sequences: dict[str, int] = {}
        while self.left > 0:
            world.pause(80)
            if world.random.random() < 0.5:
                coordinator.refresh()
            topics = sorted(world.random.sample(list(TOPICS), world.random.choice((1, 1, 2))))
            values: dict[str, list[bytes]] = {}
            appends: list[PartitionAppend] = []
            began = coordinator.elapsed.now()
            for topic in topics:
                values[topic] = [self.value() for _ in range(world.random.randint(1, 2))]
                batch = batch_of(topic, values[topic], world.simulation.now_ms() * 1000)
                run = PartitionRun(0, [batch], sequences.get(topic, 0))
                appends += write_files(coordinator, metadata_of(coordinator, topic), [run], identity, self.acks)
                world.pause(world.random.choice(LONG_WAITS))
            request = AppendRequest(
                appends=appends,
                acks=self.acks,
                transaction=identity if self.transactional_id else None,
                timeline=timeline,
            )
            result = self.commit(coordinator, request, began)
            for appended, append in zip(result.appended, appends, strict=True):
                base = None if appended.base_offset < 0 else appended.base_offset
                world.truth.acknowledged(TopicPartition(append.topic, 0), append.run.path, base, values[append.topic])
                sequences[append.topic] = sequences.get(append.topic, 0) + append.run.records
            if self.transactional_id:
                assert result.producer is not None
                identity, sequences = result.producer, {}
            world.counts["acknowledged"] += 1
            self.left -= 1

    def value(self) -> bytes:
        self.values += 1
        return f"{self.name}.{self.values}".encode()

    def commit(self, coordinator: Coordinator, request: AppendRequest, began: Moment) -> AppendResult:
        """Retry until there is an answer, or give up."""
        for _ in range(5):
            try:
                return coordinator.append(request, began)
            except (IndeterminateCommitError, StorageUnavailableError, CommitConflictError):
                self.world.pause(2)
        return coordinator.append(request, began)


class Job:
    """Spark jobs: the driver plans, two tasks write later in processes of their own, another process commits."""

    def __init__(self, world: World, name: str, jobs: int) -> None:
        self.world = world
        self.name = name
        self.left = jobs

    def work(self) -> None:
        while self.left > 0:
            self.left -= 1
            self.world.pause(300)
            with failing(self.world, "job"):
                self.run()
            self.world.new_life()

    def run(self) -> None:
        world = self.world
        topics = world.random.sample(list(TOPICS), world.random.choice((1, 2)))
        options = {"path": ROOT if world.random.random() < 0.2 else world.root_url}
        ddl = "topic string, value string"
        if len(topics) == 1 and world.random.random() < 0.5:
            options["topic"], ddl = topics[0], "value string"
        simulation = world.simulation
        writer = SparklogWriter(sink_options(options), schema_of(ddl), simulation.clock, simulation.ids())
        messages: list[Any] = []
        values: dict[str, list[bytes]] = {}
        written: list[tuple[Run, str, list[bytes]]] = []
        for task in range(2):
            world.pause(world.random.choice(LONG_WAITS))
            world.new_life()  # a Python worker; it opens the cluster, but has the stores of the driver
            rows = []
            for topic in topics:
                values[topic] = [f"{self.name}.{self.left}.{task}.{topic}.{n}".encode() for n in range(2)]
                rows += [{"topic": topic, "value": value.decode()} for value in values[topic]]
            if "topic" in options:
                rows = [{"value": row["value"]} for row in rows]
            message = writer.write(iter(batches(ddl, rows)))
            assert isinstance(message, SparklogCommitMessage)
            messages.append(message)
            written += [(append.run, append.topic, values[append.topic]) for append in message.appends]
        world.pause(world.random.choice(LONG_WAITS))
        world.new_life()
        writer._opened = None  # noqa: SLF001 - it is unpickled beside the driver
        writer.commit(messages)
        for run, topic, records in written:
            world.truth.acknowledged(TopicPartition(topic, 0), run.path, None, records)
        world.counts["jobs committed"] += 1


# -- what runs all the time

Task = Callable[[World, Coordinator], object]


def roll_and_sweep(world: World, coordinator: Coordinator) -> None:
    roll(coordinator, InProcess())
    sweep(coordinator)


def vacuum_all(world: World, coordinator: Coordinator) -> None:
    vacuum(coordinator, VACUUM_SECONDS * 1000, dry_run=False, force=True)


def replicate_all(world: World, coordinator: Coordinator) -> None:
    replicate(coordinator, InProcess())


def clean_up_all(world: World, coordinator: Coordinator) -> None:
    clean_up(coordinator.store, coordinator.log.expiry_clock, coordinator.refresh().configs, coordinator.log.settings)


class Service:
    """A maintenance task that runs in one process again and again, while any other actor is busy."""

    def __init__(self, world: World, name: str, task: Task, longest_pause: float) -> None:
        self.world = world
        self.name = name
        self.task = task
        self.longest_pause = longest_pause
        self.lengthening = LENGTHENING

    def wait(self) -> None:
        """Pause, each time longer: one that looks on while others are stopped for hours learns nothing new."""
        self.world.pause(self.longest_pause)
        self.longest_pause *= self.lengthening

    def work(self) -> None:
        while self.world.busy:
            with failing(self.world, self.name):
                self.live()
            self.wait()

    def live(self) -> None:
        coordinator = self.world.open()
        while self.world.busy:
            self.wait()
            if self.world.busy:
                self.task(self.world, coordinator)
                self.world.counts[self.name] += 1


class ControllerProcess(Service):
    """The controller, or a candidate."""

    def __init__(self, world: World, name: str, longest_pause: float, lengthening: float) -> None:
        super().__init__(world, name, lambda *_: None, longest_pause)
        self.lengthening = lengthening

    def live(self) -> None:
        controller = Controller(self.world.open())
        while self.world.busy:
            self.wait()
            if self.world.busy:
                controller.check()
                self.world.counts[self.name] += 1


class Mirror(Service):
    """Copies the commit log of the first root to a mirror."""

    def __init__(self, world: World, url: str, longest_pause: float) -> None:
        super().__init__(world, "mirror", lambda *_: None, longest_pause)
        self.url = url

    def live(self) -> None:
        world = self.world
        while world.busy:
            self.wait()
            if world.busy:
                mirror(world.life.store(ROOT), world.life.store(self.url), world.simulation.clock)
                world.counts["mirrored"] += 1


def take_out_commit_of_killed(world: World) -> None:
    """Do what docs/repair.md says where a client of a root that was restored since was killed, or is still waiting,
    between its commit and its look at the one before."""
    try:
        world.later()
    except CorruptMetadataError as error:
        version = commit_version((error.path or "").removeprefix(f"{world.root_url}/"))
        if version is None or not world.counts["killed"] + world.counts["never answered"]:
            raise
        repairs = list(end_log_at(world.truth.root.disk, version - 1))
        assert all(repair.done for repair in repairs), repairs
        world.counts["log ended"] += 1


def correct_boundary(world: World) -> None:
    """Do what the error says of a boundary of the timeline before a restore: its request was sent twice, or its process
    was suspended over the restore, and killed before it took the boundary back."""
    try:
        world.later()
    except CorruptMetadataError as error:
        if "fsck --repair` corrects it" not in error.message:
            return  # ``take_out_commit_of_killed`` looks at it
        check = check_cluster(world.truth.root.disk, clock=Clock(world.simulation))
        repair_cluster(check)
        assert all(repair.done for repair in check.report.repairs), check.report.repairs
        world.counts["boundary corrected"] += 1


def put_back_commits(world: World) -> None:
    """Do what the error of a missing commit says: a clean-up that was suspended over the restore has deleted it, and
    was killed before it put it back."""
    try:
        world.later()
    except CorruptMetadataError as error:
        if "put the missing commits back" not in error.message:
            return  # as above
        objects = world.truth.root.disk.space.objects
        copied = {key: stored for key, stored in world.copy_of_root.items() if key.startswith(COMMITS)}
        objects.update({key: stored for key, stored in copied.items() if key not in objects})
        world.counts["commits put back"] += 1


def decide_between_equals(world: World) -> None:
    """Do what the controller says of a root that was replaced by a promotion which did not know of its take-over: that
    was stopped between its epoch and its claims, while the promotion was out of reach of the root."""
    truth = world.truth
    epoch = read_root(truth.root.disk).epoch
    former = [root for root in truth.roots if root.is_replaced and not root.in_force]
    if any(not root.newest.state.moved_to and read_root(root.disk).epoch >= epoch for root in former):
        take_over(world.later(), force=True)
        world.counts["decided"] += 1


def bring_up(world: World) -> None:
    """Do after the run what the controller and replication would do once all locations are sound, and append a record
    to each topic that has a leader. Raises SparklogError if the cluster does not work."""
    if world.truth.root.newest.state.moved_to:  # an operator whose command was never answered runs it again
        clock = Clock(world.simulation)
        old = world.address_of(world.truth.root.disk)
        promote(world.truth.root.newest.state.moved_to, old, None, False, clock, world.simulation.ids())
    decide_between_equals(world)
    root = world.truth.root.disk
    for _ in range(2):
        root.space.objects.pop(LEASE_KEY, None)  # expired
        coordinator = world.later(30)
        Controller(coordinator).check()
        replicate(coordinator, InProcess())
    values = {
        topic: [f"last.{topic}".encode()] for topic in TOPICS if coordinator.state.partition(topic, 0).leader >= 0
    }
    appends: list[PartitionAppend] = []
    for topic in values:
        run = PartitionRun(0, [batch_of(topic, values[topic], world.simulation.now_ms() * 1000)], -1)
        appends += write_files(coordinator, metadata_of(coordinator, topic), [run], acks=1)
    result = coordinator.append(AppendRequest(appends=appends, acks=1))
    for append, appended in zip(appends, result.appended, strict=True):
        partition = TopicPartition(append.topic, 0)
        world.truth.acknowledged(partition, append.run.path, appended.base_offset, values[append.topic])
