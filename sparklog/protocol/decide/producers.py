"""Decisions about producers: their ids and epochs, and whether a transaction may be committed.

A transaction is one commit, which also raises the producer's epoch, so an epoch commits at most once. A producer that
retries a transaction whose outcome is unknown finds its own epoch in ``committed_epoch``; an instance that was replaced
finds a different one. Nothing of a transaction is stored before its commit, so none can hang or has to be aborted.

Rules: as in ``decide``. Not for: sequences of a partition (``append``), expiry (``expiry``).
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog import limits
from sparklog.errors import ProducerFencedError, UnknownProducerIdError
from sparklog.protocol.commits import Action, InitProducer
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.names import validate_transactional_id
from sparklog.protocol.state import ProducerState, State

MAX_PRODUCER_EPOCH = limits.MAX_PRODUCER_EPOCH
"""The last epoch of a producer id; an index stores 16 bits, as Kafka does. After it the next id begins at epoch 0."""


class ProducerIdentity(NamedTuple):
    """A producer id and epoch: Kafka's response to InitProducerId."""

    producer_id: int
    producer_epoch: int


def init_producer(
    state: State, transactional_id: str = "", present: ProducerIdentity | None = None
) -> Decision[ProducerIdentity]:
    """Assign a new producer id, or for a known transactional id its own with the next epoch, which fences older
    instances.

    When epochs are exhausted, a new id is assigned, as in Kafka. A running instance passes its identity as ``present``:
    this raises ProducerFencedError if another instance has taken over, which it must not fence in turn (KIP-360), and
    UnknownProducerIdError for an expired producer. Raises InvalidRequestError for an invalid transactional id.
    """
    number = state.indexes.transactional_ids.get(transactional_id) if transactional_id else None
    if present is not None:
        _check_is_present(state, present)
        if number != present.producer_id:  # its id had no epochs left, and another instance has got the next one
            raise _fenced(present, state.producers[present.producer_id])
    fence: list[Action] = []
    if number is not None:
        producer = state.producers[number]
        identity = ProducerIdentity(number, producer.epoch + 1)
        if identity.producer_epoch < MAX_PRODUCER_EPOCH:
            return Decision([_make_action(identity, transactional_id, producer.committed_epoch)], identity)
        never_assigned = ProducerIdentity(
            number, MAX_PRODUCER_EPOCH
        )  # so it fences all; it has it after its last transaction
        fence = [_make_action(never_assigned, "", producer.committed_epoch)]
    elif transactional_id:  # known ones may predate the current rules
        validate_transactional_id(transactional_id)
    identity = ProducerIdentity(state.next_producer_id, 0)
    return Decision([*fence, _make_action(identity, transactional_id)], identity)


def _check_is_present(state: State, present: ProducerIdentity) -> None:
    """Check that no other instance was initialised since: the epoch is this one's, or its transaction was the last
    change."""
    producer, following = _find_producer(state, present), present.producer_epoch + 1
    if producer.epoch == following and producer.committed_epoch == present.producer_epoch:
        return
    if producer.epoch != present.producer_epoch:
        raise _fenced(present, producer)


def _make_action(identity: ProducerIdentity, transactional_id: str, committed_epoch: int = -1) -> InitProducer:
    return InitProducer(
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        transactional_id=transactional_id,
        committed_epoch=committed_epoch,
    )


# -- transactions


def is_committed(state: State, transaction: ProducerIdentity) -> bool:
    """Return whether this transaction is already in the log.

    Raises ProducerFencedError if another instance has taken over, UnknownProducerIdError for an expired producer.
    """
    producer = _find_producer(state, transaction)
    if producer.epoch == transaction.producer_epoch:
        return False
    if producer.committed_epoch == transaction.producer_epoch:
        return True
    raise _fenced(transaction, producer)


def _fenced(identity: ProducerIdentity, producer: ProducerState) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {identity.producer_id} of transactional id {producer.transactional_id!r}: epoch "
        f"{identity.producer_epoch} is fenced, the current epoch is {producer.epoch}: a newer instance has taken over; "
        "stop this one",
        producer_id=identity.producer_id,
    )


def transaction_end(state: State, transaction: ProducerIdentity) -> InitProducer:
    """Return the action that ends a transaction: its producer with the next epoch."""
    following = ProducerIdentity(transaction.producer_id, transaction.producer_epoch + 1)
    return _make_action(following, _find_producer(state, transaction).transactional_id, transaction.producer_epoch)


def after_transaction(transaction: ProducerIdentity) -> ProducerIdentity | None:
    """Return the producer's identity after this transaction; None if epochs are exhausted: initialise it again."""
    following = ProducerIdentity(transaction.producer_id, transaction.producer_epoch + 1)
    return following if following.producer_epoch < MAX_PRODUCER_EPOCH else None


def _find_producer(state: State, transaction: ProducerIdentity) -> ProducerState:
    producer = state.producers.get(transaction.producer_id)
    if producer is None:
        raise UnknownProducerIdError(
            f"producer {transaction.producer_id} is unknown to the cluster: its transactional id was not used within "
            "transactional.id.expiration.ms; start a new producer",
            producer_id=transaction.producer_id,
        )
    return producer
