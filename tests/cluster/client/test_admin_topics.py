"""The admin client's topics, partitions and configs."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import AlterConfigOp, ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaTimeoutError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from tests.cluster.client.admin_clusters import new_cluster


@pytest.fixture
def cluster() -> Coordinator:
    return new_cluster()


@pytest.fixture
def admin(cluster: Coordinator) -> AdminClient:
    return AdminClient(cluster=cluster)


def partitions(cluster: Coordinator) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in cluster.refresh().topics.items()}


# -- all or none


def test_with_all_or_none_one_refused_topic_stops_all_changes(admin: AdminClient, cluster: Coordinator) -> None:
    admin.create_topics({"a": {"num_partitions": 1}, "b": {"num_partitions": 4}})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"a": 2, "b": 2}, all_or_none=True)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["a", "nope"], all_or_none=True)
    assert partitions(cluster) == {"a": 1, "b": 4}
    admin.create_partitions({"a": 5, "b": 5}, all_or_none=True)
    assert partitions(cluster) == {"a": 5, "b": 5}
    admin.delete_topics(["a", "b"], all_or_none=True)
    assert partitions(cluster) == {}


def test_config_errors_are_raised_if_raise_errors_is_true(admin: AdminClient) -> None:
    admin.create_topics(["t"])
    broken = ConfigResource("TOPIC", "t", {"retention.ms": "soon"})
    assert admin.alter_configs([broken])["topic"]["t"].startswith("InvalidConfigurationError: ")
    with pytest.raises(InvalidConfigurationError):
        admin.alter_configs([broken], raise_errors=True)


# -- create


def test_topics_are_created_from_names_objects_and_dicts(admin: AdminClient, cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "3"}))
    admin.create_topics(["a"])
    admin.create_topics([NewTopic("b", 2, 1, topic_configs={"retention.ms": "1000"})])
    admin.create_topics({"c": {"num_partitions": 4, "configs": {"cleanup.policy": "compact"}}, "d": {}})
    admin.create_topics([NewTopic(name="e", replica_assignments={0: [0], 1: [0]})])
    assert partitions(cluster) == {"a": 3, "b": 2, "c": 4, "d": 3, "e": 2}
    assert cluster.state.topics["b"].configs == {"retention.ms": "1000"}
    assert admin.list_topics() == ["a", "b", "c", "d", "e"]


def test_all_topics_of_a_call_are_created_in_one_commit(admin: AdminClient, cluster: Coordinator) -> None:
    before = cluster.refresh().version
    admin.create_topics([f"t{number}" for number in range(10)])
    assert cluster.refresh().version == before + 1


def test_the_result_shows_what_was_created(admin: AdminClient, cluster: Coordinator) -> None:
    (topic,) = admin.create_topics({"a": {"num_partitions": 2, "configs": {"retention.ms": 5}}})["topics"]
    configs = topic.pop("configs")
    topic_id = topic.pop("topic_id")
    assert topic == {
        "name": "a",
        "error_code": 0,
        "error_message": None,
        "num_partitions": 2,
        "replication_factor": 1,
    }
    assert topic_id == str(uuid.UUID(topic_id))
    assert topic_id == admin.describe_topics(["a"])[0]["topic_id"]
    assert (configs["retention.ms"]["value"], configs["retention.ms"]["config_source"]) == ("5", "DYNAMIC_TOPIC_CONFIG")
    assert configs["cleanup.policy"]["config_source"] == "DEFAULT_CONFIG"


def test_valid_topics_are_created_despite_invalid_ones(admin: AdminClient, cluster: Coordinator) -> None:
    cluster.create_topic("taken")
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(["taken", "free"])
    assert sorted(partitions(cluster)) == ["free", "taken"]
    topics = admin.create_topics(["taken", "bad name", "more"], raise_errors=False)["topics"]
    assert [(topic["name"], topic["error_code"]) for topic in topics] == [("taken", 36), ("bad name", 17), ("more", 0)]
    assert "already exists" in topics[0]["error_message"]


def test_topics_with_colliding_names_are_not_created_together(admin: AdminClient, cluster: Coordinator) -> None:
    with pytest.raises(InvalidTopicError, match="cannot be created together"):
        admin.create_topics(["a.b", "a_b"])
    assert sorted(partitions(cluster)) == ["a.b"]


def test_validate_only_creates_nothing(admin: AdminClient, cluster: Coordinator) -> None:
    assert admin.create_topics({"a": {}}, validate_only=True)["topics"][0]["error_code"] == 0
    with pytest.raises(InvalidConfigurationError):
        admin.create_topics({"a": {"configs": {"retention.mss": "1"}}}, validate_only=True)
    assert partitions(cluster) == {}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"a": {"num_partitions": 0}}, InvalidPartitionsError),
        ({"a": {"replication_factor": 2}}, InvalidReplicationFactorError),
        ({"a": {"replication_factor": 0}}, InvalidReplicationFactorError),
        ({"a": {"num_partitions": "8"}}, InvalidRequestError),
        ({"a": {"assignments": {1: [0]}}}, InvalidPartitionsError),
        ({"a": {"assignments": {0: [0]}, "num_partitions": 1}}, InvalidRequestError),
        ({"a": {"assignments": {0: [7]}}}, InvalidReplicationAssignmentError),
        ({"a": {"partitions": 2}}, InvalidRequestError),
        (["a", "a"], InvalidRequestError),
        ([], InvalidRequestError),
        ("a", InvalidRequestError),
        ([7], InvalidRequestError),
        (7, InvalidRequestError),
    ],
)
def test_invalid_topics_are_refused(
    admin: AdminClient, cluster: Coordinator, given: object, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        admin.create_topics(given)  # type: ignore[arg-type]
    assert partitions(cluster) == {}


def test_wait_for_topics_times_out_if_a_topic_is_missing() -> None:
    clock = ManualClock()
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex), clock=clock)
    admin = AdminClient(cluster=cluster)
    admin.create_topics(["a"], wait_for_metadata=True)
    admin.wait_for_topics(["a"])
    with pytest.raises(KafkaTimeoutError, match="'b' did not appear within 500 ms"):
        admin.wait_for_topics(["a", "b"], timeout_ms=500)
    assert clock.monotonic() >= 0.5


# -- describe and delete


def test_topics_are_described(admin: AdminClient) -> None:
    admin.create_topics({"b": {"num_partitions": 2}, "a": {}})
    assert [topic["name"] for topic in admin.describe_topics()] == ["a", "b"]
    (topic,) = admin.describe_topics(["b"])
    assert topic["partitions"][1] == {
        "error_code": 0,
        "partition_index": 1,
        "leader_id": 0,
        "leader_epoch": 0,
        "replica_nodes": [0],
        "isr_nodes": [0],
        "offline_replicas": [],
    }
    assert admin.describe_topics([uuid.UUID(topic["topic_id"])]) == [topic]


def test_a_missing_topic_is_described_by_its_error(admin: AdminClient) -> None:
    missing, by_id = admin.describe_topics(["nope", uuid.UUID(int=5)])
    assert (missing["error_code"], missing["name"], missing["partitions"]) == (3, "nope", [])
    assert (by_id["error_code"], by_id["topic_id"]) == (3, str(uuid.UUID(int=5)))
    with pytest.raises(InvalidRequestError, match="give a list"):
        admin.describe_topics("nope")


def test_partitions_are_described_a_page_at_a_time(admin: AdminClient) -> None:
    admin.create_topics({"a": {"num_partitions": 3}, "b": {"num_partitions": 2}})
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        page = admin.describe_topic_partitions(["b", "a"], response_partition_limit=2, cursor=cursor)
        seen += [
            (topic["name"], partition["partition_index"])
            for topic in page["topics"]
            for partition in topic["partitions"]
        ]
        assert sum(len(topic["partitions"]) for topic in page["topics"]) <= 2
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


def test_topics_are_deleted_by_name_and_by_id(admin: AdminClient, cluster: Coordinator) -> None:
    admin.create_topics(["a", "b", "c"])
    topic_id = admin.describe_topics(["b"])[0]["topic_id"]
    deleted = admin.delete_topics(["a", uuid.UUID(topic_id)])["topics"]
    assert [(topic["name"], topic["error_code"]) for topic in deleted] == [("a", 0), (None, 0)]
    assert deleted[1]["topic_id"] == topic_id
    assert admin.list_topics() == ["c"]
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["a", "c"])
    assert admin.list_topics() == []
    assert admin.delete_topics(["a"], raise_errors=False)["topics"][0]["error_code"] == 3


def test_topics_are_kept_if_deletion_is_disabled(admin: AdminClient, cluster: Coordinator) -> None:
    admin.create_topics(["a"])
    cluster.submit(partial(alter_configs, topic="", changes={"delete.topic.enable": "false"}))
    with pytest.raises(PolicyViolationError):
        admin.delete_topics(["a"])
    assert admin.delete_topics(["a"], raise_errors=False)["topics"][0]["error_code"] == 44


def test_partitions_are_added(admin: AdminClient, cluster: Coordinator) -> None:
    admin.create_topics(["a", "b", "c"])
    result = admin.create_partitions(
        {"a": 2, "b": NewPartitions(3, [[0], [0]]), "c": {"count": 2, "assignments": [[0]]}}
    )
    assert [(topic["name"], topic["error_code"]) for topic in result["results"]] == [("a", 0), ("b", 0), ("c", 0)]
    assert partitions(cluster) == {"a": 2, "b": 3, "c": 2}
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"a": 1})
    assert admin.create_partitions({"a": 1, "nope": 2}, raise_errors=False)["results"][0]["error_code"] == 37
    admin.create_partitions({"a": 5}, validate_only=True)
    assert partitions(cluster)["a"] == 2
    with pytest.raises(InvalidRequestError):
        admin.create_partitions({"a": "5"})  # type: ignore[dict-item]


# -- configs


def topic_configs(admin: AdminClient, **more: Any) -> dict[str, str]:
    configs = admin.describe_configs([ConfigResource("topic", "t")], **more)["topic"]["t"]
    return {name: config["value"] for name, config in configs.items()}


@pytest.fixture
def topic(admin: AdminClient) -> None:
    admin.create_topics({"t": {"configs": {"retention.ms": "1000", "cleanup.policy": "compact"}}})


@pytest.mark.usefixtures("topic")
def test_config_filters_select_the_described_configs(admin: AdminClient, cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"log.segment.bytes": "1048576"}))
    assert topic_configs(admin) == {"cleanup.policy": "compact", "retention.ms": "1000"}
    everything = topic_configs(admin, config_filter="all")
    assert everything["segment.bytes"] == "1048576"
    assert topic_configs(admin, config_filter="dynamic") == everything
    assert "retention.ms" not in topic_configs(admin, config_filter="default")
    assert topic_configs(admin, config_filter="static") == {}
    some = admin.describe_configs([ConfigResource("TOPIC", "t", ["retention.ms"])], include_synonyms=True)
    retention = some["topic"]["t"]["retention.ms"]
    assert retention["config_type"] == "LONG"
    assert retention["synonyms"][0] == {"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}
    sizes = [ConfigResource("TOPIC", "t", ["segment.bytes"])]
    size = admin.describe_configs(sizes, include_synonyms=True, config_filter="all")["topic"]["t"]["segment.bytes"]
    assert size["synonyms"][-1]["source"] == "DEFAULT_CONFIG"
    assert {synonym["name"] for synonym in size["synonyms"]} == {"log.segment.bytes"}
    assert list(some["topic"]["t"]) == ["retention.ms"]
    assert admin.describe_configs([ConfigResource("topic", "t", {})]) == {"topic": {"t": {}}}


@pytest.mark.usefixtures("topic")
def test_configs_are_set_deleted_appended_and_subtracted(admin: AdminClient, cluster: Coordinator) -> None:
    changes: dict[str, object] = {
        "retention.ms": (AlterConfigOp.DELETE, None),
        "cleanup.policy": ("append", "delete"),
        "segment.bytes": 1048576,
        "preallocate": True,
    }
    assert admin.alter_configs([ConfigResource("topic", "t", changes)]) == {"topic": {"t": "OK"}}
    assert cluster.refresh().topics["t"].configs == {
        "cleanup.policy": "compact,delete",
        "segment.bytes": "1048576",
        "preallocate": "true",
    }
    admin.alter_configs([ConfigResource("topic", "t", {"cleanup.policy": (3, "compact")})])
    assert topic_configs(admin)["cleanup.policy"] == "delete"


@pytest.mark.usefixtures("topic")
def test_deleting_an_unset_config_succeeds(admin: AdminClient) -> None:
    assert admin.alter_configs([ConfigResource("topic", "t", {"segment.bytes": ("DELETE", "")})]) == {
        "topic": {"t": "OK"}
    }


@pytest.mark.usefixtures("topic")
def test_invalid_values_are_returned_per_resource_and_unknown_names_are_raised(
    admin: AdminClient, cluster: Coordinator
) -> None:
    results = admin.alter_configs(
        [ConfigResource("topic", "t", {"retention.ms": "soon"}), ConfigResource("topic", "nope", {"retention.ms": "1"})]
    )
    assert results["topic"]["t"].startswith("InvalidConfigurationError: ")
    assert results["topic"]["nope"].startswith("UnknownTopicOrPartitionError: ")
    unknown = [ConfigResource("topic", "t", {"retention.mss": "1"})]
    with pytest.raises(InvalidConfigurationError, match=r"retention\.ms"):
        admin.alter_configs(unknown)
    assert admin.alter_configs(unknown, raise_on_unknown=False)["topic"]["t"].startswith("InvalidConfigurationError")
    listed = admin.alter_configs([ConfigResource("topic", "t", {"retention.ms": ("APPEND", "1")})])
    assert "is not a list" in listed["topic"]["t"]
    assert topic_configs(admin)["retention.ms"] == "1000"
    admin.alter_configs([ConfigResource("topic", "t", {"retention.ms": "5"})], validate_only=True)
    assert topic_configs(admin)["retention.ms"] == "1000"


@pytest.mark.usefixtures("topic")
def test_configs_are_reset_by_name_or_all(admin: AdminClient) -> None:
    admin.reset_configs([ConfigResource("topic", "t", ["retention.ms"])])
    assert topic_configs(admin) == {"cleanup.policy": "compact"}
    admin.alter_configs([ConfigResource("topic", "t", {"retention.ms": "5"})])
    assert admin.reset_configs([ConfigResource("topic", "t")]) == {"topic": {"t": "OK"}}
    assert topic_configs(admin) == {}


def test_an_empty_broker_name_means_the_whole_cluster(admin: AdminClient, cluster: Coordinator) -> None:
    cluster_wide = ConfigResource(ConfigResourceType.BROKER, "", {"num.partitions": "4"})
    assert admin.alter_configs([cluster_wide]) == {"broker": {"": "OK"}}
    configs = admin.describe_configs([ConfigResource("broker", "")])["broker"][""]
    assert configs["num.partitions"]["value"] == "4"
    assert configs["num.partitions"]["config_source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert admin.describe_configs([ConfigResource("broker", "0")])["broker"]["0"] == configs
    own = admin.alter_configs([ConfigResource("broker", "0", {"num.partitions": "4"})])
    assert "has no settings of its own" in own["broker"]["0"]
    with pytest.raises(InvalidRequestError, match="no broker 9"):
        admin.describe_configs([ConfigResource("broker", "9")])


@pytest.mark.usefixtures("topic")
def test_config_resources_are_listed(admin: AdminClient) -> None:
    assert admin.list_config_resources() == {"topic": ["t"], "broker": ["0"]}
    assert admin.list_config_resources(["TOPIC"]) == {"topic": ["t"]}


def test_resources_without_configs_are_refused(admin: AdminClient) -> None:
    with pytest.raises(InvalidRequestError, match="GROUP 'g' has no configs here"):
        admin.describe_configs([ConfigResource("group", "g")])
    with pytest.raises(InvalidRequestError, match="invalid ConfigResourceType: 'shelf'"):
        ConfigResource("shelf", "g")
    assert admin.describe_configs([ConfigResource("topic", "nope")]) == {"topic": {"nope": {}}}
    with pytest.raises(InvalidRequestError, match="takes a list"):
        admin.describe_configs(ConfigResource("topic", "t"))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="must be a dict"):
        admin.alter_configs([ConfigResource("topic", "t", ["retention.ms"])])
