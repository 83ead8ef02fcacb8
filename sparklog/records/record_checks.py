"""Checks of single records: types, sizes and timestamps; and the errors of all checks, in one wording.

Rules: a record that is refused here was not written; the error names its topic and the invalid part. Not for: columns
(``row_checks``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sparklog.errors import (
    InvalidPartitionError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTimestampTypeError,
    MessageSizeTooLargeError,
    SerializationError,
)
from sparklog.format.codecs import compressor
from sparklog.limits import MAX_RECORD_BYTES
from sparklog.records.topic_rules import LOG_OVERHEAD_BYTES, TopicRules
from sparklog.schema.values.typed_records import record_reader
from sparklog.types import whole

Headers = Sequence[tuple[str, "bytes | None"]]
RawHeaders = Iterable[tuple[str, "bytes | bytearray | memoryview | None"]]

MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
"""Timestamps are stored as int64 microseconds."""


def as_bytes(part: str, value: object, topic: str) -> bytes:
    """Return a bytes-like value as ``bytes``. Raises SerializationError for any other type."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"the {part} of a record for topic {topic!r} is of type {type(value).__name__}, not bytes or None; serialize "
        f"it, or give the producer a {part}_serializer",
        topic=topic,
    )


def check_headers(headers: RawHeaders, topic: str) -> tuple[list[tuple[str, bytes | None]], int]:
    """Return the headers as they are stored, and their size in bytes. Raises SerializationError."""
    checked: list[tuple[str, bytes | None]] = []
    size = 0
    if not isinstance(headers, list | tuple):
        raise _bad_header(headers, topic)
    for item in headers:
        if not isinstance(item, tuple) or len(item) != 2:
            raise _bad_header(item, topic)
        name, value = item
        if value is not None and value.__class__ is not bytes:
            value = as_bytes("header", value, topic)
        size += _name_bytes(name, topic) + len(value or b"")
        checked.append((name, value))
    return checked, size


def _name_bytes(name: Any, topic: str) -> int:
    if not isinstance(name, str):
        raise _bad_header(name, topic)
    try:
        return len(name.encode())
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise _bad_header(name, topic) from error


def _bad_header(header: object, topic: str) -> SerializationError:
    return SerializationError(
        f"invalid headers of a record for topic {topic!r}: {header!a}; give a list of (str, bytes) tuples", topic=topic
    )


def neither_key_nor_value(topic: str) -> InvalidRecordError:
    return InvalidRecordError(f"a record for topic {topic!r} has neither a key nor a value; give one", topic=topic)


def no_key(topic: str, index: int | None = None) -> InvalidRecordError:
    return InvalidRecordError(
        f"topic {topic!r} is compacted, and a record for it has no key; give every record a key, or remove compact "
        "from the topic's cleanup.policy",
        topic=topic,
        index=index,
    )


def check_schema(key: bytes | None, value: bytes | None, rules: TopicRules, index: int | None = None) -> None:
    """Raise InvalidRecordError for a key or a value that does not fit the topic's schema."""
    misfit = None if rules.schema is None else record_reader(rules.schema).find_misfit(key, value)
    if misfit is not None:
        part, reason = misfit
        raise InvalidRecordError(
            f"the {part} of a record for topic {rules.topic!r} does not fit its schema: {reason}; correct the {part}, "
            f"or set {part}.schema.validation=false",
            topic=rules.topic,
            index=index,
        )


def no_such_partition(topic: str, partitions: int, named: int) -> InvalidPartitionError:
    return InvalidPartitionError(
        f"topic {topic!r} has partitions 0 to {partitions - 1}, not {named}; name one of them, or none",
        topic=topic,
        partition=named,
    )


def too_large(
    size: int, rules: TopicRules, stored: int | None = None, index: int | None = None
) -> MessageSizeTooLargeError:
    """Return the error of a record of ``size`` bytes, and of ``stored`` bytes in the log (default: uncompressed)."""
    if size > MAX_RECORD_BYTES:
        return MessageSizeTooLargeError(
            f"a record for topic {rules.topic!r} has {size:,} bytes, and none may have more than "
            f"{MAX_RECORD_BYTES:,} before it is compressed; send less",
            topic=rules.topic,
            size=size,
            limit=MAX_RECORD_BYTES,
            index=index,
        )
    counted, name, limit = size, "the producer's max_request_size", rules.max_request_size
    if size <= limit:
        counted = size + LOG_OVERHEAD_BYTES if stored is None else stored
        name, limit = "the topic's max.message.bytes", rules.max_message_bytes
    return MessageSizeTooLargeError(
        f"a record for topic {rules.topic!r} has {counted:,} bytes, and {name} is {limit:,}; send less, or raise the "
        "setting",
        topic=rules.topic,
        size=counted,
        limit=limit,
        index=index,
    )


def check_request_size(size: int, rules: TopicRules, index: int | None = None) -> None:
    """Raise MessageSizeTooLargeError for a record of ``size`` bytes that is over ``max_request_size``."""
    if size > rules.max_request_size:
        raise too_large(size, rules, index=index)


def topic_limit_error(
    size: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers | None,
    rules: TopicRules,
    index: int | None = None,
) -> MessageSizeTooLargeError | None:
    """Return the error if a record of ``size`` bytes is over the topic's limit, else None.

    The limit applies to the stored size, so to the compressed size if the topic's records are compressed. None is over
    ``limits.MAX_RECORD_BYTES`` before that: maintenance may have to store a record with further columns.
    """
    if size > MAX_RECORD_BYTES:
        return too_large(size, rules, index=index)
    limit = rules.max_message_bytes
    stored = size + LOG_OVERHEAD_BYTES
    codec = compressor(rules.codec, rules.codec_level) if stored > limit else None
    if codec is not None:
        parts = [key or b"", value or b""]
        for name, content in headers or ():
            parts += [name.encode(), content or b""]
        stored = codec.compress(b"".join(parts)).size + LOG_OVERHEAD_BYTES
    return too_large(size, rules, stored, index) if stored > limit else None


def check_timestamp(timestamp_ms: object, rules: TopicRules, now_ms: int) -> None:
    """Check a timestamp as Kafka's LogValidator does: bounds apply unless the topic uses LogAppendTime.

    Raises InvalidTimestampError.
    """
    found = whole(timestamp_ms)
    if found is None or not 0 <= found <= MAX_TIMESTAMP_MS:
        raise (InvalidTimestampTypeError if found is None else InvalidTimestampError)(
            f"invalid timestamp_ms={timestamp_ms!r} of a record for topic {rules.topic!r}; give whole milliseconds "
            "since 1970",
            topic=rules.topic,
        )
    if rules.log_append_time:
        return
    age_ms = now_ms - found
    if age_ms > rules.before_max_ms or -age_ms > rules.after_max_ms:
        name, limit = ("before", rules.before_max_ms) if age_ms > 0 else ("after", rules.after_max_ms)
        raise InvalidTimestampError(
            f"a record for topic {rules.topic!r} has timestamp {timestamp_ms} ms, {abs(age_ms):,} ms {name} now, and "
            f"message.timestamp.{name}.max.ms is {limit:,}; correct the timestamp, or raise the setting",
            topic=rules.topic,
            timestamp_ms=timestamp_ms,
        )
