"""kafka-topics: actions, output and usage errors."""

from __future__ import annotations

from functools import partial

import pytest

from sparklog.cli.commands.admin.topics import COLLISION_WARNING
from sparklog.coordinator import Coordinator
from sparklog.protocol.commits import ChangeBroker
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.topics import alter_configs

from .conftest import Run, add_brokers, change_partition, commit

FAILED = "Error while executing topic command : "


def test_create_prints_a_message_and_creates_the_topic(run: Run, cluster: Coordinator) -> None:
    assert run("topics", "--create", "--topic", "orders", "--partitions", "3") == (0, "Created topic orders.\n", "")
    assert len(cluster.refresh().topic("orders").partitions) == 3


def test_a_created_topic_has_the_default_partitions_and_the_given_configs(run: Run, cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "5"}))
    result = run(
        "topics", "--create", "--topic", "t", "--config", "retention.ms=1000", "--config", "cleanup.policy = compact"
    )
    assert result.code == 0
    topic = cluster.refresh().topic("t")
    assert len(topic.partitions) == 5
    assert topic.configs == {"retention.ms": "1000", "cleanup.policy": "compact"}


@pytest.mark.parametrize("name", ["a.b", "a_b"])
def test_a_name_with_period_or_underscore_prints_a_warning(run: Run, root: str, name: str) -> None:
    assert run("topics", "--create", "--topic", name).lines == [COLLISION_WARNING, f"Created topic {name}."]


def test_creating_an_existing_topic_fails_without_if_not_exists(run: Run, root: str) -> None:
    run("topics", "--create", "--topic", "t")
    assert run("topics", "--create", "--topic", "t") == (1, "", f"{FAILED}topic 't' already exists\n")
    assert run("topics", "--create", "--topic", "t", "--if-not-exists") == (0, "", "")


@pytest.mark.parametrize("name", ["../x", "", "x" * 250, "тема", ".", "..", "a b", "a/b", "a\nb", "-\x00", "a\udcff"])
def test_a_hostile_name_is_refused_on_one_line_and_changes_nothing(run: Run, cluster: Coordinator, name: str) -> None:
    before = cluster.refresh().version
    result = run("topics", "--create", f"--topic={name}")
    assert result.code == 1
    assert result.out == ""
    assert result.err.startswith(
        (FAILED, "Missing required argument", "--topic 'a\\udcff': the byte 0xff is not UTF-8")
    )
    assert result.err.count("\n") == (2 if result.err.startswith(("Missing", "--topic")) else 1)
    assert cluster.refresh().version == before


def test_topics_are_listed_in_order(run: Run, cluster: Coordinator) -> None:
    assert run("topics", "--list") == (0, "", "")
    for name in ("b", "a10", "a9"):
        cluster.create_topic(name)
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("b", 0): 0})))
    assert run("topics", "--list").lines == ["__consumer_offsets", "a10", "a9", "b"]
    assert run("topics", "--list", "--exclude-internal").lines == ["a10", "a9", "b"]
    assert run("topics", "--list", "--topic", "a.*").lines == ["a10", "a9"]
    assert run("topics", "--list", "--topic", "b, a9").lines == ["a9", "b"]


