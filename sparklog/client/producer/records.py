"""Append Python records to a topic: check them, choose partitions, write one file, publish it with one commit.

    result = append_records(coordinator, "orders", [Record(key=b"k", value=b"v")], compression="zstd")
    result[0].offset

All or nothing: if a record is refused, none of the call is in the log, and the error names the record (``index``). A
call is one commit, so append many records at a time.

Rules: an explicit partition comes first, then murmur2 of the key bytes (as in Kafka's Java client); records without a
key share a partition for about ``STICKY_BYTES``, then move to another. Files go to the brokers that ``acks`` requires;
if those change in the meantime, the call writes the files again. A caller that retries when the outcome is unknown
chooses the partitions first (``route_records``) and gives the records sequences (``Numbering``). Not for: lingering,
retries after failures of the storage, serializing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog import limits
from sparklog.client.producer.batch_files import group_by_brokers
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    NotLeaderOrFollowerError,
    SparklogError,
    StaleWriteError,
    UnknownTopicOrPartitionError,
    WriteRefusedError,
)
from sparklog.format.codecs import CODECS
from sparklog.format.plain_arrays import binary_column, headers_array, timestamp_array
from sparklog.format.schema import columns_present, record_schema
from sparklog.log.layout import segment_key
from sparklog.log.records.append import RunTarget, SegmentFileWriter
from sparklog.log.records.replicated_file import discard
from sparklog.protocol.decide.acks import ACKS_ALL
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.producers import init_producer
from sparklog.protocol.decide.topics import NewTopic, choose_replicas
from sparklog.protocol.names import validate_written_topic
from sparklog.protocol.plan.partitioner import partition_for_key
from sparklog.protocol.state import State

logger = logging.getLogger(__name__)

STICKY_BYTES = 16384
"""bytes of records without a key that go to one partition before another is chosen: Kafka's default ``batch.size``."""

ATTEMPTS = 5
"""How often a call writes its records if brokers change in between."""

SEQUENCES = 2**31
"""Sequences count the records of a partition and wrap around to 0 here, as in Kafka."""

RECORD_OVERHEAD_BYTES = 12
"""bytes that the limit counts on top of the record: its default is 1 MiB plus Kafka's LOG_OVERHEAD, which is 12."""

MAX_TIMESTAMP_US = 2**63 - 1


class Record(NamedTuple):
    """One record to append. Without a partition its key chooses one; the default of ``timestamp_us`` (epoch) is now."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_us: int | None = None
    partition: int | None = None


class Numbering:
    """A producer id and the sequences of its partitions, which make a repeated append idempotent.

    If a call is repeated with the same records for the same partitions, they are in the log once. Not thread-safe.
    Errors as ``decide.producers.init_producer``.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.history = coordinator.log.unlinked_jumps  # read first: after a later jump the id is refused
        self.identity = coordinator.submit(init_producer)
        self._next: dict[tuple[str, int], int] = {}

    def target(self, topic: str, topic_id: str, partition: int, log_append_time: bool) -> RunTarget:
        """Return the target of a run of the next records of a partition."""
        sequence = self._next.get((topic, partition), 0)
        return RunTarget(topic, topic_id, partition, log_append_time, *self.identity, sequence)

    def advance(self, topic: str, partition: int, records: int) -> None:
        """Count records that are in the log now."""
        self._next[topic, partition] = (self._next.get((topic, partition), 0) + records) % SEQUENCES


class RecordOffset(NamedTuple):
    """The offset of an appended record. (A ``Producer`` returns ``futures.RecordMetadata``.)"""

    topic: str
    partition: int
    offset: int


class _Plan(NamedTuple):
    """The settings and expected offsets of a topic that exists or is about to be created."""

    name: str
    topic_id: str
    partitions: int
    config: TopicConfig
    expected_offsets: Sequence[int]
    new_topics: Sequence[NewTopic]
    version: int


