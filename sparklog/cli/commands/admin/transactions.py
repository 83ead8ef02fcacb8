"""``sparklog transactions``: Kafka's kafka-transactions.

A transaction is one commit and therefore never open: ``find-hanging`` finds nothing and ``abort`` is refused.
``force-terminate`` fences the producer that uses a transactional id, so that its uncommitted records are never
committed. ``forget``, which Kafka's tool lacks, removes a transactional id.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, connect_admin, require, require_action
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.cli.output.tables import table
from sparklog.errors import NotFoundError, UnknownTopicOrPartitionError
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient

FLAGS = {
    "list": ("duration-filter", "transactional-id-pattern"),
    "describe": ("transactional-id",),
    "describe-producers": ("broker-id", "topic", "partition"),
    "abort": ("topic", "partition", "start-offset", "producer-id", "producer-epoch", "coordinator-epoch"),
    "find-hanging": ("broker-id", "max-transaction-timeout", "topic", "partition"),
    "force-terminate": ("transactional-id",),
    "forget": ("transactional-id",),
}

LISTINGS = ("list", "describe", "describe-producers", "find-hanging")

OTHER_NAMES = {"forceTerminateTransaction": "force-terminate"}


def parser() -> CommandParser:
    options = CommandParser(
        "transactions",
        "list                list transactional ids\n"
        "describe            print the state of a transactional id\n"
        "describe-producers  print the producers of a partition\n"
        "find-hanging        find hanging transactions: there are none, since a transaction is one commit\n"
        "abort               refused, since no transaction is ever open\n"
        "force-terminate     fence the producer that uses a transactional id\n"
        "forget              remove a transactional id immediately, as its expiration would",
        "sparklog transactions list --bootstrap-server /data/log",
        "ACTION [OPTIONS]",
    )
    options.add_actions(FLAGS)
    options.add_argument("--transactional-id", "--transactionalId", metavar="ID", help="the transactional id")
    options.add_value("--transactional-id-pattern", "REGEX", "list: only ids that match this regular expression")
    options.add_number("--duration-filter", "MS", "list: only transactions that run longer")
    options.add_value("--topic", "TOPIC", "the topic")
    options.add_number("--partition", "N", "its partition")
    options.add_number("--broker-id", "N", "a broker; all give the same answer")
    options.add_number("--max-transaction-timeout", "MINUTES", "find-hanging: without effect")
    for flag in ("--start-offset", "--producer-id", "--producer-epoch", "--coordinator-epoch"):
        options.add_number(flag, "N", "abort: without effect")
    add_json(options, "list, describe, describe-producers, find-hanging")
    return options


def run(options: argparse.Namespace) -> int:
    action = OTHER_NAMES.get(options.action, options.action)
    require_action(action, FLAGS)
    for name in sorted({name for names in FLAGS.values() for name in names} - set(FLAGS[action])):
        if getattr(options, name.replace("-", "_")) is not None:
            raise UsageError(f"--{name} can't be used with {action}, which takes --{', --'.join(FLAGS[action])}")
    if options.json and action not in LISTINGS:
        raise UsageError(f"--json can't be used with {action}, only with {', '.join(LISTINGS)}")
    _check(options, action)
    act = {
        "list": _list, "describe": _describe, "describe-producers": _describe_producers, "find-hanging": _find_hanging,
        "abort": _abort, "force-terminate": _change, "forget": _change,
    }[action]  # fmt: skip
    with connect_admin(options) as admin:
        return act(admin, options)


def _check(options: argparse.Namespace, action: str) -> None:
    if action in ("describe", "force-terminate", "forget"):
        require(options, "transactional-id")
    if action in ("describe-producers", "abort"):
        require(options, "topic", "partition")
    if action == "find-hanging":
        if options.partition is not None and options.topic is None:
            raise UsageError("The --partition argument requires --topic to be provided")
        if options.topic is None and options.broker_id is None:
            raise UsageError(
                "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
            )
    if action == "abort" and options.start_offset is None and options.producer_id is None:
        raise UsageError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )


def _list(admin: AdminClient, options: argparse.Namespace) -> int:
    listings_by_broker = admin.list_transactions(
        duration_filter_ms=options.duration_filter, transactional_id_pattern=options.transactional_id_pattern
    )
    from sparklog.cli.output.documents import TransactionList, TransactionName

    transactions = [
        TransactionName.of(listing, coordinator=broker, state=listing.state.value)
        for broker, listings in listings_by_broker.items()
        for listing in listings
    ]
    rows = [(name.transactional_id, name.coordinator, name.producer_id, name.state) for name in transactions]
    lines = _table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)
    print_document(TransactionList(transactions=transactions), options.json, lines)
    return 0


def _describe(admin: AdminClient, options: argparse.Namespace) -> int:
    name = options.transactional_id
    try:
        description = admin.describe_transactions([name])[name]
    except NotFoundError as error:
        complain(f"Failed to describe transaction state of transactional-id `{name}`: {error}")
        return 1
    from sparklog.cli.output.documents import TransactionDetails

    timeout_ms = description.transaction_timeout_ms
    details = TransactionDetails.of(
        description,
        transactional_id=name,
        coordinator=description.coordinator_id,
        state=description.state.value,
        transaction_timeout_ms=None if timeout_ms < 0 else timeout_ms,
    )
    headers = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    )  # fmt: skip
    row = (
        details.coordinator, details.transactional_id, details.producer_id, details.producer_epoch, details.state,
        details.transaction_timeout_ms, "None", "None", "",
    )  # fmt: skip
    print_document(details, options.json, _table(headers, [row]))
    return 0


def _describe_producers(admin: AdminClient, options: argparse.Namespace) -> int:
    partition = TopicPartition(options.topic, options.partition)
    try:
        description = admin.describe_producers([partition])[partition]
    except UnknownTopicOrPartitionError as error:
        broker = "leader" if options.broker_id is None else f"broker {options.broker_id}"
        complain(f"Failed to describe producers for partition {partition} on {broker}: {error}")
        return 1
    from sparklog.cli.output.documents import ProducerDetails, ProducerList

    producers = [
        ProducerDetails.of(producer, last_sequence=None if producer.last_sequence < 0 else producer.last_sequence)
        for producer in description.active_producers
    ]
    headers = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    rows = [
        (
            details.producer_id, details.producer_epoch, -1,
            -1 if details.last_sequence is None else details.last_sequence, details.last_timestamp, "None",
        )
        for details in producers
    ]  # fmt: skip
    document = ProducerList(topic=partition.topic, partition=partition.partition, producers=producers)
    print_document(document, options.json, _table(headers, rows))
    return 0


def _find_hanging(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.client.admin.transactions import NOTHING_HANGS

    if options.topic is not None:  # raise an error if the partition does not exist, as Kafka's tool does
        admin.describe_producers([TopicPartition(options.topic, options.partition or 0)])
    from sparklog.cli.output.documents import HangingTransactions

    headers = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    )  # fmt: skip
    print_document(HangingTransactions(transactions=[]), options.json, _table(headers, []))
    if not options.json:
        complain(f"Note: {NOTHING_HANGS}.")
    return 0


def _abort(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.client.admin.transactions import NOTHING_HANGS

    if options.start_offset is not None:
        where = f"{options.topic}-{options.partition}"
        complain(f"Could not find any open transactions starting at offset {options.start_offset} on partition {where}")
    complain(f"Note: {NOTHING_HANGS}.")
    return 1


def _change(admin: AdminClient, options: argparse.Namespace) -> int:
    name, is_forgotten = options.transactional_id, options.action == "forget"
    try:
        (admin.forget_transactional_ids if is_forgotten else admin.fence_producers)([name])
    except NotFoundError as error:
        complain(f"Failed to {'forget' if is_forgotten else 'force terminate'} transactionalId `{name}`: {error}")
        return 1
    return 0


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Format a table as Kafka's prettyPrintTable: columns as wide as their longest value, each followed by a tab."""
    return [f"{line}\t" for line in table([headers, *rows], [-1] * len(headers), separator="\t")]
