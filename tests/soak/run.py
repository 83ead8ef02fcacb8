"""A soak run: starts the processes, disturbs and stops them, and checks the result.

    python tests/soak/run.py SECONDS FOLDER [SEED]

A process that ends without a signal of this module fails the run.
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
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from sparklog.protocol.decide.topics import alter_configs

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.errors import OffsetOutOfRangeError
from sparklog.log.layout import CHECKPOINTS
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.tables import Tables
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
    FIRST,
    IN,
    KEYS,
    LATEST,
    MIRROR,
    OUT,
    READERS,
    REPLICATED,
    ROOT,
    SECOND,
    SHORT,
    SHOW,
    SIGNALS,
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

EXPECTED = re.compile(
    "injected|never answered|Indeterminate|it is not known whether|was deleted while it was written|"
    "did not answer before|is not in sync yet|is offline; "
)
"""Errors of maintenance that the failing storage explains, or a vacuum with an age limit of two seconds."""

MAINTENANCE = ("ReplaceSegments", "DeleteSegments", "RemoveFiles", "ForgetRemovedFiles", "FenceWriters")
"""Actions that only maintenance commits."""

REPLICATION = ("ChangePartition", "ElectController")
"""Actions that take replicas out of the ISR and back into it, and elect the one who does."""

LONGEST_PAUSE_SECONDS = 10.0
"""Longer than a session, so that a process stopped with SIGSTOP resumes as a zombie."""

CALM_SECONDS = 15.0
"""The time without disturbances before the end: over two sessions, after which every group must be stable again."""

LONGEST_CALM_SECONDS = 180.0
"""The extra time in which a slow machine must reach the required amounts of work; or a third of the run, if that is
longer."""

MIN_OPERATIONS_PER_SECOND = ("send", "transaction", "poll", "commit_offsets")
MIN_ASSIGNMENTS = 10

LARGEST_LAG_RECORDS = 500
"""The maximum lag of a partition at the end: what the producers send in a few seconds."""

TAIL_RECORDS = 200
"""The number of records read from the end of each partition during the run."""


class Result(NamedTuple):
    """The result of a run; ``copies`` counts how often each record of "in" is in "out".

    ``unfinished`` lists required work that was not done in time, including groups that are not stable; ``actions``
    counts the committed actions by kind; ``problems`` are errors of maintenance that the failing storage does not
    explain; ``damage`` are the findings of a check of all files at the end.
    """

    history: History
    findings: list[Finding]
    copies: Counter[str]
    not_copied: list[str]
    disturbances: Counter[str]
    unfinished: list[str]
    actions: Counter[str]
    problems: list[str]
    damage: list[str]

    def summary(self) -> str:
        outcomes = Counter(f"{operation.kind} {operation.outcome}" for operation in self.history.operations)
        work = {kind: count for kind, count in sorted(self.actions.items()) if kind in MAINTENANCE}
        return f"{dict(self.disturbances)}, {len(self.copies)} copies, {dict(sorted(outcomes.items()))}, {work}"


class Soak:
    """One run. The seed decides all disturbances, but not the timing of the processes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.stopped: dict[str, float] = {}
        self.due: dict[str, float] = {}
        self.leaving: set[str] = set()
        self.disturbances: Counter[str] = Counter()
        (folder / "logs").mkdir(parents=True)
        self.actions: Counter[str] = Counter()
        self.offsets: list[Position] = []
        self.followed = -1
        self.cluster: Coordinator = create_cluster(str(folder / ROOT))
        self.cluster.submit(partial(alter_configs, topic="", changes=CLUSTER_CONFIGS))
        brokers = [add_broker(self.cluster, str(folder / place)) for place in (FIRST, SECOND)]
        for topic, partitions in TOPICS.items():
            orders = [brokers, brokers[::-1]] if topic in REPLICATED else [[0]]
            assignment = list(islice(cycle(orders), partitions))
            configs = {**COMMON, **CONFIGS.get(topic, {})}
            self.cluster.create_topic(topic, configs=configs, assignment=assignment)
        self.log = OperationLog("driver", folder / "logs" / "driver.jsonl")

    def run(self, seconds: float) -> Result:
        until = time.monotonic() + seconds
        try:
            for name in ROLES:
                self.start(name)
            while time.monotonic() < until:
                time.sleep(0.5)
                self.supervise()
                self.follow()
                if time.monotonic() < until - CALM_SECONDS and self.random.random() < 0.4:
                    self.disturb(self.random.choice(sorted(ROLES)))
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
        """Continue without disturbances until nothing is unfinished or the time is up; return what is unfinished."""
        (self.folder / CALM).touch()
        until = time.monotonic() + max(LONGEST_CALM_SECONDS, seconds / 3)
        while True:
            unfinished = self.find_unstable_groups() or self.find_out_of_sync() or self.find_missing_work(seconds)
            if not unfinished:
                return []
            if time.monotonic() > until:
                return [*unfinished, *self.show_consumers()]
            time.sleep(1.0)
            self.supervise()
            self.follow()

    def show_consumers(self) -> list[str]:
        """Return what the threads of the consumers do, and what they logged before."""
        shown = {name: self.processes[name] for name, role in ROLES.items() if role in ("member", "copier")}
        for process in shown.values():
            process.send_signal(SHOW)
        time.sleep(5.0)
        return [f"{name}: {(self.folder / f'{name}.stderr').read_text()[-20_000:]}" for name in shown]

    def find_missing_work(self, seconds: float) -> list[str]:
        """Return what was done less often than required: a run in which nothing happens would be clean, too."""
        history = History.load(self.folder / "logs")
        least = {**dict.fromkeys(MIN_OPERATIONS_PER_SECOND, seconds), "assign": MIN_ASSIGNMENTS}
        done = {kind: sum(operation.outcome == "ok" for operation in history.of(kind)) for kind in least}
        missing = [f"only {done[kind]} of {kind} succeeded" for kind in least if done[kind] < least[kind]]
        missing += [f"no {kind} was committed" for kind in (*MAINTENANCE, *REPLICATION) if not self.actions[kind]]
        state = self.cluster.refresh()
        copied = sum(state.partition(OUT, partition).log_end_offset for partition in range(TOPICS[OUT]))
        if copied <= seconds:
            missing.append(f"only {copied} records were copied")
        if not state.partition(SHORT, 0).log_start_offset:
            missing.append("retention deleted nothing")
        latest = self.snapshot(topics=[LATEST])[0]
        if not KEYS // 2 < len(latest.records) < latest.end / 2:
            missing.append(f"compaction left {len(latest.records)} records of {latest.end}")
        return missing

    def find_unstable_groups(self) -> list[str]:
        """Return groups that are not stable, or that lag behind, although all processes run again."""
        state = self.cluster.refresh()
        problems = []
        for group, members in ((READERS, 3), (COPIERS, 2)):
            group_state = state.groups[group]
            if group_state.name_of_state != "Stable" or len(group_state.members) != members:
                problems.append(
                    f"{group} is {group_state.name_of_state} with {sorted(group_state.members)}: {group_state}"
                )
            offsets = {(o.topic, o.partition): o.offset for o in group_state.offsets.values()}
            for partition in range(TOPICS[IN]):
                end = state.partition(IN, partition).log_end_offset
                if end - offsets.get((IN, partition), 0) > LARGEST_LAG_RECORDS:
                    problems.append(
                        f"{group} has {offsets.get((IN, partition))} of {IN}-{partition}, which ends at {end}"
                    )
        return problems

    def find_out_of_sync(self) -> list[str]:
        """Return replicated partitions of which a replica is not in sync, although both locations answer again."""
        state = self.cluster.refresh()
        partitions = [state.partition(topic, n) for topic in REPLICATED for n in range(TOPICS[topic])]
        return [
            f"a partition of replicas {each.replicas} has ISR {each.isr} and leader epoch {each.leader_epoch}"
            for each in partitions
            if set(each.isr) != set(each.replicas)
        ]

    # -- processes

    def start(self, name: str) -> None:
        command = [sys.executable, str(WORKER), ROLES[name], name, str(self.folder), str(self.random.getrandbits(32))]
        with (
            (self.folder / f"{name}.stdout").open("ab") as output,
            (self.folder / f"{name}.stderr").open("ab") as errors,
        ):
            block = partial(signal.pthread_sigmask, signal.SIG_BLOCK, SIGNALS)
            self.processes[name] = subprocess.Popen(command, stdout=output, stderr=errors, preexec_fn=block)

    def supervise(self) -> None:
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
                assert code in (None, 0, -signal.SIGTERM, -signal.SIGINT), self.error_output(name, code)
            elif name not in self.due:
                assert code is None, self.error_output(name, code)

    def error_output(self, name: str, code: int | None) -> str:
        return f"{name} ended with {code}:\n{(self.folder / f'{name}.stderr').read_text()[-3000:]}"

    def disturb(self, name: str) -> None:
        if name in self.stopped or name in self.due:
            return
        kind = self.random.choice(["kill", "kill", "stop", "stop", "leave", "interrupt"])
        self.disturbances[kind] += 1
        process = self.processes[name]
        if kind == "stop":
            process.send_signal(signal.SIGSTOP)
            self.stopped[name] = time.monotonic() + self.random.uniform(0.5, LONGEST_PAUSE_SECONDS)
        elif kind == "kill":
            process.kill()
            self.due[name] = time.monotonic() + self.random.uniform(0, 3)
        else:
            process.send_signal(signal.SIGTERM if kind == "leave" else signal.SIGINT)
            self.leaving.add(name)
            self.due[name] = time.monotonic() + self.random.uniform(0, 3)

    def stop(self) -> None:
        """Terminate all processes, and check that none fails or hangs."""
        for name in self.stopped:
            self.processes[name].send_signal(signal.SIGCONT)
        for process in self.processes.values():
            process.terminate()
        until = time.monotonic() + LONGEST_CALM_SECONDS
        for name, process in self.processes.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            ended = process.poll() in (0, -signal.SIGTERM, -signal.SIGINT) or (
                name in self.due and process.poll() == -signal.SIGKILL
            )
            assert ended, self.error_output(name, process.poll())

    # -- results

    def follow(self) -> None:
        """Count the actions of the commits since the last call: later they may be removed."""
        for commit in self.cluster.log.commits(self.followed + 1, self.cluster.refresh().version):
            self.followed = commit.version
            for action in commit.actions:
                self.actions[type(action).__name__] += 1
                if isinstance(action, CommitOffsets):
                    self.offsets += [Position(o.topic, o.partition, o.offset, action.group) for o in action.offsets]

    def snapshot(self, tail: int | None = None, topics: Iterable[str] = TOPICS) -> list[Read]:
        """Return all records of topics at one version, or the last ``tail`` of each partition."""
        while True:
            state = self.cluster.refresh()
            try:
                return list(self.reads(state, tail, topics))
            except OffsetOutOfRangeError:
                assert tail is not None, "records were deleted although no process is running"

    def reads(self, state: State, tail: int | None, topics: Iterable[str]) -> Iterator[Read]:
        with LogReader(self.cluster) as reader:
            for topic in topics:
                for partition in range(TOPICS[topic]):
                    partition_state = state.partition(topic, partition)
                    start = partition_state.log_start_offset
                    end = partition_state.log_end_offset
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
        self.cluster = open_cluster(str(self.folder / ROOT))
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
            self.disturbances,
            unfinished,
            self.actions,
            self.problems(),
            [*self.damage(), *self.promote_mirror(reads)],
        )

    def record_offsets(self) -> dict[tuple[str, int], int]:
        """Record the groups' committed offsets; return those of the copying groups."""
        committed: dict[tuple[str, int], int] = {}
        for group, group_state in self.cluster.state.groups.items():
            offsets = [Position(o.topic, o.partition, o.offset) for o in group_state.offsets.values()]
            self.log.record(COMMITTED, group=group, offsets=offsets, final=True)
            if group == COPIERS:
                committed = {(p.topic, p.partition): p.offset for p in offsets}
        self.log.record(OFFSET_LOG, offsets=self.offsets)
        return committed

    def problems(self) -> list[str]:
        """Return the errors that maintenance printed, except those that the failing storage explains."""
        lines = [
            f"{name}: {line}"
            for name, role in ROLES.items()
            if role == "maintainer"
            for kind in ("stdout", "stderr")
            for line in (self.folder / f"{name}.{kind}").read_text().splitlines()
        ]
        return [line for line in lines if ("failed" in line or "Error" in line) and not EXPECTED.search(line)]

    def damage(self) -> list[str]:
        """Return the findings of a check of all files after a publication, a sweep and a vacuum, without old
        checkpoints, which are kept for longer than a run. Maintenance may have ended before it published."""
        Tables(self.cluster).publish_all([IN, LATEST])
        time.sleep(int(COMMON["file.delete.delay.ms"]) / 1000)
        swept = sweep(self.cluster)
        vacuum(self.cluster, 0, dry_run=False, force=True)
        findings = check_cluster(self.cluster.store).report.findings
        return [*swept.problems, *(str(finding) for finding in findings if not finding.path.startswith(CHECKPOINTS))]

    def promote_mirror(self, reads: list[Read]) -> list[str]:
        """Make the mirror the root; return what differs there from the old root, of which ``reads`` are all records."""
        before = self.cluster.refresh()
        promote(str(self.folder / MIRROR), str(self.folder / ROOT))
        self.cluster = open_cluster(str(self.folder / MIRROR))
        differing = [
            f"{old.topic_partition} differs at the mirror"
            for old, new in zip(reads, self.snapshot(), strict=True)
            if old != new
        ]
        if self.cluster.state.groups != before.groups:
            differing.append("the groups differ at the mirror")
        return [*differing, *self.damage()]


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
