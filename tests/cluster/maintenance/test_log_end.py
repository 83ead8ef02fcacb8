"""A root that was restored to an older state under running clients can be repaired, and nothing of it is destroyed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparklog import limits
from sparklog.cli.main import main
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import SparklogError, StorageUnavailableError, UnsupportedVersionError
from sparklog.log.checkpoints.checkpoint import LATEST_KEY
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.layout import Boundary, read_boundary, write_boundary
from sparklog.log.settings import LogSettings
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import ERROR, INFO, WARNING, Report
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.fsck.report import to_text
from sparklog.maintenance.mirror import mirror
from sparklog.protocol import levels
from sparklog.protocol.commits import ForgetRemovedFiles, commit_key
from sparklog.store.base import Deleted
from sparklog.store.local import LocalStore
from tests.cluster.maintenance.damaged_clusters import BATCH, DamagedCluster, kinds

KEPT = "meta/removed-commits/commits"


@pytest.fixture
def cluster(tmp_path: Path) -> DamagedCluster:
    """Version 4: broker, topic, three appends."""
    cluster = DamagedCluster(tmp_path)
    for _ in range(3):
        cluster.append()
    return cluster


def snapshot(cluster: DamagedCluster) -> Path:
    return Path(shutil.copytree(cluster.root, cluster.folder / "snapshot"))


def restore(cluster: DamagedCluster, copy: Path, kept: tuple[int, ...] = ()) -> dict[str, bytes]:
    """Replace the root with a copy, as if clients had then written these commits; return its former content."""
    before = {str(path.relative_to(cluster.root)): path.read_bytes() for path in files(cluster.root)}
    shutil.rmtree(cluster.root)
    shutil.copytree(copy, cluster.root)
    for version in kept:
        (cluster.root / commit_key(version)).write_bytes(before[commit_key(version)])
        for key in [key for key in before if f"-v{version - 1}-" in key]:
            (cluster.root / key).write_bytes(before[key])
    return before


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def repaired(cluster: DamagedCluster, *mirrors: Path, **how: Any) -> Report:
    check = cluster.check()
    repair_cluster(check, mirrors=[LocalStore(str(mirror)) for mirror in mirrors], **how)
    return check.report


def with_gap(cluster: DamagedCluster) -> bytes:
    """Commits 0 to 4, and 8 of a client that did not notice the restore; return the bytes of commit 8."""
    copy = snapshot(cluster)
    for _ in range(4):
        cluster.append()
    return restore(cluster, copy, kept=(8,))[commit_key(8)]


def kept_commits(cluster: DamagedCluster) -> list[bytes]:
    return [path.read_bytes() for path in files(cluster.root / KEPT)]


def test_a_commit_after_a_gap_is_reported_with_its_content(cluster: DamagedCluster) -> None:
    cluster.coordinator = Coordinator(CommitLog.open(cluster.store, writer="host-7/4711\n\x1b[2J"))
    beyond = with_gap(cluster)
    report = cluster.report()
    assert kinds(report) == ["missing-commit", "commits-beyond-the-end"]
    [finding] = report.of_kind("commits-beyond-the-end")
    assert (finding.severity, finding.version, finding.path, finding.repairable) == (ERROR, 8, commit_key(8), True)
    when = json.loads(beyond)["timestamp"]
    assert f"{when // 1000 % 60:02d} UTC" in finding.message
    for part in ("ends at version 4", "5 to 7 are missing", "host-7/4711", f"{3 * BATCH} records of orders-0"):
        assert part in finding.message
    assert "\x1b" not in finding.message


def test_a_repair_moves_commits_after_a_gap_away_and_keeps_them(cluster: DamagedCluster) -> None:
    wanted = cluster.values()
    beyond = with_gap(cluster)
    planned = repaired(cluster, dry_run=True)
    assert any(repair.path == commit_key(8) and not repair.done for repair in planned.repairs)
    assert (cluster.root / commit_key(8)).exists()
    report = repaired(cluster)
    assert report.left is not None
    assert [finding for finding in report.left if finding.severity != INFO] == []
    assert kept_commits(cluster) == [beyond]
    assert not (cluster.root / commit_key(8)).exists()
    cluster.coordinator = cluster.reopened()
    for _ in range(6):  # past the number of the moved commit
        cluster.append()
    assert cluster.values()[: len(wanted)] == wanted
    assert kinds(cluster.report()) == []


def test_commits_that_a_mirror_has_are_restored_and_nothing_is_moved(cluster: DamagedCluster, tmp_path: Path) -> None:
    copy = snapshot(cluster)
    for _ in range(4):
        cluster.append()
    mirror(LocalStore(str(cluster.root)), LocalStore(str(tmp_path / "mirror")))
    wanted = cluster.reopened().state
    before = restore(cluster, copy, kept=(8,))
    for key, data in before.items():
        if not key.startswith("meta/"):
            (cluster.root / key).parent.mkdir(parents=True, exist_ok=True)
            (cluster.root / key).write_bytes(data)
    assert repaired(cluster, tmp_path / "mirror").left == []
    assert cluster.reopened().state == wanted
    assert kept_commits(cluster) == []


def test_a_repair_that_dies_at_any_step_loses_nothing_and_can_be_repeated(
    cluster: DamagedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = snapshot(cluster)
    for _ in range(6):
        cluster.append()
    before = restore(cluster, copy, kept=(8, 9, 10))
    damaged = Path(shutil.copytree(cluster.root, cluster.folder / "damaged"))
    beyond = {before[commit_key(version)] for version in (8, 9, 10)}

    for died_at in range(1, 12):
        shutil.rmtree(cluster.root)
        shutil.copytree(damaged, cluster.root)
        with monkeypatch.context() as patch:
            steps = dying_at(patch, died_at)
            with suppress(StorageUnavailableError):
                repaired(cluster)
        stored = {path.read_bytes() for path in files(cluster.root / "meta")}
        assert beyond <= stored
        report = repaired(cluster)
        assert report.left is not None
        assert [finding for finding in report.left if finding.severity != INFO] == []
        assert set(kept_commits(cluster)) == beyond
        if steps() < died_at:
            break
    else:
        raise AssertionError("the repair has more steps than were tried")


def dying_at(patch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """Make the storage fail from this change on; return a function that counts the changes."""
    changes = 0

    def failing(method: Callable[..., object]) -> Callable[..., object]:
        def call(self: LocalStore, *arguments: object) -> object:
            nonlocal changes
            changes += 1
            if changes >= step:
                raise StorageUnavailableError("gone", path="")
            return method(self, *arguments)

        return call

    for name in ("put", "delete"):
        patch.setattr(LocalStore, name, failing(getattr(LocalStore, name)))
    return lambda: changes


def test_a_commit_with_the_largest_number_is_handled_quickly(cluster: DamagedCluster) -> None:
    (cluster.root / commit_key(limits.MAX_VERSION)).write_bytes(b"?")
    assert set(kinds(cluster.report())) == {"missing-commit", "damaged-commit", "commits-beyond-the-end"}
    repaired(cluster, cluster.root)
    assert kinds(cluster.report()) == []
    assert kept_commits(cluster) == [b"?"]


# -- two histories


def forked(cluster: DamagedCluster) -> tuple[list[bytes], list[bytes]]:
    """The root was restored to version 4 and written to up to 7; the former commits 8 and 9 follow another commit 7.

    Returns the values of the log up to 7, and the unlinked commits.
    """
    copy = snapshot(cluster)
    for _ in range(5):
        cluster.append()
    before = restore(cluster, copy)
    cluster.coordinator = cluster.reopened()
    for _ in range(3):
        cluster.append()
    values = cluster.values()
    beyond = [before[commit_key(version)] for version in (8, 9)]
    for version, data in zip((8, 9), beyond, strict=True):
        (cluster.root / commit_key(version)).write_bytes(data)
    return values, beyond


def test_a_fork_is_reported_and_left_unchanged_without_an_end_of_the_log(cluster: DamagedCluster) -> None:
    _, beyond = forked(cluster)
    report = repaired(cluster)
    assert kinds(report) == ["broken-chain"]
    [note] = report.of_kind("commits-beyond-the-end")
    assert "--end-at 7" in note.action
    assert [(cluster.root / commit_key(version)).read_bytes() for version in (8, 9)] == beyond
    with pytest.raises(SparklogError):
        cluster.reopened()


def test_a_fork_is_repaired_with_an_explicit_end_of_the_log(cluster: DamagedCluster) -> None:
    values, beyond = forked(cluster)
    report = repaired(cluster, end_at=7)
    assert report.left is not None
    assert [finding for finding in report.left if finding.severity != INFO] == []
    assert kept_commits(cluster) == beyond
    assert cluster.values() == values
    cluster.coordinator = cluster.reopened()
    cluster.append()
    assert kinds(cluster.report()) == []


def test_a_later_checkpoint_of_another_timeline_is_moved_with_its_commits(cluster: DamagedCluster) -> None:
    copy = snapshot(cluster)
    for _ in range(4):
        cluster.append()
    cluster.reopened().log.write_checkpoint()
    before = restore(cluster, copy, kept=(8,))
    for key in [key for key in before if key.startswith("meta/checkpoints/")]:
        (cluster.root / key).parent.mkdir(exist_ok=True)
        (cluster.root / key).write_bytes(before[key])
    assert cluster.reopened().state.version == 8
    report = repaired(cluster, end_at=4)
    assert report.left is not None
    assert [finding for finding in report.left if finding.severity != INFO] == []
    assert cluster.reopened().state.version == 4
    moved = {path.name for path in files(cluster.root / "meta/removed-commits/checkpoints")}
    assert moved == {Path(key).name for key in before if key.startswith("meta/checkpoints/0")}
    assert not (cluster.root / "meta/checkpoints/latest.json").exists()


@pytest.mark.parametrize(("end", "why"), [(6, "not known"), (99, "not known"), (1, "were removed")])
def test_the_log_can_end_only_where_its_state_is_known(cluster: DamagedCluster, end: int, why: str) -> None:
    cluster.reopened().log.write_checkpoint()
    write_boundary(LocalStore(str(cluster.root)), Boundary(2))
    cluster.append()
    cluster.append()
    (cluster.root / commit_key(6)).write_bytes(b"?")
    before = [path.read_bytes() for path in files(cluster.root)]
    report = repaired(cluster, end_at=end)
    assert why in report.repairs[0].why_not
    assert [path.read_bytes() for path in files(cluster.root)] == before


def test_a_sound_log_is_not_cut(cluster: DamagedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped number must not cost acknowledged records."""
    for _ in range(6):
        cluster.append()
    before = cluster.values()
    command = ["fsck", "--bootstrap-server", str(cluster.root), "--repair", "--end-at", "4"]
    assert main(command) == 1
    assert "commit 5 is sound" in capsys.readouterr().out
    assert cluster.values() == before
    assert main(["fsck", "--bootstrap-server", str(cluster.root)]) == 0
    newest = max((cluster.root / "meta/commits").iterdir())
    newest.write_bytes(b"?")
    assert main(command) == 1
    assert f"the log can end at {int(newest.stem) - 1}" in capsys.readouterr().out
    assert newest.exists()


