"""Encode the offsets of a streaming query, and make every decision about the next batch.

An offset of a query is JSON in the form of Spark's Kafka source, with one additional key that is not a valid topic name
and has no partitions::

    {"orders":{"0":23,"1":5},"$ids:kq…:orders=Xc…,$81=5b…":{}}

A program that iterates over topics and their partitions finds the same ones as with Kafka's source. The key holds the
ids of the cluster and of the topics, so that a recreated topic is distinguished from the one that was read even if the
offsets would fit, and so that a checkpoint is not continued on another cluster. The offset is the only thing that Spark
keeps for a source: a source learns neither the query's id nor its checkpoint, so there is no other state that a restart
is sure to find. ``$81=5b…`` is the commit in whose state the offset was found, by version and digest: in a root that
was restored from a copy, or promoted without it, another commit has that version, and other records may have these
offsets. Earlier versions take it for the id of a topic that the query does not read, and ignore it.

Checkpoints of earlier versions have ``"$ids":{"cluster":"kq…","topics":{"orders":"Xc…"}}`` instead, and are read too.

The first offset of a new query has no ids. So its first batch always differs from it and is logged, possibly without a
row. Spark does not store where that batch starts, and asks again when it runs it again after a crash, by when
``latest``, the log's start or a group's offset may have moved. So the end of the first batch has the start, too, as
``orders/0=23`` among the ids; that makes the start durable, as Spark's Kafka source does with a file of its own.

Rules: pure, no Spark, no storage, no clock. Lost records are returned as ``Loss``; the caller fails or continues.
Not for: reading the state of a cluster (``stream.planner``) and the offsets of options (``source.offsets``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sparklog.config.definitions import LONG_MAX
from sparklog.errors import DataLossError, InvalidRequestError
from sparklog.protocol.state import State
from sparklog.types import OffsetRange, TopicPartition

_PLANNED_AT = re.compile(r",\$(\d+)=([0-9a-f]+)(?=\")")
IDS_KEY = "$ids"
"""Prefix of the reserved key. Topic names contain no "$", ":", "," or "="."""
MAX_LOSSES_SHOWN = 20
"""losses listed in one message."""


class PartitionLog(NamedTuple):
    """The current log of a partition: records ``[start, end)`` of the topic with this id."""

    topic_id: str
    start: int
    end: int


Logs = Mapping[TopicPartition, PartitionLog]


def find_logs(state: State, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionLog]:
    """Return the logs of these partitions, without those that do not exist."""
    logs = {}
    for partition in wanted:
        log = state.find_partition(*partition)
        if log is not None:
            topic_id = state.topic(partition.topic).topic_id
            logs[partition] = PartitionLog(topic_id, log.log_start_offset, log.high_watermark)
    return logs


class Loss(NamedTuple):
    """Records that a query should have read and cannot: from ``start`` to ``end``, or all from ``start`` on. If it is
    not certain, they may have been replaced by others."""

    partition: TopicPartition
    start: int
    end: int | None
    why: str
    is_certain: bool = True

    def __str__(self) -> str:
        until = "on" if self.end is None else f"to {self.end}"
        return f"{self.partition} from offset {self.start} {until}: {self.why}"


class OtherTimeline(NamedTuple):
    """Why offsets are of another timeline than the log's, and whether that is certain."""

    why: str
    is_certain: bool


class PlannedAt(NamedTuple):
    """The commit in whose state offsets were found."""

    version: int
    digest: str


