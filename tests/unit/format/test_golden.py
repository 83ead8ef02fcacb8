"""Every released version of the format stays readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.format import schema
from sparklog.format.codecs import CODECS
from sparklog.format.index import decode_index
from sparklog.format.segment_reader import SegmentReader

from .segments import Reads, rows_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
FILES = sorted(GOLDEN.glob("v*/*.log"))


def test_golden_files_of_this_version_cover_each_codec_and_set_of_columns() -> None:
    assert {*CODECS, "value-and-timestamp", "gapped", "gapped-gzip"} == {
        f.stem for f in FILES if f.parent.name == f"v{schema.FORMAT_VERSION}"
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_file_reads_as_it_was_written(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    index = decode_index(path.with_suffix(".index").read_bytes(), str(path))
    reader = SegmentReader(Reads(path.read_bytes()), index, str(path))
    index.check()
    reader.check_file()
    assert (index.codec, list(index.columns), len(index)) == (
        expected["codec"],
        expected["columns"],
        len(expected["batches"]),
    )
    for number, (entry, batch) in enumerate(zip(index.entries, expected["batches"], strict=True)):
        producer = (entry.producer_id, entry.producer_epoch, entry.base_sequence)
        assert producer == (batch["producer_id"], batch["producer_epoch"], batch["base_sequence"])
        read = [
            {"key": _hex(key), "value": _hex(value), "timestamp_us": time, "headers": _pairs(headers)}
            for key, value, time, headers in rows_of(reader.read(number))
        ]
        if index.summary.has_offsets:
            offsets = reader.read(number, ["offset"]).column(0).to_pylist()
            read = [{**record, "offset": offset} for record, offset in zip(read, offsets, strict=True)]
        assert read == batch["records"]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _pairs(headers: list[tuple[str, bytes | None]] | None) -> list[list[str | None]] | None:
    return None if headers is None else [[key, _hex(value)] for key, value in headers]
