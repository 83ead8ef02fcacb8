"""The admin client's groups, and offsets of groups and of partitions."""

from __future__ import annotations

from functools import partial

import pytest

from sparklog.client.admin.client import AdminClient, GroupInformation, MemberInformation
from sparklog.client.admin.groups import OffsetSpecs
from sparklog.client.admin.types import (
    GroupState,
    MemberToRemove,
    OffsetShift,
    OffsetSpec,
    OffsetTimestamp,
    PlannedOffset,
)
from sparklog.coordinator import Coordinator
from sparklog.coordinator.offsets_topic import RECORDS_PER_COMMIT, partition_of
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    CommitFailedError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidRequestError,
    NoError,
    NonEmptyGroupError,
    NoOffsetForPartitionError,
    SparklogError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.testing.records import Record, append_records
from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from tests.cluster.client.admin_clusters import join, with_orders

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def cluster() -> Coordinator:
    """Group billing has committed offset 1 of partition 0 and has no members."""
    cluster = with_orders()
    cluster.submit(
        partial(
            commit_group_offsets,
            commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(1, "note", 0)}),
        )
    )
    return cluster


@pytest.fixture
def admin(cluster: Coordinator) -> AdminClient:
    return AdminClient(cluster=cluster)


# -- groups


def test_groups_are_listed_by_state_and_type(admin: AdminClient, cluster: Coordinator) -> None:
    join(cluster, "a")
    live = {"group_id": "live", "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}
    idle = {"group_id": "billing", "protocol_type": "", "group_state": "Empty", "group_type": "classic"}
    assert admin.list_groups() == [idle, live]
    assert admin.list_groups(states_filter=["stable"]) == [live]
    assert admin.list_groups(states_filter=[GroupState.EMPTY, "preparing-rebalance"]) == [idle]
    assert admin.list_groups(types_filter=["classic"]) == [idle, live]
    assert admin.list_groups(types_filter=["consumer"]) == []
    with pytest.raises(
        InvalidRequestError, match="invalid GroupState: 'busy'; give one of UNKNOWN, PREPARING_REBALANCE"
    ):
        admin.list_groups(states_filter=["busy"])
    assert admin.list_consumer_groups() == [("billing", ""), ("live", "consumer")]


def test_members_are_described_with_owned_and_assigned_partitions(admin: AdminClient, cluster: Coordinator) -> None:
    join(cluster, "a", instance_id="shelf")
    join(cluster, "b")
    group = admin.describe_groups(["live"])["live"]
    members = group.pop("members")
    assert group == {
        "group_id": "live",
        "group_state": "PreparingRebalance",
        "protocol_type": "consumer",
        "protocol_data": "range",
        "authorized_operations": None,
        "error": None,
    }
    assert members[0] == {
        "member_id": "a",
        "group_instance_id": "shelf",
        "client_id": "app",
        "client_host": "here",
        "member_metadata": {
            "topics": ["orders"],
            "user_data": None,
            "owned_partitions": [{"topic": "orders", "partitions": [0, 1]}],
            "generation_id": 2,
            "rack_id": None,
        },
        "member_assignment": {"assigned_partitions": [{"topic": "orders", "partitions": [0]}], "user_data": None},
    }
    assert members[1]["group_instance_id"] is None
    assert members[1]["member_assignment"]["assigned_partitions"] == []


def test_a_missing_group_is_described_as_dead(admin: AdminClient) -> None:
    groups = admin.describe_groups(["nope", "billing"])
    assert (groups["nope"]["group_state"], groups["nope"]["members"]) == ("Dead", [])
    assert groups["nope"]["error"].startswith("GroupIdNotFoundError: ")
    assert groups["billing"]["error"] is None
    with pytest.raises(InvalidRequestError, match="give a list"):
        admin.describe_groups("billing")


def test_groups_are_described_as_kafka_python_2_did(admin: AdminClient, cluster: Coordinator) -> None:
    join(cluster, "a")
    live, nope = admin.describe_consumer_groups(["live", "nope"])
    assert isinstance(live, GroupInformation)
    assert (live.error_code, live.group, live.state, live.protocol) == (0, "live", "Stable", "range")
    assert isinstance(live.members[0], MemberInformation)
    assert live.members[0].member_id == "a"
    assert (nope.error_code, nope.state) == (69, "Dead")


def test_groups_without_members_are_deleted(admin: AdminClient, cluster: Coordinator) -> None:
    join(cluster, "a")
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="other", offsets={("orders", 0): 0})))
    assert admin.delete_groups(["billing", "live", "nope"]) == {
        "billing": "OK",
        "live": "NonEmptyGroupError",
        "nope": "GroupIdNotFoundError",
    }
    assert admin.delete_consumer_groups(["other", "live"]) == [("other", NoError), ("live", NonEmptyGroupError)]
    assert list(cluster.refresh().groups) == ["live"]


