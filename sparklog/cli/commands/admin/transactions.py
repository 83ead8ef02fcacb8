"""``sparklog transactions``: Kafka's kafka-transactions.

A transaction is one commit. None is ever seen open, so ``find-hanging`` finds nothing and ``abort`` has nothing to
abort; ``force-terminate`` fences the producer that uses a transactional id, so that what it has not committed yet
never is; ``forget``, which Kafka's tool has not, removes it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, bootstrap_server, complain, require, suggestion
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.types import printable

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
"""The actions and what each takes."""

LISTINGS = ("list", "describe", "describe-producers", "find-hanging")
"""The actions that print something, which --json prints as well."""

OTHER_NAMES = {"forceTerminateTransaction": "force-terminate"}


def parser() -> CommandParser:
    options = CommandParser(
        "transactions",
        "list                list transactional ids\n"
        "describe            print the state of one\n"
        "describe-producers  print the producers that a partition knows\n"
        "find-hanging        find transactions that hang: none can, since a transaction is one commit\n"
        "abort               refused, since no transaction is ever open\n"
        "force-terminate     fence the producer that uses a transactional id\n"
        "forget              forget a transactional id at once, as its expiration does",
        "sparklog transactions list --bootstrap-server /data/log",
        "ACTION [OPTIONS]",
    )
    options.add_actions(FLAGS)
    options.add_connection()
    options.add_argument("--transactional-id", "--transactionalId", metavar="ID", help="the transactional id")
    options.add_argument(
        "--transactional-id-pattern", metavar="REGEX", help="list: only ids that match this regular expression"
    )
    options.add_argument("--duration-filter", metavar="MS", type=int, help="list: only those that run for longer")
    options.add_argument("--topic", metavar="TOPIC", help="the topic")
    options.add_argument("--partition", metavar="N", type=int, help="its partition")
    options.add_argument("--broker-id", metavar="N", type=int, help="a broker; all know the same")
    options.add_argument("--max-transaction-timeout", metavar="MINUTES", type=int, help="find-hanging: taken as given")
    for flag in ("--start-offset", "--producer-id", "--producer-epoch", "--coordinator-epoch"):
        options.add_argument(flag, metavar="N", type=int, help="abort: taken as given")
    add_json(options, "list, describe, describe-producers, find-hanging")
    return options


def run(options: argparse.Namespace) -> int:
    action = OTHER_NAMES.get(options.action, options.action)
    if action not in FLAGS:
        said = f"{options.action!r} is not an action" if options.action else "an action is missing"
        raise UsageError(f"{said}: {', '.join(FLAGS)}{suggestion(options.action or '', FLAGS)}")
    for name in sorted({name for names in FLAGS.values() for name in names} - set(FLAGS[action])):
        if getattr(options, name.replace("-", "_")) is not None:
            raise UsageError(f"--{name} does not belong to {action}, which takes --{', --'.join(FLAGS[action])}")
    if options.json and action not in LISTINGS:
        raise UsageError(f"--json does not belong to {action}, but to {', '.join(LISTINGS)}")
    _check(options, action)
    root, storage_options = bootstrap_server(options)
    from sparklog.client.admin.client import AdminClient

    actions: dict[str, Callable[[AdminClient, argparse.Namespace], int]] = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "find-hanging": _find_hanging,
        "abort": _abort,
        "force-terminate": _force_terminate,
        "forget": _forget,
    }
    with AdminClient(bootstrap_servers=root, storage_options=storage_options, request_timeout_ms=math.inf) as admin:
        return actions[action](admin, options)


def _check(options: argparse.Namespace, action: str) -> None:
    if action in ("describe", "force-terminate", "forget"):
        require(options, "transactional-id")
    if action in ("describe-producers", "abort"):
        require(options, "topic")
        if options.partition is None:
            raise UsageError('Missing required argument "[partition]"')
    if action == "find-hanging":
        if options.topic is None and options.broker_id is None:
            if options.partition is not None:
                raise UsageError("The --partition argument requires --topic to be provided")
            raise UsageError(
                "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
            )
        if options.partition is not None and options.topic is None:
            raise UsageError("The --partition argument requires --topic to be provided")
    if action == "abort" and options.start_offset is None and options.producer_id is None:
        raise UsageError(
            "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or "
            "with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
        )


def _list(admin: AdminClient, options: argparse.Namespace) -> int:
    found = admin.list_transactions(
        duration_filter_ms=options.duration_filter, transactional_id_pattern=options.transactional_id_pattern
    )
    from sparklog.cli.output.documents import TransactionList, TransactionName

    named = [
        TransactionName(
            transactional_id=one.transactional_id,
            coordinator=broker,
            producer_id=one.producer_id,
            state=one.state.value,
        )
        for broker, listings in found.items()
        for one in listings
    ]
    if options.json:
        print_json(TransactionList(transactions=named))
        return 0
    rows = [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in named]
    _print_table(("TransactionalId", "Coordinator", "ProducerId", "TransactionState"), rows)
    return 0


def _describe(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.errors import NotFoundError

    name = options.transactional_id
    try:
        found = admin.describe_transactions([name])[name]
    except NotFoundError as error:
        complain(f"Failed to describe transaction state of transactional-id `{name}`: {error}")
        return 1
    from sparklog.cli.output.documents import TransactionDetails

    timeout_ms = found.transaction_timeout_ms
    one = TransactionDetails(
        transactional_id=name,
        coordinator=found.coordinator_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.state.value,
        transaction_timeout_ms=None if timeout_ms < 0 else timeout_ms,
    )
    if options.json:
        print_json(one)
        return 0
    headers = (
        "CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
    )  # fmt: skip
    row = (
        one.coordinator, one.transactional_id, one.producer_id, one.producer_epoch, one.state,
        one.transaction_timeout_ms, "None", "None", "",
    )  # fmt: skip
    _print_table(headers, [row])
    return 0


def _describe_producers(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.errors import UnknownTopicOrPartitionError
    from sparklog.types import TopicPartition

    place = TopicPartition(options.topic, options.partition)
    try:
        found = admin.describe_producers([place])[place]
    except UnknownTopicOrPartitionError as error:
        on = "leader" if options.broker_id is None else f"broker {options.broker_id}"
        complain(f"Failed to describe producers for partition {place} on {on}: {error}")
        return 1
    from sparklog.cli.output.documents import ProducerDetails, ProducerList

    known = [
        ProducerDetails(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=None if one.last_sequence < 0 else one.last_sequence,
            last_timestamp=one.last_timestamp,
        )
        for one in found.active_producers
    ]
    if options.json:
        print_json(ProducerList(topic=place.topic, partition=place.partition, producers=known))
        return 0
    headers = (
        "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp",
        "CurrentTransactionStartOffset",
    )  # fmt: skip
    rows = [
        (one.producer_id, one.producer_epoch, -1, _or(one.last_sequence, -1), one.last_timestamp, "None")
        for one in known
    ]
    _print_table(headers, rows)
    return 0


def _or(value: int | None, missing: int) -> int:
    return missing if value is None else value


def _find_hanging(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.client.admin.transactions import NOTHING_HANGS
    from sparklog.types import TopicPartition

    if options.topic is not None:  # as Kafka's tool, say so where there is no such partition
        admin.describe_producers([TopicPartition(options.topic, options.partition or 0)])
    if options.json:
        from sparklog.cli.output.documents import HangingTransactions

        print_json(HangingTransactions(transactions=[]))
        return 0
    headers = (
        "Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp",
        "Duration(min)",
    )  # fmt: skip
    _print_table(headers, [])
    complain(f"Note: {NOTHING_HANGS}.")
    return 0


def _abort(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.client.admin.transactions import NOTHING_HANGS

    if options.start_offset is not None:
        where = f"{options.topic}-{options.partition}"
        complain(f"Could not find any open transactions starting at offset {options.start_offset} on partition {where}")
    complain(f"Note: {NOTHING_HANGS}.")
    return 1


def _force_terminate(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.errors import NotFoundError

    name = options.transactional_id
    try:
        admin.fence_producers([name])
    except NotFoundError as error:
        complain(f"Failed to force terminate transactionalId `{name}`: {error}")
        return 1
    return 0


def _forget(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.errors import NotFoundError

    name = options.transactional_id
    try:
        admin.forget_transactional_ids([name])
    except NotFoundError as error:
        complain(f"Failed to forget transactionalId `{name}`: {error}")
        return 1
    return 0


def _print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Kafka's prettyPrintTable: columns as wide as their longest value, each followed by a tab."""
    texts = [list(headers), *([printable(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headers))]
    for row in texts:
        print("".join(f"{value.ljust(width)}\t" for value, width in zip(row, widths, strict=True)))
