"""fsck reports each kind of damage to the metadata exactly, and continues with what is still readable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.errors import ClusterMovedError, ClusterNotFoundError, CorruptMetadataError
from sparklog.log.checkpoints import lists
from sparklog.log.commits.commit_log import CommitLog
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import ERROR, WARNING
from sparklog.maintenance.fsck.metadata_checks import check_metadata
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.protocol.commits import AlterConfig, commit_key
from sparklog.store.local import LocalStore
from tests.cluster.maintenance.damaged_clusters import DamagedCluster, kinds, only
from tests.sample import examples


@pytest.fixture
def cluster(tmp_path: Path) -> DamagedCluster:
    """Nine commits: broker, topic, six appends with a checkpoint between them, a config."""
    cluster = DamagedCluster(tmp_path)
    for _ in range(3):
        cluster.append(partitions=(0, 1))
    cluster.reopened().log.write_checkpoint()  # of version 4
    for _ in range(3):
        cluster.append()
    cluster.commit(AlterConfig(topic="orders", set={"retention.ms": "5"}))
    return cluster


def checkpoint_files(cluster: DamagedCluster, suffix: str) -> list[Path]:
    return sorted((cluster.root / "meta" / "checkpoints").glob(f"*{suffix}"))


def commit(cluster: DamagedCluster, version: int) -> Path:
    return cluster.root / commit_key(version)


def test_a_sound_cluster_has_no_findings(cluster: DamagedCluster) -> None:
    report = cluster.report()
    assert report.findings == []
    assert (report.version, report.checked.commits, report.checked.checkpoints) == (8, 9, 1)


def test_a_cluster_whose_early_commits_were_removed_is_sound(cluster: DamagedCluster) -> None:
    (cluster.root / "meta" / "boundary.json").write_bytes(b'{"boundary":3}')
    for version in range(4):
        commit(cluster, version).unlink()
    assert cluster.report().findings == []


def test_a_cluster_with_an_unfinished_removal_is_sound(cluster: DamagedCluster) -> None:
    (cluster.root / "meta" / "boundary.json").write_bytes(b'{"boundary":3}')
    for version in (0, 2):
        commit(cluster, version).unlink()
    assert cluster.report().findings == []


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_anywhere_in_a_commit_is_reported(
    cluster: DamagedCluster, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("copy") / "root"
    shutil.copytree(cluster.root, folder)
    version = data.draw(st.integers(0, 8))
    path = folder / commit_key(version)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes(content))
    check = check_metadata(LocalStore(str(folder)))
    [finding] = check.findings
    assert (finding.kind, finding.version, finding.path) == ("damaged-commit", version, commit_key(version))
    bridged = version <= 4
    assert finding.severity == (WARNING if bridged else ERROR)
    assert check.state.version == (8 if bridged else version - 1)


def test_a_missing_commit_before_a_checkpoint_is_a_warning_and_the_files_are_checked(cluster: DamagedCluster) -> None:
    commit(cluster, 2).unlink()
    report = cluster.report()
    finding = only(report, "missing-commit")
    assert (finding.version, finding.severity) == (2, WARNING)
    assert (report.version, report.checked.files) == (8, 6)


def test_a_damaged_newest_commit_is_reported_with_the_command_that_ends_the_log_before_it(
    cluster: DamagedCluster,
) -> None:
    path = commit(cluster, 8)
    path.write_bytes(path.read_bytes()[:-20])
    assert "`sparklog fsck --repair --end-at 7`" in only(cluster.report(), "damaged-commit").action
    with pytest.raises(CorruptMetadataError, match="--end-at"):
        cluster.reopened()
    repair_cluster(cluster.check(), end_at=7)
    assert cluster.report().clean
    assert cluster.reopened().state.version == 7


def test_a_damaged_commit_followed_by_others_is_reported_without_that_command(cluster: DamagedCluster) -> None:
    path = commit(cluster, 7)
    path.write_bytes(path.read_bytes()[:-20])
    assert "--end-at" not in only(cluster.report(), "damaged-commit").action


def test_missing_commits_are_one_finding_and_the_commits_after_them_another(cluster: DamagedCluster) -> None:
    for version in (5, 6):
        commit(cluster, version).unlink()
    report = cluster.report()
    assert kinds(report) == ["missing-commit", "commits-beyond-the-end"]
    [finding] = report.of_kind("missing-commit")
    assert (finding.version, finding.severity) == (5, ERROR)
    assert "commits 5 to 6 are missing" in finding.message


def test_missing_newest_commits_are_reported_if_a_checkpoint_is_newer(cluster: DamagedCluster) -> None:
    cluster.reopened().log.write_checkpoint()
    commit(cluster, 8).unlink()
    assert only(cluster.report(), "missing-commit").version == 8


def test_two_swapped_commits_are_both_reported(cluster: DamagedCluster) -> None:
    first, second = commit(cluster, 2).read_bytes(), commit(cluster, 3).read_bytes()
    commit(cluster, 2).write_bytes(second)
    commit(cluster, 3).write_bytes(first)
    report = cluster.report()
    assert [(finding.kind, finding.version) for finding in report.findings] == [
        ("damaged-commit", 2),
        ("damaged-commit", 3),
    ]


@pytest.mark.parametrize("version", [1, 2, 3, 4, 6])
def test_a_commit_edited_together_with_its_digest_is_reported(cluster: DamagedCluster, version: int) -> None:
    cluster.edit_commit(version, writer="somebody else")
    finding = only(cluster.report(), "broken-chain")
    assert (finding.version, finding.severity) == (version, WARNING if version <= 4 else ERROR)


def test_a_commit_with_another_previous_digest_is_reported(cluster: DamagedCluster) -> None:
    cluster.edit_commit(6, previous="ab" * 32)
    assert only(cluster.report(), "broken-chain").version == 6


def test_a_commit_that_contradicts_the_log_is_reported(cluster: DamagedCluster) -> None:
    cluster.edit_commit(8, checksum="0" * 32)
    finding = only(cluster.report(), "broken-chain")
    assert (finding.version, finding.severity) == (8, ERROR)
    assert "checksum of live segments" in finding.message


@pytest.mark.parametrize("suffix", [".json", ".heads", ".lists", ".segments"])
@pytest.mark.parametrize("how", ["flip", "cut", "delete"])
def test_damage_to_a_checkpoint_is_reported_as_repairable(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, suffix: str, how: str
) -> None:
    monkeypatch.setattr(lists, "TAIL_SEGMENTS", 0)
    cluster: DamagedCluster = request.getfixturevalue("cluster")
    path = next(path for path in checkpoint_files(cluster, suffix) if path.name != "latest.json")
    content = path.read_bytes()
    if how == "delete":
        path.unlink()
    else:
        at = content.index(b'"version":') + 10 if suffix == ".json" else len(content) // 2
        path.write_bytes(
            content[:at] + bytes([content[at] ^ 64]) + content[at + 1 :] if how == "flip" else content[:at]
        )
    report = cluster.report()
    if (suffix, how) == (".json", "delete"):
        assert kinds(report) == ["stale-hint"]
        return
    findings = [finding for finding in report.findings if finding.kind == "damaged-checkpoint"]
    assert [(finding.version, finding.severity, finding.repairable) for finding in findings] == [(4, WARNING, True)]
    assert findings[0].path == str(path.relative_to(cluster.root))
    assert report.version == 8


def test_a_checkpoint_of_another_timeline_is_reported(cluster: DamagedCluster, tmp_path: Path) -> None:
    other = DamagedCluster(tmp_path / "other")
    for _ in range(3):
        other.append()
    other.reopened().log.write_checkpoint()
    shutil.rmtree(cluster.root / "meta" / "checkpoints")
    shutil.copytree(other.root / "meta" / "checkpoints", cluster.root / "meta" / "checkpoints")
    assert kinds(cluster.report()) == ["checkpoint-differs", "stale-hint"]


def test_cluster_json_is_not_restored_from_a_checkpoint_of_another_timeline(
    cluster: DamagedCluster, tmp_path: Path
) -> None:
    other = DamagedCluster(tmp_path / "other")
    other.append()
    other.reopened().log.write_checkpoint()
    shutil.rmtree(cluster.root / "meta" / "checkpoints")
    shutil.copytree(other.root / "meta" / "checkpoints", cluster.root / "meta" / "checkpoints")
    (cluster.root / "cluster.json").unlink()
    [finding] = cluster.report().of_kind("cluster-file")
    assert (finding.severity, finding.repairable) == (ERROR, False)


def test_a_checkpoint_with_the_lists_of_another_checkpoint_is_reported(cluster: DamagedCluster) -> None:
    log = CommitLog.open(LocalStore(str(cluster.root)))
    manifest = log.write_checkpoint()
    assert manifest.version == 8
    old, new = (path for path in checkpoint_files(cluster, ".json") if path.name != "latest.json")
    text = new.read_text()
    start = text.index('"segments":')
    old_text = old.read_text()
    new.write_text(text[:start] + old_text[old_text.index('"segments":') :])
    report = cluster.report()
    assert kinds(report) == ["damaged-checkpoint", "stale-hint"]
    assert report.of_kind("damaged-checkpoint")[0].version == 8


def test_a_hint_to_a_missing_manifest_is_reported(cluster: DamagedCluster) -> None:
    (cluster.root / "meta" / "checkpoints" / "latest.json").write_bytes(b'{"manifest":"meta/checkpoints/gone.json"}')
    assert only(cluster.report(), "stale-hint").path == "meta/checkpoints/latest.json"


def test_an_unreadable_boundary_is_reported(cluster: DamagedCluster) -> None:
    (cluster.root / "meta" / "boundary.json").write_bytes(b"{}")
    for version in range(4):
        commit(cluster, version).unlink()
    report = cluster.report()
    assert kinds(report) == ["damaged-boundary"]
    assert report.version == 8


def test_history_removed_without_a_checkpoint_is_reported(cluster: DamagedCluster) -> None:
    (cluster.root / "meta" / "boundary.json").write_bytes(b'{"boundary":3}')
    for version in range(4):
        commit(cluster, version).unlink()
    for path in checkpoint_files(cluster, ""):
        path.unlink()
    report = cluster.report()
    assert only(report, "lost-history").severity == ERROR
    assert report.version == -1


@pytest.mark.parametrize("content", [None, b"{", b'{"format":1,"cluster_id":"another"}'])
def test_damage_to_cluster_json_is_reported_with_the_id_from_a_checkpoint(
    cluster: DamagedCluster, content: bytes | None
) -> None:
    path = cluster.root / "cluster.json"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    report = cluster.report()
    finding = only(report, "cluster-file")
    assert (finding.severity, finding.repairable) == (WARNING, True)
    assert report.cluster_id == cluster.coordinator.state.cluster_id


def test_a_mirror_is_not_taken_for_a_damaged_cluster(cluster: DamagedCluster, tmp_path: Path) -> None:
    target = LocalStore(str(tmp_path / "mirror"))
    mirror(cluster.store, target)
    with pytest.raises(ClusterNotFoundError, match="is a mirror of a commit log"):
        check_metadata(target)


def test_a_promoted_mirror_is_sound_and_the_closed_root_refers_to_it(cluster: DamagedCluster, tmp_path: Path) -> None:
    new = str(tmp_path / "mirror")
    mirror(cluster.store, LocalStore(new))
    promote(new, str(cluster.root))
    report = check_cluster(LocalStore(new)).report
    assert kinds(report) == []
    assert report.checked.files == 6
    with pytest.raises(ClusterMovedError, match="check it there"):
        cluster.report()


def test_a_folder_without_a_cluster_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotFoundError):
        check_metadata(LocalStore(str(tmp_path)))


def test_commits_during_a_check_are_not_reported(cluster: DamagedCluster) -> None:
    check = cluster.check()
    cluster.append()
    assert check.report.findings == []


def test_a_hole_after_a_restore_is_not_to_be_filled(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    cluster.pad(8)
    end = cluster.coordinator.state.version
    for version in range(3, end):
        (cluster.root / commit_key(version)).unlink()
    findings = {finding.kind: finding for finding in cluster.report().findings if finding.severity == ERROR}
    assert findings["commits-beyond-the-end"].action.startswith("if the root was restored from an older copy: stop all")
    assert "If the root was restored from an older copy, none is missing" in findings["missing-commit"].action
    with pytest.raises(CorruptMetadataError, match="restored from an older copy") as refused:
        cluster.reopened()
    assert refused.value.message.index("--repair") < refused.value.message.index("put the missing commits back")
    repair_cluster(check := cluster.check())
    assert not check.report.left
    cluster.reopened().create_topic("new")


def test_a_hole_that_a_checkpoint_covers_says_nothing_of_a_restore(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    cluster.pad(8)
    cluster.coordinator.log.write_checkpoint()
    (cluster.root / commit_key(3)).unlink()
    assert all("restored" not in finding.action for finding in cluster.report().findings)
