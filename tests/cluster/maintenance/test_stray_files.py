"""Files that editors, file systems and copying tools leave in the metadata folders do no harm."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import StorageError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.commits import cleanup
from sparklog.log.layout import actions_version, checkpoint_version, commit_version, has_history, manifest_version
from sparklog.log.settings import DEFAULTS, LogSettings
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.mirror import mirror
from sparklog.protocol.commit_bytes import actions_key
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.local import LocalStore
from sparklog.store.memory import MemoryStore

COMMIT = commit_key(3).rpartition("/")[2]
NAMES = [
    ".nfs000000000a1b2c3d00000001",
    ".DS_Store",
    "._" + COMMIT,
    COMMIT + "~",
    f".{COMMIT}.swp",
    COMMIT.replace(".json", " (1).json"),
    COMMIT.replace(".json", ".JSON"),
    "latest (1).json",
    "zzz.json",
    "99999999999999999999.json",
    f"{limits.MAX_VERSION + 1:020d}.json",
    "9" * 30 + ".json",
    "00000000000000000003-.json",
    "٠" * 20 + ".json",
    "conflicted/" + COMMIT,
    "99999999999999999999-abc.json",
    "Thumbs.db",
]
WEEK = 8 * 86_400.0


class Littered:
    """A cluster of some commits and checkpoints whose metadata folders are full of stray files."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(uuid.uuid4().hex, self.clock)
        self.coordinator = create_cluster(self.store, clock=self.clock)
        self.coordinator.create_topic("orders")
        for number in range(6):
            self.commit(number)
            self.coordinator.log.write_checkpoint()
        self.strays = [f"meta/{kind}/{name}" for kind in ("commits", "checkpoints") for name in NAMES]
        for key in self.strays:
            self.store.put(key, b"?")

    def commit(self, number: int) -> None:
        self.coordinator.submit(partial(alter_configs, topic="orders", changes={"retention.ms": f"{1000 + number}"}))

    def open(self) -> Coordinator:
        return open_cluster(self.store, clock=self.clock)

    def remaining_strays(self) -> list[str]:
        stored = {info.key for info in self.store.list()}
        return [key for key in self.strays if key in stored]


@pytest.fixture
def littered() -> Littered:
    return Littered()


def test_names_of_commits_and_checkpoints_are_distinguished_from_all_others() -> None:
    for name in NAMES:
        assert commit_version(f"meta/commits/{name}") is None
        assert manifest_version(f"meta/checkpoints/{name}") is None
    assert commit_version(commit_key(42)) == 42
    assert commit_version(commit_key(limits.MAX_VERSION)) == limits.MAX_VERSION
    assert actions_version(actions_key(42, "w-_1")) == 42
    assert actions_version(commit_key(42)) is None
    stem = f"meta/checkpoints/{42:020d}-abc"
    assert [manifest_version(f"{stem}{end}") for end in (".json", ".heads", "-0.segments")] == [42, None, None]
    assert [checkpoint_version(f"{stem}{end}") for end in (".json", ".heads", "-0.segments")] == [42, 42, 42]
    assert checkpoint_version("meta/checkpoints/latest.json") is None


def test_a_cluster_opens_without_a_hint(littered: Littered) -> None:
    littered.store.delete(checkpoint.LATEST_KEY)
    assert littered.open().state == littered.coordinator.state


def test_a_stalled_process_finds_the_newest_checkpoint(littered: Littered) -> None:
    away = littered.open()
    littered.commit(9)
    littered.coordinator.log.write_checkpoint()
    littered.clock.advance(DEFAULTS.away_seconds + 1)
    assert away.refresh().version == littered.coordinator.state.version


def test_commits_and_checkpoints_are_cleaned_up_and_stray_files_are_kept(littered: Littered) -> None:
    littered.clock.advance(WEEK)
    littered.commit(9)
    littered.coordinator.log.write_checkpoint()
    done = cleanup.clean_up(littered.store, littered.clock, {}, LogSettings(min_commits_kept=0))
    assert done.commits == littered.coordinator.state.version
    assert done.checkpoint_files > 0
    assert littered.remaining_strays() == littered.strays
    assert littered.open().state == littered.coordinator.state


