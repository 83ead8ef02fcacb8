"""A cluster of 10,000 topics of 10 partitions, 10,000 groups and 100,000 transactional ids: the cost of a commit
compared with an empty cluster, of a checkpoint, and of opening.

Commits are compared by CPU time, decided, made and folded in: the disk is the same for both. Each kind of request is
repeated against both clusters alternately. A follower of the log only pays for the fold, which is measured separately.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.commit import peak_mib
from benchmarks.measure import ROOT, Figure, Settings, median, scratch
from sparklog import limits
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.checkpoints import checkpoint, heads, lists
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.commits.commit_files import read_commit
from sparklog.log.layout import CHECKPOINTS
from sparklog.protocol.commits import (
    Action,
    ApplicationWrite,
    CommitOffsets,
    CommittedOffset,
    CreateTopic,
    InitProducer,
    JoinGroup,
    Run,
    WrittenRange,
)
from sparklog.protocol.decide import groups as decide_groups
from sparklog.protocol.decide import producers
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest
from sparklog.protocol.fold import Entry, fold
from sparklog.protocol.segments import Segment, segment_events
from sparklog.protocol.state import State

PARTITIONS = 10
GROUP_OFFSETS = 10


class Size(NamedTuple):
    """How much there is of everything."""

    topics: int
    groups: int
    ids: int


LARGE, SMALL = Size(10_000, 10_000, 100_000), Size(1, 1, 1)
QUICK = Size(1_000, 1_000, 10_000)


def run(settings: Settings) -> list[Figure]:
    size = QUICK if settings.quick else LARGE
    with scratch("scale") as folder:
        for name, one in (("small", SMALL), ("large", size)):
            _in_process("build", folder / name, *one)
        opening = [_in_process("open", folder / "large") for _ in range(3 if settings.quick else 5)]
        small, large = open_cluster(str(folder / "small")), open_cluster(str(folder / "large"))
        rounds = 50 if settings.quick else 300
        figures = [*_commits(small, large, rounds), *_checkpoints(large, 10 if settings.quick else 60)]
        after = _in_process("open", folder / "large")
    return [*figures, *_opening(size, opening, after)]


# -- building


def build(folder: Path, size: Size) -> None:
    coordinator = create_cluster(str(folder))
    _commit_all(
        coordinator,
        [
            CreateTopic(
                topic=topic_name(number), topic_id=f"topic-id-of-22-c-{number:06d}", replicas=[[0]] * PARTITIONS
            )
            for number in range(size.topics)
        ],
    )
    topics = coordinator.state.topics
    _commit_all(coordinator, [action for number in range(size.groups) for action in _group(number, size, topics)])
    _commit_all(
        coordinator,
        [
            InitProducer(producer_id=number, producer_epoch=0, transactional_id=f"transactional-{number}")
            for number in range(size.ids)
        ],
    )
    _commit_all(coordinator, [_application(number, size, topics) for number in range(size.ids)])
    coordinator.log.wait_for_checkpoint()
    log = coordinator.log
    checkpoint.write_checkpoint(log.store, log.ids, log.state, None, {})  # whole, as it is every now and then


def topic_name(number: int) -> str:
    return f"topic-{number:06d}"


def _group(number: int, size: Size, topics: object) -> list[Action]:
    name = f"group-{number:06d}"
    offsets = [
        CommittedOffset(
            topic=topic_name(number % size.topics),
            topic_id=topics[topic_name(number % size.topics)].topic_id,  # type: ignore[index]
            partition=partition,
            offset=1_000_000 + partition,
        )
        for partition in range(GROUP_OFFSETS)
    ]
    join = JoinGroup(
        group=name,
        member=f"member-{number}",
        client_id="client",
        host="host",
        topics=[topic_name(number % size.topics)],
        assignors=["range"],
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
    )
    return [join, CommitOffsets(group=name, offsets=offsets)]


def _application(number: int, size: Size, topics: object) -> Action:
    name = topic_name(number % size.topics)
    written = WrittenRange(
        topic=name,
        topic_id=topics[name].topic_id,  # type: ignore[index]
        partition=0,
        base_offset=number,
        records=1000,
    )
    return ApplicationWrite(application=f"application-{number}", application_version=7, ranges=[written])


def _commit_all(coordinator: Coordinator, actions: Sequence[Action], at_a_time: int = 1000) -> None:
    for first in range(0, len(actions), at_a_time):
        assert coordinator.log.attempt(actions[first : first + at_a_time]) is CommitOutcome.WON


# -- commits


class Requests:
    """One kind of request after another against a cluster, each to another of its topics, groups and ids."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self._numbers = {"topics": 0, "groups": 0, "ids": 0, "joined": 0}
        self._sequences: dict[str, int] = {}
        self._producer = coordinator.submit(producers.init_producer).producer_id
        state = coordinator.state
        groups = sum(name.startswith("group-") for name in state.groups)
        self._counts = {"topics": len(state.topics), "groups": groups, "ids": len(state.producers)}

    def _next(self, kind: str, step: int = 7919) -> int:
        self._numbers[kind] = (self._numbers[kind] + step) % self._counts[kind]
        return self._numbers[kind]

    def append(self, producer: int = -1) -> None:
        name = topic_name(self._next("topics"))
        topic_id = self.coordinator.state.topics[name].topic_id
        sequence = self._sequences.get(name, 0) if producer >= 0 else -1
        run = Run(
            path=f"{name}-0/00000000000000000000-v1-bm0AAAAAAAAAAAAAAAAAAA.log",
            batches=1,
            records=10,
            size_bytes=1240,
            min_timestamp_us=1,
            max_timestamp_us=2,
        )
        item = PartitionAppend(
            topic=name,
            topic_id=topic_id,
            partition=0,
            run=run,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
        )
        self.coordinator.append(AppendRequest(appends=[item]))
        if producer >= 0:
            self._sequences[name] = sequence + 10

    def append_idempotent(self) -> None:
        self.append(self._producer)

    def init_producer(self) -> None:
        name = f"transactional-{self._next('ids')}"
        self.coordinator.submit(partial(producers.init_producer, transactional_id=name))

    def join_group(self) -> None:
        self._numbers["joined"] += 1
        name = topic_name(self._next("topics"))
        request = JoinRequest(group=f"joined-{self._numbers['joined']}", member="m", topics=[name])
        self.coordinator.submit(partial(decide_groups.join_group, request=request))

    def commit_offsets(self) -> None:
        number = self._next("groups")
        name = topic_name(number % len(self.coordinator.state.topics))
        member = f"member-{number}"
        group = f"group-{number:06d}"
        generation = self.coordinator.state.groups[group].generation
        commit = GroupCommit(group=group, offsets={(name, 3): 1_000_500}, member=member, generation=generation)
        self.coordinator.submit(partial(decide_groups.commit_group_offsets, commit=commit))


