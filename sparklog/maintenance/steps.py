"""The steps of maintenance, as the loop runs them: each asks its job for work on the whole cluster and reports it.

    elections     the controller: which brokers are well, who leads
    replication   copies what replicas lack, and lets those in sync that have caught up
    roll          merges small files into segments
    retention     takes out of the log what is too old or too much
    compaction    keeps the newest value of each key
    deletion      deletes the files that left the log a while ago
    cleanup       forgets old commits, checkpoints, and the offsets of groups that are gone

Rules: what concerns one topic does not stop the others: where the work on all of them fails, it is done again topic by
topic. Not for: when a step runs (``loop``), and how its work is done.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator import Coordinator
from sparklog.log.cleanup import clean_up
from sparklog.maintenance.loop import Report, Step, place_and_message
from sparklog.maintenance.replacing import Counts
from sparklog.maintenance.roll import roll
from sparklog.maintenance.runner import TaskRunner

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Upkeep:
    """What the steps work with: a cluster, runners by description, and the topics it is about (None: all)."""

    coordinator: Coordinator
    runner: Callable[[str], TaskRunner]
    pattern: re.Pattern[str] | None = None

    def topics(self) -> list[str]:
        """The names that match now, in order."""
        names = sorted(self.coordinator.refresh().topics)
        return [name for name in names if self.pattern is None or self.pattern.fullmatch(name)]

    def setting(self, name: str) -> int:
        """A whole number among the cluster's settings."""
        return cast(int, ClusterConfig.resolve(self.coordinator.state.configs).get(name))


def steps(upkeep: Upkeep, only: Sequence[str] = ()) -> list[Step]:
    """All steps in the order of a pass, or these of them."""
    return [
        Step(name, partial(work, upkeep), partial(upkeep.setting, interval))
        for name, (work, interval) in STEPS.items()
        if not only or name in only
    ]


def _by_topic(upkeep: Upkeep, report: Report, work: Callable[[list[str]], None]) -> None:
    """Work on all topics at once; where that fails, on one after the other."""
    names = upkeep.topics()
    try:
        work(names)
    except Exception as error:
        if len(names) < 2:
            raise
        logger.debug("%s: one topic after the other, since all together failed: %s", report.step, error)
        upkeep.coordinator.refresh()  # or the storage does not answer, which no other topic would change
        for name in names:
            try:
                work([name])
            except Exception as failed:
                message = place_and_message(failed)
                report.problems.append(message if name in message else f"{name}: {message}")


def _roll(upkeep: Upkeep, report: Report) -> None:
    def work(names: list[str]) -> None:
        _count(report, roll(upkeep.coordinator, upkeep.runner("roll"), names))

    _by_topic(upkeep, report, work)


def _count(report: Report, counts: Counts) -> None:
    report.count(
        files_rewritten=counts.files_in,
        into_files=counts.files_out,
        records_removed=counts.records_removed,
        bytes_read=counts.bytes_in,
        bytes_written=counts.bytes_out,
    )
    report.notes += counts.left_out


def _cleanup(upkeep: Upkeep, report: Report) -> None:
    coordinator = upkeep.coordinator
    configs = coordinator.refresh().configs
    done = clean_up(coordinator.store, coordinator.log.clock, configs)
    report.count(commits_removed=done.commits, checkpoint_files_removed=done.checkpoint_files)
    report.count(groups_whose_offsets_expired=len(coordinator.expire_group_offsets()))


RETENTION_INTERVAL = "log.retention.check.interval.ms"
CLEANER_INTERVAL = "log.cleaner.backoff.ms"
OFFSETS_INTERVAL = "offsets.retention.check.interval.ms"

STEPS: dict[str, tuple[Callable[[Upkeep, Report], None], str]] = {
    "roll": (_roll, RETENTION_INTERVAL),
    "cleanup": (_cleanup, OFFSETS_INTERVAL),
}
"""What each step does, and the setting of the cluster that says how often a loop does it, in the order of a pass."""
