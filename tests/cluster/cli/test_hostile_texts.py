"""Texts chosen by clients cannot forge lines of a table or send control codes to the terminal."""

from __future__ import annotations

import json
import logging
import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.group_member import expire
from sparklog.errors import InvalidRequestError
from sparklog.format.schema import record_schema
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.commits import (
    Action,
    ApplicationWrite,
    CommitOffsets,
    CommittedOffset,
    CreateTopic,
    InitProducer,
    JoinGroup,
    RegisterBroker,
)
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.groups import JoinRequest, join_group
from sparklog.protocol.decide.producers import init_producer
from sparklog.store.local import LocalStore
from sparklog.types import printable
from tests.cluster.cli.conftest import Run

FORGED = "evil\x1b[2J\r\nforged-row\t0 \u202e\u2028x\x9b"
SHOWN = "evil\\x1b[2J\\r\\nforged-row\\t0 \\u202e\\u2028x\\x9b"
ANYTHING = r"[\s\S]*"
HARMLESS = "größe-☃ 数"


def commit(coordinator: Coordinator, *actions: Action) -> None:
    """Commit actions that no decision would accept, as a hostile or an older client may have."""
    coordinator.refresh()
    assert coordinator.log.attempt(list(actions)) is CommitOutcome.WON


@pytest.fixture
def hostile(cluster: Coordinator, tmp_path: object) -> Coordinator:
    """A cluster in which every text that clients choose is hostile."""
    topic_id = cluster.create_topic("orders")
    member = f"m-{FORGED}"
    offset = CommittedOffset(topic="orders", topic_id=topic_id, partition=0, offset=0, metadata=FORGED)
    commit(
        cluster,
        RegisterBroker(broker=1, url=f"{tmp_path}/{FORGED}"),
        JoinGroup(
            group="billing",
            member=member,
            instance_id=FORGED,
            client_id=FORGED,
            host=FORGED,
            topics=["orders"],
            assignors=["range"],
            session_timeout_ms=45_000,
        ),
        CommitOffsets(group="billing", offsets=[offset]),
        CommitOffsets(group=f"g-{FORGED}", offsets=[offset]),
        InitProducer(producer_id=0, producer_epoch=0, transactional_id=f"tx-{FORGED}"),
    )
    return cluster


TABLES = {
    "members": (["consumer-groups", "--describe", "--group", "billing", "--members", "--verbose"], 2),
    "offsets": (["consumer-groups", "--describe", "--group", "billing", "--offsets"], 2),
    "states": (["consumer-groups", "--describe", "--all-groups", "--state"], 4),
    "groups of consumers": (["consumer-groups", "--list"], 2),
    "groups with states": (["consumer-groups", "--list", "--state"], 3),
    "groups": (["groups", "--list"], 3),
    "transactions": (["transactions", "list"], 2),
    "brokers": (["brokers", "list"], 3),
    "system table of members": (["system", "members"], 2),
    "system table of offsets": (["system", "offsets"], 3),
    "system table of offsets as CSV": (["system", "offsets", "--csv"], 3),
    "system table of members as CSV": (["system", "members", "--csv"], 2),
    "system table of lag of a group": (["system", "lag", "--group", f"g-{FORGED}"], 2),
}


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize(("command", "lines"), TABLES.values(), ids=TABLES.keys())
def test_hostile_ids_add_no_lines_to_tables(run: Run, command: list[str], lines: int) -> None:
    result = run(*command)
    assert result.code == 0, result.err
    printed = [line for line in result.out.split("\n") if line.strip()]
    assert len(printed) == lines, result.out
    assert SHOWN in result.out
    assert all(c.isprintable() or c in "\n\t" for c in result.out + result.err)


FORGED_SCHEMA = {"description": FORGED, "type": "object", "properties": {"id": {"type": "string"}}}
FORGED_CONFIGS = {
    "retention.ms": "1",
    "key.format": "json",
    "key.schema": json.dumps(FORGED_SCHEMA, ensure_ascii=False, separators=(",", ":")),
}