def test_members_are_removed_by_id_and_instance(admin: AdminClient, cluster: Coordinator) -> None:
    join(cluster, "a")
    join(cluster, "b", instance_id="shelf")
    join(cluster, "c")
    removed = admin.remove_group_members(
        "live", [MemberToRemove("a"), MemberToRemove(group_instance_id="shelf"), MemberToRemove("x")]
    )
    assert removed == {"a": NoError, "shelf": NoError, "x": UnknownMemberIdError}
    assert list(cluster.refresh().groups["live"].members) == ["c"]
    assert admin.remove_group_members("nope", [MemberToRemove("a")]) == {"a": UnknownMemberIdError}
    with pytest.raises(InvalidRequestError, match="needs member_id or group_instance_id"):
        admin.remove_group_members("live", [MemberToRemove()])


# -- offsets of groups


def test_offsets_are_listed_by_group_and_partition(admin: AdminClient, cluster: Coordinator) -> None:
    committed = {FIRST: OffsetAndMetadata(1, "note", 0)}
    assert admin.list_group_offsets("billing") == {"billing": committed}
    assert admin.list_group_offsets(["billing", "nope"]) == {"billing": committed, "nope": {}}
    assert admin.list_group_offsets({"billing": [SECOND]}) == {"billing": {SECOND: OffsetAndMetadata(-1, "", -1)}}
    assert admin.list_consumer_group_offsets("billing") == committed
    assert admin.list_consumer_group_offsets("billing", partitions=[FIRST]) == committed
    assert admin.list_group_offsets({}) == {}


def test_offsets_of_a_recreated_topic_are_not_listed(admin: AdminClient, cluster: Coordinator) -> None:
    delete_topic(cluster, "orders")
    cluster.create_topic("orders")
    assert admin.list_group_offsets("billing") == {"billing": {}}


def test_offsets_are_set_while_the_group_has_no_members(admin: AdminClient, cluster: Coordinator) -> None:
    missing = TopicPartition("orders", 5)
    changed = admin.alter_group_offsets("billing", {FIRST: OffsetAndMetadata(3, "moved", 0), SECOND: 2, missing: 0})
    assert changed == {FIRST: NoError, SECOND: NoError, missing: UnknownTopicOrPartitionError}
    assert admin.list_group_offsets("billing")["billing"] == {
        FIRST: OffsetAndMetadata(3, "moved", 0),
        SECOND: OffsetAndMetadata(2, "", -1),
    }
    join(cluster, "a", group="billing")
    assert admin.alter_group_offsets("billing", {FIRST: 0}) == {FIRST: UnknownMemberIdError}
    assert admin.list_group_offsets("billing")["billing"][FIRST].offset == 3
    with pytest.raises(InvalidRequestError):
        admin.alter_group_offsets("other", {FIRST: -3})


@pytest.mark.parametrize(
    ("spec", "offset"),
    [
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 4),
        (OffsetSpec.MAX_TIMESTAMP, 3),
        (OffsetTimestamp(150), 2),
        (OffsetTimestamp(10_000), 4),
        (2, 2),
        (99, 4),
        (-3, 0),
        (OffsetTimestamp(-1), 0),
        (OffsetShift(1), 2),
        (OffsetShift(-7), 0),
        (None, 1),
    ],
)
def test_offsets_are_reset_by_spec_time_and_number(
    admin: AdminClient, spec: OffsetSpec | OffsetTimestamp | OffsetShift | int | None, offset: int
) -> None:
    assert admin.reset_group_offsets("billing", {FIRST: spec}) == {FIRST: {"error": NoError, "offset": offset}}
    assert admin.list_group_offsets("billing")["billing"][FIRST] == OffsetAndMetadata(offset, "note", 0)


