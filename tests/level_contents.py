"""What a cluster stores beyond its level: compares stored objects with the schemas of the level.

    assert find_beyond_level(store, 2) == []

Fields, actions, columns and formats are compared by name with ``tests/golden/schemas``, types and bounds are not: those
are the same in all levels from 2 on, and a test compares them with the code. Not for: whether content is right (fsck).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.store.base import Store

SCHEMAS = Path(__file__).parent / "golden" / "schemas"
HISTORY_LEVEL = 3
_INDEX_HEAD = struct.Struct("<8sHH")
_LATER_FLAGS = ~0b111
"""Flags of an index that levels before that of history have not."""

_HEADS = {
    "topics": "TopicState", "schemas": "SchemaVersion", "partitions": "PartitionState",
    "partition_producers": "PartitionProducer", "brokers": "BrokerState", "producers": "ProducerState",
    "applications": "ApplicationState", "groups": "GroupState", "offsets": "GroupOffset",
    "removed_files": "RemovedFiles", "cluster": "ClusterRow",
}  # fmt: skip

_SINGLE = {
    "cluster.json": "ClusterFile", "mirror.json": "MirrorFile", "locations.json": "AllowedLocations",
    "meta/boundary.json": "Boundary", "meta/checkpoints/latest.json": "_Latest",
}  # fmt: skip


@cache
def schemas_of(level: int) -> Mapping[str, Any]:
    """Return what a level stores, by name."""
    kept: dict[str, Any] = json.loads((SCHEMAS / f"level-{level}.json").read_text())
    return kept


def find_beyond_level(store: Store, level: int, besides: Collection[str] = ()) -> list[str]:
    """Return what the objects below a root have that the level does not, each with its key; not those at ``besides``,
    which were there before an upgrade."""
    known = schemas_of(level)
    found: list[str] = []
    for info in store.list():
        if info.key in besides:
            continue
        look = _looker(info.key)
        if look is None:
            found.append(f"{info.key}: unknown kind of object")
        else:
            found += [f"{info.key}: {what}" for what in look(known, store.get(info.key), level)]
    return found


_Look = Callable[[Mapping[str, Any], bytes, int], Iterator[str]]


def _looker(key: str) -> _Look | None:
    """Return what compares an object with this key; None for a key that no version writes."""
    name, _, suffix = key.rpartition("/")[2].rpartition(".")
    if key in _SINGLE:
        return _json(_SINGLE[key])
    for prefix, kind in (("meta/commits/", "Commit"), ("leases/readers/", "AnnouncementFile")):
        if key.startswith(prefix):
            return _json(kind)
    if key.startswith("meta/checkpoints/"):
        of_suffix: dict[str, _Look] = {
            "json": _json("Manifest"), "heads": _heads, "lists": _lists, "mark": _nothing,
            "segments": _arrow("checkpoint segments"),
        }  # fmt: skip
        return of_suffix.get(suffix)
    if key.startswith("meta/actions/"):
        return _actions
    if key.startswith("meta/removed/"):
        return _arrow("removed files")
    if key.startswith(("meta/rollups/", "tables/")):
        return _history
    if suffix == "index" and name:
        return _index
    if suffix == "log" or key.startswith(("leases/", "meta/")) or "/" not in key:
        return _nothing
    return None


def _nothing(known: Mapping[str, Any], data: bytes, level: int) -> Iterator[str]:
    yield from ()


def _history(known: Mapping[str, Any], data: bytes, level: int) -> Iterator[str]:
    if level < HISTORY_LEVEL:
        yield f"is of level {HISTORY_LEVEL}"


def _index(known: Mapping[str, Any], data: bytes, level: int) -> Iterator[str]:
    _, version, flags = _INDEX_HEAD.unpack_from(data)
    if version != 1 or (level < HISTORY_LEVEL and flags & _LATER_FLAGS):
        yield f"version {version}, flags {flags:#x}"


def _arrow(kind: str) -> _Look:
    def look(known: Mapping[str, Any], data: bytes, level: int) -> Iterator[str]:
        schema = pa.ipc.open_file(pa.BufferReader(data)).schema
        columns = {column.partition(":")[0] for column in known[kind]}
        yield from (f"column {name}" for name in schema.names if name not in columns)
        stated = int((schema.metadata or {}).get(b"sparklog.format", b"0"))
        if stated > level:
            yield f"format {stated}"

    return look


def _json(kind: str) -> _Look:
    def look(known: Mapping[str, Any], data: bytes, level: int) -> Iterator[str]:
        value = json.loads(data)
        if kind == "Commit":
            value.pop("digest")
        if value.get("format", 1) > level:
            yield f"format {value['format']}"
        yield from _compare(known, known[kind], value, kind)

    return look


def _actions(known: Mapping[str, Any], data: bytes, level: int) -> Iterator[str]:
    yield from _compare(known, known["Commit"]["properties"]["actions"], json.loads(data), "actions")


def _heads(known: Mapping[str, Any], data: bytes, level: int) -> Iterator[str]:
    kinds = {"cluster", *known["rows of heads"]}
    for kind, rows in json.loads(data).items():
        if kind not in kinds:
            yield f"rows of {kind}"
            continue
        for row in rows:
            yield from _compare(known, known[_HEADS[kind]], row[-1], kind)


def _lists(known: Mapping[str, Any], data: bytes, level: int) -> Iterator[str]:
    parts = json.loads(data)
    yield from (f"rows of {kind}" for kind in parts.keys() - known["_Rows"]["properties"].keys())
    fields = len(known["_Stored"]["prefixItems"])
    for *_, segments in parts.get("tails", ()):
        yield from (f"a segment of {len(each)} fields" for each in segments or () if len(each) > fields)


def _compare(known: Mapping[str, Any], schema: Any, value: Any, where: str) -> Iterator[str]:
    """Yield the fields of a value that a schema lacks. A list is the names of a union of actions, or of fields."""
    if isinstance(schema, list):
        yield from _compare_listed(known, schema, value, where)
    elif "$ref" in schema:
        yield from _compare(known, known[schema["$ref"].rpartition("/")[2]], value, where)
    elif "anyOf" in schema:
        results = [list(_compare(known, each, value, where)) for each in schema["anyOf"] if each != {"type": "null"}]
        yield from () if value is None else min(results, key=len)
    elif isinstance(value, dict):
        for name, part in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            if isinstance(inner, (dict, list)):
                yield from _compare(known, inner, part, f"{where}.{name}")
            elif "properties" in schema:
                yield f"field {where}.{name}"
    elif isinstance(value, list) and isinstance(schema.get("items"), (dict, list)):
        for part in value:
            yield from _compare(known, schema["items"], part, where)


def _compare_listed(known: Mapping[str, Any], names: list[str], value: Any, where: str) -> Iterator[str]:
    if value is None:
        return
    if "action" not in value:
        fields = {name.partition(":")[0] for name in names}
        yield from (f"field {where}.{name}" for name in value if name not in fields)
    elif value["action"] not in names:
        yield f"action {value['action']}"
    else:
        action = next(
            each
            for each in known.values()
            if isinstance(each, dict) and each.get("properties", {}).get("action") == {"enum": [value["action"]]}
        )
        yield from _compare(known, action, value, value["action"])
