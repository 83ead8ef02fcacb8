"""Brings replicas that are not in sync up to date, and lets them into the ISR.

    replicate(coordinator, InProcess())

A round looks at one version: what each such replica has to hold, what its location has (by listing: path and size), and
copies the rest from the replicas in sync. Then one commit lets in who holds everything; who does not, because segments
came or changed meanwhile, has the rest copied in the next round. What is appended while this goes on is written to such
replicas as well (``protocol.decide_append``), so they come back under load too.

A location that comes back empty, older or with truncated files is nothing special: it lacks files. Files that are no
part of the log any more are left to ``sparklog vacuum``.

Rules: killed at any step, it leaves files that are the same everywhere, and is run again. Several may run at the same
time. Not for: who is online (``coordinator.controller``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import ObjectNotFoundError, SparklogError
from sparklog.maintenance.replicas.file_copies import CopyResult, CopyTask, FileToCopy, copy_files
from sparklog.maintenance.runner import TaskRunner
from sparklog.protocol.decide.elections import MAX_CHANGES, is_online
from sparklog.protocol.decide.replicas import CaughtUp, Expanded, expand_isr
from sparklog.protocol.segments import index_path
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)

ROUNDS = 10
"""Rounds of one run. A replica that appends go to as well needs two; with acks=1 it takes a pause between appends."""

FILES_PER_TASK = 256
BYTES_PER_TASK = 64 * 1024 * 1024
"""bytes. What one task copies, so that many replicas of many partitions are spread over the workers."""

_LOOK_ONE_BY_ONE = 8
"""files of a folder up to which each is asked for by itself instead of listing the folder."""


@dataclass
class Replicated:
    """What a run has done. ``behind`` are replicas that are still not in sync, ``problems`` say why, for people."""

    rounds: int = 0
    files: int = 0
    size_bytes: int = 0
    joined: list[CaughtUp] = field(default_factory=list)
    behind: list[tuple[TopicPartition, int]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


Progress = Callable[[int, int], None]
"""Is told the bytes copied so far in a round, and how many it will be."""


def behind(
    state: State, topics: Collection[str] | None = None, brokers: Collection[int] | None = None
) -> Iterator[tuple[TopicPartition, int]]:
    """The replicas that are not in sync and whose broker is online, of these topics and brokers (None: all)."""
    for name, topic in sorted(state.topics.items()):
        if topics is not None and name not in topics:
            continue
        for number, partition in enumerate(topic.partitions):
            if len(partition.isr) < len(partition.replicas):
                for broker in partition.replicas:
                    wanted = brokers is None or broker in brokers
                    if wanted and broker not in partition.isr and is_online(state, broker):
                        yield TopicPartition(name, number), broker


def replicate(
    coordinator: Coordinator,
    runner: TaskRunner,
    topics: Collection[str] | None = None,
    brokers: Collection[int] | None = None,
    bytes_per_second: float | None = None,
    progress: Progress = lambda done, total: None,
) -> Replicated:
    """Bring the replicas of these topics on these brokers up to date. Raises StorageError of the root, and whatever
    the runner does.

    ``bytes_per_second`` is for the whole run, by default what ``leader.replication.throttled.rate`` and
    ``follower.replication.throttled.rate`` say. What a location refuses is in the result.
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
    """One run of the job: what is known of the locations from one round to the next. Not thread-safe."""

    def __init__(
        self, coordinator: Coordinator, runner: TaskRunner, bytes_per_second: float | None, progress: Progress
    ) -> None:
        self.result = Replicated()
        self._coordinator = coordinator
        self._runner = runner
        self._rate = bytes_per_second
        self._progress = progress
        self._held: dict[int, set[str]] = {}
        self._broken: set[int] = set()

    def round(self, state: State, wanted: Sequence[tuple[TopicPartition, int]]) -> bool:
        """One round; whether another one may get further."""
        self.result.rounds += 1
        self.result.problems = []
        needed = {place: self._files(state, place) for place in {place for place, _ in wanted}}
        plans: dict[int, dict[str, FileToCopy]] = {}
        listings = _Listings(self._coordinator, state)
        for place, broker in wanted:
            if broker not in self._broken:
                self._plan(plans.setdefault(broker, {}), listings, state, place, broker, needed[place])
        self._copy(self._tasks(state, plans))
        caught_up = [
            CaughtUp(
                place.topic,
                state.topics[place.topic].topic_id,
                place.partition,
                broker,
                state.partition(*place).log_end_offset,
                state.version,
                self._lacking(state, place, needed[place], listings),
            )
            for place, broker in wanted
            if broker not in self._broken and needed[place] <= self._held.get(broker, set())
        ]
        return self._join(caught_up)

    def _files(self, state: State, place: TopicPartition) -> set[str]:
        segments = self._coordinator.segments(place.topic, state).partition(place.partition)
        return {segment.path for segment in segments}

    def _plan(
        self,
        plan: dict[str, FileToCopy],
        listings: _Listings,
        state: State,
        place: TopicPartition,
        broker: int,
        needed: set[str],
    ) -> None:
        """Add what the broker lacks of a partition; a file may hold runs of several."""
        missing = needed - self._held.setdefault(broker, set())
        try:
            sizes = listings.sizes(broker, missing)
        except SparklogError as error:
            self._broken.add(broker)
            self.result.problems.append(f"broker {broker} cannot be listed: {error.message}")
            return
        sources = _sources(state, place, broker)
        for path in sorted(missing):
            known = plan.get(path)
            if known is not None:
                plan[path] = known._replace(sources=tuple(dict.fromkeys((*known.sources, *sources))))
                continue
            expected = listings.size_at_any(sources, path, missing)
            if expected is not None and sizes.get(path) == expected:
                self._held[broker].add(path)
            else:
                plan[path] = FileToCopy(path, sources, sum(expected or (0, 0)))

    def _lacking(self, state: State, place: TopicPartition, needed: set[str], listings: _Listings) -> tuple[int, ...]:
        """The brokers in the ISR that lack files, of those whose location is known to have lost some."""
        found: list[int] = []
        for broker in state.partition(*place).isr:
            if is_online(state, broker) and state.brokers[broker].lost_files_at >= 0:
                with suppress(SparklogError):  # one that cannot be listed is for the controller
                    if len(listings.sizes(broker, needed)) < len(needed):
                        found.append(broker)
        return tuple(found)

    def _tasks(self, state: State, plans: Mapping[int, Mapping[str, FileToCopy]]) -> list[CopyTask]:
        rate = self._rate
        if rate is None:
            configured = ClusterConfig.resolve(state.configs).replication_throttled_rate
            rate = 0.0 if configured >= 2**63 - 1 else float(configured)
        rate /= max(1, getattr(self._runner, "workers", 1))
        found: list[CopyTask] = []
        for broker, plan in plans.items():
            for files in _parts([file for file in plan.values() if file.path not in self._held[broker]]):
                brokers = {broker, *(source for file in files for source in file.sources)}
                stores = {number: self._coordinator.brokers.store_of(state, number) for number in brokers}
                found.append(CopyTask(broker, stores, files, rate))
        return found

    def _copy(self, tasks: Sequence[CopyTask]) -> None:
        total = sum(file.size for task in tasks for file in task.files)
        done = 0
        result: CopyResult
        for result in self._runner.run(copy_files, tasks):
            self._held.setdefault(result.broker, set()).update(result.copied)
            self.result.files += len(result.copied)
            self.result.size_bytes += result.size_bytes
            done += result.size_bytes
            self.result.problems += _failures(result)
            self._progress(done, max(total, done))

    def _join(self, caught_up: Sequence[CaughtUp]) -> bool:
        """Let them into the ISR; whether anybody has to copy more because of what happened meanwhile."""
        left_out = 0
        for start in range(0, len(caught_up), MAX_CHANGES):
            decide = partial(expand_isr, caught_up=caught_up[start : start + MAX_CHANGES])
            expanded: Expanded = self._coordinator.submit(decide)
            self.result.joined += expanded.joined
            left_out += len(expanded.left_out) + sum(len(one.lacking) for one in expanded.joined)
            self.result.problems += [
                f"{one.topic}-{one.partition} on broker {one.broker} is not in sync yet: {why}"
                for one, why in expanded.left_out
            ]
        return left_out > 0


