"""The steps of maintenance, as the loop runs them: each asks its job for work on the whole cluster and reports it.

    elections     the controller: which brokers are well, who leads
    replication   copies what replicas lack, and lets those in sync that have caught up
    roll          merges small files into segments
    retention     takes out of the log what is too old or too much
    compaction    keeps the latest record of each key
    deletion      deletes the files that left the log a while ago
    cleanup       forgets old commits, checkpoints, dead members of groups, and the offsets of groups that are gone
    expiry        forgets transactional ids, producers and applications that have been silent for long
    mirror        copies what is new of the commit log to a mirror, where there is to be one

Elections have a lane of their own in a loop, so that a leader is elected within one check interval however long other
work takes; and so has replication, so that a location that is back catches up beside a long compaction.

Rules: what concerns one topic does not stop the others: where the work on all of them fails, it is done again topic by
topic. Not for: when a step runs (``loop``), and how its work is done.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator.controller import Controller
from sparklog.coordinator.group_liveness import DeadMembers, remove_old_leases
from sparklog.coordinator.health import Health
from sparklog.errors import SparklogError
from sparklog.log.commits.cleanup import clean_up
from sparklog.maintenance.gc.expiry import expire
from sparklog.maintenance.gc.retired_files import sweep
from sparklog.maintenance.loop import Report, Step, place_and_message
from sparklog.maintenance.replicas.mirror import mirror_of
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import Check, TaskRunner
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.replacement import Counts
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0
"""seconds between two looks at members of groups that have to be watched."""

LONGEST_WATCH_MS = 60_000
"""ms that one pass watches members of groups at most."""


class MaintenanceContext:
    """What the steps work with: a cluster, runners by description, and the topics it is about (None: all).

    ``once``: one pass, which waits for as long as it takes to know that no other controller is alive. ``check`` is
    called often and ends the work by what it raises. ``mirror`` is the address of a mirror to keep up. Each lane of
    steps may have a thread of its own.
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
        self.coordinator = coordinator
        self.runner = runner
        self.check = check
        self.once = once
        self.mirror = mirror
        self.controller = Controller(coordinator)
        self.dead_members = DeadMembers(coordinator)
        self._pattern = pattern

    def close(self) -> None:
        """Let another controller take over at once, if this was it."""
        with suppress(SparklogError):
            self.controller.resign()

    def topics(self) -> list[str]:
        """The names that match now, in order."""
        names = sorted(self.coordinator.refresh().topics)
        return [name for name in names if self._pattern is None or self._pattern.fullmatch(name)]

    def setting(self, name: str) -> int:
        """A whole number among the cluster's settings."""
        return cast(int, ClusterConfig.resolve(self.coordinator.state.configs).get(name))


def steps(context: MaintenanceContext, only: Sequence[str] = ()) -> list[Step]:
    """All steps in the order of a pass, or these of them."""
    return [
        Step(name, partial(kind.work, context), partial(context.setting, kind.interval), kind.lane)
        for name, kind in STEPS.items()
        if (not only or name in only) and (name != "mirror" or context.mirror)
    ]


def _by_topic(context: MaintenanceContext, report: Report, work: Callable[[list[str]], None]) -> None:
    """Work on all topics at once; where that fails, on one after the other."""
    names = context.topics()
    try:
        work(names)
    except Exception as error:
        if len(names) < 2:
            raise
        logger.debug("%s: one topic after the other, since all together failed: %s", report.step, error)
        context.coordinator.refresh()  # or the storage does not answer, which no other topic would change
        for name in names:
            try:
                work([name])
            except Exception as failed:
                message = place_and_message(failed)
                says_where = getattr(failed, "topic", None) == name or f"{name}-" in message
                report.problems.append(message if says_where else f"{name}: {message}")


def _elections(context: MaintenanceContext, report: Report) -> None:
    brokers = context.coordinator.refresh().brokers
    if all(not broker.url for broker in brokers.values()):
        return  # the root alone, which nobody can take the place of
    done = context.controller.check(wait=context.once)
    if context.once:
        report.count(brokers_checked=len(done.findings))
    if not done.epoch:
        report.notes.append(f"{context.coordinator.state.controller.controller} is the controller and does this")
    report.count(
        partitions_with_another_leader_or_isr=len(done.elected),
        unclean_leaders_elected=len(done.unclean),
        preferred_leaders_elected=len(done.preferred),
    )
    for finding in done.findings:
        if finding.health is not Health.OK:
            said = report.problems if finding.health in (Health.UNANSWERED, Health.FAILED) else report.notes
            said.append(f"broker {finding.broker}: {finding.health.value}: {finding.why}")


