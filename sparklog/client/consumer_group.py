"""A consumer's part in its group: membership within ``poll``, heartbeats from a thread, listeners, and commits.

The consumer's thread joins, takes part in rebalances and calls the listener, all from within ``poll``. The heartbeat
thread renews the lease and watches the other members, and leaves the group where ``poll`` was not called for
``max_poll_interval_ms``. Asynchronous commits have a thread of their own; each waits for the one before.

Rules: what is given up is acknowledged after the listener has been called and the last offsets are committed, in one
commit. Not for: who owns what (``coordinator.membership``), reading.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sparklog.client.consumer_config import ConsumerConfig
from sparklog.client.consumer_metrics import ConsumerMetrics
from sparklog.client.consumer_records import ConsumerGroupMetadata, MemberState
from sparklog.client.fetcher import ReadAhead
from sparklog.client.futures import Future, Outcome, longest_wait
from sparklog.client.patience import InOrder, timed_out, within
from sparklog.client.subscription import Subscription, finish
from sparklog.client.unknown_topics import unknown_as_timeout
from sparklog.coordinator import Coordinator
from sparklog.coordinator.group_liveness import expire_dead_members
from sparklog.coordinator.membership import Change, GroupMember
from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaError,
    KafkaTimeoutError,
    SparklogError,
    UnknownMemberIdError,
)
from sparklog.protocol.decide_groups import GroupCommit
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

Offsets = dict[TopicPartition, OffsetAndMetadata]
Callback = Callable[[Offsets, Any], object]

_MOST_CHANGES = 100
"""rebalances that one ``poll`` takes part in before it looks at records again."""


class CommitFuture(Future[Offsets]):
    """What ``commit_async`` returns; resolves to the offsets."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Offsets) -> None:
        self._outcome = Outcome(threading.Condition())
        self._offsets = offsets

    def resolve(self, error: BaseException | None) -> None:
        with self._outcome.condition:
            self._outcome.error, self._outcome.done = error, True
            self._outcome.condition.notify_all()
        self._outcome.run_callbacks()

    def wait(self, seconds: float) -> bool:
        """Whether it is over, after at most so many seconds."""
        return self._outcome.wait(seconds)

    def _result(self) -> Offsets:
        return self._offsets


