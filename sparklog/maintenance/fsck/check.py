"""Checks a cluster: the metadata first, then the segment lists, then every data file on every in-sync replica.

    check = check_cluster(store, Scope(topics=["orders"]), runner=ProcessPool(2))
    check.report.findings

Data files are read as tasks, by any task runner (``runner``, or Spark). The cluster may be in use during the check:
findings about files that have left the log by the end are dropped, and so are orphans that were committed since.

Rules: reads only; works on clusters that cannot be opened. Progress is reported in bytes.
Not for: repairs (``repair``), and how a report looks (``report``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.coordinator.broker_stores import BrokerStores
from sparklog.coordinator.health import check_identity
from sparklog.errors import (
    ClusterMovedError,
    CorruptMetadataError,
    InvalidRequestError,
    SparklogError,
    StorageError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck.file_checks import FileCopy, check_files, plan_tasks
from sparklog.maintenance.fsck.index_repair import Rebuilt, rebuild_from_log
from sparklog.maintenance.fsck.kinds import (
    ERROR,
    LOST_COPIES,
    MISSING_LOG,
    TABLE_DIFFERS,
    TABLE_FILE_GONE,
    TIME_AHEAD,
    WARNING,
    Checked,
    Finding,
    Report,
    in_order,
)
from sparklog.maintenance.fsck.list_checks import check_lists
from sparklog.maintenance.fsck.metadata_checks import FoundMetadata, Progress, catch_up, check_metadata, no_progress
from sparklog.maintenance.fsck.orphan_checks import (
    Accounted,
    keep_beside_lost,
    read_listings,
    still_unaccounted,
    unaccounted,
)
from sparklog.maintenance.fsck.replica_checks import (
    OF_INDEX,
    Copies,
    offline_brokers,
    plan_copies,
    with_rebuild,
    with_retired,
    without_retired,
)
from sparklog.maintenance.fsck.retired_sources import RetiredSources
from sparklog.maintenance.fsck.table_checks import check_tables
from sparklog.maintenance.runner import InProcess, TaskRunner
from sparklog.protocol.commits import commit_key
from sparklog.protocol.file_names import log_path_of
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.open import open_store

TASK_BYTES = 256 * 1024 * 1024
"""Bytes of data files in one task: some tenths of a second on a local disk, some seconds on an object store."""

MIN_TASKS = 64
"""Number of tasks into which smaller clusters are split, for several processes to share and for progress reports."""


@dataclass(frozen=True)
class Scope:
    """What to check. No ``topics`` means all of them; ``partitions`` are numbers, of every topic. ``fast``: skip the
    checksums of batches."""

    topics: Collection[str] = ()
    partitions: Collection[int] = ()
    fast: bool = False

    @property
    def is_all(self) -> bool:
        return not self.topics and not self.partitions

    def holds(self, topic: str, partition: int) -> bool:
        return (not self.topics or topic in self.topics) and (not self.partitions or partition in self.partitions)


@dataclass
class Check:
    """A finished check: the report, and what a repair needs. ``unreachable`` has the error of each failed broker."""

    store: Store
    scope: Scope
    report: Report
    metadata: FoundMetadata
    copies: Copies
    stores: dict[int, Store] = field(default_factory=dict)
    unreachable: dict[int, str] = field(default_factory=dict)
    storage_options: Mapping[str, object] | None = None


def check_cluster(
    root: Store | str,
    scope: Scope | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    runner: TaskRunner | None = None,
    progress: Progress = no_progress,
    clock: Clock | None = None,
) -> Check:
    """Check the cluster at a root: a URL, a folder, or a store.

    Raises ClusterNotFoundError, ClusterMovedError, UnsupportedVersionError, UnknownTopicOrPartitionError for a topic of
    the scope that does not exist, or StorageError if the root itself cannot be read.
    """
    store = open_store(root, storage_options) if isinstance(root, str) else root
    scope = scope or Scope()
    metadata = check_metadata(store, progress)
    if metadata.state.moved_to:
        moved = f"cluster {metadata.state.cluster_id} has moved from {store.root} to {metadata.state.moved_to}"
        raise ClusterMovedError(f"{moved}; check it there", path=store.root)
    if not metadata.newer:
        _check_scope(scope, metadata.state)
    cluster_id, version = metadata.state.cluster_id, metadata.state.version
    report = Report(root=store.root, cluster_id=cluster_id, version=version, fast=scope.fast)
    check = Check(store, scope, report, metadata, Copies(), storage_options=storage_options)
    if metadata.newer:  # only the later version of sparklog knows which files there should be
        report.findings = in_order(metadata.findings)
        return check
    _open_stores(check, BrokerStores(store, clock or SystemClock(), storage_options))
    findings = [
        *metadata.findings,
        *_check_time(check, clock or SystemClock()),
        *_check_lists(check),
        *_check_files(check, runner or InProcess(), progress),
    ]
    report.findings = in_order(findings)
    return check


def _check_time(check: Check, clock: Clock) -> Iterator[Finding]:
    """Check that the log's time is not ahead of both this machine's clock and the storage's time of the newest commit;
    either may be wrong alone."""
    state = check.metadata.state
    written_ms = 0
    with suppress(StorageError):
        written_ms = check.store.info(commit_key(state.version)).modified_ms
    ahead_ms = state.timestamp_ms - max(clock.now_ms(), written_ms)
    if ahead_ms > limits.MAX_CLOCK_SKEW_MS:
        yield Finding(
            kind=TIME_AHEAD,
            severity=WARNING,
            message=f"the log's time is {ahead_ms // 1000} s ahead: a machine with a wrong clock has committed, and "
            "all commits since have later times; record timestamps taken from them and all expirations are off by as "
            "much",
            action="set the clock of that machine (the commits name their writers), then run `sparklog cluster "
            "reset-time`",
            path=commit_key(state.version),
            version=state.version,
        )


def _check_scope(scope: Scope, state: State) -> None:
    for topic in scope.topics:
        partitions = state.topic(topic).partitions
        missing = [number for number in scope.partitions if not 0 <= number < len(partitions)]
        if missing:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {missing[0]}", topic=topic, partition=missing[0]
            )
    if any(number < 0 for number in scope.partitions):
        raise InvalidRequestError(f"invalid partition {min(scope.partitions)}: partitions are numbered from 0")


def _open_stores(check: Check, brokers: BrokerStores) -> None:
    """Open the locations that can be checked; record the errors of the others."""
    state = check.metadata.state
    for number, broker in state.brokers.items():
        try:
            store = brokers.store_of(state, number)
            check_identity(store, state.cluster_id, number, broker.url)
        except SparklogError as error:
            check.unreachable[number] = str(error)
        else:
            if broker.online:
                check.stores[number] = store
    if not state.brokers:  # the first commit cannot be read
        check.stores[0] = check.store


def _check_lists(check: Check) -> Iterator[Finding]:
    metadata = check.metadata
    check.report.checked = Checked(
        commits=metadata.commits,
        checkpoints=len(metadata.checkpoints),
        topics=len(metadata.state.topics),
        partitions=sum(len(topic.partitions) for topic in metadata.state.topics.values()),
        segments=sum(p.segments for topic in metadata.state.topics.values() for p in topic.partitions),
    )
    return check_lists(metadata.state, metadata.lists)


def _check_files(check: Check, runner: TaskRunner, progress: Progress) -> list[Finding]:
    """Check the data files, and find orphans beside them."""
    metadata = check.metadata
    lists = _select_sound_lists(metadata)
    orphans = _find_orphans(check, lists) if check.scope.is_all else []
    _run_tasks(check, list(plan_copies(metadata.state, lists, check.stores, check.scope.holds)), runner, progress)
    gone = _drop_gone(check)
    of_copies = _try_rebuilds(check, [finding for finding in check.copies.findings() if finding.broker not in gone])
    of_copies = [_without_deleted(finding, metadata.state) for finding in _try_retired(check, of_copies)]
    lost = {finding.path: finding.severity for finding in of_copies if finding.kind == MISSING_LOG}
    orphans = [keep_beside_lost(orphan, lost) for orphan in orphans]
    tables = check_tables(check.store, check.stores, metadata.state, lists, check.scope.topics)
    tables = (_without_publication(finding, lost) for finding in tables)
    findings = [*offline_brokers(metadata.state, check.unreachable), *of_copies, *orphans, *tables]
    if not findings:
        return []
    return _drop_outdated(check, findings)


def _check_mounted(check: Check, broker: int) -> None:
    """Raise BrokerNotAvailableError if the location of a broker is another one by now, or its disk is not mounted."""
    state = check.metadata.state
    check_identity(check.stores[broker], state.cluster_id, broker, state.brokers[broker].url if state.brokers else "")


def _drop_gone(check: Check) -> set[int]:
    """Leave out the locations that were unmounted or swapped while they were read: what was missing there proves
    nothing. Return their brokers."""
    gone: set[int] = set()
    for broker in list(check.stores):
        try:
            _check_mounted(check, broker)
        except SparklogError as error:
            check.unreachable[broker] = str(error)
            check.stores.pop(broker)
            gone.add(broker)
    return gone


def _try_rebuilds(check: Check, findings: list[Finding]) -> list[Finding]:
    """Try to rebuild each index without a sound copy from its ``.log``; add the result to its finding."""
    rebuilt: dict[str, Rebuilt] = {}
    runs = {
        copies[0].copy.path: copies[0].copy.runs
        for copies, _ in check.copies.unsound()
        if not all(any(finding.kind == MISSING_LOG for finding in copy.findings) for copy in copies)
    }
    updated: list[Finding] = []
    for finding in findings:
        if finding.kind in OF_INDEX and not finding.repairable:
            path = log_path_of(finding.path)
            if path not in rebuilt and path in runs:
                try:
                    rebuilt[path] = rebuild_from_log(check.store, check.stores, path, runs[path])
                except SparklogError as error:
                    rebuilt[path] = Rebuilt(b"", str(error))
            finding = with_rebuild(finding, *rebuilt.get(path, Rebuilt(b"", "it is missing too")))
        updated.append(finding)
    return updated


def _try_retired(check: Check, findings: list[Finding]) -> Iterator[Finding]:
    """Look for the retired files from which files without a sound copy can be written again; add that to their
    findings."""
    sources = RetiredSources(check.store, check.metadata.state, check.stores, check.scope.fast)
    runs = {copies[0].copy.path: copies[0].copy.runs for copies, _ in check.copies.unsound()}
    for finding in findings:
        is_lost = finding.severity == ERROR and not finding.repairable and finding.start_offset >= 0
        of_finding = [
            run
            for run in runs.get(log_path_of(finding.path), ())
            if run.topic == finding.topic and run.segment.partition == finding.partition
        ]
        if is_lost and finding.kind in LOST_COPIES and of_finding:
            origins = [sources.find(run.topic, run.segment) for run in of_finding]
            refused = [origin.why_not for origin in origins if origin.why_not and not origin.has_none]
            if refused:
                finding = without_retired(finding, refused[0])
            elif not any(origin.has_none for origin in origins):
                finding = with_retired(finding, sum(len(origin.sources) for origin in origins))
        yield finding


def _without_publication(finding: Finding, missing: Mapping[str, str]) -> Finding:
    """Return a finding about a table without the hint that a publication mends it, if the log misses the file, too.
    ``missing`` has the severity of what is said about that."""
    if finding.kind != TABLE_FILE_GONE or finding.path not in missing:
        return finding
    action = "follow what is said about this file as one of the log; no publication mends the table before"
    return replace(finding, severity=missing[finding.path], action=action)


def _without_deleted(finding: Finding, state: State) -> Finding:
    """Return a finding about a file, in other words if all its records were deleted: only the file is still listed."""
    if finding.start_offset < 0 or not finding.topic or finding.severity != ERROR:
        return finding
    if finding.end_offset > state.partition(finding.topic, finding.partition).log_start_offset:
        return finding
    action = "these records are deleted; run `sparklog maintain --once`, which takes the file out of the log"
    return replace(finding, severity=WARNING, action=action)


def _select_sound_lists(metadata: FoundMetadata) -> dict[str, TopicSegments]:
    """Return the segment lists that are as long as the state says; the others are findings already."""
    sound = {}
    for name, listed in metadata.lists.items():
        try:
            for number in range(len(metadata.state.topics[name].partitions)):
                listed.partition(number)
        except CorruptMetadataError:
            continue
        sound[name] = listed
    return sound


def _find_orphans(check: Check, lists: Mapping[str, TopicSegments]) -> list[Finding]:
    """Find orphans, but only if all lists are sound, else all files of a topic could be taken for orphans."""
    metadata = check.metadata
    if len(lists) < len(metadata.lists) or not metadata.is_whole:
        return []
    accounted = Accounted(metadata.state, lists)
    findings = list(read_listings(check.store, metadata.state, accounted))
    for broker, store in sorted(check.stores.items()):
        try:
            is_root = store.root == check.store.root  # not by the state, which has no brokers if all commits are gone
            unaccounted_here = list(unaccounted(store, broker, accounted, metadata.state.removed_files, is_root))
            _check_mounted(check, broker)
            findings += unaccounted_here
        except SparklogError as error:
            check.unreachable[broker] = str(error)
    for broker in check.unreachable:
        check.stores.pop(broker, None)
    return findings


def _run_tasks(check: Check, copies: list[FileCopy], runner: TaskRunner, progress: Progress) -> None:
    checked, total = check.report.checked, sum(copy.size_bytes for copy in copies)
    size = min(TASK_BYTES, max(total // MIN_TASKS, 1024 * 1024))
    done = 0
    progress("bytes", 0, total)
    for results in runner.run(check_files, plan_tasks(copies, check.stores, size, check.scope.fast)):
        for result in results:
            check.copies.take(result)
            checked.files += 1
            checked.batches += result.batches
            checked.bytes += result.bytes_read
            done += result.copy.size_bytes
        progress("bytes", done, total)


def _drop_outdated(check: Check, findings: list[Finding]) -> list[Finding]:
    """Drop the findings that no longer hold, because of commits since the check began."""
    newer = catch_up(check.store, check.metadata)
    if newer.state.version == check.metadata.state.version or not check.metadata.is_whole:
        return findings
    accounted = Accounted(newer.state, _select_sound_lists(newer))
    list(read_listings(check.store, newer.state, accounted))
    return [
        finding
        for finding in findings
        if finding.kind != TABLE_DIFFERS  # from a log that has changed since
        and still_unaccounted(finding, accounted)
        and (finding.start_offset < 0 or log_path_of(finding.path) in accounted.live)
    ]
