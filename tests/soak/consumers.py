"""A consumer that records what it is assigned, what it polls and what it commits."""

from __future__ import annotations

from typing import Any, cast

from sparklog.client.consumer.consumer import Consumer
from sparklog.errors import SparklogError
from sparklog.testing.history import ASSIGN, COMMIT_OFFSETS, POLL, REVOKE, SEEK, Position, Read
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.soak.worker import COPIERS, IN, READERS, SESSION_TIMEOUT_MS, Worker

ASSIGNORS = {READERS: ["range", "roundrobin"], COPIERS: ["cooperative-sticky"]}
"""One group revokes all partitions in a rebalance, the other only those that move."""


class RecordedConsumer:
    """One consumer in a group, and its listener."""

    def __init__(self, worker: Worker, group: str, instance: str = "") -> None:
        self.worker = worker
        self.group = group
        self.instance = instance
        self.name = f"{worker.name}.{worker.value().decode()}"
        self.owned: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        self.client = Consumer(
            cluster=worker.open(),
            group_id=group,
            group_instance_id=instance or None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=1_000,
            partition_assignment_strategy=ASSIGNORS[group],
            max_poll_records=50,
        )
        self.client.subscribe([IN], listener=self)

    def __enter__(self) -> RecordedConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        """Revoke all partitions, then leave."""
        if not self.committed_by_transactions:
            self.commit()
        self._drop(set(self.owned))
        self.client.close(autocommit=False)

    # -- the listener

    def on_partitions_revoked(self, revoked: Any) -> None:
        if not self.committed_by_transactions:
            self.commit(set(revoked))
        self._drop(set(revoked))

    def on_partitions_lost(self, lost: Any) -> None:
        self._drop(set(lost))

    def _drop(self, dropped: set[TopicPartition]) -> None:
        self.worker.log.record(REVOKE, consumer=self.name, partitions=sorted(dropped))
        self.owned -= dropped
        for partition in dropped:
            self.positions.pop(partition, None)

    def on_partitions_assigned(self, assigned: Any) -> None:
        self.owned |= set(assigned)
        metadata = self.client.group_metadata()
        self.worker.log.record(
            ASSIGN,
            consumer=self.name,
            group=self.group,
            member=metadata.member_id,
            instance=self.instance,
            generation=metadata.generation_id,
            partitions=sorted(self.owned),
            reset="earliest",
        )

    # -- records

    @property
    def committed_by_transactions(self) -> bool:
        return self.worker.name.startswith("copier")

    def poll(self) -> list[Any]:
        pending = self.worker.log.invoke(POLL, consumer=self.name)
        try:
            polled = self.client.poll(timeout_ms=300)
        except SparklogError as error:
            pending.info(error)
            return []
        reads = [
            Read(partition.topic, partition.partition, [(record.offset, record.value.decode()) for record in records])
            for partition, records in polled.items()
        ]
        pending.ok(reads=reads)
        for partition, records in polled.items():
            self.positions[partition] = records[-1].offset + 1
        return [record for records in polled.values() for record in records]

    def commit(self, partitions: set[TopicPartition] | None = None) -> None:
        offsets = {
            partition: at for partition, at in self.positions.items() if partitions is None or partition in partitions
        }
        if not offsets:
            return
        metadata = self.client.group_metadata()
        pending = self.worker.log.invoke(
            COMMIT_OFFSETS,
            consumer=self.name,
            group=self.group,
            member=metadata.member_id,
            instance=self.instance,
            generation=metadata.generation_id,
            offsets=[Position(*partition, at) for partition, at in offsets.items()],
        )
        try:
            self.client.commit({partition: OffsetAndMetadata(at) for partition, at in offsets.items()})
        except SparklogError as error:
            pending.info(error)  # it retries unknown outcomes itself, so the last error does not determine the outcome
            return
        pending.ok()

    def rewind(self) -> None:
        """Seek to the committed offsets, so that uncommitted records are read again."""
        positions = []
        for partition in sorted(self.owned):
            try:
                at = cast(int, self.client.committed(partition) or 0)
            except SparklogError:
                return self.rewind()
            self.client.seek(partition, at)
            positions.append(Position(*partition, at))
        self.worker.log.record(SEEK, consumer=self.name, positions=positions)
