"""Values that all packages share: plain, immutable, and with no behaviour beyond names and text.

Offsets and counts are records, positions and sizes are bytes, timestamps say their unit in their name.
"""

from __future__ import annotations

import operator
import re
from numbers import Real
from typing import Any, NamedTuple

EARLIEST = -2
"""Kafka's special offset: the log start offset."""
LATEST = -1
"""Kafka's special offset: the log end offset."""

CREATE_TIME = 0
"""``timestampType`` of a topic whose records keep the producer's timestamp."""
LOG_APPEND_TIME = 1
"""``timestampType`` of a topic whose records carry the time of their commit."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
"""Values that Kafka stores in a batch of a producer that is not idempotent."""


def whole(value: object) -> int | None:
    """Return a whole number as Python's int, also one of numpy or pandas; None for anything else, and for booleans."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def as_python(value: Any) -> Any:
    """Return a whole number, a truth value or a text of numpy or pandas as Python's, which can be stored, and anything
    else as it is."""
    if type(value) in (int, str, bool) or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)  # as it is, whatever a subclass shows
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    found = whole(value)
    return value if found is None or isinstance(value, int) else found


def is_array(value: object) -> bool:
    """Return whether a value is an array of numpy, or a series of pandas: its ``tolist`` gives a list."""
    return getattr(value, "ndim", 0) == 1 and callable(getattr(value, "tolist", None))


def number(value: object) -> int | float | None:
    """Return a number as Python's, also one of numpy or pandas; None for anything else, and for booleans."""
    if isinstance(value, bool):
        return None
    found = whole(value)
    return float(value) if found is None and isinstance(value, Real) else found


def printable(value: object) -> str:
    """Return an untrusted text with control characters escaped, fit for one line of a table or a log.

    So a client id cannot forge a row or control the terminal. Letters of all languages are kept.
    """
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def without_secrets(text: str) -> str:
    """Return the address as messages may show it: without user and password before an ``@``, and values of a query."""
    text = re.sub(r"(:/{0,3})[^/@]*@", r"\1", text)
    return re.sub(r"([?&][^=&/]*=)[^&/]*", r"\1[hidden]", text)


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then partition.

    >>> str(sparklog.TopicPartition("orders", 0))
    'orders-0'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicPartitionReplica(NamedTuple):
    """One replica of a partition; ``broker_id`` is the storage location that holds it."""

    topic: str
    partition: int
    broker_id: int


class OffsetAndMetadata(NamedTuple):
    """A group's position in a partition: the next offset to read, with a text and the leader epoch of the last read.

    None is accepted for either, and stored as the empty text and -1.

        >>> first = sparklog.TopicPartition("orders", 0)
        >>> with sparklog.Consumer(bootstrap_servers=root, group_id="billing") as consumer:
        ...     consumer.assign([first])
        ...     consumer.commit({first: sparklog.OffsetAndMetadata(5, "checked")})
        ...     committed = consumer.committed(first)
        >>> committed
        5
    """

    offset: int
    metadata: str | None = ""
    leader_epoch: int | None = -1


class OffsetAndTimestamp(NamedTuple):
    """A record found by time: ``timestamp`` is the record's, in milliseconds; -1 means that there is none.

    >>> with sparklog.Producer(bootstrap_servers=root) as producer:
    ...     _ = producer.send("orders", b"v", timestamp_ms=1_790_000_000_000)
    >>> first = sparklog.TopicPartition("orders", 0)
    >>> with sparklog.Consumer(bootstrap_servers=root) as consumer:
    ...     offsets = consumer.offsets_for_times({first: 1_780_000_000_000})
    >>> offsets[first].offset
    0
    """

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class OffsetRange(NamedTuple):
    """Records ``[start, end)`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start
