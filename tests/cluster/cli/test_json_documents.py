"""``--json``: every command prints an object of its schema; schema and document are generated from the structs.

After changing a struct, regenerate them with ``python scripts/write_cli_json.py``.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sparklog.cli.commands import COMMANDS, load_command
from sparklog.cli.output.documents import DOCUMENTS
from sparklog.cli.output.json_reference import render_document, render_schema, schema
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator
from sparklog.coordinator.brokers import add_broker
from sparklog.protocol.commits import ApplicationWrite
from sparklog.protocol.file_names import index_path
from sparklog.testing.records import Record, append_records

from .conftest import Result, Run, change_partition, commit

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "docs" / "cli-json.md"
SCHEMA = ROOT / "docs" / "cli-json.schema.json"

WITHOUT_DOCUMENT = {
    "completion", "console-producer", "console-consumer", "metrics", "ui", "verifiable-producer",
    "verifiable-consumer",
}  # fmt: skip
"""Commands without a document: they print records, a script, or Kafka's own JSON, or serve pages."""
READ_ONLY = ("list", "describe", "find", "verify")
"""Prefixes of actions that change nothing."""


def test_the_document_matches_the_structs() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == render_document()


def test_the_schema_matches_the_structs() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == render_schema()


def test_every_field_has_a_description() -> None:
    fsck = {"FsckReport", "Finding", "Checked", "Repair"}  # docs/repair.md describes these
    for name, definition in schema()["$defs"].items():
        assert definition["description"], name
        for field, node in definition["properties"].items():
            is_list_of_objects = "$ref" in json.dumps(node)
            assert name in fsck or is_list_of_objects or node.get("description"), f"{name}.{field}"


def validate(node: dict[str, Any], value: object, definitions: dict[str, Any], where: str = "$") -> None:
    """Validate as a JSON Schema validator would, for the keywords in use; also refuse fields that the schema lacks."""
    if "$ref" in node:
        validate(definitions[node["$ref"].rpartition("/")[2]], value, definitions, where)
    elif "anyOf" in node:
        if not any(is_valid(choice, value, definitions) for choice in node["anyOf"]):
            raise AssertionError(f"{where}: {value!r} is none of {node['anyOf']}")
    elif "enum" in node:
        assert value in node["enum"], where
    elif node["type"] == "array":
        assert isinstance(value, list), where
        for number, item in enumerate(value):
            validate(node["items"], item, definitions, f"{where}[{number}]")
    elif node["type"] == "object":
        assert isinstance(value, dict), where
        properties, additional = node.get("properties", {}), node.get("additionalProperties")
        assert additional is not None or value.keys() <= properties.keys(), where
        assert set(node.get("required", ())) <= value.keys(), where
        for name, item in value.items():
            validate(properties.get(name, additional), item, definitions, f"{where}.{name}")
    else:
        kinds: dict[str, type | tuple[type, ...]] = {
            "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float)
        }  # fmt: skip
        assert isinstance(value, kinds[node["type"]]), f"{where}: {value!r} is not of type {node['type']}"
        assert node["type"] == "boolean" or not isinstance(value, bool), where


def is_valid(node: dict[str, Any], value: object, definitions: dict[str, Any]) -> bool:
    try:
        validate(node, value, definitions)
    except AssertionError:
        return False
    return True


def validated(command: str, text: str) -> dict[str, Any]:
    """Return the object that a command printed, after validating it against its schema and its struct."""
    definitions = schema()["$defs"]
    document = json.loads(text)
    validate(definitions[DOCUMENTS[command].__name__], document, definitions)
    msgspec.convert(document, DOCUMENTS[command], strict=True)
    return dict(document)


