"""A copy made in the order of docs/backup.md is complete despite concurrent writes; a check detects any other order."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import open_cluster
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.store.local import LocalStore
from tests.cluster.maintenance.damaged_clusters import BATCH, DamagedCluster, kinds

DOCUMENT = Path(__file__).parents[3] / "docs" / "backup.md"
ORDER = [
    "cluster.json",
    "meta/boundary.json",
    "meta/checkpoints/",
    "meta/commits/",
    "meta/actions/",
    "meta/removed/",
    "",
]


class Busy:
    """A cluster that is written to and checkpointed between any two files of a copy."""

    def __init__(self, folder: Path) -> None:
        self.cluster = DamagedCluster(folder)
        self.target = folder / "copy"
        self._files = 0
        for _ in range(4):
            self.work()

    def work(self) -> None:
        self._files += 1
        self.cluster.append()
        if self._files % 5 == 0:
            self.cluster.reopened().log.write_checkpoint()

    def copy(self, order: list[str]) -> None:
        for part in order:
            store = LocalStore(str(self.cluster.root))
            for info in store.list():
                is_data = not info.key.startswith(("meta/", "leases/", "cluster.json"))
                if info.key.startswith(part) if part else is_data:
                    path = self.target / info.key
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes((self.cluster.root / info.key).read_bytes())
                    self.work()


@pytest.fixture
def busy(tmp_path: Path) -> Busy:
    return Busy(tmp_path)


def test_a_copy_in_the_documented_order_is_complete_despite_concurrent_writes(busy: Busy) -> None:
    busy.copy(ORDER)
    report = check_cluster(LocalStore(str(busy.target))).report
    assert kinds(report) == []
    coordinator = open_cluster(LocalStore(str(busy.target)))
    end = coordinator.state.partition("orders", 0).log_end_offset
    assert end > 4 * 3 * BATCH
    with LogReader(coordinator) as reader:
        assert [record.offset for record in reader.records("orders", 0, 0, end)] == list(range(end))


def test_a_copy_of_records_before_commits_is_reported_as_incomplete(busy: Busy) -> None:
    busy.copy([ORDER[-1], *ORDER[:-1]])
    report = check_cluster(LocalStore(str(busy.target))).report
    assert "missing-log" in kinds(report)


def test_the_document_describes_this_order() -> None:
    steps = DOCUMENT.read_text().partition("## Making a copy")[2].partition("## Restoring")[0]
    positions = [steps.index(f"`{part}`") for part in ORDER if part]
    assert positions == sorted(positions)
    assert steps.index("The folders of the partitions") > positions[-1]
