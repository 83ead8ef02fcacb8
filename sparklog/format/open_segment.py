"""Chooses the reader of a segment's file: Arrow (``.log``) or Parquet (a history segment), as its index says."""

from __future__ import annotations

from sparklog.format.index import Index
from sparklog.format.segment_reader import ReadAt, SegmentReader


def open_segment(read_at: ReadAt, index: Index, path: str) -> SegmentReader:
    """Return the reader of a file. Arguments as of ``SegmentReader``."""
    if index.summary.is_parquet:
        from sparklog.format.parquet.reader import ParquetSegmentReader  # Parquet's reader takes time to import

        return ParquetSegmentReader(read_at, index, path)
    return SegmentReader(read_at, index, path)
