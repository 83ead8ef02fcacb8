"""The commit log: each commit as what it changed, in sentences, with its digest checked. Rules: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import msgspec

from sparklog.protocol import commits as log
from sparklog.protocol.commits import GENESIS_DIGEST, Action, Commit
from sparklog.ui.views.cells import Mapped, commit_columns, size_cell
from sparklog.ui.views.query import Query, address
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import NOTHING, block, plural, shown, size, time

KINDS = tuple(sorted(str(kind.__struct_config__.tag) for kind in get_args(Action)))
"""The names of all kinds of actions."""
WINDOW = 2000
"""Commits that one page of the commit log looks at."""
MAX_ACTIONS = 200
"""Actions of a commit that its page shows."""
_DETAIL_CHARACTERS = 4000


def commits_table(rows: Sequence[Mapped], cluster: str, query: Query) -> Table:
    """Return commits that change what the ``kind`` of the query names, newest first."""
    kind, writer = query.choice("kind", ("", *KINDS), ""), query.text("writer").lower()
    columns: list[Column[Mapped]] = [
        *commit_columns(cluster, exact=True),
        Column("kinds", "Changes", lambda row: row["actions"], _kinds_cell),
        Column("writer", "Writer", lambda row: row["writer"], lambda row: Cell(shown(row["writer"], 80), kind="dim")),
        Column("bytes", "Size", lambda row: row["bytes"],
               lambda row: size_cell(row["bytes"]), True),
    ]  # fmt: skip
    found = [
        row for row in rows if (not kind or kind in row["kinds"]) and (not writer or writer in row["writer"].lower())
    ]
    return make_table(found, columns, query, caption="Commits", sort="-version", per_page=100,
                      empty="None of these commits is of this kind.")  # fmt: skip


def _kinds_cell(row: Mapped) -> Cell:
    names = [kind.replace("_", " ") for kind in row["kinds"]]
    more = f" and {len(names) - 4} more kinds" if len(names) > 4 else ""
    return Cell(", ".join(names[:4]) + more, note=plural(row["actions"], "action") if row["actions"] > 1 else "")


class ShownAction(NamedTuple):
    kind: str
    sentence: str
    href: str
    detail: str


class ShownCommit(NamedTuple):
    """A commit: its facts by name, what it changed, and whether it follows the commit before it."""

    version: int
    facts: list[tuple[str, str]]
    actions: list[ShownAction]
    left_out: str
    digest: str
    check: str
    is_linked: bool


class Neighbours(NamedTuple):
    """The digest of the commit before another, and that which the commit after it names as its digest.

    None if such a commit was removed, empty if its bytes are damaged or missing.
    """

    before: str | None
    named: str | None


def check_digest(commit: Commit, digest: str, digests: Neighbours) -> tuple[str, bool]:
    """Return sentences on a commit, whose bytes have this digest, in the chain of digests; and whether it fits."""
    sentences, fits = ["Its bytes match its digest."], True
    if commit.previous == GENESIS_DIGEST and commit.version == 0:
        sentences.append("It is the first commit.")
    elif digests.before is None:
        sentences.append("The commit before it was removed behind a checkpoint.")
    elif not digests.before:
        sentences.append(f"Commit {commit.version - 1:,} is damaged or missing.")
    elif commit.previous != digests.before:
        fits = False
        sentences.append(
            f"But it names {commit.previous[:16]}… as the digest of the commit before it, which has "
            f"{digests.before[:16]}…: one of the two was edited or replaced."
        )
    else:
        sentences.append(f"It names the digest of commit {commit.version - 1:,}.")
    if digests.named == "":
        sentences.append(f"Commit {commit.version + 1:,} is damaged or missing.")
    elif digests.named is not None and digests.named != digest:
        fits = False
        sentences.append(f"But {digests.named[:16]}… follows it in the log: one of the two was edited or replaced.")
    elif digests.named is not None:
        sentences.append("The next commit names this digest.")
    return " ".join(sentences), fits


def show_commit(commit: Commit, digest: str, stored_bytes: int, digests: Neighbours, cluster: str) -> ShownCommit:
    """Return a commit as its page shows it."""
    check, is_linked = check_digest(commit, digest, digests)
    rest = len(commit.actions) - MAX_ACTIONS
    return ShownCommit(
        commit.version,
        [
            ("Time", f"{time(commit.timestamp, exact=True)} UTC"),
            ("Writer", shown(commit.writer) or NOTHING),
            ("Size", size(stored_bytes)),
            ("Format", f"{commit.format}{f', needs sparklog {shown(commit.needs, 20)}' if commit.needs else ''}"),
            ("Write id", shown(commit.write_id, 80)),
            ("Checksum of the live segments", commit.checksum),
        ],
        [_show_action(action, cluster) for action in commit.actions[:MAX_ACTIONS]],
        f"{rest:,} more actions are not shown." if rest > 0 else "",
        digest,
        check,
        is_linked,
    )


def _show_action(action: Action, cluster: str) -> ShownAction:
    fields = msgspec.to_builtins(action)
    kind = str(fields.pop("action"))
    describe = _SENTENCES.get(type(action))
    sentence = describe(action) if describe is not None else kind.replace("_", " ").capitalize()
    detail = msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()
    cut = detail if len(detail) <= _DETAIL_CHARACTERS else f"{detail[:_DETAIL_CHARACTERS]}\n…"
    return ShownAction(kind.replace("_", " "), f"{sentence}.", _address(action, cluster), block(cut))


def _address(action: Any, cluster: str) -> str:
    if isinstance(action, log.Append):
        return address(cluster, "topics", action.topic, "records", partition=action.partition, at=action.base_offset)
    group = getattr(action, "group", "")
    if group:
        return address(cluster, "group", name=group)
    topic = getattr(action, "topic", "")
    return address(cluster, "topics", topic) if topic else ""


def _name_of(action: Any) -> str:
    return f"{shown(action.topic, 100)}-{action.partition}"


def _append(action: log.Append) -> str:
    first, count = action.base_offset, action.run.records
    producer = f", of producer {action.producer_id}" if action.producer_id >= 0 else ""
    return (
        f"Appended {plural(count, 'record')} ({size(action.run.size_bytes)}) to {_name_of(action)} at offset "
        f"{first:,}{producer}"
    )


def _commit_offsets(action: log.CommitOffsets) -> str:
    committed = [f"{_name_of(each)} to {each.offset:,}" for each in action.offsets[:3]]
    more = f" and {len(action.offsets) - 3:,} more" if len(action.offsets) > 3 else ""
    return f"Group {shown(action.group, 100)} committed {', '.join(committed)}{more}"


def _alter_config(action: log.AlterConfig) -> str:
    where = f"topic {shown(action.topic, 100)}" if action.topic else "the cluster"
    changes = [f"set {shown(name, 60)} to {shown(value, 60)}" for name, value in action.set.items()]
    changes += [f"reset {shown(name, 60)}" for name in action.delete]
    return f"Configs of {where}: {', '.join(changes[:10])}{' and more' if len(changes) > 10 else ''}"


def _join(action: log.JoinGroup) -> str:
    topics = ", ".join(shown(topic, 60) for topic in action.topics[:5])
    return f"Member {shown(action.member, 80)} joined group {shown(action.group, 100)} for {topics or 'no topic'}"


def _leave(action: log.LeaveGroup) -> str:
    reason = f": {shown(action.reason, 100)}" if action.reason else ""
    return f"{plural(len(action.members), 'member')} left group {shown(action.group, 100)}{reason}"


def _change_partition(action: log.ChangePartition) -> str:
    leader = f"broker {action.leader}" if action.leader >= 0 else "no broker"
    return f"{_name_of(action)} is led by {leader} (epoch {action.leader_epoch}), in sync: {action.isr}"


def _replace(action: log.ReplaceSegments) -> str:
    kind = "Compacted" if action.cleaned_offset >= 0 else "Merged" if action.added else "Removed"
    return (
        f"{kind} {plural(action.removed.segments, 'segment')} ({size(action.removed.size_bytes)}) of "
        f"{_name_of(action)}, offsets {action.start_offset:,} to {action.end_offset - 1:,}, into {len(action.added):,} "
        f"({size(sum(each.run.size_bytes for each in action.added))})"
    )


def _init_producer(action: log.InitProducer) -> str:
    named = f" of {shown(action.transactional_id, 100)}" if action.transactional_id else ""
    if action.committed_epoch >= 0:
        return f"Transaction of epoch {action.committed_epoch} committed by producer {action.producer_id}{named}"
    return f"Producer {action.producer_id}{named} began epoch {action.producer_epoch}"


_SENTENCES: dict[type[Any], Callable[[Any], str]] = {
    log.Append: _append,
    log.CommitOffsets: _commit_offsets,
    log.AlterConfig: _alter_config,
    log.JoinGroup: _join,
    log.LeaveGroup: _leave,
    log.ChangePartition: _change_partition,
    log.ReplaceSegments: _replace,
    log.InitProducer: _init_producer,
    log.CreateTopic: lambda action: (
        f"Created topic {shown(action.topic, 100)} with {plural(len(action.replicas), 'partition')}"
    ),
    log.CreatePartitions: lambda action: f"Added partitions to {shown(action.topic, 100)}: {len(action.replicas):,}",
    log.DeleteTopic: lambda action: f"Deleted topic {shown(action.topic, 100)}",
    log.DeleteSegments: lambda action: (
        f"Retention deleted {plural(action.removed.segments, 'segment')} ({size(action.removed.size_bytes)}) of "
        f"{_name_of(action)}, to offset {action.end_offset:,}"
    ),
    log.DeleteRecords: lambda action: f"Deleted the records of {_name_of(action)} before {action.log_start_offset:,}",
    log.RemoveFiles: lambda action: f"Retired {plural(action.files, 'file')} ({size(action.size_bytes)})",
    log.ForgetRemovedFiles: lambda action: f"Deleted the files of {plural(len(action.listings), 'listing')}",
    log.DeleteGroup: lambda action: f"Deleted group {shown(action.group, 100)}",
    log.DeleteOffsets: lambda action: (
        f"Deleted {plural(len(action.partitions), 'offset')} of group {shown(action.group, 100)}"
    ),
    log.AcknowledgeRevocation: lambda action: (
        f"Member {shown(action.member, 80)} of group {shown(action.group, 100)} released its revoked partitions"
    ),
    log.RegisterBroker: lambda action: f"Registered broker {action.broker} at {shown(action.url, 100) or 'the root'}",
    log.UnregisterBroker: lambda action: f"Removed broker {action.broker}",
    log.ElectController: lambda action: (
        f"{shown(action.controller, 80)} became the controller (epoch {action.controller_epoch})"
    ),
    log.ApplicationWrite: lambda action: (
        f"Write {action.application_version} of application {shown(action.application, 100)}"
    ),
    log.FenceWriters: lambda action: f"Fenced writers that began at version {action.version:,} or before",
}