@pytest.fixture
def forged_topic(cluster: Coordinator) -> Coordinator:
    """A topic, an application and a location whose names no decision would accept."""
    commit(
        cluster,
        RegisterBroker(broker=1, url=f"{cluster.store.root}-{FORGED}"),
        CreateTopic(topic=FORGED, topic_id="AAAAAAAAAAAAAAAAAAAAAQ", replicas=[[0]], configs=FORGED_CONFIGS),
        ApplicationWrite(application=FORGED, application_version=7),
    )
    return cluster


COMMANDS = {
    "topics": (["topics", "--list"], 1),
    "topics with details": (["topics", "--describe"], 2),
    "settings": (["configs", "--describe", "--entity-type", "topics"], 4),
    "offsets": (["get-offsets", "--topic", ANYTHING], 1),
    "cluster": (["cluster", "describe"], 14),
    "endpoints": (["cluster", "list-endpoints", "--include-fenced-brokers"], 3),
    "schemas": (["schemas", "--list"], 2),
    "system table of topics": (["system", "topics"], 2),
    "system table of topics as CSV": (["system", "topics", "--csv"], 2),
    "system table of configs": (["system", "configs", "--topic", FORGED], 4),
    "system table that does not exist": (["system", FORGED], 0),
    "system table of a topic that does not exist": (["system", "segments", "--topic", f"{FORGED}x"], 0),
    "versions of schemas": (["schemas", "--describe"], 1),
    "applications": (["applications", "--list"], 2),
    "application": (["applications", "--delete", "--application", FORGED], 1),
    "reset": (["consumer-groups", "--reset-offsets", "--group", "g", "--topic", FORGED, "--to-latest"], 2),
    "replicas": (["replica-verification", "--topics-include", ANYTHING], 2),
}


@pytest.mark.usefixtures("forged_topic")
@pytest.mark.parametrize(("command", "lines"), COMMANDS.values(), ids=COMMANDS.keys())
def test_hostile_names_of_topics_and_applications_add_no_lines(run: Run, command: list[str], lines: int) -> None:
    result = run(*command)
    printed = [line for line in result.out.split("\n") if line.strip()]
    assert len(printed) == lines, (result.out, result.err)
    assert all(c.isprintable() or c in "\n\t" for c in result.out + result.err)


