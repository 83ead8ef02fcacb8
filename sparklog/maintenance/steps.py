"""The maintenance steps that the loop runs: each runs one job on the whole cluster and reports what it did.

    elections     as the controller: checks the brokers and elects leaders
    replication   copies missing files to replicas, and adds replicas that have caught up to the ISR
    roll          merges small files into segments
    retention     removes segments that are too old or exceed the size limit
    compaction    keeps the latest record of each key
    publication   makes the Delta tables of topics with history segments show the newest version of the log
    deletion      deletes retired files after their delay
    cleanup       rolls up and removes old commits; removes old checkpoints, dead group members, and offsets of groups
                  without members
    expiry        removes transactional ids, producers and applications that have been inactive for too long
    mirror        copies new commits to a mirror, if one is configured

Elections have a lane of their own in a loop, so that a leader is elected within one check interval however long other
steps take; so has replication, so that a location that is back catches up during a long compaction.

Rules: an error in one topic does not stop the others: if the work on all topics together fails, it is repeated topic by
topic. Not for: when a step runs (``loop``), and how its work is done.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.group_liveness import DeadMembers, remove_old_leases
from sparklog.coordinator.health import Health
from sparklog.errors import SparklogError, StorageFullError, StoragePermissionError
from sparklog.log.commits.cleanup import clean_up, keeps_as_much
from sparklog.log.reserve import keep_reserve, with_reserve
from sparklog.maintenance.gc.expired_ids import expire
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.loop import LoopReport, Step, describe_error
from sparklog.maintenance.mirror import mirror_cluster
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.rollups import keep_rollups
from sparklog.maintenance.runner import Check, TaskRunner
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide.groups import expire_offsets
from sparklog.protocol.features import check_written
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
"""Seconds between two checks of group members that may be dead."""

_TRIAL_KEY = "leases/maintenance-check"
"""Key of a temporary object that tests whether the root accepts writes."""

ONE_LOCATION_MS = 60_000
"""Time in ms between two looks for further locations while the root is the only one: nothing else can need work."""

MAX_WATCH_MS = 60_000
"""Maximum time in ms that a single pass watches group members."""


class MaintenanceContext:
    """What the steps work with: a cluster, a factory of task runners by description, and a topic pattern (None: all).

    ``once`` means a single pass, which waits until it is certain that no other controller is alive. ``check`` is called
    often; an exception that it raises ends the work. ``mirror`` is the root of a mirror to keep up to date. Each lane
    of steps may have a thread of its own.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        runner: Callable[[str], TaskRunner],
        pattern: re.Pattern[str] | None = None,
        check: Check = lambda: None,
        once: bool = True,
        mirror: str = "",
    ) -> None:
        """Raises FeatureLevelError for a cluster of a level that this version only reads."""
        check_written(coordinator.state.level)
        self.coordinator = coordinator
        self.runner = runner
        self.check = check
        self.once = once
        self.mirror = mirror
        self.controller = Controller(coordinator)
        self.dead_members = DeadMembers(coordinator)
        self.tables = Tables(coordinator)
        self._pattern = pattern

    def close(self) -> None:
        """Resign as the controller, so that another process can take over immediately. Best effort."""
        with suppress(SparklogError):
            self.controller.resign()

    def topics(self) -> list[str]:
        """Return the names of the topics that match now, sorted."""
        names = sorted(self.coordinator.refresh().topics)
        return [name for name in names if self._pattern is None or self._pattern.fullmatch(name)]

    def has_one_location(self) -> bool:
        """Return whether the root was the only storage location when the cluster was read last."""
        return all(not broker.url for broker in self.coordinator.state.brokers.values())

    def interval_ms(self, step: StepDefinition) -> int:
        """Return the time to the next run of a step in a loop."""
        configured = ClusterConfig.resolve(self.coordinator.state.configs).get_as(int, step.interval)
        return max(configured, ONE_LOCATION_MS) if step.for_replicas and self.has_one_location() else configured


def steps(context: MaintenanceContext, only: Sequence[str] = ()) -> list[Step]:
    """Return all steps, or ``only`` these, in the order of a pass."""
    return [
        Step(name, partial(step.work, context), partial(context.interval_ms, step), step.lane)
        for name, step in STEPS.items()
        if (not only or name in only) and (name != "mirror" or context.mirror)
    ]