def _failures(result: CopyResult) -> list[str]:
    """What was not copied, a line for each cause: a location that went takes all files of a task with it."""
    paths: dict[str, list[str]] = {}
    for path, why in result.failed:
        paths.setdefault(why, []).append(path)
    return [
        f"{held[0]}{f' and {len(held) - 1} more files' if len(held) > 1 else ''} for broker {result.broker}: {why}"
        for why, held in paths.items()
    ]


def _sources(state: State, place: TopicPartition, broker: int) -> tuple[int, ...]:
    """Whom to copy from, in order: the leader, who is in sync, then all others that may have a file all the same."""
    partition = state.partition(*place)
    order = (partition.leader, *partition.isr, *partition.replicas)
    return tuple(dict.fromkeys(one for one in order if one != broker and is_online(state, one)))


def _parts(files: Iterable[FileToCopy]) -> Iterator[list[FileToCopy]]:
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


Sizes = dict[str, tuple[int, int]]
"""Bytes of the ``.log`` and the ``.index`` by path of the ``.log``; only files that have both."""


class _Listings:
    """What the locations hold, as listed in one round. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, state: State) -> None:
        self._coordinator = coordinator
        self._state = state
        self._folders: dict[tuple[int, str], dict[str, int]] = {}
        self._at: dict[int, tuple[Collection[str], Sizes]] = {}

    def sizes(self, broker: int, paths: Collection[str]) -> Sizes:
        """Of these files, those that a broker has. Raises StorageError, UnsupportedStoreError."""
        store = self._coordinator.brokers.store_of(self._state, broker)
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            by_folder.setdefault(path.rpartition("/")[0], []).append(path)
        found: Sizes = {}
        for folder, inside in by_folder.items():
            held = self._folder(store, broker, folder, inside)
            for path in inside:
                log, index = held.get(path), held.get(index_path(path))
                if log is not None and index is not None:
                    found[path] = (log, index)
        return found

    def _folder(self, store: Store, broker: int, folder: str, inside: Sequence[str]) -> dict[str, int]:
        known = self._folders.get((broker, folder))
        if known is None:
            if len(inside) <= _LOOK_ONE_BY_ONE:
                return _looked_up(store, inside)
            known = self._folders[broker, folder] = {info.key: info.size for info in store.list(f"{folder}/")}
        return known

    def size_at_any(self, brokers: Sequence[int], path: str, together: Collection[str]) -> tuple[int, int] | None:
        """The sizes that the first of these brokers that has the file says; ``together`` are looked up with it."""
        for broker in brokers:
            known = self._sizes_of(broker, together)
            if path in known:
                return known[path]
        return None

    def _sizes_of(self, broker: int, paths: Collection[str]) -> Sizes:
        """Nothing of a broker that cannot be listed."""
        known = self._at.get(broker)
        if known is None or known[0] is not paths:
            try:
                known = (paths, self.sizes(broker, paths))
            except SparklogError as error:
                logger.warning("broker %d cannot be listed, to copy from it: %s", broker, error)
                known = (paths, {})
            self._at[broker] = known
        return known[1]


def _looked_up(store: Store, paths: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in paths:
        for key in (path, index_path(path)):
            with suppress(ObjectNotFoundError):
                found[key] = store.info(key).size
    return found
