"""The heads of a cluster as rows, one per entry of the state, and back.

A part is one JSON object: rows by kind, each the entry's key and its body, or null where the entry is gone::

    {"cluster":[[{"cluster_id":"eT…","version":200,"timestamp_ms":1790000000000,…}]],
     "topics":[["orders",{"name":"orders","topic_id":"q8…","partitions":[],"checksum":"3f…"}]],
     "partitions":[["orders",0,{"replicas":[0],"isr":[0],"leader":0,"log_end_offset":3,…}],["orders",1,null]],…}

Rows are as fine as changes are: an append rewrites one partition, its topic's checksum and one producer, not the other
partitions, producers and offsets beside them. The kinds are those of ``fold.ENTRIES``, and ``cluster``: whatever the
state has besides.

Rules: pure; a field that is at its default is left out; fields that are not known are passed over, since a newer format
says so in the manifest.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
from immutables import Map
from msgspec.structs import fields, replace

from sparklog.log.checkpoints.tiers import Row, Rows
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
    State,
    TopicState,
)
from sparklog.store.base import BytesLike

KEYS: dict[str, tuple[tuple[type, ...], type]] = {
    "topics": ((str,), TopicState),
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

_MAPS = ("topics", "brokers", "producers", "applications", "groups", "removed_files")
_OTHERS = [field for field in fields(State) if field.name not in (*_MAPS, "indexes")]


def _default(field: Any) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return msgspec.field(default=field.default)


SCALARS: Any = msgspec.defstruct("ClusterRow", [(one.name, one.type, _default(one)) for one in _OTHERS])
CLUSTER: Entry = ("cluster",)


def _plain(value: Any) -> Any:
    if isinstance(value, Map):
        return dict(value)
    raise NotImplementedError(type(value))


def persistent(kind: Any, value: Any) -> Any:
    """For msgspec: a persistent map, whose keys JSON has as text."""
    of_dict: Any = types.GenericAlias(dict, kind.__args__)
    return Map(msgspec.convert(value, of_dict, str_keys=True, dec_hook=persistent))


def _part_type(name: str, bodies: dict[str, Any]) -> type[msgspec.Struct]:
    """A struct of rows by kind, each a tuple of the key's fields and one of these bodies."""

    def rows(kind: str) -> Any:
        key = KEYS[kind][0] if kind in KEYS else ()
        return types.GenericAlias(list, (types.GenericAlias(tuple, (*key, bodies[kind])),))

    kinds: list[Any] = [(kind, rows(kind), msgspec.field(default_factory=list)) for kind in ("cluster", *KEYS)]
    return msgspec.defstruct(name, kinds)


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
TYPED = _part_type("HeadRows", {**{kind: body | None for kind, (_, body) in KEYS.items()}, "cluster": SCALARS})
_RAW = _part_type("_Raw", dict.fromkeys((*KEYS, "cluster"), msgspec.Raw))
# Made at import, which one thread does: msgspec 0.22 ends the process with SIGSEGV where two threads at the same time
# are the first to decode a type that holds other types.
_TYPED_DECODER = msgspec.json.Decoder(TYPED, dec_hook=persistent)
_RAW_DECODER = msgspec.json.Decoder(_RAW)


# -- to rows


def changed_rows(state: State, entries: Iterable[Entry]) -> dict[str, list[Row]]:
    """The rows of these entries as they are in a state, null for what is not there, and the cluster's own."""
    found: dict[str, list[Row]] = {}
    for entry in sorted({*entries, CLUSTER}):
        found.setdefault(entry[0], []).append((*entry[1:], _body(state, entry)))
    return found


def all_rows(state: State) -> dict[str, list[Row]]:
    """The rows of all entries."""
    return changed_rows(state, _entries(state))


def count_rows(state: State) -> int:
    """How many those are."""
    maps = sum(len(getattr(state, kind)) for kind in _MAPS)
    offsets = sum(len(group.offsets) for group in state.groups.values())
    partitions = sum(len(topic.partitions) for topic in state.topics.values())
    producers = sum(len(one.producers) for topic in state.topics.values() for one in topic.partitions)
    return 1 + maps + offsets + partitions + producers


