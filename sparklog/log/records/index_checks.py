"""Compares an index with the commit log, before the file is read by it: a file may have been put back by mistake."""

from __future__ import annotations

from sparklog.errors import CorruptIndexError
from sparklog.format.index import Index
from sparklog.protocol.segments import Segment


def find_run_fault(segment: Segment, index: Index) -> str:
    """Return how an index differs from a segment: in batches, rows, size or kind of offsets; empty if it does not."""
    first, last = segment.first_batch, segment.first_batch + segment.batches - 1
    if last >= len(index):
        return f"the commit names batches {first} to {last}, but the index has {len(index)} batches"
    entry = index.entry(first)
    final = entry if first == last else index.entry(last)
    rows = (entry.first_row, final.end_row - entry.first_row)
    if rows != (segment.first_row, segment.records):
        return (
            f"the commit names {segment.records} records from row {segment.first_row}, but the index has {rows[1]} "
            f"from row {rows[0]}"
        )
    if segment.file_bytes and segment.file_bytes != index.summary.log_length:
        return f"the commit names a file of {segment.file_bytes} bytes, but the index one of {index.summary.log_length}"
    if segment.has_gaps and not index.summary.has_offsets:
        return "the offsets have gaps, but the file has no explicit offsets"
    return ""


def check_run(segment: Segment, index: Index) -> Index:
    """Return the index. Raises CorruptIndexError unless it holds the run that the commit names."""
    fault = find_run_fault(segment, index)
    if fault:
        raise CorruptIndexError(
            f"{index.path} is not the index of the file that the commit log names: {fault}; restore the file and its "
            ".log from a copy",
            path=index.path,
            partition=segment.partition,
            offset=segment.base_offset,
        )
    return index