def test_description_shows_topic_and_partitions(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", partitions=2, configs={"retention.ms": "1000", "cleanup.policy": "compact"})
    topic_id = cluster.state.topic("t").topic_id
    assert run("topics", "--describe", "--topic", "t").out == (
        f"Topic: t\tTopicId: {topic_id}\tPartitionCount: 2\tReplicationFactor: 1\t"
        "Configs: cleanup.policy=compact,retention.ms=1000\n"
        "\tTopic: t\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: N/A\tLastKnownElr: N/A\n"
        "\tTopic: t\tPartition: 1\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: N/A\tLastKnownElr: N/A\n"
    )
    assert run("topics", "--describe", "--topic-id", topic_id).lines[0].startswith("Topic: t\t")


def test_topics_with_overrides_lists_topics_with_configs(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("plain")
    cluster.create_topic("changed", configs={"retention.ms": "1"})
    lines = run("topics", "--describe", "--topics-with-overrides").lines
    assert [line.split("\t")[0] for line in lines] == ["Topic: changed"]


def test_reports_list_only_the_matching_partitions(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", partitions=2, configs={"min.insync.replicas": "2"})
    cluster.create_topic("u", partitions=1)
    under = run("topics", "--describe", "--under-min-isr-partitions")
    assert [line.split("\t")[1:3] for line in under.lines] == [
        ["Topic: t", "Partition: 0"],
        ["Topic: t", "Partition: 1"],
    ]
    at = run("topics", "--describe", "--at-min-isr-partitions")
    assert [line.split("\t")[1:3] for line in at.lines] == [["Topic: u", "Partition: 0"]]
    assert run("topics", "--describe", "--under-replicated-partitions").out == ""
    assert run("topics", "--describe", "--unavailable-partitions").out == ""


def reported(run: Run, report: str) -> list[str]:
    """Return ``topic-partition`` of every line of a report."""
    lines = run("topics", "--describe", f"--{report}").lines
    fields = [dict(part.split(": ", 1) for part in line.strip().split("\t")) for line in lines]
    return [f"{line['Topic']}-{line['Partition']}" for line in fields]


def test_a_partition_whose_replica_is_behind_is_under_replicated(run: Run, cluster: Coordinator) -> None:
    add_brokers(cluster, 1, 2)
    cluster.create_topic("t", 2, assignment=[[0, 1, 2], [1, 2, 0]])
    change_partition(cluster, "t", 1, isr=[1, 0])
    assert reported(run, "under-replicated-partitions") == ["t-1"]
    assert reported(run, "unavailable-partitions") == []


def test_a_partition_without_a_leader_or_whose_leader_is_offline_is_unavailable(run: Run, cluster: Coordinator) -> None:
    add_brokers(cluster, 1)
    cluster.create_topic("t", 3, assignment=[[0, 1], [1, 0], [0, 1]])
    change_partition(cluster, "t", 2, leader=-1, isr=[0])
    commit(cluster, ChangeBroker(broker=1, online=False))
    assert reported(run, "unavailable-partitions") == ["t-1", "t-2"]
    assert "t-2" in reported(run, "under-min-isr-partitions")
    assert "\tPartition: 2\tLeader: none\t" in run("topics", "--describe", "--topic", "t").out


def test_an_active_reassignment_is_shown_but_not_as_under_replicated(run: Run, cluster: Coordinator) -> None:
    add_brokers(cluster, 1, 2)
    cluster.create_topic("t", assignment=[[0, 1]])
    change_partition(cluster, "t", 0, replicas=[0, 1, 2], adding=[2], removing=[1])
    head, line = run("topics", "--describe", "--topic", "t").lines
    assert "\tReplicationFactor: 2\t" in head
    assert line == (
        "\tTopic: t\tPartition: 0\tLeader: 0\tReplicas: 0,1,2\tIsr: 0,1\tAdding Replicas: 2\tRemoving Replicas: 1"
        "\tElr: N/A\tLastKnownElr: N/A"
    )
    assert reported(run, "under-replicated-partitions") == []


def test_partitions_are_added_to_all_matching_topics_in_one_commit(run: Run, cluster: Coordinator) -> None:
    for name in ("a1", "a2", "b"):
        cluster.create_topic(name)
    before = cluster.refresh().version
    assert run("topics", "--alter", "--topic", "a.", "--partitions", "3") == (0, "", "")
    state = cluster.refresh()
    assert {name: len(topic.partitions) for name, topic in state.topics.items()} == {"a1": 3, "a2": 3, "b": 1}
    assert state.version == before + 1


def test_fewer_partitions_are_refused_with_an_alternative_and_change_no_topic(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("a1", partitions=1)
    cluster.create_topic("a2", partitions=4)
    result = run("topics", "--alter", "--topic", "a.", "--partitions", "2")
    assert result.code == 1
    assert "topic with 2 partitions" in result.err
    assert "copy the records into it" in result.err
    assert len(cluster.refresh().topic("a1").partitions) == 1


def test_topics_are_deleted_with_their_records(run: Run, cluster: Coordinator) -> None:
    for name in ("a1", "a2", "b"):
        cluster.create_topic(name)
    assert run("topics", "--delete", "--topic", "a.") == (0, "", "")
    assert list(cluster.refresh().topics) == ["b"]


@pytest.mark.parametrize("action", [["--delete"], ["--describe"], ["--alter", "--partitions", "2"]])
def test_a_missing_topic_is_an_error_without_if_exists(run: Run, root: str, action: list[str]) -> None:
    result = run("topics", *action, "--topic", "nope")
    assert result == (1, "", f"{FAILED}Topic 'nope' does not exist as expected\n")
    assert run("topics", *action, "--topic", "nope", "--if-exists") == (0, "", "")


def test_replicas_can_be_assigned_explicitly(run: Run, cluster: Coordinator) -> None:
    assert run("topics", "--create", "--topic", "t", "--replica-assignment", "0,0,0").code == 0
    assert len(cluster.refresh().topic("t").partitions) == 3
    assert run("topics", "--alter", "--topic", "t", "--partitions", "4", "--replica-assignment", "0,0,0,0").code == 0
    assert len(cluster.refresh().topic("t").partitions) == 4


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("0:0", "Partition replica lists may not contain duplicate entries: 0"),
        ("0,0:1", "Partition 1 has different replication factor: [0, 1]"),
        ("x", "--replica-assignment: partition 0: invalid broker ids 'x': expected ids such as 0:1"),
        ("7", "replica assignment [7] of t-0 must name registered brokers that are not cordoned ([0]), each once, and "
              "as many as the other partitions do"),
    ],
)  # fmt: skip
def test_wrong_replica_assignment_is_refused(run: Run, cluster: Coordinator, assignment: str, message: str) -> None:
    result = run("topics", "--create", "--topic", "t", "--replica-assignment", assignment)
    assert result == (1, "", f"{FAILED}{message}\n")
    assert not cluster.refresh().topics


def test_an_assignment_of_too_few_partitions_is_refused(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", partitions=2)
    result = run("topics", "--alter", "--topic", "t", "--partitions", "4", "--replica-assignment", "0,0,0")
    assert result.code == 1
    assert "requires a replica assignment for all 4, 3 were given" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Command must include exactly one action: --list, --describe, --create, --alter or --delete"),
        (["--list", "--create"],
         "Command must include exactly one action: --list, --describe, --create, --alter or --delete"),
        (["--create"], 'Missing required argument "[topic]"'),
        (["--alter", "--topic", "t"], 'Missing required argument "[partitions]"'),
        (["--alter", "--topic", "t", "--config", "a=b"],
         'Option "[config]" can\'t be used with option "[alter]" (To alter topic configurations, the `sparklog '
         "configs` tool can be used.)"),
        (["--list", "--partitions", "2"], 'Option "[partitions]" can\'t be used with option "[list]"'),
        (["--create", "--topic", "t", "--replica-assignment", "0", "--partitions", "1"],
         'Option "[replica-assignment]" can\'t be used with option "[partitions]"'),
        (["--describe", "--under-replicated-partitions", "--topics-with-overrides"],
         'Option "[under-replicated-partitions]" can\'t be used with option "[topics-with-overrides]"'),
        (["--list", "--if-exists"], 'Option "[if-exists]" can\'t be used with option "[list]"'),
        (["--describe", "--if-exists"], "--topic or --topic-id is required to describe a topic"),
        (["--create", "--topic", "t", "--partitions", "many"], "argument --partitions: invalid int value: 'many'"),
        (["--list", "--tpoic", "t"], "--tpoic is not a recognized option; did you mean --topic?"),
        (["--list", "stray"], "'stray' does not belong to any option; did you mean --topic stray?"),
        (["--list", "--topic", "t", "stray"], "'stray' does not belong to any option"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported_and_exit_with_1(run: Run, root: str, arguments: list[str], message: str) -> None:
    assert run("topics", *arguments) == (1, "", f"{message}\n`sparklog topics --help` lists the options.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--partitions", "0"], "The partitions must be greater than 0"),
        (["--partitions", "-3"], "The partitions must be greater than 0"),
        (["--replication-factor", "0"], "The replication factor must be between 1 and 32767 inclusive"),
        (
            ["--config", "novalue"],
            "Invalid topic config 'novalue': all configs to be added must be in the format \"key=val\".",
        ),
    ],
)
def test_invalid_numbers_and_configs_are_refused(run: Run, root: str, arguments: list[str], message: str) -> None:
    assert run("topics", "--create", "--topic", "t", *arguments) == (1, "", f"{FAILED}{message}\n")


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*", "(?P<x>a)(?P<x>b)"])
def test_invalid_expression_is_refused(run: Run, root: str, pattern: str) -> None:
    result = run("topics", "--delete", "--topic", pattern)
    assert result.code == 1
    assert "is an invalid regex" in result.err


@pytest.mark.parametrize("action", [["--delete"], ["--describe"], ["--alter", "--partitions", "9"]])
def test_an_empty_name_matches_no_topic(run: Run, cluster: Coordinator, action: list[str]) -> None:
    cluster.create_topic("t")
    result = run("topics", *action, "--topic", "")
    assert (result.code, "Topic '' does not exist as expected" in result.err) == (1, True)
    assert run("topics", *action, "--topic", "", "--if-exists").code == (1 if action == ["--describe"] else 0)


def test_a_topic_id_of_zeros_means_no_topic_id(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("a")
    cluster.create_topic("b")
    zeros = ["--topic-id", "A" * 22]
    assert run("topics", "--describe", *zeros) == run("topics", "--describe")
    assert run("topics", "--describe", "--topic", "b", *zeros) == run("topics", "--describe", "--topic", "b")
    unknown = run("topics", "--describe", "--topic-id", "B" * 22)
    assert unknown == (1, "", f"{FAILED}TopicId '{'B' * 22}' does not exist as expected\n")
