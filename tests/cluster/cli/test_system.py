"""sparklog system: tables as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json

import pytest

from sparklog.cli.commands.monitoring.system import NAMES
from sparklog.clock import utc_text
from sparklog.coordinator import Coordinator
from sparklog.log.commits.retired_files import RemovedFile, write_removed
from sparklog.log.layout import Boundary, write_boundary
from sparklog.monitoring.schemas import TABLES
from sparklog.protocol.commits import CommitOffsets, CommittedOffset, commit_key
from sparklog.testing.records import Record, append_records
from tests.cluster.cli.conftest import Run, commit


@pytest.fixture
def with_lag(cluster: Coordinator) -> Coordinator:
    topic_id = cluster.create_topic("orders", 2, configs={"retention.ms": "-1"})
    append_records(cluster, "orders", [Record(value=b"v", partition=number % 2) for number in range(5)])
    for number in (0, 1):
        offset = CommittedOffset(topic="orders", topic_id=topic_id, partition=number, offset=1, metadata="a,b")
        commit(cluster, CommitOffsets(group="billing", offsets=[offset]))
    return cluster


@pytest.mark.usefixtures("with_lag")
def test_a_table_is_printed_as_text_csv_or_json(run: Run) -> None:
    text = run("system", "lag", "--group", "billing")
    assert text.lines[0].split() == [name.upper() for name in TABLES["lag"].schema.names]
    assert [line.split()[3:8] for line in text.lines[1:]] == [
        ["billing", "orders", "0", "1", "3"],
        ["billing", "orders", "1", "1", "2"],
    ]
    rows = list(csv.DictReader(io.StringIO(run("system", "offsets", "--partition", "1", "--csv").out)))
    assert [(row["group"], row["offset"], row["metadata"], row["generation"]) for row in rows] == [
        ("billing", "1", "a,b", "-1")
    ]
    assert rows[0]["timestamp"].endswith("Z")
    document = json.loads(run("system", "topics", "--json").out)
    assert document["table"] == "topics"
    assert [(row["topic"], row["configs"]) for row in document["rows"]] == [("orders", {"retention.ms": "-1"})]
    past = run("system", "lag", "--since", "1h", "--until", "59m", "--step", "10s", "--json")
    assert json.loads(past.out)["rows"] == []


@pytest.mark.usefixtures("with_lag")
def test_no_rows_of_a_topic_or_group_that_does_not_exist_are_explained(run: Run) -> None:
    unknown = run("system", "lag", "--group", "biling", "--topic", "orders")
    assert (unknown.code, len(unknown.lines)) == (0, 1)
    assert unknown.err == "Note: there are no rows: group 'biling' does not exist\n"
    assert "topic 'order' does not exist" in run("system", "appends", "--topic", "order").err
    assert run("system", "throughput", "--topic", "orders", "--partition", "7").err == ""


def test_every_table_can_be_printed_also_without_rows(run: Run, with_lag: Coordinator) -> None:
    for name, table in TABLES.items():
        for flags in ((), ("--csv",), ("--json",)):
            result = run("system", name, *flags)
            assert (result.code, result.err) == (0, ""), (name, flags)
        assert run("system", name, "--csv").lines[0] == ",".join(table.schema.names)


def test_tables_and_their_columns_are_listed(run: Run, root: str) -> None:
    assert tuple(TABLES) == NAMES
    listed = run("system", "--list").lines
    assert [line.split()[0] for line in listed[1:]] == list(TABLES)
    described = run("system", "--describe", "lag")
    assert described.lines[0].startswith("A row of lag is how far a group was behind")
    assert ["lag_seconds", "double"] in [line.split() for line in described.lines]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "exactly one action: a table, --list, --describe"),
        ("lag --list", "exactly one action"),
        ("lagg", "unknown system table 'lagg'; did you mean lag"),
        ("--describe lagg", "unknown system table 'lagg'"),
        ("--list --group g", "--group can't be used with --list or --describe"),
        ("lag --json --csv", 'Option "[csv]" can\'t be used with option "[json]"'),
        ("topics --since 1h", "table topics shows what there is now"),
        ("topics --orphans", "table topics has no orphans, only storage has"),
        ("lag --since soon", "invalid since 'soon'"),
        ("lag --since 7d --step 1ms", "choose a longer step"),
        ("segments --topic nope", "topic 'nope' does not exist"),
    ],
)
def test_invalid_requests_are_refused(run: Run, root: str, line: str, message: str) -> None:
    result = run("system", *line.split())
    assert (result.code, result.out) == (1, "")
    assert message in result.err


def test_a_time_before_the_first_kept_commit_is_said(run: Run, with_lag: Coordinator) -> None:
    assert run("system", "commits", "--since", "1h").err == ""
    with_lag.log.write_checkpoint()
    for version in (0, 1):
        with_lag.store.delete(commit_key(version))
    write_boundary(with_lag.store, Boundary(1))
    first_ms = next(with_lag.log.commits(2, 2)).timestamp
    result = run("system", "commits", "--since", "1h")
    assert f"before {utc_text(first_ms)} were removed" in result.err
    assert result.lines[1].split()[0] == "2"


def test_a_damaged_list_of_retired_files_is_named_and_what_it_hides_is_empty(run: Run, with_lag: Coordinator) -> None:
    retired = RemovedFile("orders-0/00000000000000000000-0-x.log", 0, 70)
    action = write_removed(with_lag.store, with_lag.log.ids, 0, [retired], 10**12)
    commit(with_lag, action)
    listing = action.listing
    with_lag.store.put(listing, b"damaged")
    result = run("system", "storage", "--json", "--orphans")
    assert result.code == 0
    assert f"{with_lag.store.root}/{listing}" in result.err
    (row,) = json.loads(result.out)["rows"]
    assert row["live"] > 0
    assert (row["topic"], row["retired"], row["retired_files"], row["orphaned"]) == ("orders", None, None, None)