def test_hostile_locations_are_printed_on_one_line(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    location, elsewhere = f"{tmp_path}/x\ny", f"{tmp_path}/z\x1b[2Jq"
    assert run("brokers", "add", "--location", location).out == f"Added broker 1 at {tmp_path}/x\\ny.\n"
    os.rename(location, elsewhere)
    shown = f"{tmp_path}/z\\x1b[2Jq"
    assert run("brokers", "move", "--id", "1", "--location", elsewhere).out == f"Broker 1 is at {shown}.\n"
    assert run("brokers", "allow", "--location", elsewhere).out.startswith(f"Brokers below {shown} are ")
    assert run("brokers", "disallow", "--location", elsewhere).out.startswith(f"{shown} is ")
    created = run("cluster", "create", "--bootstrap-server", location)
    assert created.out.endswith(f" at {tmp_path}/x\\ny.\n")
    mirrored = run("cluster", "mirror", "--to", f"{tmp_path}/m\nn")
    assert mirrored.out.startswith(f"{tmp_path}/m\\nn mirrors version ")
    promoted = run("cluster", "promote", "--to", f"{tmp_path}/m\nn")
    assert (promoted.code, promoted.out.count("\n")) == (0, 1)


def test_hostile_names_in_json_files_are_escaped(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    partition = {"topic": FORGED, "partition": 0, "offset": 1, "replicas": [0]}
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    for command in (
        ["delete-records", "--offset-json-file", str(path)],
        ["leader-election", "--election-type", "preferred", "--path-to-json-file", str(path)],
        ["reassign-partitions", "--verify", "--reassignment-json-file", str(path)],
        ["reassign-partitions", "--cancel", "--reassignment-json-file", str(path)],
        ["reassign-partitions", "--execute", "--reassignment-json-file", str(path)],
    ):
        result = run(*command)
        assert SHOWN in result.out + result.err, command
        assert all(c.isprintable() or c in "\n\t" for c in result.out + result.err), command


@pytest.mark.usefixtures("hostile")
def test_a_reset_prints_a_hostile_group_on_one_line(run: Run) -> None:
    result = run("consumer-groups", "--reset-offsets", "--group", f"g-{FORGED}", "--topic", "orders", "--to-earliest")
    assert result.out.count("forged-row") == 1
    assert all(c.isprintable() or c == "\n" for c in result.out + result.err)


def test_hostile_header_names_are_printed_on_one_line(run: Run, cluster: Coordinator) -> None:
    topic_id = cluster.create_topic("orders")
    key = segment_key("orders", 0, 0, 1, cluster.log.ids.write_id())
    writer = SegmentFileWriter(cluster.store, key, has_key=False, has_headers=True)
    writer.start_run(RunTarget("orders", topic_id, 0))
    fields = record_schema(("value", "timestamp", "headers"))
    columns = [
        pa.array([b"v"], pa.binary()),
        pa.array([0], pa.timestamp("us", tz="UTC")),
        pa.array([[{"key": FORGED, "value": b"x"}]], fields.field("headers").type),
    ]
    writer.write(pa.RecordBatch.from_arrays(columns, schema=fields))
    cluster.append(AppendRequest(appends=writer.finish()))
    result = run("dump-log", "--files", f"{cluster.store.root}/{key}", "--print-data-log")
    assert f"headerKeys: [{SHOWN}]" in result.out


@pytest.mark.usefixtures("hostile")
def test_json_contains_the_original_texts(run: Run) -> None:
    result = run("fsck", "--json")
    report = json.loads(result.out)
    assert any(FORGED in finding["message"] for finding in report["findings"])
    assert "\x1b" not in run("fsck").out


def test_a_text_without_control_characters_is_unchanged() -> None:
    assert printable(HARMLESS) == HARMLESS
    assert printable(FORGED) == SHOWN
    assert printable(7) == "7"


def test_a_hostile_member_id_is_logged_on_one_line(tmp_path: object, caplog: pytest.LogCaptureFixture) -> None:
    coordinator = create_cluster(LocalStore(f"{tmp_path}/root"))
    coordinator.create_topic("orders")
    commit(coordinator, JoinGroup(group="g", member=FORGED, topics=["orders"], assignors=["range"]))
    with caplog.at_level(logging.WARNING):
        expire(coordinator, "g", [FORGED], coordinator.state.groups["g"])
    assert SHOWN in caplog.text
    assert "\x1b" not in caplog.text


# -- new ids


@pytest.mark.parametrize("text", [FORGED, "a\nb", "\x00", "x" * 250])
def test_new_client_ids_and_transactional_ids_with_control_characters_are_refused(
    cluster: Coordinator, text: str
) -> None:
    before = cluster.state.version
    for request in (
        JoinRequest(group="g", member="m", client_id=text),
        JoinRequest(group="g", member="m", instance_id=text),
        JoinRequest(group="g", member="m", host=text),
    ):
        with pytest.raises(InvalidRequestError, match="characters"):
            cluster.submit(partial(join_group, request=request))
    with pytest.raises(InvalidRequestError, match=r"transactional\.id"):
        cluster.submit(partial(init_producer, transactional_id=text))
    assert cluster.refresh().version == before


def test_an_existing_hostile_transactional_id_still_works(hostile: Coordinator) -> None:
    assert hostile.submit(partial(init_producer, transactional_id=f"tx-{FORGED}")).producer_epoch == 1


def test_ids_in_any_language_are_accepted(cluster: Coordinator) -> None:
    cluster.create_topic("orders")
    cluster.submit(
        partial(join_group, request=JoinRequest(group="g", member="m", client_id=HARMLESS, topics=["orders"]))
    )
    assert cluster.submit(partial(init_producer, transactional_id=HARMLESS)).producer_epoch == 0
