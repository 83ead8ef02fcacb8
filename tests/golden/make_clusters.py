"""Write complete small clusters of one level of the stored formats into a folder beside this file.

    git worktree add /tmp/old COMMIT                                # a version that writes the level
    PYTHONPATH=/tmp/old python tests/golden/make_clusters.py cluster-v1

Run it with the code of the version that writes the level: level 1 is what commit 48d3fec writes, level 2 commit
7ff02c5. A level is written once, when it is released, and then kept: later versions must open it, read every record,
and continue it (``test_golden_clusters.py``). The package of a level, to run beside a later one, is in ``releases/``:
its ``make dist`` wrote it.

    cluster-v1/written        what clients write: every codec, producers, transactions, groups, a checkpoint
    cluster-v1/maintained     after rolling, compaction, retention and the clean-up of commits: a boundary
    cluster-v1/replicated     two brokers: the root and broker-1
    cluster-v3/history        typed topics as Parquet and Delta tables, rollups, a report of fsck, many checkpoints
    .../expected.json         their contents, bytes as hexadecimal digits

Ids and times are seeded, so a level is always written identically, except with another version of Arrow. The second
broker is registered under an address in memory, ``memory://golden-broker-1``: an address on a disk would be that of one
machine.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, controller, create_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.leases import Lease
from sparklog.coordinator.reader_leases import ReaderLease
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.format.codecs import CODECS
from sparklog.format.schema import record_schema
from sparklog.ids import SeededIds
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.log.settings import LogSettings
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest, commit_group_offsets, join_group
from sparklog.protocol.decide.producers import ProducerIdentity, init_producer
from sparklog.protocol.decide.replicas import alter_reassignments
from sparklog.protocol.decide.segments import delete_records
from sparklog.protocol.decide.topics import alter_configs, create_partitions
from sparklog.store.memory import MemoryStore
from sparklog.types import OffsetAndMetadata

FOLDER = Path(__file__).parent
BROKER_1 = "memory://golden-broker-1"
START_MS = 1_790_000_000_000
DAY_SECONDS = 86_400.0
SETTINGS = LogSettings(min_commits_kept=4)
"""Otherwise a boundary takes more than a hundred commits."""

Record = tuple["bytes | None", "bytes | None", "Sequence[tuple[str, bytes | None]] | None"]
"""(key, value, headers); the timestamp is the number of the record, in milliseconds from ``START_MS``."""


class World:
    """A cluster in memory with a given clock and ids."""

    def __init__(self, name: str, seed: int) -> None:
        self.clock = ManualClock(START_MS)
        self.store = MemoryStore(f"golden-{name}", self.clock)
        self.coordinator: Coordinator = create_cluster(
            self.store, clock=self.clock, ids=SeededIds(seed), settings=SETTINGS
        )

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.advance(seconds)

    def write(
        self,
        topic: str,
        records: Mapping[int, Sequence[Record]],
        codec: str = "none",
        producer: ProducerIdentity | None = None,
        sequence: int = 0,
        **request: Any,
    ) -> None:
        """Write one file with a run for each partition, and one commit that names it."""
        self.tick()
        coordinator, state = self.coordinator, self.coordinator.refresh()
        topic_state = state.topic(topic)
        first = min(records)
        ends = topic_state.partitions[first].log_end_offset
        key = segment_key(topic, first, ends, state.version, coordinator.log.ids.write_id())
        replicas = topic_state.partitions[first].replicas
        others = [(broker, coordinator.store_of(broker)) for broker in replicas[1:]]
        writer = SegmentFileWriter(
            coordinator.store_of(replicas[0]),
            key,
            codec=codec,
            has_key=True,
            has_headers=True,
            broker=replicas[0],
            replicas=others,
        )
        for partition, rows in records.items():
            identity = {} if producer is None else producer._asdict() | {"base_sequence": sequence}
            writer.start_run(RunTarget(topic, topic_state.topic_id, partition, **identity))
            writer.write(batch_of(rows, topic_state.partitions[partition].log_end_offset))
        coordinator.append(AppendRequest(appends=writer.finish(), **request))


def batch_of(rows: Sequence[Record], first: int) -> pa.RecordBatch:
    fields = record_schema(("key", "value", "timestamp", "headers"))
    columns: dict[str, list[Any]] = {
        "key": [key for key, _, _ in rows],
        "value": [value for _, value, _ in rows],
        "timestamp": [(START_MS + first + number) * 1000 for number in range(len(rows))],
        "headers": [h and [{"key": name, "value": value} for name, value in h] for _, _, h in rows],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in fields], schema=fields)


def rows_of(what: str, count: int, first: int = 0, keys: int = 0) -> list[Record]:
    """Return plain records; with ``keys``, that many keys in turn."""
    return [
        (f"k{(first + n) % keys}".encode() if keys else None, f"{what} {first + n}".encode(), None)
        for n in range(count)
    ]


EDGES: list[Record] = [
    (None, b"", None),
    (b"", b"\x00\xff" * 20, [("größe", b"01"), ("größe", None)]),
    (b"tombstone", None, [("trace", b"\x00")]),
]


# -- the clusters


def written() -> World:
    """Records and states of producers, applications and groups, with a checkpoint in between."""
    world = World("written", seed=1)
    coordinator = world.coordinator
    coordinator.create_topic("codecs", 2)
    for codec in CODECS:
        world.write("codecs", {0: EDGES + rows_of(codec, 5)}, codec)
    world.write("codecs", {0: rows_of("shared", 3), 1: rows_of("shared", 4)}, "zstd")  # one file, two partitions
    coordinator.create_topic("stamped", 1, configs={"message.timestamp.type": "LogAppendTime"})
    world.write("stamped", {0: rows_of("stamped", 4)})
    coordinator.submit(partial(alter_configs, topic="stamped", changes={"retention.ms": "3600000"}))
    coordinator.submit(partial(alter_configs, topic="", changes={"log.retention.ms": "604800000"}))
    coordinator.create_topic("sequenced", 2)
    producer = coordinator.submit(init_producer)
    for first in (0, 3, 6):
        world.write("sequenced", {0: rows_of("sequenced", 3, first)}, producer=producer, sequence=first)
    join(world, "billing", "member-1", ["sequenced", "codecs"])
    coordinator.log.write_checkpoint()
    world.write("sequenced", {0: rows_of("sequenced", 3, 9)}, producer=producer, sequence=9)
    world.write("sequenced", {1: rows_of("app", 2)}, application="nightly", application_version=7)
    transaction = coordinator.submit(partial(init_producer, transactional_id="payments-1"))
    positions = {("sequenced", 0): OffsetAndMetadata(4, "half way", 0)}
    world.write(
        "sequenced",
        {1: rows_of("transaction", 3)},
        producer=transaction,
        transaction=transaction,
        groups=[GroupCommit(group="billing", offsets=positions, member="member-1", generation=1)],
    )
    join(world, "billing", "member-2", ["sequenced"])
    coordinator.submit(
        partial(
            commit_group_offsets,
            commit=GroupCommit(
                group="reports", offsets={("codecs", 0): 11, ("codecs", 1): OffsetAndMetadata(2, "größe", 0)}
            ),
        )
    )
    coordinator.create_topic("short-lived", 1)
    world.write("short-lived", {0: rows_of("gone", 2)})
    delete_topic(coordinator, "short-lived")  # its files are in a listing
    coordinator.submit(partial(create_partitions, topic="stamped", total=2))
    return world


def join(world: World, group: str, member: str, topics: Sequence[str]) -> None:
    request = JoinRequest(
        group=group, member=member, instance_id=f"{member}-instance", client_id="client", host="host", topics=topics
    )
    world.coordinator.submit(partial(join_group, request=request))
    Lease(world.store, world.clock, group, member).renew()


def maintained() -> World:
    """Rolled, compacted, cleaned up; one listing is processed, another one is pending; a reader holds a lease."""
    world = World("maintained", seed=2)
    coordinator = world.coordinator
    coordinator.create_topic("rolled", 1, configs={"segment.bytes": "1048576", "retention.ms": "-1"})
    for first in range(0, 30, 5):
        world.write("rolled", {0: rows_of("rolled", 5, first)}, "lz4")
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "60000"}
    coordinator.create_topic("compacted", 1, configs=settings)
    for first in range(0, 24, 6):
        world.write("compacted", {0: rows_of("compacted", 6, first, keys=4)}, "gzip")
    coordinator.create_topic("retained", 1, configs={"retention.ms": "86400000", "segment.ms": "60000"})
    for first in range(0, 9, 3):
        world.write("retained", {0: rows_of("retained", 3, first)})
    coordinator.create_topic("trimmed", 1, configs={"retention.ms": "-1"})
    world.write("trimmed", {0: rows_of("trimmed", 6)}, "snappy")
    coordinator.submit(partial(delete_records, offsets={("trimmed", 0): 4}))
    roll(coordinator, InProcess())
    world.tick(9 * DAY_SECONDS)
    write_again(world)
    roll(coordinator, InProcess())
    compact(coordinator, InProcess())
    retain(coordinator)
    coordinator.log.write_checkpoint()
    world.tick(DAY_SECONDS)
    sweep(coordinator)
    vacuum(coordinator, dry_run=False)  # fences writers
    world.tick(8 * DAY_SECONDS)
    coordinator.log.write_checkpoint()
    clean_up(coordinator.store, world.clock, coordinator.refresh().configs, SETTINGS)
    write_again(world, first=100)
    for first in range(200, 230, 5):
        world.write("rolled", {0: rows_of("rolled", 5, first)}, "lz4")
    world.tick(9 * DAY_SECONDS)
    roll(coordinator, InProcess())  # the replaced files stay in a listing
    ReaderLease("reader-1", coordinator.state.version, 3_600_000).renewed(world.store, world.clock)
    return world


def write_again(world: World, first: int = 50) -> None:
    world.write("compacted", {0: [*rows_of("compacted", 3, first, keys=4), (b"k3", None, None)]}, "gzip")
    world.write("retained", {0: rows_of("retained", 2, first)})


def replicated() -> World:
    """Two brokers and a partition on both, with an election behind it."""
    world = World("replicated", seed=3)
    MemoryStore(BROKER_1.removeprefix("memory://"), world.clock)
    add_broker(world.coordinator, BROKER_1)
    world.coordinator.create_topic("copied", 2, 2)
    world.coordinator.create_topic("moved", 1, assignment=[[0]])
    for first in (0, 4):
        world.write("copied", {0: rows_of("copied", 4, first)}, "zstd")
        world.write("moved", {0: rows_of("moved", 4, first)})
    leader = controller.Controller(world.coordinator)
    leader.check(wait=True)
    leader.resign()
    world.coordinator.submit(partial(alter_reassignments, wanted={("moved", 0): [1]}))
    replicate(world.coordinator, InProcess(), {"moved"})
    world.coordinator.log.write_checkpoint()
    world.write("copied", {1: rows_of("copied", 4)})
    return world


def history() -> World:
    """Level 3: versions of schemas, history as Parquet with a table and its checkpoint, rollups, a kept report."""
    from sparklog.maintenance import rollups
    from sparklog.maintenance.fsck.check import check_cluster
    from sparklog.maintenance.fsck.kept_report import keep_report
    from sparklog.maintenance.tables import Tables

    world = World("history", seed=4)
    coordinator = world.coordinator
    schema = {"value.format": "json", "value.schema": "carrier string, delay int", "value.keep": "false"}
    delta = {"history.format": "delta", "internal.segment.bytes": "300", "retention.ms": "-1"}
    coordinator.create_topic("flights", 2, configs={**delta, **schema})
    coordinator.create_topic("plain", 1, configs={**delta, "cleanup.policy": "compact", "key.format": "string"})
    rollups.ROLLUP_COMMITS = 20
    for turn in range(4):
        flights: list[Record] = [
            (None, json.dumps({"carrier": f"c{number}", "delay": 10 * turn + number}).encode(), None)
            for number in range(4)
        ]
        world.write("flights", {0: flights, 1: [*flights[:2], (b"k", b"no JSON", EDGES[1][2])]}, "zstd")
        world.write("plain", {0: rows_of("plain", 6, 6 * turn, keys=3)}, "lz4")
        world.tick(DAY_SECONDS)
        world.write("flights", {0: flights[:1], 1: flights[:1]})
        world.write("plain", {0: rows_of("plain", 1, 100 + turn, keys=3)})
        roll(coordinator, InProcess())
        compact(coordinator, InProcess())
        Tables(coordinator).publish_all({"flights", "plain"})
        changes = {"value.schema": "carrier string, delay bigint, origin string"}
        coordinator.submit(partial(alter_configs, topic="flights", changes=changes))
        coordinator.log.write_checkpoint()
        sweep(coordinator)
    rollups.keep_rollups(coordinator)
    check = check_cluster(world.store, clock=world.clock)
    keep_report(check, world.clock.now_ms(), 1.0)
    world.write("flights", {0: flights})
    join(world, "readers", "member-1", ["flights"])
    return world


# -- writing


def expected(world: World) -> dict[str, Any]:
    """Return what a reader of any later version must find."""
    state = world.coordinator.refresh()
    records: dict[str, list[Any]] = {}
    with LogReader(world.coordinator) as reader:
        for name, topic in sorted(state.topics.items()):
            for number, partition in enumerate(topic.partitions):
                read = reader.records(name, number, partition.log_start_offset, partition.log_end_offset)
                records[f"{name}-{number}"] = [
                    [
                        record.offset,
                        _hex(record.key),
                        _hex(record.value),
                        record.timestamp_us,
                        [[key, _hex(value)] for key, value in record.headers],
                    ]
                    for record in read
                ]
    return {
        "cluster_id": state.cluster_id,
        "version": state.version,
        "now_ms": world.clock.now_ms(),
        "records": records,
        "offsets": {
            name: {
                f"{entry.topic}-{entry.partition}": [entry.offset, entry.metadata] for entry in group.offsets.values()
            }
            for name, group in state.groups.items()
        },
        "members": {name: sorted(group.members) for name, group in state.groups.items()},
    }


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def dump(store: MemoryStore, folder: Path) -> int:
    size = 0
    for info in store.list():
        path = folder / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(info.key))
        size += info.size
    return size


def main(folder: Path) -> None:
    if folder.exists():
        sys.exit(f"{folder} exists: a level is written once; remove it to write it again")
    controller.writer_name = lambda: "golden/1"  # type: ignore[attr-defined]  # otherwise it names this machine
    for make in (written, maintained, replicated, history):
        world = make()
        target = folder / make.__name__
        size = dump(world.store, target / "root")
        if make is replicated:
            size += dump(MemoryStore(BROKER_1.removeprefix("memory://")), target / "broker-1")
        text = json.dumps(expected(world), indent=1, ensure_ascii=False)
        (target / "expected.json").write_text(text + "\n")
        print(f"{target}: version {world.coordinator.state.version}, {size:,} bytes")


if __name__ == "__main__":
    main(FOLDER / sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
    shutil.rmtree(FOLDER / "__pycache__", ignore_errors=True)
