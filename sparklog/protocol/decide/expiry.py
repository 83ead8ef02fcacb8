"""What is forgotten of producers and applications: after a long silence, or because somebody asks for it.

Nothing else forgets them: the fold expires nothing by itself, since a commit's time is one client's clock. The
maintenance asks here, and commits what the answer names one by one, so that every reader of the log forgets the same.

Rules: as in ``decide``. Silence is counted by the log's own time where the caller's is ahead of it (``expiry_now_ms``),
so a maintainer whose clock is wrong expires nothing early. A decision forgets ``limits.MAX_FORGOTTEN_PER_COMMIT`` at
most; ask again until it has no actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import cast

from sparklog import limits
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.errors import NotFoundError, TransactionalIdNotFoundError
from sparklog.protocol.commits import Action, ForgetApplications, ForgetPartitionProducers, ForgetProducers
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State

TRANSACTIONAL_ID_EXPIRATION = "transactional.id.expiration.ms"
PRODUCER_ID_EXPIRATION = "producer.id.expiration.ms"
APPLICATION_ID_EXPIRATION = "application.id.expiration.ms"


def expiry_now_ms(state: State, now_ms: int) -> int:
    """The time that silence is counted up to: the caller's, but no later than the log's newest commit."""
    return min(state.timestamp_ms, now_ms)


def expiration_ms(state: State, name: str) -> int:
    """One of the settings above; -1: never."""
    return cast(int, ClusterConfig.resolve(state.configs).get(name))


def expire_transactional_ids(state: State, now_ms: int) -> Decision:
    """Forget producers that did nothing for ``transactional.id.expiration.ms``: with such an id, or fenced.

    The result is how many.
    """
    before_ms = expiry_now_ms(state, now_ms) - expiration_ms(state, TRANSACTIONAL_ID_EXPIRATION)
    silent = sorted(number for number, known in state.producers.items() if known.timestamp_ms < before_ms)
    return _forget_producers(silent[: limits.MAX_FORGOTTEN_PER_COMMIT])


def expire_partition_producers(state: State, now_ms: int) -> Decision:
    """Let partitions forget producers silent for ``producer.id.expiration.ms``; the result is how many."""
    before_ms = expiry_now_ms(state, now_ms) - expiration_ms(state, PRODUCER_ID_EXPIRATION)
    actions: dict[tuple[str, int], ForgetPartitionProducers] = {}
    count = 0
    for topic, partition, producer in islice(_silent(state, before_ms), limits.MAX_FORGOTTEN_PER_COMMIT):
        action = actions.get((topic, partition))
        if action is None:
            topic_id = state.topics[topic].topic_id
            action = ForgetPartitionProducers(topic=topic, topic_id=topic_id, partition=partition, producers=[])
            actions[topic, partition] = action
        action.producers.append(producer)
        count += 1
    return Decision(list[Action](actions.values()), count)


def _silent(state: State, before_ms: int) -> Iterator[tuple[str, int, int]]:
    for name in sorted(state.topics):
        for number, partition in enumerate(state.topics[name].partitions):
            if partition.producers:
                for producer, known in sorted(partition.producers.items()):
                    if known.timestamp_ms < before_ms:
                        yield name, number, producer


def expire_applications(state: State, before_version: int) -> Decision:
    """Forget applications whose newest write is of a commit before this one; the result is how many.

    Which version ``application.id.expiration.ms`` comes to, the commits say.
    """
    silent = sorted(name for name, known in state.applications.items() if known.commit_version < before_version)
    return _forget_applications(silent[: limits.MAX_FORGOTTEN_PER_COMMIT])


# -- what administrators do


def forget_transactional_ids(state: State, transactional_ids: Iterable[str]) -> Decision:
    """Forget these transactional ids; the result is how many. Raises TransactionalIdNotFoundError."""
    numbers = []
    for name in dict.fromkeys(transactional_ids):
        number = state.indexes.transactional_ids.get(name)
        if number is None:
            raise TransactionalIdNotFoundError(
                f"transactional id {name!r} is not known: no producer has called init_transactions() with it, or not "
                "for transactional.id.expiration.ms"
            )
        numbers.append(number)
    return _forget_producers(numbers)


def forget_applications(state: State, applications: Iterable[str]) -> Decision:
    """Forget these applications; the result is how many. Raises NotFoundError for one that is not known."""
    names = list(dict.fromkeys(applications))
    for name in names:
        if name not in state.applications:
            raise NotFoundError(
                f"application {name!r} is not known: no write has carried this id; `sparklog applications --list` "
                "shows those that are"
            )
    return _forget_applications(names)


def _forget_producers(numbers: Sequence[int]) -> Decision:
    return Decision([ForgetProducers(producers=list(numbers))] if numbers else [], len(numbers))


def _forget_applications(names: Sequence[str]) -> Decision:
    return Decision([ForgetApplications(applications=list(names))] if names else [], len(names))