class GroupSession:
    """A consumer's membership and commits. The consumer's thread calls it; what other threads do is in here."""

    def __init__(
        self,
        coordinator: Coordinator,
        config: ConsumerConfig,
        subscription: Subscription,
        read_ahead: ReadAhead,
        metrics: ConsumerMetrics,
    ) -> None:
        self._metrics = metrics
        self._coordinator = coordinator
        self._config = config
        self._subscription = subscription
        self._read_ahead = read_ahead
        self._clock = coordinator.log.clock
        self._member = GroupMember(
            coordinator,
            config.group_id,
            client_id=config.client_id,
            instance_id=config.instance_id,
            assignors=config.assignors,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=int(config.max_poll_interval * 1000),
        )
        self._topics: frozenset[str] = frozenset()
        self._listener_error: Exception | None = None
        self._calling: list[str] = []
        self._heart: threading.Thread | None = None
        self._stopping = threading.Event()
        self._abandoned = False
        self._polled = float("inf")
        self._last: Offsets = {}
        self._next_auto_commit = self._clock.monotonic() + config.auto_commit_interval
        self._commits = InOrder("sparklog-consumer-commit")
        self._pending: deque[Any] = deque()
        self._completed: deque[tuple[Callback, Offsets, BaseException | None]] = deque()

    def metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group. Any thread may ask."""
        member = self._member
        generation, state = member.generation, MemberState.UNJOINED
        if generation >= 0:
            state = MemberState.STABLE if self._is_stable() else MemberState.REBALANCING
        instance_id = self._config.instance_id or None
        return ConsumerGroupMetadata(self._config.group_id, generation, member.member_id, instance_id, state)

    def _is_stable(self) -> bool:
        """Whether nobody in the group is waited for, as far as is known."""
        group = self._coordinator.state.groups.get(self._config.group_id)
        return group is None or group.name_of_state in ("Stable", "Empty")

    # -- membership, within poll

    def polling(self, now: bool) -> None:
        """``poll`` has begun (so that the heartbeat thread does not mind how long it waits) or is over."""
        self._polled = float("inf") if now else self._clock.monotonic()

    def update(self) -> bool:
        """Take part in whatever is going on; whether the assignment has changed.

        Raises what ``GroupMember.join`` raises.
        """
        member, changed = self._member, False
        if self._calling:  # poll() in a listener: the rebalance that it is told of is not over
            return False
        if member.joined and member.overdue:
            with self._metrics.heartbeat():
                member.beat()
        for _ in range(_MOST_CHANGES):
            began = self._clock.monotonic()
            change = member.reconcile()
            if change:
                self._apply(change)
                self._metrics.synced(began)
                changed = True
                continue
            if not self._subscription.automatic:  # the listener has called unsubscribe()
                break
            topics = self._subscription.matching(self._coordinator.state.topics)
            if member.joined and topics == self._topics:
                break
            if not member.joined:
                self._expire_dead()
            with self._metrics.join():
                member.join(topics)
            self._topics = topics
            self._start_heart()
        return changed

    def _expire_dead(self) -> None:
        """Take out members whose leases are too old by the storage's clock. To watch them takes a session timeout, also
        where they have been dead for long. Best effort: where the storage does not answer, watching them is left."""
        with contextlib.suppress(SparklogError):
            expire_dead_members(self._coordinator, [self._config.group_id])

    def _apply(self, change: Change) -> None:
        if change.lost:
            self._last = {}
            try:
                self._call("on_partitions_lost", change.lost)
            finally:
                self._remove(change.lost)
        try:
            if change.revoked or change.to_acknowledge:
                self._give_up(change)
        finally:  # an error of the storage must not cost what the group has given: it is told once
            if (change.assigned or change.completed) and self._subscription.automatic:
                self._subscription.add(change.assigned)
                self._call("on_partitions_assigned", change.assigned)

    def _give_up(self, change: Change) -> None:
        self.finish_commits()  # first, so that one of an earlier position does not pass for one of the listener's
        last = self.changed_offsets(change.revoked) if self._config.auto_commit else {}
        before = {place: self._subscription.positions[place].committed for place in last}
        try:
            if change.revoked:
                self._call("on_partitions_revoked", change.revoked)
            if not self._subscription.automatic:
                return  # the listener has called unsubscribe(), which has committed and left
            positions = self._subscription.positions
            last = {place: at for place, at in last.items() if positions[place].committed == before[place]}
        finally:  # also where Ctrl-C ends the listener: they are told once, and belong to others soon
            self._remove(change.revoked)
        try:
            if change.to_acknowledge:
                self._acknowledge(last)
            else:
                self._member.commit(_plain(last))
        except CommitFailedError as error:
            logger.warning("the last offsets before a rebalance were not committed: %s", error)

    def _acknowledge(self, last: Offsets) -> None:
        """Where the storage does not answer, ``poll`` comes here again, and these offsets are still to be committed;
        but not those of a partition that has come back meanwhile, which may be further by then."""
        kept = {place: at for place, at in self._last.items() if place not in self._subscription.positions}
        self._last = {**kept, **last}
        try:
            self._member.acknowledge(_plain(self._last))
        except CommitFailedError:
            self._last = {}
            raise
        self._last = {}

    def _remove(self, partitions: frozenset[TopicPartition]) -> None:
        for place in partitions:
            self._read_ahead.forget(place)
        self._subscription.remove(partitions)

    def _call(self, method: str, partitions: frozenset[TopicPartition]) -> None:
        """Tell the listener. What it raises is logged, and the rebalance goes on, as in kafka-python. Where it calls
        what would tell it the same while it is told, such as unsubscribe(), it is not told again."""
        listener = self._subscription.listener
        called = getattr(listener, method, None)
        if called is None and method == "on_partitions_lost":
            called = getattr(listener, "on_partitions_revoked", None)
        if called is None or method in self._calling:
            return
        self._calling.append(method)
        try:
            finish(called(set(partitions)))
        except Exception as error:
            logger.exception("%s of the listener of group %s failed", method, self._config.group_id)
            self._listener_error = self._listener_error or error
        finally:
            self._calling.remove(method)

    def raise_listener_error(self) -> None:
        """Tell who polls that the listener has failed: at the end of the rebalance, and once. Raises KafkaError."""
        error, self._listener_error = self._listener_error, None
        if error is not None:
            raise KafkaError(
                f"the rebalance listener of group {self._config.group_id} failed: {error!r}, see __cause__; the "
                "rebalance is over, and this consumer has its partitions",
                group=self._config.group_id,
            ) from error

    def leave(self, reason: str = "left", seconds: float = math.inf) -> None:
        """End membership: on ``unsubscribe`` and ``close``. Raises KafkaTimeoutError; without heartbeats the session
        timeout takes this member out then."""
        owned = frozenset(self._subscription.positions)
        if self._member.joined and owned:
            self._call("on_partitions_revoked", owned)
            self._listener_error = None  # it was logged; whoever leaves has no use for it
            try:
                self.finish_commits(seconds)
            except KafkaTimeoutError as error:  # it leaves all the same, or it would hold what it reads no more
                logger.warning("group %s is left before a commit had an answer: %s", self._config.group_id, error)
        self._stop_heart(seconds)
        self._topics = frozenset()
        try:
            within(seconds, lambda: self._member.leave(reason), f"leaving group {self._config.group_id}")
        finally:
            if not self._member.joined:
                with contextlib.suppress(FencedInstanceIdError):
                    self._member.reconcile()  # it knows now that it owns nothing

    # -- heartbeats

    def _start_heart(self) -> None:
        if self._heart is None:
            self._stopping.clear()
            self._heart = threading.Thread(target=self._beat, name="sparklog-consumer-heartbeat", daemon=True)
            self._heart.start()

    def abandon(self) -> None:
        """End the threads soon, without a lock, a commit or leaving."""
        self._abandoned = True
        self._commits.end()

    def _stop_heart(self, seconds: float = math.inf) -> None:
        self._stopping.set()
        if self._heart is not None and self._heart is not threading.current_thread():
            self._heart.join(longest_wait(seconds))
        self._heart = None

    def _beat(self) -> None:
        interval = min(self._config.heartbeat_interval, self._config.max_poll_interval / 2)
        while not self._stopping.wait(interval):
            if self._abandoned:
                return
            try:
                late = self._clock.monotonic() - self._polled > self._config.max_poll_interval
                if late and self._member.joined:
                    logger.warning(
                        "poll() was not called for max_poll_interval_ms=%d, so this consumer leaves group %s until it "
                        "is; take fewer records at a time (max_poll_records), or raise it",
                        self._config.max_poll_interval * 1000,
                        self._config.group_id,
                    )
                    self._member.leave("max.poll.interval.ms exceeded")
                else:
                    with self._metrics.heartbeat():
                        self._member.beat(refresh=False)  # the log is being read for records anyway
                    if not self._is_stable():  # others may be waited for in vain
                        self._expire_dead()
            except Exception as error:  # whatever it is: the thread goes on for as long as the consumer is a member
                logger.warning("a heartbeat in group %s failed: %s", self._config.group_id, error)

    # -- commits

    def positions(self) -> Offsets:
        """Where the consumer is in each partition, where that is known.

        But not where no group can have been: in ``__consumer_offsets``, and in deleted topics, of which a commit would
        be refused together with all others.
        """
        topics = self._coordinator.state.topics
        return {
            place: OffsetAndMetadata(at.position, "", at.epoch)
            for place, at in self._subscription.positions.items()
            if at.position is not None and place.topic != CONSUMER_OFFSETS_TOPIC and place.topic in topics
        }

    def changed_offsets(self, partitions: frozenset[TopicPartition] | None = None) -> Offsets:
        """Positions that differ from what is committed, of these partitions or all."""
        known = self._subscription.positions
        return {
            place: at
            for place, at in self.positions().items()
            if at.offset != known[place].committed and (partitions is None or place in partitions)
        }

    def commit(self, offsets: Offsets, seconds: float = math.inf) -> None:
        """Commit, after all that was begun before. Errors as ``GroupMember.commit``, and KafkaTimeoutError where that
        takes longer: the commit goes on then."""
        if not offsets and not self._pending:
            return
        future = self.commit_async(offsets, None)
        if not future.wait(seconds):
            raise timed_out("commit()", seconds)
        self.finish_commits()
        if future.exception is not None:
            raise future.exception

    def _commit(self, offsets: Offsets) -> None:
        if not offsets:
            return
        with self._metrics.commit(), unknown_as_timeout():
            if self._subscription.automatic:
                self._member.commit(_plain(offsets))
            else:
                self._commit_as_outsider(GroupCommit(group=self._config.group_id, offsets=_plain(offsets)))
        for place, at in offsets.items():
            position = self._subscription.positions.get(place)
            if position is not None:
                position.committed = at.offset

    def _commit_as_outsider(self, commit: GroupCommit) -> None:
        try:
            self._coordinator.commit_group_offsets(commit)
        except UnknownMemberIdError as error:  # what kafka-python makes of it
            raise CommitFailedError(error.message, **error.context) from error

    def commit_async(self, offsets: Offsets, callback: Callback | None) -> CommitFuture:
        """Commit in another thread; the callback runs within a later call of the consumer's own."""
        future = CommitFuture(offsets)

        def run() -> None:
            error: BaseException | None = None
            try:
                self._commit(offsets)
            except Exception as failure:
                error = failure
            if callback is not None:
                self._completed.append((callback, offsets, error))
            future.resolve(error)

        self._pending.append(self._commits.submit(run))
        return future

    def finish_commits(self, seconds: float = math.inf) -> None:
        """Wait for the asynchronous commits, and call their callbacks. Raises KafkaTimeoutError."""
        if self._pending and not self._pending[-1].wait(seconds):
            raise timed_out("a commit of offsets", seconds)
        self.call_back()

    def call_back(self) -> None:
        """Call the callbacks of commits that are over, in their order."""
        while self._pending and self._pending[0].done():
            self._pending.popleft()
        while self._completed:
            callback, offsets, error = self._completed.popleft()
            try:
                callback(offsets, error if error is not None else True)
            except Exception:
                logger.exception("the callback of a commit in group %s failed", self._config.group_id)

    def auto_commit(self) -> None:
        """Begin a commit of what has changed, where the interval is over and none is under way."""
        now = self._clock.monotonic()
        if not self._config.auto_commit or now < self._next_auto_commit or self._pending:
            return
        self._next_auto_commit = now + self._config.auto_commit_interval
        changed = self.changed_offsets()
        if changed:
            self.commit_async(changed, self._config.commit_callback or _log_failure)

    def commit_last(self, autocommit: bool, seconds: float = math.inf) -> None:
        """Wait for the commits that were begun, and commit what has changed, if asked to, before partitions go."""
        deadline = self._clock.monotonic() + seconds
        try:
            self.finish_commits(seconds)
            if autocommit:
                self.commit(self.changed_offsets(), max(deadline - self._clock.monotonic(), 0))
        except SparklogError as error:
            logger.warning("the last offsets in group %s were not committed: %s", self._config.group_id, error)

    def close(self, autocommit: bool, seconds: float = math.inf) -> None:
        """Commit what has changed, if asked to, and leave; each within so many seconds."""
        try:
            self.commit_last(autocommit and self._config.auto_commit, seconds)
        finally:
            if self._subscription.automatic:
                self.leave_quietly(seconds)
            self._commits.end()

    def leave_quietly(self, seconds: float) -> None:
        """Where leaving fails, the session timeout does it."""
        try:
            self.leave(seconds=seconds)
        except SparklogError as error:
            logger.warning("could not leave group %s: %s", self._config.group_id, error)


def _log_failure(offsets: Offsets, answer: object) -> None:
    if isinstance(answer, BaseException):
        logger.warning("an automatic commit failed: %s", answer)


def _plain(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[tuple[str, int], OffsetAndMetadata | int]:
    return dict(offsets.items())