@pytest.fixture
def busy(cluster: Coordinator, tmp_path: Path) -> Coordinator:
    """A cluster with two brokers, records, a group, a transaction, an application and a reassignment."""
    add_broker(cluster, str(tmp_path / "disk1"))
    cluster.create_topic("orders", configs={"retention.ms": "1000"}, assignment=[[0, 1], [1, 0]])
    cluster.create_topic("moving")
    cluster.create_topic("typed", configs={"value.format": "json", "value.schema": "amount double"})
    with Producer(bootstrap_servers=cluster.store.root, transactional_id="billing") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(4):
            producer.send("orders", value=b"v", partition=number % 2)
        producer.commit_transaction()
    with Consumer(
        "orders", bootstrap_servers=cluster.store.root, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        read = 0
        while read < 4:
            read += sum(map(len, consumer.poll(timeout_ms=100).values()))
        consumer.commit()
    commit(cluster, ApplicationWrite(application="nightly", application_version=7))
    change_partition(cluster, "moving", 0, replicas=[0, 1], adding=[1])
    change_partition(cluster, "orders", 1, leader=0, isr=[0])
    cluster.refresh()
    return cluster


def files(folder: Path) -> dict[str, str]:
    """Write the JSON files that commands take as arguments; name -> path."""
    contents: dict[str, object] = {
        "offsets": {"partitions": [{"topic": "orders", "partition": 0, "offset": 1},
                                   {"topic": "nope", "partition": 0, "offset": 1}], "version": 1},
        "moves": {"partitions": [{"topic": "moving", "partition": 0, "replicas": [0, 1]},
                                 {"topic": "orders", "partition": 0, "replicas": [1]}], "version": 1},
        "elections": {"partitions": [{"topic": "orders", "partition": 0}]},
    }  # fmt: skip
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "rules.toml").write_text('[[rule]]\nname = "out of sync"\nkind = "isr"\n')
    return {"rules": str(folder / "rules.toml"), **{name: str(folder / f"{name}.json") for name in contents}}


LINES: dict[str, Sequence[str]] = {
    "topics --list": (),
    "topics --describe": (),
    "configs --describe": ("--all", "--topic", "orders"),
    "schemas --list": (),
    "schemas --describe": ("--topic", "typed"),
    "get-offsets": ("--time", "max-timestamp"),
    "consumer-groups --list": (),
    "consumer-groups --describe": ("--all-groups",),
    "groups --list": (),
    "transactions list": (),
    "transactions describe": ("--transactional-id", "billing"),
    "transactions describe-producers": ("--topic", "orders", "--partition", "0"),
    "transactions find-hanging": ("--topic", "orders"),
    "applications --list": (),
    "system": ("topics",),
    "system --list": (),
    "system --describe": ("lag",),
    "brokers list": (),
    "cluster cluster-id": (),
    "features describe": (),
    "cluster list-endpoints": (),
    "cluster describe": (),
    "log-dirs --describe": (),
    "leader-election": ("--election-type", "preferred", "--path-to-json-file", "elections"),
    "reassign-partitions --list": (),
    "reassign-partitions --verify": ("--reassignment-json-file", "moves"),
    "delete-records": ("--offset-json-file", "offsets"),
    "replica-verification": (),
    "alerts": ("--rules", "rules", "--once"),
    "top": ("--once",),
    "maintain --once": (),
    "fsck": (),
    "vacuum": (),
    "producer-perf-test": (
        "--topic", "moving", "--num-records", "10", "--record-size", "5", "--throughput", "-1", "--warmup-records", "2"
    ),
    "consumer-perf-test": ("--topic", "orders", "--num-records", "4", "--timeout", "2000", "--print-metrics"),
    "e2e-latency": ("--topic", "pings", "--num-records", "2", "--producer-acks", "all", "--record-size", "5"),
    "jobs": (),
}  # fmt: skip
"""A command line for each document except those of a loop and of dump-log, which are tested separately."""

FAILING = {"delete-records": 1, "alerts": 2}
NOT_ACTIONS = {"--verify-index-only"}
"""Options with such a prefix that are not actions."""


