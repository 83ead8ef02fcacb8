"""Checkpoints: the state at a version, so that opening a cluster does not cost its age.

    meta/checkpoints/latest.json                          {"manifest": key}: a hint, overwritten; may be stale or absent
    meta/checkpoints/<20 digits>-<write id>.json          the manifest of that version, names the files below
    meta/checkpoints/<20 digits>-<write id>.heads         the heads: an Arrow file, one row per topic, broker, group, …
    meta/checkpoints/<20 digits>-<write id>-<n>.segments  segments of one topic: an Arrow file of ``segments.SCHEMA``

Incremental: a manifest repeats the segment files of the one before for every topic, and adds a file only for topics
that changed. Files of a topic are merged when the newer ones outgrow the last, so a topic of n segments has about log n
files and each segment is rewritten about log n times in its life (a log-structured merge of tiered runs). The list of a
topic is written anew, as one file, where segments were replaced or deleted since.

Rules: a checkpoint is derived from commits and never the source of truth; anyone may write one at any time; every file
has its length and CRC32C in the manifest, and is read back before the manifest is stored; damage is an error that names
the file, since the commits it stands for may be gone. A file may also be gone because newer checkpoints have replaced
this one (see ``cleanup``): the error has ``missing`` set then, and whoever reads goes on with another checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from sparklog import limits
from sparklog.errors import (
    CorruptMetadataError,
    ObjectNotFoundError,
    SparklogError,
    StorageError,
    UnsupportedVersionError,
)
from sparklog.format.checksum import crc32c
from sparklog.ids import Ids
from sparklog.log.layout import CHECKPOINTS, manifest_version
from sparklog.log.segments import SCHEMA, TopicSegments, merge_parts, to_part
from sparklog.protocol.segments import Segment, SegmentEvent
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

FORMAT = 1
LATEST_KEY = CHECKPOINTS + "latest.json"
_HEADS_SCHEMA = pa.schema([("kind", pa.string()), ("name", pa.string()), ("body", pa.binary())])
_KINDS: dict[str, tuple[type, Callable[[str], Any]]] = {
    "topics": (TopicState, str),
    "brokers": (BrokerState, int),
    "producers": (ProducerState, int),
    "applications": (ApplicationState, str),
    "groups": (GroupState, str),
    "removed_files": (RemovedFiles, str),
}


class FileReference(msgspec.Struct, frozen=True):
    """A file of a checkpoint: key, length in bytes, CRC32C of all of it, rows."""

    key: str
    size: int
    crc: int
    rows: int


class Manifest(msgspec.Struct, frozen=True):
    """A checkpoint: the heads at ``version``, and the segment files of each topic id, oldest first.

    ``commit_bytes`` is what the commits up to there took in all, as far as that is known.
    """

    format: int
    version: int
    heads: FileReference
    segments: dict[str, list[FileReference]]
    commit_bytes: int = 0


class _Latest(msgspec.Struct, frozen=True):
    manifest: str


# Made at import, which one thread does: msgspec 0.22 ends the process with SIGSEGV where two threads at the same time
# are the first to decode a type that holds other types.
_LATEST_DECODER = msgspec.json.Decoder(_Latest)
_MANIFEST_DECODER = msgspec.json.Decoder(Manifest)
_KIND_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(struct) for kind, (struct, _) in _KINDS.items()
}
msgspec.json.Decoder(State)  # so that msgspec.convert knows it


# -- reading


def read_newest(store: Store) -> Manifest | None:
    """The newest checkpoint's manifest, or None where there is none."""
    hinted = _hinted_key(store)
    if hinted is not None:
        try:
            return read_manifest(store, hinted)
        except ObjectNotFoundError:
            pass  # the hint is overwritten by whoever is late, and old checkpoints are removed: look instead
    return read_newest_listed(store)


def read_newest_listed(store: Store) -> Manifest | None:
    """The newest checkpoint's manifest by listing: right also where the hint is stale, and slower."""
    gone = ""
    while keys := _listed(store):
        try:
            return read_manifest(store, keys[0])
        except ObjectNotFoundError:  # this process was stopped since the listing, and newer ones have replaced it
            if keys[0] == gone:
                raise
            gone = keys[0]
    return None


def _listed(store: Store) -> list[str]:
    """The manifests there are, newest first."""
    return sorted(
        (info.key for info in store.list(CHECKPOINTS) if manifest_version(info.key) is not None), reverse=True
    )


