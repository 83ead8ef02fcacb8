"""Validation of names and counts: topics, consumer groups, applications, partitions.

Rules: pure functions over untrusted input. A validator returns its argument unchanged or raises; it never corrects a
name, so that two clients cannot disagree on what was meant. Topic names become folder names under the root, so
``validate_topic_name`` allows only safe characters.

Not for: whether a name is in use, which only the state knows.
"""

from __future__ import annotations

import re

from sparklog.errors import (
    InvalidArgumentError,
    InvalidArgumentTypeError,
    InvalidPartitionsError,
    InvalidTopicError,
    InvalidTopicTypeError,
)
from sparklog.limits import (
    MAX_APPLICATION_ID_LENGTH,
    MAX_CLIENT_ID_LENGTH,
    MAX_GROUP_ID_LENGTH,
    MAX_PARTITIONS_PER_TOPIC,
    MAX_TOPIC_NAME_LENGTH,
    MAX_TRANSACTIONAL_ID_LENGTH,
)
from sparklog.types import whole

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""Names that Kafka reserves (``org.apache.kafka.common.internals.Topic``)."""

# \Z and not $: the latter also matches before a line feed at the end.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]+\Z")
_TOPIC_RULE = (
    f"a topic name is 1 to {MAX_TOPIC_NAME_LENGTH} of the characters a-z, A-Z, 0-9, '.', '_' and '-', "
    "and is neither '.' nor '..'"
)
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # these turn the direction of the text after them
)
_SHOWN_CHARACTERS = 80


def validate_topic_name(name: object) -> str:
    """Return ``name`` if Kafka's rules allow it as a topic name. Raises InvalidTopicError if it is not text, empty, too
    long, '.' or '..', or has a character that is not allowed."""
    if not isinstance(name, str):
        raise _invalid_topic(name, f"it is of type {type(name).__name__}, not text")
    if not name:
        raise _invalid_topic(name, "it is empty")
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        raise _invalid_topic(name, f"it has {len(name)} characters")
    if name in (".", ".."):
        raise _invalid_topic(name, "it names a folder")
    if not _TOPIC.match(name):
        refused = next(character for character in name if not _TOPIC.match(character))
        raise _invalid_topic(name, f"it has the character {refused!a} at position {name.index(refused)}")
    return name


def collision_key(name: str) -> str:
    """Return a key that exactly the colliding names share: those that differ only in '.' and '_', as in Kafka's metric
    names."""
    return name.replace(".", "_")


def is_internal_topic(name: str) -> bool:
    """Return whether the name is one of Kafka's internal topics, which users neither create nor write."""
    return name in INTERNAL_TOPICS


def validate_written_topic(name: object) -> str:
    """Return ``name`` if users may create the topic and write to it. Raises InvalidTopicError as
    ``validate_topic_name``, and if it is internal."""
    topic = validate_topic_name(name)
    if is_internal_topic(topic):
        raise InvalidTopicError(
            f"topic {topic!r} is internal: it is derived from the commit log, and cannot be created or written to; "
            "choose another name. If an older version of sparklog created a real topic of that name, `sparklog topics "
            f"--delete --topic {topic}` deletes it",
            topic=topic,
        )
    return topic


def validate_group_id(group_id: object) -> str:
    """Return ``group_id`` if it can name a consumer group: any text without control characters, as long as a topic's.

    Kafka only requires that it is not empty. Control characters are refused here because group ids are printed in
    tables and stored in readable commits. Raises InvalidArgumentTypeError if it is not text, InvalidArgumentError if it
    is empty, too long, or has a control character or half a surrogate pair.
    """
    return _validate_id(group_id, "group id", MAX_GROUP_ID_LENGTH)


def validate_application_id(application_id: object) -> str:
    """Return ``application_id`` (a write's ``txnAppId``, or a streaming query's id) if it can be stored in the state.
    Raises as ``validate_group_id``."""
    return _validate_id(application_id, "application id (txnAppId)", MAX_APPLICATION_ID_LENGTH)


