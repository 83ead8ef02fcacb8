"""kafka-configs: configs of topics and the cluster's defaults, and where each value comes from."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from sparklog.cli.arguments.parser import UsageError
from sparklog.cli.commands.admin.configs import parse_add_config
from sparklog.config.topic_configs import TOPIC_CONFIGS
from sparklog.coordinator import Coordinator
from sparklog.protocol.commits import AlterConfig
from sparklog.protocol.decide.topics import alter_configs

from .conftest import Run, commit

USAGE = "\n`sparklog configs --help` lists the options.\n"


def test_a_topic_config_is_set_described_with_its_synonyms_and_deleted(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    changed = run(
        "configs", "--alter", "--topic", "t", "--add-config", "max.message.bytes=1000,cleanup.policy=[compact,delete]"
    )
    assert changed == (0, "Completed updating config for topic t.\n", "")
    assert run("configs", "--describe", "--topic", "t").lines == [
        "Dynamic configs for topic t are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  max.message.bytes=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=1000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}",
    ]
    assert run("configs", "--alter", "--topic", "t", "--delete-config", "cleanup.policy,max.message.bytes").code == 0
    assert run("configs", "--describe", "--topic", "t").out == "Dynamic configs for topic t are:\n"


def test_describe_all_includes_cluster_defaults_as_synonyms(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    assert run("configs", "--alter", "--broker-defaults", "--add-config", "message.max.bytes=2000") == (
        0,
        "Completed updating default config for brokers in the cluster.\n",
        "",
    )
    lines = run("configs", "--describe", "--all", "--entity-type", "topics", "--entity-name", "t").lines
    assert lines[0] == "All configs for topic t are:"
    assert len(lines) == 1 + len(TOPIC_CONFIGS) - 1, "all but the one for tests"
    assert (
        "  max.message.bytes=2000 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000, "
        "DEFAULT_CONFIG:message.max.bytes=1048588}"
    ) in lines


def test_cluster_defaults_are_described(run: Run, cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "3"}))
    for entity in (["--broker-defaults"], ["--entity-type", "brokers", "--entity-default"]):
        lines = run("configs", "--describe", *entity).lines
        assert lines[0] == "Default configs for brokers in the cluster are:"
        assert lines[1:] == [
            "  num.partitions=3 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:num.partitions=3}"
        ]
        every = run("configs", "--describe", "--all", *entity).lines
        assert lines[1] in every
        assert sum("synonyms={DEFAULT_CONFIG:" in line for line in every) > 20
    assert run("configs", "--describe", "--entity-type", "brokers").lines[:2] == [
        "Dynamic configs for broker 0 are:",
        "Default configs for brokers in the cluster are:",
    ]


def test_all_topics_are_described_when_none_is_named(run: Run, cluster: Coordinator) -> None:
    for name in ("b", "a"):
        cluster.create_topic(name)
    assert run("configs", "--describe", "--entity-type", "topics").lines == [
        "Dynamic configs for topic a are:",
        "Dynamic configs for topic b are:",
    ]


def test_a_missing_entity_is_reported(run: Run, root: str) -> None:
    missing = "The {} '{}' doesn't exist and doesn't have dynamic config.\n"
    assert run("configs", "--describe", "--topic", "nope") == (0, missing.format("topic", "nope"), "")
    assert run("configs", "--describe", "--broker", "7") == (0, missing.format("broker", "7"), "")
    for arguments in (["--describe", "--all"], ["--alter", "--add-config", "retention.ms=1"]):
        result = run("configs", *arguments, "--topic", "nope")
        assert result.code == 1
        assert "'nope' does not exist" in result.err


def test_configs_are_added_from_a_file(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    cluster.create_topic("t")
    path = tmp_path / "topic.properties"
    path.write_text("# kept for a day\nretention.ms = 86400000\ncleanup.policy=compact,delete\n")
    assert run("configs", "--alter", "--topic", "t", "--add-config-file", str(path)).code == 0
    assert cluster.refresh().topic("t").configs == {"retention.ms": "86400000", "cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cleanup.policy=[compact,forget]", "cleanup.policy"),
        ("retension.ms=1", "did you mean retention.ms?"),
        ("../x=1", "../x"),
    ],
)
def test_an_invalid_config_is_refused_and_changes_nothing(
    run: Run, cluster: Coordinator, change: str, message: str
) -> None:
    cluster.create_topic("t")
    before = cluster.refresh().version
    result = run("configs", "--alter", "--topic", "t", "--add-config", f"retention.bytes=5,{change}")
    assert (result.code, result.out) == (1, "")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert cluster.refresh().version == before


def test_deleting_an_unset_config_prints_a_note(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"segment.bytes": "2000000"})
    result = run("configs", "--alter", "--topic", "t", "--delete-config", "retention.ms,segment.bytes,no.such")
    assert result.code == 0
    assert result.out == "Completed updating config for topic t.\n"
    assert result.err == "Note: nothing to delete, these settings are not set: retention.ms, no.such\n"
    assert cluster.refresh().topic("t").configs == {}


def test_setting_and_deleting_the_same_key_is_refused(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"retention.ms": "5"})
    alter = ("configs", "--alter", "--topic", "t", "--add-config", "retention.ms=7", "--delete-config", "retention.ms")
    result = run(*alter)
    assert result.code == 1
    assert result.err.startswith("duplicate config keys: retention.ms cannot be set and deleted in one call\n")
    assert cluster.refresh().topic("t").configs == {"retention.ms": "5"}


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("a=1", {"a": "1"}),
        (" a = 1 , b=2", {"a": "1", "b": "2"}),
        ("a=[x,y],b=", {"a": "x,y", "b": ""}),
        ("a=[k=v,l=w]", {"a": "k=v,l=w"}),
    ],
)
def test_added_configs_are_split_as_in_kafka(text: str, parsed: dict[str, str]) -> None:
    assert parse_add_config(text) == parsed


@pytest.mark.parametrize("text", ["", "a", "a=1,b", "a=b=c", ","])
def test_added_configs_without_a_value_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="Invalid entity config"):
        parse_add_config(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Command must include exactly one action: --describe, --alter"),
        (["--describe", "--alter"], "Command must include exactly one action: --describe, --alter"),
        (["--describe"], "At least one entity type must be specified"),
        (["--describe", "--topic", "t", "--add-config", "a=b"],
         'Option "[add-config]" can\'t be used with option "[describe]"'),
        (["--alter", "--topic", "t"],
         "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"),
        (["--alter", "--topic", "t", "--add-config", "a=b", "--add-config-file", "f"],
         "Only one of --add-config or --add-config-file must be specified"),
        (["--alter", "--entity-type", "topics", "--add-config", "a=b"],
         "An entity name must be specified with --alter of topics"),
        (["--describe", "--entity-type", "topic"],
         "Invalid entity type topic, the entity type must be one of topics, brokers"),
        (["--describe", "--entity-type", "users"],
         "entities of type users have no settings here: only topics and brokers do"),
        (["--describe", "--user-defaults"],
         "entities of type users have no settings here: only topics and brokers do"),
        (["--describe", "--entity-type", "topics", "--entity-default"],
         "--entity-default must not be specified with topics: their defaults are --broker-defaults"),
        (["--describe", "--topic", "t", "--entity-type", "topics"],
         "--entity-{type,name,default} should not be used in conjunction with specific entity flags"),
        (["--describe", "--topic", "t", "--broker-defaults"], "Only one entity may be specified, not topics, brokers"),
        (["--describe", "--entity-name", "t"], "More entity names specified than entity types"),
        (["--describe", "--broker", "one"],
         "The entity name for brokers must be a valid integer broker id, but it is: one"),
        (["--alter", "--broker", "0", "--add-config", "num.partitions=1"],
         "broker 0 has no settings of its own, because it is a storage location; use --broker-defaults"),
        (["--describe", "--topic", "t", "--bootstrap-controller", "host"],
         "there is no controller to connect to: give the cluster's root as --bootstrap-server"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported_and_exit_with_1(run: Run, root: str, arguments: list[str], message: str) -> None:
    assert run("configs", *arguments) == (1, "", f"{message}{USAGE}")


def test_a_missing_config_file_is_reported_before_other_errors(run: Run, root: str) -> None:
    result = run("configs", "--command-config", "none.properties")
    assert result.code == 1
    assert "--command-config: none.properties cannot be read" in result.err


def test_setting_a_config_without_effect_prints_a_note(run: Run, cluster: Coordinator) -> None:
    note = "Note: stored, has no effect here: flush.messages=1 (committed records are already durable)\n"
    created = run("topics", "--create", "--topic", "t", "--config", "flush.messages=1")
    assert created == (0, "Created topic t.\n", note)
    altered = run("configs", "--alter", "--topic", "t", "--add-config", "flush.messages=1,retention.ms=1000")
    assert altered == (0, "Completed updating config for topic t.\n", note)
    defaults = run("configs", "--alter", "--broker-defaults", "--add-config", "log.cleaner.threads=2")
    assert "Note: stored, has no effect here: log.cleaner.threads=2" in defaults.err


def test_a_config_without_effect_from_an_older_version_prints_a_note(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    commit(cluster, AlterConfig(topic="t", set={"remote.storage.enable": "true"}, delete=[]))
    altered = run("configs", "--alter", "--topic", "t", "--add-config", "cleanup.policy=compact")
    assert (altered.code, altered.out) == (0, "Completed updating config for topic t.\n")
    assert altered.err.startswith("Note: stored by an older version, has no effect here: remote.storage.enable=true (")
    assert altered.err.endswith("; delete it\n")
    deleted = run("configs", "--alter", "--topic", "t", "--delete-config", "remote.storage.enable")
    assert deleted == (0, "Completed updating config for topic t.\n", "")