def _run_by_topic(context: MaintenanceContext, report: LoopReport, work: Callable[[list[str]], None]) -> None:
    """Work on all topics together; if that fails, on one after the other."""
    names = context.topics()
    try:
        work(names)
    except Exception as error:
        if len(names) < 2:
            raise
        logger.debug("%s: failed for all topics together, retrying topic by topic: %s", report.step, error)
        context.coordinator.refresh()  # raises if the storage is unavailable: then every topic would fail
        for name in names:
            try:
                work([name])
            except Exception as topic_error:
                report.problems.append(_describe_topic_error(name, topic_error))


def _describe_topic_error(topic: str, error: Exception) -> str:
    """Return an error as one line that names the topic."""
    message = describe_error(error)
    names_topic = getattr(error, "topic", None) == topic or f"{topic}-" in message
    return message if names_topic else f"{topic}: {message}"


def _run_elections(context: MaintenanceContext, report: LoopReport) -> None:
    context.coordinator.refresh()
    if context.has_one_location():
        return  # broker 0 at the root is the only one; no other can lead in its place
    done = context.controller.check(wait=context.once)
    if context.once:
        report.count(brokers_checked=len(done.findings))
    if not done.epoch:
        controller = context.coordinator.state.controller.controller
        report.notes.append(f"skipped: {controller} is the active controller")
    report.count(
        partitions_with_another_leader_or_isr=len(done.elected),
        unclean_leaders_elected=len(done.unclean),
        preferred_leaders_elected=len(done.preferred),
    )
    for finding in done.findings:
        if finding.health is not Health.OK:
            is_problem = finding.health in (Health.UNANSWERED, Health.FAILED, Health.OTHER_ADDRESS)
            remarks = report.problems if is_problem else report.notes
            remarks.append(f"broker {finding.broker}: {finding.health.value}: {finding.why}")


def _run_replication(context: MaintenanceContext, report: LoopReport) -> None:
    names = context.topics()
    done = replicate(context.coordinator, context.runner("replication"), names)
    report.count(files_copied=done.files, replicas_in_sync_again=len(done.joined), bytes_copied=done.size_bytes)
    report.problems += done.problems
    report.notes += [f"{partition} on broker {broker} is not in sync yet" for partition, broker in done.behind]


def _run_rewrites(name: str, context: MaintenanceContext, report: LoopReport) -> None:
    def work(names: list[str]) -> None:
        job = {"roll": roll, "compaction": compact}[name]
        counts = job(context.coordinator, context.runner(name), names)
        report.count(
            files_rewritten=counts.files_in,
            into_files=counts.files_out,
            records_removed=counts.records_removed,
            records_that_do_not_fit=counts.records_that_do_not_fit,
            bytes_read=counts.bytes_in,
            bytes_written=counts.bytes_out,
        )
        report.notes += counts.left_out

    _run_by_topic(context, report, work)


def _run_retention(context: MaintenanceContext, report: LoopReport) -> None:
    done = with_reserve(context.coordinator.store, lambda: retain(context.coordinator, context.topics(), context.check))
    report.count(segments_out_of_the_log=done.segments, partitions=done.partitions, bytes=done.size_bytes)
    report.notes += done.left_out


def _run_publication(context: MaintenanceContext, report: LoopReport) -> None:
    done = context.tables.publish_all(context.topics())
    report.count(tables_published=done.tables, files_added=done.added, files_removed=done.removed)
    report.notes += done.waiting
    report.problems += [_describe_topic_error(name, error) for name, error in done.failed]


def _run_deletion(context: MaintenanceContext, report: LoopReport) -> None:
    done = with_reserve(context.coordinator.store, lambda: sweep(context.coordinator, context.check, context.tables))
    report.count(files_deleted=done.files, bytes_freed=done.size_bytes)
    if done.listings_held_by_readers:
        report.notes.append(
            f"files of {done.listings_held_by_readers} commits are kept: readers still hold leases on them"
        )
    if done.listings_held_by_mirrors:
        report.notes.append(
            f"files of {done.listings_held_by_mirrors} commits are kept, a day at most: a mirror lacks these commits, "
            "and would need the files if it was promoted; `sparklog cluster mirror` brings it up to date"
        )
    report.problems += done.problems