def test_a_damaged_checkpoint_is_no_reason_to_cut_the_log(cluster: DamagedCluster) -> None:
    cluster.reopened().log.write_checkpoint()
    cluster.append()
    before = cluster.values()
    [heads] = (cluster.root / "meta/checkpoints").glob("*.heads")
    heads.write_bytes(b"?")
    report = repaired(cluster, end_at=4)
    assert "is sound" in report.repairs[0].why_not
    assert cluster.values() == before


def test_old_commits_that_a_checkpoint_covers_are_no_reason_to_cut_the_log(cluster: DamagedCluster) -> None:
    cluster.reopened().log.write_checkpoint()
    cluster.append()
    before = cluster.values()
    (cluster.root / commit_key(2)).unlink()
    assert [finding.severity for finding in cluster.report().of_kind("missing-commit")] == [WARNING]
    report = repaired(cluster, end_at=1)
    assert "covers what is damaged" in report.repairs[0].why_not
    assert cluster.values() == before


# -- a checkpoint covers the missing commits


def restored_in_the_wrong_order(cluster: DamagedCluster) -> dict[str, bytes]:
    """The commits are those of version 4, the checkpoints and the data those of version 8."""
    copy = snapshot(cluster)
    for _ in range(4):
        cluster.append()
    cluster.reopened().log.write_checkpoint()
    before = restore(cluster, copy)
    for key, data in before.items():
        if not key.startswith("meta/commits/"):
            (cluster.root / key).parent.mkdir(parents=True, exist_ok=True)
            (cluster.root / key).parent.mkdir(parents=True, exist_ok=True)
            (cluster.root / key).write_bytes(data)
    return before


