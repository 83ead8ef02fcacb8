"""A cluster of several brokers, each in its own folder; its topic has a replica on every broker."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.log.broker_files import encode_identity
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide import brokers as decide_brokers
from sparklog.protocol.decide.append import AppendRequest
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.open import open_store

from .test_fetch import batch_of


def replicated_cluster(folder: Path, brokers: int = 3) -> Coordinator:
    """Broker 0 is the root; topic "t" has one partition, led by broker 0."""
    coordinator = create_cluster(str(folder / "root"))
    for broker in range(1, brokers):
        url = str(folder / f"broker-{broker}")
        store = open_store(url)
        store.put(IDENTITY_KEY, encode_identity(coordinator.state.cluster_id, broker))
        coordinator.submit(
            lambda state, broker=broker, url=url: decide_brokers.register_broker(  # type: ignore[misc]
                state, broker, url, coordinator.store.root
            )
        )
    coordinator.create_topic("t", assignment=[list(range(brokers))])
    return coordinator


def copies(coordinator: Coordinator) -> list[tuple[int, Store]]:
    """All brokers and their stores."""
    state = coordinator.state
    return [(broker, coordinator.brokers.store_of(state, broker)) for broker in sorted(state.brokers)]


def append_copies(coordinator: Coordinator, *batches: list[int]) -> str:
    """Append one file with these batches of timestamps to every broker; return its path."""
    state = coordinator.state
    start = state.partition("t", 0).log_end_offset
    key = segment_key("t", 0, start, state.version, coordinator.log.ids.write_id())
    (broker, store), *others = copies(coordinator)
    writer = SegmentFileWriter(store, key, broker=broker, replicas=others)
    writer.start_run(RunTarget("t", state.topic("t").topic_id, 0))
    for timestamps in batches:
        writer.write(batch_of(timestamps, start))
        start += len(timestamps)
    coordinator.append(AppendRequest(appends=writer.finish()))
    return key


def values_of(batches: list[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]
