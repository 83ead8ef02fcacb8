"""Clusters of every level stay usable: opened, read, checked, written to, maintained, repaired and opened again.

At their own level, unless that is one which this version only reads: then they have to be upgraded first.
``tests/golden/make_clusters.py`` says what they contain and how they were made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import FeatureLevelError
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.loop import Loop, problems
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.steps import STEPS, MaintenanceContext, steps
from sparklog.protocol import levels
from sparklog.protocol.decide.append import AppendRequest, AppendResult
from sparklog.protocol.decide.features import raise_level
from sparklog.protocol.decide.producers import init_producer
from sparklog.store.local import LocalStore
from sparklog.store.memory import MemoryStore, forget_space
from tests.level_contents import find_beyond_level

GOLDEN = Path(__file__).parents[1] / "golden"
BROKER_1 = "golden-broker-1"
CLUSTERS = sorted(path.parent for path in GOLDEN.glob("cluster-v*/*/expected.json"))
WITH_ALL_COMMITS = [path for path in CLUSTERS if not (path / "root/meta/boundary.json").exists()]
OF_CLIENTS = [path for path in CLUSTERS if path.name == "written"]
ONLY_READ = [path for path in OF_CLIENTS if int(path.parent.name.removeprefix("cluster-v")) < levels.OLDEST_WRITTEN]


class Golden:
    """A copy of a golden cluster that may be written to."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.expected: dict[str, Any] = json.loads((source / "expected.json").read_text())
        self.store = LocalStore(str(shutil.copytree(source / "root", folder / "root")))
        self.clock = ManualClock(self.expected["now_ms"])
        self.upgraded: set[str] = set()
        broker = MemoryStore(BROKER_1)
        for path in (source / "broker-1").rglob("*"):
            if path.is_file():
                broker.put(str(path.relative_to(source / "broker-1")), path.read_bytes())

    def open(self) -> Coordinator:
        return open_cluster(self.store, clock=self.clock)

    def open_to_write(self) -> Coordinator:
        """Open it, after the upgrade that a level takes which is only read."""
        coordinator = self.open()
        if coordinator.state.level < levels.OLDEST_WRITTEN:
            self.upgraded = set(self.contents())
            coordinator.submit(partial(raise_level, level=levels.OLDEST_WRITTEN))
        return coordinator

    def beyond_level(self) -> list[str]:
        """What is stored and not of the cluster's level."""
        return find_beyond_level(self.store, self.open().state.level, self.upgraded)

    def append(self, coordinator: Coordinator, topic: str, values: list[bytes], **producer: int) -> AppendResult:
        self.clock.advance(1)
        state = coordinator.refresh()
        found = state.topic(topic)
        key = segment_key(topic, 0, 0, state.version, coordinator.log.ids.write_id())
        first, *others = found.partitions[0].replicas
        copies = [(broker, coordinator.store_of(broker)) for broker in others]
        writer = SegmentFileWriter(coordinator.store_of(first), key, broker=first, replicas=copies)
        writer.start_run(RunTarget(topic, found.topic_id, 0, **producer))
        columns = [
            pa.array([b"k"] * len(values), pa.binary()),
            pa.array(values, pa.binary()),
            pa.array([self.clock.now_ms() * 1000] * len(values), pa.timestamp("us", tz="UTC")),
        ]
        writer.write(pa.RecordBatch.from_arrays(columns, names=["key", "value", "timestamp"]))
        return coordinator.append(AppendRequest(appends=writer.finish()))

    def contents(self) -> dict[str, bytes]:
        return {info.key: self.store.get(info.key) for info in self.store.list()}

    def wrong(self) -> list[object]:
        """The findings of fsck, without notes."""
        check = check_cluster(self.store, clock=self.clock)
        return [finding for finding in check.report.findings if finding.severity != "info"]


@pytest.fixture(params=CLUSTERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Golden]:
    yield Golden(request.param, tmp_path)
    forget_space(BROKER_1)


def records(coordinator: Coordinator) -> dict[str, list[Any]]:
    state = coordinator.refresh()
    values: dict[str, list[Any]] = {}
    with LogReader(coordinator) as reader:
        for name, topic in sorted(state.topics.items()):
            for number, partition in enumerate(topic.partitions):
                read = reader.records(name, number, partition.log_start_offset, partition.log_end_offset)
                values[f"{name}-{number}"] = [
                    [
                        one.offset,
                        _hex(one.key),
                        _hex(one.value),
                        one.timestamp_us,
                        [[k, _hex(v)] for k, v in one.headers],
                    ]
                    for one in read
                ]
    return values


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


@pytest.mark.parametrize("level", range(1, levels.CURRENT + 1))
def test_there_are_golden_clusters_of_each_level(level: int) -> None:
    names = {path.name for path in CLUSTERS if path.parent.name == f"cluster-v{level}"}
    assert names == {"written", "maintained", "replicated", *["history"] * (level > 2)}