def test_clients_start_from_a_checkpoint_that_covers_missing_commits(cluster: DamagedCluster) -> None:
    old_client = cluster.reopened()
    restored_in_the_wrong_order(cluster)
    assert kinds(cluster.report()) == ["missing-commit"]
    assert old_client.refresh().version == 4  # it takes commit 4 as the end of the log
    report = repaired(cluster)
    assert report.left is not None
    assert [finding for finding in report.left if finding.severity != INFO] == []
    assert read_boundary(LocalStore(str(cluster.root))) == 8
    assert len(cluster.values()) == 7 * 3 * BATCH
    assert len(kept_commits(cluster)) == 5
    assert repaired(cluster).repairs == []
    old_client.create_topic("more")
    assert old_client.state.version == 9


def test_a_checkpoint_with_missing_files_is_not_used_as_the_log(cluster: DamagedCluster) -> None:
    before = restored_in_the_wrong_order(cluster)
    (cluster.root / next(key for key in before if "-v7-" in key and key.endswith(".log"))).unlink()
    report = repaired(cluster)
    assert any("another timeline" in repair.why_not for repair in report.repairs)
    assert read_boundary(LocalStore(str(cluster.root))) == -1


# -- newer versions


def add_newer(cluster: DamagedCluster, **more: Any) -> int:
    version = cluster.reopened().state.version + 1
    fields = json.loads((cluster.root / commit_key(version - 1)).read_bytes())
    previous = fields.pop("digest")
    fields |= {"format": levels.CURRENT + 1, "needs": "9.4.0", "version": version, "previous": previous, **more}
    body = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    digest = hashlib.sha256(body).hexdigest()
    (cluster.root / commit_key(version)).write_bytes(body + b',"digest":"' + digest.encode() + b'"}\n')
    return version


