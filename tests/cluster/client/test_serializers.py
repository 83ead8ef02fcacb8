"""Serializers and deserializers as objects: they get the topic and the headers, and are closed with their client."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.client.serializers import (
    DefaultSerializer,
    Deserializer,
    DeserializeWrapper,
    JsonSerializer,
    Serializer,
    SerializeWrapper,
)
from tests.cluster.client.consumers import Cluster, read

Headers = list[tuple[str, "bytes | None"]]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(uuid.uuid4().hex, partitions=1)


class Versioned(Serializer, Deserializer):
    """Text or a number, according to a header of the record, as in schema registries."""

    def __init__(self) -> None:
        self.closed = 0
        self.seen: list[tuple[str, Headers]] = []

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes:
        headers.append(("schema", type(data).__name__.encode()))
        return str(data).encode()

    def deserialize(self, topic: str, headers: Headers, data: Any) -> Any:
        self.seen.append((topic, headers))
        return int(data) if ("schema", b"int") in headers else data.decode()

    def close(self) -> None:
        self.closed += 1


def test_a_deserializer_decodes_by_the_headers_that_a_serializer_added(cluster: Cluster) -> None:
    codec = Versioned()
    with Producer(cluster=cluster.coordinator(), value_serializer=codec) as producer:
        producer.send("orders", 7, headers=[("mine", b"1")])
        producer.send("orders", "7")
    with cluster.consumer("orders", value_deserializer=codec) as consumer:
        records = read(consumer, 2)
    assert [record.value for record in records] == [7, "7"]
    assert [record.headers for record in records] == [[("mine", b"1"), ("schema", b"int")], [("schema", b"str")]]
    assert codec.seen == [("orders", record.headers) for record in records]
    assert codec.closed == 2


@pytest.mark.parametrize("part", ["key", "value"])
def test_iteration_passes_the_headers_to_each_deserializer(cluster: Cluster, part: str) -> None:
    cluster.write(0, b"5", key=b"5", headers=[("schema", b"int")])
    cluster.write(0, b"5", key=b"5")
    with cluster.consumer("orders", consumer_timeout_ms=20_000, **{f"{part}_deserializer": Versioned()}) as consumer:
        assert [getattr(next(consumer), part) for _ in range(2)] == [5, "5"]


def test_a_serializer_adds_headers_to_the_callers_list(cluster: Cluster) -> None:
    headers: Headers = []
    with Producer(cluster=cluster.coordinator(), value_serializer=Versioned()) as producer:
        producer.send("orders", 7, headers=headers)
    assert headers == [("schema", b"int")]


def test_json_round_trips_and_none_stays_a_tombstone(cluster: Cluster) -> None:
    values = [{"a": [1, None]}, "text", 3, True]
    with Producer(cluster=cluster.coordinator(), value_serializer=JsonSerializer()) as producer:
        for value in [*values, None]:
            producer.send("orders", value, key=b"k")
    with cluster.consumer("orders") as raw, cluster.consumer("orders", value_deserializer=JsonSerializer()) as parsed:
        assert [record.value for record in read(raw, 5)][-1] is None
        assert [record.value for record in read(parsed, 5)] == [*values, None]


def test_invalid_json_is_a_value_error() -> None:
    with pytest.raises(json.JSONDecodeError):
        JsonSerializer().deserialize("orders", [], b"{")


@pytest.mark.parametrize(("encoding", "stored"), [("utf-8", "é".encode()), ("latin-1", b"\xe9")])
def test_text_is_encoded_and_bytes_are_stored_unchanged(encoding: str, stored: bytes) -> None:
    text = DefaultSerializer(encoding)
    assert text.serialize("orders", [], "é") == stored
    assert text.serialize("orders", [], b"\xff") == b"\xff"
    assert text.serialize("orders", [], None) is None
    assert text.deserialize("orders", [], stored) == "é"
    assert text.deserialize("orders", [], None) is None


def test_functions_can_be_wrapped() -> None:
    assert SerializeWrapper(str.encode).serialize("orders", [], "v") == b"v"
    assert SerializeWrapper(None).serialize("orders", [], b"v") == b"v"
    assert DeserializeWrapper(int).deserialize("orders", [], b"7") == 7
    assert DeserializeWrapper(None).deserialize("orders", [], b"7") == b"7"


def test_an_abstract_serializer_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError):
        Serializer()  # type: ignore[abstract]