def _entries(state: State) -> Iterator[Entry]:
    for kind in _MAPS:
        yield from ((kind, key) for key in getattr(state, kind))
    for name, group in state.groups.items():
        yield from (("offsets", name, key) for key in group.offsets)
    for name, topic in state.topics.items():
        for number, partition in enumerate(topic.partitions):
            yield ("partitions", name, number)
            yield from (("partition_producers", name, number, producer) for producer in partition.producers)


def _body(state: State, entry: Entry) -> Any:
    """What is stored of an entry; None where it is not in the state."""
    kind = entry[0]
    if kind == "cluster":
        return {one.name: getattr(state, one.name) for one in _OTHERS}
    if kind in _MAPS:
        found = getattr(state, kind).get(entry[1])
        if kind == "topics" and found is not None:
            return replace(found, partitions=())
        if kind == "groups" and found is not None:
            return replace(found, offsets=EMPTY)
        return found
    if kind == "offsets":
        group = state.groups.get(entry[1])
        return None if group is None else group.offsets.get(entry[2])
    topic = state.topics.get(entry[1])
    if topic is None or entry[2] >= len(topic.partitions):
        return None
    partition = topic.partitions[entry[2]]
    return replace(partition, producers=EMPTY) if kind == "partitions" else partition.producers.get(entry[3])


def encode_rows(rows: Rows) -> bytes:
    return _ENCODER.encode(rows)


# -- from rows


def raw_rows(data: BytesLike) -> dict[str, list[Row]]:
    """A part's rows with bodies as they are stored. Raises msgspec.MsgspecError."""
    return cast("dict[str, list[Row]]", msgspec.structs.asdict(_RAW_DECODER.decode(data)))


def assemble(parts: Iterable[BytesLike]) -> State:
    """The state that parts hold, oldest first. Raises msgspec.MsgspecError, KeyError, ValueError."""
    with _without_collections():
        return _assembled(parts)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Without the collector of cycles: it would look at each of a million new objects many times, and find none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _assembled(parts: Iterable[BytesLike]) -> State:
    scalars: Any = None
    found: dict[str, dict[Any, Any]] = {kind: {} for kind in KEYS}
    for data in parts:
        part = _TYPED_DECODER.decode(data)
        scalars = part.cluster[-1][0] if part.cluster else scalars  # type: ignore[attr-defined]
        for kind, (key, _) in KEYS.items():
            rows = getattr(part, kind)
            found[kind].update(rows if len(key) == 1 else ((row[:-1], row[-1]) for row in rows))
    if scalars is None:
        raise ValueError("it has no row of the cluster's own")
    for name, producers in _grouped(found["partition_producers"], 2).items():
        partition = found["partitions"][name]
        found["partitions"][name] = replace(partition, producers=Map(producers))
    maps = {kind: {key: body for key, body in found[kind].items() if body is not None} for kind in _MAPS}
    partitions, offsets = _grouped(found["partitions"], 1), _grouped(found["offsets"], 1)
    for (name,), numbered in partitions.items():
        listed = tuple(numbered[number] for number in range(len(numbered)))
        maps["topics"][name] = replace(maps["topics"][name], partitions=listed)
    for (name,), positions in offsets.items():
        maps["groups"][name] = replace(maps["groups"][name], offsets=Map(positions))
    values = {one.name: getattr(scalars, one.name) for one in _OTHERS}
    kept: dict[str, Any] = {kind: entries if kind == "brokers" else Map(entries) for kind, entries in maps.items()}
    return with_indexes(State(**values, **kept))


def _grouped(rows: dict[Row, Any], length: int) -> dict[Row, dict[Any, Any]]:
    """Bodies by the first fields of their keys, and by the last; without those that are gone."""
    found: dict[Row, dict[Any, Any]] = {}
    for key, body in rows.items():
        if body is not None:
            found.setdefault(key[:length], {})[key[length]] = body
    return found