@pytest.mark.parametrize("more", [{}, {"format": levels.CURRENT, "actions": [{"action": "levitate"}]}])
def test_a_newer_commit_is_reported_as_newer_and_nothing_is_repaired(
    cluster: DamagedCluster, more: dict[str, object]
) -> None:
    version = add_newer(cluster, **more)
    (cluster.root / "meta/checkpoints").mkdir(exist_ok=True)
    (cluster.root / "meta/checkpoints/latest.json").write_bytes(b"?")  # a repair would otherwise remove it
    before = [path.read_bytes() for path in files(cluster.root)]
    report = repaired(cluster)
    [finding] = report.of_kind("newer-version")
    assert (finding.version, finding.repairable, report.clean) == (version, False, False)
    assert not {"damaged-commit", "broken-chain", "missing-commit"} & set(kinds(report))
    assert "restore" not in finding.message + finding.action
    assert [path.read_bytes() for path in files(cluster.root)] == before
    text = list(to_text(report))
    assert not any("records are intact" in line for line in text), text
    assert "WARNINGS: what a later version of sparklog wrote was not checked, nor what depends on it" in text


def test_a_newer_checkpoint_is_reported_as_newer_and_kept(cluster: DamagedCluster) -> None:
    cluster.reopened().log.write_checkpoint()
    [manifest] = (cluster.root / "meta/checkpoints").glob("0*.json")
    manifest.write_text(manifest.read_text().replace('"format":', '"format":9').replace("\n", ""))
    report = repaired(cluster)
    assert "newer-version" in kinds(report)
    assert "damaged-checkpoint" not in kinds(report)
    assert manifest.exists()