def read_newest_state(
    store: Store, listed: bool = False, without: Collection[str] = ()
) -> tuple[Manifest | None, State | None]:
    """The newest checkpoint whose heads are there, and the state it holds; None where there is no checkpoint.

    By the hint, or by listing where that is stale or ``listed`` asks for it. ``without`` are the keys of heads of
    checkpoints that are known to lack files. Raises CorruptMetadataError.
    """
    failure: SparklogError | None = None
    for key in _candidates(store, listed):
        try:
            manifest = read_manifest(store, key)
            if manifest.heads.key not in without:
                return manifest, read_heads(store, manifest)
        except ObjectNotFoundError as error:
            failure = failure or error
        except CorruptMetadataError as error:
            if not error.missing:
                raise
            failure = failure or error
    if failure is not None and not isinstance(failure, ObjectNotFoundError):
        raise failure
    return None, None


def _candidates(store: Store, listed: bool) -> Iterator[str]:
    """Manifests in the order to try them: the hinted one, those listed, and those listed by the time none of these did.

    A process that was stopped since it listed them may find all of them gone, and newer ones there.
    """
    tried: set[str] = set()
    hinted = None if listed else _hinted_key(store)
    found = [hinted] if hinted is not None else _listed(store)
    while found:
        for key in found:
            tried.add(key)
            yield key
        found = [key for key in _listed(store) if key not in tried]


def _hinted_key(store: Store) -> str | None:
    try:
        key = _LATEST_DECODER.decode(store.get(LATEST_KEY, limits.MAX_CLUSTER_FILE_BYTES)).manifest
    except (ObjectNotFoundError, CorruptMetadataError, msgspec.MsgspecError, RecursionError):
        return None  # only a hint: the listing is right
    return key if manifest_version(key) is not None else None


def read_manifest(store: Store, key: str) -> Manifest:
    """A checkpoint's manifest. Raises ObjectNotFoundError, CorruptMetadataError, UnsupportedVersionError."""
    path = f"{store.root}/{key}"
    try:
        manifest = _MANIFEST_DECODER.decode(store.get(key, limits.MAX_MANIFEST_BYTES))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(f"checkpoint {path} cannot be read: {error}; {_MEND}", path=path) from error
    if manifest.format > FORMAT:
        raise UnsupportedVersionError(
            f"checkpoint {path} has format {manifest.format}, this sparklog reads up to {FORMAT}; upgrade it", path=path
        )
    return manifest


_MEND = "delete this checkpoint if the commits it stands for are still there, else restore it from a copy of the root"


def read_heads(store: Store, manifest: Manifest) -> State:
    """The state that a checkpoint holds. Raises CorruptMetadataError."""
    table = _read_arrow(store, manifest.heads, _HEADS_SCHEMA)
    path = f"{store.root}/{manifest.heads.key}"
    fields: dict[str, Any] = {}
    maps: dict[str, dict[Any, Any]] = {kind: {} for kind in _KINDS}
    try:
        for kind, name, body in zip(*(column.to_pylist() for column in table.columns), strict=True):
            if kind == "cluster":
                fields = msgspec.json.decode(body)
            else:
                maps[kind][_KINDS[kind][1](name)] = _KIND_DECODERS[kind].decode(body)
        return msgspec.convert({**fields, **maps}, State, from_attributes=True)
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        raise CorruptMetadataError(f"checkpoint {path} cannot be read: {error}; {_MEND}", path=path) from error


def is_whole(store: Store, manifest: Manifest) -> bool:
    """Whether every file that a checkpoint names is there, by listing them all."""
    sizes = {info.key: info.size for info in store.list(CHECKPOINTS)}
    named = [manifest.heads, *(file for files in manifest.segments.values() for file in files)]
    return all(sizes.get(file.key) == file.size for file in named)


def read_segments(store: Store, files: Sequence[FileReference]) -> list[pa.RecordBatch]:
    """The parts of one topic, oldest first. Raises CorruptMetadataError."""
    return [_read_arrow(store, file, SCHEMA) for file in files]


