"""Repairs what a check has found, and checks it again.

    check = check_cluster(store)
    repair_cluster(check, runner=ProcessPool(2))
    check.report.repairs, check.report.left

The metadata come first, since they say which data files there should be. Each file is a task, which verifies the copies
again before it writes, so a repair never acts on an outdated report.

Rules: never guesses; what cannot be repaired is reported with the reason. May be killed at every step and run again.
Not for: what is wrong (``check``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.ids import Ids, RandomIds
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.check import TASK_BYTES, Check
from sparklog.maintenance.fsck.file_checks import FileCopy, check_copy, check_files, plan_tasks
from sparklog.maintenance.fsck.file_repair import RepairTask, repair_file
from sparklog.maintenance.fsck.kinds import Finding, Repair, in_order
from sparklog.maintenance.fsck.list_checks import check_lists
from sparklog.maintenance.fsck.metadata_checks import FoundMetadata, Progress, catch_up, check_metadata, no_progress
from sparklog.maintenance.fsck.metadata_repair import end_log_at, repair_metadata
from sparklog.maintenance.fsck.replica_checks import Copies, plan_copies
from sparklog.maintenance.fsck.retired_sources import RetiredSources, refuse_rewrite, rewrite_lost
from sparklog.maintenance.runner import InProcess, TaskRunner
from sparklog.protocol.file_names import log_path_of
from sparklog.store.base import Store

_OF_FILES = (*kinds.LOST_COPIES, kinds.UNREADABLE, kinds.REPLICAS_DIFFER)


def repair_cluster(
    check: Check,
    *,
    mirrors: Sequence[Store] = (),
    runner: TaskRunner | None = None,
    progress: Progress = no_progress,
    dry_run: bool = False,
    ids: Ids | None = None,
    end_at: int | None = None,
) -> None:
    """Repair what ``check`` has found; add the repairs, and the findings that are left, to its report.

    ``mirrors`` are copies of the commit log. ``end_at``: first remove everything after this version from the log.
    Raises StorageError if the root fails; repairs made by then remain.
    """
    report, runner = check.report, runner or InProcess()
    metadata = check.metadata
    if end_at is not None:
        report.repairs += end_log_at(check.store, end_at, dry_run)
        metadata = metadata if dry_run else check_metadata(check.store)
    whole = check.scope.is_all and not check.report.of_kind(kinds.MISSING_LOG)
    report.repairs += repair_metadata(check.store, metadata, ids or RandomIds(), mirrors, dry_run, whole)
    if metadata.newer:
        report.left = None if dry_run else in_order(metadata.findings)
        return
    if not dry_run and any(repair.done for repair in report.repairs):
        metadata = check_metadata(check.store)
    tasks = list(_plan_tasks(check, catch_up(check.store, metadata), dry_run))
    progress("files", 0, len(tasks))
    file_repairs: list[Repair] = []
    for done, repairs in enumerate(runner.run(repair_file, tasks), 1):
        file_repairs += repairs
        progress("files", done, len(tasks))
    rewritten = list(_rewrite_lost(check, tasks, dry_run))
    lost = {repair.path for repair in rewritten if not repair.why_not}
    report.repairs += sorted(
        (repair for repair in file_repairs if repair.done or log_path_of(repair.path) not in lost),
        key=lambda repair: (repair.path, repair.broker),
    )
    report.repairs += rewritten
    if not dry_run:
        report.left = in_order(_check_again(check, check_metadata(check.store), runner))


def _plan_tasks(check: Check, metadata: FoundMetadata, dry_run: bool) -> Iterator[RepairTask]:
    """Return a task for each file that is still live and has unsound copies, with all locations that may have it."""
    unsound = {copies[0].copy.path for copies, _ in check.copies.unsound()}
    by_path: dict[str, list[FileCopy]] = {}
    for copy in plan_copies(metadata.state, metadata.lists, check.stores):
        if copy.path in unsound:
            by_path.setdefault(copy.path, []).append(copy)
    for path, targets in by_path.items():
        yield RepairTask(check.store, dict(sorted(check.stores.items())), path, tuple(targets), dry_run)


def _rewrite_lost(check: Check, tasks: Sequence[RepairTask], dry_run: bool) -> Iterator[Repair]:
    """Write the segments again whose files no broker has sound by now, from retired files, where these are there."""
    coordinator: Coordinator | None = None
    for task in tasks:
        copies = [FileCopy(task.path, copy.broker, tuple(task.runs)) for copy in task.targets]
        results = [check_copy(task.stores[copy.broker], copy, check.scope.fast) for copy in copies]
        if any(result.is_sound for result in results):
            continue
        sources = RetiredSources(check.store, check.metadata.state, check.stores)
        for origin in (sources.find(run.topic, run.segment) for run in task.runs):
            if origin.has_none:
                continue
            if origin.why_not:
                yield refuse_rewrite(origin)
                continue
            coordinator = coordinator or open_cluster(check.store, check.storage_options)
            yield rewrite_lost(coordinator, origin, dry_run)


def _check_again(check: Check, metadata: FoundMetadata, runner: TaskRunner) -> Iterator[Finding]:
    """Return what a check of the same scope finds now; files that were sound are not read again."""
    yield from metadata.findings
    yield from check_lists(metadata.state, metadata.lists)
    paths = {finding.path.removesuffix(".index").removesuffix(".log") for finding in check.report.of_kind(*_OF_FILES)}
    live = plan_copies(metadata.state, metadata.lists, check.stores)
    copies = [copy for copy in live if copy.path.removesuffix(".log") in paths]
    checked = Copies()
    for results in runner.run(check_files, plan_tasks(copies, check.stores, TASK_BYTES, check.scope.fast)):
        for result in results:
            checked.take(result)
    yield from checked.findings()
    of_metadata = set(check.metadata.findings)
    yield from (
        finding
        for finding in check.report.findings
        if finding not in of_metadata and finding.kind not in (*_OF_FILES, kinds.SEGMENT_LIST)
    )
