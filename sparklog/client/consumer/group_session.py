"""A consumer's part in its group: membership within ``poll``, heartbeats from a thread, listeners, and commits.

The consumer's thread joins, takes part in rebalances and calls the listener, all from within ``poll``. What it asks of
the storage for that is a step, which a thread of its own takes, after the commits that were begun before; asynchronous
commits have the same thread. So ``poll`` gives up waiting in time, and the next one finds the step where it is by then.
The heartbeat thread renews the lease and watches the other members, and leaves the group where ``poll`` was not called
for ``max_poll_interval_ms``.

Rules: one step is under way at a time, and nothing else is done in the group meanwhile. What is given up is
acknowledged after the listener has been called and the last offsets are committed, in one commit.
Not for: who owns what (``coordinator.membership``), reading.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.fetcher import ReadAhead
from sparklog.client.consumer.metrics import ConsumerMetrics
from sparklog.client.consumer.records import ConsumerGroupMetadata, MemberState
from sparklog.client.consumer.subscription_state import Subscription, finish
from sparklog.client.consumer.unknown_topics import unknown_as_timeout
from sparklog.client.deadlines import Call, InOrder, timed_out
from sparklog.client.producer.futures import Future, SendOutcome, clamp_timeout
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
from sparklog.protocol.decide.groups import GroupCommit
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, OffsetAndMetadata]
Callback = Callable[[Offsets, Any], object]

_MOST_CHANGES = 100
"""rebalances that one ``poll`` takes part in before it looks at records again."""


class CommitFuture(Future[Offsets]):
    """What ``commit_async`` returns; resolves to the offsets."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Offsets) -> None:
        self._outcome = SendOutcome(threading.Condition())
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


class _Step(NamedTuple):
    """What ``poll`` waits for: a call; what it does, and what comes of it where it takes too long, for messages."""

    call: Call[None]
    what: str
    then: str


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
        self._calls = InOrder("sparklog-consumer-group")
        self._step: _Step | None = None
        self._change: Change | None = None
        self._pending: deque[Call[None]] = deque()
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

    @property
    def waits(self) -> bool:
        """Whether something that ``update`` has begun is not over: whose the partitions are may change by it."""
        return self._step is not None or self._change is not None

    def update(self, seconds: float) -> None:
        """Take part in whatever is going on.

        Raises what ``GroupMember.join`` raises, and KafkaTimeoutError after so many seconds: what was begun goes on
        then, and the next call continues with it.
        """
        if self._calling:  # poll() in a listener: the rebalance that it is told of is not over
            return
        until = self._clock.monotonic() + seconds
        self._finish_step(until)
        member = self._member
        if member.joined and member.overdue:
            self._take_step(self._renew, "renewing the lease", until)
        for _ in range(_MOST_CHANGES):
            began = self._clock.monotonic()
            self._change = self._change or member.reconcile() or None
            if self._change:
                self._apply_change(until)
                self._metrics.synced(began)
                continue
            if not self._subscription.automatic:  # the listener has called unsubscribe()
                break
            topics = self._subscription.matching(self._coordinator.state.topics)
            if member.joined and topics == self._topics:
                break
            self._start_heart()  # before: poll may not come back for a while after the join
            self._take_step(partial(self._join, topics), "joining", until)

    def _take_step(
        self, action: Callable[[], None], what: str, until: float, then: str = "the next poll continues with it"
    ) -> None:
        """Raises KafkaTimeoutError where it is not over by then; ``_finish_step`` asks for it again."""
        self._step = _Step(self._calls.submit(action), what, then)
        self._finish_step(until)

    def _finish_step(self, until: float) -> None:
        step = self._step
        if step is None:
            return
        left = max(until - self._clock.monotonic(), 0)
        if not step.call.wait(left):
            raise timed_out(f"{step.what} (group {self._config.group_id})", left, step.then)
        self._step = None
        step.call.result()

    def _renew(self) -> None:
        with self._metrics.heartbeat():
            self._member.beat()

    def _join(self, topics: frozenset[str]) -> None:
        if not self._member.joined:
            self._expire_dead()
        with self._metrics.join():
            self._member.join(topics)
        self._topics = topics

    def _expire_dead(self) -> None:
        """Take out members whose leases are too old by the storage's clock. To watch them takes a session timeout, also
        where they have been dead for long. Best effort: where the storage does not answer, watching them is left."""
        with contextlib.suppress(SparklogError):
            expire_dead_members(self._coordinator, [self._config.group_id])

    def _apply_change(self, until: float) -> None:
        """Do what ``reconcile`` has told, which it does once: so it is kept until the commits before are over. One of
        an earlier position must not pass for one of the listener's."""
        change = self._change
        if change is not None and (change.revoked or change.to_acknowledge):
            self.finish_commits(max(until - self._clock.monotonic(), 0))
            change = self._change  # None where a callback has called unsubscribe()
        self._change = None
        if change is not None:
            self._apply(change, until)

    def _apply(self, change: Change, until: float) -> None:
        if change.lost:
            self._last = {}
            try:
                self._call("on_partitions_lost", change.lost)
            finally:
                self._remove(change.lost)
        try:
            if change.revoked or change.to_acknowledge:
                self._give_up(change, until)
        finally:  # an error of the storage must not cost what the group has given: it is told once
            if (change.assigned or change.completed) and self._subscription.automatic:
                self._subscription.add(change.assigned)
                self._call("on_partitions_assigned", change.assigned)

    def _give_up(self, change: Change, until: float) -> None:
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
        if change.to_acknowledge:
            # Where the storage does not answer, poll comes here again, and these offsets are still to be committed; but
            # not those of a partition that has come back meanwhile, which may be further by then.
            kept = {place: at for place, at in self._last.items() if place not in positions}
            self._last = {**kept, **last}
            self._take_step(self._acknowledge, "giving partitions up", until)
        elif last:
            self._take_step(partial(self._commit_last, _plain(last)), "committing the last offsets", until)

    def _acknowledge(self) -> None:
        self._unless_refused(partial(self._member.acknowledge, _plain(self._last)))
        self._last = {}

    def _commit_last(self, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int]) -> None:
        self._unless_refused(partial(self._member.commit, offsets))

    def _unless_refused(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except CommitFailedError as error:
            logger.warning("the last offsets before a rebalance were not committed: %s", error)

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
        self._change = None
        until, then = self._clock.monotonic() + seconds, "where it fails the session timeout takes this member out"
        self._take_step(partial(self._leave, reason), "leaving", until, then)

    def _leave(self, reason: str) -> None:
        """After whatever is under way: a join that has no answer yet is followed by this."""
        try:
            self._member.leave(reason)
        except SparklogError as error:  # nobody may wait for it any more
            logger.warning("could not leave group %s: %s", self._config.group_id, error)
        finally:
            self._topics = frozenset()
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
        self._calls.end()

    def _stop_heart(self, seconds: float = math.inf) -> None:
        self._stopping.set()
        if self._heart is not None and self._heart is not threading.current_thread():
            self._heart.join(clamp_timeout(seconds))
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

        self._pending.append(self._calls.submit(run))
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
            self._calls.end()

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