def test_every_document_has_a_test() -> None:
    assert {*LINES, "maintain --loop", "dump-log"} == set(DOCUMENTS)
    assert {document.split()[0] for document in DOCUMENTS} == set(COMMANDS) - WITHOUT_DOCUMENT


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_read_only_action_has_a_document(command: str) -> None:
    parser = load_command(command).parser()
    flags = {flag for action in parser.optional_actions() for flag in action.option_strings}
    assert ("--json" in flags) == (command not in WITHOUT_DOCUMENT)
    actions = [*parser.actions, *(flag for flag in flags if flag.startswith("--"))]
    read_only = {action for action in actions if re.match(rf"(--)?({'|'.join(READ_ONLY)})(-|$)", action)} - NOT_ACTIONS
    assert {f"{command} {action}" for action in read_only} <= set(DOCUMENTS)


@pytest.mark.parametrize("command", LINES)
def test_output_conforms_to_its_schema(run: Run, busy: Coordinator, tmp_path: Path, command: str) -> None:
    named = files(tmp_path)
    line = [named.get(word, word) for word in LINES[command]]
    result = run(*command.split(), *line, "--json")
    assert result.code == FAILING.get(command, 0), result.err
    document = validated(command, result.out)
    assert document
    assert result.out.isascii()
    assert command == "fsck" or len(result.lines) == 1


@pytest.mark.parametrize("command", [command for command in LINES if command not in ("fsck", "maintain --once")])
def test_output_for_an_empty_cluster_conforms_to_its_schema(run: Run, root: str, tmp_path: Path, command: str) -> None:
    named = files(tmp_path)
    result = run(*command.split(), *(named.get(word, word) for word in LINES[command]), "--json")
    if result.out:
        validated(command, result.out)
    else:
        assert result.code == 1
        assert result.err


def test_documents_contain_the_values_of_the_tables(run: Run, busy: Coordinator) -> None:
    (orders,) = validated("topics --describe", run("topics", "--describe", "--topic", "orders", "--json").out)["topics"]
    assert (orders["partition_count"], orders["replication_factor"]) == (2, 2)
    assert orders["configs"] == {"retention.ms": "1000"}
    assert [(row["partition"], row["leader"], row["replicas"], row["isr"]) for row in orders["partitions"]] == [
        (0, 0, [0, 1], [0, 1]), (1, 0, [1, 0], [0])
    ]  # fmt: skip
    groups = validated(
        "consumer-groups --describe", run("consumer-groups", "--describe", "--group", "readers", "--json").out
    )["groups"]
    assert [(row["topic"], row["partition"], row["lag"]) for row in groups[0]["offsets"]] == [
        ("orders", 0, 0), ("orders", 1, 0)
    ]  # fmt: skip
    assert groups[0]["members"] is None
    offsets = validated("get-offsets", run("get-offsets", "--topic", "moving", "--time", "max-timestamp", "--json").out)
    assert offsets == {"offsets": [{"topic": "moving", "partition": 0, "offset": None}]}
    moves = validated("reassign-partitions --list", run("reassign-partitions", "--list", "--json").out)
    assert moves["reassignments"][0]["adding_replicas"] == [1]


def test_metrics_are_included_only_with_print_metrics(run: Run, busy: Coordinator) -> None:
    command = ("producer-perf-test", *LINES["producer-perf-test"], "--json")
    assert validated("producer-perf-test", run(*command).out)["metrics"] is None
    metrics = validated("producer-perf-test", run(*command, "--print-metrics").out)["metrics"]
    assert metrics["producer-metrics"]["record-send-total"] == 10


def test_members_and_state_of_a_group_conform_to_the_schema(run: Run, busy: Coordinator) -> None:
    with Consumer("orders", bootstrap_servers=busy.store.root, group_id="readers", group_instance_id="one") as consumer:
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        command = ("consumer-groups", "--describe", "--group", "readers", "--json")
        members = validated("consumer-groups --describe", run(*command, "--members").out)["groups"][0]
        state = validated("consumer-groups --describe", run(*command, "--state").out)["groups"][0]
    assert [(member["group_instance_id"], len(member["assignment"])) for member in members["members"]] == [("one", 2)]
    assert (members["offsets"], state["offsets"], state["members"]) == (None, None, None)
    assert (state["state"], state["member_count"]) == ("Stable", 1)


