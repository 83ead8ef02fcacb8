"""What the comparison with Kafka decides before anything is asked."""

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


def test_an_exception_that_more_clauses_catch_is_the_same() -> None:
    assert same(plain(ValueError(), ERRORS), plain(Refused(), ERRORS))
    assert same(plain(KafkaError(), ERRORS), plain(Refused(), ERRORS))


def test_an_exception_that_a_clause_of_kafkas_misses_is_another() -> None:
    assert not same(plain(Refused(), ERRORS), plain(KafkaError(), ERRORS))
    assert not same(plain(TypeError(), ERRORS), plain(Refused(), ERRORS))
    assert not same(plain(None, ERRORS), plain(Refused(), ERRORS))


@pytest.mark.parametrize("value", [None, 1, True, "a", b"a", 1.5, float("inf"), [1], (1,), {1, 2}, {"a": None}])
def test_values_are_those_of_json_and_the_same_as_themselves(value: Any) -> None:
    import json

    answer = plain(value, ERRORS)
    assert same(json.loads(json.dumps(answer)), answer)


def test_bytes_text_and_numbers_are_not_mixed_up() -> None:
    answers = [plain(value, ERRORS) for value in (b"1", "1", 1, None, "", 0.5)]
    assert not [(a, b) for i, a in enumerate(answers) for b in answers[i + 1 :] if same(a, b)]


def test_more_names_than_kafka_has_are_the_same_and_fewer_are_not() -> None:
    few, many = plain(AtLeast(["a"]), ERRORS), plain(AtLeast(["a", "b"]), ERRORS)
    assert same(few, many)
    assert not same(many, few)


def test_a_refusal_may_say_more_but_must_exit_as_kafkas_does() -> None:
    refused = printed(Printed(1, "", "Topic t already exists"), ["already exists"])
    assert same(refused, printed(Printed(1, "", "already exists, in another place"), ["already exists"]))
    assert not same(refused, printed(Printed(1, "", "it is there"), ["already exists"]))
    assert not same(refused, printed(Printed(0, "", "already exists"), ["already exists"]))


def test_times_ids_and_padding_do_not_count() -> None:
    text = "TopicId: AbC\tCreateTime:1700000000000  a     b\n"
    assert normal(text) == ["TopicId: <id>\tCreateTime:<ms>  a  b"]
    assert normal("one\ntwo\n", only="tw") == ["two"]


def test_a_difference_is_named_by_its_part() -> None:
    assert differences("c", [1, 2], [1, 3]) == {"c/2": (2, 3)}
    assert differences("c", {"a": 1, "b": 2}, {"a": 1, "b": 3}) == {"c/b": (2, 3)}
    assert differences("c", [1], [1, 2]) == {"c": ([1], [1, 2])}
    assert differences("c", 1, 1) == {}


def test_a_choice_has_a_reason_and_is_listed_once(tmp_path: Path) -> None:
    file = tmp_path / "chosen.toml"
    for fields in ('row = "r"\nreason = ""', 'reason = "so"'):
        file.write_text(f'[[difference]]\ncases = ["a"]\n{fields}\n')
        with pytest.raises(ValueError, match="a has no row or no reason"):
            read_chosen(file)
    file.write_text('[[difference]]\ncases = ["a", "a"]\nrow = "r"\nreason = "so"\n')
    with pytest.raises(ValueError, match="a is listed twice"):
        read_chosen(file)


def test_every_row_that_is_named_is_in_the_documents() -> None:
    rows = {choice.row for choice in read_chosen().values() if choice.row}
    text = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    assert {row for row in rows if f"| {row} |" not in text} == set()