def append_records(
    coordinator: Coordinator,
    topic: str,
    records: Sequence[Record],
    *,
    compression: str = "none",
    level: int | None = None,
    acks: int = ACKS_ALL,
    numbering: Numbering | None = None,
) -> list[RecordOffset]:
    """Append records to a topic in one commit; return their offsets, in the order given.

    ``compression`` applies if the topic's ``compression.type`` is ``producer``. A topic that does not exist is created
    if ``auto.create.topics.enable`` allows it. ``acks`` is -1 for all in-sync replicas, 1 for the leader alone. With a
    ``numbering`` the call may be repeated after any error, including IndeterminateCommitError, if the records name
    their partitions.

    Raises UnknownTopicOrPartitionError, InvalidTopicError, MessageSizeTooLargeError, InvalidTimestampError,
    InvalidRecordError and NotEnoughReplicasError with nothing written, and the errors of ``Coordinator.append``.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return _append_records(coordinator, topic, records, compression, level, acks, numbering)
        except (NotLeaderOrFollowerError, StaleWriteError) as error:
            logger.info("writing the records for %s again after: %s", topic, error)
    return _append_records(coordinator, topic, records, compression, level, acks, numbering)


def route_records(coordinator: Coordinator, topic: str, records: Sequence[Record]) -> list[Record]:
    """Return the records, each with its partition. Raises as ``append_records``."""
    plan = _plan(coordinator, topic)
    routes = _route(records, plan, coordinator.log.ids.jitter())
    return [record._replace(partition=route) for record, route in zip(records, routes, strict=True)]


def _append_records(
    coordinator: Coordinator,
    topic: str,
    records: Sequence[Record],
    compression: str,
    level: int | None,
    acks: int,
    numbering: Numbering | None,
) -> list[RecordOffset]:
    if compression not in CODECS:
        raise InvalidConfigurationError(f"invalid compression {compression!r}: give one of {', '.join(CODECS)}")
    plan = _plan(coordinator, topic)
    if not records:
        return []
    now_ms = coordinator.log.clock.now_ms()
    stamps = [_check_record(record, index, plan, now_ms) for index, record in enumerate(records)]
    routes = _route(records, plan, coordinator.log.ids.jitter())
    rows: dict[int, list[int]] = {}
    for index, partition in enumerate(routes):
        rows.setdefault(partition, []).append(index)
    codec = _codec(plan.config, compression, level)
    appends: list[PartitionAppend] = []
    for brokers, partitions in _by_brokers(coordinator, plan, sorted(rows), acks):
        rows_of_file = {partition: rows[partition] for partition in sorted(partitions)}
        appends += _write(coordinator, plan, records, stamps, rows_of_file, codec, brokers, numbering)
    history = None if numbering is None else numbering.history
    try:
        appended = coordinator.append(
            AppendRequest(appends=appends, new_topics=plan.new_topics, acks=acks, history=history)
        )
    except WriteRefusedError:
        discard((append.run for append in appends), coordinator.store_of)
        raise
    if numbering is not None:
        for partition, indexes in rows.items():
            numbering.advance(topic, partition, len(indexes))
    offsets = {run.partition: run.base_offset for run in appended.appended}
    result: list[RecordOffset] = []
    for partition in routes:
        result.append(RecordOffset(topic, partition, offsets[partition]))
        offsets[partition] += 1
    return result


# -- the topic


def _plan(coordinator: Coordinator, topic: str) -> _Plan:
    validate_written_topic(topic)
    state = coordinator.refresh()
    existing = state.topics.get(topic)
    if existing is not None:
        config = TopicConfig.resolve(existing.configs, state.configs)
        ends = [partition.log_end_offset for partition in existing.partitions]
        return _Plan(topic, existing.topic_id, len(ends), config, ends, (), state.version)
    return _plan_new(coordinator, state, topic)


def _plan_new(coordinator: Coordinator, state: State, topic: str) -> _Plan:
    """Plan a topic that the append's commit creates. Its id is open until then: another writer may create it first."""
    cluster = ClusterConfig.resolve(state.configs)
    if not cluster.auto_create_topics_enable:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} does not exist, and auto.create.topics.enable is false; create it with "
            f"`sparklog topics --create --topic {topic}`",
            topic=topic,
        )
    partitions = cluster.num_partitions
    new = choose_replicas(
        state,
        NewTopic(
            name=topic,
            topic_id=coordinator.log.ids.topic_id(),
            partitions=partitions,
            replication_factor=cluster.default_replication_factor,
        ),
    )
    return _Plan(topic, "", partitions, TopicConfig.resolve({}, state.configs), [0] * partitions, [new], state.version)


