"""Removes producers and applications that have been inactive for longer than the cluster's settings allow.

    expired = expire(coordinator)

Only this job removes them: the passing of time alone, as other commits record it, does not. What has expired is
decided against the newest state (``protocol.decide.expiry``) and committed in bounded batches.

Rules: inactivity is measured up to the earlier of the log's time and this machine's, so a maintainer whose clock is
ahead removes nothing early. Every batch may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sparklog.coordinator import Coordinator
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.protocol.decide import expiry as decide_expiry
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State


class ExpiryResult(NamedTuple):
    """The number of transactional ids, producers of partitions and applications that were removed."""

    transactional_ids: int
    partition_producers: int
    applications: int


@in_one_timeline
def expire(coordinator: Coordinator, check: Callable[[], None] = lambda: None) -> ExpiryResult:
    """Remove what has expired. ``check`` is called between commits and may raise to stop. Errors as ``submit``."""
    state, now_ms = coordinator.refresh(), coordinator.log.expiry_clock.now_ms()

    def submit_until_none(decide: Callable[[State], Decision[int]]) -> int:
        total = 0
        while removed := coordinator.submit(decide):
            total += removed
            check()
        return total

    transactional_ids = submit_until_none(lambda newest: decide_expiry.expire_transactional_ids(newest, now_ms))
    partition_producers = submit_until_none(lambda newest: decide_expiry.expire_partition_producers(newest, now_ms))
    applications = 0
    expiration_ms = decide_expiry.expiration_ms(state, decide_expiry.APPLICATION_ID_EXPIRATION)
    if expiration_ms >= 0 and state.applications:
        before_ms = decide_expiry.expiry_now_ms(state, now_ms) - expiration_ms
        before_version = newest_version_before(coordinator.store, state.version, before_ms) + 1
        applications = submit_until_none(
            lambda newest: decide_expiry.expire_applications(newest, before_version, expiration_ms)
        )
    return ExpiryResult(transactional_ids, partition_producers, applications)
