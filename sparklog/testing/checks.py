"""What must hold of every history, in the manner of Jepsen's workload for Kafka: ``check(history)`` returns each breach
together with the operations that prove it.

    lost write                 acknowledged below the highest offset that was read, and read by nobody
    unseen                     acknowledged, or read once, and not in the final read
    duplicate                  one value at two offsets
    inconsistent offsets       two values at one offset, or an acknowledgement that names another offset than the reads
    aborted read               a value was read whose write failed, was aborted, or was not asked to commit yet
    torn transaction           some of a transaction's writes and group offsets are visible, and others are not
    non-monotonic poll         a consumer's offsets go back without a seek or a new assignment
    skipped poll               a consumer's offsets jump over records that exist
    zombie write               acknowledged though asked for after a newer instance had fenced this one
    two owners                 two members own a partition in one generation at one time
    group offset going back    a group's committed offset falls without a reset

Everything here is sound for operations that overlap and for outcomes that nobody knows: what may have happened is
allowed, and never required. Rules follow the published description of Jepsen's workload (jepsen.tests.kafka), with
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
    group_checks.zombies,
    group_checks.two_owners,
    group_checks.group_offsets_going_back,
)


def check(history: History) -> list[Finding]:
    """Every breach in a history, by kind in the order of ``FINDINGS``."""
    index = Index(history)
    found = [finding for one in CHECKS for finding in one(index)]
    return sorted(found, key=lambda finding: FINDINGS.index(finding.kind))


def assert_clean(history: History, most: int = 10) -> None:
    """Raise AssertionError that shows the first findings with their operations, if there are any."""
    found = check(history)
    if found:
        shown = "\n".join(map(str, found[:most]))
        raise AssertionError(f"{len(found)} findings in {len(history)} operations:\n{shown}")
