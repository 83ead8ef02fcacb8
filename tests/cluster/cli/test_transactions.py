"""kafka-transactions: transactional ids and producers; no transaction can hang."""

from __future__ import annotations

from functools import partial

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator
from sparklog.errors import ProducerFencedError
from sparklog.protocol.decide.producers import init_producer

from .conftest import Result, Run


@pytest.fixture
def with_transactions(cluster: Coordinator) -> Coordinator:
    """Transactional id billing has committed a record to orders-0; transactional id new has committed nothing."""
    cluster.create_topic("orders", partitions=2)
    with Producer(cluster=cluster, transactional_id="billing") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"v", partition=0)
        producer.commit_transaction()
    cluster.submit(partial(init_producer, transactional_id="new"))
    return cluster


def table(result: Result) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("\t")[:-1]] for line in result.lines]


def test_transactional_ids_are_listed(run: Run, with_transactions: Coordinator) -> None:
    header, *rows = table(run("transactions", "list"))
    assert header == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert [(row[0], row[1], row[3]) for row in rows] == [("billing", "0", "CompleteCommit"), ("new", "0", "Empty")]
    assert table(run("transactions", "list", "--transactional-id-pattern", "b.*"))[1:] == rows[:1]
    assert table(run("transactions", "list", "--duration-filter", "0"))[1:] == []


def test_columns_are_padded_and_end_with_a_tab(run: Run, with_transactions: Coordinator) -> None:
    assert run("transactions", "list").lines[0] == "TransactionalId\tCoordinator\tProducerId\tTransactionState\t"


def test_a_transactional_id_is_described(run: Run, with_transactions: Coordinator) -> None:
    header, row = table(run("transactions", "describe", "--transactional-id", "billing"))
    assert header == [
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    ]  # fmt: skip
    assert [row[0], row[1], *row[4:]] == ["0", "billing", "CompleteCommit", "None", "None", "None", ""]


def test_an_unknown_transactional_id_is_an_error(run: Run, with_transactions: Coordinator) -> None:
    for action in ("describe", "force-terminate"):
        result = run("transactions", action, "--transactional-id", "nobody")
        assert (result.code, result.out) == (1, "")
        assert "`nobody`: transactional id 'nobody' is not known" in result.err


def test_producers_of_a_partition_are_described(run: Run, with_transactions: Coordinator) -> None:
    header, row = table(run("transactions", "describe-producers", "--topic", "orders", "--partition", "0"))
    assert header == [
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    ]  # fmt: skip
    assert (row[2], row[3], row[5]) == ("-1", "0", "None")
    assert int(row[4]) > 0
    missing = run("transactions", "describe-producers", "--topic", "orders", "--partition", "9")
    assert missing.code == 1
    assert missing.err.startswith("Failed to describe producers for partition orders-9 on leader: ")


def test_find_hanging_finds_nothing(run: Run, with_transactions: Coordinator) -> None:
    result = run("transactions", "find-hanging", "--topic", "orders")
    assert result.code == 0
    assert [cell for row in table(result) for cell in row] == [
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    ]  # fmt: skip
    assert "a transaction is one commit" in result.err
    assert run("transactions", "find-hanging", "--broker-id", "0").code == 0
    assert run("transactions", "find-hanging", "--topic", "nope").code == 1


def test_there_is_no_open_transaction_to_abort(run: Run, with_transactions: Coordinator) -> None:
    partition = ["--topic", "orders", "--partition", "0"]
    result = run("transactions", "abort", *partition, "--start-offset", "0")
    assert (result.code, result.out) == (1, "")
    assert "Could not find any open transactions starting at offset 0 on partition orders-0\n" in result.err
    assert "a transaction is one commit" in run("transactions", "abort", *partition, "--producer-id", "0").err


@pytest.mark.parametrize("name", ["force-terminate", "forceTerminateTransaction"])
def test_a_terminated_producer_cannot_commit_its_transaction(
    run: Run, with_transactions: Coordinator, name: str
) -> None:
    producer = Producer(cluster=with_transactions, transactional_id="zombie")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"never", partition=1)
    assert run("transactions", name, "--transactionalId", "zombie") == (0, "", "")
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    producer.close()
    assert with_transactions.refresh().partition("orders", 1).high_watermark == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "missing action: list, describe, describe-producers, abort, find-hanging, force-terminate"),
        (["lst"], "unknown action 'lst'"),
        (["describe"], 'Missing required argument "[transactional-id]"'),
        (["describe-producers", "--topic", "orders"], 'Missing required argument "[partition]"'),
        (["describe-producers", "--partition", "0"], 'Missing required argument "[topic]"'),
        (["list", "--topic", "orders"], "--topic can't be used with list"),
        (["find-hanging"], "The `find-hanging` command requires either --topic or --broker-id"),
        (["find-hanging", "--partition", "0", "--broker-id", "0"],
         "The --partition argument requires --topic to be provided"),
        (["abort", "--topic", "orders", "--partition", "0"],
         "The transaction to abort must be identified either with --start-offset"),
        (["list", "--transactional-id-pattern", "("], "invalid regular expression"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported(
    run: Run, with_transactions: Coordinator, arguments: list[str], complaint: str
) -> None:
    result = run("transactions", *arguments)
    assert (result.code, result.out) == (1, "")
    assert complaint in result.err


def test_forget_deletes_a_transactional_id(run: Run, with_transactions: Coordinator) -> None:
    assert run("transactions", "forget", "--transactional-id", "billing").code == 0
    assert [row[0] for row in table(run("transactions", "list"))[1:]] == ["new"]
    result = run("transactions", "forget", "--transactional-id", "billing")
    assert (result.code, result.out) == (1, "")
    assert "`billing`: transactional id 'billing' is not known" in result.err
