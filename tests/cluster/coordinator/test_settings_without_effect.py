"""Settings without effect in a cluster: warned about when set, and refused where relying on them would do harm."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import ConfigResource, NewTopic
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import InvalidConfigurationError
from sparklog.protocol.commits import AlterConfig
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import alter_configs

SAID = "stored, has no effect here: flush.messages=1 (committed records are already durable)"

REFUSED = [
    ("orders", "remote.storage.enable", "true", "Tiered Storage functionality is disabled"),
    ("", "create.topic.policy.class.name", "org.example.Policy", "The permissions of the storage"),
    ("", "alter.config.policy.class.name", "org.example.Policy", "The permissions of the storage"),
    ("", "cordoned.log.dirs", "/mnt/disk1", "sparklog brokers cordon"),
]


@pytest.fixture
def cluster(tmp_path: Path) -> Coordinator:
    return create_cluster(str(tmp_path / "cluster"))


@pytest.mark.parametrize(("topic", "name", "value", "why"), REFUSED, ids=[name for _, name, _, _ in REFUSED])
def test_a_misleading_setting_is_refused_and_nothing_is_changed(
    cluster: Coordinator, topic: str, name: str, value: str, why: str
) -> None:
    cluster.create_topic("orders")
    version = cluster.refresh().version
    with pytest.raises(InvalidConfigurationError, match=why) as raised:
        cluster.submit(
            partial(
                alter_configs, topic=topic, changes={"retention.ms" if topic else "num.partitions": "5", name: value}
            )
        )
    assert raised.value.config == name
    assert cluster.refresh().version == version


def test_a_misleading_setting_may_be_set_to_its_default(cluster: Coordinator) -> None:
    cluster.create_topic("orders", configs={"remote.storage.enable": "false"})
    cluster.submit(partial(alter_configs, topic="", changes={"cordoned.log.dirs": ""}))
    assert cluster.refresh().topic("orders").configs == {"remote.storage.enable": "false"}


def test_a_topic_with_a_stored_misleading_setting_can_be_altered(cluster: Coordinator) -> None:
    cluster.create_topic("orders")
    old = AlterConfig(topic="orders", set={"remote.storage.enable": "true"}, delete=[])
    cluster.submit(lambda _: Decision([old], None))
    cluster.submit(partial(alter_configs, topic="orders", changes={"retention.ms": "1000"}))
    cluster.submit(partial(alter_configs, topic="orders", changes={}, deletions=["remote.storage.enable"]))
    assert cluster.refresh().topic("orders").configs == {"retention.ms": "1000"}


@pytest.fixture
def older(cluster: Coordinator) -> Coordinator:
    """A topic with a setting that an older version accepted, and that contradicts the requested ones below."""
    cluster.create_topic("orders", configs={"local.retention.ms": "5000"})
    old = AlterConfig(topic="orders", set={"remote.storage.enable": "true"}, delete=[])
    cluster.submit(lambda _: Decision([old], None))
    return cluster


@pytest.mark.parametrize(
    "change",
    [{"cleanup.policy": "compact"}, {"retention.ms": "1000"}, {"min.insync.replicas": "2"}],
    ids=lambda change: next(iter(change)),
)
def test_a_stored_misleading_setting_does_not_prevent_other_changes(older: Coordinator, change: dict[str, str]) -> None:
    older.submit(partial(alter_configs, topic="orders", changes=change))
    kept = {"local.retention.ms": "5000", "remote.storage.enable": "true"}
    assert older.refresh().topic("orders").configs == {**kept, **change}


def test_a_change_of_a_stored_misleading_setting_is_refused(older: Coordinator) -> None:
    with pytest.raises(InvalidConfigurationError, match="Tiered Storage functionality is disabled"):
        older.submit(
            partial(alter_configs, topic="orders", changes={"remote.storage.enable": "true", "retention.ms": "1000"})
        )
    older.submit(partial(alter_configs, topic="orders", changes={"remote.storage.enable": "false"}))
    assert older.refresh().topic("orders").configs["remote.storage.enable"] == "false"


def test_a_stored_invalid_value_does_not_prevent_other_changes(cluster: Coordinator) -> None:
    cluster.create_topic("orders")
    forged = AlterConfig(topic="orders", set={"remote.storage.enable": "perhaps"}, delete=[])
    cluster.submit(lambda _: Decision([forged], None))
    cluster.submit(partial(alter_configs, topic="orders", changes={"retention.ms": "1000"}))
    cluster.submit(partial(alter_configs, topic="orders", changes={}, deletions=["remote.storage.enable"]))
    assert cluster.refresh().topic("orders").configs == {"retention.ms": "1000"}


def test_changes_beside_a_stored_misleading_setting_give_a_warning(
    older: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    warning = "topic orders: stored by an older version, has no effect here: remote.storage.enable=true (Tiered Storage"
    with AdminClient(cluster=older) as admin, caplog.at_level(logging.WARNING, "sparklog"):
        admin.alter_configs([ConfigResource("topic", "orders", {"cleanup.policy": "compact"})])
        assert [message[: len(warning)] for message in caplog.messages] == [warning]
        caplog.clear()
        admin.reset_configs([ConfigResource("topic", "orders", ["remote.storage.enable"])])
        assert caplog.messages == []


def test_no_topic_is_created_with_a_misleading_setting(cluster: Coordinator) -> None:
    with pytest.raises(InvalidConfigurationError, match="Tiered Storage functionality is disabled"):
        cluster.create_topic("orders", configs={"remote.storage.enable": "true"})
    assert "orders" not in cluster.refresh().topics


def test_the_admin_client_logs_settings_without_effect(cluster: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    with AdminClient(cluster=cluster) as admin, caplog.at_level(logging.WARNING, "sparklog"):
        admin.create_topics([NewTopic("orders", topic_configs={"flush.messages": "1"}), NewTopic("plain")])
        assert caplog.messages == [f"topic orders: {SAID}"]
        caplog.clear()
        admin.alter_configs([ConfigResource("broker", "", {"log.cleaner.threads": "4", "num.partitions": "2"})])
        assert len(caplog.messages) == 1
        assert caplog.messages[0].startswith("the cluster: stored, has no effect here: log.cleaner.threads=4")
        caplog.clear()
        admin.reset_configs([ConfigResource("topic", "orders", ["flush.messages"])])
        assert caplog.messages == []
