"""consumer-groups --reset-offsets: every scenario, CSV import and export, times, and errors."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from sparklog.cli.arguments.parser import UsageError
from sparklog.cli.commands.admin.consumer_groups import DRY_RUN_WARNING
from sparklog.cli.commands.admin.group_reset import CHECKPOINT_NOTE, parse_duration_ms, parse_time_ms
from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.groups import OffsetSpecs
from sparklog.client.admin.types import PlannedOffset
from sparklog.coordinator import Coordinator
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest, commit_group_offsets, join_group, leave_group
from sparklog.testing.records import Record, append_records
from sparklog.types import TopicPartition

from .conftest import Result, Run

RESET = ("consumer-groups", "--reset-offsets", "--group", "billing")


@pytest.fixture
def filled(cluster: Coordinator) -> Coordinator:
    """Topic orders with 4 and 2 records at 0, 100, 200 … ms; group billing has committed 1 in partition 0."""
    cluster.create_topic("orders", partitions=2)
    for partition, count in ((0, 4), (1, 2)):
        records = [Record(value=b"v", timestamp_us=n * 100_000, partition=partition) for n in range(count)]
        append_records(cluster, "orders", records)
    cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): 1})))
    return cluster


def offsets(cluster: Coordinator, group: str = "billing") -> dict[int, int]:
    return {offset.partition: offset.offset for offset in cluster.refresh().groups[group].offsets.values()}


def table(result: Result) -> list[list[str]]:
    return [line.split() for line in result.lines if line]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-earliest", "--topic", "orders"], {0: 0, 1: 0}),
        (["--to-latest", "--topic", "orders"], {0: 4, 1: 2}),
        (["--to-latest", "--all-topics"], {0: 4}),
        (["--to-offset", "0", "--topic", "orders:0"], {0: 0}),
        (["--to-offset", "3", "--topic", "orders:0,1"], {0: 3, 1: 2}),
        (["--to-offset", "-1", "--topic", "orders:0"], {0: 0}),
        (["--to-current", "--topic", "orders"], {0: 1, 1: 2}),
        (["--shift-by", "2", "--all-topics"], {0: 3}),
        (["--shift-by", "-5", "--all-topics"], {0: 0}),
        (["--to-datetime", "1970-01-01T00:00:00.150", "--topic", "orders"], {0: 2, 1: 2}),
        (["--to-datetime", "1970-01-01T01:00:00.150+01:00", "--topic", "orders"], {0: 2, 1: 2}),
        (["--by-duration", "PT1H", "--topic", "orders:0"], {0: 4}),
        (["--by-duration", "P40000D", "--topic", "orders:0"], {0: 0}),
    ],
)
def test_every_scenario_sets_the_expected_offsets(
    run: Run, filled: Coordinator, arguments: list[str], expected: dict[int, int]
) -> None:
    result = run(*RESET, *arguments, "--execute")
    assert result.code == 0
    assert offsets(filled) == expected
    header, *rows = table(result)
    assert header == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert all(["billing", "orders", str(partition), str(offset)] in rows for partition, offset in expected.items())


def test_only_groups_of_streaming_queries_get_a_note_on_checkpoints(run: Run, filled: Coordinator) -> None:
    assert CHECKPOINT_NOTE in run(*RESET, "--to-latest", "--all-topics", "--execute").err
    filled.submit(partial(join_group, request=JoinRequest(group="billing", member="a", topics=["orders"])))
    filled.submit(partial(leave_group, group="billing", members=["a"], reason="left"))
    assert run(*RESET, "--to-latest", "--all-topics", "--execute").err == ""


@pytest.mark.parametrize(("flags", "warning"), [([], f"{DRY_RUN_WARNING}\n"), (["--dry-run"], "")])
def test_without_execute_no_offset_is_committed(run: Run, filled: Coordinator, flags: list[str], warning: str) -> None:
    result = run(*RESET, "--to-latest", "--topic", "orders", *flags)
    assert table(result)[-1] == ["billing", "orders", "1", "2"]
    assert result.err.startswith(warning)
    assert (DRY_RUN_WARNING in result.err) == bool(warning)
    assert offsets(filled) == {0: 1}


def test_offsets_outside_the_log_are_clamped_with_a_warning(run: Run, filled: Coordinator) -> None:
    result = run(*RESET, "--to-offset", "99", "--topic", "orders:0", "--dry-run")
    assert table(result)[-1] == ["billing", "orders", "0", "4"]
    assert "New offset (99) is higher than latest offset for topic partition orders-0. Value will be set to 4." in (
        result.err
    )
    assert "New offset (-4) is lower than earliest offset for topic partition orders-0. Value will be set to 0." in (
        run(*RESET, "--shift-by", "-5", "--all-topics", "--dry-run").err
    )


def test_a_time_after_the_last_record_falls_back_to_latest_with_a_warning(run: Run, filled: Coordinator) -> None:
    result = run(*RESET, "--to-datetime", "2020-01-01T00:00:00.000", "--topic", "orders:1", "--dry-run")
    assert table(result)[-1] == ["billing", "orders", "1", "2"]
    assert "\nWarn: Partition 1 from topic orders is empty. Falling back to latest known offset.\n" in result.err


@pytest.mark.parametrize("scenario", [("--to-current",), ("--shift-by", "1")])
def test_a_reset_relative_to_a_committed_offset_is_refused_once_that_has_changed(
    run: Run, filled: Coordinator, monkeypatch: pytest.MonkeyPatch, scenario: tuple[str, ...]
) -> None:
    plan = AdminClient.plan_group_offsets

    def plan_early(admin: AdminClient, group: str, specs: OffsetSpecs) -> dict[TopicPartition, PlannedOffset]:
        planned = plan(admin, group, specs)
        filled.submit(partial(commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): 3})))
        return planned

    monkeypatch.setattr(AdminClient, "plan_group_offsets", plan_early)
    result = run(*RESET, *scenario, "--topic", "orders:0", "--execute")
    assert result.code == 1
    assert "which was 1 and is 3 now; nothing was committed, plan it again" in result.err
    assert offsets(filled) == {0: 3}


def test_resetting_an_unknown_group_creates_it(run: Run, filled: Coordinator) -> None:
    new = ["consumer-groups", "--reset-offsets", "--group", "new", "--to-earliest", "--topic", "orders"]
    assert run(*new, "--dry-run").code == 0
    assert "new" not in filled.refresh().groups
    assert run(*new, "--execute").code == 0
    assert offsets(filled, "new") == {0: 0, 1: 0}


def test_a_group_with_members_is_refused_and_the_other_groups_are_reset(run: Run, filled: Coordinator) -> None:
    for group in ("active", "live"):  # in order one before and one after billing
        filled.submit(partial(join_group, request=JoinRequest(group=group, member="a", topics=["orders"])))
    result = run("consumer-groups", "--reset-offsets", "--all-groups", "--to-latest", "--topic", "orders", "--execute")
    assert result.code == 1
    assert result.err.splitlines()[:2] == [
        f"Error: Assignments can only be reset if the group '{group}' is inactive, but the current state is Stable."
        for group in ("active", "live")
    ]
    assert table(result)[1:] == [["billing", "orders", "0", "4"], ["billing", "orders", "1", "2"]]
    assert offsets(filled) == {0: 4, 1: 2}
    assert offsets(filled, "live") == offsets(filled, "active") == {}


def test_exported_offsets_of_one_group_can_be_imported(run: Run, filled: Coordinator, tmp_path: Path) -> None:
    exported = run(*RESET, "--to-earliest", "--topic", "orders", "--dry-run", "--export")
    assert exported.out == "orders,0,0\norders,1,0\n\n"
    file = tmp_path / "plan.csv"
    file.write_text(exported.out.replace("orders,1,0", "orders,1,1"))
    assert run(*RESET, "--from-file", str(file), "--execute").code == 0
    assert offsets(filled) == {0: 0, 1: 1}


def test_exported_offsets_of_several_groups_can_be_imported(run: Run, filled: Coordinator, tmp_path: Path) -> None:
    for group, offset in {"a,b": 1, "billing ": 0}.items():
        filled.submit(partial(commit_group_offsets, commit=GroupCommit(group=group, offsets={("orders", 1): offset})))
    groups = ["--group", "billing", "--group", "a,b"]
    reset = ["consumer-groups", "--reset-offsets", *groups]
    exported = run(*reset, "--to-latest", "--all-topics", "--dry-run", "--export")
    assert exported.out == '"a,b",orders,1,2\nbilling,orders,0,4\n\n'
    file = tmp_path / "plan.csv"
    file.write_text(exported.out)
    assert run(*reset, "--from-file", str(file), "--execute").code == 0
    assert (offsets(filled), offsets(filled, "a,b")) == ({0: 4}, {1: 2})
    file.write_text(f"{exported.out.strip()}\nbilling ,orders,0,1\n")
    assert run(*RESET, "--from-file", str(file), "--execute").code == 0  # only the lines of this group
    assert offsets(filled) == {0: 4}


def test_a_file_without_the_group_is_an_error(run: Run, filled: Coordinator, tmp_path: Path) -> None:
    file = tmp_path / "plan.csv"
    file.write_text("other,orders,0,0\n")
    result = run(*RESET, "--from-file", str(file), "--execute")
    assert (result.code, offsets(filled)) == (1, {0: 1})
    assert "Error: No reset plan for group billing found" in result.err


@pytest.mark.parametrize("content", ["orders,0", "orders,x,0", "orders,0,-1", "a,b,c,d,e", "orders,0,9" * 10])
def test_a_malformed_file_is_refused_with_the_line_number(
    run: Run, filled: Coordinator, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(f"orders,0,0\n{content}\n")
    result = run(*RESET, "--from-file", str(file), "--execute")
    assert (result.code, offsets(filled)) == (1, {0: 1})
    assert f"line 2 of {file} is not topic,partition,offset" in result.err


def test_a_missing_file_is_named(run: Run, filled: Coordinator, tmp_path: Path) -> None:
    assert f"{tmp_path}/none.csv cannot be read" in run(*RESET, "--from-file", f"{tmp_path}/none.csv", "--execute").err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--all-topics"], "Option '[reset-offsets]' requires one of the following scenarios: "),
        (["--all-topics", "--to-latest", "--to-earliest"],
         'Option "[to-earliest]" can\'t be used with option "[to-latest]"'),
        (["--all-topics", "--to-offset", "0", "--shift-by", "0"],
         'Option "[to-offset]" can\'t be used with option "[shift-by]"'),
        (["--to-latest"], "One of the reset scopes should be defined: --all-topics, --topic."),
        (["--to-latest", "--all-topics", "--execute", "--dry-run"],
         "Option [reset-offsets] only accepts one of [execute] and [dry-run]"),
        (["--topic", "orders:x", "--to-latest"], "Invalid partition 'x' specified in topic arg 'orders:x'"),
        (["--topic", "orders:", "--to-latest"], "Invalid topic arg 'orders:', expected topic name and partitions"),
        (["--topic", "orders:5", "--to-latest"], "topic 'orders' has partitions 0 to 1, not 5"),
        (["--topic", "nope", "--to-latest"], "topic 'nope' does not exist"),
        (["--topic", "orders", "--to-datetime", "soon"], "It does not contain a 'T' according to ISO8601 format"),
        (["--topic", "orders", "--by-duration", "1 hour"], "'1 hour' cannot be parsed to a Duration"),
        (["--topic", "orders", "--shift-by", "1"],
         "Cannot shift offset for partition orders-1 since there is no current committed offset"),
        (["--topic", "orders", "--to-offset", "many"], "invalid int value: 'many'"),
    ],
)  # fmt: skip
def test_usage_errors_have_kafkas_messages_and_change_nothing(
    run: Run, filled: Coordinator, arguments: list[str], complaint: str
) -> None:
    result = run(*RESET, *arguments)
    assert (result.code, result.out) == (1, "")
    assert complaint in result.err
    assert offsets(filled) == {0: 1}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("P1DT2H30M5S", 95_405_000),
        ("PT1.5S", 1500),
        ("pt-1.5s", -1500),
        ("-PT1M", -60_000),
        ("PT36H", 129_600_000),
    ],
)
def test_durations_are_parsed_as_in_java(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "PT1H30", "P1Y", "PT.5S", "P1D1H"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:00", 0),
        ("1970-01-02T00:00:00.001Z", 86_400_001),
        ("1970-01-01T02:00:00.000+02", 0),
        ("1970-01-01T02:30:00.000+0230", 0),
        ("1969-12-31T22:00:00.000-02:00", 0),
        ("2026-01-31T12:00:00.000", 1_769_860_800_000),
    ],
)
def test_times_without_a_zone_are_utc(text: str, milliseconds: int) -> None:
    assert parse_time_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["2026-01-31", "2026-02-30T00:00:00.000", "2026-01-31T25:00:00.000", "T", "xTy"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time_ms(text)
