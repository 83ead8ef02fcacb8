"""A whole cluster on every store that processes can share: written, read, maintained and checked."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.loop import Loop
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.process_local import start_over

KINDS = "shared"  # see conftest.py


def test_cluster_is_written_read_maintained_and_checked(address: tuple[str, dict[str, Any]]) -> None:
    root, options = address
    where: dict[str, Any] = {"bootstrap_servers": root, "storage_options": options}
    create_cluster(root, options).create_topic("orders", 2, configs={"segment.ms": "1"})
    with Producer(**where, enable_idempotence=True) as producer:
        sent = [producer.send("orders", b"%d" % number, partition=number % 2) for number in range(20)]
        assert sorted(one.get(60).offset for one in sent) == sorted(list(range(10)) * 2)
    with Producer(**where, transactional_id="tx") as producer:
        producer.init_transactions()
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.send("orders", b"by %s" % end.__name__.encode(), partition=0)
            producer.flush()
            end()
    cluster = open_cluster(root, options)
    cluster.submit(partial(alter_configs, topic="orders", changes={"file.delete.delay.ms": "0"}))
    context = MaintenanceContext(cluster, lambda _: InProcess())
    try:
        reports = [report for _ in range(2) for report in Loop(steps(context), cluster.log.clock).once()]
        assert [problem for report in reports for problem in report.problems] == []
    finally:
        context.close()
    vacuum(cluster)
    start_over()  # as another process does
    reading: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "group_id": "g"}
    with Consumer("orders", **where, **reading) as consumer:
        values = [record.value for record in itertools.islice(consumer, 21)]
        consumer.commit()
    assert sorted(values) == sorted([*(b"%d" % number for number in range(20)), b"by commit_transaction"])
    assert check_cluster(open_cluster(root, options).store, storage_options=options).report.findings == []