def test_the_largest_timestamp_is_that_of_a_record_that_is_not_deleted(
    admin: AdminClient, cluster: Coordinator
) -> None:
    """The segment in which the log starts states that of a deleted record."""
    cluster.create_topic("times")
    for milliseconds in ([900, 100, 300, 200], [250]):
        append_records(cluster, "times", [Record(value=b"v", timestamp_us=each * 1000) for each in milliseconds])
    at = TopicPartition("times", 0)
    for start, expected in ((0, (0, 900)), (1, (2, 300)), (3, (4, 250)), (4, (4, 250)), (5, (-1, -1))):
        admin.delete_records({at: start})
        found = admin.list_partition_offsets({at: OffsetSpec.MAX_TIMESTAMP})[at]
        assert (found.offset, found.timestamp) == expected


def test_a_plan_shows_clamped_offsets_and_sets_nothing(admin: AdminClient) -> None:
    def plan(spec: object) -> tuple[int, int | None]:
        return tuple(admin.plan_group_offsets("billing", {FIRST: spec})[FIRST])  # type: ignore[dict-item,return-value]

    assert plan(99) == (4, 99)
    assert plan(OffsetShift(-7)) == (0, -6)
    assert plan(OffsetTimestamp(10_000)) == (4, None)
    assert plan(OffsetSpec.LATEST) == (4, 4)
    assert admin.list_group_offsets("billing")["billing"][FIRST].offset == 1
    assert admin.plan_group_offsets("new", {FIRST: None})[FIRST].offset == 4
    with pytest.raises(NoOffsetForPartitionError, match="Cannot shift offset for partition orders-0"):
        admin.plan_group_offsets("new", {FIRST: OffsetShift(1)})


def test_a_kept_offset_may_be_out_of_range(admin: AdminClient) -> None:
    admin.delete_records({FIRST: 3})
    assert admin.plan_group_offsets("billing", {FIRST: None})[FIRST].offset == 1
    assert admin.plan_group_offsets("billing", {FIRST: OffsetShift(0)})[FIRST] == (3, 1)


@pytest.mark.parametrize(
    ("group", "spec", "error", "offset"),
    [
        ("billing", None, CommitFailedError, 3),
        ("billing", OffsetShift(-1), CommitFailedError, 3),
        ("new", None, CommitFailedError, 3),
        ("billing", 0, NoError, 0),
        ("billing", OffsetSpec.EARLIEST, NoError, 0),
    ],
)
def test_a_reset_relative_to_a_committed_offset_is_refused_once_that_has_changed(
    admin: AdminClient,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    spec: OffsetShift | OffsetSpec | int | None,
    error: type[SparklogError],
    offset: int,
) -> None:
    """A run of the group processed records between the plan and its commit: they would be delivered again."""
    plan = AdminClient.plan_group_offsets

    def plan_early(client: AdminClient, name: str, specs: OffsetSpecs) -> dict[TopicPartition, PlannedOffset]:
        planned = plan(client, name, specs)
        client.alter_group_offsets(name, {FIRST: 3})
        return planned

    monkeypatch.setattr(AdminClient, "plan_group_offsets", plan_early)
    assert admin.reset_group_offsets(group, {FIRST: spec})[FIRST]["error"] is error
    assert admin.list_group_offsets(group)[group][FIRST].offset == offset


def test_offsets_of_consumer_offsets_are_listed(admin: AdminClient, cluster: Coordinator) -> None:
    internal = TopicPartition("__consumer_offsets", partition_of("billing"))
    ends = {spec: admin.list_partition_offsets({internal: spec})[internal].offset for spec in (-1, -2, -3, 0, -5, -6)}
    assert ends[-1] == (cluster.state.version + 1) * RECORDS_PER_COMMIT
    assert ends[-2] == 0
    assert 0 < ends[0] <= ends[-3] < ends[-1]
    assert ends[-5] == ends[-6] == -1


