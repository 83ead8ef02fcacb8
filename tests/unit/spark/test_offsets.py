"""Parsing of offsets, timestamps and partitions in options."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.spark.source.offsets import (
    EveryPartition,
    format_partitions,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)
from sparklog.spark.stream.offsets import StreamOffsets
from sparklog.types import EARLIEST, LATEST, TopicPartition

TOPICS = st.text("abcdefgh-_.0123456789", min_size=1, max_size=8)
PARTITIONS = st.integers(0, 2**31 - 1).filter(lambda number: number < 10**9)
WHERE = st.builds(TopicPartition, TOPICS, PARTITIONS)


@pytest.mark.parametrize("text", ["earliest", "EARLIEST", " earLiEst "])
def test_earliest_and_latest_are_case_insensitive(text: str) -> None:
    assert parse_offsets("startingOffsets", text) == EveryPartition(EARLIEST)


def test_latest_is_minus_one() -> None:
    assert parse_offsets("endingOffsets", "latest") == EveryPartition(LATEST)


@given(st.dictionaries(WHERE, st.integers(-2, 2**63 - 1), min_size=1))
def test_offsets_round_trip_through_json(offsets: dict[TopicPartition, int]) -> None:
    text = json.dumps(StreamOffsets(offsets).to_json())
    assert parse_offsets("startingOffsets", text).partitions == offsets  # type: ignore[union-attr]


def test_offsets_are_written_sorted_by_topic_and_number() -> None:
    offsets = {TopicPartition("b", 0): 1, TopicPartition("a", 10): 2, TopicPartition("a", 9): 3}
    assert json.dumps(StreamOffsets(offsets).to_json()) == '{"a": {"9": 3, "10": 2}, "b": {"0": 1}}'


@given(st.sets(WHERE, min_size=1))
def test_partitions_round_trip_through_json(partitions: set[TopicPartition]) -> None:
    assert parse_partitions("assign", format_partitions(partitions)) == tuple(sorted(partitions))


def test_a_topic_may_have_one_word_for_all_its_partitions() -> None:
    parsed = parse_offsets("startingOffsets", '{"a":"Earliest","b":{"0":5}}')
    assert parsed.get(TopicPartition("a", 7)) == EARLIEST  # type: ignore[union-attr]
    assert parsed.get(TopicPartition("b", 0)) == 5  # type: ignore[union-attr]
    assert parsed.get(TopicPartition("b", 1)) is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "newest",
        "5",
        "[]",
        "{}",
        '{"a"',
        '{"a":5}',
        '{"a":"newest"}',
        '{"a":{}}',
        '{"a":{"x":1}}',
        '{"a":{"-1":1}}',
        '{"a":{"0":-3}}',
        '{"a":{"0":1.5}}',
        '{"a":{"0":"1"}}',
        '{"a":{"0":true}}',
        '{"a":{"0":9223372036854775808}}',
        '{"a":{"0":1,"0":2}}',
        '{"a":{"٣":1}}',
        "[" * 100_000,
    ],
)
def test_the_error_for_malformed_offsets_names_the_option(text: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"invalid value .* for option startingOffsets: .* expected"):
        parse_offsets("startingOffsets", text)


@pytest.mark.parametrize("text", ['{"a":{"0":-1}}', '{"a":"latest"}', "latest", '{"a":{"0":null}}'])
def test_timestamps_accept_no_words_and_no_special_numbers(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="startingOffsetsByTimestamp"):
        parse_timestamps("startingOffsetsByTimestamp", text)


@pytest.mark.parametrize("text", ["", "a", '{"a":0}', '{"a":["0"]}', '{"a":[-1]}', '{"a":[true]}', '{"a":[]}', "{}"])
def test_malformed_partitions_are_refused(text: str) -> None:
    with pytest.raises(InvalidOptionError, match="option assign"):
        parse_partitions("assign", text)


def test_long_values_are_truncated_in_the_message() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse_offsets("startingOffsets", "x" * 100_000)
    assert len(str(caught.value)) < 500