@dataclass(frozen=True)
class StreamOffsets:
    """The next offset of every partition. Unknown ids are missing; ``cluster_id`` is then empty. ``planned_at`` is None
    in offsets of earlier versions. ``first_start`` is where the first batch starts, in the offset at which it ends."""

    partitions: Mapping[TopicPartition, int]
    cluster_id: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    planned_at: PlannedAt | None = None
    first_start: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that Spark stores; deterministic."""
        encoded: dict[str, Any] = {}
        for partition in sorted(self.partitions):
            encoded.setdefault(partition.topic, {})[str(partition.partition)] = self.partitions[partition]
        if self.cluster_id:
            pairs = [f"{topic}={self.topic_ids[topic]}" for topic in encoded if topic in self.topic_ids]
            starts = sorted((self.first_start or {}).items())
            pairs += [f"{topic}/{partition}={offset}" for (topic, partition), offset in starts]
            if pairs and self.planned_at is not None:
                pairs.append(f"${self.planned_at.version}={self.planned_at.digest}")
            encoded[f"{IDS_KEY}:{self.cluster_id}:{','.join(pairs)}"] = {}
        return encoded


def parse(raw: Any) -> StreamOffsets:
    """Parse offsets from a checkpoint. Raises InvalidRequestError if they are malformed."""
    try:
        partitions = {
            TopicPartition(topic, int(number)): _parse_offset(offset)
            for topic, numbers in raw.items()
            if not topic.startswith(IDS_KEY)
            for number, offset in numbers.items()
        }
        return StreamOffsets(partitions, *_parse_ids(raw))
    except (AttributeError, TypeError, ValueError) as error:
        shown = str(raw)[:200]
        raise InvalidRequestError(
            f"invalid offsets {shown!r} in the checkpoint: {error}; it was edited, or written by another source: use a "
            "new checkpointLocation"
        ) from None


def has_ids(raw: Any) -> bool:
    """Return whether this is an offset of a sparklog source, with ids."""
    return isinstance(raw, dict) and any(name.startswith(IDS_KEY) for name in raw)


def _parse_ids(
    raw: Mapping[str, Any],
) -> tuple[str, dict[str, str], PlannedAt | None, dict[TopicPartition, int] | None]:
    """Return the ids of the cluster and of the topics, empty if there are none, the commit, and the first start."""
    name = next((name for name in raw if name.startswith(IDS_KEY)), IDS_KEY)
    if name == IDS_KEY:  # the form of earlier versions
        ids = raw.get(IDS_KEY, {})
        topics = {str(topic): str(topic_id) for topic, topic_id in ids.get("topics", {}).items()}
        return str(ids.get("cluster", "")), topics, None, None
    _, cluster, pairs = name.split(":")
    ids = dict(pair.split("=", 1) for pair in pairs.split(",") if pair)
    planned = [PlannedAt(int(key[1:]), ids.pop(key)) for key in list(ids) if key.startswith("$")]
    starts = {}
    for key in [key for key in ids if "/" in key]:
        topic, _, number = key.partition("/")
        starts[TopicPartition(topic, int(number))] = int(ids.pop(key))
    return cluster, ids, planned[0] if planned else None, starts or None


def without_commit(text: str) -> str:
    """Return the JSON of offsets without the commit: the same for a batch of the same records that is planned again."""
    return _PLANNED_AT.sub("", text)


def _parse_offset(offset: Any) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= LONG_MAX:
        raise ValueError(f"{offset!r} is not an offset")
    return offset


def check_cluster(offsets: StreamOffsets, cluster_id: str, root: str) -> None:
    """Check that the offsets are of this cluster. Raises InvalidRequestError."""
    if offsets.cluster_id not in ("", cluster_id):
        raise InvalidRequestError(
            f"the checkpoint is of cluster {offsets.cluster_id}, but {root} holds cluster {cluster_id}, "
            "in which its offsets are meaningless; correct kafka.bootstrap.servers, or use a new checkpointLocation"
        )


def live_offsets(offsets: StreamOffsets, state: State) -> dict[tuple[str, int], int]:
    """Return the offsets of this cluster's topics, without those that were deleted or recreated since."""
    if offsets.cluster_id != state.cluster_id:
        return {}
    return {
        (partition.topic, partition.partition): offsets.partitions[partition]
        for partition, log in find_logs(state, offsets.partitions).items()
        if log.topic_id == offsets.topic_ids.get(partition.topic)
    }


