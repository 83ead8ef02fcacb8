"""Converts a state to rows, the heads of a checkpoint, one per entry, and back.

A part is one JSON object: rows by kind, each the entry's key and its body, or null if the entry was deleted::

    {"cluster":[[{"cluster_id":"eT…","version":200,"timestamp_ms":1790000000000,…}]],
     "topics":[["orders",{"name":"orders","topic_id":"q8…","partitions":[],"checksum":"3f…"}]],
     "partitions":[["orders",0,{"replicas":[0],"isr":[0],"leader":0,"log_end_offset":3,…}],["orders",1,null]],…}

Rows are as fine as changes are: an append rewrites one partition, its topic's checksum and one producer, not the other
partitions, producers and offsets beside them. The kinds are those of ``fold.Entry``, and ``cluster``: whatever the
state has besides.

Rules: pure; fields with their default are omitted; unknown fields are ignored: the manifest states an incompatible
format.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from immutables import Map
from msgspec.structs import fields, replace

from sparklog.log.checkpoints.tiers import Row, RowEncoding
from sparklog.protocol.fold import Entry
from sparklog.protocol.indexes import with_indexes
from sparklog.protocol.state import (
    EMPTY,
    ApplicationState,
    BrokerState,
    GroupOffset,
    GroupState,
    PartitionProducer,
    PartitionState,
    ProducerState,
    RemovedFiles,
    SchemaVersion,
    State,
    TopicState,
)
from sparklog.store.base import BytesLike

KEYS: dict[str, tuple[tuple[type, ...], type]] = {
    "topics": ((str,), TopicState),
    "schemas": ((str, str, int), SchemaVersion),
    "partitions": ((str, int), PartitionState),
    "partition_producers": ((str, int, int), PartitionProducer),
    "brokers": ((int,), BrokerState),
    "producers": ((int,), ProducerState),
    "applications": ((str,), ApplicationState),
    "groups": ((str,), GroupState),
    "offsets": ((str, str), GroupOffset),
    "removed_files": ((str,), RemovedFiles),
}
"""The fields of a key, and the body, of each kind of entry."""

MAPS = ("topics", "brokers", "producers", "applications", "groups", "removed_files")
_OTHERS = [field for field in fields(State) if field.name not in (*MAPS, "indexes")]


def _default(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field(default=field.default)


SCALARS: Any = msgspec.defstruct("ClusterRow", [(field.name, field.type, _default(field)) for field in _OTHERS])
CLUSTER: Entry = ("cluster",)


def _to_plain(value: Any) -> Any:
    if isinstance(value, Map):
        return dict(value)
    raise NotImplementedError(type(value))


def persistent(kind: Any, value: Any) -> Any:
    """Decode a persistent map, whose keys are strings in JSON; a ``dec_hook`` of msgspec."""
    of_dict: Any = types.GenericAlias(dict, kind.__args__)
    return Map(msgspec.convert(value, of_dict, str_keys=True, dec_hook=persistent))


def _part_type(name: str, bodies: dict[str, Any]) -> type[msgspec.Struct]:
    """Return a struct of rows by kind, each a tuple of the key's fields and one of these bodies."""

    def rows(kind: str) -> Any:
        key = KEYS[kind][0] if kind in KEYS else ()
        return types.GenericAlias(list, (types.GenericAlias(tuple, (*key, bodies[kind])),))

    kinds: list[Any] = [(kind, rows(kind), msgspec.field(default_factory=list)) for kind in ("cluster", *KEYS)]
    return msgspec.defstruct(name, kinds)


TYPED = _part_type("HeadRows", {**{kind: body | None for kind, (_, body) in KEYS.items()}, "cluster": SCALARS})
_RAW = _part_type("_Raw", dict.fromkeys((*KEYS, "cluster"), msgspec.Raw))
# Made at import, which one thread does: msgspec 0.22 ends the process with SIGSEGV where two threads at the same time
# are the first to decode a type that holds other types.
_TYPED_DECODER = msgspec.json.Decoder(TYPED, dec_hook=persistent)
ENCODING = RowEncoding(msgspec.json.Encoder(enc_hook=_to_plain), msgspec.json.Decoder(_RAW))


# -- to rows


def changed_rows(state: State, entries: Iterable[Entry]) -> dict[str, list[Row]]:
    """Return the rows of these entries in a state, null for absent ones, and the row of the cluster."""
    rows: dict[str, list[Row]] = {}
    for entry in sorted({*entries, CLUSTER}):
        rows.setdefault(entry[0], []).append((*entry[1:], _body(state, entry)))
    return rows


def all_rows(state: State) -> dict[str, list[Row]]:
    """Return the rows of all entries."""
    return changed_rows(state, _entries(state))


