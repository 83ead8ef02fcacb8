"""What a streaming query's checkpoint says a micro-batch has read.

Spark writes ``<checkpoint>/offsets/<batch>`` before it runs a batch: a line ``v1``, a line of metadata, and a line for
each source, with the offsets at which the batch ends.

Rules: read only; whose offsets a line holds is told by its ids, and lines of other sources are passed over.
Not for: starting a query from a checkpoint, which Spark does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from sparklog import limits
from sparklog.errors import InvalidRequestError, ObjectNotFoundError
from sparklog.protocol.state import State
from sparklog.spark.stream_offsets import IDS_KEY, StreamOffsets, parse
from sparklog.store.open import open_store

_NO_OFFSET = "-"


def batch_offsets(
    checkpoint: str, storage_options: Mapping[str, object], batch_id: int, state: State
) -> dict[tuple[str, int], int]:
    """The offsets at which a batch ends, of the topics of this cluster that it reads, by (topic, partition).

    Raises InvalidRequestError where the checkpoint does not know the batch or reads no topic of this cluster,
    UnsupportedStoreError for a place that sparklog cannot read.
    """
    store = open_store(re.sub("^file:/+", "/", checkpoint), storage_options)  # Spark writes file:/data
    try:
        text = store.get(f"offsets/{batch_id}", limits.MAX_MANIFEST_BYTES).decode()
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


def source_offsets(text: str) -> list[StreamOffsets]:
    """The offsets of sparklog's sources in a file of Spark's offset log."""
    found = []
    for line in text.splitlines()[2:]:
        if line != _NO_OFFSET and IDS_KEY in line:
            raw = json.loads(line)
            if isinstance(raw, dict) and IDS_KEY in raw:
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
