"""Which brokers have to have which files, and what the copies of a file say together.

Every in-sync replica of a partition holds every live segment, under one path, byte for byte the same. So what is wrong
with one copy can be mended from another, batch by batch if need be; what is wrong with all of them is lost.

Rules: pure; takes what the tasks of ``file_checks`` found, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.file_checks import UNKNOWN, CopyResult, FileCopy, LiveRun
from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Finding
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State

_RESTORE = "run `sparklog fsck --repair`, which copies it from broker {broker}"
_NO_COPY = (
    "no sound copy is left: restore the file from a backup of the location, or delete the records "
    "(`sparklog delete-records`) and produce them again"
)
_TRY = (
    "run `sparklog fsck --repair`, which looks whether the .log on broker {broker} has it: that one was not checked, "
    "since its own .index is lost. Do not delete the records before"
)
_ACTIONS = {
    kinds.UNREADABLE: "mend the storage or its credentials, and check again",
    kinds.DAMAGED_FILE: "nothing has to be done: the next rewrite of the segment mends it",
    kinds.DAMAGED_BATCH: "nothing has to be done",
}
OF_INDEX = (kinds.MISSING_INDEX, kinds.DAMAGED_INDEX, kinds.INDEX_MISMATCH)


def brokers_of(partition: PartitionState, segment: Segment) -> tuple[int, ...]:
    """The brokers that have to have a segment's file: those in sync, or where nobody is, the one it was written to."""
    return partition.isr or (segment.broker,)


def plan_copies(
    state: State, lists: Mapping[str, TopicSegments], is_wanted: Callable[[str, int], bool] = lambda topic, number: True
) -> Iterator[FileCopy]:
    """Each file on each broker that has to have it, by path; ``lists`` are the live segments by topic name."""
    by_path: dict[str, list[tuple[LiveRun, tuple[int, ...]]]] = {}
    for name, listed in lists.items():
        for number, partition in enumerate(state.topics[name].partitions):
            if is_wanted(name, number):
                for segment in listed.partition(number):
                    run = (LiveRun(name, segment), brokers_of(partition, segment))
                    by_path.setdefault(segment.path, []).append(run)
    for path, runs in by_path.items():
        runs.sort(key=lambda run: run[0].segment.first_batch)
        for broker in sorted({broker for _, brokers in runs for broker in brokers}):
            yield FileCopy(path, broker, tuple(run for run, brokers in runs if broker in brokers))


class Copies:
    """What was found of all copies, file by file. Not thread-safe. Of sound files only the checksums are kept."""

    def __init__(self) -> None:
        self._sums: dict[str, list[tuple[int, int, int]]] = {}
        self._runs: dict[str, LiveRun] = {}
        self._unsound: dict[str, list[CopyResult]] = {}
        self._sound: dict[str, list[int]] = {}

    def take(self, result: CopyResult) -> None:
        path = result.copy.path
        if not result.is_sound:
            self._unsound.setdefault(path, []).append(result)
            return
        self._sound.setdefault(path, []).append(result.copy.broker)
        self._sums.setdefault(path, []).append((result.copy.broker, result.log_crc32c, result.index_crc32c))
        self._runs[path] = result.copy.runs[0]

    def unsound(self) -> Iterator[tuple[list[CopyResult], list[int]]]:
        """The damaged copies of each file, and the brokers that have a sound one."""
        for path, results in self._unsound.items():
            yield results, sorted(self._sound.get(path, []))

    def findings(self) -> Iterator[Finding]:
        for results, sound in self.unsound():
            for result in results:
                yield from (judged(finding, results, sound) for finding in result.findings)
        for path, sums in self._sums.items():
            if len(sums) > 1:
                yield from _differences(path, sums, self._runs[path])