def test_an_unknown_group_is_omitted_and_exits_with_1(run: Run, busy: Coordinator) -> None:
    result = run("consumer-groups", "--describe", "--group", "readers", "--group", "nope", "--json")
    groups = validated("consumer-groups --describe", result.out)["groups"]
    assert ([group["group"] for group in groups], result.code) == (["readers"], 1)
    assert "'nope' does not exist" in result.err


def test_a_report_lists_only_matching_partitions_and_exit_code_option_returns_2(run: Run, busy: Coordinator) -> None:
    command = ("topics", "--describe", "--under-replicated-partitions", "--json")
    listed = run(*command)
    (topic,) = validated("topics --describe", listed.out)["topics"]
    assert (topic["topic"], [row["partition"] for row in topic["partitions"]], listed.code) == ("orders", [1], 0)
    assert run(*command, "--exit-code").code == 2
    nothing = run("topics", "--describe", "--unavailable-partitions", "--json", "--exit-code")
    assert (json.loads(nothing.out), nothing.code) == ({"topics": []}, 0)


def test_exit_code_requires_a_report(run: Run, root: str) -> None:
    refused = run("topics", "--describe", "--exit-code")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("--exit-code requires one of --under-replicated-partitions")


def test_a_failed_pass_prints_its_document_and_exits_with_1(run: Run, busy: Coordinator, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "disk1")
    result = run("maintain", "--once", "--only", "elections,roll", "--json")
    document = validated("maintain --once", result.out)
    assert result.code == 1
    assert document["problems"] == 1
    assert [step["step"] for step in document["steps"]] == ["elections", "roll"]
    assert "broker.json is missing" in document["steps"][0]["problems"][0]


def test_a_loop_prints_one_object_per_line(busy: Coordinator) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "maintain", "--loop", "--only", "replication", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as loop:
        assert loop.stdout is not None
        first = loop.stdout.readline()
        loop.send_signal(signal.SIGTERM)
        remaining, _ = loop.communicate(timeout=60)
    assert loop.returncode == 0
    steps = [validated("maintain --loop", line) for line in [first, *remaining.splitlines()]]
    assert steps[0]["step"] == "replication"
    assert steps[0]["counts"]["replicas_in_sync_again"] > 0


# -- dump-log, whose lines are objects


@pytest.fixture
def segment(cluster: Coordinator) -> str:
    """The path of a .log with three batches."""
    cluster.create_topic("big")
    append_records(cluster, "big", [Record(value=b"x" * 100_000)] * 29 + [Record(b"k\n", None, [("h", b"1")])])
    (segment,) = cluster.segments("big", cluster.refresh()).partition(0)
    return f"{cluster.store.root}/{segment.path}"


def dumped(result: Result, part: str) -> list[dict[str, Any]]:
    """Return the objects under this key; each line is validated and has exactly one."""
    documents = [validated("dump-log", line) for line in result.lines]
    assert all(sum(line[name] is not None for name in ("start", "batch", "entry", "end")) == 1 for line in documents)
    return [line[part] for line in documents if line[part] is not None]


def test_a_dump_has_a_line_for_each_batch_with_its_records(run: Run, cluster: Coordinator, segment: str) -> None:
    result = run("dump-log", "--files", segment, "--print-data-log", "--json")
    assert (result.code, result.err, result.out.isascii(), len(result.lines)) == (0, "", True, 5)
    assert {json.loads(line)["file"] for line in result.lines} == {segment}
    batches = dumped(result, "batch")
    assert [batch["base_offset"] for batch in batches] == [0, *(batch["last_offset"] + 1 for batch in batches[:-1])]
    assert sum(batch["count"] for batch in batches) == 30
    last = batches[-1]["records"][-1]
    assert (last["offset"], last["key"], last["value"]) == (29, "k\n", None)
    assert (last["key_size"], last["value_size"], last["header_keys"]) == (2, None, ["h"])
    assert [batch["records"] for batch in dumped(run("dump-log", "--files", segment, "--json"), "batch")] == [None] * 3
    assert dumped(result, "start") == [{"base_offset": 0, "runs": None, "index_fault": None}]
    assert dumped(result, "end")[0]["sound"]
    placed = run("dump-log", "--files", segment, "--json", "--bootstrap-server", cluster.store.root)
    (run_of_batches,) = dumped(placed, "start")[0]["runs"]
    assert (run_of_batches["topic"], run_of_batches["end_offset"], run_of_batches["batches"]) == ("big", 30, 3)