def _run_cleanup(context: MaintenanceContext, report: LoopReport) -> None:
    coordinator = context.coordinator
    try:
        rolled_up = keep_rollups(coordinator)  # first: of commits that are removed
        report.count(commits_rolled_up=rolled_up.commits, rollups_removed=rolled_up.deleted)
        report.problems += [
            f"when this commit is removed, lag and throughput of before it are no longer known: {describe_error(error)}"
            for error in rolled_up.damaged
        ]
    except StoragePermissionError as error:  # a role of before there were rollups: its commits are removed all the same
        report.notes.append(f"no rollups are kept, so lag and throughput reach less far back: {describe_error(error)}")
    except Exception as error:  # a full disk needs the removal of commits, and a damaged commit is removed by it
        report.problems.append(f"rollups are not kept, so lag and throughput may have a gap: {describe_error(error)}")
    configs = coordinator.refresh().configs
    done = clean_up(
        coordinator.store,
        coordinator.log.expiry_clock,
        configs,
        coordinator.log.settings,
        is_current=lambda: keeps_as_much(coordinator.refresh().configs, configs),
    )
    report.count(commits_removed=done.commits, checkpoint_files_removed=done.checkpoint_files)
    if done.kept_by:
        report.notes.append(done.kept_by)
    report.count(dead_group_members_taken_out=_expire_members(context))
    report.count(old_leases_removed=remove_old_leases(coordinator))
    report.count(groups_whose_offsets_expired=_expire_offsets(coordinator))
    keep_reserve(coordinator.store)  # last: the steps before may have freed the space for it
    _check_writable(coordinator.store)


def _check_writable(root: Store) -> None:
    """Raise StorageError if a root on a file system takes no writes: a pass that finds nothing to do would not notice
    that its disk was remounted read-only. A full disk raises nothing: the steps that free space have run."""
    if root.is_local:
        with suppress(StorageFullError):
            root.put(_TRIAL_KEY, b"1")
        root.delete(_TRIAL_KEY)


def _expire_offsets(coordinator: Coordinator) -> int:
    """Delete expired offsets, with as many commits as they need; return of how many groups."""
    clock, groups = coordinator.log.expiry_clock, set[str]()
    while expired := coordinator.submit(lambda state: expire_offsets(state, clock.now_ms())):  # it may be set meanwhile
        groups.update(expired)
    return len(groups)


def _expire_members(context: MaintenanceContext) -> int:
    """Remove dead members from their groups; return how many.

    A single pass waits until it is known whether a silent member is dead, unless its session timeout is longer than
    ``MAX_WATCH_MS``; a loop checks it again in its next pass.
    """
    clock, dead_members = context.coordinator.log.clock, context.dead_members
    removed = len(dead_members.expire())
    deadline = clock.monotonic() + min(dead_members.unknown_ms, MAX_WATCH_MS) / 1000 + 2 * WATCH_SECONDS
    while context.once and dead_members.unknown_ms and clock.monotonic() < deadline:
        context.check()
        clock.sleep(WATCH_SECONDS)
        removed += len(dead_members.expire())
    return removed


def _run_expiry(context: MaintenanceContext, report: LoopReport) -> None:
    done = expire(context.coordinator, context.check)
    report.count(
        transactional_ids_expired=done.transactional_ids,
        producers_of_partitions_expired=done.partition_producers,
        applications_expired=done.applications,
    )


def _run_mirror(context: MaintenanceContext, report: LoopReport) -> None:
    done = mirror_cluster(context.coordinator, context.mirror)
    report.count(commits_copied=done.commits, bytes_copied=done.size_bytes)


class StepDefinition(NamedTuple):
    """A step: its work, the cluster setting that holds its interval in a loop, its lane, and whether it has work only
    in a cluster with replicas."""

    work: Callable[[MaintenanceContext, LoopReport], None]
    interval: str
    lane: str = "segments"
    for_replicas: bool = False


HEARTBEAT_INTERVAL = "broker.heartbeat.interval.ms"
RETENTION_INTERVAL = "log.retention.check.interval.ms"

STEPS: dict[str, StepDefinition] = {
    "elections": StepDefinition(_run_elections, HEARTBEAT_INTERVAL, "elections", for_replicas=True),
    "replication": StepDefinition(_run_replication, HEARTBEAT_INTERVAL, "replication", for_replicas=True),
    "roll": StepDefinition(partial(_run_rewrites, "roll"), RETENTION_INTERVAL),
    "retention": StepDefinition(_run_retention, RETENTION_INTERVAL),
    "compaction": StepDefinition(partial(_run_rewrites, "compaction"), "log.cleaner.backoff.ms"),
    "publication": StepDefinition(_run_publication, RETENTION_INTERVAL),
    "deletion": StepDefinition(_run_deletion, "log.segment.delete.delay.ms"),
    "cleanup": StepDefinition(_run_cleanup, "offsets.retention.check.interval.ms"),
    "expiry": StepDefinition(_run_expiry, "offsets.retention.check.interval.ms"),
    "mirror": StepDefinition(_run_mirror, HEARTBEAT_INTERVAL, "mirror"),
}
"""In the order of a pass."""