def _read_arrow(store: Store, file: FileReference, schema: pa.Schema) -> pa.RecordBatch:
    path = f"{store.root}/{file.key}"
    if file.size > limits.MAX_CHECKPOINT_PART_BYTES:
        raise CorruptMetadataError(f"checkpoint file {path} claims {file.size:,} bytes; {_MEND}", path=path)
    try:
        data = store.open_input(file.key).read_at(0, file.size)
    except ObjectNotFoundError as error:
        raise CorruptMetadataError(f"checkpoint file {path} is missing; {_MEND}", path=path, missing=True) from error
    actual = crc32c(data)
    if actual != file.crc or data.size != file.size:
        raise CorruptMetadataError(
            f"checkpoint file {path} is damaged: expected {file.size} bytes with CRC32C {file.crc:#010x}, found "
            f"{data.size} with {actual:#010x}; {_MEND}",
            path=path,
        )
    table = pa.ipc.open_file(data).read_all().combine_chunks()
    if table.schema != schema:
        raise CorruptMetadataError(f"checkpoint file {path} has other columns than expected; {_MEND}", path=path)
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


# -- writing


def write_checkpoint(
    store: Store,
    ids: Ids,
    state: State,
    base: Manifest | None,
    recent: Mapping[str, Sequence[SegmentEvent]],
    commit_bytes: int = 0,
) -> Manifest:
    """Store the state and what became of segments since ``base``.

    ``recent`` is what the commits after ``base`` up to ``state.version`` did to lists of segments, by topic id.
    """
    stem = f"{CHECKPOINTS}{state.version:020d}-{ids.write_id()}"
    live = {topic.topic_id: topic for topic in state.topics.values()}
    known = base.segments if base is not None else {}
    segments = {topic_id: files for topic_id, files in known.items() if topic_id in live}
    for number, topic_id in enumerate(sorted(live.keys() & recent.keys())):
        key, files, events = f"{stem}-{number}.segments", segments.get(topic_id, []), recent[topic_id]
        added = [event for event in events if isinstance(event, Segment)]
        if len(added) == len(events):
            segments[topic_id] = _with_part(store, key, files, to_part(added))
        else:
            listed = TopicSegments(live[topic_id], read_segments(store, files), events)
            segments[topic_id] = [_write_arrow(store, key, listed.table())]
    heads = _write_arrow(store, f"{stem}.heads", _heads_table(state))
    manifest = Manifest(format=FORMAT, version=state.version, heads=heads, segments=segments, commit_bytes=commit_bytes)
    store.put(_manifest_key(manifest), msgspec.json.encode(manifest))
    store.put(LATEST_KEY, msgspec.json.encode(_Latest(manifest=_manifest_key(manifest))))
    return manifest


def withdraw(store: Store, manifest: Manifest) -> None:
    """Take a checkpoint back that turned out to lack files; what is left of it goes with the next clean-up."""
    store.delete(_manifest_key(manifest))


def _manifest_key(manifest: Manifest) -> str:
    return manifest.heads.key.removesuffix(".heads") + ".json"


def _with_part(store: Store, key: str, files: Sequence[FileReference], added: pa.RecordBatch) -> list[FileReference]:
    """The files of a topic with new segments: last files that are not larger are merged into the new one."""
    kept = list(files)
    merged = [added]
    rows = added.num_rows
    while kept and kept[-1].rows <= 2 * rows:
        last = kept.pop()
        merged.insert(0, _read_arrow(store, last, SCHEMA))
        rows += last.rows
    return [*kept, _write_arrow(store, key, merge_parts(merged) if len(merged) > 1 else added)]


def _heads_table(state: State) -> pa.RecordBatch:
    scalars = {name: getattr(state, name) for name in State.__struct_fields__ if name not in _KINDS}
    rows = [("cluster", "", msgspec.json.encode(scalars))]
    for kind in _KINDS:
        rows += [(kind, str(name), msgspec.json.encode(value)) for name, value in getattr(state, kind).items()]
    columns = [
        pa.array(column, type=field.type) for column, field in zip(zip(*rows, strict=True), _HEADS_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_HEADS_SCHEMA)


def _write_arrow(store: Store, key: str, batch: pa.RecordBatch) -> FileReference:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    output = store.open_output(key)
    try:
        output.write(data)
        output.close()
    except StorageError:
        output.abort()
        raise
    written = FileReference(key=key, size=data.size, crc=crc32c(data), rows=batch.num_rows)
    _read_arrow(store, written, batch.schema)
    return written
