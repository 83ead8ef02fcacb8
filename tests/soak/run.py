"""A soak run: starts the processes, torments them, stops them, and reads what is left.

    python tests/soak/run.py SECONDS FOLDER [SEED]

Whoever dies by itself ends the run: only what this module sends is a reason to stop.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sparklog.protocol.decide.topics import alter_configs

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import OffsetOutOfRangeError
from sparklog.log.layout import CHECKPOINTS
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.gc.orphans import vacuum
from sparklog.maintenance.gc.retired_files import sweep
from sparklog.protocol.commits import CommitOffsets
from sparklog.protocol.state import State
from sparklog.testing.checks import check
from sparklog.testing.findings import Finding
from sparklog.testing.history import COMMITTED, OFFSET_LOG, READ, History, OperationLog, Position, Read
from tests.soak.worker import (
    CALM,
    CLUSTER_CONFIGS,
    COMMON,
    CONFIGS,
    COPIERS,
    IN,
    KEYS,
    LATEST,
    OUT,
    READERS,
    SHORT,
    TOPICS,
)

WORKER = Path(__file__).with_name("worker.py")
ROLES = {
    "producer-1": "producer",
    "producer-2": "producer",
    "producer-3": "producer",
    "shared-1": "transactional",
    "shared-2": "transactional",
    "alone-1": "transactional",
    "member-1": "member",
    "member-2": "member",
    "member-3": "member",
    "copier-1": "copier",
    "copier-2": "copier",
    "maintainer-1": "maintainer",
    "maintainer-2": "maintainer",
}
"""name -> role: "shared-1" and "shared-2" have one transactional id, "member-2" is a static member."""

EXPECTED = re.compile(r"injected|Indeterminate|it is not known whether")
"""What the failing storage makes of a step of maintenance."""

MAINTENANCE = ("ReplaceSegments", "DeleteSegments", "RemoveFiles", "ForgetRemovedFiles", "FenceWriters")
"""Actions of commits that show that maintenance was done."""

LONGEST_PAUSE_SECONDS = 10.0
"""longer than a session, so that who is stopped with SIGSTOP comes back as a zombie."""

CALM_SECONDS = 15.0
"""without torments before the end: two sessions and a bit, after which every group must be at work again."""

LONGEST_CALM_SECONDS = 180.0
"""what a slow machine has, beyond the length of the run, until all is done that is asked of one; a third of the length
where that is more."""

LEAST_DONE_PER_SECOND = ("send", "transaction", "poll", "commit_offsets")
LEAST_ASSIGNMENTS = 10

LARGEST_LAG_RECORDS = 500
"""of one partition in the end: some seconds of what the producers send."""

TAIL_RECORDS = 200
"""records that are read of the end of each partition while the run goes on."""


class Result(NamedTuple):
    """What a run gave; ``copies`` counts how often each record of "in" is in "out".

    ``unfinished`` is what was asked of the run and not done in time, groups that are not at work again among it;
    ``actions`` counts what was committed, by kind; ``problems`` are errors of maintenance that no failing storage
    explains; ``damage`` is what a check of all files found in the end.
    """

    history: History
    findings: list[Finding]
    copies: Counter[str]
    not_copied: list[str]
    torments: Counter[str]
    unfinished: list[str]
    actions: Counter[str]
    problems: list[str]
    damage: list[str]

    def summary(self) -> str:
        outcomes = Counter(f"{operation.kind} {operation.outcome}" for operation in self.history.operations)
        work = {kind: count for kind, count in sorted(self.actions.items()) if kind in MAINTENANCE}
        return f"{dict(self.torments)}, {len(self.copies)} copies, {dict(sorted(outcomes.items()))}, {work}"


class Soak:
    """One run. All choices are the seed's; what the processes make of them is not."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: dict[str, float] = {}
        self.due: dict[str, float] = {}
        self.leaving: set[str] = set()
        self.torments: Counter[str] = Counter()
        (folder / "logs").mkdir(parents=True)
        self.actions: Counter[str] = Counter()
        self.offsets: list[Position] = []
        self.followed = -1
        self.cluster: Coordinator = create_cluster(str(folder / "cluster"))
        self.cluster.submit(partial(alter_configs, topic="", changes=CLUSTER_CONFIGS))
        for topic, partitions in TOPICS.items():
            self.cluster.create_topic(topic, partitions, configs={**COMMON, **CONFIGS.get(topic, {})})
        self.log = OperationLog("driver", folder / "logs" / "driver.jsonl")

    def run(self, seconds: float) -> Result:
        until = time.monotonic() + seconds
        try:
            for name in ROLES:
                self.start(name)
            while time.monotonic() < until:
                time.sleep(0.5)
                self.look_after()
                self.follow()
                if time.monotonic() < until - CALM_SECONDS and self.random.random() < 0.4:
                    self.torment(self.random.choice(sorted(ROLES)))
                if self.random.random() < 0.15:
                    self.log.record(READ, reads=self.snapshot(TAIL_RECORDS))
            unfinished = self.finish(seconds)
            self.stop()
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()
        return self.result(unfinished)

    def finish(self, seconds: float) -> list[str]:
        """Continue without torments until nothing is unfinished, or time is up; return what is unfinished then."""
        (self.folder / CALM).touch()
        until = time.monotonic() + max(LONGEST_CALM_SECONDS, seconds / 3)
        while True:
            unfinished = self.stuck() or self.undone(seconds)
            if not unfinished or time.monotonic() > until:
                return unfinished
            time.sleep(1.0)
            self.look_after()
            self.follow()

    def undone(self, seconds: float) -> list[str]:
        """What was done less often than a run of ``seconds`` must: one in which nothing happens is clean too."""
        history = History.load(self.folder / "logs")
        least = {**dict.fromkeys(LEAST_DONE_PER_SECOND, seconds), "assign": LEAST_ASSIGNMENTS}
        done = {kind: sum(operation.outcome == "ok" for operation in history.of(kind)) for kind in least}
        undone = [f"only {done[kind]} of {kind} were done" for kind in least if done[kind] < least[kind]]
        undone += [f"maintenance committed no {kind}" for kind in MAINTENANCE if not self.actions[kind]]
        state = self.cluster.refresh()
        copied = sum(state.partition(OUT, partition).log_end_offset for partition in range(TOPICS[OUT]))
        if copied <= seconds:
            undone.append(f"only {copied} records were copied")
        if not state.partition(SHORT, 0).log_start_offset:
            undone.append("retention took nothing away")
        latest = self.snapshot(topics=[LATEST])[0]
        if not KEYS // 2 < len(latest.records) < latest.end / 2:
            undone.append(f"compaction left {len(latest.records)} records of {latest.end}")
        return undone

    def stuck(self) -> list[str]:
        """Return what is wrong once all roles run again: groups that still rebalance, records that are not read."""
        state = self.cluster.refresh()
        found = []
        for group, members in ((READERS, 3), (COPIERS, 2)):
            known = state.groups[group]
            if known.name_of_state != "Stable" or len(known.members) != members:
                found.append(f"{group} is {known.name_of_state} with {sorted(known.members)}: {known}")
            offsets = {(o.topic, o.partition): o.offset for o in known.offsets.values()}
            for partition in range(TOPICS[IN]):
                end = state.partition(IN, partition).log_end_offset
                if end - offsets.get((IN, partition), 0) > LARGEST_LAG_RECORDS:
                    found.append(f"{group} has {offsets.get((IN, partition))} of {IN}-{partition}, which ends at {end}")
        return found

    # -- processes

    def start(self, name: str) -> None:
        command = [sys.executable, str(WORKER), ROLES[name], name, str(self.folder), str(self.random.getrandbits(32))]
        with (self.folder / f"{name}.stdout").open("ab") as said, (self.folder / f"{name}.stderr").open("ab") as errors:
            self.processes[name] = subprocess.Popen(command, stdout=said, stderr=errors)

    def look_after(self) -> None:
        """Resume processes stopped for long enough, restart those that are due, and detect those that died."""
        now = time.monotonic()
        for name in [name for name, at in self.stopped.items() if at <= now]:
            del self.stopped[name]
            self.processes[name].send_signal(signal.SIGCONT)
        for name in [name for name, at in self.due.items() if at <= now]:
            if self.processes[name].poll() is not None:
                del self.due[name]
                self.leaving.discard(name)
                self.start(name)
        for name, process in self.processes.items():
            code = process.poll()
            if name in self.leaving:
                assert code in (None, 0, -signal.SIGTERM), self.last_words(name, code)
            elif name not in self.due:
                assert code is None, self.last_words(name, code)

    def last_words(self, name: str, code: int | None) -> str:
        return f"{name} ended with {code}:\n{(self.folder / f'{name}.stderr').read_text()[-3000:]}"

    def torment(self, name: str) -> None:
        if name in self.stopped or name in self.due:
            return
        what = self.random.choice(["kill", "kill", "stop", "stop", "leave"])
        self.torments[what] += 1
        process = self.processes[name]
        if what == "stop":
            process.send_signal(signal.SIGSTOP)
            self.stopped[name] = time.monotonic() + self.random.uniform(0.5, LONGEST_PAUSE_SECONDS)
        elif what == "kill":
            process.kill()
            self.due[name] = time.monotonic() + self.random.uniform(0, 3)
        else:
            process.terminate()
            self.leaving.add(name)
            self.due[name] = time.monotonic() + self.random.uniform(0, 3)

    def stop(self) -> None:
        """Check that every process ends by itself, and none hangs."""
        for name in self.stopped:
            self.processes[name].send_signal(signal.SIGCONT)
        for process in self.processes.values():
            process.terminate()
        until = time.monotonic() + LONGEST_CALM_SECONDS
        for name, process in self.processes.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            died = process.poll() in (0, -signal.SIGTERM) or (name in self.due and process.poll() == -signal.SIGKILL)
            assert died, self.last_words(name, process.poll())

    # -- what is left

    def follow(self) -> None:
        """Take note of the commits since the last time: later they may be gone."""
        for commit in self.cluster.log.commits(self.followed + 1, self.cluster.refresh().version):
            self.followed = commit.version
            for action in commit.actions:
                self.actions[type(action).__name__] += 1
                if isinstance(action, CommitOffsets):
                    self.offsets += [Position(o.topic, o.partition, o.offset, action.group) for o in action.offsets]

    def snapshot(self, tail: int | None = None, topics: Iterable[str] = TOPICS) -> list[Read]:
        """All records of topics at one version, or the last so many of each partition."""
        while True:
            state = self.cluster.refresh()
            try:
                return list(self.reads(state, tail, topics))
            except OffsetOutOfRangeError:
                assert tail is not None, "records were deleted that nobody is there to delete"

    def reads(self, state: State, tail: int | None, topics: Iterable[str]) -> Iterator[Read]:
        with LogReader(self.cluster) as reader:
            for topic in topics:
                for partition in range(TOPICS[topic]):
                    held = state.partition(topic, partition)
                    start = held.log_start_offset
                    end = held.log_end_offset
                    if tail is not None:
                        start = max(start, end - tail)
                    records = [
                        (offset, value.decode())
                        for fetched in reader.fetch(topic, partition, start, end, ["value"], state)
                        for offset, value in zip(
                            fetched.records.all_offsets(), fetched.records.batch.column(0).to_pylist(), strict=True
                        )
                    ]
                    yield Read(topic, partition, records, start, end, compacted=topic == LATEST)

    def result(self, unfinished: list[str]) -> Result:
        self.cluster = open_cluster(str(self.folder / "cluster"))
        self.follow()
        reads = self.snapshot()
        self.log.record(READ, reads=reads, final=True)
        committed = self.record_offsets()
        history = History.load(self.folder / "logs")
        copies = Counter(value.split("|")[0] for read in reads if read.topic == OUT for _, value in read.records)
        due = [
            value
            for read in reads
            if read.topic == IN
            for offset, value in read.records
            if offset < committed.get((read.topic, read.partition), 0)
        ]
        not_copied = [value for value in due if value not in copies]
        return Result(
            history,
            check(history),
            copies,
            not_copied,
            self.torments,
            unfinished,
            self.actions,
            self.problems(),
            self.damage(),
        )

    def record_offsets(self) -> dict[tuple[str, int], int]:
        """Record the groups' committed offsets; return those of the copying groups."""
        committed: dict[tuple[str, int], int] = {}
        for group, known in self.cluster.state.groups.items():
            offsets = [Position(o.topic, o.partition, o.offset) for o in known.offsets.values()]
            self.log.record(COMMITTED, group=group, offsets=offsets, final=True)
            if group == COPIERS:
                committed = {(p.topic, p.partition): p.offset for p in offsets}
        self.log.record(OFFSET_LOG, offsets=self.offsets)
        return committed

    def problems(self) -> list[str]:
        """What maintenance said went wrong, but for what the failing storage explains."""
        said = [
            f"{name}: {line}"
            for name, role in ROLES.items()
            if role == "maintainer"
            for kind in ("stdout", "stderr")
            for line in (self.folder / f"{name}.{kind}").read_text().splitlines()
        ]
        return [line for line in said if ("failed" in line or "Error" in line) and not EXPECTED.search(line)]

    def damage(self) -> list[str]:
        """What is wrong with any file once everything is swept: nothing is missing, and nothing too much but what is
        left of checkpoints, which stays for longer than a run."""
        time.sleep(int(COMMON["file.delete.delay.ms"]) / 1000)
        swept = sweep(self.cluster)
        vacuum(self.cluster, 0, dry_run=False, force=True)
        found = check_cluster(self.cluster.store).report.findings
        return [*swept.problems, *(str(one) for one in found if not one.path.startswith(CHECKPOINTS))]


def main(seconds: str, folder: str, seed: str = "0") -> None:
    result = Soak(Path(folder), int(seed)).run(float(seconds))
    print(result.summary())
    twice = [value for value, times in result.copies.items() if times > 1]
    print(f"{len(result.findings)} findings, {len(twice)} copied twice, {len(result.not_copied)} not copied")
    print(f"unfinished: {result.unfinished}")
    print(f"problems of maintenance: {result.problems}, damage: {result.damage}")
    for finding in result.findings[:10]:
        print(finding)


if __name__ == "__main__":
    main(*sys.argv[1:])
