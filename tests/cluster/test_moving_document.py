"""The copy program of docs/moving-from-kafka.md, with a sparklog cluster instead of Kafka, keeps the records."""

from __future__ import annotations

import re
from pathlib import Path

import sparklog
from sparklog.testing.clusters import Cluster, cluster

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "moving-from-kafka.md"
(COPY,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)


def copy(source: Cluster, target: Cluster) -> None:
    code = COPY.replace("from kafka import", "from sparklog.kafka import").replace("10_000", "1_000")
    code = code.replace("host:9092", source.bootstrap_servers).replace("/data/log", target.bootstrap_servers)
    exec(compile(code, "docs/moving-from-kafka.md", "exec"), {})


def test_a_copy_keeps_all_but_offsets_and_a_second_run_copies_new_records() -> None:
    with cluster(topics={"orders": 3}) as source, cluster(topics={"orders": 3}) as target:
        with sparklog.Producer(bootstrap_servers=source.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, b"k%d" % number, [("h", b"1")], timestamp_ms=1_790_000_000_000)
        copy(source, target)
        assert kept(target) == kept(source)
        assert len(kept(target)) == 20
        with sparklog.Producer(bootstrap_servers=source.bootstrap_servers) as producer:
            producer.send("orders", b"new", partition=2)
        copy(source, target)
        assert kept(target) == kept(source)


def kept(found: Cluster) -> list[tuple[object, ...]]:
    return [(one.partition, one.key, one.value, list(one.headers), one.timestamp_us) for one in found.records("orders")]
