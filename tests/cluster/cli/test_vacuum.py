"""``sparklog vacuum``: lists orphans, deletes them with --execute, and refuses a short age without --force."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.cli.arguments.parser import UsageError
from sparklog.cli.commands.storage.vacuum import milliseconds
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator

from .conftest import Run


@pytest.fixture
def orders(cluster: Coordinator) -> Coordinator:
    """A topic with records, two orphans begun at the first version, and a file without a version in its name."""
    cluster.create_topic("orders")
    with Producer(bootstrap_servers=cluster.store.root) as producer:
        producer.send("orders", value=b"v", partition=0).get()
    for name in ("00000000000000000007-v0-abandoned.log", "00000000000000000007-v0-abandoned.index"):
        Path(cluster.store.root, "orders-0", name).write_bytes(b"x" * 1500)
    Path(cluster.store.root, "orders-0", "00000000000000000003-old.log").write_bytes(b"x")
    cluster.refresh()
    return cluster


def names(cluster: Coordinator) -> list[str]:
    return sorted(path.name for path in Path(cluster.store.root, "orders-0").iterdir())


def test_a_dry_run_lists_orphans_and_changes_nothing(run: Run, orders: Coordinator) -> None:
    before, version = names(orders), orders.state.version
    result = run("vacuum", "--older-than", "0s", "--force")
    assert (result.code, result.err) == (0, "")
    assert result.lines == [
        f"Orphans, begun at version {version} or before:",
        "  broker 0\t1,500 bytes\torders-0/00000000000000000007-v0-abandoned.index\tits writer ended before its commit",
        "  broker 0\t1,500 bytes\torders-0/00000000000000000007-v0-abandoned.log\tits writer ended before its commit",
        "Not deleted by vacuum:",
        "  broker 0\t1 bytes\torders-0/00000000000000000003-old.log\tits name has no version, so a writer may still "
        "need it",
        "Dry run: nothing was deleted; --execute deletes 2 files, 3,000 bytes.",
    ]
    assert names(orders) == before
    assert orders.refresh().version == version


def test_execute_deletes_only_orphans(run: Run, orders: Coordinator) -> None:
    before = names(orders)
    result = run("vacuum", "--older-than", "0s", "--force", "--execute")
    assert result.code == 0
    assert "Deleted 2 files, 3,000 bytes." in result.lines
    assert names(orders) == [name for name in before if "abandoned" not in name]
    assert run("vacuum", "--older-than", "0s", "--force").lines[-1].endswith("--execute deletes 0 files, 0 bytes.")


def test_younger_files_are_kept(run: Run, orders: Coordinator) -> None:
    result = run("vacuum", "--execute")
    assert result.code == 0
    assert "Deleted 0 files, 0 bytes." in result.lines
    assert "2 files begun later may still become part of the log; a later vacuum checks them." in result.lines


def test_a_long_list_is_shortened_without_verbose(run: Run, orders: Coordinator) -> None:
    for number in range(50):
        Path(orders.store.root, "orders-0", f"{number:020d}-v0-left{number}.log").write_bytes(b"x" * 10)
    result = run("vacuum", "--older-than", "0s", "--force")
    assert sum("its writer ended" in line for line in result.lines) == 20
    assert "  and 32 files, 320 bytes; --verbose lists them" in result.lines
    assert sum("its writer ended" in line for line in run(
        "vacuum", "--older-than", "0s", "--force", "--verbose").lines) == 52  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--older-than", "soon"], "invalid --older-than 'soon': must be a duration such as 36h or 7d (s, m, h or d)"),
        (["--older-than", "-1d"], "argument --older-than: expected one argument"),
        (["--older-than", "1h", "--execute"], "invalid age limit: 3600000 ms is less than 86400000 ms (a day)"),
        (["--execute", "--dry-run"], 'Option "[execute]" can\'t be used with option "[dry-run]"'),
    ],
)
def test_usage_errors_are_reported_and_nothing_is_deleted(
    run: Run, orders: Coordinator, arguments: list[str], message: str
) -> None:
    before, version = names(orders), orders.state.version
    result = run("vacuum", *arguments)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(message)
    assert (names(orders), orders.refresh().version) == (before, version)


def test_durations_require_a_unit() -> None:
    assert [milliseconds(text) for text in ("45s", "90m", "36h", " 7d ")] == [
        45_000, 5_400_000, 129_600_000, 604_800_000,
    ]  # fmt: skip
    with pytest.raises(UsageError):
        milliseconds("7")
