"""Forgets producers and applications that have been silent for as long as the cluster's settings say.

    done = expire(coordinator)

Nothing else forgets them by itself: no commit's time does. What is due is decided against the newest state
(``protocol.decide_expiry``) and committed in bounded parts.

Rules: silence is counted up to the log's own time where that is behind this machine's, so a maintainer whose clock is
ahead forgets nothing early. Every part may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from sparklog.coordinator import Coordinator
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.protocol.decide import expiry as decide_expiry
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State


class Expired(NamedTuple):
    """How many were forgotten: transactional ids, producers of partitions, applications."""

    transactional_ids: int
    partition_producers: int
    applications: int


def expire(coordinator: Coordinator, check: Callable[[], None] = lambda: None) -> Expired:
    """Forget what is due. ``check`` is called between commits, to stop there. Raises what a commit does."""
    state, now_ms = coordinator.refresh(), coordinator.expiry_time_ms()

    def all_of(decide: Callable[[State], Decision]) -> int:
        total = 0
        while forgotten := cast(int, coordinator.submit(decide)):
            total += forgotten
            check()
        return total

    transactional_ids = all_of(lambda newest: decide_expiry.expire_transactional_ids(newest, now_ms))
    partition_producers = all_of(lambda newest: decide_expiry.expire_partition_producers(newest, now_ms))
    applications = 0
    expiration_ms = decide_expiry.expiration_ms(state, decide_expiry.APPLICATION_ID_EXPIRATION)
    if expiration_ms >= 0 and state.applications:
        before_ms = decide_expiry.expiry_now_ms(state, now_ms) - expiration_ms
        before = newest_version_before(coordinator.store, state.version, before_ms) + 1
        applications = all_of(lambda newest: decide_expiry.expire_applications(newest, before))
    return Expired(transactional_ids, partition_producers, applications)