def test_commits_that_a_newer_checkpoint_replaces_are_not_called_lost(cluster: DamagedCluster) -> None:
    """As on any cluster whose level was raised some time ago: its checkpoint and all kept commits are newer."""
    first = add_newer(cluster)
    for version in range(first):
        (cluster.root / commit_key(version)).unlink()
    write_boundary(LocalStore(str(cluster.root)), Boundary(first - 1, 0))
    manifest = cluster.root / f"meta/checkpoints/{first + 3:020d}-newer.json"
    manifest.parent.mkdir(exist_ok=True)
    manifest.write_text(json.dumps({"format": levels.CURRENT + 1, "needs": "9.4.0", "version": first + 3}))
    (manifest.parent / "latest.json").write_text(json.dumps({"manifest": f"meta/checkpoints/{manifest.name}"}))
    before = [path.read_bytes() for path in files(cluster.root)]
    report = repaired(cluster)
    assert {finding.kind for finding in report.findings} == {"newer-version"}
    assert all("needs sparklog 9.4.0 or newer" in finding.message for finding in report.findings)
    assert [path.read_bytes() for path in files(cluster.root)] == before


def test_an_edited_commit_with_an_unknown_action_is_damaged_if_the_next_commit_contradicts_it(
    cluster: DamagedCluster, tmp_path: Path
) -> None:
    shutil.copytree(cluster.root / "meta", tmp_path / "mirror" / "meta")
    cluster.edit_commit(3, actions=[{"action": "levitate"}])
    with pytest.raises(UnsupportedVersionError):
        cluster.reopened()
    assert "damaged-commit" in kinds(cluster.report())
    assert repaired(cluster, tmp_path / "mirror").left == []


# -- spilled actions


@pytest.fixture
def spilled(cluster: DamagedCluster) -> Path:
    spilling = open_cluster(cluster.store, settings=LogSettings(max_inline_actions=1))
    assert spilling.log.attempt([ForgetRemovedFiles(listings=[]) for _ in range(3)]) is CommitOutcome.WON
    cluster.commit(ForgetRemovedFiles(listings=[]))
    [path] = (cluster.root / "meta/actions").iterdir()
    return path


def test_spilled_actions_are_checked_with_their_commit(cluster: DamagedCluster, spilled: Path) -> None:
    assert cluster.report().findings == []
    spilled.write_bytes(spilled.read_bytes()[:-1] + b" ")
    report = cluster.report()
    assert [(finding.kind, finding.version) for finding in report.findings] == [("damaged-commit", 5)]


@pytest.mark.parametrize("how", ["delete", "flip"])
def test_spilled_actions_are_restored_from_a_mirror(
    cluster: DamagedCluster, spilled: Path, tmp_path: Path, how: str
) -> None:
    mirror(LocalStore(str(cluster.root)), LocalStore(str(tmp_path / "mirror")))
    wanted = spilled.read_bytes()
    if how == "delete":
        spilled.unlink()
        (cluster.root / commit_key(5)).unlink()
    else:
        spilled.write_bytes(wanted[:-1] + b" ")
    assert repaired(cluster, tmp_path / "mirror").left == []
    assert spilled.read_bytes() == wanted


