"""The report of the last check that was kept in the cluster. Rules: pure.

Not for: checking (``sparklog fsck``).
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.maintenance.fsck.kept_report import KeptReport
from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Finding
from sparklog.ui.views.overview import Fact
from sparklog.ui.views.query import Query, address
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import ago, duration, number, plural, shown, size, time

_STATES = {ERROR: "bad", WARNING: "warn", INFO: "dim"}


class ShownReport(NamedTuple):
    """A report: whether it is good, a sentence, its facts, and its findings, None without any."""

    kind: str
    word: str
    sentence: str
    facts: list[Fact]
    findings: Table | None


def show_report(report: KeptReport, cluster: str, query: Query, now_ms: int) -> ShownReport:
    """Return a report as the page of maintenance shows it."""
    checked, counted = report.checked, {name: report.counts.get(name, 0) for name in _STATES}
    worst = next((name for name, count in counted.items() if count), INFO)
    found = ", ".join(
        plural(counted[name], noun) for name, noun in zip(_STATES, ("error", "warning", "note"), strict=True)
    )
    facts = [
        Fact("Ran", ago(report.time_ms, now_ms), note=time(report.time_ms)),
        Fact("At version", number(report.version), address(cluster, "commits") if report.version >= 0 else ""),
        Fact("Took", duration(report.seconds)),
        Fact("Checked", _scope(report)),
        Fact("Commits", number(checked.commits)),
        Fact("Copies of files", number(checked.files), note=size(checked.bytes)),
    ]
    repaired = f" {plural(report.repairs, 'repair')} before that." if report.repairs else ""
    sentence = f"Found {found}.{repaired}" if sum(counted.values()) else f"Found nothing.{repaired}"
    table = _findings(report, cluster, query) if report.findings else None
    return ShownReport(
        "good" if report.clean else _STATES[worst], "clean" if report.clean else worst, sentence, facts, table
    )


def _scope(report: KeptReport) -> str:
    parts = [", ".join(shown(topic, 60) for topic in report.topics[:5])] if report.topics else []
    parts += [f"partitions {', '.join(map(str, report.partitions[:10]))}"] if report.partitions else []
    parts += ["without the batches"] if report.fast else []
    return "; ".join(parts) or "everything"


def _findings(report: KeptReport, cluster: str, query: Query) -> Table:
    total = sum(report.counts.values())
    more = f", of {total:,}" if total > len(report.findings) else ""
    columns: list[Column[Finding]] = [
        Column("severity", "Severity", _severity,
               lambda row: Cell(shown(row.severity, 20), kind=_STATES.get(row.severity, "dim"))),
        Column("kind", "Kind", lambda row: row.kind, lambda row: Cell(shown(row.kind, 60), kind="code")),
        Column("subject", "Of", lambda row: row.subject, lambda row: shown(row.subject, 100)),
        Column("message", "What", lambda row: row.message, lambda row: shown(row.message, 400)),
        Column("path", "Where", lambda row: row.path, lambda row: Cell(shown(row.path, 160), kind="code")),
        Column("action", "What to do", lambda row: row.action, lambda row: shown(row.action, 300)),
    ]  # fmt: skip
    return make_table(
        report.findings, columns, query, caption=f"Findings{more}", sort="severity", name="f.", per_page=25
    )


def _severity(finding: Finding) -> int:
    return list(_STATES).index(finding.severity) if finding.severity in _STATES else len(_STATES)
