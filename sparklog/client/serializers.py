"""Serializer and deserializer classes: they turn keys and values into bytes, and bytes into keys and values.

    producer = Producer(bootstrap_servers="/data/log", value_serializer=JsonSerializer())
    consumer = Consumer("orders", bootstrap_servers="/data/log", value_deserializer=JsonSerializer())

They get the topic and the record's headers. The headers of ``serialize`` are the list that is stored with the record:
headers that a serializer adds, such as the id of a schema, are stored too.

Rules: the interface is kafka-python's (version 3). A function of the value, or of the bytes, is accepted wherever an
object is. Not for: when they are called, and how their errors are raised (``producer``, ``consumer.records``).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Serializer(ABC):
    """Turns a key or value into bytes. Called in the thread that sends; must be thread-safe if several threads send.

    class SchemaSerializer(Serializer):
        def serialize(self, topic, headers, data):
            headers.append(("schema", b"7"))
            return encode(data)
    """

    @abstractmethod
    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Return bytes, or None for no key or value. Headers added to ``headers`` are stored with the record."""

    def close(self) -> None:  # noqa: B027 # optional
        """Called when the producer is closed."""


class Deserializer(ABC):
    """Turns bytes into a key or value. Called in the thread that polls."""

    @abstractmethod
    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Return the key or value; ``data`` is bytes, or None if the record has none."""

    def close(self) -> None:  # noqa: B027 # optional
        """Called when the consumer is closed."""


class DefaultSerializer(Serializer, Deserializer):
    """Text, by default UTF-8. Bytes and None are serialized unchanged.

    Raises UnicodeError for text that cannot be encoded or decoded, AttributeError for values other than bytes and text.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Return the text in the encoding."""
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data
        return data.encode(self.encoding)

    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Return the text of the bytes, None for None."""
        return None if data is None else bytes(data).decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON. None stays None, so that a value of None is a tombstone.

    Raises TypeError for values that JSON cannot represent, ``json.JSONDecodeError`` (a ValueError) for invalid JSON.
    """

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Return the value as JSON text, None for None."""
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Return the value of the JSON text, None for None."""
        return None if data is None else json.loads(super().deserialize(topic, headers, data))


class SerializeWrapper(Serializer):
    """A Serializer that calls a function of the value; without a function it returns the value."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Return the function's result for the value."""
        return data if self.fn is None else self.fn(data)


class DeserializeWrapper(Deserializer):
    """A Deserializer that calls a function of the bytes; without a function it returns the bytes."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Return the function's result for the bytes."""
        return data if self.fn is None else self.fn(data)
