"""Topics and their records, made and read without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sparklog import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import create_cluster
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.protocol.decide.topics import alter_configs
from tests.deployment.clusters import Root


def create(root: Root, topics: Mapping[str, int], **configs: str) -> Root:
    """Create a log with these topics, by number of partitions; return its root."""
    log = create_cluster(root.url, storage_options=dict(root.options))
    for name, partitions in topics.items():
        log.create_topic(name, partitions)
        if configs:
            log.submit(partial(alter_configs, topic=name, changes=configs))
    return root


def fill(root: Root, topic: str, records: int, batches: int = 4) -> list[bytes]:
    """Append ``records`` records in ``batches`` flushes; return their values, all distinct."""
    values = [f"{topic} {number}".encode() for number in range(records)]
    with Producer(bootstrap_servers=root.url, storage_options=dict(root.options), linger_ms=60_000) as producer:
        for batch in range(batches):
            for value in values[batch::batches]:
                producer.send(topic, value)
            producer.flush()
    return values


def values_of(root: Root, topic: str) -> list[bytes]:
    """Return the values of all records of a topic."""
    with LogReader(root.open()) as reader:
        ends = [partition.high_watermark for partition in reader.state.topics[topic].partitions]
        return [
            record.value or b""
            for partition, end in enumerate(ends)
            for record in reader.records(topic, partition, 0, end)
        ]


def damage_and_orphans(root: Root) -> list[str]:
    """Vacuum whatever killed writers left behind, and return what fsck finds afterwards: nothing, if all is well."""
    vacuum(root.open(), older_than_ms=0, dry_run=False, force=True)
    return [str(finding) for finding in check_cluster(root.url, storage_options=root.options).report.findings]
