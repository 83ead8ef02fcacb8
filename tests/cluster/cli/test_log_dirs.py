"""kafka-log-dirs: its output and its filters."""

from __future__ import annotations

import json

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator

from .conftest import Run, add_brokers


@pytest.fixture
def orders(cluster: Coordinator) -> Coordinator:
    cluster.create_topic("orders", 2)
    cluster.create_topic("refunds")
    with Producer(bootstrap_servers=cluster.store.root) as producer:
        producer.send("orders", value=b"v" * 1000, partition=1)
    cluster.refresh()
    return cluster


def test_sizes_are_printed_in_kafkas_format(run: Run, orders: Coordinator) -> None:
    result = run("log-dirs", "--describe")
    assert (result.code, result.err) == (0, "")
    assert result.lines[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 0",
    ]
    size = orders.state.partition("orders", 1).size_bytes
    assert size > 1000
    assert result.lines[2] == (
        f'{{"version":1,"brokers":[{{"broker":0,"logDirs":[{{"logDir":"{orders.store.root}","error":null,"partitions":['
        '{"partition":"orders-0","size":0,"offsetLag":0,"isFuture":false},'
        f'{{"partition":"orders-1","size":{size},"offsetLag":0,"isFuture":false}},'
        '{"partition":"refunds-0","size":0,"offsetLag":0,"isFuture":false}]}]}]}'
    )


def test_output_is_filtered_by_topic_and_broker(run: Run, orders: Coordinator) -> None:
    add_brokers(orders, 1)
    result = run("log-dirs", "--describe", "--topic-list", "refunds,nope", "--broker-list", "0")
    (broker,) = json.loads(result.lines[2])["brokers"]
    assert [partition["partition"] for partition in broker["logDirs"][0]["partitions"]] == ["refunds-0"]
    both = json.loads(run("log-dirs", "--describe").lines[2])["brokers"]
    assert [broker["broker"] for broker in both] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], 'Missing required argument "[describe]"'),
        (["--describe", "--broker-list", "0,x"],
         "invalid --broker-list '0,x': must be a comma-separated list of broker ids, such as 0,1,2"),
        (["--describe", "--broker-list", "0,7,8"],
         "ERROR: The given brokers do not exist from --broker-list: 7,8. Current existent brokers: 0"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("log-dirs", *arguments)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[0] == message
