"""Formats the output of ``sparklog dump-log``: the lines of kafka-dump-log, from the documents (``documents``).

Faults go to standard error, with ``--json`` as well.

Not for: reading files (``segment_file``, ``dump_log``).
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.cli.arguments.parser import complain
from sparklog.cli.output.documents import DumpedBatch, DumpedEnd, DumpedLine, DumpedRecord, DumpedRun, DumpedStart
from sparklog.protocol.file_names import log_path_of
from sparklog.types import printable


def lines(line: DumpedLine, with_metadata: bool, with_contents: bool) -> Iterator[str]:
    """Format zero or more lines for standard output; metadata and contents of records only if requested."""
    is_log = not line.file.endswith(".index")
    if line.start is not None:
        if is_log:
            yield f"Log starting offset: {line.start.base_offset}"
        yield from _runs(line.start)
    elif line.batch is not None:
        yield _batch(line.batch)
        for record in line.batch.records or ():
            yield _record(line.batch, record, with_metadata, with_contents)
    elif line.entry is not None:
        yield f"offset: {line.entry.offset} position: {line.entry.position}"
    elif line.end is not None and line.end.trailing_bytes and is_log:
        yield _trailing(line.end, line.file)


def complain_of(line: DumpedLine) -> None:
    if line.start is not None and line.start.index_fault:
        complain(line.start.index_fault)
    elif line.batch is not None and line.batch.fault:
        complain(f"  {line.batch.fault}")
    elif line.end is not None:
        _complain_of_mismatches(line.end, line.file)
        if line.end.fault:
            complain(line.end.fault)
        elif line.end.trailing_bytes and line.file.endswith(".index"):
            complain(_trailing(line.end, log_path_of(line.file)))


def _runs(start: DumpedStart) -> Iterator[str]:
    if start.runs == []:
        yield "The commit log does not name this file: none of it is visible to readers"
    yield from (printable(_run(run)) for run in start.runs or ())


def _run(run: DumpedRun) -> str:
    gaps = run.records != run.end_offset - run.base_offset
    records = f"{run.records} records of " if gaps else ""
    return (
        f"Commit log: {run.topic}-{run.partition} has {records}offsets {run.base_offset} to {run.end_offset - 1} in "
        f"batches {run.first_batch} to {run.first_batch + run.batches - 1} of this file (commit {run.commit_version})"
    )


def _batch(batch: DumpedBatch) -> str:
    horizon = batch.delete_horizon_ms
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {_number(batch.last_offset)} count: {_number(batch.count)} "
        f"baseSequence: {_number(batch.base_sequence)} lastSequence: {_number(batch.last_sequence)} "
        f"producerId: {_number(batch.producer_id)} producerEpoch: {_number(batch.producer_epoch)} "
        f"partitionLeaderEpoch: {batch.leader_epoch} isTransactional: false isControl: false "
        f"deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'} "
        f"position: {batch.position} {batch.timestamp_type}: {_number(batch.max_timestamp_ms)} "
        f"size: {batch.size_bytes} magic: {batch.magic} compresscodec: {batch.codec} crc: {batch.crc} "
        f"isvalid: {'false' if batch.fault else 'true'}"
    )


def _record(batch: DumpedBatch, record: DumpedRecord, with_metadata: bool, with_contents: bool) -> str:
    parts: list[str] = []
    if with_metadata:
        names = ",".join(map(printable, record.header_keys))
        parts.append(
            f"offset: {record.offset} {batch.timestamp_type}: {record.timestamp_ms} "
            f"keySize: {_number(record.key_size)} "
            f"valueSize: {_number(record.value_size)} sequence: {_number(record.sequence)} headerKeys: [{names}]"
        )
    if with_contents:
        parts += [f"key: {record.key}"] * (record.key is not None)
        parts += [f"payload: {record.value}"] * (record.value is not None)
    return "| " + " ".join(parts) if parts else ""  # an empty line, as of Kafka's tool


def _number(value: int | None) -> int:
    """Return the value, or -1 for None, as Kafka's tool prints it."""
    return -1 if value is None else value


def _complain_of_mismatches(end: DumpedEnd, name: str) -> None:
    """Print the mismatches in the order of Kafka's tool: those of timestamps last."""
    of_timestamps = [mismatch for mismatch in end.mismatches if mismatch.what == "timestamp"]
    others = [mismatch for mismatch in end.mismatches if mismatch.what != "timestamp"]
    for title, mismatches in (("Mismatches in :", others), ("Found timestamp mismatch in :", of_timestamps)):
        if mismatches:
            complain(f"{title}{name}")
        for mismatch in mismatches:
            where = "" if mismatch.what == "offset" else f" (batch {mismatch.batch})"
            index, log = _number(mismatch.index), _number(mismatch.log)
            complain(f"  Index {mismatch.what}: {index}, log {mismatch.what}: {log}{where}")


def _trailing(end: DumpedEnd, log_name: str) -> str:
    return f"Found {end.trailing_bytes} invalid bytes at the end of {printable(log_name.rpartition('/')[2])}"