# -- checks


def record_size(record: Record) -> int:
    """Return the bytes that ``max.message.bytes`` is compared with: key, value and headers, uncompressed."""
    size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name.encode()) + len(value or b"")
    return size


def _check_record(record: Record, index: int, plan: _Plan, now_ms: int) -> int:
    """Return the record's timestamp in microseconds; raise if the topic does not accept the record."""
    _check_types(record, index, plan)
    if record.key is None and "compact" in plan.config.cleanup_policy:
        raise InvalidRecordError(
            f"record {index} has no key, and topic {plan.name!r} is compacted; give every record a key",
            topic=plan.name,
            index=index,
        )
    size = record_size(record)
    if size > plan.config.max_message_bytes:
        raise MessageSizeTooLargeError(
            f"record {index} for topic {plan.name!r} has {size:,} bytes, and max.message.bytes is "
            f"{plan.config.max_message_bytes:,}; send less, or raise the setting with `sparklog configs`",
            topic=plan.name,
            index=index,
            size=size,
        )
    partition = record.partition
    if partition is not None and not 0 <= partition < plan.partitions:
        raise UnknownTopicOrPartitionError(
            f"record {index} names partition {partition}, and topic {plan.name!r} has partitions 0 to "
            f"{plan.partitions - 1}",
            topic=plan.name,
            partition=partition,
            index=index,
        )
    if record.timestamp_us is None:
        return now_ms * 1000
    return _check_timestamp(record.timestamp_us, index, plan, now_ms)


def _check_types(record: Record, index: int, plan: _Plan) -> None:
    parts = [("key", record.key), ("value", record.value)]
    for name, value in record.headers:
        if not _is_utf8(name):
            raise InvalidRecordError(
                f"record {index} for topic {plan.name!r} has an invalid header key {name!a}: not UTF-8 text",
                topic=plan.name,
                index=index,
            )
        parts.append((f"header {name!r}", value))
    for part_name, part in parts:
        if part is not None and not isinstance(part, bytes):
            raise InvalidRecordError(
                f"the {part_name} of record {index} for topic {plan.name!r} is of type {type(part).__name__}, not "
                "bytes or None; serialize it first",
                topic=plan.name,
                index=index,
            )


