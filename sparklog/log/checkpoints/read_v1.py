"""Reads heads of checkpoint format 1: one Arrow file with a row per topic, broker, group and so on."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from sparklog.log.checkpoints.files import read_columns
from sparklog.log.checkpoints.heads import KEYS, MAPS, SCALARS, make_state, persistent
from sparklog.log.checkpoints.tiers import FileReference
from sparklog.protocol.state import State
from sparklog.store.base import Store

_SCHEMA = pa.schema([("kind", pa.string()), ("name", pa.string()), ("body", pa.binary())])
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(KEYS[kind][1], dec_hook=persistent) for kind in MAPS
}
_SCALARS_DECODER = msgspec.json.Decoder(SCALARS)


def read_state(store: Store, file: FileReference) -> State:
    """Read the state from a file of heads. Raises CorruptMetadataError, msgspec.MsgspecError, KeyError, ValueError."""
    rows = read_columns(store, file, _SCHEMA, {})
    scalars: Any = None
    maps: dict[str, dict[Any, Any]] = {kind: {} for kind in MAPS}
    for kind, name, body in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        if kind == "cluster":
            scalars = _SCALARS_DECODER.decode(body)
        else:
            (key_type,), _ = KEYS[kind]
            maps[kind][key_type(name)] = _DECODERS[kind].decode(body)
    return make_state(scalars, maps)
