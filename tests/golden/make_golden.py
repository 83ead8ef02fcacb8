"""Write the golden segments of the current format version beside this file.

    python tests/golden/make_golden.py          # keeps existing files
    python tests/golden/make_golden.py --force

Golden files are written once per format version and then kept: later versions must read them. Replace them only before
their version is released. Each name has a ``.log``, an ``.index``, and a ``.json`` with their contents, bytes as
hexadecimal digits.

Everything is seeded; another version of Arrow may still write other bytes with the same meaning.
"""

from __future__ import annotations

import io
import json
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.format import schema
from sparklog.format.codecs import CODECS
from sparklog.format.segment_writer import SegmentWriter

FOLDER = Path(__file__).parent
SEED = 14228
BATCH_SIZES = (1, 7, 40)
EDGES: list[dict[str, Any]] = [
    {"key": None, "value": None, "timestamp_us": 0, "headers": None},
    {"key": "", "value": "", "timestamp_us": -1000, "headers": []},
    {"key": "00ff", "value": "00" * 300, "timestamp_us": 253402300799999999, "headers": [["", None], ["a", ""]]},
    {"key": "61", "value": None, "timestamp_us": 1, "headers": [["größe", "01"], ["größe", "02"], ["☃", None]]},
]
FILES = {codec: (codec, True, True, False) for codec in CODECS} | {
    "value-and-timestamp": ("none", False, False, False),
    "gapped": ("lz4", True, True, True),
    "gapped-gzip": ("gzip", True, False, True),
}


def make_records(rng: random.Random, count: int) -> list[dict[str, Any]]:
    records = []
    for number in range(count):
        headers = [[rng.choice(["trace", "source"]), rng.randbytes(4).hex()] for _ in range(rng.randrange(3))]
        records.append(
            {
                "key": rng.choice([None, f"N{rng.randrange(10000)}".encode().hex()]),
                "value": (b'{"dep_delay":%d}' % rng.randrange(-20, 300) * rng.randrange(1, 9)).hex(),
                "timestamp_us": 1_357_034_400_000_000 + 1000 * number + rng.randrange(3000),
                "headers": headers or None,
            }
        )
    return records


def make_batches() -> list[dict[str, Any]]:
    rng = random.Random(SEED)
    batches: list[dict[str, Any]] = [
        {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "records": make_records(rng, size)}
        for size in BATCH_SIZES
    ]
    return [
        {"producer_id": 4000, "producer_epoch": 3, "base_sequence": 17, "records": [dict(edge) for edge in EDGES]},
        *batches,
    ]


def to_arrow(records: list[dict[str, Any]], columns: tuple[str, ...]) -> pa.RecordBatch:
    def unhex(digits: str | None) -> bytes | None:
        return None if digits is None else bytes.fromhex(digits)

    values = {
        "key": [unhex(record["key"]) for record in records],
        "value": [unhex(record["value"]) for record in records],
        "timestamp": [record["timestamp_us"] for record in records],
        "headers": [
            None if record["headers"] is None else [{"key": k, "value": unhex(v)} for k, v in record["headers"]]
            for record in records
        ],
        "offset": [record.get("offset") for record in records],
    }
    fields = schema.record_schema(columns)
    return pa.RecordBatch.from_arrays([pa.array(values[field.name], field.type) for field in fields], schema=fields)


def set_offsets(batches: list[dict[str, Any]]) -> None:
    """Set offsets as after compaction: large gaps between some batches, small gaps within them."""
    rng = random.Random(SEED)
    following = 3
    for batch in batches:
        following += rng.choice([0, 1, 1_000_000_000 // len(batches)])
        for record in batch["records"]:
            record["offset"] = following
            following += rng.choice([1, 1, 2, 1000])


def make_file(codec: str, has_key: bool, has_headers: bool, has_offsets: bool) -> tuple[bytes, bytes, dict[str, Any]]:
    sink = io.BytesIO()
    writer = SegmentWriter(sink, codec=codec, has_key=has_key, has_headers=has_headers, has_offsets=has_offsets)
    columns = schema.columns_present(has_key, has_headers, has_offsets)
    batches = make_batches()
    if has_offsets:
        set_offsets(batches)
    for batch in batches:
        producer = {name: batch[name] for name in ("producer_id", "producer_epoch", "base_sequence")}
        writer.write(to_arrow(batch["records"], columns), **producer)
        for record in batch["records"]:
            record.update({} if has_key else {"key": None}, **({} if has_headers else {"headers": None}))
    index = writer.finish()
    return sink.getvalue(), index, {"codec": codec, "columns": columns, "batches": batches}


def main() -> None:
    for name, arguments in FILES.items():
        path = FOLDER / f"v{schema.FORMAT_VERSION}" / name
        if path.with_suffix(".log").exists() and "--force" not in sys.argv:
            print(f"kept {path.name}: --force replaces it")
            continue
        path.parent.mkdir(exist_ok=True)
        log, index, expected = make_file(*arguments)
        path.with_suffix(".log").write_bytes(log)
        path.with_suffix(".index").write_bytes(index)
        path.with_suffix(".json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")
        print(f"wrote {path.name}: {len(log)} bytes of .log, {len(index)} bytes of .index")


if __name__ == "__main__":
    main()
