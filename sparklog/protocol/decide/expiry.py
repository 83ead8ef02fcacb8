"""Expiry of idle producers and applications, and their removal by an administrator.

Nothing else forgets them: the fold expires nothing by itself, since a commit's time is one client's clock. Maintenance
asks for these decisions and commits actions that name each producer, so that every reader of the log forgets the same.

Rules: as in ``decide``. Idle time is measured by the log's own time if the caller's is ahead of it (``expiry_now_ms``),
so a maintainer with a wrong clock expires nothing early. A decision forgets at most
``limits.MAX_FORGOTTEN_PER_COMMIT``; repeat until it has no actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

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
    """Return the time up to which idle time is measured: the caller's, but at most that of the newest commit."""
    return min(state.timestamp_ms, now_ms)


def expiration_ms(state: State, name: str) -> int:
    """Return one of the settings above, in ms; -1: never."""
    return ClusterConfig.resolve(state.configs).get_as(int, name)


def expire_transactional_ids(state: State, now_ms: int) -> Decision[int]:
    """Forget transactional or fenced producers that are idle for ``transactional.id.expiration.ms``.

    The result is their number.
    """
    before_ms = expiry_now_ms(state, now_ms) - expiration_ms(state, TRANSACTIONAL_ID_EXPIRATION)
    idle = sorted(number for number, producer in state.producers.items() if producer.timestamp_ms < before_ms)
    return _forget_producers(idle[: limits.MAX_FORGOTTEN_PER_COMMIT])


def expire_partition_producers(state: State, now_ms: int) -> Decision[int]:
    """Let partitions forget producers that are idle for ``producer.id.expiration.ms``; the result is their number."""
    before_ms = expiry_now_ms(state, now_ms) - expiration_ms(state, PRODUCER_ID_EXPIRATION)
    actions: dict[tuple[str, int], ForgetPartitionProducers] = {}
    count = 0
    for topic, partition, producer in islice(_find_idle(state, before_ms), limits.MAX_FORGOTTEN_PER_COMMIT):
        action = actions.get((topic, partition))
        if action is None:
            topic_id = state.topics[topic].topic_id
            action = ForgetPartitionProducers(topic=topic, topic_id=topic_id, partition=partition, producers=[])
            actions[topic, partition] = action
        action.producers.append(producer)
        count += 1
    return Decision(list[Action](actions.values()), count)


def _find_idle(state: State, before_ms: int) -> Iterator[tuple[str, int, int]]:
    for name in sorted(state.topics):
        for number, partition in enumerate(state.topics[name].partitions):
            if partition.producers:
                for producer_id, producer in sorted(partition.producers.items()):
                    if producer.timestamp_ms < before_ms:
                        yield name, number, producer_id


def expire_applications(state: State, before_version: int, planned_ms: int) -> Decision[int]:
    """Forget applications whose newest write is in a commit before this version; the result is their number.

    The caller derives the version from ``application.id.expiration.ms``, which was ``planned_ms`` then, and the times
    of commits. Once the setting has another value, none is forgotten.
    """
    if expiration_ms(state, APPLICATION_ID_EXPIRATION) != planned_ms:
        return Decision([], 0)
    idle = sorted(name for name, newest in state.applications.items() if newest.commit_version < before_version)
    return _forget_applications(idle[: limits.MAX_FORGOTTEN_PER_COMMIT])


# -- requests of administrators


def forget_transactional_ids(state: State, transactional_ids: Iterable[str]) -> Decision[int]:
    """Forget these transactional ids; the result is their number. Raises TransactionalIdNotFoundError."""
    numbers = []
    for name in dict.fromkeys(transactional_ids):
        number = state.indexes.transactional_ids.get(name)
        if number is None:
            raise TransactionalIdNotFoundError(
                f"transactional id {name!r} is not known: no producer has called init_transactions() with it within "
                "transactional.id.expiration.ms"
            )
        numbers.append(number)
    return _forget_producers(numbers)


def forget_applications(state: State, applications: Iterable[str]) -> Decision[int]:
    """Forget these applications; the result is their number. Raises NotFoundError for an unknown one."""
    names = list(dict.fromkeys(applications))
    for name in names:
        if name not in state.applications:
            raise NotFoundError(
                f"unknown application {name!r}: no write has used this id; `sparklog applications --list` shows the "
                "known ones"
            )
    return _forget_applications(names)


def _forget_producers(numbers: Sequence[int]) -> Decision[int]:
    return Decision([ForgetProducers(producers=list(numbers))] if numbers else [], len(numbers))


def _forget_applications(names: Sequence[str]) -> Decision[int]:
    return Decision([ForgetApplications(applications=list(names))] if names else [], len(names))
