"""Maintenance: what ran, what it removed, what waits for its time, and what storage each topic takes. Rules: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sparklog.maintenance.loop import LoopReport
from sparklog.protocol.state import RemovedFiles, State
from sparklog.ui.maintenance_pass import PASS_STEPS, Due, DueNow, PassStatus
from sparklog.ui.views.cells import Mapped, ago_cell, commit_columns, ms_of, size_cell, topic_cell, version_cell
from sparklog.ui.views.query import Query
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import ago, duration, number, plural, shown, size, time


class StepTotal(NamedTuple):
    """What a step of maintenance did in a range of times."""

    step: str
    runs: int
    removed: int
    bytes_removed: int
    added: int
    bytes_added: int
    last_ms: int


def sum_steps(rows: Iterable[Mapped]) -> list[StepTotal]:
    """Return the totals of each step; ``rows`` are of the system table ``maintenance``, oldest first."""
    totals: dict[str, StepTotal] = {}
    for row in rows:
        step = row["step"]
        before = totals.get(step, StepTotal(step, 0, 0, 0, 0, 0, 0))
        totals[step] = StepTotal(
            step,
            before.runs + 1,
            before.removed + (row["segments_removed"] or 0),
            before.bytes_removed + (row["bytes_removed"] or 0),
            before.added + (row["segments_added"] or 0),
            before.bytes_added + (row["bytes_added"] or 0),
            ms_of(row["timestamp"]) or 0,
        )
    return list(totals.values())


def steps_table(rows: Sequence[StepTotal], query: Query, now_ms: int) -> Table:
    """Return what each step did."""
    columns: list[Column[StepTotal]] = [
        Column("step", "Step", lambda row: row.step, lambda row: shown(row.step)),
        Column("runs", "Changes", lambda row: row.runs, lambda row: number(row.runs), True),
        Column("removed", "Segments removed", lambda row: row.removed, lambda row: number(row.removed), True),
        Column("bytes_removed", "Bytes removed", lambda row: row.bytes_removed,
               lambda row: size_cell(row.bytes_removed), True),
        Column("added", "Segments added", lambda row: row.added, lambda row: number(row.added), True),
        Column("bytes_added", "Bytes added", lambda row: row.bytes_added,
               lambda row: size_cell(row.bytes_added), True),
        Column("last", "Last", lambda row: row.last_ms,
               lambda row: ago_cell(row.last_ms, now_ms), True),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="What ran", sort="step", name="s.",
                      empty="Maintenance changed nothing in this time: `sparklog maintain` runs it.")  # fmt: skip


def changes_table(rows: Sequence[Mapped], cluster: str, query: Query) -> Table:
    """Return each change of maintenance, newest first."""
    columns: list[Column[Mapped]] = [
        *commit_columns(cluster),
        Column("step", "Step", lambda row: row["step"], lambda row: shown(row["step"])),
        Column("topic", "Topic", lambda row: row["topic"],
               lambda row: "" if row["topic"] is None else shown(f"{row['topic']}-{row['partition']}")),
        Column("removed", "Removed", lambda row: row["bytes_removed"],
               lambda row: _amount(row["segments_removed"], row["bytes_removed"], row["files"]), True),
        Column("added", "Added", lambda row: row["bytes_added"],
               lambda row: _amount(row["segments_added"], row["bytes_added"], None), True),
        Column("writer", "Writer", lambda row: row["writer"], lambda row: Cell(shown(row["writer"], 60), kind="dim")),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Changes", sort="-version", name="c.", empty="None in this time.")


def _amount(segments: int | None, count: int | None, files: int | None) -> Cell:
    if segments is None and count is None and files is None:
        return Cell("")
    what = plural(files, "file") if files is not None else plural(segments or 0, "segment")
    return Cell(size(count), note=what)


def waiting_table(state: State, cluster: str, query: Query, now_ms: int) -> Table:
    """Return the retired files that maintenance has yet to delete."""
    rows = [each for _, each in sorted(state.removed_files.items())]
    columns: list[Column[RemovedFiles]] = [
        Column("version", "Commit", lambda row: row.version,
               lambda row: version_cell(row.version, cluster), True),
        Column("files", "Files", lambda row: row.files, lambda row: number(row.files), True),
        Column("bytes", "Frees", lambda row: row.size_bytes,
               lambda row: size_cell(row.size_bytes), True),
        Column("due", "May be deleted", lambda row: row.delete_at_ms,
               lambda row: Cell("now" if row.delete_at_ms <= now_ms else ago(row.delete_at_ms, now_ms),
                                title=time(row.delete_at_ms), kind="warn" if row.delete_at_ms <= now_ms else ""), True),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Retired files, to be deleted", sort="due", name="w.",
                      empty="No retired files wait to be deleted.")  # fmt: skip


def storage_table(rows: Sequence[Mapped], cluster: str, query: Query) -> Table:
    """Return the bytes that each topic takes, and those of its retired files."""
    columns: list[Column[Mapped]] = [
        Column("topic", "Topic", lambda row: row["topic"] or "",
               lambda row: Cell("deleted topics", kind="dim") if row["topic"] is None
               else topic_cell(row["topic"], cluster)),
        Column("live", "Live", lambda row: row["live"],
               lambda row: size_cell(row["live"]), True, "at all replicas in sync"),
        Column("retired", "Retired", lambda row: row["retired"],
               lambda row: size_cell(row["retired"]), True,
               "files that left the log and are not deleted yet"),
        Column("files", "Retired files", lambda row: row["retired_files"],
               lambda row: number(row["retired_files"]), True),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Storage by topic", sort="-live", name="o.", per_page=25)


def due_sentences(due: DueNow, only: Collection[str] = PASS_STEPS) -> list[str]:
    """Return what these steps would do now and what that would free, a sentence for each."""
    sentences = [_due_sentence(each) for each in due.steps if each.step in only]
    if due.left_out:
        sentences.append(f"{plural(due.left_out, 'partition')} more were not looked at.")
    return sentences or ["Nothing is known to be due."]


def _due_sentence(due: Due) -> str:
    what = f"{due.step}: {plural(due.files, 'file')}, {size(due.size_bytes)}"
    if not due.frees:
        return f"{what}, would be merged; that frees nothing at once."
    later = ", after file.delete.delay.ms" if due.step == "retention" else ""
    return f"{what}, would be freed{later}."


class ShownPass(NamedTuple):
    """A pass that was started from the page: whether it is good, a sentence, problems, and its steps."""

    kind: str
    word: str
    sentence: str
    problems: list[str]
    table: Table
    is_running: bool


class _ShownStep(NamedTuple):
    number: int
    step: str
    state: str
    report: LoopReport | None


def show_pass(status: PassStatus, query: Query, now_ms: int) -> ShownPass:
    """Return a pass as the page of maintenance shows it."""
    done = {report.step: report for report in status.reports}
    rows = [
        _ShownStep(number, name, "done" * (name in done) or "running" * (name == status.running), done.get(name))
        for number, name in enumerate(status.steps, 1)
    ]
    problems = [f"{report.step}: {remark}" for report in status.reports for remark in report.remarks()]
    failed = [problem for problem in problems if ": failed: " in problem] + [status.error] * bool(status.error)
    columns: list[Column[_ShownStep]] = [
        Column("number", "Step", lambda row: row.number, lambda row: row.step),
        Column("state", "State", lambda row: row.state, _step_state),
        Column("took", "Took", lambda row: row.report.seconds if row.report else None,
               lambda row: duration(row.report.seconds) if row.report else "", True),
        Column("did", "What it did", lambda row: sum(row.report.counts.values()) if row.report else 0,
               lambda row: shown("; ".join(row.report.lines()), 600) if row.report else ""),
    ]  # fmt: skip
    table = make_table(rows, columns, query, caption="Steps of the pass", sort="number", name="p.")
    started = f"Started {ago(status.started_ms, now_ms)}"
    if status.ended_ms is None:
        sentence = f"{started}; {len(status.reports)} of {plural(len(status.steps), 'step')} are done."
        return ShownPass("warn", "running", sentence, failed, table, True)
    sentence = f"{started}, took {duration((status.ended_ms - status.started_ms) / 1000)}."
    return ShownPass("bad" if failed else "good", "failed" if failed else "done", sentence, failed, table, False)


def _step_state(row: _ShownStep) -> Cell:
    if row.report is not None and row.report.problems:
        return Cell("failed", kind="bad")
    return Cell(row.state, kind={"done": "good", "running": "warn"}.get(row.state, "dim"))
