"""Checks of records before they are sent: types, sizes and timestamps.

Rules: a record that is refused here was not written; the error names its topic and the invalid part. Not for: records
of ``append_records`` (``records``), columns of tables (``table_batches``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparklog.client.producer.record_accumulator import Headers
from sparklog.client.producer.topic_metadata import LOG_OVERHEAD_BYTES, TopicMetadata
from sparklog.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTimestampTypeError,
    MessageSizeTooLargeError,
    SerializationError,
)
from sparklog.format.codecs import compressor

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


def no_key(topic: str) -> InvalidRecordError:
    return InvalidRecordError(
        f"topic {topic!r} is compacted, and a record for it has no key; give every record a key, or remove compact "
        "from the topic's cleanup.policy",
        topic=topic,
    )


def check_size(size: int, topic: TopicMetadata) -> None:
    """Raise MessageSizeTooLargeError for a row of ``size`` bytes that is over a limit of the producer or topic."""
    check_request_size(size, topic)
    if size + LOG_OVERHEAD_BYTES > topic.settings.max_message_bytes:
        raise _too_large(topic, size, size + LOG_OVERHEAD_BYTES, *_topic_limit(topic))


def check_request_size(size: int, topic: TopicMetadata) -> None:
    """Raise MessageSizeTooLargeError for a record of ``size`` bytes that is over ``max_request_size``."""
    if size > topic.max_request_size:
        raise _too_large(topic, size, size, "the producer's max_request_size", topic.max_request_size)


def topic_limit_error(
    size: int, key: bytes | None, value: bytes | None, headers: Headers | None, topic: TopicMetadata
) -> MessageSizeTooLargeError | None:
    """Return the error if a record of ``size`` bytes is over the topic's limit, else None.

    The limit applies to the stored size, so to the compressed size if the topic's records are compressed.
    """
    limit = topic.settings.max_message_bytes
    stored = size + LOG_OVERHEAD_BYTES
    codec = compressor(topic.codec, topic.level) if stored > limit else None
    if codec is not None:
        parts = [key or b"", value or b""]
        for name, content in headers or ():
            parts += [name.encode(), content or b""]
        stored = codec.compress(b"".join(parts)).size + LOG_OVERHEAD_BYTES
    return _too_large(topic, size, stored, *_topic_limit(topic)) if stored > limit else None


def _topic_limit(topic: TopicMetadata) -> tuple[str, int]:
    return "the topic's max.message.bytes", topic.settings.max_message_bytes


def _too_large(topic: TopicMetadata, size: int, counted: int, name: str, limit: int) -> MessageSizeTooLargeError:
    return MessageSizeTooLargeError(
        f"a record for topic {topic.name!r} has {counted:,} bytes, and {name} is {limit:,}; send less, or raise the "
        "setting",
        topic=topic.name,
        size=size,
    )


def check_timestamp(timestamp_ms: object, topic: TopicMetadata, now_ms: int) -> None:
    """Check a timestamp as Kafka's LogValidator does: bounds apply unless the topic uses LogAppendTime.

    Raises InvalidTimestampError.
    """
    is_number = isinstance(timestamp_ms, int) and not isinstance(timestamp_ms, bool)
    if not isinstance(timestamp_ms, int) or not is_number or not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        raise (InvalidTimestampError if is_number else InvalidTimestampTypeError)(
            f"invalid timestamp_ms={timestamp_ms!r} of a record for topic {topic.name!r}; give whole milliseconds "
            "since 1970",
            topic=topic.name,
        )
    if topic.log_append_time:
        return
    age_ms = now_ms - timestamp_ms
    before, after = topic.settings.message_timestamp_before_max_ms, topic.settings.message_timestamp_after_max_ms
    if age_ms > before or -age_ms > after:
        name, limit = ("before", before) if age_ms > 0 else ("after", after)
        raise InvalidTimestampError(
            f"a record for topic {topic.name!r} has timestamp {timestamp_ms} ms, {abs(age_ms):,} ms {name} now, and "
            f"message.timestamp.{name}.max.ms is {limit:,}",
            topic=topic.name,
        )