def _replication(context: MaintenanceContext, report: Report) -> None:
    names = context.topics()
    done = replicate(context.coordinator, context.runner("replication"), names)
    report.count(files_copied=done.files, replicas_in_sync_again=len(done.joined), bytes_copied=done.size_bytes)
    report.problems += done.problems
    report.notes += [f"{place} on broker {broker} is not in sync yet" for place, broker in done.behind]


def _roll(context: MaintenanceContext, report: Report) -> None:
    def work(names: list[str]) -> None:
        _count(report, roll(context.coordinator, context.runner("roll"), names))

    _by_topic(context, report, work)


def _retention(context: MaintenanceContext, report: Report) -> None:
    done = retain(context.coordinator, context.topics(), context.check)
    report.count(segments_out_of_the_log=done.segments, partitions=done.partitions, bytes=done.size_bytes)
    report.notes += done.left_out


def _compaction(context: MaintenanceContext, report: Report) -> None:
    def work(names: list[str]) -> None:
        _count(report, compact(context.coordinator, context.runner("compaction"), names))

    _by_topic(context, report, work)


def _deletion(context: MaintenanceContext, report: Report) -> None:
    done = sweep(context.coordinator, context.check)
    report.count(files_deleted=done.files, bytes_freed=done.size_bytes)
    if done.listings_held_by_readers:
        report.notes.append(f"files of {done.listings_held_by_readers} commits stay until readers let go of them")
    report.problems += done.problems


def _count(report: Report, counts: Counts) -> None:
    report.count(
        files_rewritten=counts.files_in,
        into_files=counts.files_out,
        records_removed=counts.records_removed,
        bytes_read=counts.bytes_in,
        bytes_written=counts.bytes_out,
    )
    report.notes += counts.left_out


def _cleanup(context: MaintenanceContext, report: Report) -> None:
    coordinator = context.coordinator
    configs = coordinator.refresh().configs
    done = clean_up(coordinator.store, coordinator.log.expiry_clock, configs)
    report.count(commits_removed=done.commits, checkpoint_files_removed=done.checkpoint_files)
    report.count(dead_group_members_taken_out=_expire_members(context))
    report.count(old_leases_removed=remove_old_leases(coordinator))
    report.count(groups_whose_offsets_expired=len(coordinator.expire_group_offsets()))


def _expire_members(context: MaintenanceContext) -> int:
    """How many dead members were taken out of groups. One pass waits for those that have to be watched to be judged,
    unless their session timeout is long; a loop sees them again the next time."""
    clock, dead = context.coordinator.log.clock, context.dead_members
    gone = len(dead.expire())
    deadline = clock.monotonic() + min(dead.unknown_ms, LONGEST_WATCH_MS) / 1000 + 2 * WATCH_SECONDS
    while context.once and dead.unknown_ms and clock.monotonic() < deadline:
        context.check()
        clock.sleep(WATCH_SECONDS)
        gone += len(dead.expire())
    return gone


def _expiry(context: MaintenanceContext, report: Report) -> None:
    done = expire(context.coordinator, context.check)
    report.count(
        transactional_ids_expired=done.transactional_ids,
        producers_of_partitions_expired=done.partition_producers,
        applications_expired=done.applications,
    )


def _mirror(context: MaintenanceContext, report: Report) -> None:
    done = mirror_of(context.coordinator, context.mirror)
    report.count(commits_copied=done.commits, bytes_copied=done.size_bytes)


class Kind(NamedTuple):
    """A step: its work, the setting of the cluster that says how often a loop does it, and its lane."""

    work: Callable[[MaintenanceContext, Report], None]
    interval: str
    lane: str = "segments"


HEARTBEAT_INTERVAL = "broker.heartbeat.interval.ms"
RETENTION_INTERVAL = "log.retention.check.interval.ms"

STEPS: dict[str, Kind] = {
    "elections": Kind(_elections, HEARTBEAT_INTERVAL, "elections"),
    "replication": Kind(_replication, HEARTBEAT_INTERVAL, "replication"),
    "roll": Kind(_roll, RETENTION_INTERVAL),
    "retention": Kind(_retention, RETENTION_INTERVAL),
    "compaction": Kind(_compaction, "log.cleaner.backoff.ms"),
    "deletion": Kind(_deletion, "log.segment.delete.delay.ms"),
    "cleanup": Kind(_cleanup, "offsets.retention.check.interval.ms"),
    "expiry": Kind(_expiry, "offsets.retention.check.interval.ms"),
    "mirror": Kind(_mirror, HEARTBEAT_INTERVAL, "mirror"),
}
"""In the order of a pass."""
