"""sparklog schemas: lists and describes the versions of topics' schemas."""

from __future__ import annotations

import json
from functools import partial

import pytest

from sparklog.clock import utc_text
from sparklog.coordinator import Coordinator
from sparklog.protocol.decide.topics import alter_configs

from .conftest import Run


@pytest.fixture
def typed(cluster: Coordinator) -> Coordinator:
    """Two topics: orders, whose schema had two texts and has the first again, and one without a schema."""
    cluster.create_topic("orders", configs={"value.format": "json", "value.schema": "a string"})
    cluster.create_topic("plain")
    for schema in ("a string NOT NULL", "a string"):
        cluster.submit(partial(alter_configs, topic="orders", changes={"value.schema": schema}))
    return cluster


def test_topics_with_a_schema_are_listed_with_the_number_of_versions(run: Run, typed: Coordinator) -> None:
    header, *rows = (line.split() for line in run("schemas", "--list").lines)
    assert header == ["TOPIC", "CONFIG", "VERSIONS", "CURRENT"]
    assert rows == [["orders", "value.schema", "2", "1"]]


def test_versions_are_described_with_commit_time_and_text(run: Run, typed: Coordinator) -> None:
    first, second = typed.state.topics["orders"].schemas["value.schema"]
    assert run("schemas", "--describe", "--topic", "ord.*").lines == [
        f"Topic: orders\tConfig: value.schema\tVersion: 1\tCurrent: yes\tCommit: {first.version}"
        f"\tTime: {utc_text(first.timestamp_ms)}\tSchema: a string",
        f"Topic: orders\tConfig: value.schema\tVersion: 2\tCurrent: no\tCommit: {second.version}"
        f"\tTime: {utc_text(second.timestamp_ms)}\tSchema: a string NOT NULL",
    ]


def test_one_version_is_described(run: Run, typed: Coordinator) -> None:
    [version] = json.loads(run("schemas", "--describe", "--schema-version", "2", "--json").out)["schemas"]
    assert (version["schema"], version["is_current"], version["registry_ids"]) == ("a string NOT NULL", False, [])


def test_a_version_that_no_schema_has_is_an_error(run: Run, typed: Coordinator) -> None:
    result = run("schemas", "--describe", "--schema-version", "3")
    assert (result.code, result.out) == (1, "")
    assert "no schema has a version 3" in result.err


def test_a_topic_that_does_not_exist_is_an_error(run: Run, typed: Coordinator) -> None:
    result = run("schemas", "--describe", "--topic", "nope")
    assert (result.code, "Topic 'nope' does not exist as expected" in result.err) == (1, True)


def test_a_topic_without_a_schema_has_nothing_to_describe(run: Run, typed: Coordinator) -> None:
    result = run("schemas", "--describe", "--topic", "plain")
    assert (result.code, result.out) == (0, "")
    assert "no topic asked for has a schema" in result.err


@pytest.mark.parametrize("flags", [[], ["--list", "--describe"], ["--list", "--schema-version", "1"]])
def test_conflicting_or_missing_options_are_refused(run: Run, typed: Coordinator, flags: list[str]) -> None:
    assert run("schemas", *flags).code == 1