def offsets_of_sources(sources: Iterable[StreamOffsets], state: State) -> dict[tuple[str, int], int]:
    """Return the ``live_offsets`` of a batch: of sources that read the same partition, those of the one that is behind,
    since what starts there must not skip what only the others have read."""
    ends: dict[tuple[str, int], int] = {}
    for offsets in sources:
        for partition, offset in live_offsets(offsets, state).items():
            ends[partition] = min(offset, ends.get(partition, offset))
    return ends


def uncommitted_offsets(sources: Iterable[StreamOffsets], state: State, group: str) -> dict[tuple[str, int], int]:
    """Return the ``offsets_of_sources`` that differ from the group's committed ones."""
    return {
        partition: offset
        for partition, offset in offsets_of_sources(sources, state).items()
        if (committed := state.committed(group, *partition)) is None or committed.offset != offset
    }


# -- what to read next


def find_starts(
    start: StreamOffsets, logs: Logs, other_timeline: OtherTimeline | None = None
) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Return the next offset to read of each partition of ``logs``, and the losses since ``start``.

    A partition that ``start`` lacks is new and starts at its earliest offset. ``other_timeline`` says why ``start`` is
    of another timeline than the logs, where other records may be before its offsets; None if nothing speaks for that.
    """
    starts: dict[TopicPartition, int] = {}
    losses: list[Loss] = []
    for partition, log in logs.items():
        starts[partition], loss = _find_start(partition, start, log)
        if loss is None and other_timeline and log.start < start.partitions.get(partition, log.start):
            loss = Loss(partition, log.start, starts[partition], *other_timeline)
        if loss is not None:
            losses.append(loss)
    for partition in sorted(set(start.partitions) - set(logs)):
        why = "it no longer exists, or is no longer subscribed to"
        losses.append(Loss(partition, start.partitions[partition], None, why))
    return starts, losses


def _find_start(partition: TopicPartition, start: StreamOffsets, log: PartitionLog) -> tuple[int, Loss | None]:
    offset = start.partitions.get(partition)
    if offset is None:
        loss = Loss(partition, 0, log.start, "it is new to the query, and its first records are already deleted")
        return log.start, loss if log.start > 0 else None
    topic_id = start.topic_ids.get(partition.topic, log.topic_id)
    if topic_id != log.topic_id:
        why = f"topic {partition.topic!r} was deleted and created again (id {topic_id} then, {log.topic_id} now)"
        return log.start, Loss(partition, offset, None, why)
    if offset < log.start:
        return log.start, Loss(partition, offset, log.start, "records were deleted before they were read")
    if offset > log.end:
        return log.end, Loss(partition, log.end, offset, f"the log ends at {log.end} and was longer before")
    return offset, None


def prorate(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about ``limit`` records, shared among partitions in proportion to their records.

    The rule of Spark's Kafka source: shares are rounded down, but a partition with records gets at least one. Worked
    example: sizes 101, 11 and 1 with limit 10 give 8, 1 and 1, and then 9, 1 and 0.
    """
    sizes = {partition: end - starts[partition] for partition, end in ends.items() if end > starts[partition]}
    total = float(sum(sizes.values()))
    limited = dict(ends)
    for partition, size in sizes.items():
        share = limit * (size / total)
        records = math.ceil(share) if share < 1 else math.floor(share)
        limited[partition] = min(ends[partition], starts[partition] + records)
    return limited


