"""What each level stores: the fields, types and bounds of every stored struct, and the columns of every stored table.

    python tests/golden/make_schemas.py          # writes schemas/level-<the present level>.json

``tests/cluster/test_levels.py`` compares that file with the code. If they differ, the stored formats have changed:
raise the level in ``sparklog/protocol/levels.py``, then write the file of the new level. Only that of an unreleased
level may be written again; those of earlier levels are kept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from sparklog.coordinator import controller, leases, reader_leases
from sparklog.log import broker_files as locations
from sparklog.log import layout, owner_files, segments
from sparklog.log.checkpoints import checkpoint, heads, lists, tiers
from sparklog.log.checkpoints import read_v1 as checkpoint_v1
from sparklog.log.commits import retired_files as removals
from sparklog.maintenance import mirror
from sparklog.protocol import commits, state

FOLDER = Path(__file__).parent / "schemas"

STRUCTS: tuple[Any, ...] = (
    commits.Commit,
    heads.SCALARS,
    state.ApplicationState,
    state.BrokerState,
    state.GroupOffset,
    state.MemberState,
    state.PartitionProducer,
    state.ProducerState,
    state.RemovedFiles,
    state.SchemaVersion,
    lists._Rows,
    lists._Stored,
    tiers.FileReference,
    checkpoint.Manifest,
    checkpoint._Latest,
    layout.ClusterFile,
    layout.Boundary,
    leases.LeaseFile,
    reader_leases.ReaderLeaseFile,
    controller.ControllerLease,
    locations.Identity,
    locations.LatestCheck,
    owner_files.StoredOwner,
    owner_files.EpochFile,
    locations.AllowedLocations,
    mirror.MirrorFile,
)
"""What is stored as JSON; nested structs are described with them."""

FIRST_NAMES = {"ReaderLeaseFile": "AnnouncementFile"}
"""Class -> its name when its level was described; names of classes are not stored."""

TABLES: dict[str, pa.Schema] = {
    "checkpoint heads of level 1": checkpoint_v1._SCHEMA,
    "checkpoint segments": segments.SCHEMA,
    "removed files": removals.SCHEMA,
}


def describe() -> dict[str, Any]:
    """Describe everything that is stored, by name, without titles and descriptions."""
    _, components = msgspec.json.schema_components(STRUCTS)
    schemas = {FIRST_NAMES.get(name, name): _without_texts(schema) for name, schema in components.items()}
    described: dict[str, Any] = dict(sorted(schemas.items()))
    for struct in (state.TopicState, state.PartitionState, state.GroupState):  # their contents are separate rows
        described[struct.__name__] = [f"{field.encode_name}: {field.type}" for field in msgspec.structs.fields(struct)]
    described["rows of heads"] = {kind: [str(part) for part in row] for kind, row in heads.KEYS.items()}
    for name, schema in TABLES.items():
        described[name] = [f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema]
    return described


def _without_texts(schema: Any) -> Any:
    """Return a JSON schema without descriptions, and a union of actions as names only: each is described separately."""
    if isinstance(schema, list):
        return [_without_texts(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "discriminator" in schema:
        return sorted(schema["discriminator"]["mapping"])
    return {name: _without_texts(part) for name, part in schema.items() if name not in ("title", "description")}


def write(level: int) -> Path:
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"level-{level}.json"
    lines = [f"{json.dumps(name)}: {json.dumps(what, sort_keys=True)}" for name, what in describe().items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return path


def main() -> None:
    try:
        from sparklog.protocol import levels
    except ImportError:  # the version of level 1 has no levels
        print(f"wrote {write(1)}")
        return
    print(f"wrote {write(levels.CURRENT)}")


if __name__ == "__main__":
    main()
