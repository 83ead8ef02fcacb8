"""Retired files are kept while a mirror lacks the commit that retired them: promoted, it would need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.commits.retired_files import REMOVED
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.gc.sweep import HELD_BY_MIRROR_MS, MIRROR_IN_USE_MS, SweepResult, due_files, sweep
from sparklog.maintenance.mirror import NOTE_RENEWED_MS, mirror, read_mirrored_versions
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from tests.cluster.maintenance.logs import Written, append, records

DELAY_MS = 60_000


class Mirrored:
    """A cluster with a mirror, and files that were rolled since its last pass."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(22 * 60_000)
        self.root = str(folder / "root")
        self.cluster: Coordinator = create_cluster(open_store(self.root), clock=self.clock)
        self.cluster.create_topic("t")
        self.target = open_store(str(folder / "mirror"))
        self.write()
        self.mirror()
        roll(self.cluster, InProcess())

    def write(self) -> None:
        for number in range(4):
            append(self.cluster, "t", [Written(b"k", b"%d" % number, number)])

    def mirror(self) -> None:
        mirror(self.cluster.store, self.target, self.clock)

    def sweep_after(self, ms: float) -> SweepResult:
        self.clock.advance(ms / 1000)
        self.cluster.refresh()
        return sweep(self.cluster)


def held(result: SweepResult) -> tuple[int, int]:
    return result.listings_held_by_mirrors, result.files


def test_a_mirror_that_is_behind_can_be_promoted_with_all_records_that_it_names(tmp_path: Path) -> None:
    scene = Mirrored(tmp_path)
    assert held(scene.sweep_after(2 * DELAY_MS)) == (1, 0)
    assert due_files(scene.cluster, scene.clock.now_ms()) == []
    (tmp_path / "root" / "cluster.json").rename(tmp_path / "lost")
    promote(scene.target.root, scene.root, force=True)
    assert len(list(records(open_cluster(scene.target.root), "t"))) == 4


def test_listings_that_a_replaced_root_has_kept_are_no_findings(tmp_path: Path) -> None:
    """No vacuum of the new root deletes metadata of the old one, which is a location of it."""
    scene = Mirrored(tmp_path)
    assert held(scene.sweep_after(2 * DELAY_MS)) == (1, 0)
    promote(scene.target.root, scene.root)
    promoted = open_cluster(scene.target.root, clock=scene.clock)
    assert sweep(promoted).files == 4
    assert list((tmp_path / "root" / REMOVED).iterdir())
    findings = check_cluster(promoted.store).report.findings
    assert [finding for finding in findings if finding.kind == kinds.ORPHAN_LISTING] == []


def test_files_are_deleted_once_the_mirror_has_the_commit(tmp_path: Path) -> None:
    scene = Mirrored(tmp_path)
    scene.mirror()
    assert held(scene.sweep_after(2 * DELAY_MS))[0] == 0
    assert held(scene.sweep_after(0))[0] == 0
    assert len(list(records(scene.cluster, "t"))) == 4


@pytest.mark.parametrize("longest", [HELD_BY_MIRROR_MS + DELAY_MS])
def test_a_mirror_holds_files_for_a_day_at_most(tmp_path: Path, longest: int) -> None:
    scene = Mirrored(tmp_path)
    assert held(scene.sweep_after(longest - DELAY_MS)) == (1, 0)
    later = scene.sweep_after(2 * DELAY_MS)
    assert held(later)[0] == 0
    assert later.files > 0


def test_a_mirror_counts_for_a_week_after_its_last_pass() -> None:
    clock = ManualClock(10 * MIRROR_IN_USE_MS)
    root, target = MemoryStore("root-of-mirrors", clock), MemoryStore("a-mirror", clock)
    cluster = create_cluster(root, clock=clock)
    mirror(root, target, clock)
    versions = [cluster.refresh().version]
    assert read_mirrored_versions(root, clock.now_ms() - MIRROR_IN_USE_MS) == versions
    clock.advance(MIRROR_IN_USE_MS / 1000 - 60)
    mirror(root, target, clock)  # finds nothing new
    clock.advance(NOTE_RENEWED_MS / 1000)
    assert read_mirrored_versions(root, clock.now_ms() - MIRROR_IN_USE_MS) == versions
    clock.advance(MIRROR_IN_USE_MS / 1000)
    assert read_mirrored_versions(root, clock.now_ms() - MIRROR_IN_USE_MS) == []
