"""Suggestions for misspelled names."""

from __future__ import annotations

import pytest

from sparklog.errors.suggestions import did_you_mean, nearest_name

KNOWN = ["linger_ms", "Topic", "startingOffsets", "configs", "topics"]


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("linger.ms", "linger_ms"),
        ("linger-ms", "linger_ms"),
        ("LINGER_MS ", "linger_ms"),
        ("linger.sm", "linger_ms"),
        ("startingoffset", "startingOffsets"),
        ("topcis", "topics"),
        ("metrics", None),
        ("favouritecolour", None),
        ("", None),
        ("x" * 1_000_000, None),
    ],
)
def test_a_name_is_suggested_only_if_it_is_probably_meant(word: str, name: str | None) -> None:
    assert nearest_name(word, KNOWN) == name
    assert did_you_mean(word, KNOWN) == (f"; did you mean {name}?" if name else "")
