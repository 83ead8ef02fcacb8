"""Names that Kafka accepts are accepted; all others are refused before they reach a path, a terminal or a commit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidPartitionsError, InvalidRequestError, InvalidTopicError
from sparklog.limits import MAX_APPLICATION_ID_LENGTH, MAX_GROUP_ID_LENGTH, MAX_PARTITIONS_PER_TOPIC
from sparklog.protocol.names import (
    collision_key,
    is_internal_topic,
    validate_application_id,
    validate_group_id,
    validate_partition_count,
    validate_partition_increase,
    validate_topic_name,
)

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "/etc/passwd",
    "a b",
    "orders\n",
    "\norders",
    "orders\0",
    "заказы",
    "注文",
    "ördërs",
    "a" * 250,
    "\ud800",
    "%2e%2e",
    "a:b",
    "~",
    "\u202eorders",
    "１",
]

topic_names = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "a" * 249, "...", "-", "__consumer_offsets", "0"])
def test_topic_names_of_kafka_are_accepted(name: str) -> None:
    assert validate_topic_name(name) == name


@pytest.mark.parametrize("name", [*HOSTILE, None, 7, b"orders", ["a"], True])
def test_invalid_topic_names_are_refused_with_an_ascii_message_that_states_the_rule(name: object) -> None:
    with pytest.raises(InvalidTopicError, match="1 to 249 of the characters") as caught:
        validate_topic_name(name)
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_the_error_names_the_invalid_character_and_its_position() -> None:
    with pytest.raises(InvalidTopicError, match=re.escape("the character '/' at position 2")):
        validate_topic_name("../x")


@given(st.text(max_size=300))
def test_a_name_is_accepted_exactly_if_it_matches_the_pattern_of_kafka(name: str) -> None:
    fits = re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) is not None and name not in (".", "..")
    if fits:
        assert validate_topic_name(name) == name
    else:
        with pytest.raises(InvalidTopicError):
            validate_topic_name(name)


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a", "a"), ("._", "_."), ("a.b_c", "a_b.c")])
def test_names_that_differ_in_dot_and_underscore_only_collide(first: str, second: str) -> None:
    assert collision_key(first) == collision_key(second)


@pytest.mark.parametrize(("first", "second"), [("a.b", "a-b"), ("a", "A"), ("ab", "a.b")])
def test_other_names_do_not_collide(first: str, second: str) -> None:
    assert collision_key(first) != collision_key(second)


@given(topic_names, topic_names)
def test_names_collide_exactly_when_dots_and_underscores_alone_differ(first: str, second: str) -> None:
    assert (collision_key(first) == collision_key(second)) == (first.replace("_", ".") == second.replace("_", "."))


def test_internal_topics_of_kafka_are_internal() -> None:
    assert all(map(is_internal_topic, ["__consumer_offsets", "__transaction_state", "__share_group_state"]))
    assert not any(map(is_internal_topic, ["__mine", "consumer_offsets", ""]))


@pytest.mark.parametrize("group_id", ["g", "my group", "группа", "a/b", "../x", "g" * MAX_GROUP_ID_LENGTH])
def test_a_group_id_may_be_any_printable_text(group_id: str) -> None:
    assert validate_group_id(group_id) == group_id


@pytest.mark.parametrize("wrong", ["", "  ", "a\n", "a\0b", "\x1b[2J", "a\u2028b", "\ud800", None, 5, b"g"])
@pytest.mark.parametrize("validate", [validate_group_id, validate_application_id])
def test_invalid_ids_are_refused_with_an_ascii_message(validate: object, wrong: object) -> None:
    assert callable(validate)
    with pytest.raises(InvalidRequestError, match="text without control characters") as caught:
        validate(wrong)
    assert str(caught.value).isascii()


def test_ids_have_a_maximum_length() -> None:
    assert validate_application_id("a" * MAX_APPLICATION_ID_LENGTH)
    with pytest.raises(InvalidRequestError, match="513 characters"):
        validate_application_id("a" * (MAX_APPLICATION_ID_LENGTH + 1))
    with pytest.raises(InvalidRequestError, match="250 characters"):
        validate_group_id("a" * (MAX_GROUP_ID_LENGTH + 1))


@pytest.mark.parametrize("partitions", [1, 8, MAX_PARTITIONS_PER_TOPIC])
def test_partition_counts_up_to_the_limit_are_accepted(partitions: int) -> None:
    assert validate_partition_count(partitions) == partitions


@pytest.mark.parametrize("partitions", [0, -1, MAX_PARTITIONS_PER_TOPIC + 1, 10**30, True, 1.0, "3", None])
def test_the_error_for_an_invalid_partition_count_names_the_allowed_range(partitions: object) -> None:
    with pytest.raises(InvalidPartitionsError, match=r"of topic 'orders' is .* a topic has 1 to"):
        validate_partition_count(partitions, "orders")


def test_partition_counts_only_grow() -> None:
    assert validate_partition_increase("orders", 3, 4) == 4
    with pytest.raises(InvalidPartitionsError, match=r"already has 3 partition\(s\)"):
        validate_partition_increase("orders", 3, 3)
    with pytest.raises(InvalidPartitionsError, match=r"currently has 3 partition\(s\); 0 would not be an increase"):
        validate_partition_increase("orders", 3, 0)
    with pytest.raises(
        InvalidPartitionsError, match=r"currently has 3 partition\(s\) .* new topic with 2 partitions, copy the records"
    ) as caught:
        validate_partition_increase("orders", 3, 2)
    assert caught.value.topic == "orders"
