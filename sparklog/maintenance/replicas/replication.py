"""Brings out-of-sync replicas up to date, and adds them to the ISR.

    replicate(coordinator, InProcess())

A round takes one version, compares the files that each such replica needs with those at its location (by listing: path
and size), and copies the missing ones from replicas in sync. Then one commit adds the replicas that have all files to
the ISR; if segments were added, changed or removed in the meantime, the next round copies the rest. Appends in the
meantime are written to these replicas too (``protocol.decide.acks``), so they catch up under load as well.

A location that comes back empty, older or with truncated files needs no special handling: it lacks files. Files that
are no longer part of the log are left to ``sparklog vacuum``.

Rules: if killed at any step, it leaves only complete, identical files, and may be run again. Several may run at the
same time. Not for: which brokers are online (``coordinator.controller``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator.broker_listings import BrokerListings, Sizes
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.live_files import find_live
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.errors import SparklogError
from sparklog.maintenance.replicas.file_copies import CopyResult, CopyTask, FileToCopy, copy_files
from sparklog.maintenance.runner import TaskRunner
from sparklog.protocol.decide.brokers import is_online, may_lack
from sparklog.protocol.decide.elections import MAX_CHANGES
from sparklog.protocol.decide.replicas import CaughtUp, expand_isr
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

ROUNDS = 10
"""Maximum rounds of one run. A replica that gets appends too needs two; with acks=1, also a pause between appends."""

FILES_PER_TASK = 256
BYTES_PER_TASK = 64 * 1024 * 1024
"""Maximum bytes that one task copies, so that replicas of many partitions are spread over the workers."""


@dataclass
class ReplicationResult:
    """What a run did. ``behind`` are replicas that are still not in sync, ``problems`` are messages that say why."""

    rounds: int = 0
    files: int = 0
    size_bytes: int = 0
    joined: list[CaughtUp] = field(default_factory=list)
    behind: list[tuple[TopicPartition, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


Progress = Callable[[int, int], None]
"""Called with the bytes copied so far in a round, and the total."""


def behind(
    state: State, topics: Collection[str] | None = None, brokers: Collection[int] | None = None
) -> Iterator[tuple[TopicPartition, int]]:
    """Return the out-of-sync replicas whose broker is online, of these topics and brokers (None: all)."""
    for name, topic in sorted(state.topics.items()):
        if topics is not None and name not in topics:
            continue
        for number, partition in enumerate(topic.partitions):
            if len(partition.isr) < len(partition.replicas):
                for broker in partition.replicas:
                    wanted = brokers is None or broker in brokers
                    if wanted and broker not in partition.isr and is_online(state, broker):
                        yield TopicPartition(name, number), broker


@in_one_timeline
def replicate(
    coordinator: Coordinator,
    runner: TaskRunner,
    topics: Collection[str] | None = None,
    brokers: Collection[int] | None = None,
    bytes_per_second: float | None = None,
    progress: Progress = lambda done, total: None,
) -> ReplicationResult:
    """Bring the replicas of these topics on these brokers up to date. Raises StorageError of the root, and errors of
    the runner.

    ``bytes_per_second`` limits the whole run; the default is set by ``leader.replication.throttled.rate`` and
    ``follower.replication.throttled.rate``. Errors of other locations are in the result.
    """
    run = _Run(coordinator, runner, bytes_per_second, progress)
    for _ in range(ROUNDS):
        state = coordinator.refresh()
        wanted = list(behind(state, topics, brokers))
        if not wanted or not run.round(state, wanted):
            break
    run.result.behind = list(behind(coordinator.state, topics, brokers))
    return run.result


class _Run:
    """One run of the job; remembers between rounds which files are at the locations, unless these have changed. Not
    thread-safe."""

    def __init__(
        self, coordinator: Coordinator, runner: TaskRunner, bytes_per_second: float | None, progress: Progress
    ) -> None:
        self.result = ReplicationResult()
        self._coordinator = coordinator
        self._runner = runner
        self._rate = bytes_per_second
        self._progress = progress
        self._present: dict[int, set[str]] = {}
        self._began_at: int | None = None
        self._broken: set[int] = set()

    def round(self, state: State, wanted: Sequence[tuple[TopicPartition, int]]) -> bool:
        """Run one round; return whether another one may make progress."""
        self.result.rounds += 1
        self.result.problems = []
        self._forget_changed(state)
        needed = {partition: self._list_files(state, partition) for partition in {partition for partition, _ in wanted}}
        plans: dict[int, dict[str, FileToCopy]] = {}
        listings = BrokerListings(self._coordinator, state)
        for partition, broker in wanted:
            if broker not in self._broken:
                self._plan(plans.setdefault(broker, {}), listings, state, partition, broker, needed[partition])
        retired = self._report_failures(self._copy(self._make_tasks(state, plans)))
        caught_up = [
            CaughtUp(
                partition.topic,
                state.topics[partition.topic].topic_id,
                partition.partition,
                broker,
                state.partition(*partition).log_end_offset,
                state.version,
                self._find_lacking(state, partition, needed[partition], listings),
            )
            for partition, broker in wanted
            if broker not in self._broken and needed[partition] <= self._present.get(broker, set())
        ]
        return self._join_isr(caught_up) or retired

    def _forget_changed(self, state: State) -> None:
        """Forget what was seen at locations that were replaced, moved or cleaned since this run began, or that lost
        files: it would be stated as seen at the version of this round."""
        if self._began_at is None:
            self._began_at = state.version
        for broker in [*self._present]:
            registered = state.brokers.get(broker)
            if registered is None or registered.lost_files_at > self._began_at:
                self._present[broker] = set()

    def _list_files(self, state: State, partition: TopicPartition) -> set[str]:
        segments = self._coordinator.segments(partition.topic, state).partition(partition.partition)
        return {segment.path for segment in segments}

    def _plan(
        self,
        plan: dict[str, FileToCopy],
        listings: BrokerListings,
        state: State,
        partition: TopicPartition,
        broker: int,
        needed: set[str],
    ) -> None:
        """Add the files of a partition that a broker lacks to its plan; a file may hold runs of several partitions."""
        missing = needed - self._present.setdefault(broker, set())
        try:
            sizes = listings.sizes(broker, missing)
        except SparklogError as error:
            self._broken.add(broker)
            self.result.problems.append(f"broker {broker} cannot be listed: {error.message}")
            return
        sources = _order_sources(state, partition, broker)
        for path in sorted(missing):
            planned = plan.get(path)
            if planned is not None:
                plan[path] = planned._replace(sources=tuple(dict.fromkeys((*planned.sources, *sources))))
                continue
            expected = listings.size_at_any(sources, path, missing)
            if expected is not None and sizes.get(path) == expected:
                self._present[broker].add(path)
            else:
                plan[path] = FileToCopy(path, sources, sum(expected or (0, 0)))

    def _find_lacking(
        self, state: State, partition: TopicPartition, needed: set[str], listings: BrokerListings
    ) -> tuple[int, ...]:
        """Return the brokers in the ISR that lack files, of those that their location may have lost. One that cannot be
        listed counts as lacking them: another replica has them all, and nothing shows that this one does."""
        lacking: list[int] = []
        for broker in state.partition(*partition).isr:
            doubtful = [path for path in needed if may_lack(state, broker, path)]
            if not doubtful:
                continue
            present: Sizes = {}
            if is_online(state, broker):
                with suppress(SparklogError):
                    present = listings.sizes(broker, doubtful)
            if len(present) < len(doubtful):
                lacking.append(broker)
        return tuple(lacking)

    def _make_tasks(self, state: State, plans: Mapping[int, Mapping[str, FileToCopy]]) -> list[CopyTask]:
        rate = self._rate
        if rate is None:
            configured = ClusterConfig.resolve(state.configs).replication_throttled_rate
            rate = 0.0 if configured >= 2**63 - 1 else float(configured)
        rate /= max(1, getattr(self._runner, "workers", 1))
        tasks: list[CopyTask] = []
        for broker, plan in plans.items():
            for files in _split([file for file in plan.values() if file.path not in self._present[broker]]):
                brokers = {broker, *(source for file in files for source in file.sources)}
                stores = {number: self._coordinator.brokers.store_of(state, number) for number in brokers}
                tasks.append(CopyTask(broker, stores, files, rate))
        return tasks

    def _copy(self, tasks: Sequence[CopyTask]) -> list[CopyResult]:
        """Run the tasks; return the results of those with failed copies."""
        total = sum(file.size for task in tasks for file in task.files)
        done = 0
        failed: list[CopyResult] = []
        result: CopyResult
        for result in self._runner.run(copy_files, tasks):
            self._present.setdefault(result.broker, set()).update(result.copied)
            self.result.files += len(result.copied)
            self.result.size_bytes += result.size_bytes
            done += result.size_bytes
            if result.failed:
                failed.append(result)
            self._progress(done, max(total, done))
        return failed

    def _report_failures(self, failed: Sequence[CopyResult]) -> bool:
        """Report failed copies of live files; return whether other files were retired during the copy."""
        if not failed:
            return False
        live = find_live(self._coordinator, {path for result in failed for path, _ in result.failed})
        needed = [result._replace(failed=[each for each in result.failed if each[0] in live]) for result in failed]
        self.result.problems += [line for result in needed for line in _describe_failures(result)]
        return sum(len(result.failed) for result in needed) < sum(len(result.failed) for result in failed)

    def _join_isr(self, caught_up: Sequence[CaughtUp]) -> bool:
        """Add replicas to the ISR; return whether more has to be copied because of changes in the meantime."""
        left_out = 0
        for start in range(0, len(caught_up), MAX_CHANGES):
            decide = partial(expand_isr, caught_up=caught_up[start : start + MAX_CHANGES])
            expanded = self._coordinator.submit(decide)
            self.result.joined += expanded.joined
            left_out += len(expanded.left_out) + sum(len(replica.lacking) for replica in expanded.joined)
            self.result.problems += [
                f"{replica.topic}-{replica.partition} on broker {replica.broker} is not in sync yet: {why}"
                for replica, why in expanded.left_out
            ]
        return left_out > 0


def _describe_failures(result: CopyResult) -> list[str]:
    """Return a line for each cause of failed copies: if a location fails, all files of its task have the same cause."""
    by_cause: dict[str, list[str]] = {}
    for path, why in result.failed:
        by_cause.setdefault(why, []).append(path)
    return [
        f"{paths[0]}{f' and {len(paths) - 1} more files' if len(paths) > 1 else ''} for broker {result.broker}: {why}"
        for why, paths in by_cause.items()
    ]


def _order_sources(state: State, topic_partition: TopicPartition, broker: int) -> tuple[int, ...]:
    """Return the brokers to copy from, in order: the leader, the rest of the ISR, then other replicas, which may have
    a file too."""
    partition = state.partition(*topic_partition)
    order = (partition.leader, *partition.isr, *partition.replicas)
    return tuple(dict.fromkeys(source for source in order if source != broker and is_online(state, source)))


def _split(files: Iterable[FileToCopy]) -> Iterator[list[FileToCopy]]:
    """Divide files into tasks of bounded size."""
    part: list[FileToCopy] = []
    size = 0
    for file in files:
        if part and (len(part) >= FILES_PER_TASK or size + file.size > BYTES_PER_TASK):
            yield part
            part, size = [], 0
        part.append(file)
        size += file.size
    if part:
        yield part
