"""A cluster is sound at every step of maintenance (roll, compaction, retention, sweep), and damage to compacted files
is reported with the offsets that are still in them."""

from __future__ import annotations

import pytest

from sparklog.clock import ManualClock
from sparklog.format.index import decode_index
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import INFO, Finding
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.segments import Segment
from sparklog.testing.clusters import Cluster, cluster
from tests.cluster.maintenance.logs import Written, append

CONFIGS = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}


def put(c: Cluster, *keys: str, codec: str = "none") -> None:
    end = c.coordinator.refresh().partition("t", 0).log_end_offset
    append(c.coordinator, "t", [Written(key.encode(), b"v" * 50, 1 + end) for key in keys], codec=codec)


def errors_and_warnings(c: Cluster) -> list[Finding]:
    return [finding for finding in check_cluster(c.coordinator.store).report.findings if finding.severity != INFO]


def compacted(c: Cluster, codec: str = "none") -> Segment:
    """A log of offsets 0 to 8, whose first segment holds 2, 4, 5 and 7 in one file with gaps."""
    c.create_topic("t", configs={**CONFIGS, "compression.type": "uncompressed" if codec == "none" else codec})
    put(c, "a", "b", "c", codec=codec)
    put(c, "a", "b", "d", codec=codec)
    put(c, "a", "e", codec=codec)
    put(c, "z", codec=codec)
    compact(c.coordinator, InProcess())
    c.coordinator.refresh()
    return next(segment for segment in c.coordinator.segments("t").partition(0) if segment.has_gaps)


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip"])
def test_a_compacted_log_is_sound(codec: str) -> None:
    with cluster() as c:
        compacted(c, codec)
        assert errors_and_warnings(c) == []


def test_every_step_of_maintenance_leaves_a_sound_log() -> None:
    clock = ManualClock(now_ms=1_000_000_000)
    with cluster(clock=clock) as c:
        c.create_topic("t", configs={"segment.ms": "600000", "retention.ms": "600000", "file.delete.delay.ms": "1"})
        for _ in range(3):
            for _ in range(5):
                put(c, "a", "b", "c")
            assert errors_and_warnings(c) == []
            roll(c.coordinator, InProcess())
            c.coordinator.log.write_checkpoint()
            assert errors_and_warnings(c) == []
            clock.sleep(500)
            retain(c.coordinator)
            assert errors_and_warnings(c) == []
            clock.sleep(1)
            sweep(c.coordinator)
            assert errors_and_warnings(c) == []
        c.coordinator.log.write_checkpoint()
        assert errors_and_warnings(c) == []
        commits = c.coordinator.log.commits(0, c.coordinator.refresh().version)
        done = {type(action).__name__ for commit in commits for action in commit.actions}
        assert {"ReplaceSegments", "DeleteSegments", "RemoveFiles", "ForgetRemovedFiles"} <= done


def test_retired_files_are_not_reported_as_orphans() -> None:
    with cluster() as c:
        compacted(c)
        assert c.coordinator.state.removed_files
        assert [finding.kind for finding in check_cluster(c.coordinator.store).report.findings] == []


def test_a_missing_listing_is_reported() -> None:
    with cluster() as c:
        compacted(c)
        [listing] = c.coordinator.state.removed_files
        c.coordinator.store.delete(listing)
        [finding] = errors_and_warnings(c)
        assert (finding.kind, finding.path) == ("missing-listing", listing)


@pytest.mark.parametrize("codec", ["none", "lz4", "gzip"])
def test_damage_to_a_file_with_gaps_is_reported_with_its_offsets(codec: str) -> None:
    with cluster() as c:
        segment = compacted(c, codec)
        store = c.coordinator.store
        index = decode_index(store.get(segment.index_path), "i")
        data = bytearray(store.get(segment.path))
        data[index.entry(segment.first_batch).position + 300] ^= 1
        store.put(segment.path, bytes(data))
        [finding] = errors_and_warnings(c)
        first = segment.base_offset + index.entry(segment.first_batch).first_offset
        assert (finding.kind, finding.start_offset) == ("damaged-batch", first)
        assert first < finding.end_offset <= segment.end_offset


def test_a_damaged_index_of_a_file_with_gaps_is_rebuilt() -> None:
    with cluster() as c:
        segment = compacted(c)
        store = c.coordinator.store
        wanted = store.get(segment.index_path)
        store.put(segment.index_path, wanted[:-1] + bytes([wanted[-1] ^ 1]))
        check = check_cluster(store)
        repair_cluster(check)
        assert check.report.clean
        assert store.get(segment.index_path) == wanted
