"""The findings of a check: each says what is wrong, where, which records it concerns, and what to do.

    kind                     what it is about                        repaired from
    cluster-file             cluster.json                            -
    damaged-commit           a commit's bytes                        a mirror of the commit log
    missing-commit           a number between others                 a mirror of the commit log
    broken-chain             commits that do not follow another      a mirror of the commit log
    damaged-boundary         boundary.json                           -
    commits-beyond-the-end   commits after the end of the log        - (they are moved away)
    newer-version            objects written by a later version      -
    lost-history             commits removed without a checkpoint    -
    damaged-checkpoint       a checkpoint's files                    the commits (it is removed)
    checkpoint-differs       a checkpoint's state or segments        the commits (it is removed)
    stale-hint               latest.json                             the checkpoints (it is removed)
    time-ahead               the log's time, ahead of the present    `sparklog cluster reset-time`
    segment-list             the list of live segments               the commits (checkpoints are removed)
    missing-log              a .log that does not exist              another replica
    missing-index            an .index that does not exist           another replica, or its .log
    damaged-batch            bytes of a record batch                 another replica
    damaged-file             a .log outside of its batches           another replica
    damaged-index            an .index                               another replica, or its .log
    index-mismatch           an index of another file                another replica, or its .log
    wrong-segment            a file other than the commit names      another replica
    replicas-differ          sound copies with different bytes       -
    unreadable               a storage that refused or failed        -
    missing-listing          a listing of retired files              -
    orphan-file              a file that is not part of the log      `sparklog vacuum`
    orphan-listing           a listing that nothing refers to        `sparklog vacuum`
    unknown-object           an object that is not sparklog's        -
    in-the-way               a file's name taken by another object   -
    damaged-table            a topic's Delta table                   - (delete its log, and it is published again)
    table-file-gone          a file that a Delta table lists         the next publication
    table-differs            a Delta table that is behind the log    the next publication
    broker-offline           a location that was not checked         -

Severities: an ``error`` means that records or history are lost unless they are restored from elsewhere; a ``warning``
means that all records exist, but a redundant copy or something that saves time is missing; ``info`` is worth knowing,
and nothing is wrong.

Rules: values only; every finding is picklable, and its JSON field names are part of the public interface
(docs/repair.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

ERROR = "error"
WARNING = "warning"
INFO = "info"
SEVERITIES = (ERROR, WARNING, INFO)

KINDS = (
    (CLUSTER_FILE := "cluster-file"),
    (DAMAGED_COMMIT := "damaged-commit"),
    (MISSING_COMMIT := "missing-commit"),
    (BROKEN_CHAIN := "broken-chain"),
    (COMMITS_BEYOND_THE_END := "commits-beyond-the-end"),
    (NEWER_VERSION := "newer-version"),
    (DAMAGED_BOUNDARY := "damaged-boundary"),
    (LOST_HISTORY := "lost-history"),
    (DAMAGED_CHECKPOINT := "damaged-checkpoint"),
    (CHECKPOINT_DIFFERS := "checkpoint-differs"),
    (STALE_HINT := "stale-hint"),
    (TIME_AHEAD := "time-ahead"),
    (SEGMENT_LIST := "segment-list"),
    (MISSING_LOG := "missing-log"),
    (MISSING_INDEX := "missing-index"),
    (DAMAGED_BATCH := "damaged-batch"),
    (DAMAGED_FILE := "damaged-file"),
    (DAMAGED_INDEX := "damaged-index"),
    (INDEX_MISMATCH := "index-mismatch"),
    (WRONG_SEGMENT := "wrong-segment"),
    (REPLICAS_DIFFER := "replicas-differ"),
    (UNREADABLE := "unreadable"),
    (MISSING_LISTING := "missing-listing"),
    (ORPHAN_FILE := "orphan-file"),
    (ORPHAN_LISTING := "orphan-listing"),
    (UNKNOWN_OBJECT := "unknown-object"),
    (IN_THE_WAY := "in-the-way"),
    (DAMAGED_TABLE := "damaged-table"),
    (TABLE_FILE_GONE := "table-file-gone"),
    (TABLE_DIFFERS := "table-differs"),
    (BROKER_OFFLINE := "broker-offline"),
)
"""In the order of a report."""

LOST_COPIES = (MISSING_LOG, MISSING_INDEX, DAMAGED_BATCH, DAMAGED_FILE, DAMAGED_INDEX, INDEX_MISMATCH, WRONG_SEGMENT)
"""Findings about a copy of a data file whose records cannot be read there."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. Fields that do not apply are empty, or -1.

    ``path`` is a key below the location of ``broker``, or below the root if that is -1. ``start_offset`` and
    ``end_offset`` bound the records concerned, the end not included; ``version`` is that of a commit or a checkpoint;
    ``batch`` is the number of a batch in the file. ``action`` says what to do. ``repairable``: ``--repair`` can repair
    it.
    """

    kind: str
    severity: str
    message: str
    action: str = ""
    repairable: bool = False
    path: str = ""
    broker: int = -1
    topic: str = ""
    partition: int = -1
    start_offset: int = -1
    end_offset: int = -1
    version: int = -1
    batch: int = -1

    @property
    def subject(self) -> str:
        """The partition, topic or broker that is concerned, or "metadata", as text."""
        if self.topic:
            return f"{self.topic}-{self.partition}" if self.partition >= 0 else self.topic
        return f"broker {self.broker}" if self.broker >= 0 else "metadata"


class Checked(msgspec.Struct, kw_only=True):
    """What was checked; bytes are those of ``.log`` and ``.index`` files that were read."""

    commits: int = 0
    checkpoints: int = 0
    topics: int = 0
    partitions: int = 0
    segments: int = 0
    files: int = 0
    batches: int = 0
    bytes: int = 0


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What was done about findings, or would be in a dry run; ``done`` is false for what was refused or only
    planned."""

    what: str
    path: str
    broker: int = -1
    done: bool = True
    why_not: str = ""


class Report(msgspec.Struct, kw_only=True):
    """The result of one check. ``version`` is the newest commit that was checked.

    After a repair ``left`` are the findings of a second check; None if nothing was repaired.
    """

    root: str
    cluster_id: str = ""
    version: int = -1
    fast: bool = False
    checked: Checked = msgspec.field(default_factory=Checked)
    findings: list[Finding] = msgspec.field(default_factory=list)
    repairs: list[Repair] = msgspec.field(default_factory=list)
    left: list[Finding] | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, or nothing is left after a repair; notes do not count."""
        findings = self.findings if self.left is None else self.left
        return all(finding.severity == INFO for finding in findings)

    def of_kind(self, *kinds: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind in kinds]


def sort_key(finding: Finding) -> tuple[Any, ...]:
    """Return the sort key of a finding in reports: the worst first, then by topic, partition and offset."""
    return (
        SEVERITIES.index(finding.severity),
        finding.topic,
        finding.partition,
        finding.start_offset,
        KINDS.index(finding.kind),
        finding.version,
        finding.broker,
        finding.path,
        finding.batch,
    )


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings as a report lists them, and drop duplicates."""
    return sorted(set(findings), key=sort_key)


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """Return the number of findings of each severity, the worst first."""
    return {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}
