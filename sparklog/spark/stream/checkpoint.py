"""Read from a streaming query's checkpoint the offsets at which a micro-batch begins and ends.

Spark writes ``<checkpoint>/offsets/<batch>`` before it runs a batch: a line ``v1``, a line of metadata, and a line for
each source, with the offsets at which the batch ends. After ``v2``, which Spark 4.2 writes for named sources, these
begin with a name and a colon, in any order.

Rules: read only; the ids in a line identify its source, and lines of other sources are skipped.
Not for: starting a query from a checkpoint, which Spark does.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from sparklog import limits
from sparklog.errors import InvalidRequestError, ObjectNotFoundError, RootReplacedError, SparklogError
from sparklog.log.commits.commit_log import CommitLog
from sparklog.protocol.state import State
from sparklog.spark.sink.repeated_batches import BatchSources
from sparklog.spark.stream.offsets import IDS_KEY, StreamOffsets, has_ids, offsets_of_sources, parse, without_commit
from sparklog.spark.stream.other_timeline import find_other_timeline
from sparklog.store.base import Store
from sparklog.store.open import open_store

logger = logging.getLogger(__name__)

DIGEST_LENGTH = 32
"""hexadecimal digits: 128 bits of a SHA-256."""


def batch_offsets(
    checkpoint: str, storage_options: Mapping[str, object], batch_id: int, log: CommitLog, state: State
) -> dict[tuple[str, int], int]:
    """Return the offsets at which a batch ends, of the topics of this cluster that it reads, by (topic, partition).

    Raises InvalidRequestError if the checkpoint does not have the batch or reads no topic of this cluster,
    UnsupportedStoreError for a location that sparklog cannot read, RootReplacedError for offsets of another timeline
    than the log's.
    """
    try:
        text = _read_offsets(_open(checkpoint, storage_options), batch_id)
    except ObjectNotFoundError as error:
        raise InvalidRequestError(
            f"{checkpoint} has no offsets of micro-batch {batch_id}: option checkpointLocation must be that of this "
            "query, with its scheme (hdfs://…, s3a://…) if it is not a folder of this machine; correct it, or leave "
            "kafka.group.id out to commit no consumer offsets"
        ) from error
    sources = parse_sources(text)
    for offsets in sources:
        if offsets.cluster_id == state.cluster_id:
            _check_timeline(offsets, log, batch_id)
    ends = offsets_of_sources(sources, state)
    if not ends:
        raise InvalidRequestError(
            f"micro-batch {batch_id} of {checkpoint} reads no topic of cluster {state.cluster_id}: consumer offsets "
            "can only be committed with the output if source and sink are in the same cluster; leave kafka.group.id out"
        )
    return ends


def _check_timeline(offsets: StreamOffsets, log: CommitLog, batch_id: int) -> None:
    # A process that commits one batch knows nothing of what the query has read: a removed commit says nothing.
    other_timeline = find_other_timeline(log, offsets, has_jumped=False)
    if other_timeline is not None:
        raise RootReplacedError(
            f"the offsets at which micro-batch {batch_id} ends are of another timeline than that of {log.store.root}: "
            f"{other_timeline.why}. Nothing was committed. Start the query with its checkpoint of the time of the copy "
            "or with a new one; to go on nevertheless (failOnDataLoss=false), leave kafka.group.id of the sink out "
            "for this batch",
            path=log.store.root,
        )


def batch_sources(checkpoint: str, storage_options: Mapping[str, object], batch_id: int, root: str) -> BatchSources:
    """Return what is known of the records that a batch reads.

    Nothing if its offsets cannot be read: a checkpoint is read only from a local disk and from the storage of ``root``,
    which is known to be reachable.
    """
    if not checkpoint:
        return BatchSources()
    try:
        store = _open(checkpoint, storage_options)
        if _storage_of(store.root) not in ("", _storage_of(root)):
            return BatchSources()
        ends = _source_lines(store, batch_id)
    except SparklogError as error:
        logger.debug("%s: offsets of micro-batch %s cannot be read: %s", checkpoint, batch_id, error)
        return BatchSources()
    ranges, is_exact = "", False
    with suppress(SparklogError):
        starts = _source_lines(store, batch_id - 1) if batch_id else []
        ranges, is_exact = _digest([*starts, "", *ends]), bool(starts) and all(map(_is_absolute, ends))
    return BatchSources(_digest(map(without_commit, ends)), ranges, is_exact)


def _source_lines(store: Store, batch_id: int) -> list[str]:
    return split_sources(_read_offsets(store, batch_id))


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGEST_LENGTH]


def _is_absolute(line: str) -> bool:
    """Return whether offsets name records without their checkpoint: those of sparklog's and Delta's sources, which have
    ids, and those in the form of Kafka's, by topic and partition."""
    if line == "-":  # a source that has had nothing yet
        return True
    try:
        raw = json.loads(line)
    except ValueError:
        return False
    if not isinstance(raw, dict):
        return False
    return has_ids(raw) or "reservoirId" in raw or all(isinstance(ends, dict) for ends in raw.values())


def _open(checkpoint: str, storage_options: Mapping[str, object]) -> Store:
    return open_store(re.sub("^file:/+", "/", checkpoint), storage_options)  # Spark writes file:/data


def _read_offsets(store: Store, batch_id: int) -> str:
    return store.get(f"offsets/{batch_id}", limits.MAX_MANIFEST_BYTES).decode()


def _storage_of(root: str) -> str:
    """Return the bucket, container or name node of a root; empty for a local path."""
    url = urlsplit(root)
    return f"{url.scheme}://{url.netloc}" if "://" in root and url.scheme != "file" else ""


def split_sources(text: str) -> list[str]:
    """Return the offsets of each source in a file of Spark's offset log, as text."""
    version, *lines = text.splitlines() or [""]
    return lines[1:] if version == "v1" else [line.partition(":")[2] for line in sorted(lines[1:])]


def parse_sources(text: str) -> list[StreamOffsets]:
    """Return the offsets of sparklog's sources in a file of Spark's offset log."""
    sources = []
    for line in split_sources(text):
        if IDS_KEY in line:
            raw = json.loads(line)
            if has_ids(raw):
                sources.append(parse(raw))
    return sources
