"""What a streaming query's checkpoint says a micro-batch has read.

Spark writes ``<checkpoint>/offsets/<batch>`` before it runs a batch: a line ``v1``, a line of metadata, and a line for
each source, with the offsets at which the batch ends.

Rules: read only; whose offsets a line holds is told by its ids, and lines of other sources are passed over.
Not for: starting a query from a checkpoint, which Spark does.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from sparklog import limits
from sparklog.errors import InvalidRequestError, ObjectNotFoundError, SparklogError
from sparklog.protocol.state import State
from sparklog.spark.stream.offsets import IDS_KEY, StreamOffsets, has_ids, parse
from sparklog.store.base import Store
from sparklog.store.open import open_store

logger = logging.getLogger(__name__)

_NO_OFFSET = "-"
DIGEST_LENGTH = 32
"""hexadecimal digits: 128 bits of a SHA-256."""


def batch_offsets(
    checkpoint: str, storage_options: Mapping[str, object], batch_id: int, state: State
) -> dict[tuple[str, int], int]:
    """The offsets at which a batch ends, of the topics of this cluster that it reads, by (topic, partition).

    Raises InvalidRequestError where the checkpoint does not know the batch or reads no topic of this cluster,
    UnsupportedStoreError for a place that sparklog cannot read.
    """
    try:
        text = _offsets_of(_open(checkpoint, storage_options), batch_id)
    except ObjectNotFoundError as error:
        raise InvalidRequestError(
            f"{checkpoint} has no offsets of micro-batch {batch_id}: option checkpointLocation must be that of this "
            "query; correct it, or leave kafka.group.id out to commit no consumer offsets"
        ) from error
    found: dict[tuple[str, int], int] = {}
    for offsets in source_offsets(text):
        if offsets.cluster_id == state.cluster_id:
            found.update(_of_live_topics(offsets, state))
    if not found:
        raise InvalidRequestError(
            f"micro-batch {batch_id} of {checkpoint} reads no topic of cluster {state.cluster_id}: consumer offsets "
            "can only be committed with the output where source and sink are one cluster; leave kafka.group.id out"
        )
    return found


def batch_digest(checkpoint: str, storage_options: Mapping[str, object], batch_id: int, root: str) -> str:
    """A digest of where a batch ends in all of its sources: the same whenever Spark runs the batch again.

    Empty where that cannot be read: a checkpoint is looked at on a local disk and in the storage of ``root`` only,
    which is sure to answer.
    """
    if not checkpoint:
        return ""
    try:
        store = _open(checkpoint, storage_options)
        if _storage_of(store.root) not in ("", _storage_of(root)):
            return ""
        lines = _offsets_of(store, batch_id).splitlines()[2:]
    except SparklogError as error:
        logger.debug("%s does not say what micro-batch %s reads: %s", checkpoint, batch_id, error)
        return ""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:DIGEST_LENGTH]


def _open(checkpoint: str, storage_options: Mapping[str, object]) -> Store:
    return open_store(re.sub("^file:/+", "/", checkpoint), storage_options)  # Spark writes file:/data


def _offsets_of(store: Store, batch_id: int) -> str:
    return store.get(f"offsets/{batch_id}", limits.MAX_MANIFEST_BYTES).decode()


def _storage_of(root: str) -> str:
    """The bucket, container or name node of a root; empty for a local path."""
    found = urlsplit(root)
    return f"{found.scheme}://{found.netloc}" if "://" in root and found.scheme != "file" else ""


def source_offsets(text: str) -> list[StreamOffsets]:
    """The offsets of sparklog's sources in a file of Spark's offset log."""
    found = []
    for line in text.splitlines()[2:]:
        if line != _NO_OFFSET and IDS_KEY in line:
            raw = json.loads(line)
            if has_ids(raw):
                found.append(parse(raw))
    return found


def _of_live_topics(offsets: StreamOffsets, state: State) -> dict[tuple[str, int], int]:
    """Without topics that were deleted or created again meanwhile."""
    return {
        (where.topic, where.partition): offset
        for where, offset in offsets.partitions.items()
        if (topic := state.topics.get(where.topic)) is not None
        and topic.topic_id == offsets.topic_ids.get(where.topic)
        and where.partition < len(topic.partitions)
    }