def count_records(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return the number of records between starts and ends."""
    return sum(max(end - starts[partition], 0) for partition, end in ends.items())


def check_target(target: StreamOffsets, logs: Logs) -> None:
    """Check that the end that Trigger.AvailableNow fixed at its start can still be reached.

    Raises DataLossError even with ``failOnDataLoss=false``, as Spark's Kafka source does: the query could not end.
    """
    for partition, end in target.partitions.items():
        log = logs.get(partition)
        if log is None or log.topic_id != target.topic_ids[partition.topic] or log.end < end:
            now = "it no longer exists" if log is None else f"its log ends at {log.end}, of topic id {log.topic_id}"
            raise DataLossError(
                f"{partition} was to be read up to {end} when this query with Trigger.AvailableNow started, but {now}: "
                "the topic was deleted or created again since; start the query again",
                topic=partition.topic,
                partition=partition.partition,
                offset=end,
            )


# -- a batch


def with_first_start(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """Return the end of a query's first batch with the offsets at which that starts."""
    return replace(end, first_start={at: _find_batch_start(at, start, end) for at in end.partitions})


def batch_start(start: StreamOffsets, end: StreamOffsets) -> StreamOffsets:
    """Return where a batch starts that ends there: if it is the first one, where it started when it was planned, not
    where Spark was told that a new query starts now."""
    if start.cluster_id or end.first_start is None:
        return start
    return replace(start, partitions=end.first_start, topic_ids=end.topic_ids)


def find_batch_ranges(
    start: StreamOffsets, end: StreamOffsets, logs: Logs, other_timeline: OtherTimeline | None = None
) -> tuple[list[OffsetRange], list[Loss]]:
    """Return the ranges of a batch, without empty ones, and the losses among them; ``other_timeline`` as for
    ``find_starts``, of ``end``."""
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for partition, until in sorted(end.partitions.items()):
        first = _find_batch_start(partition, start, end)
        log = logs.get(partition)
        if first >= until:
            continue
        if log is None or end.topic_ids.get(partition.topic, log.topic_id) != log.topic_id:
            losses.append(Loss(partition, first, until, "the topic was deleted, or created again"))
            continue
        if first < log.start:
            losses.append(Loss(partition, first, min(log.start, until), "records were deleted before they were read"))
        if until > log.end:
            losses.append(
                Loss(partition, max(first, log.end), until, f"the log ends at {log.end} and was longer before")
            )
        if other_timeline:
            losses.append(Loss(partition, first, until, *other_timeline))
        first, until = max(first, log.start), min(until, log.end)
        if first < until:
            ranges.append(OffsetRange(*partition, first, until))
    return ranges, losses


def _find_batch_start(partition: TopicPartition, start: StreamOffsets, end: StreamOffsets) -> int:
    """Return the start of a partition; 0 if it is new or belongs to a recreated topic."""
    then, now = start.topic_ids.get(partition.topic), end.topic_ids.get(partition.topic)
    return 0 if then and now and then != now else start.partitions.get(partition, 0)


def describe_losses(losses: Sequence[Loss]) -> str:
    """Return a message with partition, offsets and reason of each loss."""
    certain = [loss for loss in losses if loss.is_certain]
    possible = [loss for loss in losses if not loss.is_certain]
    parts = [("records were lost", certain), ("it is not known whether records were replaced by others", possible)]
    return "; ".join(f"{what}: {_list_losses(found)}" for what, found in parts if found)


def _list_losses(losses: Sequence[Loss]) -> str:
    shown = "; ".join(str(loss) for loss in losses[:MAX_LOSSES_SHOWN])
    more = len(losses) - MAX_LOSSES_SHOWN
    return shown + (f"; and {more} more partitions" if more > 0 else "")


def raise_losses(losses: Sequence[Loss]) -> None:
    """Raise DataLossError if there are any."""
    if losses:
        first = next((loss for loss in losses if loss.is_certain), losses[0])
        advice = "Restore the records, use a new checkpointLocation, or set failOnDataLoss=false to continue with "
        advice += "what there is"
        if not first.is_certain:
            advice = "If the root was not restored, start the query again: it continues there, and nothing is lost. "
            advice += "If it was, use a new checkpointLocation, or the checkpoint of the time of the copy"
        raise DataLossError(
            f"{describe_losses(losses)}. {advice}",
            topic=first.partition.topic,
            partition=first.partition.partition,
            offset=first.start,
        )


# -- lag


def lag(at: StreamOffsets, latest: StreamOffsets) -> dict[TopicPartition, int]:
    """Return by how many records ``at`` is behind ``latest``. A partition that has not been read yet lags by all its
    records."""
    return {
        partition: max(offset - at.partitions.get(partition, 0), 0) for partition, offset in latest.partitions.items()
    }
