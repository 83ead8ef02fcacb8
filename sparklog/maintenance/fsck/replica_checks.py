"""Decides which brokers should have which files, and compares the copies of a file.

Every in-sync replica of a partition has every live segment under the same path, byte for byte. So a damaged copy can be
repaired from another, batch by batch if necessary; what is damaged in all copies is lost.

Rules: pure; takes the results of ``file_checks`` tasks in any order.
Not for: reading files (``file_checks``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sparklog.coordinator.live_files import live_partitions
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.file_checks import UNKNOWN, CopyCheck, FileCopy, LiveRun
from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Finding
from sparklog.protocol.state import State

_RESTORE = "run `sparklog fsck --repair`, which copies it from broker {broker}"
_NO_COPY = (
    "no sound copy is left: restore the file from a backup of the location, or delete the records "
    "(`sparklog delete-records`) and produce them again"
)
_TRY = (
    "run `sparklog fsck --repair`, which checks whether the .log on broker {broker} has it: that copy was not checked, "
    "since its .index is lost. Do not delete the records before"
)
_ACTIONS = {
    kinds.UNREADABLE: "fix the storage or its credentials, and check again",
    kinds.DAMAGED_FILE: "no action is needed: the next rewrite of the segment repairs it",
    kinds.DAMAGED_BATCH: "no action is needed",
}
OF_INDEX = (kinds.MISSING_INDEX, kinds.DAMAGED_INDEX, kinds.INDEX_MISMATCH)


def plan_copies(
    state: State,
    lists: Mapping[str, TopicSegments],
    brokers: Container[int],
    is_wanted: Callable[[str, int], bool] = lambda topic, number: True,
) -> Iterator[FileCopy]:
    """Return each file at each of these brokers that should have it, by path: those in the ISR, or if it is empty, the
    broker that it was written to. ``lists`` are the live segments by topic name."""
    by_path: dict[str, list[tuple[LiveRun, tuple[int, ...]]]] = {}
    for partition in live_partitions(state, lists):
        if is_wanted(partition.topic, partition.number):
            for segment in partition.segments:
                replicas = partition.state.isr or (segment.broker,)
                by_path.setdefault(segment.path, []).append((LiveRun(partition.topic, segment), replicas))
    for path, runs in by_path.items():
        runs.sort(key=lambda run: run[0].segment.first_batch)
        for broker in sorted({broker for _, replicas in runs for broker in replicas if broker in brokers}):
            yield FileCopy(path, broker, tuple(run for run, replicas in runs if broker in replicas))


class Copies:
    """The results for all copies, file by file; of sound files only the checksums are kept. Not thread-safe."""

    def __init__(self) -> None:
        self._sums: dict[str, list[tuple[int, int, int]]] = {}
        self._runs: dict[str, LiveRun] = {}
        self._unsound: dict[str, list[CopyCheck]] = {}

    def take(self, result: CopyCheck) -> None:
        path = result.copy.path
        if not result.is_sound:
            self._unsound.setdefault(path, []).append(result)
            return
        self._sums.setdefault(path, []).append((result.copy.broker, result.log_crc32c, result.index_crc32c))
        self._runs[path] = result.copy.runs[0]

    def unsound(self) -> Iterator[tuple[list[CopyCheck], list[int]]]:
        """Return the damaged copies of each file, and the brokers that have a sound one."""
        for path, results in self._unsound.items():
            yield results, sorted(broker for broker, _, _ in self._sums.get(path, ()))

    def findings(self) -> Iterator[Finding]:
        for results, sound in self.unsound():
            for result in results:
                yield from (assess(finding, results, sound) for finding in result.findings)
        for path, sums in self._sums.items():
            if len(sums) > 1:
                yield from _find_differences(path, sums, self._runs[path])


def assess(finding: Finding, copies: Sequence[CopyCheck], sound: list[int]) -> Finding:
    """Return a finding about one copy with its severity and action, given the other copies."""
    if finding.kind == kinds.UNREADABLE:
        return replace(finding, severity=WARNING if sound else ERROR, action=_ACTIONS[kinds.UNREADABLE])
    source = sound[0] if sound else _find_source(finding, copies)
    if source >= 0:
        action = _RESTORE.format(broker=source)
        return replace(finding, severity=WARNING, repairable=True, action=action)
    if finding.severity != ERROR:
        return replace(finding, action=_ACTIONS.get(finding.kind, ""))
    unchecked = -1 if finding.kind in OF_INDEX else _find_unchecked(copies)
    return replace(finding, action=_NO_COPY if unchecked < 0 else _TRY.format(broker=unchecked))


def with_rebuild(finding: Finding, index: bytes, why: str) -> Finding:
    """Return a finding about an index that no copy has, with the result of rebuilding it from the ``.log``."""
    if index:
        action = f"run `sparklog fsck --repair`, which rebuilds it from the .log: {why}"
        return replace(finding, severity=WARNING, repairable=True, action=action)
    return replace(finding, action=f"{finding.action}. It cannot be rebuilt from the .log: {why}")


def with_retired(finding: Finding, segments: int) -> Finding:
    """Return a finding about a file that no broker has sound, if its records are in retired files. It remains an error:
    as long as nobody repairs it, they cannot be read."""
    action = (
        f"run `sparklog fsck --repair`, which writes these offsets again from the {segments} retired segments that the "
        "file replaced: they are still there, and sound"
    )
    return replace(finding, repairable=True, action=action)


def without_retired(finding: Finding, why_not: str) -> Finding:
    """Return a finding about a file that no broker has sound, with why the files that it replaced cannot be used."""
    return replace(finding, action=f"{finding.action}. It cannot be written again from retired files: {why_not}")


def _find_unchecked(copies: Sequence[CopyCheck]) -> int:
    """Return a broker whose ``.log`` exists but was not checked, lacking an index that another broker has; -1 for
    none."""
    if any(copy.has_index for copy in copies):
        for copy in copies:
            if not copy.has_index and all(finding.kind in OF_INDEX for finding in copy.findings):
                return copy.copy.broker
    return -1


def _find_source(finding: Finding, copies: Iterable[CopyCheck]) -> int:
    """Return a broker that has what this copy lacks, though its own copy is not sound as a whole; -1 for none."""
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


def _find_differences(path: str, sums: list[tuple[int, int, int]], run: LiveRun) -> Iterator[Finding]:
    """Find copies that are each sound but not identical: a file of this name was written twice."""
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
    """Return a finding for each broker that cannot be checked: offline in the state, or not answering now."""
    for number, broker in sorted(state.brokers.items()):
        if broker.online and number not in unreachable:
            continue
        why = unreachable.get(number) or "its checks failed, so it is offline"
        yield Finding(
            kind=kinds.BROKER_OFFLINE,
            severity=INFO if not broker.online else WARNING,
            message=f"broker {number} ({broker.url or 'the root'}) was not checked: {why}",
            action="fix the location; once it passes its checks, the replication job brings it up to date",
            broker=number,
        )