def validate_client_id(client_id: object, what: str = "client.id") -> str:
    """Return a ``client.id``, ``group.instance.id`` or host (``what``) if it can be stored and shown; may be empty.
    Raises as ``validate_group_id``."""
    return "" if client_id == "" else _validate_id(client_id, what, MAX_CLIENT_ID_LENGTH)


def validate_transactional_id(transactional_id: object) -> str:
    """Return ``transactional_id`` if a new producer may use it. Raises as ``validate_group_id``."""
    return _validate_id(transactional_id, "transactional.id", MAX_TRANSACTIONAL_ID_LENGTH)


def validate_partition_count(partitions: object, topic: str | None = None) -> int:
    """Return ``partitions`` if it is a valid partition count. Raises InvalidPartitionsError if it is not a whole number
    from 1 to ``limits.MAX_PARTITIONS_PER_TOPIC``."""
    of_topic = "" if topic is None else f" of topic {_quote(topic)}"
    allowed = f"a topic has 1 to {MAX_PARTITIONS_PER_TOPIC} partitions"
    count = whole(partitions)
    if count is None:
        message = f"The partition count{of_topic} is {_quote(partitions)}, which is not a whole number; {allowed}."
        raise InvalidPartitionsError(message, topic=topic)
    if not 1 <= count <= MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitionsError(f"The partition count{of_topic} is {count}; {allowed}.", topic=topic)
    return count


def validate_partition_increase(topic: str, current: int, requested: object) -> int:
    """Return ``requested`` if a topic with ``current`` partitions can grow to it. Raises InvalidPartitionsError if it
    is not a valid count, or not larger than ``current``."""
    if requested == current and not isinstance(requested, bool):
        message = f"Topic {topic!r} already has {current} partition(s); give a larger number to add some."
        raise InvalidPartitionsError(message, topic=topic)
    if (number := whole(requested)) is not None and number < 1:
        raise InvalidPartitionsError(
            f"The topic {topic!r} currently has {current} partition(s); {requested} would not be an increase.",
            topic=topic,
        )
    count = validate_partition_count(requested, topic)
    if count < current:
        raise InvalidPartitionsError(
            f"The topic {topic!r} currently has {current} partition(s) and cannot be reduced to {count}, which would "
            "not be an increase: the records and offsets of a partition would be lost. "
            f"Create a new topic with {count} partitions, copy the records into it (read the "
            "old topic, write the new one), then delete the old one.",
            topic=topic,
        )
    return count


def _validate_id(value: object, what: str, longest: int) -> str:
    rule = f"it must be 1 to {longest} characters of text without control characters"
    if not isinstance(value, str):
        raise InvalidArgumentTypeError(f"The {what} is of type {type(value).__name__}, not text; {rule}.")
    if not value.strip():
        raise InvalidArgumentError(f"The {what} is {'blank' if value else 'empty'}; {rule}.")
    if len(value) > longest:
        raise InvalidArgumentError(f"The {what} {_quote(value)} has {len(value)} characters; {rule}.")
    refused = _CONTROL.search(value)
    if refused:
        reason = f"the character {refused.group()!a} at position {refused.start()}"
        raise InvalidArgumentError(f"The {what} {_quote(value)} has {reason}; {rule}.")
    return value


def _invalid_topic(name: object, reason: str) -> InvalidTopicError:
    kind = InvalidTopicError if isinstance(name, str) else InvalidTopicTypeError
    return kind(
        f"Topic name is invalid: {_quote(name)}: {reason}. {_TOPIC_RULE[0].upper()}{_TOPIC_RULE[1:]}.",
        topic=name if isinstance(name, str) else None,
    )


def _quote(value: object) -> str:
    """Return the value as ASCII, truncated, so that hostile input cannot affect a terminal or a log."""
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
