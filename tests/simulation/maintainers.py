"""Simulated maintenance: the real jobs, run repeatedly by processes that are killed, suspended and fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from weakref import WeakKeyDictionary

from sparklog.coordinator import Coordinator
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    CommitConflictError,
    IndeterminateCommitError,
    StorageUnavailableError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnlinkedHistoryError,
)
from sparklog.log.commits.cleanup import clean_up
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide import segments as decide_segments
from sparklog.testing.faulty_store import SimulatedCrash, SimulatedInterrupt
from tests.simulation.maintained import DELETE_DELAY_SECONDS, PARTITIONS, RENEWED, SHORT, VACUUM_SECONDS, World

Job = Callable[[World, Coordinator], object]


def roll_all(world: World, coordinator: Coordinator) -> None:
    roll(coordinator, InProcess())


def compact_all(world: World, coordinator: Coordinator) -> None:
    compact(coordinator, InProcess())


def retain_all(world: World, coordinator: Coordinator) -> None:
    retain(coordinator)


_TABLES: WeakKeyDictionary[Coordinator, Tables] = WeakKeyDictionary()


def tables_of(coordinator: Coordinator) -> Tables:
    """Return the tables of a process, which keeps what it has read of them."""
    return _TABLES.setdefault(coordinator, Tables(coordinator))


def publish_all(world: World, coordinator: Coordinator) -> None:
    done = tables_of(coordinator).publish_all(list(coordinator.refresh().topics))
    world.counts["published"] += done.tables


def sweep_all(world: World, coordinator: Coordinator) -> None:
    sweep(coordinator, tables=tables_of(coordinator))


def vacuum_all(world: World, coordinator: Coordinator) -> None:
    vacuum(coordinator, VACUUM_SECONDS * 1000, dry_run=False, force=True)


def clean_up_all(world: World, coordinator: Coordinator) -> None:
    configs = coordinator.refresh().configs
    clean_up(coordinator.store, coordinator.log.expiry_clock, configs, coordinator.log.settings)


def delete_records(world: World, coordinator: Coordinator) -> None:
    """Delete records before a random offset, which need not be the start of a segment."""
    partition = world.random.randrange(PARTITIONS)
    state = coordinator.refresh().partition(SHORT, partition)
    offsets = {(SHORT, partition): world.random.randint(state.log_start_offset, state.high_watermark)}
    coordinator.submit(partial(decide_segments.delete_records, offsets=offsets))


def renew_topic(world: World, coordinator: Coordinator) -> None:
    """Delete a topic, or create it again."""
    with suppress(TopicAlreadyExistsError, UnknownTopicOrPartitionError):  # an earlier answer was lost
        if RENEWED in coordinator.refresh().topics:
            delete_topic(coordinator, RENEWED)
        else:
            world.create_topic(coordinator, RENEWED)


JOBS: list[tuple[str, Job, float]] = [
    ("roller-1", roll_all, 150),
    ("roller-2", roll_all, 150),
    ("compacter", compact_all, 150),
    ("retention", retain_all, 150),
    ("delete-records", delete_records, 600),
    ("renewer", renew_topic, 500),
    ("sweeper-1", sweep_all, 200),
    ("sweeper-2", sweep_all, 200),
    ("vacuum", vacuum_all, 400),
    ("clean-up", clean_up_all, 400),
]
"""Name, job, and the longest pause between two of its runs in seconds."""

PUBLISHERS: list[tuple[str, Job, float]] = [("publisher-1", publish_all, 150), ("publisher-2", publish_all, 400)]
"""In worlds whose topics have tables."""


def collect_all_garbage(world: World) -> None:
    """Sweep and vacuum once all actors have ended: afterwards there must be no orphans, and tables equal the log."""
    if world.has_tables:
        roll_all(world, world.later(0))  # history that has deleted records, so that its table is exact
        publish_all(world, world.later(0))
    sweep(world.later(2 * DELETE_DELAY_SECONDS))
    vacuum(world.later(2 * VACUUM_SECONDS), 0, dry_run=False, force=True)
    if world.has_tables:
        world.truth.tables.check_end(world.truth.state.topics)


class Maintainer:
    """Runs one kind of maintenance job while any other actor is busy."""

    def __init__(self, world: World, name: str, job: Job, longest_pause: float) -> None:
        self.world = world
        self.name = name
        self.job = job
        self.longest_pause = longest_pause

    def work(self) -> None:
        while self.world.busy:
            try:
                self.live(self.world.open())
            except (SimulatedCrash, SimulatedInterrupt):
                self.world.counts["killed"] += 1

    def live(self, coordinator: Coordinator) -> None:
        while self.world.busy:
            self.world.pause(self.longest_pause)
            try:
                self.job(self.world, coordinator)
            except (IndeterminateCommitError, CommitConflictError, StorageUnavailableError):
                self.world.counts[f"{self.name} failed"] += 1
                continue
            except UnlinkedHistoryError:  # it was stopped for longer than commits are kept, and plans again
                self.world.counts[f"{self.name} stopped for too long"] += 1
                continue
            except UnknownTopicOrPartitionError as error:  # it was deleted while the job ran
                if error.topic != RENEWED:
                    raise
                self.world.counts[f"{self.name} failed"] += 1
                continue
            self.world.counts[self.name] += 1