def test_every_record_offset_and_member_is_kept(golden: Golden) -> None:
    coordinator, expected = golden.open(), golden.expected
    state = coordinator.state
    assert (state.cluster_id, state.version) == (expected["cluster_id"], expected["version"])
    assert records(coordinator) == expected["records"]
    assert {name: sorted(group.members) for name, group in state.groups.items()} == expected["members"]
    offsets = {
        name: {f"{one.topic}-{one.partition}": [one.offset, one.metadata] for one in group.offsets.values()}
        for name, group in state.groups.items()
    }
    assert offsets == expected["offsets"]


@pytest.mark.parametrize("golden", WITH_ALL_COMMITS, indirect=True)
def test_it_can_be_read_from_its_commits_alone_if_complete(golden: Golden) -> None:
    shutil.rmtree(Path(golden.store.root) / "meta" / "checkpoints")
    assert records(golden.open()) == golden.expected["records"]


def test_fsck_has_no_findings(golden: Golden) -> None:
    assert golden.wrong() == []


def test_it_stores_nothing_beyond_its_level(golden: Golden) -> None:
    if golden.open().state.level >= levels.OLDEST_WRITTEN:
        assert golden.beyond_level() == []


@pytest.mark.parametrize("golden", ONLY_READ, indirect=True)
def test_a_level_that_is_only_read_is_not_written_before_the_upgrade(golden: Golden) -> None:
    coordinator = golden.open()
    golden.clock.advance(30 * 86_400.0)
    before = golden.contents()
    for write in (
        lambda: coordinator.create_topic("new"),
        lambda: Producer(cluster=coordinator),
        lambda: MaintenanceContext(coordinator, lambda description: InProcess()),
        coordinator.log.write_checkpoint,
        lambda: vacuum(coordinator, dry_run=False),
    ):
        with pytest.raises(FeatureLevelError, match="sparklog features upgrade --feature-level 2"):
            write()
    assert golden.contents() == before
    AdminClient(cluster=coordinator).update_features({"metadata.version": 2})
    coordinator.create_topic("new")
    assert coordinator.state.level == 2


@pytest.mark.parametrize("golden", WITH_ALL_COMMITS, indirect=True)
def test_fsck_repairs_a_damaged_checkpoint_and_a_lost_copy(golden: Golden) -> None:
    golden.open_to_write()
    root = Path(golden.store.root)
    newest = max(root.glob("meta/checkpoints/*.heads"))
    newest.write_bytes(newest.read_bytes()[:-1] + b"!")
    for path in root.glob("copied-0/*"):
        path.unlink()
    check = check_cluster(golden.store, clock=golden.clock)
    kinds = {finding.kind for finding in check.report.findings}
    assert kinds >= {"damaged-checkpoint", *["missing-log"] * (root.parent / "root/copied-0").exists()}
    repair_cluster(check)
    assert golden.wrong() == []
    assert records(golden.open()) == golden.expected["records"]
    assert golden.beyond_level() == []


def test_it_can_be_written_checkpointed_and_reopened(golden: Golden) -> None:
    coordinator, expected = golden.open_to_write(), golden.expected["records"]
    level = coordinator.state.level
    for topic in sorted(coordinator.state.topics):
        golden.append(coordinator, topic, [b"new"])
        expected[f"{topic}-0"].append(records(coordinator)[f"{topic}-0"][-1])
    assert records(golden.open()) == expected
    coordinator.log.write_checkpoint()
    again = golden.open()
    assert records(again) == expected
    golden.append(again, min(again.state.topics), [b"newer"])
    assert golden.wrong() == []
    assert again.state.level == level
    assert golden.beyond_level() == []


def test_maintenance_runs_without_problems(golden: Golden) -> None:
    golden.clock.advance(30 * 86_400)
    with closing(MaintenanceContext(golden.open_to_write(), lambda description: InProcess())) as context:
        wanted = [name for name in STEPS if name != "mirror"]
        reports = Loop(steps(context, wanted), golden.clock).once()
    assert problems(reports) == 0, [report.problems for report in reports]
    assert golden.wrong() == []
    assert golden.beyond_level() == []


@pytest.mark.parametrize("golden", OF_CLIENTS, indirect=True)
def test_a_repeated_append_of_an_earlier_producer_is_not_stored_again(golden: Golden) -> None:
    coordinator = golden.open_to_write()
    before = records(coordinator)
    again = golden.append(coordinator, "sequenced", [b"x"] * 3, producer_id=0, producer_epoch=0, base_sequence=9)
    assert again.duplicate
    assert [one.base_offset for one in again.appended] == [9]
    assert records(coordinator) == before
    follows = golden.append(coordinator, "sequenced", [b"next"], producer_id=0, producer_epoch=0, base_sequence=12)
    assert not follows.duplicate


@pytest.mark.parametrize("golden", OF_CLIENTS, indirect=True)
def test_results_given_to_earlier_producers_and_applications_are_kept(golden: Golden) -> None:
    coordinator = golden.open_to_write()
    successor = coordinator.submit(partial(init_producer, transactional_id="payments-1"))
    assert (successor.producer_id, successor.producer_epoch) == (1, 2)
    assert coordinator.submit(init_producer).producer_id == 2
    assert coordinator.state.applications["nightly"].version == 7