def test_a_check_of_a_cluster_in_use_reads_the_spilled_actions_of_new_commits(
    cluster: DamagedCluster, spilled: Path
) -> None:
    check = check_cluster(LocalStore(str(cluster.root)))
    assert check.report.version == cluster.reopened().state.version


# -- clients that write during a repair


def log_end(coordinator: Coordinator) -> tuple[int, int]:
    """The version of the log, and the log end offset of the partition that was written to."""
    state = coordinator.refresh()
    return state.version, state.partition("orders", 0).log_end_offset


def test_commits_before_a_gap_that_were_added_since_the_check_are_kept(cluster: DamagedCluster) -> None:
    running = cluster.reopened()  # one that opens the cluster later refuses to write into the gap
    beyond = with_gap(cluster)
    cluster.coordinator = running
    check = cluster.check()
    cluster.append()
    cluster.append()
    wanted = log_end(cluster.coordinator)
    repair_cluster(check)
    assert kept_commits(cluster) == [beyond]
    assert log_end(cluster.reopened()) == wanted == (6, 5 * 3 * BATCH)


def test_a_gap_that_was_filled_since_the_check_is_left_unchanged(cluster: DamagedCluster) -> None:
    copy = snapshot(cluster)
    for _ in range(4):
        cluster.append()
    wanted = log_end(cluster.coordinator)
    before = restore(cluster, copy, kept=(8,))
    check = cluster.check()
    for key, data in before.items():
        (cluster.root / key).parent.mkdir(parents=True, exist_ok=True)
        (cluster.root / key).parent.mkdir(parents=True, exist_ok=True)
        (cluster.root / key).write_bytes(data)
    repair_cluster(check)
    assert kept_commits(cluster) == []
    assert log_end(cluster.reopened()) == wanted


@pytest.mark.parametrize("fork", [False, True])
def test_commits_after_the_end_that_are_added_while_it_is_set_are_kept(
    cluster: DamagedCluster, monkeypatch: pytest.MonkeyPatch, fork: bool
) -> None:
    if fork:
        forked(cluster)
    else:
        with_gap(cluster)
    end = 7 if fork else 4
    check = cluster.check()
    ends: list[tuple[int, int]] = []
    delete = LocalStore.delete

    def delete_and_commit(self: LocalStore, key: str) -> None:
        delete(self, key)
        if key == LATEST_KEY and not ends:  # all reported commits are moved
            with monkeypatch.context() as patch:
                patch.setattr(LocalStore, "delete", delete)
                cluster.coordinator = cluster.reopened()
                for _ in range(5):  # up to and past the numbers of the moved commits
                    cluster.append()
                ends.append(log_end(cluster.coordinator))

    monkeypatch.setattr(LocalStore, "delete", delete_and_commit)
    repair_cluster(check, end_at=7 if fork else None)
    assert ends == [(end + 5, ends[0][1])]
    assert log_end(cluster.reopened()) == ends[0]


def test_a_late_commit_of_a_client_after_the_gap_is_moved_too(
    cluster: DamagedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = snapshot(cluster)
    for _ in range(6):
        cluster.append()
    before = restore(cluster, copy, kept=(8, 9))
    check = cluster.check()
    delete, late = LocalStore.delete_exactly, [commit_key(10)]

    def delete_after_commit(self: LocalStore, key: str, data: bytes) -> Deleted:
        if key == commit_key(9) and late:
            (cluster.root / late.pop()).write_bytes(before[commit_key(10)])
        return delete(self, key, data)

    monkeypatch.setattr(LocalStore, "delete_exactly", delete_after_commit)
    repair_cluster(check)
    assert not late
    assert set(kept_commits(cluster)) == {before[commit_key(version)] for version in (8, 9, 10)}
    assert log_end(cluster.reopened())[0] == 4