def test_group_errors_are_raised_if_raise_errors_is_true(admin: AdminClient, cluster: Coordinator) -> None:
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_groups(["nope"], raise_errors=True)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.alter_group_offsets("billing", {FIRST: 0, TopicPartition("nope", 0): 0}, raise_errors=True)
    join(cluster, "a", group="billing")
    with pytest.raises(UnknownMemberIdError):
        admin.alter_group_offsets("billing", {FIRST: 0}, raise_errors=True)
    with pytest.raises(GroupSubscribedToTopicError):
        admin.delete_group_offsets("billing", [FIRST], raise_errors=True)
    assert admin.list_group_offsets("billing")["billing"][FIRST].offset == 1


def test_a_reset_is_refused_with_members_or_an_invalid_spec(admin: AdminClient, cluster: Coordinator) -> None:
    with pytest.raises(InvalidRequestError, match="give an OffsetSpec"):
        admin.reset_group_offsets("billing", {FIRST: "latest"})  # type: ignore[dict-item]
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.reset_group_offsets("billing", {TopicPartition("nope", 0): OffsetSpec.LATEST})
    join(cluster, "a", group="billing")
    assert admin.reset_group_offsets("billing", {FIRST: 0})[FIRST]["error"] is UnknownMemberIdError


def test_offsets_are_deleted_except_of_topics_in_use(admin: AdminClient, cluster: Coordinator) -> None:
    cluster.create_topic("archive")
    archive = TopicPartition("archive", 0)
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="billing", offsets={archive: 0})))
    join(cluster, "a", group="billing")
    assert admin.delete_group_offsets("billing", [FIRST, archive]) == {
        FIRST: GroupSubscribedToTopicError,
        archive: NoError,
    }
    assert list(admin.list_group_offsets("billing")["billing"]) == [FIRST]
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("nope", [FIRST])


def test_none_means_no_metadata_and_no_leader_epoch(admin: AdminClient) -> None:
    for given in (OffsetAndMetadata(3, None, None), OffsetAndMetadata(3, "", None), OffsetAndMetadata(3, None)):
        assert admin.alter_group_offsets("new", {FIRST: given}) == {FIRST: NoError}
        assert admin.list_group_offsets("new")["new"] == {FIRST: OffsetAndMetadata(3, "", -1)}


# -- offsets of partitions


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (OffsetSpec.EARLIEST, OffsetAndTimestamp(0, -1, 0)),
        (OffsetSpec.EARLIEST_LOCAL, OffsetAndTimestamp(0, -1, 0)),
        (OffsetSpec.LATEST, OffsetAndTimestamp(4, -1, 0)),
        (-1, OffsetAndTimestamp(4, -1, 0)),
        (OffsetSpec.MAX_TIMESTAMP, OffsetAndTimestamp(3, 300, 0)),
        (OffsetSpec.LATEST_TIERED, OffsetAndTimestamp(-1, -1, None)),
        (150, OffsetAndTimestamp(2, 200, 0)),
        (OffsetTimestamp(0), OffsetAndTimestamp(0, 0, 0)),
        (301, OffsetAndTimestamp(-1, -1, None)),
    ],
)
def test_partition_offsets_are_listed_by_spec(
    admin: AdminClient, spec: OffsetSpec | int, expected: OffsetAndTimestamp
) -> None:
    assert admin.list_partition_offsets({FIRST: spec}) == {FIRST: expected}


def test_invalid_partition_offset_requests_are_refused(admin: AdminClient) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.list_partition_offsets({TopicPartition("orders", 7): OffsetSpec.LATEST})
    for wrong in (-7, "latest", None, True):
        with pytest.raises(InvalidRequestError, match="give an OffsetSpec, or a time"):
            admin.list_partition_offsets({FIRST: wrong})  # type: ignore[dict-item]
