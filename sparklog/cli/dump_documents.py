"""What ``sparklog dump-log --json`` prints, an object a line; see ``documents`` for the rules.

A file of any size is printed as it is read: the line of a batch is the most that is held at once.
"""

from __future__ import annotations

from typing import Annotated, Literal

from sparklog.cli.document_parts import Document, Item, says


class DumpedRun(Item, frozen=True, kw_only=True):
    """A run of the file's batches that the commit log names."""

    topic: Annotated[str, says("the topic")]
    partition: Annotated[int, says("the partition")]
    base_offset: Annotated[int, says("its first offset")]
    end_offset: Annotated[int, says("the offset after its last one")]
    records: Annotated[int, says("how many records it has; fewer than offsets where some are gone")]
    first_batch: Annotated[int, says("the number of its first batch in the file, from 0")]
    batches: Annotated[int, says("how many batches it has")]
    commit_version: Annotated[int, says("the commit that names it")]


class DumpedStart(Item, frozen=True, kw_only=True):
    """What is known of a file before its contents."""

    base_offset: Annotated[int, says("the offset in its name, which its writer expected")]
    runs: Annotated[
        list[DumpedRun] | None,
        says("with `--bootstrap-server`, what the commit log has of it; empty: no commit names it; null: not asked"),
    ]
    index_fault: Annotated[str | None, says("what is wrong with the `.index`, or that it is missing")]


class DumpedRecord(Item, frozen=True, kw_only=True):
    """A record."""

    offset: Annotated[int, says("its offset")]
    timestamp_ms: Annotated[int, says("its time, in ms since 1970, of its batch's `timestamp_type`")]
    key_size: Annotated[int | None, says("bytes of its key; null: it has none")]
    value_size: Annotated[int | None, says("bytes of its value; null: it has none")]
    sequence: Annotated[int | None, says("its sequence number; null: its producer gave none")]
    header_keys: Annotated[list[str], says("the keys of its headers, in their order")]
    key: Annotated[
        str | None, says("its key as `--key-decoder-class` shows it; null: none, or contents were not asked for")
    ]
    value: Annotated[str | None, says("its value, likewise")]


class DumpedBatch(Item, frozen=True, kw_only=True):
    """A batch of a `.log`."""

    base_offset: Annotated[int, says("its first offset")]
    last_offset: Annotated[int | None, says("its last offset; null: not known")]
    count: Annotated[int | None, says("how many records it has; null: not known")]
    base_sequence: Annotated[int | None, says("the sequence number of its first record; null: none")]
    last_sequence: Annotated[int | None, says("that of its last record; null: none")]
    producer_id: Annotated[int | None, says("its producer; null: none, or not known")]
    producer_epoch: Annotated[int | None, says("the producer's epoch")]
    leader_epoch: Annotated[int, says("the leader epoch of its partition; 0 unless the commit log was asked")]
    delete_horizon_ms: Annotated[int | None, says("from when on compaction may drop its tombstones; null: not set")]
    position: Annotated[int, says("where it begins in the file, in bytes")]
    size_bytes: Annotated[int, says("how long it is there")]
    timestamp_type: Annotated[Literal["CreateTime", "LogAppendTime"], says("whose time its records carry")]
    max_timestamp_ms: Annotated[int | None, says("the newest time of its records, in ms since 1970; null: not known")]
    magic: Annotated[int, says("the version of sparklog's format")]
    codec: Annotated[str, says("how it is compressed: `none`, `gzip`, `snappy`, `lz4` or `zstd`")]
    crc: Annotated[int, says("the CRC32C of the whole message")]
    fault: Annotated[str | None, says("what is wrong with it; null: it is sound, as far as can be told")]
    records: Annotated[
        list[DumpedRecord] | None, says("with `--deep-iteration` or `--print-data-log`; null without, or with a fault")
    ]


class DumpedEntry(Item, frozen=True, kw_only=True):
    """An entry of an `.index`."""

    offset: Annotated[int, says("the first offset of a batch")]
    position: Annotated[int, says("where that batch begins in the `.log`, in bytes")]


class DumpedMismatch(Item, frozen=True, kw_only=True):
    """One thing that the `.index` says of a batch and the `.log` does not."""

    batch: Annotated[int, says("the batch's number in the file, from 0")]
    what: Annotated[Literal["offset", "position", "size", "crc", "timestamp"], says("what differs")]
    index: Annotated[int | None, says("what the `.index` has; null: nothing")]
    log: Annotated[int | None, says("what the `.log` has; null: nothing")]


class DumpedEnd(Item, frozen=True, kw_only=True):
    """What a file came to."""

    sound: Annotated[bool, says("whether nothing was found wrong; where one file is not, the exit code is 1")]
    complete: Annotated[bool, says("false where `--max-bytes` ended the reading, and the rest was not looked at")]
    mismatches: Annotated[list[DumpedMismatch], says("of an `.index`: where its `.log` differs")]
    fault: Annotated[str | None, says("what is wrong outside the batches")]
    trailing_bytes: Annotated[int, says("bytes at the end that belong to nothing")]


class DumpedLine(Document, frozen=True, kw_only=True):
    """One line of many, each an object of this kind: for each file a `start`, then a `batch` for each batch of a
    `.log`, or an `entry` for each of an `.index`, then the `end`. The other three are null. A file without an `end`
    could not be read to its end, and the error is on standard error; other kinds of files have no lines."""

    file: Annotated[str, says("the file, as `--files` names it")]
    start: DumpedStart | None = None
    batch: DumpedBatch | None = None
    entry: DumpedEntry | None = None
    end: DumpedEnd | None = None