def count_rows(state: State) -> int:
    """Return the number of rows of all entries."""
    maps = sum(len(getattr(state, kind)) for kind in MAPS)
    offsets = sum(len(group.offsets) for group in state.groups.values())
    partitions = sum(len(topic.partitions) for topic in state.topics.values())
    schemas = sum(len(versions) for topic in state.topics.values() for versions in topic.schemas.values())
    producers = sum(len(partition.producers) for topic in state.topics.values() for partition in topic.partitions)
    return 1 + maps + offsets + schemas + partitions + producers


def _entries(state: State) -> Iterator[Entry]:
    for kind in MAPS:
        yield from ((kind, key) for key in getattr(state, kind))
    for name, group in state.groups.items():
        yield from (("offsets", name, key) for key in group.offsets)
    for name, topic in state.topics.items():
        for config, versions in topic.schemas.items():
            yield from (("schemas", name, config, number + 1) for number in range(len(versions)))
        for number, partition in enumerate(topic.partitions):
            yield ("partitions", name, number)
            yield from (("partition_producers", name, number, producer) for producer in partition.producers)


def _body(state: State, entry: Entry) -> Any:
    """Return the body of an entry; None if it is not in the state."""
    kind = entry[0]
    if kind == "cluster":
        return {field.name: getattr(state, field.name) for field in _OTHERS}
    if kind in MAPS:
        body = getattr(state, kind).get(entry[1])
        if kind == "topics" and body is not None:
            return replace(body, partitions=(), schemas={})
        if kind == "groups" and body is not None:
            return replace(body, offsets=EMPTY)
        return body
    if kind == "offsets":
        group = state.groups.get(entry[1])
        return None if group is None else group.offsets.get(entry[2])
    topic = state.topics.get(entry[1])
    if kind == "schemas":
        versions = () if topic is None else topic.schemas.get(entry[2], ())
        return versions[entry[3] - 1] if entry[3] <= len(versions) else None
    if topic is None or entry[2] >= len(topic.partitions):
        return None
    partition = topic.partitions[entry[2]]
    return replace(partition, producers=EMPTY) if kind == "partitions" else partition.producers.get(entry[3])


# -- from rows


@contextmanager
def _pause_collector() -> Iterator[None]:
    """Pause the garbage collector of cycles: it would scan a million new objects many times, and find no garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_pause_collector()
def assemble(parts: Iterable[BytesLike]) -> State:
    """Return the state in these parts, oldest first. Raises msgspec.MsgspecError, KeyError, ValueError."""
    scalars: Any = None
    entries: dict[str, dict[Any, Any]] = {kind: {} for kind in KEYS}
    for data in parts:
        part = _TYPED_DECODER.decode(data)
        scalars = part.cluster[-1][0] if part.cluster else scalars  # type: ignore[attr-defined]
        for kind, (key, _) in KEYS.items():
            rows = getattr(part, kind)
            entries[kind].update(rows if len(key) == 1 else ((row[:-1], row[-1]) for row in rows))
    for name, producers in _group(entries["partition_producers"], 2).items():
        partition = entries["partitions"][name]
        entries["partitions"][name] = replace(partition, producers=Map(producers))
    maps = {kind: {key: body for key, body in entries[kind].items() if body is not None} for kind in MAPS}
    for (name, config), numbered in _group(entries["schemas"], 2).items():
        topic = maps["topics"][name]
        versions = tuple(numbered[number + 1] for number in range(len(numbered)))
        maps["topics"][name] = replace(topic, schemas={**topic.schemas, config: versions})
    partitions, offsets = _group(entries["partitions"], 1), _group(entries["offsets"], 1)
    for (name,), numbered in partitions.items():
        listed = tuple(numbered[number] for number in range(len(numbered)))
        maps["topics"][name] = replace(maps["topics"][name], partitions=listed)
    for (name,), positions in offsets.items():
        maps["groups"][name] = replace(maps["groups"][name], offsets=Map(positions))
    return make_state(scalars, maps)


def make_state(scalars: Any, maps: dict[str, dict[Any, Any]]) -> State:
    """Return the state with this row of the cluster, and the entries of ``MAPS``. Raises ValueError without the row."""
    if scalars is None:
        raise ValueError("the row of the cluster is missing")
    kept: dict[str, Any] = {kind: bodies if kind == "brokers" else Map(bodies) for kind, bodies in maps.items()}
    return with_indexes(State(**msgspec.structs.asdict(scalars), **kept))


def _group(rows: dict[Row, Any], length: int) -> dict[Row, dict[Any, Any]]:
    """Group bodies by the first fields of their keys, then by the last; deleted ones are dropped."""
    groups: dict[Row, dict[Any, Any]] = {}
    for key, body in rows.items():
        if body is not None:
            groups.setdefault(key[:length], {})[key[length]] = body
    return groups
