"""Checkpoint files that are hostile, or of a newer version, are refused with the matching error."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from sparklog import limits
from sparklog.errors import CorruptMetadataError, UnsupportedVersionError
from sparklog.format.plain_arrays import plain_batch
from sparklog.log.checkpoints.files import describe, read_segments_file
from sparklog.log.checkpoints.tiers import FileReference
from sparklog.log.commits import retired_files as removals
from sparklog.log.segments import SCHEMA, to_part
from sparklog.protocol.segments import Segment
from sparklog.store.memory import MemoryStore

SEGMENT = Segment(0, 0, 3, 3, "t-0/x.log", 0, 0, 1, 0, 9, 1, 2, -1, 0, 5, True, 7)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


def stored(store: MemoryStore, batch: pa.RecordBatch, compression: str | None = None) -> FileReference:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    store.put("meta/checkpoints/x.segments", data.to_pybytes())
    return describe("meta/checkpoints/x.segments", data, batch.num_rows)


def test_a_list_is_read_back_as_written(store: MemoryStore) -> None:
    part = to_part([SEGMENT])
    assert read_segments_file(store, stored(store, part)).equals(part)
    assert read_segments_file(store, stored(store, to_part([]))).num_rows == 0


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_compressed_list_is_refused_before_it_is_decompressed(store: MemoryStore, compression: str) -> None:
    bomb = to_part([SEGMENT] * 200_000)
    reference = stored(store, bomb, compression)
    assert reference.size < bomb.nbytes / 20
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptMetadataError, match="its buffers are compressed"):
        read_segments_file(store, reference)
    assert pa.total_allocated_bytes() - before < bomb.nbytes / 10


def test_an_oversized_listing_of_removed_files_is_refused(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [removals.RemovedFile(f"t-0/{number:06d}.log", 0, 1) for number in range(10_000)]

    class Ids:
        def write_id(self) -> str:
            return "w"

    listing = removals.write_removed(store, Ids(), 1, files, 0).listing  # type: ignore[arg-type]
    assert list(removals.read_removed(store, listing)) == files
    monkeypatch.setattr(limits, "MAX_LISTING_BYTES", 100_000)
    with pytest.raises(CorruptMetadataError, match="claim a decompressed size"):
        list(removals.read_removed(store, listing))


def test_a_list_without_the_newer_columns_gets_their_defaults(store: MemoryStore) -> None:
    old = to_part([SEGMENT]).select([name for name in SCHEMA.names if name not in ("closed", "delete_horizon_ms")])
    read = read_segments_file(store, stored(store, old))
    assert read.schema == SCHEMA
    assert (read.column("closed").to_pylist(), read.column("delete_horizon_ms").to_pylist()) == ([False], [-1])


def test_a_list_without_a_required_column_is_damaged(store: MemoryStore) -> None:
    without = to_part([SEGMENT]).select([name for name in SCHEMA.names if name != "path"])
    with pytest.raises(CorruptMetadataError, match="path"):
        read_segments_file(store, stored(store, without))


def test_a_list_with_columns_of_a_newer_version_is_an_unsupported_version(store: MemoryStore) -> None:
    part = to_part([SEGMENT])
    newer = pa.RecordBatch.from_arrays([*part.columns, part.column("path")], names=[*SCHEMA.names, "flavour"])
    with pytest.raises(UnsupportedVersionError, match="flavour"):
        read_segments_file(store, stored(store, newer))


@pytest.mark.parametrize("values", [[], [True], [False] * 7 + [True] * 10, [True] * 8])
def test_plain_arrays_equal_those_made_by_arrow(values: list[bool]) -> None:
    schema = pa.schema([("b", pa.bool_()), ("t", pa.string()), ("n", pa.int64())])
    columns: list[list[Any]] = [values, [f"é{value}" for value in values], list(range(len(values)))]
    batch = plain_batch(columns, schema)
    batch.validate(full=bool(values))
    assert batch.to_pydict() == dict(zip(("b", "t", "n"), columns, strict=True))


@pytest.mark.parametrize("cut", [1, 10, 40, 200])
def test_a_truncated_file_is_an_error_that_names_it(store: MemoryStore, cut: int) -> None:
    reference = stored(store, to_part([SEGMENT] * 5))
    data = store.get(reference.key)[:-cut]
    store.put(reference.key, data)
    with pytest.raises(CorruptMetadataError, match=r"x\.segments cannot be read"):
        read_segments_file(store, describe(reference.key, data, 5))
