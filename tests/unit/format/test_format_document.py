"""The worked example of docs/format.md matches what the code writes and reads."""

from __future__ import annotations

import io
import re
from pathlib import Path

from sparklog.format.index import decode_index
from sparklog.format.segment_writer import SegmentWriter

from .segments import Row, record_batch, section_range

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "format.md"
COLUMNS = ("key", "value", "timestamp")
FIRST: list[Row] = [
    (b"N14228", b'{"delay":2}', 1_357_034_400_000_000, None),
    (None, None, 1_357_034_400_000_250, None),
]
SECOND: list[Row] = [(b"", b'{"delay":-9}', 1_357_034_520_000_000, None)]


def hex_dumps() -> list[tuple[int, bytes]]:
    """Position and bytes of each hex dump in the document."""
    dumps: list[tuple[int, bytes]] = []
    for position, digits in re.findall(r"^    +(\d+)  ((?:[0-9a-f]{2} )+) ", DOCUMENT.read_text(), re.MULTILINE):
        data = bytes.fromhex(digits)
        if dumps and dumps[-1][0] + len(dumps[-1][1]) == int(position):
            dumps[-1] = (dumps[-1][0], dumps[-1][1] + data)
        else:
            dumps.append((int(position), data))
    return dumps


def test_worked_example_matches_the_writer() -> None:
    sink = io.BytesIO()
    writer = SegmentWriter(sink)
    writer.write(record_batch(FIRST, COLUMNS), producer_id=7, producer_epoch=0, base_sequence=40)
    writer.write(record_batch(SECOND, COLUMNS), producer_id=7, producer_epoch=0, base_sequence=42)
    index = decode_index(writer.finish(), "example.index")
    (_, documented_index), (position, documented_body) = hex_dumps()
    documented = decode_index(documented_index, "docs/format.md")
    first = documented.entries[0]
    # Another version of Arrow may write other metadata; the rest is ours, or fixed by Arrow's format.
    assert [(e[0], *e[2:6]) for e in documented.entries] == [(e[0], *e[2:6]) for e in index.entries]
    assert [e.section("value") for e in documented.entries] == [e.section("value") for e in index.entries]
    start, end = section_range(first, "key")[0], section_range(first, "timestamp")[1]
    body = sink.getvalue()[index.entries[0].position + index.entries[0].metadata_length : index.entries[0].end]
    assert (position, position + len(documented_body)) == (start, end)
    assert documented_body == body
    assert f"{first.value_crc32c:#010x}" in DOCUMENT.read_text()
