"""Check the invariants of every history, as Jepsen's workload for Kafka does: ``check(history)`` returns each violation
together with the operations that prove it.

    lost write                 acknowledged below the highest offset that was read, but never read
    unseen                     acknowledged, or read once, but not in the final read
    duplicate                  one value at two offsets
    inconsistent offsets       two values at one offset, or an acknowledgement that names another offset than the reads
    aborted read               a value was read whose write failed, was aborted, or whose commit was not yet requested
    torn transaction           some of a transaction's writes and group offsets are visible, and others are not
    non-monotonic poll         a consumer's offsets go back without a seek or a new assignment
    skipped poll               a consumer's offsets jump over records that exist
    zombie write               acknowledged although requested after a newer instance had fenced this one
    two owners                 two members own a partition in one generation at one time
    group offset going back    a group's committed offset falls without a reset

The checks are sound for overlapping operations and unknown outcomes: effects of an operation with an unknown outcome
are allowed, and never required. Rules follow the published description of Jepsen's workload (jepsen.tests.kafka), with
groups and fences added.

Not for: liveness (a run that does nothing is clean; look at ``History`` too), or retries of a producer that is not
idempotent, which are duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparklog.testing import group_checks, record_checks
from sparklog.testing.findings import FINDINGS, Finding, Index
from sparklog.testing.history import History

CHECKS: tuple[Callable[[Index], Iterable[Finding]], ...] = (
    record_checks.lost_writes,
    record_checks.unseen,
    record_checks.duplicates,
    record_checks.inconsistent_offsets,
    record_checks.aborted_reads,
    record_checks.torn_transactions,
    group_checks.polls,
    group_checks.zombie_producers,
    group_checks.zombie_members,
    group_checks.two_owners,
    group_checks.group_offsets_going_back,
)


def check(history: History) -> list[Finding]:
    """Return every violation in a history, by kind in the order of ``FINDINGS``."""
    index = Index(history)
    findings = [finding for run_check in CHECKS for finding in run_check(index)]
    return sorted(findings, key=lambda finding: FINDINGS.index(finding.kind))


def assert_clean(history: History, most: int = 10) -> None:
    """Raise AssertionError with the first ``most`` findings and their operations, if there are any."""
    findings = check(history)
    if findings:
        shown = "\n".join(map(str, findings[:most]))
        raise AssertionError(f"{len(findings)} findings in {len(history)} operations:\n{shown}")
