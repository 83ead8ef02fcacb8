"""A full disk is freed by sparklog's own commands: a root on a disk keeps a reserve for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog import limits
from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import ConfigResource, ConfigResourceType
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import StorageFullError
from sparklog.log.commits.retired_files import REMOVED
from sparklog.log.layout import RESERVE_KEY
from sparklog.log.reserve import keep_reserve, release_reserve, with_reserve
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.store.local import LocalStore
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted
from sparklog.types import TopicPartition

FREED = """
set -e
mount -t tmpfs -o OPTIONS tmpfs "$1" || { echo skipped; exit 0; }
cd "$1"
sparklog() { "$SPARKLOG" "$@"; }
sparklog cluster create --bootstrap-server log
sparklog topics --bootstrap-server log --create --topic t --config file.delete.delay.ms=0 --config segment.ms=1
for number in 1 2 3 4; do
    head -c 400000 /dev/zero | tr '\\0' x > values
    sparklog console-producer --bootstrap-server log --topic t --compression-codec none < values
done
FILL
test "$(df --output=AVAILABLE . | tail -1)" -eq 0
sparklog WHAT
sparklog maintain --bootstrap-server log --once --only retention,deletion
test -z "$(ls t-0 2>/dev/null)" || test -z "$(ls log/t-0)"
test "$(df --output=AVAILABLE . | tail -1)" -gt ENOUGH
sparklog maintain --bootstrap-server log --once
test -s log/meta/reserve
test -s log/meta/reserve-7
sparklog fsck --bootstrap-server log
echo freed
"""

DISKS = {
    "bytes": {
        "OPTIONS": "size=4m",
        "FILL": "dd if=/dev/zero of=filler bs=4k 2>/dev/null || true",
        "AVAILABLE": "avail",
        "ENOUGH": "1500",
    },
    "inodes": {
        "OPTIONS": "size=40m,nr_inodes=500",
        "FILL": "mkdir filler; for n in $(seq 500); do : 2>/dev/null > filler/$n || break; done",
        "AVAILABLE": "iavail",
        "ENOUGH": "5",
    },
}
"""Disks on which one of the two runs out; a file of a record takes two inodes, one for its index."""


@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize(
    "command",
    [
        "delete-records --bootstrap-server log --offset-json-file /dev/stdin "
        """<<< '{"partitions": [{"topic": "t", "partition": 0, "offset": -1}]}'""",
        "topics --bootstrap-server log --delete --topic t",
    ],
    ids=["records", "topic"],
)
def test_commands_free_a_disk_that_is_full(tmp_path: Path, command: str, disk: str) -> None:
    script = FREED.replace("WHAT", command)
    for name, text in DISKS[disk].items():
        script = script.replace(name, text)
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    ended = subprocess.run(
        ["unshare", "-m", "bash", "-c", script, "bash", str(tmp_path)],
        env={**os.environ, "SPARKLOG": str(Path(sys.executable).parent / "sparklog")},
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    if "skipped" in ended.stdout:
        pytest.skip("this machine does not let us mount a tmpfs")
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["freed"]), ended.stdout + ended.stderr


def test_a_root_on_a_disk_has_a_reserve_and_a_check_knows_it(tmp_path: Path) -> None:
    cluster = create_cluster(str(tmp_path / "log"))
    assert cluster.store.info(RESERVE_KEY).size == limits.RESERVE_BYTES
    assert check_cluster(cluster.store).report.findings == []


def test_the_reserve_is_released_once_and_put_back(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    keep_reserve(store)
    tries = []

    def work() -> str:
        tries.append(store.info(RESERVE_KEY) if (tmp_path / RESERVE_KEY).exists() else None)
        if len(tries) < 2:
            raise StorageFullError("full")
        return "done"

    assert with_reserve(store, work) == "done"
    assert [each is None for each in tries] == [False, True]
    assert not release_reserve(store)
    keep_reserve(store)
    assert release_reserve(store)


def test_without_a_reserve_the_error_is_raised() -> None:
    calls = []

    def work() -> None:
        calls.append(1)
        raise StorageFullError("full")

    store = MemoryStore("no-reserve")
    keep_reserve(store)
    assert list(store.list()) == []
    with pytest.raises(StorageFullError):
        with_reserve(store, work)
    assert len(calls) == 1


def full_on_commit(folder: Path) -> tuple[AdminClient, Path]:
    """A cluster on a disk that is full as long as it has its reserve."""
    cluster = create_cluster(str(folder))
    cluster.create_topic("t")
    with Producer(cluster=cluster) as producer:
        producer.send("t", b"x")
    reserve = folder / RESERVE_KEY

    def fail(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and reserve.exists():
            raise StorageFullError("no space left on device", path=call.key, nothing_written=True)

    with substituted(FaultyStore(LocalStore(str(folder)), before=fail)):
        return AdminClient(bootstrap_servers=str(folder)), reserve


def test_a_topic_whose_listing_does_not_fit_is_deleted_and_a_vacuum_finds_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "log")
    cluster = create_cluster(root)
    cluster.create_topic("t", configs={"file.delete.delay.ms": "0"})
    for value in (b"a", b"b", b"c"):
        with Producer(cluster=cluster) as producer:
            producer.send("t", value)
    monkeypatch.setattr(limits, "LISTED_FILES", 1)
    listings = []

    def fail(step: int, call: Call) -> None:
        if call.operation == "open_output" and call.key.startswith(REMOVED):
            listings.append(call.key)
            if len(listings) < 3:
                raise StorageFullError("no space left on device", path=call.key, nothing_written=True)

    with substituted(FaultyStore(LocalStore(root), before=fail)):
        AdminClient(bootstrap_servers=root).delete_topics(["t"])
    cluster = open_cluster(root)
    assert [listing.files for listing in cluster.refresh().removed_files.values()] == [1]
    assert sweep(cluster).files == 1
    assert len(vacuum(cluster, older_than_ms=0, dry_run=False, force=True).files) == 4  # with their indexes
    assert not list((tmp_path / "log").glob("t-0/*.log"))


TOPIC = ConfigResourceType.TOPIC
CLUSTER = ConfigResourceType.BROKER


@pytest.mark.parametrize(
    ("command", "frees"),
    [
        (lambda admin: admin.delete_topics(["t"]), True),
        (lambda admin: admin.delete_records({TopicPartition("t", 0): 1}), True),
        (lambda admin: admin.alter_configs([ConfigResource(TOPIC, "t", {"retention.ms": "1"})]), True),
        (lambda admin: admin.alter_configs([ConfigResource(CLUSTER, "", {"log.retention.ms": "1"})]), True),
        (lambda admin: admin.create_topics(["new"]), False),
        (lambda admin: admin.create_partitions({"t": 5}), False),
        (lambda admin: admin.alter_configs([ConfigResource(TOPIC, "t", {"segment.bytes": "2000000"})]), False),
        (
            lambda admin: admin.alter_configs(
                [
                    ConfigResource(TOPIC, "t", {"retention.ms": "1"}),
                    ConfigResource(CLUSTER, "", {"num.partitions": "3"}),
                ]
            ),
            False,
        ),
    ],
)
def test_only_what_frees_space_gets_the_reserve(
    tmp_path: Path, command: Callable[[AdminClient], object], frees: bool
) -> None:
    admin, reserve = full_on_commit(tmp_path / "log")
    if frees:
        command(admin)
    else:
        with pytest.raises(StorageFullError):
            command(admin)
    assert reserve.exists() != frees
