"""System tables of a cluster of 1,000 topics of 10 partitions, 200 groups and 100,000 commits: the lag of one group
over all of them, appends and throughput, in a process that has read no commit yet (cold) and in one that has (warm),
and the memory of the process.

The commits are those of a day: two of three append to two partitions, the third are the offsets of a group in a topic.
Their data files are missing: nothing here reads them. Cold is a new process; the file system has the commits cached. A
reference reads and verifies the same commits and makes nothing of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.commit import peak_mib
from benchmarks.measure import ROOT, Figure, Settings, median, scratch, timed, where_time_goes
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.commits.commit_attempt import CommitOutcome, prepare_commit
from sparklog.log.commits.commit_files import read_commits
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol.commits import (
    Action,
    AlterConfig,
    Append,
    CommitOffsets,
    CommittedOffset,
    CreateTopic,
    Run,
    commit_key,
)
from sparklog.protocol.fold import Draft

PARTITIONS = 10
TOPICS_OF_GROUP = 5
EVERY_MS = 864
STEP_MS = 600_000


class Size(NamedTuple):
    """How much there is of everything."""

    topics: int
    groups: int
    commits: int


LARGE, QUICK = Size(1_000, 200, 100_000), Size(1_000, 200, 5_000)


def run(settings: Settings) -> list[Figure]:
    size = QUICK if settings.quick else LARGE
    with scratch("monitoring") as folder:
        _in_process("build", folder, *size)
        names = ("lag", "appends", "throughput", "groups")
        cold = {name: [_in_process("read", folder, name) for _ in range(3)] for name in (*names, "commits alone")}
        warm = _in_process("read", folder, *names)
        coordinator = open_cluster(str(folder))
        profile = where_time_goes(lambda: _lag(coordinator, SystemTables(coordinator)))
    figures = []
    for name, what in (
        ("lag", "lag of one group every 10 minutes of a day,"),
        ("appends", "appends,"),
        ("throughput", "throughput by minute,"),
        ("groups", "groups,"),
    ):
        what = f"{what} {size.commits:,} commits"
        seconds, cpu, only_read = (
            median([each[key] for each in cold[of]])
            for of, key in ((name, name), (name, f"{name}, CPU"), ("commits alone", "commits alone"))
        )
        again = warm[f"{name} again"]
        figures += [
            Figure(
                name=f"{what}, cold",
                value=f"{seconds:.2f} s ({cpu:.2f} s of CPU), {max(each['peak'] for each in cold[name]):.0f} MiB",
                reference="" if name == "groups" else f"reading the commits {only_read:.2f} s",
                target="1 s" if name == "lag" else "",
                met=seconds <= 1 if name == "lag" else None,
                where=profile if name == "lag" else "",
                samples={"seconds": [each[name] for each in cold[name]]},
            ),
            Figure(
                name=f"{what}, warm",
                value=f"{again * 1000:,.0f} ms ({warm[f'{name} again, CPU'] * 1000:,.0f} ms of CPU)",
                target="1 s" if name == "lag" else "",
                met=again <= 1 if name == "lag" else None,
            ),
        ]
    return figures


# -- building


def build(folder: Path, size: Size) -> None:
    """Write the commits as files, without the fsync of each; one checkpoint is made of the last."""
    create_cluster(str(folder))
    coordinator = open_cluster(str(folder))
    _commit(coordinator, AlterConfig(set={"metadata.max.retention.ms": "-1", "metadata.max.retention.bytes": "-1"}))
    for number in range(size.topics):
        created = CreateTopic(topic=_topic(number), topic_id=_topic_id(number), replicas=[[0]] * PARTITIONS)
        _commit(coordinator, created)
    state = coordinator.state
    ends = [0] * (size.topics * PARTITIONS)
    now_ms = state.timestamp_ms
    for number in range(state.version + 1, size.commits):
        now_ms += EVERY_MS
        actions = [_offsets(number // 3, size, ends)] if number % 3 == 2 else _appends(number, ends, now_ms)
        prepared = prepare_commit(Draft(state, now_ms, actions), f"write-id-of-22-c-{number:06d}", "vm/4711")
        (folder / commit_key(number)).write_bytes(prepared.encoded.data)
        state = prepared.folded.state
    open_cluster(str(folder)).log.write_checkpoint()


def _commit(coordinator: Coordinator, *actions: Action) -> None:
    assert coordinator.log.attempt(actions) is CommitOutcome.WON


def _appends(number: int, ends: list[int], now_ms: int) -> list[Append]:
    """Appends to two partitions, each of 100 records."""
    places = (number * 7919 % len(ends), (number * 7919 + 5003) % len(ends))
    appends = [_append(place, ends[place], now_ms) for place in places]
    for place in places:
        ends[place] += 100
    return appends


def _topic(number: int) -> str:
    return f"topic-{number:06d}"


def _topic_id(number: int) -> str:
    return f"topic-id-of-22-c-{number:05d}"


def _append(place: int, base_offset: int, now_ms: int) -> Append:
    topic, partition = divmod(place, PARTITIONS)
    run = Run(
        path=f"{_topic(topic)}-{partition}/{base_offset:020d}-v3-abcdefghijklmnopqrstuv.log",
        batches=1,
        records=100,
        size_bytes=10_800,
        min_timestamp_us=now_ms * 1000,
        max_timestamp_us=now_ms * 1000,
    )
    return Append(topic=_topic(topic), topic_id=_topic_id(topic), partition=partition, base_offset=base_offset, run=run)


def _offsets(number: int, size: Size, ends: list[int]) -> CommitOffsets:
    """The offsets of a group in one of its topics, a little behind."""
    group = number % size.groups
    topic = (group * TOPICS_OF_GROUP + number // size.groups % TOPICS_OF_GROUP) % size.topics
    return CommitOffsets(
        group=f"group-{group:04d}",
        generation=1,
        offsets=[
            CommittedOffset(
                topic=_topic(topic),
                topic_id=_topic_id(topic),
                partition=partition,
                offset=max(ends[topic * PARTITIONS + partition] - 50, 0),
            )
            for partition in range(PARTITIONS)
        ],
    )


# -- reading


def _lag(coordinator: Coordinator, tables: SystemTables) -> object:
    end_ms = coordinator.state.timestamp_ms
    day = RowSelection(group="group-0100", since_ms=end_ms - 86_400_000, until_ms=end_ms, step_ms=STEP_MS)
    return tables.read("lag", day)


def read(folder: Path, names: list[str]) -> dict[str, float]:
    """Read tables in this process, each twice."""
    coordinator = open_cluster(str(folder))
    tables, measured, last = SystemTables(coordinator), {}, coordinator.state.version

    def read_table(name: str) -> object:
        if name == "commits alone":
            return sum(1 for _ in read_commits(coordinator.store, 0, last))
        return _lag(coordinator, tables) if name == "lag" else tables.read(name, RowSelection())

    for name in names:
        for label in (name, f"{name} again"):
            cpu = time.process_time()
            measured[label] = timed(partial(read_table, name))
            measured[f"{label}, CPU"] = time.process_time() - cpu
    return {**measured, "peak": peak_mib()}


def _in_process(command: str, folder: Path, *arguments: object) -> dict[str, float]:
    """What ``main`` below prints, run in a fresh interpreter."""
    words = [sys.executable, "-m", "benchmarks.monitoring", command, str(folder), *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(command: str, folder: str, *arguments: str) -> None:
    """Build or read, and print what was measured as JSON."""
    if command == "build":
        build(Path(folder), Size(*map(int, arguments)))
        print("{}")
    else:
        print(json.dumps(read(Path(folder), list(arguments))))


if __name__ == "__main__":
    main(*sys.argv[1:])