def judged(finding: Finding, copies: Sequence[CopyResult], sound: list[int]) -> Finding:
    """A finding of one copy in the light of the others: how bad it is, and where it can be repaired from."""
    if finding.kind == kinds.UNREADABLE:
        return replace(finding, severity=WARNING if sound else ERROR, action=_ACTIONS[kinds.UNREADABLE])
    source = sound[0] if sound else _source(finding, copies)
    if source >= 0:
        action = _RESTORE.format(broker=source)
        return replace(finding, severity=WARNING, repairable=True, action=action)
    if finding.severity != ERROR:
        return replace(finding, action=_ACTIONS.get(finding.kind, ""))
    unchecked = -1 if finding.kind in OF_INDEX else _unchecked(copies)
    return replace(finding, action=_NO_COPY if unchecked < 0 else _TRY.format(broker=unchecked))


def with_rebuild(finding: Finding, index: bytes, why: str) -> Finding:
    """A finding of an index that no copy has, once it is known whether it can be made from the ``.log``."""
    if index:
        action = f"run `sparklog fsck --repair`, which makes it from the .log: {why}"
        return replace(finding, severity=WARNING, repairable=True, action=action)
    return replace(finding, action=f"{finding.action}. It cannot be made from the .log: {why}")


def _unchecked(copies: Sequence[CopyResult]) -> int:
    """A broker whose ``.log`` is there and was not checked for want of an index, which another has; -1 for none."""
    if any(copy.has_index for copy in copies):
        for copy in copies:
            if not copy.has_index and all(found.kind in OF_INDEX for found in copy.findings):
                return copy.copy.broker
    return -1


def _source(finding: Finding, copies: Iterable[CopyResult]) -> int:
    """A broker that has what this finding misses, though its copy is not sound as a whole; -1 where none has."""
    for other in copies:
        if other.copy.broker == finding.broker:
            continue
        if finding.kind in OF_INDEX and other.has_index:
            return other.copy.broker
        if finding.kind == kinds.DAMAGED_BATCH and other.has(finding.batch):
            return other.copy.broker
        if finding.kind == kinds.DAMAGED_FILE and finding.batch < 0 and other.has(-1):
            return other.copy.broker
    return -1


def _differences(path: str, sums: list[tuple[int, int, int]], run: LiveRun) -> Iterator[Finding]:
    """Copies that are all sound in themselves and not the same: somebody wrote a file of this name again."""
    for which, key in ((1, path), (2, run.segment.index_path)):
        by_sum: dict[int, list[int]] = {}
        for copy in sums:
            if copy[which] != UNKNOWN:
                by_sum.setdefault(copy[which], []).append(copy[0])
        if len(by_sum) > 1:
            yield Finding(
                kind=kinds.REPLICAS_DIFFER,
                severity=ERROR,
                message="sound copies with different bytes: "
                + "; ".join(f"CRC32C {crc:#010x} on broker {_numbers(at)}" for crc, at in sorted(by_sum.items())),
                action="compare the records of the copies (`sparklog dump-log --print-data-log`), and remove the wrong "
                "one's broker from the partition's replicas (`sparklog reassign-partitions`)",
                path=key,
                topic=run.topic,
                partition=run.segment.partition,
                start_offset=run.segment.base_offset,
                end_offset=run.segment.end_offset,
            )
            return


def _numbers(brokers: list[int]) -> str:
    return ", ".join(map(str, sorted(brokers)))


def offline_brokers(state: State, unreachable: Mapping[int, str]) -> Iterator[Finding]:
    """Brokers whose copies cannot be checked: not online in the state, or not answering now."""
    for number, broker in sorted(state.brokers.items()):
        if broker.online and number not in unreachable:
            continue
        why = unreachable.get(number) or "its checks failed, so it is offline"
        yield Finding(
            kind=kinds.BROKER_OFFLINE,
            severity=INFO if not broker.online else WARNING,
            message=f"broker {number} ({broker.url or 'the root'}) was not checked: {why}",
            action="mend the location; once it answers its checks, the replication job brings it up to date",
            broker=number,
        )
