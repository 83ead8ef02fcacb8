"""Prints the report of a check, as text and as JSON.

Text: the worst findings first, by partition, similar findings together, with the offsets concerned and what to do.
JSON: the fields of ``kinds.Finding``, ``Checked`` and ``Repair`` (docs/repair.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from sparklog.maintenance.fsck.kinds import (
    ERROR,
    INFO,
    NEWER_VERSION,
    WARNING,
    Finding,
    Repair,
    Report,
    counts,
    in_order,
)
from sparklog.progress import size

SHOWN = 5
"""Findings of one kind and one partition that are printed one by one."""

_HEADINGS = {
    ERROR: "ERRORS: records or history are lost, unless they are restored from elsewhere",
    WARNING: "WARNINGS: all records are intact, but a redundant copy or something that saves time is missing",
    INFO: "NOTES: nothing is wrong",
}
_NOT_CHECKED = "WARNINGS: what a later version of sparklog wrote was not checked, nor what depends on it"
_BESIDE_ERRORS = "WARNINGS: beside the errors, a redundant copy or something that saves time is missing"


def to_json(report: Report) -> str:
    """Return the report as one JSON object; later versions add fields, and never rename them."""
    return json.dumps(
        {"clean": report.clean, "counts": counts(report.findings), **msgspec.to_builtins(report)}, indent=1
    )


def to_text(report: Report) -> Iterator[str]:
    """Return the report as lines of text."""
    yield f"Cluster {report.cluster_id or '(unknown)'} at {report.root}, version {report.version}"
    yield f"Checked {_checked(report)}"
    yield ""
    yield from _findings(report.findings)
    if report.repairs:
        yield "REPAIRS"
        yield from (f"  {_repair(repair)}" for repair in report.repairs)
        yield ""
    if report.left is not None and report.repairs:
        yield "AFTER THE REPAIR"
        yield ""
        yield from _findings(report.left)
    yield summary(report)


def _checked(report: Report) -> str:
    checked = report.checked
    parts = [
        _count(checked.commits, "commit"),
        _count(checked.checkpoints, "checkpoint"),
        f"{_count(checked.segments, 'segment')} in {_count(checked.partitions, 'partition')}",
        f"{_count(checked.files, 'copy', 'copies')} of data files ({size(checked.bytes)})",
    ]
    how = (
        ", without the checksums of batches (--fast)"
        if report.fast
        else f", {_count(checked.batches, 'batch', 'batches')}"
    )
    return ", ".join(parts) + how


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def summary(report: Report) -> str:
    """Return the last line: the number of findings of each severity."""
    findings = report.findings if report.left is None else report.left
    numbers = counts(findings)
    if report.clean:
        return "Clean." if not findings else f"Clean; {_count(numbers[INFO], 'note')}."
    text = f"{_count(numbers[ERROR], 'error')}, {_count(numbers[WARNING], 'warning')}, {_count(numbers[INFO], 'note')}."
    repairable = sum(finding.repairable for finding in findings)
    return text + (
        f" {repairable} of them can be repaired with --repair." if repairable and report.left is None else ""
    )


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    for severity, by_severity in groupby(in_order(findings), key=lambda finding: finding.severity):
        yield _heading(severity, findings)
        for subject, by_subject in groupby(by_severity, key=lambda finding: finding.subject):
            yield f"  {subject}"
            for _, similar in groupby(sorted(by_subject, key=_similarity_key), key=_similarity_key):
                yield from _similar_findings(list(similar))
        yield ""


def _heading(severity: str, findings: Sequence[Finding]) -> str:
    """Return the heading of a severity; that all records are intact only if they were checked, and are."""
    if severity == WARNING and any(finding.kind == NEWER_VERSION for finding in findings):
        return _NOT_CHECKED
    if severity == WARNING and any(finding.severity == ERROR for finding in findings):
        return _BESIDE_ERRORS
    return _HEADINGS[severity]


def _similarity_key(finding: Finding) -> tuple[str, str]:
    return finding.kind, finding.action


def _similar_findings(findings: list[Finding]) -> Iterator[str]:
    """Return the lines about findings of one kind with the same action."""
    for finding in findings[:SHOWN]:
        yield f"    {finding.kind}{_offsets(finding)}: {finding.message}"
        if finding.path:
            yield f"      {_where(finding)}"
    if len(findings) > SHOWN:
        first = min((finding.start_offset for finding in findings if finding.start_offset >= 0), default=-1)
        last = max(finding.end_offset for finding in findings)
        where = f", in all of offsets {first} to {last - 1}" if first >= 0 else ""
        yield f"    and {len(findings) - SHOWN:,} more of {findings[0].kind}{where} (--json lists them)"
    if findings[0].action:
        yield f"      -> {findings[0].action}"


def _offsets(finding: Finding) -> str:
    if finding.start_offset < 0:
        return ""
    return f", offsets {finding.start_offset} to {finding.end_offset - 1}"


def _where(item: Finding | Repair) -> str:
    return f"{item.path} on broker {item.broker}" if item.broker >= 0 else item.path


def _repair(repair: Repair) -> str:
    where = _where(repair)
    if repair.done:
        return f"{where}: {repair.what}" + (f", but {repair.why_not}" if repair.why_not else "")
    if repair.why_not:
        return f"{where}: not repaired: {repair.why_not}"
    return f"{where}: would be {repair.what}"
