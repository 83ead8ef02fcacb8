"""Where a streaming query stands, and every decision about where it goes next.

An offset of a query is JSON as Spark's Kafka source writes it, with one more name that no topic can have and that has
no partitions::

    {"orders":{"0":23,"1":5},"$ids:kq…:orders=Xc…":{}}

A program that goes through topics and their partitions finds those of Kafka's source and nothing else. The name says
whose offsets these are, by the ids of the cluster and of the topics, so that a topic that was deleted and created again
is told from the one that was read, also where the offsets would fit, and so that a checkpoint is not continued on
another cluster. The offset is the only thing that Spark keeps for a source: a source learns neither the query's id nor
its checkpoint, so there is no other place that a restart is sure to find.

Checkpoints of earlier versions have ``"$ids":{"cluster":"kq…","topics":{"orders":"Xc…"}}`` instead, and are read too.

The first offset of a new query has no ids. So its first batch always differs from it and is logged, possibly without a
row; that makes the start durable, as Spark's Kafka source does with a file of its own.

Rules: pure, no Spark, no storage, no clock. What was lost is returned as ``Loss``, and the caller fails or goes on.
Not for: reading the state of a cluster (``stream_planner``) and the offsets of options (``offsets``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparklog.errors import DataLossError, InvalidRequestError
from sparklog.types import OffsetRange, TopicPartition

IDS_KEY = "$ids"
"""What the reserved name starts with; "$" is in no topic's name, nor are ":", "," and "="."""
MAX_OFFSET = 2**63 - 1
MAX_LOSSES_SHOWN = 20
"""losses spelled out in one message."""


class PartitionLog(NamedTuple):
    """What there is of a partition now: records ``[start, end)`` of the topic with this id."""

    topic_id: str
    start: int
    end: int


Logs = Mapping[TopicPartition, PartitionLog]


class Loss(NamedTuple):
    """Records that a query should have read and cannot: from ``start`` to ``end``, or to the end of what was."""

    where: TopicPartition
    start: int
    end: int | None
    why: str

    def __str__(self) -> str:
        until = "on" if self.end is None else f"to {self.end}"
        return f"{self.where} from offset {self.start} {until}: {self.why}"


@dataclass(frozen=True)
class StreamOffsets:
    """The next offset of every partition. ``cluster_id`` is empty, and ids are missing, where they are not known."""

    partitions: Mapping[TopicPartition, int]
    cluster_id: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it; equal offsets give equal text."""
        found: dict[str, Any] = {}
        for where in sorted(self.partitions):
            found.setdefault(where.topic, {})[str(where.partition)] = self.partitions[where]
        if self.cluster_id:
            topics = ",".join(f"{topic}={self.topic_ids[topic]}" for topic in found if topic in self.topic_ids)
            found[f"{IDS_KEY}:{self.cluster_id}:{topics}"] = {}
        return found


def parse(raw: Any) -> StreamOffsets:
    """Offsets from a checkpoint. Raises InvalidRequestError for what no streaming query has written."""
    try:
        partitions = {
            TopicPartition(topic, int(number)): _offset(offset)
            for topic, numbers in raw.items()
            if not topic.startswith(IDS_KEY)
            for number, offset in numbers.items()
        }
        return StreamOffsets(partitions, *_ids(raw))
    except (AttributeError, TypeError, ValueError) as error:
        shown = str(raw)[:200]
        raise InvalidRequestError(
            f"the checkpoint holds {shown!r}, which is not an offset of a topic: {error}; it was edited, or written by "
            "another source: use a new checkpointLocation"
        ) from None


def has_ids(raw: Any) -> bool:
    """Whether this is an offset of a sparklog source that says whose it is."""
    return isinstance(raw, dict) and any(name.startswith(IDS_KEY) for name in raw)


def _ids(raw: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The ids of the cluster and of the topics; empty where there are none."""
    name = next((name for name in raw if name.startswith(IDS_KEY)), IDS_KEY)
    if name == IDS_KEY:  # as versions before wrote it
        ids = raw.get(IDS_KEY, {})
        topics = {str(topic): str(topic_id) for topic, topic_id in ids.get("topics", {}).items()}
        return str(ids.get("cluster", "")), topics
    _, cluster, pairs = name.split(":")
    return cluster, dict(pair.split("=", 1) for pair in pairs.split(",") if pair)


def _offset(offset: Any) -> int:
    if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"{offset!r} is no offset")
    return offset


def check_cluster(offsets: StreamOffsets, cluster_id: str, root: str) -> None:
    """The offsets are of this cluster. Raises InvalidRequestError."""
    if offsets.cluster_id not in ("", cluster_id):
        raise InvalidRequestError(
            f"the checkpoint is of cluster {offsets.cluster_id}, and {root} holds cluster {cluster_id}: its offsets "
            "mean nothing there; correct kafka.bootstrap.servers, or use a new checkpointLocation"
        )


# -- what to read next


def begins(start: StreamOffsets, logs: Logs) -> tuple[dict[TopicPartition, int], list[Loss]]:
    """Where each partition of ``logs`` goes on, and what of ``start`` cannot be read any more.

    A partition that ``start`` does not know is new and begins at its earliest offset.
    """
    found: dict[TopicPartition, int] = {}
    losses: list[Loss] = []
    for where, log in logs.items():
        found[where], loss = _begin(where, start, log)
        if loss is not None:
            losses.append(loss)
    for where in sorted(set(start.partitions) - set(logs)):
        why = "it does not exist any more, or is no longer subscribed to"
        losses.append(Loss(where, start.partitions[where], None, why))
    return found, losses


