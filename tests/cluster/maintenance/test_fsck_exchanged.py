"""`sparklog fsck` and a file that is, with its index, another one of the same size."""

from __future__ import annotations

from pathlib import Path

from sparklog.maintenance.fsck import kinds
from tests.cluster.maintenance.damaged_clusters import DamagedCluster, index_of
from tests.cluster.maintenance.logs import Written, append, live


def test_a_file_whose_times_are_within_those_that_the_commit_names_is_not_taken_for_its_file(tmp_path: Path) -> None:
    cluster = DamagedCluster(tmp_path, partitions=1)
    append(cluster.coordinator, "orders", [Written(b"k", b"1", minute=1), Written(b"k", b"2", minute=9)])
    append(cluster.coordinator, "orders", [Written(b"k", b"3", minute=3), Written(b"k", b"4", minute=7)])
    first, second = live(cluster.coordinator, "orders")
    for old, new in ((first.path, second.path), (index_of(first.path), index_of(second.path))):
        cluster.file(old).write_bytes(cluster.file(new).read_bytes())
    (finding,) = cluster.report().findings
    assert finding.kind == kinds.WRONG_SEGMENT
    assert "the commit names timestamps" in finding.message
