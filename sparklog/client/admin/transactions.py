"""Transactions of ``AdminClient``: who may commit them, and which producers a partition knows.

A transaction is one commit, so none is ever seen open, and none can hang: nothing of it is stored before it is
committed. So there is nothing to abort from outside either; a producer that is to stop is fenced by a new one with its
transactional id (``init_transactions``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn

from sparklog.client.admin.base import AdminBase, Result
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
    InvalidArgumentTypeError,
    InvalidTxnStateError,
    TransactionalIdNotFoundError,
)
from sparklog.protocol import state as states
from sparklog.protocol.decide import expiry as decide_expiry
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

NOTHING_HANGS = (
    "a transaction is one commit, and nothing of it is stored before: none is ever open or hanging, and there is "
    "nothing to abort; to stop a producer, call init_transactions() with its transactional id in another, which fences "
    "it"
)
UNKNOWN_TIMEOUT = -1


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
        """All transactional ids by name, under the first broker, since they are the whole cluster's.

        None has been running for any time, so with ``duration_filter_ms`` of 0 or more there is none.
        """
        state = self._state()
        producers = set(producer_id_filters or ())
        wanted = {member_of(TransactionState, one) for one in state_filters or ()}
        pattern = _pattern(transactional_id_pattern)
        found: list[TransactionListing] = []
        for producer_id, producer in transactional(state):
            if producers and producer_id not in producers:
                continue
            if wanted and state_of(producer) not in wanted:
                continue
            if pattern is None or pattern.fullmatch(producer.transactional_id):
                found.append(TransactionListing(producer.transactional_id, producer_id, state_of(producer)))
        running = duration_filter_ms is not None and duration_filter_ms >= 0
        return {coordinator_of(state): [] if running else found}

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Producer and epoch of these ids. Raises TransactionalIdNotFoundError for one that nobody has used."""
        if isinstance(transactional_ids, str):
            raise InvalidArgumentTypeError(f"transactional_ids={transactional_ids!r}: give a list")
        state = self._state()
        known = {producer.transactional_id: (number, producer) for number, producer in transactional(state)}
        found: dict[str, TransactionDescription] = {}
        for name in transactional_ids:
            if name not in known:
                raise TransactionalIdNotFoundError(
                    f"transactional id {name!r} is not known: no producer has called init_transactions() with it, or "
                    "not for transactional.id.expiration.ms"
                )
            producer_id, producer = known[name]
            found[name] = TransactionDescription(
                coordinator_of(state), state_of(producer), producer_id, producer.epoch, UNKNOWN_TIMEOUT, -1, set()
            )
        return found

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """The idempotent producers that these partitions know. Raises UnknownTopicOrPartitionError."""
        state = self._state()
        found: dict[TopicPartition, PartitionProducerState] = {}
        for topic, number in partitions:
            known = state.partition(topic, number).producers
            found[TopicPartition(topic, number)] = PartitionProducerState(
                [
                    ProducerState(
                        producer_id=producer_id,
                        producer_epoch=producer.epoch,
                        last_sequence=producer.appends[-1].last if producer.appends else -1,
                        last_timestamp=producer.timestamp_ms,
                        coordinator_epoch=-1,
                        current_transaction_start_offset=-1,
                    )
                    for producer_id, producer in sorted(known.items())
                ]
            )
        return found

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[Result]:
        """Always empty: nothing of a transaction is stored before its commit, so none can hang."""
        self._opened()
        return []

    def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Stop whoever uses these transactional ids: what they have not committed yet never is.

        Raises TransactionalIdNotFoundError for one that nobody has used; then none is fenced.
        """
        names = list(transactional_ids)
        self.describe_transactions(names)
        for name in names:
            self._opened().init_producer(name)

    def forget_transactional_ids(self, transactional_ids: Iterable[str]) -> None:
        """Forget these, as their expiration does: who uses one commits no more, and a new producer gets a new id.

        Raises TransactionalIdNotFoundError for one that nobody has used; then none is forgotten.
        """
        names = list(transactional_ids)
        self._opened().submit(lambda state: decide_expiry.forget_transactional_ids(state, names))

    def abort_transaction(self, spec: AbortTransactionSpec) -> NoReturn:
        """Raises InvalidTxnStateError: there is no open transaction to abort."""
        self._opened()
        raise InvalidTxnStateError(f"no transaction is open in {spec.topic_partition}: {NOTHING_HANGS}")


def transactional(state: State) -> list[tuple[int, states.ProducerState]]:
    """The producers with a transactional id, by that."""
    found = [item for item in state.producers.items() if item[1].transactional_id]
    return sorted(found, key=lambda item: item[1].transactional_id)


def state_of(producer: states.ProducerState) -> TransactionState:
    """Whether a transactional id has committed something."""
    return TransactionState.EMPTY if producer.committed_epoch < 0 else TransactionState.COMPLETE_COMMIT


def coordinator_of(state: State) -> int:
    """The broker that stands for the coordinator, which there is none of: the first."""
    return min(state.brokers, default=0)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if not text else re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgumentError(f"transactional_id_pattern={text!r}: invalid regular expression: {error}") from error
