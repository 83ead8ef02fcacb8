"""Serializers and deserializers as objects: what turns keys and values into bytes, and bytes into keys and values.

    producer = Producer(bootstrap_servers="/data/log", value_serializer=JsonSerializer())
    consumer = Consumer("orders", bootstrap_servers="/data/log", value_deserializer=JsonSerializer())

An object sees the topic and the record's headers. The headers of ``serialize`` are the list that is stored with the
record: what a serializer adds to it, such as the id of a schema, is stored too.

Rules: the interface is kafka-python's (version 3). A function of the value, or of the bytes, does as well wherever an
object is taken. Not for: when they are called, and what becomes of their errors (``producer``, ``consumer_records``).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class Serializer(ABC):
    """Makes bytes of a key or value. The producer calls it in the thread that sends, so it must be thread-safe where
    several do.

        class SchemaSerializer(Serializer):
            def serialize(self, topic, headers, data):
                headers.append(("schema", b"7"))
                return encode(data)
    """

    @abstractmethod
    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """Bytes, or None for no key or value. What is added to ``headers`` is stored with the record."""

    def close(self) -> None:  # noqa: B027 # optional
        """Called when the producer is closed."""


class Deserializer(ABC):
    """Makes a key or value of bytes. A consumer calls it in the thread that polls."""

    @abstractmethod
    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """What the record shall have as its key or value; ``data`` is bytes, or None where the record has none."""

    def close(self) -> None:  # noqa: B027 # optional
        """Called when the consumer is closed."""


class DefaultSerializer(Serializer, Deserializer):
    """Text, by default UTF-8. Bytes and None are serialized as they are.

    Raises UnicodeError where the encoding cannot, AttributeError for what is neither bytes nor text.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """The text in the encoding."""
        if data is None or isinstance(data, bytes | bytearray | memoryview):
            return data
        return data.encode(self.encoding)

    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """The text of the bytes, None for None."""
        return None if data is None else bytes(data).decode(self.encoding)


class JsonSerializer(DefaultSerializer):
    """JSON. None stays None, so that a value of None is a tombstone.

    Raises TypeError for what JSON does not have, ``json.JSONDecodeError`` (a ValueError) for what is not JSON.
    """

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """The value as JSON text."""
        return None if data is None else super().serialize(topic, headers, json.dumps(data))

    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """The value that the JSON text stands for."""
        return None if data is None else json.loads(super().deserialize(topic, headers, data))


class SerializeWrapper(Serializer):
    """A function of the value as a Serializer; None changes nothing."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """What the function makes of the value."""
        return data if self.fn is None else self.fn(data)


class DeserializeWrapper(Deserializer):
    """A function of the bytes as a Deserializer; None changes nothing."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self.fn = fn

    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        """What the function makes of the bytes."""
        return data if self.fn is None else self.fn(data)
