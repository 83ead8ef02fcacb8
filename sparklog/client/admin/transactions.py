"""The methods of ``AdminClient`` for transactions, and for the producers that partitions know.

A transaction is one commit: nothing of it is stored before, so it is never seen open, cannot hang, and cannot be
aborted from outside. To stop a producer, fence it by calling ``init_transactions`` in another one with its
transactional id.

Not for: producing (``client.producer.transactions``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import NoReturn

from sparklog.client.admin.base import AdminBase, Result, as_list
from sparklog.client.admin.types import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    member_of,
)
from sparklog.errors import (
    InvalidArgumentError,
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
)
from sparklog.protocol import state as states
from sparklog.protocol.decide import expiry as decide_expiry
from sparklog.protocol.decide.producers import init_producer
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

NOTHING_HANGS = (
    "a transaction is one commit, and nothing of it is stored before: none is ever open or hanging, and there is "
    "nothing to abort; to stop a producer, fence it: call init_transactions() in another producer with its "
    "transactional id"
)


class TransactionAdmin(AdminBase):
    """The methods of ``AdminClient`` for transactions and producers. Thread-safe."""

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """Return all transactional ids by name, under the first broker, since they belong to the whole cluster.

        No transaction is ever running, so a ``duration_filter_ms`` of 0 or more selects none.
        """
        state = self.read_state()
        producers = set(producer_id_filters or ())
        wanted = {member_of(TransactionState, state) for state in state_filters or ()}
        pattern = _pattern(transactional_id_pattern)
        listings = [
            TransactionListing(producer.transactional_id, producer_id, state_of(producer))
            for producer_id, producer in transactional_producers(state)
            if (not producers or producer_id in producers)
            and (not wanted or state_of(producer) in wanted)
            and (pattern is None or pattern.fullmatch(producer.transactional_id))
        ]
        only_running = duration_filter_ms is not None and duration_filter_ms >= 0
        return {coordinator_of(state): [] if only_running else listings}

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Return producer id and epoch of these ids. Raises TransactionalIdNotFoundError for an unused id."""
        names = as_list(transactional_ids, "transactional_ids")
        state = self.read_state()
        by_id = {producer.transactional_id: (number, producer) for number, producer in transactional_producers(state)}
        descriptions: dict[str, TransactionDescription] = {}
        for name in names:
            if name not in by_id:
                raise TransactionalIdNotFoundError(
                    f"transactional id {name!r} is not known: no producer has called init_transactions() with it, or "
                    "not for transactional.id.expiration.ms"
                )
            producer_id, producer = by_id[name]
            descriptions[name] = TransactionDescription(
                coordinator_of(state), state_of(producer), producer_id, producer.epoch, -1, -1, set()
            )
        return descriptions

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """Return the idempotent producers that these partitions know. Raises UnknownTopicOrPartitionError."""
        state = self.read_state()
        states_by_partition: dict[TopicPartition, PartitionProducerState] = {}
        for topic, number in partitions:
            producers = state.partition(topic, number).producers
            states_by_partition[TopicPartition(topic, number)] = PartitionProducerState(
                [
                    ProducerState(
                        producer_id=producer_id,
                        producer_epoch=producer.epoch,
                        last_sequence=producer.appends[-1].last if producer.appends else -1,
                        last_timestamp=producer.timestamp_ms,
                        coordinator_epoch=-1,
                        current_transaction_start_offset=-1,
                    )
                    for producer_id, producer in sorted(producers.items())
                ]
            )
        return states_by_partition

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[Result]:
        """Return an empty list: nothing of a transaction is stored before its commit, so none can hang."""
        self._opened()
        return []

    def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Fence the producers with these transactional ids: their open transactions can never be committed.

        Raises TransactionalIdNotFoundError for an unused id; then no producer is fenced.
        """
        names = list(transactional_ids)
        self.describe_transactions(names)
        for name in names:
            self._opened().submit(partial(init_producer, transactional_id=name))

    def forget_transactional_ids(self, transactional_ids: Iterable[str]) -> None:
        """Expire these transactional ids: their producers can no longer commit, and a new one gets a new producer id.

        Raises TransactionalIdNotFoundError for an unused id; then none is forgotten.
        """
        names = list(transactional_ids)
        self._opened().submit(lambda state: decide_expiry.forget_transactional_ids(state, names))

    def forget_applications(self, applications: Iterable[str]) -> None:
        """Forget the newest write number of these applications: a write that they repeat is then stored twice.

        Raises NotFoundError for an unknown one; then none is forgotten.
        """
        names = list(applications)
        self._opened().submit(lambda state: decide_expiry.forget_applications(state, names))

    def abort_transaction(self, spec: AbortTransactionSpec) -> NoReturn:
        """Raise InvalidTxnStateError: there is no open transaction to abort."""
        self._opened()
        raise InvalidTxnStateError(f"no transaction is open in {spec.topic_partition}: {NOTHING_HANGS}")


def transactional_producers(state: State) -> list[tuple[int, states.ProducerState]]:
    """Return the producers that have a transactional id, sorted by it."""
    producers = [item for item in state.producers.items() if item[1].transactional_id]
    return sorted(producers, key=lambda item: item[1].transactional_id)


def state_of(producer: states.ProducerState) -> TransactionState:
    """Return the state of a transactional id: COMPLETE_COMMIT once it has committed a transaction, EMPTY before."""
    return TransactionState.EMPTY if producer.committed_epoch < 0 else TransactionState.COMPLETE_COMMIT


def coordinator_of(state: State) -> int:
    """Return the broker that stands for Kafka's coordinator, which does not exist here: the first one."""
    return min(state.brokers, default=0)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if not text else re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgumentError(f"transactional_id_pattern={text!r}: invalid regular expression: {error}") from error