KINDS = ("append", "append_idempotent", "init_producer", "join_group", "commit_offsets")


def _commits(small: Coordinator, large: Coordinator, rounds: int) -> list[Figure]:
    sides = {"empty": Requests(small), "large": Requests(large)}
    figures = []
    for kind in KINDS:
        commits: dict[str, list[float]] = {side: [] for side in sides}
        folds: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(rounds + 5):
            for side, requests in sides.items():
                before = requests.coordinator.state
                took = cpu_seconds(getattr(requests, kind))
                folded = _fold_seconds(requests.coordinator, before)
                if number >= 5:
                    commits[side].append(took)
                    folds[side].append(folded)
        figures += [_ratio(f"CPU of {kind}", commits), _ratio(f"CPU of the fold of {kind}", folds)]
    return figures


def cpu_seconds(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def _fold_seconds(coordinator: Coordinator, before: State) -> float:
    """Return the cost of the newest commit for a reader: the median of some folds."""
    (commit,) = coordinator.log.commits(before.version + 1, before.version + 1)
    digest = coordinator.state.digest
    return median([cpu_seconds(lambda: fold(before, commit, digest)) for _ in range(5)])


def _ratio(name: str, samples: dict[str, list[float]]) -> Figure:
    large, empty = median(samples["large"]), median(samples["empty"])
    return Figure(
        name,
        f"{large * 1e6:.0f} us",
        f"in an empty cluster {empty * 1e6:.0f} us",
        large / empty,
        "<= 2 times",
        large <= 2 * empty,
        samples=samples,
    )


# -- checkpoints


def _checkpoints(coordinator: Coordinator, count: int) -> list[Figure]:
    """What checkpoints write against what changed since the one before: rows of entries, and of segments."""
    log, requests = coordinator.log, Requests(coordinator)
    folder = Path(log.store.root) / CHECKPOINTS
    interval = limits.CHECKPOINT_INTERVAL_COMMITS
    while coordinator.state.version % interval:
        requests.append()
    log.wait_for_checkpoint()
    written, changed, seconds = 0, 0, []
    for _ in range(count):
        known, before = set(os.listdir(folder)), coordinator.state
        while (left := coordinator.state.version % interval) != interval - 1:
            getattr(requests, KINDS[left % len(KINDS)])()
        seconds.append(cpu_seconds(lambda: (requests.append(), log.wait_for_checkpoint())))
        changed += _bytes_changed(coordinator, before)
        new = [name for name in set(os.listdir(folder)) - known if name != "latest.json"]
        written += sum((folder / name).stat().st_size for name in new)
    manifest = checkpoint.read_newest(log.store)
    assert manifest is not None
    assert manifest.version == coordinator.state.version
    ratio = written / changed
    return [
        Figure(
            "bytes that a checkpoint writes",
            f"{written / count / 1024:,.0f} KiB",
            f"changed since the last one: {changed / count / 1024:,.0f} KiB",
            ratio,
            "<= 3 times",
            ratio <= 3,
            f"{len(manifest.head_parts)} parts of heads, {len(manifest.lists)} of lists, "
            f"{sum(part.size for part in manifest.head_parts) / 2**20:.1f} MiB of heads",
        ),
        Figure("CPU of a checkpoint", f"{median(seconds) * 1000:.0f} ms (most {max(seconds) * 1000:.0f} ms)"),
    ]


def _bytes_changed(coordinator: Coordinator, before: State) -> int:
    """The rows, as they are stored, of what commits since then changed: entries of the state, and segments."""
    touched: set[Entry] = set()
    segments: list[Segment] = []
    for version in range(before.version + 1, coordinator.state.version + 1):
        stored = read_commit(coordinator.store, version)
        before, entries = fold(before, stored.commit, stored.digest)
        touched |= entries
        found = segment_events(stored.commit).values()
        segments += [event for events in found for event in events if isinstance(event, Segment)]
    rows = len(heads.ENCODING.encode(heads.changed_rows(before, touched)))
    return rows + len(lists.add_tail(lists.TopicList(), 0, segments, before.level).tails[0][1])


# -- opening


def _opening(size: Size, opening: list[dict[str, float]], after: dict[str, float]) -> list[Figure]:
    seconds = median([one["cpu"] for one in opening])
    most = max(one["peak_mib"] for one in (*opening, after))
    requests = max(one["requests"] for one in (*opening, after))
    name = f"open {size.topics:,} topics, {size.groups:,} groups, {size.ids:,} ids of each kind"
    return [
        Figure(
            name,
            f"{seconds:.2f} s of CPU",
            f"{median([one['seconds'] for one in opening]):.2f} s passed; with many parts {after['cpu']:.2f} s",
            None,
            "<= 2 s",
            max(seconds, after["cpu"]) <= 2,
        ),
        Figure("memory with it open", f"{most:.0f} MiB", target="<= 500 MiB", met=most <= 500),
        Figure("requests of the checkpoint that opens it", f"{requests:.0f}", target="<= 60", met=requests <= 60),
    ]


def _open(folder: str) -> dict[str, float]:
    start, cpu = time.perf_counter(), time.process_time()
    coordinator = open_cluster(folder)
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    manifest = checkpoint.read_newest(coordinator.store)
    assert manifest is not None
    requests = 3 + len(manifest.head_parts) + len(manifest.lists)  # cluster.json, the hint, the manifest, the parts
    return {"seconds": took, "cpu": cpu, "peak_mib": peak_mib(), "requests": requests}


def _in_process(command: str, folder: Path, *arguments: object) -> dict[str, float]:
    """What ``main`` below prints, run in a fresh interpreter."""
    words = [sys.executable, "-m", "benchmarks.scale", command, str(folder), *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(command: str, folder: str, *arguments: str) -> None:
    """Build or open, and print what was measured as JSON."""
    if command == "build":
        build(Path(folder), Size(*map(int, arguments)))
        print("{}")
    else:
        print(json.dumps(_open(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
