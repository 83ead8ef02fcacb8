from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidRequestError
from sparklog.ids import RandomIds, SeededIds
from sparklog.store.base import (
    MAX_KEY_BYTES,
    MAX_KEY_PART_BYTES,
    TEMPORARY_PREFIX,
    is_unfinished,
    validate_key,
    validate_prefix,
)

PART = st.text(st.sampled_from("aZ0._-=~ %ü日\t/\\?:"), max_size=12)


@given(st.lists(PART, min_size=1, max_size=5).map("/".join))
def test_valid_key_stays_below_any_root(key: str) -> None:
    try:
        validate_key(key)
    except InvalidRequestError:
        return
    parts = key.split("/")
    assert all(part not in ("", ".", "..") for part in parts)
    assert not set(key) & set("\t\\?:")
    assert not parts[-1].startswith(".tmp-")


@given(st.lists(st.text(st.sampled_from("aZ09._-"), min_size=1, max_size=20), min_size=1, max_size=8))
def test_names_that_kafka_allows_are_valid_keys(parts: list[str]) -> None:
    topics = [part + "-0" for part in parts]
    assert validate_key("/".join([*topics, "1.log"])) == "/".join([*topics, "1.log"])


def test_length_is_measured_in_bytes() -> None:
    validate_key("ü" * (MAX_KEY_PART_BYTES // 2))
    for key in (
        "ü" * (MAX_KEY_PART_BYTES // 2 + 1),
        "a" * (MAX_KEY_PART_BYTES + 1),
        "ab/" * (MAX_KEY_BYTES // 3) + "a",
    ):
        with pytest.raises(InvalidRequestError, match="bytes"):
            validate_key(key)


def test_only_the_last_part_can_be_reserved() -> None:
    validate_key(".tmp-topic-0/1.log")  # a topic may have this name
    for key in ("a/.tmp-1", "a/.lock"):
        with pytest.raises(InvalidRequestError):
            validate_key(key)


def test_prefix_is_a_folder() -> None:
    for prefix in ("", "a/", "a/b/", ".tmp-topic-0/"):
        assert validate_prefix(prefix) == prefix
    for prefix in ("a", "/", "a//", "../", "a/../"):
        with pytest.raises(InvalidRequestError):
            validate_prefix(prefix)


def test_only_names_that_a_store_makes_are_those_of_unfinished_files() -> None:
    for ids in (RandomIds(), SeededIds(7)):
        for _ in range(200):
            assert is_unfinished(TEMPORARY_PREFIX + ids.write_id())
    mine = TEMPORARY_PREFIX + "hZ8cXo1KQ0m0pYtYkq3X1w"
    assert is_unfinished(mine)
    for other in (".tmp-x", ".tmp-", mine + "x", mine[:-1], mine[:-1] + "x", "." + mine, mine + ".part", mine + "\n"):
        assert not is_unfinished(other), other
