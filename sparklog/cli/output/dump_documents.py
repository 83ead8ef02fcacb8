"""The documents of ``sparklog dump-log --json``, one object per line; see ``documents`` for the rules.

A file of any size is printed as it is read: memory holds at most one batch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from sparklog.cli.output.document_parts import Document, Item, says


class DumpedRun(Item, frozen=True, kw_only=True):
    """A run of the file's batches that the commit log names."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    base_offset: Annotated[int, says("its first offset")]
    end_offset: Annotated[int, says("the offset after its last one")]
    records: Annotated[int, says("number of records; fewer than offsets if compaction removed some")]
    first_batch: Annotated[int, says("the number of its first batch in the file, from 0")]
    batches: Annotated[int, says("number of batches")]
    commit_version: Annotated[int, says("the commit that names it")]


class DumpedStart(Item, frozen=True, kw_only=True):
    """What is known about a file before its contents are read."""

    base_offset: Annotated[int, says("the offset in its name, which its writer expected")]
    runs: Annotated[
        list[DumpedRun] | None,
        says("with `--bootstrap-server`: its runs in the commit log; empty: no commit names it; null: not looked up"),
    ]
    index_fault: Annotated[str | None, says("the fault of the `.index`, or that it is missing")]


class DumpedRecord(Item, frozen=True, kw_only=True):
    """A record."""

    offset: Annotated[int, says("its offset")]
    timestamp_ms: Annotated[int, says("its time, in ms since 1970, of its batch's `timestamp_type`")]
    key_size: Annotated[int | None, says("bytes of its key; null: it has none")]
    value_size: Annotated[int | None, says("bytes of its value; null: it has none")]
    sequence: Annotated[int | None, says("its sequence number; null: its producer set none")]
    header_keys: Annotated[list[str], says("the keys of its headers, in their order")]
    key: Annotated[
        str | None, says("its key as decoded by `--key-decoder-class`; null: none, or contents were not requested")
    ]
    value: Annotated[str | None, says("its value, likewise")]


class DumpedBatch(Item, frozen=True, kw_only=True):
    """A batch of a `.log`."""

    base_offset: Annotated[int, says("its first offset")]
    last_offset: Annotated[int | None, says("its last offset; null: not known")]
    count: Annotated[int | None, says("number of records; null: not known")]
    base_sequence: Annotated[int | None, says("the sequence number of its first record; null: none")]
    last_sequence: Annotated[int | None, says("that of its last record; null: none")]
    producer_id: Annotated[int | None, says("its producer; null: none, or not known")]
    producer_epoch: Annotated[int | None, says("the producer's epoch")]
    leader_epoch: Annotated[int, says("the leader epoch of its partition; 0 unless the commit log was read")]
    delete_horizon_ms: Annotated[int | None, says("when compaction may drop its tombstones; null: not set")]
    position: Annotated[int, says("its position in the file, in bytes")]
    size_bytes: Annotated[int, says("its size in the file")]
    timestamp_type: Annotated[Literal["CreateTime", "LogAppendTime"], says("the type of its records' timestamps")]
    max_timestamp_ms: Annotated[int | None, says("its newest timestamp, in ms since 1970; null: not known")]
    magic: Annotated[int, says("the version of sparklog's format")]
    codec: Annotated[str, says("its compression: `none`, `gzip`, `snappy`, `lz4` or `zstd`")]
    crc: Annotated[int, says("the CRC32C of the whole message")]
    fault: Annotated[str | None, says("what is wrong with it; null: no fault was found")]
    records: Annotated[
        list[DumpedRecord] | None, says("with `--deep-iteration` or `--print-data-log`; null without, or with a fault")
    ]


class DumpedEntry(Item, frozen=True, kw_only=True):
    """An entry of an `.index`."""

    offset: Annotated[int, says("the first offset of a batch")]
    position: Annotated[int, says("the position of that batch in the `.log`, in bytes")]


class DumpedMismatch(Item, frozen=True, kw_only=True):
    """A difference between the `.index` and the `.log` in the entry of a batch."""

    batch: Annotated[int, says("the batch's number in the file, from 0")]
    what: Annotated[Literal["offset", "position", "size", "crc", "timestamp"], says("what differs")]
    index: Annotated[int | None, says("the value in the `.index`; null: none")]
    log: Annotated[int | None, says("the value in the `.log`; null: none")]


class DumpedEnd(Item, frozen=True, kw_only=True):
    """The result of reading a file."""

    sound: Annotated[bool, says("whether no fault was found; if any file is not sound, the exit code is 1")]
    complete: Annotated[bool, says("false if `--max-bytes` ended the reading, and the rest was not read")]
    mismatches: Annotated[list[DumpedMismatch], says("of an `.index`: its differences from the `.log`")]
    fault: Annotated[str | None, says("a fault outside the batches")]
    trailing_bytes: Annotated[int, says("bytes at the end that belong to no batch")]


class DumpedLine(Document, frozen=True, kw_only=True):
    """One of many lines, each an object of this type: for each file a `start`, then a `batch` for each batch of a
    `.log`, or an `entry` for each entry of an `.index`, then the `end`. The other three fields are null. A file without
    an `end` could not be read completely; the error is on standard error. Other kinds of files have no lines."""

    file: Annotated[str, says("the file, as `--files` names it")]
    start: DumpedStart | None = None
    batch: DumpedBatch | None = None
    entry: DumpedEntry | None = None
    end: DumpedEnd | None = None
