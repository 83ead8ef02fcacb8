"""What may be sent: types, sizes and timestamps of records, checked before they are taken.

Rules: what is refused here was not written, and the error says of which topic and part it is.
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
    """A copy of what is bytes but not of the type. Raises SerializationError for what is none."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise SerializationError(
        f"the {part} of a record for topic {topic!r} is of type {type(value).__name__}, not bytes or None; serialize "
        f"it, or give the producer a {part}_serializer",
        topic=topic,
    )


def checked_headers(headers: RawHeaders, topic: str) -> tuple[list[tuple[str, bytes | None]], int]:
    """The headers as they are stored, and their bytes. Raises SerializationError."""
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


def _bad_header(found: object, topic: str) -> SerializationError:
    return SerializationError(
        f"headers of a record for topic {topic!r} have {found!a}; give a list of (text, bytes) tuples", topic=topic
    )


def neither_key_nor_value(topic: str) -> InvalidRecordError:
    return InvalidRecordError(f"a record for topic {topic!r} has neither a key nor a value; give one", topic=topic)


def no_key(topic: str) -> InvalidRecordError:
    return InvalidRecordError(
        f"topic {topic!r} is compacted, and a record for it has no key; give every record one, or take compact out of "
        "the topic's cleanup.policy",
        topic=topic,
    )


def check_size(size: int, topic: TopicMetadata) -> None:
    """Refuse a row of ``size`` bytes that is over a limit. Raises MessageSizeTooLargeError."""
    check_request_size(size, topic)
    if size + LOG_OVERHEAD_BYTES > topic.settings.max_message_bytes:
        raise _too_large(topic, size, size + LOG_OVERHEAD_BYTES, *_topic_limit(topic))


def check_request_size(size: int, topic: TopicMetadata) -> None:
    """Refuse a record of ``size`` bytes that the producer itself may not send. Raises MessageSizeTooLargeError."""
    if size > topic.max_request_size:
        raise _too_large(topic, size, size, "the producer's max_request_size", topic.max_request_size)


def refusal_by_topic(
    size: int, key: bytes | None, value: bytes | None, headers: Headers | None, topic: TopicMetadata
) -> MessageSizeTooLargeError | None:
    """Why the topic does not take this record of ``size`` bytes, if it does not: its limit is for what is stored, so
    where records are compressed, for the compressed ones."""
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
    """Kafka's LogValidator: bounds hold for the producer's timestamps, not where the topic stamps on append.

    Raises InvalidTimestampError.
    """
    is_number = isinstance(timestamp_ms, int) and not isinstance(timestamp_ms, bool)
    if not isinstance(timestamp_ms, int) or not is_number or not 0 <= timestamp_ms <= MAX_TIMESTAMP_MS:
        raise (InvalidTimestampError if is_number else InvalidTimestampTypeError)(
            f"a record for topic {topic.name!r} has timestamp_ms={timestamp_ms!r}; give whole milliseconds since 1970",
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
