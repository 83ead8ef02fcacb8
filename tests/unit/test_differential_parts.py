"""The parts of the comparison with Kafka that need no broker."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.differential.chosen import read_chosen
from tests.differential.outcomes import AtLeast, normal, plain, printed, same
from tests.differential.test_differential import differences
from tests.differential.tool_vm import Printed

ERRORS = ModuleType("errors")


class KafkaError(Exception):
    pass


class Refused(KafkaError, ValueError):
    pass


vars(ERRORS).update(KafkaError=KafkaError, Refused=Refused)


def test_an_exception_caught_by_more_clauses_is_equal() -> None:
    assert same(plain(ValueError(), ERRORS), plain(Refused(), ERRORS))
    assert same(plain(KafkaError(), ERRORS), plain(Refused(), ERRORS))


def test_an_exception_missed_by_a_clause_for_kafka_differs() -> None:
    assert not same(plain(Refused(), ERRORS), plain(KafkaError(), ERRORS))
    assert not same(plain(TypeError(), ERRORS), plain(Refused(), ERRORS))
    assert not same(plain(None, ERRORS), plain(Refused(), ERRORS))


@pytest.mark.parametrize("value", [None, 1, True, "a", b"a", 1.5, float("inf"), [1], (1,), {1, 2}, {"a": None}])
def test_values_are_json_and_equal_themselves(value: Any) -> None:
    import json

    answer = plain(value, ERRORS)
    assert same(json.loads(json.dumps(answer)), answer)


def test_bytes_text_and_numbers_are_distinguished() -> None:
    answers = [plain(value, ERRORS) for value in (b"1", "1", 1, None, "", 0.5)]
    assert not [(a, b) for i, a in enumerate(answers) for b in answers[i + 1 :] if same(a, b)]


def test_additional_names_are_equal_and_missing_ones_differ() -> None:
    few, many = plain(AtLeast(["a"]), ERRORS), plain(AtLeast(["a", "b"]), ERRORS)
    assert same(few, many)
    assert not same(many, few)


def test_a_refusal_may_differ_in_text_but_not_in_exit_code() -> None:
    refused = printed(Printed(1, "", "Topic t already exists"), ["already exists"])
    assert same(refused, printed(Printed(1, "", "already exists, in another place"), ["already exists"]))
    assert not same(refused, printed(Printed(1, "", "it is there"), ["already exists"]))
    assert not same(refused, printed(Printed(0, "", "already exists"), ["already exists"]))


def test_times_ids_and_padding_are_ignored() -> None:
    text = "TopicId: AbC\tCreateTime:1700000000000  a     b\n"
    assert normal(text) == ["TopicId: <id>\tCreateTime:<ms>  a  b"]
    assert normal("one\ntwo\n", only="tw") == ["two"]


def test_a_difference_is_named_by_its_part() -> None:
    assert differences("c", [1, 2], [1, 3]) == {"c/2": (2, 3)}
    assert differences("c", {"a": 1, "b": 2}, {"a": 1, "b": 3}) == {"c/b": (2, 3)}
    assert differences("c", [1], [1, 2]) == {"c": ([1], [1, 2])}
    assert differences("c", 1, 1) == {}


def test_every_intended_difference_has_a_reason_and_is_listed_once(tmp_path: Path) -> None:
    file = tmp_path / "chosen.toml"
    for fields in ('row = "r"\nreason = ""', 'reason = "so"'):
        file.write_text(f'[[difference]]\ncases = ["a"]\n{fields}\n')
        with pytest.raises(ValueError, match="a has no row or no reason"):
            read_chosen(file)
    file.write_text('[[difference]]\ncases = ["a", "a"]\nrow = "r"\nreason = "so"\n')
    with pytest.raises(ValueError, match="a is listed twice"):
        read_chosen(file)


def test_every_named_row_is_in_the_documents() -> None:
    rows = {choice.row for choice in read_chosen().values() if choice.row}
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    assert {row for row in rows if f"| {row} |" not in text} == set()