def _is_utf8(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _check_timestamp(timestamp_us: int, index: int, plan: _Plan, now_ms: int) -> int:
    """Check a timestamp as Kafka's LogValidator does: bounds apply unless the topic uses LogAppendTime."""
    if not 0 <= timestamp_us <= MAX_TIMESTAMP_US:
        raise InvalidTimestampError(
            f"record {index} for topic {plan.name!r} has timestamp {timestamp_us} us, which is before 1970 or not "
            "an int64",
            topic=plan.name,
            index=index,
        )
    config = plan.config
    if config.message_timestamp_type == "LogAppendTime":
        return timestamp_us
    age_ms = now_ms - timestamp_us // 1000
    if age_ms > config.message_timestamp_before_max_ms or -age_ms > config.message_timestamp_after_max_ms:
        bound = "before" if age_ms > 0 else "after"
        limit = config.message_timestamp_before_max_ms if age_ms > 0 else config.message_timestamp_after_max_ms
        raise InvalidTimestampError(
            f"record {index} for topic {plan.name!r} has timestamp {timestamp_us // 1000} ms, {abs(age_ms):,} ms "
            f"{bound} now, and message.timestamp.{bound}.max.ms is {limit:,}",
            topic=plan.name,
            index=index,
        )
    return timestamp_us


# -- routing


def _route(records: Sequence[Record], plan: _Plan, start: float) -> list[int]:
    """Return the partition of each record. ``start`` in [0, 1) chooses the first one for records without a key."""
    sticky, filled = int(start * plan.partitions), 0
    routes: list[int] = []
    for record in records:
        if record.partition is not None:
            routes.append(record.partition)
        elif record.key is not None:
            routes.append(partition_for_key(record.key, plan.partitions))
        else:
            if filled >= STICKY_BYTES:
                sticky, filled = (sticky + 1) % plan.partitions, 0
            routes.append(sticky)
            filled += record_size(record)
    return routes


# -- the file


def _by_brokers(
    coordinator: Coordinator, plan: _Plan, partitions: Sequence[int], acks: int
) -> list[tuple[tuple[int, ...], set[int]]]:
    """Group partitions as ``batch_files.group_by_brokers`` does, also those of a topic that is about to be created."""
    if not plan.new_topics:
        return group_by_brokers(coordinator, plan.name, partitions, acks)
    assignment = plan.new_topics[0].assignment or ()
    groups: dict[tuple[int, ...], set[int]] = {}
    for partition in partitions:
        replicas = tuple(assignment[partition])
        groups.setdefault(replicas if acks == ACKS_ALL else replicas[:1], set()).add(partition)
    return list(groups.items())


def _write(
    coordinator: Coordinator,
    plan: _Plan,
    records: Sequence[Record],
    stamps: Sequence[int],
    rows: dict[int, list[int]],
    codec: tuple[str, int | None],
    brokers: Sequence[int],
    numbering: Numbering | None,
) -> list[PartitionAppend]:
    """Write the records of these rows to one file, a run for each partition. The file is durable on return."""
    has_key = any(record.key is not None for record in records)
    has_headers = any(record.headers for record in records)
    schema = record_schema(columns_present(has_key, has_headers))
    first = min(rows)
    key = segment_key(plan.name, first, plan.expected_offsets[first], plan.version, coordinator.log.ids.write_id())
    stamped = plan.config.message_timestamp_type == "LogAppendTime"
    writer = SegmentFileWriter(
        coordinator.store_of(brokers[0]),
        key,
        codec=codec[0],
        level=codec[1],
        has_key=has_key,
        has_headers=has_headers,
        broker=brokers[0],
        replicas=[(broker, coordinator.store_of(broker)) for broker in brokers[1:]],
    )
    try:
        for partition in sorted(rows):
            target = (plan.name, plan.topic_id, partition, stamped)
            writer.start_run(RunTarget(*target) if numbering is None else numbering.target(*target))
            for chunk in _chunks(records, rows[partition]):
                writer.write(_batch(schema, [records[i] for i in chunk], [stamps[i] for i in chunk]))
    except (SparklogError, pa.ArrowException, ValueError):
        writer.abort()
        raise
    appends = writer.finish()
    for broker in writer.failed:
        coordinator.brokers.failed(broker)
    return appends


def _codec(config: TopicConfig, compression: str, level: int | None) -> tuple[str, int | None]:
    """Return the topic's codec with its level, or the caller's if ``compression.type`` is ``producer``."""
    chosen = config.compression_type
    if chosen == "producer":
        return compression, level
    return ("none" if chosen == "uncompressed" else chosen), config.compression_level(chosen)


def _chunks(records: Sequence[Record], rows: Sequence[int]) -> Iterator[list[int]]:
    """Yield rows in chunks that make batches of about ``limits.TARGET_BATCH_BYTES``."""
    chunk: list[int] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += record_size(records[row])
        if size >= limits.TARGET_BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _batch(schema: pa.Schema, records: Sequence[Record], stamps: Sequence[int]) -> pa.RecordBatch:
    columns = {
        "key": lambda: binary_column([record.key for record in records]).array,
        "value": lambda: binary_column([record.value for record in records]).array,
        "timestamp": lambda: timestamp_array(stamps),
        "headers": lambda: headers_array([record.headers or None for record in records]),
    }
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema=schema)