def _begin(where: TopicPartition, start: StreamOffsets, log: PartitionLog) -> tuple[int, Loss | None]:
    known = start.partitions.get(where)
    if known is None:
        loss = Loss(where, 0, log.start, "it is new to the query, and records of it were deleted before")
        return log.start, loss if log.start > 0 else None
    read = start.topic_ids.get(where.topic, log.topic_id)
    if read != log.topic_id:
        why = f"topic {where.topic!r} was deleted and created again (id {read} then, {log.topic_id} now)"
        return log.start, Loss(where, known, None, why)
    if known < log.start:
        return log.start, Loss(where, known, log.start, "records were deleted before they were read")
    if known > log.end:
        return log.end, Loss(where, log.end, known, f"the log ends at {log.end} and has been longer")
    return known, None


def prorated(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Ends of a batch of about ``limit`` records, shared among partitions by how much each has.

    The rule of Spark's Kafka source: shares are rounded down, but a partition with records gets one at least. Worked
    example: sizes 101, 11 and 1 with limit 10 give 8, 1 and 1, and then 9, 1 and 0.
    """
    sizes = {where: end - starts[where] for where, end in ends.items() if end > starts[where]}
    total = float(sum(sizes.values()))
    found = dict(ends)
    for where, size in sizes.items():
        share = limit * (size / total)
        records = math.ceil(share) if share < 1 else math.floor(share)
        found[where] = min(ends[where], starts[where] + records)
    return found


def available(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Records between the two."""
    return sum(max(end - starts[where], 0) for where, end in ends.items())


def check_target(target: StreamOffsets, logs: Logs) -> None:
    """The end that Trigger.AvailableNow fixed at its start can still be reached.

    Raises DataLossError whatever ``failOnDataLoss`` says, as Spark's Kafka source does: the query could not end.
    """
    for where, end in target.partitions.items():
        log = logs.get(where)
        if log is None or log.topic_id != target.topic_ids[where.topic] or log.end < end:
            now = "it is gone" if log is None else f"its log ends at {log.end}, of topic id {log.topic_id}"
            raise DataLossError(
                f"{where} was to be read up to {end} when this query with Trigger.AvailableNow began, and now {now}: "
                "the topic was deleted or created again meanwhile; start the query again",
                topic=where.topic,
                partition=where.partition,
                offset=end,
            )


# -- a batch


def batch_ranges(start: StreamOffsets, end: StreamOffsets, logs: Logs) -> tuple[list[OffsetRange], list[Loss]]:
    """What a batch reads, empty ranges left out, and what of it cannot be read any more."""
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for where, until in sorted(end.partitions.items()):
        first = _first_of_batch(where, start, end)
        log = logs.get(where)
        if first >= until:
            continue
        if log is None or end.topic_ids.get(where.topic, log.topic_id) != log.topic_id:
            losses.append(Loss(where, first, until, "the topic was deleted, or created again"))
            continue
        if first < log.start:
            losses.append(Loss(where, first, min(log.start, until), "records were deleted before they were read"))
        if until > log.end:
            losses.append(Loss(where, max(first, log.end), until, f"the log ends at {log.end} and has been longer"))
        first, until = max(first, log.start), min(until, log.end)
        if first < until:
            ranges.append(OffsetRange(*where, first, until))
    return ranges, losses


def _first_of_batch(where: TopicPartition, start: StreamOffsets, end: StreamOffsets) -> int:
    """The start of a partition; of one that is new, or belongs to a topic created again, all there is."""
    then, now = start.topic_ids.get(where.topic), end.topic_ids.get(where.topic)
    return 0 if then and now and then != now else start.partitions.get(where, 0)


def loss_message(losses: Sequence[Loss]) -> str:
    """What was lost, from where to where."""
    shown = "; ".join(str(loss) for loss in losses[:MAX_LOSSES_SHOWN])
    more = len(losses) - MAX_LOSSES_SHOWN
    return f"records were lost: {shown}" + (f"; and {more} partitions more" if more > 0 else "")


def raise_losses(losses: Sequence[Loss]) -> None:
    """Raises DataLossError if there are any."""
    if losses:
        first = losses[0]
        raise DataLossError(
            f"{loss_message(losses)}. Restore the records, use a new checkpointLocation, or set failOnDataLoss=false "
            "to go on with what there is",
            topic=first.where.topic,
            partition=first.where.partition,
            offset=first.start,
        )


# -- lag


class Lag(NamedTuple):
    """How far offsets are behind the latest, in records; names as in the progress of Spark's Kafka source."""

    partitions: Mapping[TopicPartition, int]

    @property
    def min_offsets_behind_latest(self) -> int:
        return min(self.partitions.values(), default=0)

    @property
    def max_offsets_behind_latest(self) -> int:
        return max(self.partitions.values(), default=0)

    @property
    def avg_offsets_behind_latest(self) -> float:
        return sum(self.partitions.values()) / len(self.partitions) if self.partitions else 0.0


def lag(at: StreamOffsets, latest: StreamOffsets, of: Iterable[TopicPartition] | None = None) -> Lag:
    """How far ``at`` is behind ``latest``; a partition that has not been read yet is behind by all it has."""
    chosen = latest.partitions if of is None else of
    return Lag({where: max(latest.partitions[where] - at.partitions.get(where, 0), 0) for where in chosen})