def test_a_dumped_index_has_a_line_for_each_entry(run: Run, segment: str) -> None:
    positions = [batch["position"] for batch in dumped(run("dump-log", "--files", segment, "--json"), "batch")]
    result = run("dump-log", "--files", index_path(segment), "--json")
    assert [entry["position"] for entry in dumped(result, "entry")] == positions
    for check in ("--index-sanity-check", "--verify-index-only"):
        alone = run("dump-log", "--files", index_path(segment), "--json", check)
        assert (alone.code, dumped(alone, "entry"), dumped(alone, "end")[0]["sound"]) == (0, [], True)


def test_a_dump_of_damaged_files_reports_faults_and_exits_with_1(run: Run, segment: str) -> None:
    data = bytearray(Path(segment).read_bytes())
    data[data.index(b"xxxx")] ^= 1
    Path(segment).write_bytes(data)
    result = run("dump-log", "--files", f"{segment},{index_path(segment)}", "--print-data-log", "--json")
    assert result.code == 1
    batches = dumped(result, "batch")
    assert [batch["fault"] is None for batch in batches] == [False, True, True]
    assert batches[0]["records"] is None
    assert batches[0]["fault"] in result.err
    of_log, of_index = dumped(result, "end")
    assert (of_log["sound"], of_index["sound"]) == (False, False)
    assert [(mismatch["batch"], mismatch["what"]) for mismatch in of_index["mismatches"]] == [(0, "crc")]


def test_a_truncated_dump_is_marked_incomplete_and_a_missing_file_has_no_end_object(run: Run, segment: str) -> None:
    cut = run("dump-log", "--files", segment, "--max-bytes", "1", "--json")
    assert ([end["complete"] for end in dumped(cut, "end")], len(dumped(cut, "batch"))) == ([False], 1)
    missing = run("dump-log", "--files", f"{segment},{segment}2.log", "--json")
    assert (missing.code, len(dumped(missing, "end"))) == (1, 1)
    assert f"{segment}2.log" in missing.err


@pytest.mark.parametrize(
    "line",
    [
        "topics --create --topic t",
        "configs --alter --topic t --add-config retention.ms=1",
        "consumer-groups --delete --group g",
        "transactions forget --transactional-id t",
        "applications --delete --application a",
        "brokers cordon --id 1",
        "cluster create",
        "reassign-partitions --cancel --reassignment-json-file x",
    ],
)
def test_json_is_refused_for_actions_that_change_something(run: Run, root: str, line: str) -> None:
    refused = run(*line.split(), "--json")
    assert (refused.code, refused.out) == (1, "")
    assert "json" in refused.err


def test_arbitrary_texts_are_escaped_to_one_line_of_ascii(run: Run, cluster: Coordinator) -> None:
    commit(cluster, ApplicationWrite(application="n\u00e4chtlich\n\u2028\U0001f600", application_version=1))
    result = run("applications", "--list", "--json")
    assert len(result.lines) == 1
    assert result.out.isascii()
    assert json.loads(result.out)["applications"][0]["application"] == "n\u00e4chtlich\n\u2028\U0001f600"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("topics --describe --under-replicated-partitions --exit-code", 1),
        ("brokers list --exit-code", 1),
        ("fsck", 2),
        ("replica-verification", 1),
        ("maintain --once", 1),
        ("vacuum", 1),
    ],
)
def test_a_missing_cluster_exits_with_an_error_code_and_no_output(
    run: Run, tmp_path: Path, line: str, code: int
) -> None:
    result = run(*line.split(), "--json", "--bootstrap-server", str(tmp_path / "nothing"))
    assert (result.code, result.out) == (code, "")
    assert "is not a sparklog cluster" in result.err
