"""Normalized results of cases: plain JSON values, without times, ids and other values that differ between runs.

For an exception: the names by which a caller can catch it, of the package's errors and of Python's. sparklog's must
include Kafka's; it may have more.
For a tool: its exit code and output; if it fails, only which of the case's words the message contains, since the
messages of the two projects differ.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.differential.tool_vm import Printed


class AtLeast:
    """A set of names; sparklog's may have more than Kafka's."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)


COARSE = {"Exception", "BaseException", "object"}


def plain(value: Any, errors: Any) -> Any:
    """Convert to a JSON value that is the same for equal answers; ``errors`` is the target's module of errors."""

    def nested(item: Any) -> Any:
        return plain(item, errors)

    if value is None or (isinstance(value, bool | int | str) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, float):
        return "inf" if value == float("inf") else value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"bytes {bytes(value)!r}"
    if isinstance(value, enum.Enum):
        return f"enum {value.name}"
    if isinstance(value, BaseException):
        return raised(value, errors)
    if isinstance(value, type):
        return f"class {value.__name__}"
    if isinstance(value, AtLeast):
        return {"at least": sorted(value.names)}
    if hasattr(value, "_asdict"):
        fields = value._asdict()
        if set(fields) == {"topic", "partition"}:
            return f"{value.topic}-{value.partition}"
        return {name: nested(item) for name, item in fields.items()}
    if isinstance(value, Mapping):
        return dict(sorted((key_text(nested(key)), nested(item)) for key, item in value.items()))
    if isinstance(value, set | frozenset):
        return sorted((nested(item) for item in value), key=str)
    if isinstance(value, Sequence):
        return [nested(item) for item in value]
    return f"a {type(value).__name__}"


def key_text(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def raised(error: BaseException, errors: Any) -> dict[str, Any]:
    """Return the class and all names by which ``except`` catches it."""
    own = [(name, each) for name, each in vars(errors).items() if isinstance(each, type)]
    known = own + [(each.__name__, each) for each in type(error).__mro__]
    names = {name for name, each in known if issubclass(each, BaseException) and isinstance(error, each)}
    return {"raises": type(error).__name__, "caught": sorted(names - COARSE)}


def same(expected: Any, answer: Any) -> bool:
    """Whether the answers are equal; sparklog's exceptions may have more names than Kafka's."""
    if isinstance(expected, dict) and isinstance(answer, dict):
        for key in ("caught", "at least"):
            if key in expected and key in answer:
                return set(expected[key]) <= set(answer[key])
        if "words" in expected and "words" in answer:  # sparklog's message may contain more of the words
            return expected["exit"] == answer["exit"] and set(expected["words"]) <= set(answer["words"])
        return expected.keys() == answer.keys() and all(same(expected[name], answer[name]) for name in expected)
    if isinstance(expected, list) and isinstance(answer, list):
        return len(expected) == len(answer) and all(same(*both) for both in zip(expected, answer, strict=True))
    return bool(expected == answer)


# -- tools

CHANGING = [
    (re.compile(r"(?<=TopicId: )\S+"), "<id>"),
    (re.compile(r"(?<=(?:Create|Append)Time:)(\s?)\d{12,}"), "<ms>"),
    (re.compile(r"(?<=LogAppendTime:)\d{12,}"), "<ms>"),
    (re.compile(r'(?<="timestamp":)\d+'), "<ms>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[:.,]\d{3}Z?"), "<time>"),
    (re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "-<uuid>"),
    (re.compile(r"console-consumer-\d+"), "console-consumer-<n>"),
    (re.compile(r"\b127\.0\.0\.1:\d+"), "<broker>"),
    (re.compile(r"\t(Elr|LastKnownElr): \S*"), r""),
    (re.compile(r"min\.insync\.replicas=1(,|\b)"), ""),  # set by a new broker for eligible leader replicas
]
NOTICES = re.compile(r"^The consumer rebalance protocol \(KIP-848\).*\n", re.M)


def normal(text: str, only: str = "") -> list[str]:
    """Return the lines without times, ids and padding; with ``only``, just those that contain it.

    Rows of what other cases left decide how wide a column is: of chosen lines no padding is compared.
    """
    for pattern, replacement in CHANGING:
        text = pattern.sub(replacement, text)
    lines = [re.sub(r" {2,}(?=\t)", "", line) for line in NOTICES.sub("", text).splitlines()]
    lines = [re.sub(r" {2,}", "  ", line).rstrip() for line in lines]
    if only:
        lines = [re.sub(r" +", " ", line) for line in lines if only in line]
    return lines


def printed(answer: Printed, words: Sequence[str] = (), only: str = "", err: bool = False) -> dict[str, Any]:
    """Return the exit code with the output after success, or with those of ``words`` in the message after failure."""
    outcome: dict[str, Any] = {"exit": answer.code}
    if answer.code == 0 and not words:
        outcome["out"] = normal(answer.out, only)
        if err:
            outcome["err"] = normal(answer.err, only)
    else:
        everything = " ".join((answer.out + " " + answer.err).split()).lower()
        outcome["words"] = [word for word in words if word.lower() in everything]
    return outcome
