"""What a coordinator answers to producers: their ids and epochs, and whose transaction may be committed.

A transaction is one commit, which also raises the producer's epoch. So an epoch commits once at most: whoever repeats a
transaction whose answer was lost finds ``committed_epoch`` at its own epoch, and an instance that was replaced finds
another one. Nothing is stored of a transaction before its commit, so nothing can hang and nothing has to be aborted.

Rules: as in ``decide``.
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
    """What InitProducerId answers in Kafka."""

    producer_id: int
    producer_epoch: int


def init_producer(state: State, transactional_id: str = "", present: ProducerIdentity | None = None) -> Decision:
    """A new producer id, or for a known transactional id its own with the next epoch, which fences older instances.

    Where epochs are used up, a new id too, as in Kafka. An instance that is at work already says who it is at
    ``present``: it raises ProducerFencedError where another one has taken over, which it must not fence in turn
    (KIP-360), and UnknownProducerIdError for an expired producer. InvalidRequestError for a transactional id that no
    producer may have.
    """
    if present is not None:
        _check_is_present(state, present)
    fence: list[Action] = []
    number = state.indexes.transactional_ids.get(transactional_id) if transactional_id else None
    if number is not None:
        producer = state.producers[number]
        identity = ProducerIdentity(number, producer.epoch + 1)
        if identity.producer_epoch < MAX_PRODUCER_EPOCH:
            return Decision([_init(identity, transactional_id, producer.committed_epoch)], identity)
        fence = [_init(identity, "", producer.committed_epoch)]  # nobody is given this epoch, so it fences all others
    elif transactional_id:  # one that is known already may be of a time when more was allowed
        validate_transactional_id(transactional_id)
    identity = ProducerIdentity(state.next_producer_id, 0)
    return Decision([*fence, _init(identity, transactional_id)], identity)


def _check_is_present(state: State, present: ProducerIdentity) -> None:
    """Nobody has begun anything since this instance did: it is at its epoch, or its transaction was the last step."""
    known, following = _known(state, present), present.producer_epoch + 1
    if known.epoch == following and known.committed_epoch == present.producer_epoch:
        return
    if known.epoch != present.producer_epoch:
        raise _replaced(present, known)


def _init(identity: ProducerIdentity, transactional_id: str, committed_epoch: int = -1) -> InitProducer:
    return InitProducer(
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        transactional_id=transactional_id,
        committed_epoch=committed_epoch,
    )


# -- transactions


def is_committed(state: State, transaction: ProducerIdentity) -> bool:
    """Whether this very transaction is in the log already.

    Raises ProducerFencedError when another instance has taken over, UnknownProducerIdError for an expired producer.
    """
    known = _known(state, transaction)
    if known.epoch == transaction.producer_epoch:
        return False
    if known.committed_epoch == transaction.producer_epoch:
        return True
    raise _replaced(transaction, known)


def _replaced(identity: ProducerIdentity, known: ProducerState) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {identity.producer_id} of transactional id {known.transactional_id!r} has epoch "
        f"{identity.producer_epoch}, and the cluster knows {known.epoch}: a newer instance has taken over; stop "
        "this one",
        producer_id=identity.producer_id,
    )


def transaction_end(state: State, transaction: ProducerIdentity) -> InitProducer:
    """What ends a transaction: its producer in the next epoch."""
    following = ProducerIdentity(transaction.producer_id, transaction.producer_epoch + 1)
    return _init(following, _known(state, transaction).transactional_id, transaction.producer_epoch)


def after_transaction(transaction: ProducerIdentity) -> ProducerIdentity | None:
    """Whom the producer writes as after this transaction; None where epochs are used up: initialise it anew."""
    following = ProducerIdentity(transaction.producer_id, transaction.producer_epoch + 1)
    return following if following.producer_epoch < MAX_PRODUCER_EPOCH else None


def _known(state: State, transaction: ProducerIdentity) -> ProducerState:
    known = state.producers.get(transaction.producer_id)
    if known is None:
        raise UnknownProducerIdError(
            f"producer {transaction.producer_id} is not known to the cluster: its transactional id was not used for "
            "transactional.id.expiration.ms; start a new producer",
            producer_id=transaction.producer_id,
        )
    return known
