"""A location without cluster.json: the error says what it is, and no cluster is created from the commits of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.errors import ClusterNotFoundError, CorruptMetadataError, SparklogError
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.layout import read_cluster_file
from sparklog.maintenance import check_cluster
from sparklog.maintenance.mirror import mirror
from sparklog.store.open import open_store


@pytest.fixture
def root(tmp_path: Path) -> str:
    cluster = create_cluster(str(tmp_path / "root"))
    cluster.create_topic("orders")
    return cluster.store.root


def files_below(root: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(root).rglob("*") if path.is_file()}


def test_a_mirror_is_distinguished_from_a_cluster_and_not_made_one(root: str, tmp_path: Path) -> None:
    target = open_store(str(tmp_path / "mirror"))
    mirror(open_store(root), target)
    before = files_below(target.root)
    with pytest.raises(ClusterNotFoundError, match=r"is a mirror .* `sparklog cluster promote --to"):
        open_cluster(target)
    with pytest.raises(ClusterNotFoundError, match="is a mirror"):
        create_cluster(target)
    assert files_below(target.root) == before


def test_a_root_without_its_cluster_file_is_referred_to_repair_and_gets_no_new_id(root: str) -> None:
    Path(root, "cluster.json").unlink()
    before = files_below(root)
    with pytest.raises(ClusterNotFoundError, match="sparklog fsck --repair"):
        open_cluster(root)
    with pytest.raises(ClusterNotFoundError, match="has the commits of a cluster"):
        create_cluster(root)
    assert files_below(root) == before


def test_the_location_of_a_broker_is_distinguished_from_a_cluster(root: str, tmp_path: Path) -> None:
    add_broker(open_cluster(root), str(tmp_path / "disk"))
    with pytest.raises(ClusterNotFoundError, match="is the location of a broker"):
        read_cluster_file(open_store(str(tmp_path / "disk")))


def test_a_creation_interrupted_after_the_cluster_file_is_completed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "root"))
    first = CommitLog.create(store, cluster_id="first")
    first.store.delete("meta/commits/00000000000000000000.json")
    assert CommitLog.create(store).refresh().cluster_id == "first"


COMMIT_0 = "meta/commits/00000000000000000000.json"


def test_opening_a_cluster_whose_creation_was_interrupted_writes_nothing(tmp_path: Path) -> None:
    """It may be restored from a copy at the moment, its cluster.json first."""
    root = str(tmp_path / "root")
    create_cluster(root)
    open_store(root).delete(COMMIT_0)
    before = files_below(root)
    with pytest.raises(ClusterNotFoundError, match="run `sparklog cluster create"):
        open_cluster(root)
    assert files_below(root) == before
    create_cluster(root).create_topic("orders")
    assert list(open_cluster(root).state.topics) == ["orders"]


TRACES = [
    "orders-0/00000000000000000000-v1-abc.log",
    "tables/orders/_segments/partition=0/00000000000000000000-v1-abc.parquet",
    "meta/boundary.json",
    "meta/checkpoints/00000000000000000017-boundary.mark",
    "meta/checkpoints/latest.json",
    "meta/removed/00000000000000000017-abc.arrow",
    "leases/groups/billing/member",
]


@pytest.mark.parametrize("with_cluster_file", [True, False])
@pytest.mark.parametrize("trace", TRACES)
def test_a_root_whose_commits_are_gone_is_not_a_new_cluster(
    tmp_path: Path, trace: str, with_cluster_file: bool
) -> None:
    """Partly mounted, or partly restored: what was written to it now would be lost once the rest is there."""
    root = str(tmp_path / "root")
    create_cluster(root)
    store = open_store(root)
    store.put(trace, b'{"boundary":-1}' if trace.endswith("boundary.json") else b"1")
    store.delete(COMMIT_0)
    if not with_cluster_file:
        store.delete("cluster.json")
    before = files_below(root)
    opened: type[SparklogError] = CorruptMetadataError if with_cluster_file else ClusterNotFoundError
    with pytest.raises(opened):
        open_cluster(root)
    with pytest.raises(SparklogError, match=r"there were some|has the commits of a cluster"):
        create_cluster(root)
    assert files_below(root) == before
    if with_cluster_file:
        assert "lost-history" in [finding.kind for finding in check_cluster(root).report.findings]


def test_other_files_are_no_trace_of_commits(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("lost+found/x", "README", "notes-1/today.log", "orders/0.log", "meta/clock", "meta/removed/.DS_Store"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    create_cluster(str(root)).create_topic("orders")
    assert list(open_cluster(str(root)).state.topics) == ["orders"]
