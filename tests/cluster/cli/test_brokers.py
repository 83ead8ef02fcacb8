"""``sparklog brokers``: adds, lists, drains, moves, replaces and removes brokers."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, broker_probes
from sparklog.coordinator.brokers import add_broker
from sparklog.log.broker_files import read_allowed, read_note
from sparklog.protocol.commits import ChangeBroker

from .conftest import Run, change_partition, commit


def test_add_registers_a_location_under_the_next_free_id_or_the_given_one(
    run: Run, cluster: Coordinator, tmp_path: Path
) -> None:
    location = tmp_path / "disk1"
    assert run("brokers", "add", "--location", str(location)) == (0, f"Added broker 1 at {location}.\n", "")
    assert cluster.refresh().brokers[1].url == str(location)
    assert run("brokers", "add", "--location", str(tmp_path / "disk7"), "--id", "7").out == (
        f"Added broker 7 at {tmp_path / 'disk7'}.\n"
    )
    assert sorted(cluster.refresh().brokers) == [0, 1, 7]


def test_list_shows_state_replicas_and_leaders_of_each_broker(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    run("brokers", "add", "--location", str(tmp_path / "disk1"))
    run("brokers", "add", "--location", str(tmp_path / "disk2"))
    cluster.refresh()
    cluster.create_topic("t", assignment=[[0, 1], [1, 0], [1, 0]])
    change_partition(cluster, "t", 2, isr=[1])
    commit(cluster, ChangeBroker(broker=2, online=False), ChangeBroker(broker=2, cordoned=True))
    assert run("brokers", "list").out == (
        "BROKER STATE            REPLICAS OUT-OF-SYNC LEADERS BYTES LAST-SEEN LOCATION\n"
        f"0      online           3        1           1       0     now       {cluster.store.root}\n"
        f"1      online           3        0           2       0     now       {tmp_path / 'disk1'}\n"
        f"2      offline,cordoned 0        0           0       0     now       {tmp_path / 'disk2'}\n"
    )


def test_a_missing_location_is_listed_as_unreachable_with_its_last_check(
    run: Run, cluster: Coordinator, tmp_path: Path
) -> None:
    for number in (1, 2):
        run("brokers", "add", "--location", str(tmp_path / f"disk{number}"))
    assert run("maintain", "--once", "--only", "elections").code == 0
    checked_ms = read_note(cluster.store, 1).time_ms
    shutil.rmtree(tmp_path / "disk1")
    listed = run("brokers", "list", "--json")
    missing = json.loads(listed.out)["brokers"][1]
    assert (missing["state"], missing["last_seen_ms"]) == ("unreachable", checked_ms)
    assert "broker.json is missing" in missing["problem"]
    shown = run("brokers", "list")
    last_seen = datetime.fromtimestamp(checked_ms // 1000, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert shown.lines[2].split() == ["1", "unreachable", "0", "0", "0", "0", last_seen, str(tmp_path / "disk1")]
    assert shown.lines[3].split()[1] == "online"
    assert shown.err.startswith("broker 1 did not answer: ")


def test_an_unchecked_location_has_no_last_seen_time(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    run("brokers", "add", "--location", str(tmp_path / "disk1"))
    shutil.rmtree(tmp_path / "disk1")
    assert run("brokers", "list").lines[2].split()[6] == "-"


def test_list_times_out_on_a_hanging_location(
    run: Run, cluster: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("brokers", "add", "--location", str(tmp_path / "disk1"))
    release = threading.Event()

    def hang(*_: object) -> None:
        release.wait()

    monkeypatch.setattr(broker_probes, "check_identity", hang)  # stands in for a hanging disk
    try:
        listed = run("brokers", "list", "--timeout", "0", "--json")
    finally:
        release.set()
    assert [broker["problem"] for broker in json.loads(listed.out)["brokers"]] == [None, "no answer within 0 s"]


def test_exit_code_option_reports_an_unreachable_broker(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    run("brokers", "add", "--location", str(tmp_path / "disk1"))
    assert run("brokers", "list", "--exit-code").code == 0
    shutil.rmtree(tmp_path / "disk1")
    assert run("brokers", "list", "--exit-code").code == 2
    assert run("brokers", "list").code == 0


def test_a_broker_is_cordoned_and_uncordoned(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    run("brokers", "add", "--location", str(tmp_path / "disk1"))
    assert run("brokers", "cordon", "--id", "1").out == "Broker 1 is cordoned.\n"
    assert run("brokers", "cordon", "--id", "1").out == "Broker 1 is already cordoned.\n"
    assert cluster.refresh().brokers[1].cordoned
    refused = run("topics", "--create", "--topic", "t", "--replication-factor", "2")
    assert refused.code == 1
    assert run("brokers", "uncordon", "--id", "1").out == "Broker 1 is not cordoned.\n"
    assert run("topics", "--create", "--topic", "t", "--replication-factor", "2").code == 0


def test_a_broker_is_drained_and_then_removed(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    for number in (1, 2):
        run("brokers", "add", "--location", str(tmp_path / f"disk{number}"))
    cluster.refresh()
    cluster.create_topic("t", assignment=[[1, 0], [2, 1]])
    with Producer(bootstrap_servers=cluster.store.root, acks="all") as producer:
        for number in range(10):
            producer.send("t", value=b"v", partition=number % 2).get()
    result = run("brokers", "drain", "--id", "1")
    assert (result.code, result.out) == (
        0, "Broker 1 is cordoned.\nSuccessfully started partition reassignments for t-0,t-1\n"
    )  # fmt: skip
    assert "`sparklog maintain` copies them" in result.err
    assert run("brokers", "remove", "--id", "1").code == 1
    maintained = run("maintain", "--once", "--only", "replication")
    assert maintained.lines[0].startswith("replication: files copied 10, replicas in sync again 2, bytes copied ")
    assert run("brokers", "drain", "--id", "1").out == "Broker 1 is cordoned.\n"
    assert run("brokers", "remove", "--id", "1") == (0, "Removed broker 1.\n", "")
    assert [sorted(partition.isr) for partition in cluster.refresh().topic("t").partitions] == [[0, 2], [0, 2]]


def test_move_is_refused_until_the_files_are_at_the_new_location(
    run: Run, cluster: Coordinator, tmp_path: Path
) -> None:
    run("brokers", "add", "--location", str(tmp_path / "disk1"))
    (tmp_path / "elsewhere").mkdir()
    refused = run("brokers", "move", "--id", "1", "--location", str(tmp_path / "elsewhere"))
    assert (refused.code, refused.out) == (1, "")
    assert "move its files there first" in refused.err
    (tmp_path / "elsewhere").rmdir()
    shutil.move(tmp_path / "disk1", tmp_path / "elsewhere")
    moved = run("brokers", "move", "--id", "1", "--location", str(tmp_path / "elsewhere"))
    assert moved == (0, f"Broker 1 is at {tmp_path / 'elsewhere'}.\n", "")


def test_replace_recreates_a_lost_location_empty(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    run("brokers", "add", "--location", str(tmp_path / "disk1"))
    shutil.rmtree(tmp_path / "disk1")
    result = run("brokers", "replace", "--id", "1")
    assert (result.code, result.out) == (0, f"Broker 1 is {tmp_path / 'disk1'}.\n")
    assert "`sparklog maintain` finds the missing files" in result.err
    assert (tmp_path / "disk1" / "broker.json").exists()


def test_take_over_makes_a_restored_root_the_owner(run: Run, cluster: Coordinator, tmp_path: Path) -> None:
    assert run("brokers", "take-over") == (0, "This root owns no location but its own now.\n", "")
    run("brokers", "add", "--location", str(tmp_path / "disk1"))
    run("brokers", "add", "--location", str(tmp_path / "disk2"))
    for number in (1, 2):
        cluster.store.delete(f"leases/owners/{number}")
    refused = run("vacuum", "--execute")
    assert refused.code == 1
    assert "sparklog brokers take-over" in refused.err
    (tmp_path / "disk2").rename(tmp_path / "away")
    taken = run("brokers", "take-over")
    assert (taken.code, taken.out) == (0, "This root owns the location of broker 1 now.\n")
    assert "broker 2" in taken.err
    assert "when they answer" in taken.err
    (tmp_path / "away").rename(tmp_path / "disk2")
    assert run("vacuum", "--execute").code == 0
    assert run("brokers", "take-over").out == "This root owns the locations of brokers 1,2 now.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "--force"], 'Option "[force]" can\'t be used with option "[list]"'),
        ([], "missing action: add, list, remove, cordon, uncordon, drain, move, replace, take-over, allow, disallow"),
        (
            ["remov"],
            "unknown action 'remov': add, list, remove, cordon, uncordon, drain, move, replace, take-over, allow, "
            "disallow; did you mean remove?",
        ),
        (["add"], 'Missing required argument "[location]"'),
        (["remove"], 'Missing required argument "[id]"'),
        (["list", "--id", "1"], 'Option "[id]" can\'t be used with option "[list]"'),
        (["cordon", "--id", "1", "--location", "/x"], 'Option "[location]" can\'t be used with option "[cordon]"'),
        (["cordon", "--id", "one"], "argument --id: invalid int value: 'one'"),
        (["cordon", "--id", "1_0"], "argument --id: invalid int value: '1_0'"),
        (["cordon", "--id", "9"], "broker 9 is not registered; registered brokers: [0]"),
        (["remove", "--id", "0"], "broker 0 is the root of the cluster and cannot be removed"),
        (["add", "--location", "gopher://x/y"], "gopher"),
    ],
)
def test_usage_errors_are_reported_and_change_nothing(
    run: Run, cluster: Coordinator, arguments: list[str], message: str
) -> None:
    before = cluster.refresh().version
    result = run("brokers", *arguments)
    assert (result.code, result.out) == (1, "")
    assert message in result.err.splitlines()[0]
    assert cluster.refresh().version == before


def test_nested_locations_are_refused(run: Run, cluster: Coordinator) -> None:
    result = run("brokers", "add", "--location", f"{cluster.store.root}/inside")
    assert result.code == 1
    assert "are nested" in result.err
    assert list(cluster.refresh().brokers) == [0]
    assert not Path(cluster.store.root, "inside").exists()


def test_a_location_prefix_is_allowed_and_disallowed(run: Run, cluster: Coordinator) -> None:
    prefix = ("--location", "s3://other-bucket/logs/")
    assert run("brokers", "allow", *prefix) == (0, "Brokers below s3://other-bucket/logs are allowed.\n", "")
    assert run("brokers", "allow", *prefix).out == "Brokers below s3://other-bucket/logs are already allowed.\n"
    assert read_allowed(cluster.store) == ("s3://other-bucket/logs",)
    assert run("brokers", "disallow", *prefix).out == "s3://other-bucket/logs is no longer allowed.\n"
    assert run("brokers", "disallow", *prefix).out == "s3://other-bucket/logs is not on the list.\n"
    assert run("brokers", "allow", "--location", "/disk1/log").out == "Brokers below /disk1/log are already allowed.\n"


@pytest.fixture
def with_missing_location(run: Run, cluster: Coordinator, tmp_path: Path) -> Coordinator:
    """Three brokers with replicas of orders-0; the location of broker 1 is missing, but still marked online."""
    for number in (1, 2):
        run("brokers", "add", "--location", str(tmp_path / f"disk{number}"))
    cluster.refresh()
    cluster.create_topic("orders", assignment=[[0, 1, 2]])
    shutil.rmtree(tmp_path / "disk1")
    return cluster


def test_list_endpoints_shows_only_reachable_brokers_by_default(run: Run, with_missing_location: Coordinator) -> None:
    listed = run("cluster", "list-endpoints")
    assert [line.split()[0] for line in listed.lines[1:]] == ["0", "2"]
    assert listed.err.startswith("broker 1 did not answer: ")
    states = [
        (broker["id"], broker["state"])
        for broker in json.loads(run("cluster", "list-endpoints", "--json").out)["endpoints"]
    ]
    assert states == [(0, "unfenced"), (2, "unfenced")]
    with_fenced = run("cluster", "list-endpoints", "--include-fenced-brokers")
    assert [(line.split()[0], line.split()[4]) for line in with_fenced.lines[1:]] == [
        ("0", "unfenced"), ("1", "fenced"), ("2", "unfenced")
    ]  # fmt: skip


def test_the_log_dir_of_an_unreachable_broker_has_kafkas_storage_error(
    run: Run, with_missing_location: Coordinator
) -> None:
    described = run("log-dirs", "--describe")
    assert described.lines[1] == "Received log directory information from brokers 0,1,2"
    brokers = json.loads(described.lines[2])["brokers"]
    dirs = [
        (broker["broker"], log_dir["error"], len(log_dir["partitions"]))
        for broker in brokers
        for log_dir in broker["logDirs"]
    ]
    assert dirs == [(0, None, 1), (1, "org.apache.kafka.common.errors.KafkaStorageException", 0), (2, None, 1)]
    assert (described.code, described.err.count("\n")) == (0, 1)
    assert described.err.startswith("broker 1 did not answer: ")
    only = run("log-dirs", "--describe", "--broker-list", "2", "--json")
    assert ([broker["broker"] for broker in json.loads(only.out)["brokers"]], only.err) == ([2], "")


def test_cluster_describe_shows_an_unreachable_broker(
    run: Run, with_missing_location: Coordinator, tmp_path: Path
) -> None:
    described = run("cluster", "describe")
    assert f"1 ({tmp_path / 'disk1'}, unreachable), 2 ({tmp_path / 'disk2'})\n" in described.out
    brokers = json.loads(run("cluster", "describe", "--json").out)["brokers"]
    assert [(broker["online"], broker["state"]) for broker in brokers] == [
        (True, "online"), (True, "unreachable"), (True, "online")
    ]  # fmt: skip


def test_a_broker_marked_offline_is_offline_in_every_command(run: Run, cluster: Coordinator) -> None:
    add_broker(cluster, f"{cluster.store.root}-1")
    commit(cluster, ChangeBroker(broker=1, online=False))
    assert len(run("cluster", "list-endpoints").lines) == 2
    log_dir = json.loads(run("log-dirs", "--describe", "--json").out)["brokers"][1]["logDirs"][0]
    assert log_dir["error"] == "org.apache.kafka.common.errors.KafkaStorageException"
    assert json.loads(run("cluster", "describe", "--json").out)["brokers"][1]["state"] == "offline"
