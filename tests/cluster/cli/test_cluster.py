"""Creating a cluster, describing it, and its id."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.protocol import levels
from sparklog.protocol.commit_bytes import FORMAT, encode_to_store
from sparklog.protocol.commits import Action, AlterConfig, ChangeBroker, Commit, ElectController, commit_key
from sparklog.protocol.fold import Draft
from sparklog.testing.records import Record, append_records

from .conftest import Run, commit

LISTED = "create, describe, cluster-id, list-endpoints, mirror, promote or reset-time"


def test_created_cluster_is_usable_immediately(run: Run, tmp_path: Path) -> None:
    root = str(tmp_path / "new" / "log")
    result = run("cluster", "create", "--bootstrap-server", root)
    assert result == (0, f"Created cluster {open_cluster(root).state.cluster_id} at {root}.\n", "")
    assert run("topics", "--create", "--topic", "t", "--bootstrap-server", root).code == 0


def test_creating_an_existing_cluster_fails_without_if_not_exists(run: Run, root: str) -> None:
    result = run("cluster", "create")
    assert result.code == 1
    assert "already holds cluster" in result.err
    assert "; with --if-not-exists this succeeds" in result.err
    assert run("cluster", "create", "--if-not-exists") == (0, "", "")


def test_cluster_id_is_printed_in_kafkas_format(run: Run, cluster: Coordinator) -> None:
    assert run("cluster", "cluster-id") == (0, f"Cluster ID: {cluster.state.cluster_id}\n", "")


def test_describe_shows_versions_and_counts(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("empty")
    append_records(cluster, "orders", [Record(value=b"v", partition=n % 2) for n in range(5)])
    cluster.log.write_checkpoint()
    size = sum(partition.size_bytes for partition in cluster.state.topic("orders").partitions)
    result = run("cluster", "describe")
    assert result.code == 0
    assert re.sub(r"commit [^)]*", "commit TIME", result.out).splitlines() == [
        f"Cluster ID: {cluster.state.cluster_id}",
        f"Root:       {cluster.store.root}",
        f"Level:      {levels.CURRENT} (needs sparklog {levels.NEEDS} or newer)",
        "Version:    3 (last commit TIME)",
        "Boundary:   none: all commits are kept",
        "Checkpoint: 3",
        f"Brokers:    0 ({cluster.store.root})",
        "Topics:     2",
        "Partitions: 3",
        "Segments:   2",
        "Offsets:    5",
        f"Size:       {size} bytes",
        "",
        "TOPIC  PARTITIONS   SEGMENTS         OFFSETS           BYTES",
        "empty           1          0               0               0",
        f"orders          2          2               5 {size:>15}",
    ]


def test_describe_shows_brokers_the_controller_and_retired_files(
    run: Run, cluster: Coordinator, tmp_path: Path
) -> None:
    add_broker(cluster, str(tmp_path / "disk1"))
    cluster.create_topic("orders")
    append_records(cluster, "orders", [Record(value=b"v")])
    commit(
        cluster,
        ChangeBroker(broker=1, online=False, cordoned=True),
        ElectController(controller="me", controller_epoch=3),
    )
    run("topics", "--delete", "--topic", "orders")
    lines = run("cluster", "describe").lines
    assert f"Brokers:    0 ({cluster.store.root}), 1 ({tmp_path / 'disk1'}, offline, cordoned)" in lines
    assert "Controller: me (epoch 3)" in lines
    assert any(re.fullmatch(r"Removed:    1 file of \d+ bytes, to be deleted .*", line) for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing action: create, describe, cluster-id, list-endpoints, mirror, promote or reset-time"),
        (
            ["desribe"],
            f"unknown action 'desribe': {LISTED}; did you mean describe?",
        ),
        (["mirror"], 'Missing required argument "[to]"'),
        (["promote"], 'Missing required argument "[to]"'),
        (["mirror", "--to", "/x", "--force"], 'Option "[force]" can\'t be used with option "[mirror]"'),
        (["describe", "--to", "/x"], 'Option "[to]" can\'t be used with option "[describe]"'),
        (["describe", "--if-not-exists"], 'Option "[if-not-exists]" can\'t be used with option "[describe]"'),
    ],
)
def test_usage_errors_are_reported_and_exit_with_1(run: Run, root: str, arguments: list[str], message: str) -> None:
    assert run("cluster", *arguments) == (1, "", f"{message}\n`sparklog cluster --help` lists the options.\n")


def test_promote_updates_the_mirror_and_closes_the_old_root(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    mirror = str(tmp_path / "mirror")
    cluster.create_topic("orders")
    append_records(cluster, "orders", [Record(value=b"v")])
    version = cluster.refresh().version
    first = run("cluster", "mirror", "--to", mirror)
    assert (first.code, first.err) == (0, "")
    assert first.out.startswith(f"{mirror} mirrors version {version}: {version + 1} commits, ")
    assert run("cluster", "mirror", "--to", mirror).out.startswith(f"{mirror} mirrors version {version}: 0 commits, ")
    cluster.create_topic("refunds")
    promoted = run("cluster", "promote", "--to", mirror)
    assert (promoted.code, promoted.err) == (0, "")
    assert promoted.out.startswith(f"The cluster's root is now {mirror}, version ")
    assert promoted.out.endswith(f", in place of {cluster.store.root}.\n")
    assert run("topics", "--list", "--bootstrap-server", mirror).lines == ["orders", "refunds"]
    moved = run("topics", "--list")
    assert moved.code == 1
    assert f"has moved from {cluster.store.root} to {mirror}" in moved.err


def test_promoting_a_mirror_of_a_lost_root_requires_force(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    mirror = str(tmp_path / "mirror")
    run("cluster", "mirror", "--to", mirror)
    Path(cluster.store.root).rename(tmp_path / "lost")
    refused = run("cluster", "promote", "--to", mirror)
    assert (refused.code, refused.out) == (1, "")
    assert "Bring the old root back, or give --force" in refused.err
    forced = run("cluster", "promote", "--to", mirror, "--force")
    assert forced.code == 0
    assert "WARNING: commits of the old root that had not been mirrored are lost." in forced.err
    assert run("cluster", "cluster-id", "--bootstrap-server", mirror).out == (
        f"Cluster ID: {cluster.state.cluster_id}\n"
    )


def test_promote_refuses_a_folder_that_is_not_a_mirror(run: Run, root: str, tmp_path: Path) -> None:
    result = run("cluster", "promote", "--to", str(tmp_path / "nothing"))
    assert (result.code, result.out) == (1, "")
    assert "is not a mirror" in result.err


DAY_SECONDS = 86_400


def test_reset_time_corrects_a_log_time_that_is_in_the_future(run: Run, root: str, cluster: Coordinator) -> None:
    state = cluster.refresh()
    commit_with_future_time(cluster, SystemClock().now_ms() + 8 * DAY_SECONDS * 1000)
    checked = run("fsck")
    assert checked.code == 1
    assert "time-ahead" in checked.out
    assert "reset-time" in checked.out
    result = run("cluster", "reset-time")
    assert result.code == 0
    assert re.fullmatch(r"The log's time was .* UTC, 69\d{4} s ahead, and is now .* UTC\.\n", result.out)
    assert abs(cluster.refresh().timestamp_ms - SystemClock().now_ms()) < 60_000
    assert cluster.state.version == state.version + 2
    assert run("fsck").code == 0
    assert run("topics", "--create", "--topic", "t").code == 0


def test_reset_time_keeps_a_log_time_that_is_not_in_the_future(run: Run, cluster: Coordinator) -> None:
    version = cluster.refresh().version
    result = run("cluster", "reset-time")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("not in the future: nothing to do.\n")
    assert cluster.refresh().version == version


def commit_with_future_time(cluster: Coordinator, timestamp_ms: int) -> None:
    """Store a commit as sparklog 0.1 wrote it on a machine whose clock was ahead."""
    state = cluster.refresh()
    actions: list[Action] = [AlterConfig(topic="", set={"log.retention.hours": "1000"})]
    draft = Draft(state, timestamp_ms)
    for action in actions:
        draft.apply(action)
    commit_ahead = Commit(
        format=FORMAT,
        version=state.version + 1,
        write_id="ahead",
        timestamp=timestamp_ms,
        previous=state.digest,
        checksum=draft.finish(state.version + 1, "").checksum,
        actions=actions,
    )
    cluster.store.put_if_absent(commit_key(commit_ahead.version), encode_to_store(commit_ahead).data)
