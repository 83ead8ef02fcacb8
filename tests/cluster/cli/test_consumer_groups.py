"""kafka-consumer-groups: list, describe, delete, and usage errors. For resets see test_group_reset."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import Coordinator
from sparklog.coordinator.group_member import GroupMember
from sparklog.coordinator.leases import lease_key
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest, commit_group_offsets, join_group, leave_group
from sparklog.testing.records import Record, append_records
from sparklog.types import OffsetAndMetadata

from .conftest import Run


@pytest.fixture
def filled(cluster: Coordinator) -> Coordinator:
    """Topic orders with 4 and 2 records; group billing has committed 1 in partition 0 and has no members."""
    cluster.create_topic("orders", partitions=2)
    for partition, count in ((0, 4), (1, 2)):
        append_records(cluster, "orders", [Record(value=b"v", partition=partition) for _ in range(count)])
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): 1})))
    return cluster


def join(cluster: Coordinator, member: str, group: str = "live", **more: Any) -> int:
    request = JoinRequest(group=group, member=member, topics=["orders"], client_id="app", host="/10.0.0.7", **more)
    return cluster.submit(partial(join_group, request=request)).generation


HEADER = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]


# -- list


def test_groups_are_listed(run: Run, filled: Coordinator) -> None:
    filled.submit(partial(commit_group_offsets, commit=GroupCommit(group="audit", offsets={("orders", 0): 1})))
    assert run("consumer-groups", "--list").lines == ["audit", "billing"]


def test_an_empty_cluster_lists_no_groups(run: Run, cluster: Coordinator) -> None:
    assert run("consumer-groups", "--list") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "header", "rows"),
    [
        (["--state"], ["GROUP", "STATE"], [["billing", "Empty"], ["live", "Stable"]]),
        (["--type"], ["GROUP", "TYPE"], [["billing", "Classic"], ["live", "Classic"]]),
        (["--type", "--state"], ["GROUP", "TYPE", "STATE"],
         [["billing", "Classic", "Empty"], ["live", "Classic", "Stable"]]),
        (["--state", "stable,PreparingRebalance"], ["GROUP", "STATE"], [["live", "Stable"]]),
        (["--state", "empty"], ["GROUP", "STATE"], [["billing", "Empty"]]),
        (["--type", "consumer"], ["GROUP", "TYPE"], []),
    ],
)  # fmt: skip
def test_the_list_shows_state_and_type_and_can_be_filtered_by_them(
    run: Run, filled: Coordinator, arguments: list[str], header: list[str], rows: list[list[str]]
) -> None:
    join(filled, "a")
    result = run("consumer-groups", "--list", *arguments)
    assert [line.split() for line in result.lines] == [header, *rows]
    assert result.code == 0


def test_columns_of_the_list_are_as_wide_as_kafkas(run: Run, filled: Coordinator) -> None:
    assert run("consumer-groups", "--list", "--state").lines == [
        f"{'GROUP':<25} {'STATE':<20}",
        f"{'billing':<25} {'Empty':<20}",
    ]


def test_unknown_states_and_types_are_refused(run: Run, filled: Coordinator) -> None:
    assert run("consumer-groups", "--list", "--state", "idle").err.startswith(
        "Invalid state list 'idle'. Valid states are: "
    )
    assert run("consumer-groups", "--list", "--type", "share").err.startswith(
        "Invalid types list 'share'. Valid types are: Classic, Consumer\n"
    )


# -- describe


def test_a_group_without_members_is_described_with_its_lag(run: Run, filled: Coordinator) -> None:
    result = run("consumer-groups", "--describe", "--group", "billing")
    assert result.err == "\nConsumer group 'billing' has no active members.\n"
    assert result.lines == [
        "",
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     "
        "HOST            CLIENT-ID",
        "billing         orders          0          1               4               3               -               "
        "-               -",
    ]


def test_members_are_shown_with_their_partitions_and_offsets(run: Run, filled: Coordinator) -> None:
    generation = join(filled, "member-1")
    filled.submit(
        partial(
            commit_group_offsets,
            commit=GroupCommit(
                group="live",
                member="member-1",
                generation=generation,
                offsets={("orders", 1): OffsetAndMetadata(2, "", 0)},
            ),
        )
    )
    result = run("consumer-groups", "--describe", "--group", "live", "--offsets")
    assert [line.split() for line in result.lines] == [
        [],
        HEADER,
        ["live", "orders", "0", "-", "4", "-", "member-1", "/10.0.0.7", "app"],
        ["live", "orders", "1", "2", "2", "0", "member-1", "/10.0.0.7", "app"],
    ]
    assert result.err == ""
    verbose = run("consumer-groups", "--describe", "--group", "live", "--verbose").lines
    assert verbose[1].split() == [*HEADER[:3], "LEADER-EPOCH", *HEADER[3:]]
    assert [line.split()[3] for line in verbose[2:]] == ["-", "0"]


def test_unassigned_partitions_come_last(run: Run, filled: Coordinator) -> None:
    filled.create_topic("archive")
    filled.submit(partial(commit_group_offsets, commit=GroupCommit(group="live", offsets={("archive", 0): 0})))
    join(filled, "a")
    rows = [line.split() for line in run("consumer-groups", "--describe", "--group", "live").lines[2:]]
    assert [(row[1], row[6]) for row in rows] == [("orders", "a"), ("orders", "a"), ("archive", "-")]


def test_a_partition_not_yet_revoked_is_shown_with_its_current_owner(run: Run, filled: Coordinator) -> None:
    join(filled, "a")
    join(filled, "b")
    result = run("consumer-groups", "--describe", "--group", "live")
    assert result.err == "\nWarning: Consumer group 'live' is rebalancing.\n"
    assert [(line.split()[2], line.split()[6]) for line in result.lines[2:]] == [("0", "a"), ("1", "a")]


def test_members_are_described(run: Run, filled: Coordinator) -> None:
    join(filled, "a")
    join(filled, "b")
    plain = [line.split() for line in run("consumer-groups", "--describe", "--group", "live", "--members").lines]
    assert plain == [
        [],
        ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
        ["live", "a", "/10.0.0.7", "app", "2"],
        ["live", "b", "/10.0.0.7", "app", "0"],
    ]
    verbose = [
        line.split()
        for line in run("consumer-groups", "--describe", "--group", "live", "--members", "--verbose").lines[1:]
    ]
    assert verbose[0][5:] == ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    assert verbose[1][5:] == ["2", "orders:0,1", "2", "orders:0"]
    assert verbose[2][5:] == ["2", "-", "2", "orders:1"]


def test_static_members_have_a_column_for_the_instance_id(run: Run, filled: Coordinator) -> None:
    join(filled, "a", instance_id="shelf-1")
    lines = run("consumer-groups", "--describe", "--group", "live", "--members").lines
    assert lines[1].split()[2] == "GROUP-INSTANCE-ID"
    assert lines[2].split()[2] == "shelf-1"


def test_the_state_is_described(run: Run, filled: Coordinator) -> None:
    join(filled, "a")
    plain = run("consumer-groups", "--describe", "--group", "live", "--state").lines
    assert plain[1] == (f"{'GROUP':<15} {'COORDINATOR (ID)':<25} {'ASSIGNMENT-STRATEGY':<20} {'STATE':<20} #MEMBERS")
    assert plain[2].split() == ["live", "-", "(-)", "range", "Stable", "1"]
    assert len(plain[1].split()) == len(plain[2].split())
    verbose = run("consumer-groups", "--describe", "--all-groups", "--state", "--verbose").lines
    assert verbose[1].split()[-3:] == ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"]
    assert [line.split() for line in (verbose[2], verbose[5])] == [
        ["billing", "-", "(-)", "-", "Empty", "0", "0", "0"],
        ["live", "-", "(-)", "range", "Stable", "1", "1", "1"],
    ]


def test_members_of_an_empty_group_are_a_table_header_and_a_note(run: Run, filled: Coordinator) -> None:
    join(filled, "a")
    filled.submit(partial(leave_group, group="live", members=["a"], reason="left"))
    result = run("consumer-groups", "--describe", "--group", "live", "--members")
    assert (result.code, result.err) == (0, "\nConsumer group 'live' has no active members.\n")
    assert [line.split() for line in result.lines] == [
        [], ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"],
    ]  # fmt: skip
    assert run("consumer-groups", "--describe", "--group", "live").out == ""


def test_long_names_widen_their_columns(run: Run, filled: Coordinator) -> None:
    name = "g" * 30
    filled.submit(partial(commit_group_offsets, commit=GroupCommit(group=name, offsets={("orders", 0): 1})))
    lines = run("consumer-groups", "--describe", "--group", name).lines
    assert lines[1].index("TOPIC") == 31


def test_an_unknown_group_is_an_error_and_the_other_groups_are_shown(run: Run, filled: Coordinator) -> None:
    assert run("consumer-groups", "--describe", "--group", "x") == (
        1,
        "",
        "Error: Consumer group 'x' does not exist: Group x not found.\n",
    )
    both = run("consumer-groups", "--describe", "--group", "x", "--group", "billing")
    assert (both.code, both.lines[-1].split()[0]) == (1, "billing")


# -- delete


def test_groups_without_members_are_deleted(run: Run, filled: Coordinator) -> None:
    filled.submit(partial(commit_group_offsets, commit=GroupCommit(group="audit", offsets={("orders", 0): 1})))
    result = run("consumer-groups", "--delete", "--group", "billing", "--group", "audit")
    assert result == (0, "Deletion of requested consumer groups ('audit', 'billing') was successful.\n", "")
    assert not filled.refresh().groups


def test_a_group_with_members_is_not_deleted_but_the_other_groups_are(run: Run, filled: Coordinator) -> None:
    join(filled, "a")
    result = run("consumer-groups", "--delete", "--all-groups")
    assert result.code == 1
    assert result.lines == ["", "These consumer groups were deleted successfully: 'billing'"]
    assert "* Group 'live' could not be deleted due to: NonEmptyGroupError: group 'live' has 1 members" in result.err
    assert list(filled.refresh().groups) == ["live"]


def test_an_unknown_group_cannot_be_deleted(run: Run, filled: Coordinator) -> None:
    result = run("consumer-groups", "--delete", "--group", "x")
    assert result.code == 1
    assert "* Group 'x' could not be deleted due to: GroupIdNotFoundError" in result.err


# -- delete-offsets


def test_offsets_of_a_topic_are_deleted(run: Run, filled: Coordinator) -> None:
    result = run("consumer-groups", "--delete-offsets", "--group", "billing", "--topic", "orders")
    assert result.code == 0
    assert result.lines[0] == "Request succeeded for deleting offsets from group billing."
    assert [line.split() for line in result.lines[1:]] == [
        [],
        ["TOPIC", "PARTITION", "STATUS"],
        ["orders", "0", "Successful"],
        ["orders", "1", "Successful"],
    ]
    assert not filled.refresh().groups["billing"].offsets


def test_offsets_of_subscribed_topics_are_kept(run: Run, filled: Coordinator) -> None:
    filled.create_topic("archive")
    filled.submit(
        partial(commit_group_offsets, commit=GroupCommit(group="live", offsets={("archive", 0): 0, ("orders", 0): 0}))
    )
    join(filled, "a")
    result = run("consumer-groups", "--delete-offsets", "--group", "live", "--topic", "archive", "--topic", "orders:0")
    assert result.code == 1
    assert result.err == "Error: Encountered some partition-level error, see the follow-up details.\n"
    assert result.lines[2].split() == ["archive", "0", "Successful"]
    assert result.lines[3].startswith("orders          0          Error: members of group 'live' subscribe")
    assert [offset.topic for offset in filled.refresh().groups["live"].offsets.values()] == ["orders"]


def test_offsets_of_unknown_groups_topics_and_partitions_cannot_be_deleted(run: Run, filled: Coordinator) -> None:
    unknown = run("consumer-groups", "--delete-offsets", "--group", "x", "--topic", "orders:0")
    assert (unknown.code, "Error: group 'x' does not exist" in unknown.err) == (1, True)
    for topic, shown in (("nope", "-"), ("orders:7", "7")):
        result = run("consumer-groups", "--delete-offsets", "--group", "billing", "--topic", topic)
        assert result.code == 1
        assert result.lines[2].split()[1:3] == [shown, "Error:"]


# -- usage errors


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, "
             "--delete-offsets, --validate-regex"),
        (["--list", "--describe"], "Command must include exactly one action"),
        (["--describe"], "Option [describe] takes one of these options: [group], [all-groups]"),
        (["--delete"], "Option [delete] takes one of these options: [group], [all-groups]"),
        (["--reset-offsets", "--to-latest", "--all-topics"], "Option [reset-offsets] takes one of these options"),
        (["--describe", "--group", "g", "--members", "--state"],
         "Option [describe] takes at most one of these options: [members], [offsets], [state]"),
        (["--describe", "--group", "g", "--state", "Empty"], "Option [describe] does not take a value for [state]"),
        (["--describe", "--group", "g", "--all-groups"], 'Option "[group]" can\'t be used with option "[all-groups]"'),
        (["--list", "--group", "g"], 'Option "[group]" can\'t be used with option "[list]"'),
        (["--list", "--members"], "Option(s) [members] are unavailable given other options on the command line"),
        (["--list", "--topic", "t"], 'Option "[topic]" can\'t be used with option "[list]"'),
        (["--describe", "--group", "g", "--type"], "Option(s) [type] are unavailable"),
        (["--delete", "--group", "g", "--topic", "t"],
         "The consumer does not support topic-specific offset deletion from a consumer group."),
        (["--delete-offsets", "--group", "g"], "Option [delete-offsets] takes the following options: [group], [topic]"),
        (["--delete-offsets", "--group", "g", "--group", "h", "--topic", "t"],
         "Found multiple arguments for option group, but you asked for only one"),
        (["--delete-offsets", "--group", "g", "--topic", "t:x"], "Invalid partition 'x' specified in topic arg 't:x'"),
        (["--describe", "--group", "g", "--lag"], "--lag is not a recognized option"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_with_kafkas_messages(
    run: Run, filled: Coordinator, arguments: list[str], complaint: str
) -> None:
    result = run("consumer-groups", *arguments)
    assert result.code == 1
    assert complaint in result.err
    assert result.out == ""


def test_validate_regex_needs_no_cluster(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKLOG_BOOTSTRAP_SERVER", raising=False)
    assert run("consumer-groups", "--validate-regex", "orders-.*") == (
        0,
        "The regular expression `orders-.*` is valid.\n",
        "",
    )
    invalid = run("consumer-groups", "--validate-regex", "(")
    assert invalid.code == 1
    assert invalid.out.startswith("The regular expression `(` is invalid: ")


# -- expired members


def test_expired_members_are_not_shown_and_do_not_prevent_deletion(run: Run, filled: Coordinator, root: str) -> None:
    member = GroupMember(filled, "live", session_timeout_ms=6_000)
    member.join(["orders"])
    assert run("consumer-groups", "--delete", "--group", "live").code == 1
    assert "Stable" in run("consumer-groups", "--list", "--state").out
    lease = Path(root, lease_key("live", member.member_id))
    os.utime(lease, (lease.stat().st_atime, lease.stat().st_mtime - 60))
    described = run("consumer-groups", "--describe", "--group", "live", "--members")
    assert (described.code, len(described.lines)) == (0, 2)
    assert described.err.startswith("\nConsumer group 'live' has no active members: 1 sent no heartbeat within their ")
    assert "Stable" not in run("consumer-groups", "--list", "--state").out
    assert member.member_id in filled.refresh().groups["live"].members
    reset = ["--group", "live", "--reset-offsets", "--to-earliest", "--topic", "orders"]
    assert run("consumer-groups", *reset, "--dry-run").code == 0
    assert member.member_id in filled.refresh().groups["live"].members
    assert run("consumer-groups", *reset, "--execute").code == 0
    assert filled.refresh().groups["live"].members == {}
    assert run("consumer-groups", "--delete", "--group", "live").code == 0
