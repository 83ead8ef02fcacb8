"""kafka-groups: the list of all groups."""

from __future__ import annotations

from functools import partial

import pytest

from sparklog.coordinator import Coordinator
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest, commit_group_offsets, join_group

from .conftest import Run


@pytest.fixture
def groups(cluster: Coordinator) -> Coordinator:
    """Group live has a member; group query only has offsets."""
    cluster.create_topic("orders")
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="query", offsets={("orders", 0): 0})))
    cluster.submit(partial(join_group, request=JoinRequest(group="live", member="a", topics=["orders"])))
    return cluster


def test_groups_are_listed_with_type_and_protocol(run: Run, groups: Coordinator) -> None:
    assert run("groups", "--list").lines == [
        f"{'GROUP':<20} {'TYPE':<20} {'PROTOCOL':<20}",
        f"{'live':<20} {'Classic':<20} {'consumer':<20}",
        f"{'query':<20} {'Classic':<20} {'':<20}",
    ]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (["--consumer"], ["live", "query"]),
        (["--group-type", "CLASSIC"], ["live", "query"]),
        (["--group-type", "classic", "--protocol", "consumer"], ["live"]),
        (["--protocol", "consumer"], ["live"]),
        (["--protocol", ""], ["query"]),
        (["--protocol", "connect"], []),
        (["--group-type", "consumer"], []),
        (["--share"], []),
        (["--streams"], []),
    ],
)
def test_groups_are_filtered_by_type_and_protocol(
    run: Run, groups: Coordinator, filters: list[str], names: list[str]
) -> None:
    result = run("groups", "--list", *filters)
    assert [line.split()[0] for line in result.lines[1:]] == names
    assert result.code == 0


def test_long_names_widen_all_columns(run: Run, groups: Coordinator) -> None:
    groups.submit(partial(commit_group_offsets, commit=GroupCommit(group="g" * 33, offsets={("orders", 0): 0})))
    assert run("groups", "--list").lines[0] == f"{'GROUP':<33} {'TYPE':<33} {'PROTOCOL':<33}"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Command must include exactly one action: --list."),
        (["--list", "--group-type", "raft"], "--group-type must be a valid group type."),
        (["--list", "--share", "--streams"], 'Option "[share]" can\'t be used with option "[streams]"'),
        (["--list", "--consumer", "--protocol", "x"], 'Option "[consumer]" can\'t be used with option "[protocol]"'),
    ],
)
def test_wrong_options_are_refused_with_kafkas_messages(
    run: Run, groups: Coordinator, arguments: list[str], complaint: str
) -> None:
    result = run("groups", *arguments)
    assert (result.code, result.out) == (1, "")
    assert complaint in result.err