def test_a_check_reports_stray_files_with_an_action(littered: Littered) -> None:
    report = check_cluster(littered.store).report
    assert report.clean
    strays = {finding.path: finding for finding in report.of_kind("unknown-object")}
    assert set(littered.strays) == set(strays)
    for finding in strays.values():
        assert "stray file" in finding.message
        assert "delete it" in finding.action


def test_a_repair_a_mirror_and_a_vacuum_leave_stray_files_unchanged(littered: Littered, tmp_path: Path) -> None:
    repair_cluster(check_cluster(littered.store))
    assert mirror(littered.store, LocalStore(str(tmp_path / "mirror"))).version == littered.coordinator.state.version
    for dry_run in (True, False):
        vacuum(littered.open(), dry_run=dry_run)
    assert littered.remaining_strays() == littered.strays


def test_a_folder_with_only_stray_files_is_empty(tmp_path: Path) -> None:
    for kind in ("commits", "checkpoints"):
        (tmp_path / "meta" / kind).mkdir(parents=True)
        (tmp_path / "meta" / kind / ".DS_Store").write_bytes(b"?")
    store = LocalStore(str(tmp_path))
    assert not has_history(store)
    assert create_cluster(store).state.version == 0


def test_a_listing_by_name_ignores_stray_manifests(littered: Littered) -> None:
    newest = checkpoint.read_newest_listed(littered.store)
    assert newest is not None
    assert newest.version == littered.coordinator.state.version


def test_circular_and_dangling_links_do_no_harm(tmp_path: Path) -> None:
    root = tmp_path / "root"
    create_cluster(LocalStore(str(root))).create_topic("orders")
    (root / "loop").symlink_to(".")
    (root / "meta" / "up").symlink_to("../..")
    (root / "meta" / "commits" / "gone.json").symlink_to("nowhere")
    (root / "copy.json").symlink_to("cluster.json")
    report = check_cluster(LocalStore(str(root))).report
    assert report.clean
    assert {finding.path for finding in report.findings} <= {"copy.json", "meta/commits/gone.json"}
    for dry_run in (True, False):
        assert vacuum(open_cluster(LocalStore(str(root))), dry_run=dry_run).problems == []
    assert (root / "loop").is_symlink()


def put_loop(path: Path) -> None:
    path.symlink_to(path)


def put_link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a named pipe": lambda path: os.mkfifo(path),
    "a link that points to itself": put_loop,
    "a link to nothing": put_link_to_nothing,
}


@pytest.mark.parametrize("kind", IN_THE_WAY)
def test_an_object_under_the_next_commits_key_is_reported_to_writers_and_by_a_check(kind: str, tmp_path: Path) -> None:
    coordinator = create_cluster(LocalStore(str(tmp_path)))
    coordinator.create_topic("orders")
    next_key = commit_key(coordinator.state.version + 1)
    IN_THE_WAY[kind](tmp_path / next_key)
    reader = open_cluster(LocalStore(str(tmp_path)))
    assert reader.refresh() == coordinator.state
    with pytest.raises(StorageError, match="move it away") as raised:
        coordinator.create_topic("parcels")
    assert f"{tmp_path}/{next_key} is {kind}" in str(raised.value)
    report = check_cluster(LocalStore(str(tmp_path))).report
    assert not report.clean
    [finding] = report.of_kind("in-the-way")
    assert (finding.path, finding.severity) == (next_key, "error")
    assert kind in finding.message
    assert f"move {tmp_path}/{next_key} away" in finding.action
    (tmp_path / next_key).rename(tmp_path / "moved")
    coordinator.create_topic("parcels")
    assert set(reader.refresh().topics) == {"orders", "parcels"}
    assert check_cluster(LocalStore(str(tmp_path))).report.clean
