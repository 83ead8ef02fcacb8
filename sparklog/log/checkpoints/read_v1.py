"""Reads heads of checkpoint format 1: one Arrow file with a row per topic, broker, group and so on."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from immutables import Map

from sparklog.log.checkpoints.files import AnyReference, read_columns
from sparklog.log.checkpoints.heads import SCALARS, persistent
from sparklog.protocol.indexes import with_indexes
from sparklog.protocol.state import (
    ApplicationState,
    BrokerState,
    GroupState,
    ProducerState,
    RemovedFiles,
    State,
    TopicState,
)
from sparklog.store.base import Store

_SCHEMA = pa.schema([("kind", pa.string()), ("name", pa.string()), ("body", pa.binary())])
_KINDS: dict[str, tuple[type, type]] = {
    "topics": (TopicState, str),
    "brokers": (BrokerState, int),
    "producers": (ProducerState, int),
    "applications": (ApplicationState, str),
    "groups": (GroupState, str),
    "removed_files": (RemovedFiles, str),
}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(body, dec_hook=persistent) for kind, (body, _) in _KINDS.items()
}
_SCALARS_DECODER = msgspec.json.Decoder(SCALARS)


def read_state(store: Store, file: AnyReference) -> State:
    """Read the state from a file of heads. Raises CorruptMetadataError, msgspec.MsgspecError, KeyError, ValueError."""
    rows = read_columns(store, file, _SCHEMA, {})
    scalars: Any = None
    maps: dict[str, dict[Any, Any]] = {kind: {} for kind in _KINDS}
    for kind, name, body in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        if kind == "cluster":
            scalars = _SCALARS_DECODER.decode(body)
        else:
            maps[kind][_KINDS[kind][1](name)] = _DECODERS[kind].decode(body)
    if scalars is None:
        raise ValueError("the row of the cluster is missing")
    kept: dict[str, Any] = {kind: entries if kind == "brokers" else Map(entries) for kind, entries in maps.items()}
    return with_indexes(State(**msgspec.structs.asdict(scalars), **kept))
