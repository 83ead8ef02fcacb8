"""A location without cluster.json: the error says what it is, and no cluster is created from the commits of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.errors import ClusterNotFoundError
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.layout import read_cluster_file
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
