"""Small real clusters in folders, to be damaged on purpose: topics with several batches in several segments, a file
shared by two partitions, and optionally copies on two brokers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.broker_files import encode_identity
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.layout import segment_key
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.fsck.check import Check, Scope, check_cluster
from sparklog.maintenance.fsck.kinds import Finding, Report
from sparklog.protocol.commits import Action, ForgetRemovedFiles, RegisterBroker, commit_key
from sparklog.protocol.decide.append import AppendRequest
from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.store.open import open_store

BATCH = 5
"""records of a batch."""


class DamagedCluster:
    """A cluster below ``folder``: its root is ``folder/root``, broker n is ``folder/broker-n``."""

    def __init__(
        self, folder: Path, brokers: int = 1, topics: Sequence[str] = ("orders",), partitions: int = 2
    ) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.coordinator = create_cluster(str(self.root))
        self.brokers = list(range(brokers))
        for broker in self.brokers[1:]:
            location = folder / f"broker-{broker}"
            store = open_store(str(location))
            store.put_if_absent("broker.json", encode_identity(self.coordinator.state.cluster_id, broker))
            self.commit(RegisterBroker(broker=broker, url=str(location)))
        for topic in topics:
            self.coordinator.create_topic(topic, partitions, brokers)

    @property
    def store(self) -> Store:
        return self.coordinator.store

    def location(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}" if broker else self.root

    def commit(self, *actions: Action) -> None:
        self.coordinator.refresh()
        assert self.coordinator.log.attempt(list(actions)) is CommitOutcome.WON

    def pad(self, commits: int) -> None:
        """Append commits that change nothing."""
        for _ in range(commits):
            self.commit(ForgetRemovedFiles(listings=[]))

    def append(
        self, topic: str = "orders", partitions: Sequence[int] = (0,), batches: int = 3, codec: str = "none"
    ) -> str:
        """Append one file with a run for each of these partitions; return its path."""
        state = self.coordinator.refresh()
        topic_state = state.topic(topic)
        key = segment_key(topic, partitions[0], 0, state.version, self.coordinator.log.ids.write_id())
        others = [(broker, LocalStore(str(self.location(broker)))) for broker in self.brokers[1:]]
        writer = SegmentFileWriter(self.coordinator.store, key, codec=codec, replicas=others)
        for partition in partitions:
            writer.start_run(RunTarget(topic, topic_state.topic_id, partition))
            end = topic_state.partitions[partition].log_end_offset
            for batch in range(batches):
                writer.write(records(topic, partition, end + batch * BATCH))
        self.coordinator.append(AppendRequest(appends=writer.finish()))
        return key

    def values(self, topic: str = "orders", partition: int = 0) -> list[bytes]:
        """Every record of a partition, read by a newly opened coordinator."""
        coordinator = open_cluster(str(self.root))
        fetcher = Fetcher(coordinator.store_of)
        end = coordinator.state.partition(topic, partition).log_end_offset
        segments = coordinator.segments(topic).partition(partition)
        parts = list(fetcher.read(topic, segments, 0, end, ["value"]))
        return [value for part in parts for value in part.batch.column(0).to_pylist()]

    def check(self, fast: bool = False, topics: Sequence[str] = (), partitions: Sequence[int] = ()) -> Check:
        return check_cluster(LocalStore(str(self.root)), Scope(topics, partitions, fast))

    def report(self, fast: bool = False) -> Report:
        return self.check(fast).report

    def reopened(self) -> Coordinator:
        return open_cluster(str(self.root))

    # -- damage

    def file(self, key: str, broker: int = 0) -> Path:
        return self.location(broker) / key

    def flip(self, key: str, position: int, bit: int = 0, broker: int = 0) -> None:
        path = self.file(key, broker)
        data = bytearray(path.read_bytes())
        data[position] ^= 1 << bit
        path.write_bytes(bytes(data))

    def cut(self, key: str, length: int, broker: int = 0) -> None:
        path = self.file(key, broker)
        path.write_bytes(path.read_bytes()[:length])

    def edit_commit(self, version: int, **changes: Any) -> None:
        """Edit a commit as a person who knows the format would: with a correct digest."""
        path = self.root / commit_key(version)
        fields = json.loads(path.read_bytes())
        fields.pop("digest")
        fields.update(changes)
        body = json.dumps(fields, separators=(",", ":")).encode()[:-1]
        digest = hashlib.sha256(body).hexdigest()
        path.write_bytes(body + b',"digest":"' + digest.encode() + b'"}\n')


def records(topic: str, partition: int, first: int) -> pa.RecordBatch:
    """A batch whose values name their topic, partition and offset."""
    numbers = range(first, first + BATCH)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([f"key-{number}".encode() for number in numbers], pa.binary()),
            "value": pa.array([f"{topic}-{partition}@{number}".encode() * 10 for number in numbers], pa.binary()),
            "timestamp": pa.array([number * 1000 for number in numbers], pa.timestamp("us", tz="UTC")),
        }
    )


def index_of(path: str) -> str:
    return path.removesuffix(".log") + ".index"


def kinds(report: Report) -> list[str]:
    """The kinds of the findings, without notes."""
    return [finding.kind for finding in report.findings if finding.severity != "info"]


def only(report: Report, *kind: str) -> Finding:
    """The only finding, without notes."""
    findings = [finding for finding in report.findings if finding.severity != "info"]
    assert len(findings) == 1, findings
    assert not kind or findings[0].kind in kind, findings
    return findings[0]
