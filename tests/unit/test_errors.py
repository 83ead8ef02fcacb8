"""``sparklog.errors`` compared with ``kafka.errors``: names, numbers, codes, bases, and which errors are retriable.

``kafka_errors.csv`` has the facts as measured with kafka-python 3.0.12: every name, its class, its number and code in
Kafka's protocol, ``retriable``, ``invalid_metadata``, and all its base classes in Kafka.
"""

from __future__ import annotations

import copy
import csv
import pickle
from pathlib import Path

import pytest

from sparklog import errors
from sparklog.client.admin.types import error_code

with (Path(__file__).parent / "kafka_errors.csv").open() as file:
    FACTS = {row["name"]: row for row in csv.DictReader(file)}

NUMBERED = [row for row in FACTS.values() if row["errno"] and row["name"] == row["class"]]
OURS = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.KafkaError)
}


def test_every_name_of_kafka_errors_exists() -> None:
    assert len(FACTS) == 157
    assert sorted(set(FACTS) - set(OURS)) == []


@pytest.mark.parametrize("name", FACTS)
def test_a_class_has_the_name_number_code_and_flags_of_kafka(name: str) -> None:
    fact, kind = FACTS[name], OURS[name]
    assert kind.__name__ == fact["class"]
    assert kind.__module__ == "sparklog.errors"
    assert str(kind.retriable) == fact["retriable"]
    assert str(kind.invalid_metadata) == fact["invalid_metadata"]
    assert ("" if kind.errno is None else str(kind.errno)) == fact["errno"]
    assert kind.message == fact["code"]


@pytest.mark.parametrize("name", FACTS)
def test_a_class_is_caught_by_the_same_names_as_in_kafka(name: str) -> None:
    kafkas = {fact["class"] for fact in FACTS.values()}
    above = {kind.__name__ for kind in OURS[name].__mro__[1:]} & kafkas
    assert sorted(above) == FACTS[name]["bases"].split()


@pytest.mark.parametrize("name", OURS)
def test_retriable_errors_derive_from_the_retriable_class(name: str) -> None:
    assert OURS[name].retriable == issubclass(OURS[name], errors.RetriableError)


@pytest.mark.parametrize("fact", NUMBERED, ids=lambda fact: fact["name"])
def test_a_numbered_error_says_what_it_means(fact: dict[str, str]) -> None:
    kind = OURS[fact["name"]]
    assert kind.description is not None
    assert kind.description.endswith(".")
    assert kind().message == fact["code"]
    assert kind("what happened").message == "what happened"


def test_a_number_gives_its_class() -> None:
    twice = {"IncompatibleBrokerVersion"}
    for fact in NUMBERED:
        if fact["name"] not in twice:
            assert errors.for_code(int(fact["errno"])) is OURS[fact["name"]]
    assert errors.kafka_errors[0] is errors.NoError
    assert sorted(errors.kafka_errors) == list(range(-1, 128))


def test_an_unknown_number_gives_an_unknown_error_with_it() -> None:
    kind = errors.for_code(9999)
    assert issubclass(kind, errors.UnknownError)
    assert (kind.errno, kind.__name__) == (9999, "UnrecognizedBrokerError")
    assert 9999 not in errors.kafka_errors


@pytest.mark.parametrize("name", OURS)
def test_every_error_survives_a_pickle_and_a_copy(name: str) -> None:
    error = OURS[name]("what happened", topic="orders", partition=3)
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is type(error)
        assert (str(same), same.topic, same.partition, same.args) == (str(error), "orders", 3, error.args)
        assert same == error
        assert hash(same) == hash(error)


def test_errors_differ_by_class_text_and_facts() -> None:
    error = errors.KafkaTimeoutError("late", topic="a")
    assert error != errors.KafkaTimeoutError("late", topic="b")
    assert error != errors.KafkaTimeoutError("later", topic="a")
    assert error != errors.CommitConflictError("late", topic="a")
    assert error != ValueError("late")


def test_an_error_without_a_text_shows_its_name() -> None:
    assert str(errors.KafkaConnectionError()) == "KafkaConnectionError"
    assert errors.CommitFailedError().message
    assert errors.LogTruncationError({("a", 0): None}).divergent_offsets == {("a", 0): None}


def test_several_arguments_are_kept() -> None:
    error = errors.KafkaError("why", 7)
    assert (error.args, error.message) == (("why", 7), "why")


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (errors.InvalidArgumentError, ValueError),
        (errors.InvalidArgumentError, AssertionError),
        (errors.InvalidArgumentTypeError, TypeError),
        (errors.InvalidArgumentTypeError, AssertionError),
        (errors.InvalidConfigurationError, ValueError),
        (errors.InvalidClientConfigurationError, errors.KafkaConfigurationError),
        (errors.InvalidPartitionError, ValueError),
        (errors.InvalidRecordError, ValueError),
        (errors.InvalidTopicError, ValueError),
        (errors.InvalidTopicTypeError, TypeError),
        (errors.NotAssignedError, ValueError),
        (errors.SerializationError, TypeError),
    ],
)
def test_errors_derive_from_the_matching_builtin_exceptions(kind: type[Exception], also: type[Exception]) -> None:
    assert issubclass(kind, also)


def test_groups_of_storage_and_corruption_have_the_nearest_number_in_results() -> None:
    assert error_code(None) == 0
    assert error_code(errors.StoragePermissionError("no")) == 31
    assert error_code(errors.CorruptIndexError("bad")) == 2
    assert error_code(errors.KafkaTimeoutError("late")) == 7
    assert error_code(errors.IllegalStateError("closed")) == 42
    assert error_code(errors.ObjectNotFoundError("gone")) == -1
