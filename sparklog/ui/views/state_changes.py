"""What a commit changed: each value before and after it, from the states before and after. Rules: pure.

Not for: how these states are known (``log.past_states``), and what the commit says of itself (``commits``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from sparklog.log.checkpoints.heads import changed_rows
from sparklog.log.past_states import Around
from sparklog.protocol.fold import Entry
from sparklog.protocol.state import NO_TIMESTAMP_US
from sparklog.ui.views.query import Query, address
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import NOTHING, number, shown, size, time

MAX_ENTRIES = 5000
"""Changed things of which a page works out the values."""
_MAX_TEXT = 200
_LEFT_OUT = {
    "cluster": {"cluster_id", "version", "timestamp_ms", "digest", "checksum"},
    "topics": {"name", "checksum", "partitions", "schemas"},
    "partitions": {"changes", "producers"},
    "groups": {"offsets"},
    "offsets": {"topic", "topic_id", "partition"},
}
"""Fields that are elsewhere on the page, in entries of their own, or mean nothing to people."""
_ABSENT = object()


class Changed(NamedTuple):
    """A value that a commit changed; ``before`` or ``after`` is the empty text where it did not exist."""

    subject: str
    href: str
    name: str
    before: str
    after: str


def list_changes(around: Around, cluster: str) -> list[Changed]:
    """Return the values that a commit changed, at most those of ``MAX_ENTRIES`` things."""
    entries = sorted(around.touched)[:MAX_ENTRIES]
    before, after = (_bodies(changed_rows(state, entries)) for state in (around.before, around.after))
    found: list[Changed] = []
    for entry, new in after.items():
        old = before[entry]
        if old != new:
            subject, href = _subject(entry, old if new is None else new, around, cluster)
            left_out = _LEFT_OUT.get(entry[0], set())
            found += [
                Changed(subject, href, name, was, becomes)
                for name, was, becomes in _differences(
                    *(_fields(each, old is None or new is None) for each in (old, new))
                )
                if name.partition(" ")[0] not in left_out
            ]
    return found


def _bodies(rows: Mapping[str, list[Any]]) -> dict[Entry, Any]:
    return {(kind, *row[:-1]): row[-1] for kind, of_kind in rows.items() for row in of_kind}


def _fields(body: Any, is_alone: bool) -> Mapping[str, Any]:
    """Return the fields of an entry by name; those of a config, or of another mapping, each by its key.

    Of an entry that is new or removed, ``is_alone``, those that have their default are left out.
    """
    if body is None:
        return {}
    known = body if isinstance(body, Mapping) else msgspec.structs.asdict(body)
    if is_alone and isinstance(body, msgspec.Struct):
        defaults = {field.name: field.default for field in msgspec.structs.fields(body)}
        known = {name: value for name, value in known.items() if value != defaults[name]}
    flat: dict[str, Any] = {}
    for name, value in known.items():
        if isinstance(value, Mapping):
            flat |= {f"{name} {key}": each for key, each in value.items()}
        else:
            flat[name] = value
    return flat


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name in {**old, **new}:
        was, becomes = old.get(name, _ABSENT), new.get(name, _ABSENT)
        if was != becomes:
            texts = _text(name, was), _text(name, becomes)
            if texts[0] != texts[1]:
                yield name, *texts


def _text(name: str, value: Any) -> str:
    if value is _ABSENT or value is None:
        return ""
    if name.endswith("_us"):
        return "" if value == NO_TIMESTAMP_US else time(value // 1000, exact=True)
    if name.endswith("_ms") and "timeout" not in name:
        return time(value, exact=True)
    if name == "size_bytes":
        return f"{size(value)} ({number(value)})" if value >= 1024 else size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number(value)
    if isinstance(value, str):
        return shown(value, _MAX_TEXT)
    if isinstance(value, tuple) and all(isinstance(each, int | str) for each in value):
        return shown(", ".join(map(str, value)), _MAX_TEXT) or "none"
    return shown(msgspec.json.encode(value).decode(), _MAX_TEXT)


# -- what is called how

_LABELS = {"size_bytes": "size", "max_timestamp_us": "newest record", "timestamp_ms": "time", "isr": "in sync"}


def _label(name: str) -> str:
    """Return what a field is called; the key of a mapping stays as it is."""
    field, blank, key = name.partition(" ")
    label = _LABELS.get(field, field if "timeout" in field else field.removesuffix("_ms")).replace("_", " ")
    return f"{label}{blank}{key}"


def _subject(entry: Entry, body: Any, around: Around, cluster: str) -> tuple[str, str]:
    """Return what an entry is called, and where it shows."""
    return _SUBJECTS[entry[0]](entry, body, around, cluster)


def _topic(name: str, around: Around, cluster: str) -> str:
    """Return where a topic shows, empty if the commit deleted it."""
    return address(cluster, "topics", name) if name in around.after.topics else ""


def _group(name: str, cluster: str) -> str:
    return address(cluster, "group", name=name)


def _producer(entry: Entry, body: Any, around: Around, cluster: str) -> tuple[str, str]:
    named = f" of {shown(body.transactional_id, 80)}" if body.transactional_id else ""
    return f"Producer {entry[1]}{named}", address(cluster, "transactions")


def _offset(entry: Entry, body: Any, around: Around, cluster: str) -> tuple[str, str]:
    return f"Group {shown(entry[1], 80)}, {shown(body.topic, 80)}-{body.partition}", _group(entry[1], cluster)


_SUBJECTS: dict[str, Callable[[Entry, Any, Around, str], tuple[str, str]]] = {
    "cluster": lambda entry, body, around, cluster: ("Cluster", address(cluster)),
    "topics": lambda entry, body, around, cluster: (
        f"Topic {shown(entry[1], 80)}",
        _topic(entry[1], around, cluster),
    ),
    "schemas": lambda entry, body, around, cluster: (
        f"{shown(entry[1], 80)}, {shown(entry[2], 40)}, version {entry[3]}",
        _topic(entry[1], around, cluster),
    ),
    "partitions": lambda entry, body, around, cluster: (
        f"{shown(entry[1], 80)}-{entry[2]}",
        _topic(entry[1], around, cluster),
    ),
    "partition_producers": lambda entry, body, around, cluster: (
        f"{shown(entry[1], 80)}-{entry[2]}, producer {entry[3]}",
        _topic(entry[1], around, cluster),
    ),
    "brokers": lambda entry, body, around, cluster: (f"Broker {entry[1]}", address(cluster, "brokers")),
    "producers": _producer,
    "applications": lambda entry, body, around, cluster: (f"Application {shown(entry[1], 80)}", ""),
    "groups": lambda entry, body, around, cluster: (f"Group {shown(entry[1], 80)}", _group(entry[1], cluster)),
    "offsets": _offset,
    "removed_files": lambda entry, body, around, cluster: (
        f"Retired files of commit {body.version:,}",
        address(cluster, "maintenance"),
    ),
}


def changes_table(rows: list[Changed], query: Query) -> Table:
    """Return what changed, in the order of the things that it belongs to."""
    columns: list[Column[Changed]] = [
        Column("subject", "Of", lambda row: row.subject, lambda row: Cell(row.subject, row.href)),
        Column("name", "What", lambda row: row.name, lambda row: shown(_label(row.name), 100)),
        Column("before", "Before", lambda row: row.before, lambda row: Cell(row.before or NOTHING, kind="before")),
        Column("after", "After", lambda row: row.after, lambda row: Cell(row.after or NOTHING)),
    ]
    return make_table(rows, columns, query, caption="Before and after", name="d.",
                      empty="Nothing that the state of the cluster has changed.")  # fmt: skip
