"""What a check found, for people and for programs.

For people: the worst first, by partition, what is alike together, with the offsets concerned and what to do. For
programs: JSON, with the fields of ``findings.Finding``, ``Checked`` and ``Repair`` (docs/repair.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Finding, Repair, Report, counts, in_order

SHOWN = 5
"""findings of one kind in one place that are shown one by one."""

_HEADINGS = {
    ERROR: "ERRORS: records or history are lost, unless they come back from elsewhere",
    WARNING: "WARNINGS: all records are there, and something that protects them or saves time is not",
    INFO: "NOTES: nothing is wrong",
}


def to_json(report: Report) -> str:
    """One JSON object; fields are added in later versions, never renamed."""
    return json.dumps(
        {"clean": report.clean, "counts": counts(report.findings), **msgspec.to_builtins(report)}, indent=1
    )


def to_text(report: Report) -> Iterator[str]:
    """Lines for people."""
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


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    """bytes for people: three digits and a unit."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.3g} {unit}"
        number /= 1000
    return ""


def summary(report: Report) -> str:
    """The last line."""
    left = report.findings if report.left is None else report.left
    found = counts(left)
    if report.clean:
        return "Clean." if not left else f"Clean; {_count(found[INFO], 'note')}."
    text = f"{_count(found[ERROR], 'error')}, {_count(found[WARNING], 'warning')}, {_count(found[INFO], 'note')}."
    mendable = sum(finding.repairable for finding in left)
    return text + (f" {mendable} of them can be repaired with --repair." if mendable and report.left is None else "")


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    for severity, alike in groupby(in_order(findings), key=lambda finding: finding.severity):
        yield _HEADINGS[severity]
        for place, here in groupby(alike, key=lambda finding: finding.place):
            yield f"  {place}"
            for _, same in groupby(sorted(here, key=_likeness), key=_likeness):
                yield from _alike(list(same))
        yield ""


def _likeness(finding: Finding) -> tuple[str, str]:
    return finding.kind, finding.action


def _alike(findings: list[Finding]) -> Iterator[str]:
    """Findings of one kind with one thing to do about them."""
    for finding in findings[:SHOWN]:
        yield f"    {finding.kind}{_offsets(finding)}: {finding.message}"
        if finding.path:
            yield f"      {finding.path}{_broker(finding)}"
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


def _broker(finding: Finding) -> str:
    return f" on broker {finding.broker}" if finding.broker >= 0 else ""


def _repair(repair: Repair) -> str:
    where = f"{repair.path} on broker {repair.broker}" if repair.broker >= 0 else repair.path
    if repair.done:
        return f"{where}: {repair.what}" + (f", but {repair.why_not}" if repair.why_not else "")
    if repair.why_not:
        return f"{where}: not repaired: {repair.why_not}"
    return f"{where}: would be {repair.what}"
