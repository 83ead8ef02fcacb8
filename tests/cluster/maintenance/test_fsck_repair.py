"""Repairs restore the same records where possible, and otherwise refuse with the reason; they never guess."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparklog.coordinator import open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.errors import StorageError
from sparklog.format.index import decode_index
from sparklog.log.checkpoints import lists
from sparklog.maintenance.fsck.kinds import Report
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.protocol.commits import commit_key
from sparklog.store.local import LocalStore
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.damaged_clusters import BATCH, DamagedCluster, index_of, kinds
from tests.sample import examples

CODECS = ["none", "lz4", "zstd", "gzip", "snappy"]


@pytest.fixture
def cluster(tmp_path: Path) -> DamagedCluster:
    return DamagedCluster(tmp_path)


@pytest.fixture
def replicated(tmp_path: Path) -> DamagedCluster:
    return DamagedCluster(tmp_path, brokers=2)


def repaired(cluster: DamagedCluster, dry_run: bool = False, mirrors: tuple[str, ...] = ()) -> Report:
    check = cluster.check()
    repair_cluster(check, mirrors=[LocalStore(mirror) for mirror in mirrors], dry_run=dry_run)
    return check.report


def data_files(cluster: DamagedCluster) -> dict[str, bytes]:
    """The content of every data file, by broker and path."""
    contents = {}
    for broker in cluster.brokers:
        for path in cluster.location(broker).glob("*-*/*"):
            contents[f"{broker}:{path.relative_to(cluster.location(broker))}"] = path.read_bytes()
    return contents


def test_a_sound_cluster_needs_no_repair(replicated: DamagedCluster) -> None:
    replicated.append()
    report = repaired(replicated)
    assert (report.repairs, report.left) == ([], [])


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_one_copy_is_repaired_from_the_other(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = DamagedCluster(tmp_path_factory.mktemp("repair"), brokers=2)
    paths = [cluster.append(partitions=(0, 1), codec=data.draw(st.sampled_from(CODECS))) for _ in range(2)]
    before = data_files(cluster)
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from([*paths, *map(index_of, paths)]))
        broker = 0 if key == paths[0] else 1
        path = cluster.file(key, broker)
        how = data.draw(st.sampled_from(["flip", "cut", "delete", "grow"]))
        size = path.stat().st_size if path.exists() else 0
        if not size:
            continue
        if how == "flip":
            cluster.flip(key, data.draw(st.integers(0, size - 1)), broker=broker)
        elif how == "cut":
            cluster.cut(key, data.draw(st.integers(0, size - 1)), broker=broker)
        elif how == "grow":
            path.write_bytes(path.read_bytes() + b"x")
        else:
            path.unlink()
    report = repaired(cluster)
    assert data_files(cluster) == before
    assert report.left == []
    assert report.clean


@pytest.mark.parametrize("how", ["fails", "changes"])
def test_a_source_that_fails_or_changes_during_a_repair_spoils_neither_copy(how: str, tmp_path: Path) -> None:
    """The disturbance is injected at each read of the source in turn."""
    outcomes, reads, disturbed = set(), 1, 0
    while disturbed <= reads:
        is_repaired, reads = repair_disturbed(DamagedCluster(tmp_path / str(disturbed), brokers=2), how, disturbed)
        outcomes.add(is_repaired)
        disturbed += 1
    assert outcomes == {True, False}


def repair_disturbed(cluster: DamagedCluster, how: str, disturbed: int) -> tuple[bool, int]:
    """Repair a file of the root from broker 1, whose copy fails or changes at this read. Return whether it was
    repaired, and the number of reads."""
    key = cluster.append()
    sound = cluster.file(key).read_bytes()
    cluster.flip(key, len(sound) // 2)
    damaged = cluster.file(key).read_bytes()
    reads: list[Call] = []

    def disturb(step: int, call: Call) -> None:
        if call.key != key:
            return
        reads.append(call)
        if len(reads) - 1 != disturbed:
            return
        if how == "fails":
            raise StorageError(f"{key} cannot be read")
        cluster.flip(key, len(sound) // 2, broker=1)

    check = cluster.check()
    check.stores[1] = FaultyStore(check.stores[1], before=disturb)
    repair_cluster(check)
    content = cluster.file(key).read_bytes()
    assert content in (sound, damaged)
    assert how == "changes" or cluster.file(key, 1).read_bytes() == sound
    return content == sound, len(reads)


def test_two_copies_with_different_damaged_batches_are_both_repaired(replicated: DamagedCluster) -> None:
    path = replicated.append()
    before = data_files(replicated)
    entries = decode_index(replicated.file(index_of(path)).read_bytes(), path).entries
    replicated.flip(path, entries[0].position + 300, broker=0)
    replicated.flip(path, entries[2].position + 300, broker=1)
    assert {finding.repairable for finding in replicated.report().findings} == {True}
    assert repaired(replicated).left == []
    assert data_files(replicated) == before


def test_a_log_and_an_index_from_two_copies_are_combined_and_deleting_records_is_not_suggested(
    replicated: DamagedCluster,
) -> None:
    path = replicated.append()
    before = data_files(replicated)
    replicated.file(path, 0).unlink()
    replicated.file(index_of(path), 1).unlink()
    lost = next(finding for finding in replicated.check().report.findings if finding.kind == "missing-log")
    assert "fsck --repair" in lost.action
    assert "broker 1" in lost.action
    assert "delete-records" not in lost.action
    assert repaired(replicated).left == []
    assert data_files(replicated) == before


def test_batches_that_no_copy_has_are_reported_and_the_others_repaired(replicated: DamagedCluster) -> None:
    path = replicated.append()
    entries = decode_index(replicated.file(index_of(path)).read_bytes(), path).entries
    for broker in (0, 1):
        replicated.flip(path, entries[1].position + 300, bit=broker, broker=broker)
    replicated.flip(path, entries[2].position + 300, broker=1)
    report = repaired(replicated)
    assert report.left is not None
    assert [(finding.kind, finding.broker, finding.start_offset, finding.end_offset) for finding in report.left] == [
        ("damaged-batch", 0, BATCH, 2 * BATCH),
        ("damaged-batch", 1, BATCH, 2 * BATCH),
    ]
    assert any("offsets 5 to 9 of orders-0" in repair.why_not for repair in report.repairs)
    assert not report.clean


def test_a_file_that_is_put_back_while_it_is_assembled_without_a_batch_is_kept(tmp_path: Path) -> None:
    """It is put back before each step of the write in turn."""
    step, steps = 0, 1
    while step < steps:
        cluster = DamagedCluster(tmp_path / str(step), brokers=2)
        path = cluster.append()
        sound = cluster.file(path).read_bytes()
        entries = decode_index(cluster.file(index_of(path)).read_bytes(), path).entries
        for broker in (0, 1):
            cluster.flip(path, entries[1].position + 300, bit=broker, broker=broker)
        cluster.flip(path, entries[2].position + 300)
        steps = repair_put_back(cluster, path, sound, step)
        assert cluster.file(path).read_bytes() == sound, step
        step += 1


def repair_put_back(cluster: DamagedCluster, path: str, sound: bytes, step: int) -> int:
    """Repair a file of the root, which is put back before this step of its write; return the number of steps."""
    calls: list[str] = []

    def put_back(_: int, call: Call) -> None:
        if call.key != path or (call.operation != "open_output" and not calls):
            return
        if len(calls) == step:
            cluster.file(path).write_bytes(sound)
        calls.append(call.operation)

    check = cluster.check()
    check.stores[0] = FaultyStore(check.stores[0], before=put_back)
    repair_cluster(check)
    return len(calls) - calls[::-1].index("write")


def test_a_damaged_batch_without_another_copy_is_left_unchanged(cluster: DamagedCluster) -> None:
    path = cluster.append()
    cluster.flip(path, 700)
    before = data_files(cluster)
    report = repaired(cluster)
    assert [repair.done for repair in report.repairs] == [False]
    assert "no copy has batch 0 (offsets 0 to 4 of orders-0)" in report.repairs[0].why_not
    assert data_files(cluster) == before


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_index_with_a_flipped_bit_is_rebuilt_from_the_only_log(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = DamagedCluster(tmp_path_factory.mktemp("repair"))
    path = cluster.append(partitions=(0, 1), codec=data.draw(st.sampled_from(CODECS)))
    before = data_files(cluster)
    cluster.flip(index_of(path), data.draw(st.integers(0, len(before[f"0:{index_of(path)}"]) - 1)))
    report = repaired(cluster)
    assert data_files(cluster) == before
    assert report.left == []
    assert "vouches for the .log" in report.repairs[0].what


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_index_is_never_rebuilt_from_a_damaged_log(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = DamagedCluster(tmp_path_factory.mktemp("repair"))
    path = cluster.append()
    for key in (path, index_of(path)):
        cluster.flip(key, data.draw(st.integers(0, cluster.file(key).stat().st_size - 1)))
    before = data_files(cluster)
    report = repaired(cluster)
    assert not report.clean
    assert data_files(cluster) == before
    assert [repair.done for repair in report.repairs] == [False]


def test_a_change_of_a_log_that_the_checksum_of_its_damaged_index_hides_is_noticed(cluster: DamagedCluster) -> None:
    """CRCs are linear: this bit of a value and this bit of a decoded length leave the checksum of the index as it was,
    if that length is taken from the damaged index."""
    path = cluster.append()
    cluster.flip(path, 1200)
    cluster.flip(index_of(path), 64 + 48)
    before = data_files(cluster)
    report = repaired(cluster)
    assert not report.clean
    assert data_files(cluster) == before


def test_the_lost_index_of_an_only_copy_is_not_rebuilt_and_the_reason_is_reported(cluster: DamagedCluster) -> None:
    path = cluster.append()
    cluster.file(index_of(path)).unlink()
    report = repaired(cluster)
    assert kinds(report) == ["missing-index"]
    assert "nothing says that its bytes are those that were written" in report.repairs[0].why_not
    assert not cluster.file(index_of(path)).exists()


def test_brokers_that_never_had_a_file_are_not_named_as_the_reason_against_a_rebuild(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path)
    add_broker(open_cluster(str(cluster.root)), str(tmp_path / "other"))
    cluster.file(index_of(cluster.append())).unlink()
    [finding] = cluster.check().report.findings
    assert "nothing says that its bytes are those" in finding.action
    assert "broker 1" not in finding.action


def test_two_equal_logs_without_indexes_verify_each_other(replicated: DamagedCluster) -> None:
    path = replicated.append()
    before = data_files(replicated)
    for broker in (0, 1):
        replicated.file(index_of(path), broker).unlink()
    report = repaired(replicated)
    assert report.left == []
    assert data_files(replicated) == before


def test_two_unequal_logs_without_indexes_are_not_repaired(replicated: DamagedCluster) -> None:
    path = replicated.append()
    for broker in (0, 1):
        replicated.file(index_of(path), broker).unlink()
    replicated.flip(path, 900, broker=1)
    report = repaired(replicated)
    assert [repair.done for repair in report.repairs] == [False, False]


def test_sound_copies_that_differ_are_left_unchanged(replicated: DamagedCluster, tmp_path: Path) -> None:
    path = replicated.append(codec="none")
    other = DamagedCluster(tmp_path / "other")
    key = other.append()
    shutil.copy(other.file(key), replicated.file(path, 1))
    shutil.copy(other.file(index_of(key)), replicated.file(index_of(path), 1))
    before = data_files(replicated)
    repaired(replicated)
    assert data_files(replicated) == before


def test_a_dry_run_reports_repairs_and_changes_nothing(replicated: DamagedCluster) -> None:
    path = replicated.append()
    replicated.flip(path, 700, broker=1)
    before = data_files(replicated)
    report = repaired(replicated, dry_run=True)
    assert [(repair.path, repair.broker, repair.done) for repair in report.repairs] == [(path, 1, False)]
    assert report.left is None
    assert data_files(replicated) == before


def test_records_are_unchanged_after_several_repairs(replicated: DamagedCluster) -> None:
    paths = [replicated.append(partitions=(0, 1)) for _ in range(4)]
    wanted = [replicated.values(partition=number) for number in (0, 1)]
    replicated.flip(paths[0], 700)
    replicated.cut(paths[1], 900)
    replicated.file(paths[2]).unlink()
    replicated.flip(index_of(paths[3]), 100)
    report = repaired(replicated)
    assert report.clean
    assert [replicated.values(partition=number) for number in (0, 1)] == wanted


# -- metadata


def with_checkpoint(cluster: DamagedCluster) -> DamagedCluster:
    for _ in range(3):
        cluster.append()
    cluster.reopened().log.write_checkpoint()
    cluster.append()
    return cluster


@pytest.mark.parametrize("suffix", [".json", ".heads", ".lists", ".segments"])
def test_a_damaged_checkpoint_is_replaced_and_the_cluster_opens_as_before(
    cluster: DamagedCluster, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(lists, "TAIL_SEGMENTS", 0)
    wanted = with_checkpoint(cluster).reopened().state
    folder = cluster.root / "meta" / "checkpoints"
    [path] = [path for path in folder.glob(f"*{suffix}") if path.name != "latest.json"]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    report = repaired(cluster)
    assert report.clean
    assert cluster.reopened().state == wanted
    assert len(cluster.values()) == 12 * BATCH
    assert len(list(folder.glob("*.heads"))) == 1 or suffix == ".json"


def test_a_damaged_checkpoint_is_kept_if_its_commits_were_removed(cluster: DamagedCluster) -> None:
    with_checkpoint(cluster)
    (cluster.root / "meta" / "boundary.json").write_bytes(b'{"boundary":3}')
    for version in range(4):
        (cluster.root / commit_key(version)).unlink()
    folder = cluster.root / "meta" / "checkpoints"
    [heads] = folder.glob("*.heads")
    heads.write_bytes(heads.read_bytes()[:-1])
    before = sorted(folder.iterdir())
    report = repaired(cluster)
    assert [repair.done for repair in report.repairs] == [False, False][: len(report.repairs)]
    assert {path for path in before if path.name != "latest.json"} <= set(folder.iterdir())
    assert not report.clean


def test_a_checkpoint_of_another_timeline_is_removed(cluster: DamagedCluster, tmp_path: Path) -> None:
    wanted = with_checkpoint(cluster).reopened().state
    other = with_checkpoint(DamagedCluster(tmp_path / "other"))
    folder = cluster.root / "meta" / "checkpoints"
    shutil.rmtree(folder)
    shutil.copytree(other.root / "meta" / "checkpoints", folder)
    assert repaired(cluster).left == []
    assert cluster.reopened().state == wanted
    assert len(cluster.values()) == 12 * BATCH


def test_a_stale_hint_is_removed(cluster: DamagedCluster) -> None:
    with_checkpoint(cluster)
    hint = cluster.root / "meta" / "checkpoints" / "latest.json"
    hint.write_bytes(b'{"manifest":"meta/checkpoints/gone.json"}')
    assert repaired(cluster).left == []
    assert not hint.exists()


def test_cluster_json_is_restored_from_a_checkpoint(cluster: DamagedCluster) -> None:
    wanted = with_checkpoint(cluster).coordinator.state.cluster_id
    (cluster.root / "cluster.json").unlink()
    assert repaired(cluster).left == []
    assert json.loads((cluster.root / "cluster.json").read_bytes())["cluster_id"] == wanted


def test_the_damaged_boundary_of_a_log_with_all_its_commits_is_removed(cluster: DamagedCluster) -> None:
    cluster.append()
    boundary = cluster.root / "meta" / "boundary.json"
    boundary.write_bytes(b"{")
    report = repaired(cluster)
    assert report.clean
    assert not boundary.exists()
    assert len(cluster.values()) == 3 * BATCH


def test_a_damaged_boundary_is_kept_if_no_checkpoint_covers_the_missing_commits(
    cluster: DamagedCluster,
) -> None:
    cluster.append()
    boundary = cluster.root / "meta" / "boundary.json"
    boundary.write_bytes(b"{")
    for version in range(2):
        (cluster.root / commit_key(version)).unlink()
    report = repaired(cluster)
    assert "no checkpoint covers the commits that are missing" in [repair.why_not for repair in report.repairs]
    assert boundary.read_bytes() == b"{"
    assert not report.clean


def test_a_damaged_boundary_is_rewritten(cluster: DamagedCluster) -> None:
    with_checkpoint(cluster)
    (cluster.root / "meta" / "boundary.json").write_bytes(b"{}")
    for version in range(3):
        (cluster.root / commit_key(version)).unlink()
    assert repaired(cluster).left == []
    assert json.loads((cluster.root / "meta" / "boundary.json").read_bytes())["boundary"] == 2


@pytest.mark.parametrize("how", ["delete", "flip", "edit"])
@pytest.mark.parametrize("version", [2, 4, 5])
def test_a_commit_is_restored_from_a_mirror(cluster: DamagedCluster, tmp_path: Path, how: str, version: int) -> None:
    with_checkpoint(cluster)
    cluster.pad(1)
    mirror = tmp_path / "mirror"
    shutil.copytree(cluster.root / "meta", mirror / "meta")
    path = cluster.root / commit_key(version)
    wanted = path.read_bytes()
    if how == "delete":
        path.unlink()
    elif how == "flip":
        path.write_bytes(wanted.replace(b"orders", b"others"))
    else:
        cluster.edit_commit(version, writer="somebody")
    report = repaired(cluster, mirrors=(str(mirror),))
    assert report.left == []
    assert path.read_bytes() == wanted


def test_consecutive_commits_are_restored_from_a_mirror(cluster: DamagedCluster, tmp_path: Path) -> None:
    with_checkpoint(cluster)
    cluster.pad(2)
    mirror = tmp_path / "mirror"
    shutil.copytree(cluster.root / "meta", mirror / "meta")
    wanted = cluster.reopened().state
    for version in (1, 2, 5, 6):
        (cluster.root / commit_key(version)).unlink()
    planned = repaired(cluster, mirrors=(str(mirror),), dry_run=True).repairs
    assert [(repair.done, repair.why_not) for repair in planned] == [(False, "")] * 4
    assert repaired(cluster, mirrors=(str(mirror),)).left == []
    assert cluster.reopened().state == wanted


def test_a_mirror_that_has_diverged_is_not_used(cluster: DamagedCluster, tmp_path: Path) -> None:
    """The last commit is missing, and only a checkpoint has its digest."""
    with_checkpoint(cluster)
    other = tmp_path / "other"
    shutil.copytree(cluster.root, other)
    cluster.pad(1)
    cluster.reopened().log.write_checkpoint()
    (cluster.root / commit_key(6)).unlink()
    fork = DamagedCluster.__new__(DamagedCluster)
    fork.coordinator = open_cluster(str(other))
    fork.pad(1)
    report = repaired(cluster, mirrors=(str(other),))
    assert "is not that of the mirror's commit" in report.repairs[0].why_not


def test_a_commit_of_another_timeline_is_not_restored(cluster: DamagedCluster, tmp_path: Path) -> None:
    with_checkpoint(cluster)
    other = with_checkpoint(DamagedCluster(tmp_path / "other"))
    (cluster.root / commit_key(3)).unlink()
    report = repaired(cluster, mirrors=(str(other.root),))
    assert "does not follow" in report.repairs[0].why_not
    assert not (cluster.root / commit_key(3)).exists()
