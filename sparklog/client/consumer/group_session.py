"""A consumer's part in its group: membership within ``poll``, heartbeats from a thread, listeners, and commits.

The consumer's thread joins, takes part in rebalances and calls the listener, all from within ``poll``. Each storage
request for that is a step. A second thread runs the steps and the asynchronous commits in order, so ``poll`` can stop
waiting at its deadline and the next ``poll`` continues with the same step. The heartbeat thread renews the lease and
watches the other members; it leaves the group if ``poll`` was not called for ``max_poll_interval_ms``.

Rules: only one step is in progress at a time, and nothing else happens in the group until it is over. Revoked
partitions are acknowledged after the listener was called, in one commit with their last offsets.
Not for: which member owns which partition (``coordinator.group_member``), reading.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from sparklog.client.background_thread import BackgroundThread
from sparklog.client.condition import Condition, Flag
from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.fetcher import ReadAhead
from sparklog.client.consumer.metrics import ConsumerMetrics
from sparklog.client.consumer.one_thread import OneThread
from sparklog.client.consumer.rebalance import Rebalance, RebalanceStep, plan_rebalance
from sparklog.client.consumer.records import ConsumerGroupMetadata, MemberState
from sparklog.client.consumer.subscription_state import Subscription, run_to_end
from sparklog.client.consumer.unknown_topics import unknown_as_timeout
from sparklog.client.deadlines import DeadlineCall, InOrder, time_left, timed_out
from sparklog.client.producer.futures import Future, SendOutcome
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.definitions import LONG_MAX
from sparklog.coordinator import Coordinator
from sparklog.coordinator.group_liveness import expire_dead_members
from sparklog.coordinator.group_member import GroupMember
from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    SparklogError,
    UnknownMemberIdError,
    UnlinkedHistoryError,
)
from sparklog.log.elapsed import ElapsedTime
from sparklog.protocol.decide.groups import (
    GroupCommit,
    commit_group_offsets,
    find_offset,
    merge_offsets,
    split_offsets,
    topic_ids,
)
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.types import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

Offsets = dict[TopicPartition, OffsetAndMetadata]
Callback = Callable[[Offsets, Any], object]

_MAX_CHANGES = 100
"""Rebalances that one ``poll`` takes part in before it returns to records."""


class CommitFuture(Future[Offsets]):
    """The future that ``commit_async`` returns; resolves to the offsets."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Offsets, lock: Any = None) -> None:
        self._outcome = SendOutcome(Condition(lock))
        self._offsets = offsets

    def resolve(self, error: BaseException | None) -> None:
        self._outcome.resolve(error)

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; return whether the commit is over."""
        return self._outcome.wait(seconds)

    def _result(self) -> Offsets:
        return self._offsets


class _Step(NamedTuple):
    """A call that ``poll`` waits for. ``what`` it does and what follows a timeout (``then``) are for messages."""

    call: DeadlineCall[None]
    what: str
    then: str


class _Heartbeats(NamedTuple):
    """A thread that sends heartbeats, and what ends it."""

    thread: BackgroundThread
    stopping: Flag


class GroupSession:
    """A consumer's membership and commits. Only the consumer's thread calls it, unless a method says otherwise."""

    def __init__(
        self,
        coordinator: Coordinator,
        config: ConsumerConfig,
        subscription: Subscription,
        read_ahead: ReadAhead,
        metrics: ConsumerMetrics,
        thread_guard: OneThread,
    ) -> None:
        self._metrics = metrics
        self._thread_guard = thread_guard
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
            rebalance_timeout_ms=int(min(config.max_poll_interval * 1000, LONG_MAX)),
        )
        self._topics: frozenset[str] = frozenset()
        self._listener_error: Exception | None = None
        self._calling: list[str] = []
        self._heartbeats = self._new_heartbeats()
        self._ended = False
        """Whether the consumer was closed or garbage-collected: no thread sends heartbeats, no step joins from then on,
        also none of a call that a handler of a signal, which has closed the consumer, has interrupted."""
        self._last_poll = float("inf")
        self._last_commit = GroupCommit(group=config.group_id, offsets={})
        self._next_auto_commit = self._clock.monotonic() + config.auto_commit_interval
        self._elapsed = ElapsedTime(self._clock)
        self._began = self._elapsed.now()
        self._calls = InOrder("sparklog-consumer-group", metrics.lock)
        self._step: _Step | None = None
        self._rebalance: Rebalance | None = None
        self._settled: object = None
        """The subscription's partitions that were compared last, and were those of the member."""
        self._pending: deque[DeadlineCall[None]] = deque()
        self._due_callbacks: deque[tuple[Callback, Offsets, BaseException | None]] = deque()

    def metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's identity in its group, and what it has read. Any thread may call this.

        A consumer that has left its group, as by ``max_poll_interval_ms``, has the identity of its last membership: its
        offsets are refused.
        """
        state = MemberState.UNJOINED
        if self._member.generation >= 0:
            state = MemberState.STABLE if self._is_stable() else MemberState.REBALANCING
        member, generation = self._member.identity if self._subscription.automatic else ("", -1)
        found = ConsumerGroupMetadata(
            self._config.group_id, generation, member, self._config.instance_id or None, state
        )
        positions = self._subscription.positions
        found.topic_ids = self._topic_ids(positions)
        found.reader, found.log = self._coordinator.reader, self._coordinator.log
        found.timeline = self._timeline(name for name, at in positions.items() if at.position is not None)
        return found

    def _is_stable(self) -> bool:
        """Return whether the group waits for no member, in the newest state read."""
        group = self._coordinator.state.groups.get(self._config.group_id)
        return group is None or group.name_of_state in ("Stable", "Empty")

    # -- membership, within poll

    def set_polling(self, active: bool) -> None:
        """Note that ``poll`` has begun or ended. While it waits, ``max_poll_interval_ms`` does not run."""
        self._last_poll = float("inf") if active else self._clock.monotonic()

    @property
    def is_rebalancing(self) -> bool:
        """Return whether something that ``update`` began, and that may change the assignment, is not over; or has to
        begin: a member whose lease could not be renewed may have been removed."""
        return self._step is not None or self._rebalance is not None or self._must_renew

    @property
    def _must_renew(self) -> bool:
        return self._member.joined and self._member.overdue

    def update(self, seconds: float) -> None:
        """Join the group, renew the lease and take part in rebalances, as needed.

        Raises what ``GroupMember.join`` raises, and KafkaTimeoutError after ``seconds``; the current step keeps
        running, and the next call continues with it.
        """
        if self._calling:  # poll() in a listener: its rebalance is not over
            return
        until = self._clock.monotonic() + seconds
        self._finish_step(until)
        member = self._member
        if self._must_renew and member.is_listed:  # one that was removed needs no request to find out
            self._take_step(self._renew, "renewing the lease", until)
        for _ in range(_MAX_CHANGES):
            self._check_open()  # a listener may have closed the consumer, and is not told that partitions are lost
            if not self._subscription.automatic:  # a listener, callback or signal's handler has called unsubscribe()
                break
            began = self._clock.monotonic()
            if self._rebalance is None:
                found, positions = member.look(), self._subscription.positions
                if found.change or positions is not self._settled:
                    self._settled, self._rebalance = None, plan_rebalance(found, positions)
                if self._rebalance is None:
                    member.adopt(found)
                    self._settled = positions
            if self._rebalance is not None:
                self._apply(self._rebalance, until)
                self._metrics.record_sync(began)
                continue
            topics = self._subscription.matching(self._coordinator.state.topics)
            if member.joined and topics == self._topics:
                break
            self._start_heartbeats()  # before joining: the next poll may be long after it
            self._take_step(partial(self._join, topics), "joining", until)

    def rejoin(self, reason: str, seconds: float) -> None:
        """Leave the group; ``update`` reports the partitions as lost, and joins under another id.

        Records that are read again are those of another membership, and what was begun in the former one is fenced.
        Raises KafkaTimeoutError after ``seconds``; ``update`` then continues with it.
        """
        self._forget_last(_as_dict(self._last_commit))
        if not self._member.is_listed:  # removed, or replaced under its instance id: ``update`` finds that out
            return
        until = self._clock.monotonic() + seconds
        self._take_step(partial(self._member.leave, reason), f"leaving, since {reason}", until)

    def _take_step(
        self, action: Callable[[], None], what: str, until: float, then: str = "the next poll continues with it"
    ) -> None:
        """Run a step. Raises KafkaTimeoutError after ``until``; ``_finish_step`` then waits for the step again."""

        def run() -> None:
            self._check_open()  # a handler of a signal may have closed the consumer since: it must not join again
            action()

        self._step = _Step(self._calls.submit(run), what, then)
        self._finish_step(until)

    def _check_open(self) -> None:
        if self._ended:
            raise IllegalStateError("this consumer is closed; create a new one")

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
            self._expire_dead_members()
        with self._metrics.join():
            self._member.join(topics)
        self._topics = topics

    def _expire_dead_members(self) -> None:
        """Remove members whose leases have expired by the storage's clock. Watching the leases instead takes a whole
        session timeout, even for members that died long ago. Best effort: if the storage fails, the watch remains."""
        with contextlib.suppress(SparklogError):
            expire_dead_members(self._coordinator, [self._config.group_id])

    def _apply(self, rebalance: Rebalance, until: float) -> None:
        """Do what is left of a change. Raises KafkaTimeoutError before it begins, while a commit is in progress: one of
        an earlier position must not be mistaken for one by the listener."""

        def finish_commits() -> None:
            self.finish_commits(max(until - self._clock.monotonic(), 0))

        if RebalanceStep.ACKNOWLEDGE in rebalance.steps:
            finish_commits()
        steps: dict[RebalanceStep, Callable[[], None]] = {
            RebalanceStep.ADOPT: lambda: self._member.adopt(rebalance.found),
            RebalanceStep.LOSE: lambda: self._lose(rebalance.lost),
            RebalanceStep.TELL_REVOKED: lambda: self._tell_revoked(rebalance),
            RebalanceStep.DROP_REVOKED: lambda: self._drop_partitions(rebalance.revoked),
            RebalanceStep.FINISH_COMMITS: finish_commits,
            RebalanceStep.ACKNOWLEDGE: lambda: self._commit_last_offsets(rebalance, until),
            RebalanceStep.ASSIGN: lambda: self._assign(rebalance.assigned),
        }
        while rebalance.steps and self._is_current(rebalance):
            steps[rebalance.steps[0]]()
            rebalance.steps.popleft()
        if self._rebalance is rebalance:
            self._rebalance = None
        if rebalance.failure is not None:
            raise rebalance.failure

    def _is_current(self, rebalance: Rebalance) -> bool:
        """Return whether it is a change of this membership still: a listener, a callback or a signal's handler may have
        called unsubscribe(), and the thread of the heartbeats may have left the group."""
        is_member = self._subscription.automatic and rebalance.is_of(self._member.member_id)
        return is_member and self._rebalance is rebalance

    def _lose(self, partitions: frozenset[TopicPartition]) -> None:
        self._forget_last(partitions)
        self._call_listener("on_partitions_lost", partitions)
        self._drop_partitions(partitions)

    def _assign(self, partitions: frozenset[TopicPartition]) -> None:
        self._forget_last(partitions)
        self._subscription.add(partitions)
        self._call_listener("on_partitions_assigned", partitions)

    def _tell_revoked(self, rebalance: Rebalance) -> None:
        """Call the listener. The last offsets are those from before, and replace what was committed then, as if they
        were committed before the listener, as in Kafka: what it commits itself, also in a transaction, is newer."""
        last = self._prepare_changed(rebalance.revoked if self._config.auto_commit else frozenset())
        state, group = self._coordinator.state, self._config.group_id
        replaces = {partition: find_offset(state, group, *partition) for partition in last.offsets}
        rebalance.last = msgspec.structs.replace(last, replaces=replaces)
        if rebalance.committed is None:  # else the listener was interrupted, and may have committed before
            rebalance.committed = set()
        if rebalance.revoked:
            self._call_listener("on_partitions_revoked", rebalance.revoked)

    def _commit_last_offsets(self, rebalance: Rebalance, until: float) -> None:
        """Commit them, and let others have the partitions. An error must not lose the assignment, which follows."""
        last = rebalance.last_offsets()
        try:
            if rebalance.found.change.to_acknowledge:
                # If the storage does not answer, a later poll gets here again and still has to commit these offsets.
                self._forget_last(rebalance.assigned)
                self._last_commit = merge_offsets(self._last_commit, last)
                self._take_step(self._acknowledge, "acknowledging revoked partitions", until)
            elif last.offsets:
                commit = partial(self._member.submit, last)
                self._take_step(partial(self._commit_or_log, commit), "committing the last offsets", until)
        except SparklogError as error:
            rebalance.failure = error

    def _acknowledge(self) -> None:
        last = self._last_commit
        acknowledge = self._member.acknowledge
        self._commit_or_log(partial(acknowledge, last.offsets, last.topic_ids, last.timeline, last.replaces))
        self._forget_last(_as_dict(last))

    def _forget_last(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep no last offsets of these partitions: they are committed, or the partitions are read again."""
        forgotten = set(partitions)
        kept = {partition: at for partition, at in _as_dict(self._last_commit).items() if partition not in forgotten}
        self._last_commit = msgspec.structs.replace(self._last_commit, offsets=kept)

    def _commit_or_log(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except CommitFailedError as error:
            logger.warning(
                "the last offsets before a rebalance of group %s were not committed: %s", self._config.group_id, error
            )

    def _drop_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        self._read_ahead.forget(*partitions)
        self._subscription.remove(partitions)

    def _call_listener(self, method: str, partitions: frozenset[TopicPartition]) -> None:
        """Call the listener. Its exception is logged and the rebalance continues, as in kafka-python. A listener that
        triggers the same callback itself, for example with unsubscribe(), is not called again."""
        listener = self._subscription.listener
        called = getattr(listener, method, None)
        if called is None and method == "on_partitions_lost":
            called = getattr(listener, "on_partitions_revoked", None)
        if called is None or method in self._calling:
            return
        given, has_begun = set(partitions), False
        try:
            self._calling.append(method)
            has_begun = True
            run_to_end(called(given), self._thread_guard)
        except Exception as error:
            if not has_begun:  # a handler of a signal has raised it: the listener is called by the next poll
                raise
            logger.exception("%s of the listener of group %s failed", method, self._config.group_id)
            self._listener_error = self._listener_error or error
        finally:
            if method in self._calling:  # not if it was interrupted before
                self._calling.remove(method)

    def raise_listener_error(self) -> None:
        """Raise KafkaError if the listener failed: once, at the end of the rebalance."""
        error, self._listener_error = self._listener_error, None
        if error is not None:
            raise KafkaError(
                f"the rebalance listener of group {self._config.group_id} failed: {error!r}, see __cause__; the "
                "rebalance is over, and this consumer has its partitions",
                group=self._config.group_id,
            ) from error

    def leave(self, seconds: float) -> None:
        """Leave the group, on ``unsubscribe`` and ``close``. A failure is logged: heartbeats have stopped by then, so
        the group removes this member after its session timeout."""
        left = time_left(seconds)
        owned = frozenset(self._subscription.positions)
        if self._member.joined and owned:
            self._call_listener("on_partitions_revoked", owned)
            self._listener_error = None  # it was logged, and a consumer that leaves has no use for it
            try:
                self.finish_commits(left())
            except KafkaTimeoutError as error:  # leave anyway, or it would keep partitions that it does not read
                logger.warning("leaving group %s before a commit was acknowledged: %s", self._config.group_id, error)
        self._stop_heartbeats(left())
        self._rebalance = None
        self._forget_last(_as_dict(self._last_commit))
        until = self._clock.monotonic() + left()
        then = "if it fails, the group removes this member after its session timeout"
        try:
            self._step = _Step(self._calls.submit(self._leave), "leaving", then)
            self._finish_step(until)
        except SparklogError as error:
            logger.warning("could not leave group %s: %s", self._config.group_id, error)

    def _leave(self) -> None:
        """Leave after the steps in progress, so that a join whose outcome is unknown is undone as well."""
        try:
            self._member.leave("left")
        except SparklogError as error:  # the caller may no longer wait for the result
            logger.warning("could not leave group %s: %s", self._config.group_id, error)
        finally:
            self._topics = frozenset()
            if not self._member.joined:
                with contextlib.suppress(FencedInstanceIdError):
                    self._member.reconcile()  # the member notes that it owns nothing

    # -- heartbeats

    def _start_heartbeats(self) -> None:
        if self._heartbeats.stopping.is_set:
            self._heartbeats = self._new_heartbeats()
        self._heartbeats.thread.start()

    def _new_heartbeats(self) -> _Heartbeats:
        stopping = Flag()
        work = partial(self._run_heartbeats, stopping)
        return _Heartbeats(BackgroundThread(work, "sparklog-consumer-heartbeat", self._metrics.lock), stopping)

    def abandon(self) -> None:
        """Let the threads end soon, without a lock, a commit or leaving the group."""
        self._ended = True
        self._calls.end()

    def _stop_heartbeats(self, seconds: float) -> None:
        self._heartbeats.stopping.set()
        self._heartbeats.thread.join(seconds)

    def _run_heartbeats(self, stopping: Flag) -> None:
        interval = min(self._config.heartbeat_interval, self._config.max_poll_interval / 2)
        while not stopping.wait(0 if self._ended else interval):
            if self._ended:
                return
            try:
                late = self._clock.monotonic() - self._last_poll > self._config.max_poll_interval
                if late and self._member.joined:
                    logger.warning(
                        "poll() was not called for max_poll_interval_ms=%d, so this consumer leaves group %s until the "
                        "next poll(); lower max_poll_records, or raise max_poll_interval_ms",
                        self._config.max_poll_interval * 1000,
                        self._config.group_id,
                    )
                    self._member.leave("max.poll.interval.ms exceeded")
                else:
                    # Usually the log is read for records anyway, but not while a slow storage is read from.
                    is_read = self._coordinator.was_checked_within(interval)
                    with self._metrics.heartbeat():
                        self._member.beat(refresh=not is_read)
                    if not self._is_stable():  # the group may be waiting for a dead member
                        self._expire_dead_members()
            except Exception as error:  # the thread must run for as long as the consumer is a member
                logger.warning("heartbeat in group %s failed, retrying: %s", self._config.group_id, error)

    # -- commits

    def positions(self) -> Offsets:
        """Return the known positions by partition, as offsets to commit.

        Leaves out partitions in which a group can have no offset, ``__consumer_offsets`` and those of topics that are
        deleted as far as this process has read: one of them would make the whole commit fail.
        """
        topics = self._coordinator.state.topics
        return {
            partition: OffsetAndMetadata(at.position, "", at.epoch)
            for partition, at in self._subscription.positions.items()
            if at.position is not None
            and partition.topic != CONSUMER_OFFSETS_TOPIC
            and partition.topic in topics
            and at.topic_id in ("", topics[partition.topic].topic_id)
        }

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """Return by name the ids of the topics whose offsets are the positions in these partitions, where known."""
        topics, found = self._coordinator.state.topics, dict[str, str]()
        for partition in partitions:
            at, topic = self._subscription.positions.get(partition), topics.get(partition.topic)
            is_older = at is not None and (topic is None or at.topic_id != topic.topic_id)
            if at is not None and at.topic_id and (is_older or partition.topic not in found):
                found[partition.topic] = at.topic_id
        return found

    def _timeline(self, partitions: Iterable[TopicPartition]) -> int:
        """Return the timeline of the log, by ``unlinked_jumps``, in which the positions in these partitions were found;
        the first one if there are several, or some were dropped and the program was not told yet."""
        positions = self._subscription.positions
        found = [positions[partition].timeline for partition in partitions if partition in positions]
        found.append(self._subscription.left_timeline)
        newest = self._coordinator.log.unlinked_jumps
        return min((timeline for timeline in found if timeline is not None), default=newest)

    def changed_offsets(self, partitions: frozenset[TopicPartition] | None = None) -> Offsets:
        """Return the positions that differ from the committed offsets, of these partitions or of all."""
        positions = self._subscription.positions
        return {
            partition: at
            for partition, at in self.positions().items()
            if at.offset != positions[partition].committed and (partitions is None or partition in partitions)
        }

    def _prepare_changed(self, partitions: frozenset[TopicPartition] | None = None) -> GroupCommit:
        """Return an automatic commit of changed positions, and of those that would expire. It leaves out topics that
        are deleted before it is decided, instead of failing: the other offsets would not be committed again."""
        changed, aging = self.changed_offsets(partitions), self._find_aging()
        if aging:
            changed = {at: offset for at, offset in self.positions().items() if at in aging} | changed
        commit = self.prepare(changed)
        return msgspec.structs.replace(commit, replaces=aging, leaves_out_deleted=True)

    def _find_aging(self) -> dict[TopicPartition, int | None]:
        """Return the partitions whose position is committed, and has to be again, with what is committed now: offsets
        of a group without members expire after ``offsets.retention.minutes``, also while a consumer with assigned
        partitions waits there. Kafka's commits all positions each time. Not where another offset was committed since.
        """
        if not self._subscription.manual:
            return {}
        state = self._coordinator.state
        half = ClusterConfig.resolve(state.configs).offsets_retention_minutes * 60_000 / 2
        aging: dict[TopicPartition, int | None] = {}
        for partition, position in self._subscription.positions.items():
            stored = state.committed(self._config.group_id, *partition)
            age = 0 if stored is None else self._clock.now_ms() - stored.timestamp_ms
            waited = self._elapsed.seconds_since(position.kept_at or self._began) * 1000
            is_due = waited > half or (position.kept_at is None and age > half)
            is_unchanged = position.committed is not None and position.position == position.committed
            if is_due and is_unchanged and (stored is None or stored.offset == position.committed):
                aging[partition] = None if stored is None else stored.offset
        return aging

    def prepare(self, offsets: Offsets) -> GroupCommit:
        """Return a commit of these offsets by the consumer as it is now: positions, or offsets that its caller found.

        The ids are those of the topics of its positions, and the timeline is theirs, so that the fetch thread may read
        on, and ``poll`` go on with a topic that was created again or in another timeline, before the commit is decided.
        """
        ids, timeline = self._topic_ids(offsets), self._timeline(offsets)
        if self._subscription.automatic:
            return self._member.prepare(dict(offsets.items()), ids, timeline)
        ids = {**topic_ids(self._coordinator.state, offsets), **ids}
        return GroupCommit(group=self._config.group_id, offsets=dict(offsets.items()), topic_ids=ids, timeline=timeline)

    def commit(self, commit: GroupCommit, seconds: float) -> None:
        """Commit after all commits in progress. Raises what ``GroupMember.submit`` raises, and KafkaTimeoutError after
        ``seconds``; the commit then continues."""
        if not commit.offsets and not self._pending:
            return
        future = self.commit_async(commit, None)
        if not future.wait(seconds):
            raise timed_out("commit()", seconds)
        self.finish_commits()
        if future.exception is not None:
            raise future.exception

    def _commit(self, commit: GroupCommit, submit: Callable[[GroupCommit], None]) -> None:
        if not commit.offsets:
            return
        with self._metrics.commit(), unknown_as_timeout():
            submit(commit)
        for partition, at in _as_dict(commit).items():
            position = self._subscription.positions.get(partition)
            if position is not None and position.topic_id == commit.topic_ids.get(partition.topic):
                position.committed, position.kept_at = at.offset, self._elapsed.now()

    def _submit_without_membership(self, commit: GroupCommit) -> None:
        try:
            for part in split_offsets(commit.offsets):
                of_part = msgspec.structs.replace(commit, offsets=part)
                self._coordinator.submit(partial(commit_group_offsets, commit=of_part), timelines=[commit.timeline])
        except (UnknownMemberIdError, UnlinkedHistoryError) as error:  # as kafka-python does
            raise CommitFailedError(error.message, **error.context) from error

    def commit_async(self, commit: GroupCommit, callback: Callback | None) -> CommitFuture:
        """Commit in another thread; the callback runs within a later call of the consumer."""
        offsets = _as_dict(commit)
        future = CommitFuture(offsets, self._metrics.lock)
        submit = self._member.submit if self._subscription.automatic else self._submit_without_membership

        def run() -> None:
            error: BaseException | None = None
            try:
                self._commit(commit, submit)
            except Exception as failure:
                error = failure
            if callback is not None:
                self._due_callbacks.append((callback, offsets, error))
            future.resolve(error)

        if self._rebalance is not None:
            self._rebalance.note_commit(offsets)
        self._pending.append(self._calls.submit(run))
        return future

    def finish_commits(self, seconds: float = math.inf) -> None:
        """Wait for the asynchronous commits, and run their callbacks. Raises KafkaTimeoutError."""
        if self._pending and not self._pending[-1].wait(seconds):
            raise timed_out("a commit of offsets", seconds)
        self.run_callbacks()

    def run_callbacks(self) -> None:
        """Run the callbacks of finished commits, in order."""
        while self._pending and self._pending[0].done():
            self._pending.popleft()
        while self._due_callbacks:
            callback, offsets, error = self._due_callbacks.popleft()
            try:
                callback(offsets, error if error is not None else True)
            except Exception:
                logger.exception("the callback of a commit in group %s failed", self._config.group_id)

    def auto_commit(self) -> None:
        """Begin a commit of changed positions if the interval is over and no commit is in progress."""
        now = self._clock.monotonic()
        if not self._config.auto_commit or now < self._next_auto_commit or self._pending:
            return
        self._next_auto_commit = now + self._config.auto_commit_interval
        changed = self._prepare_changed()
        if changed.offsets:
            self.commit_async(changed, self._config.commit_callback or _log_failure)

    def commit_last(self, autocommit: bool, seconds: float) -> None:
        """Wait for the commits in progress and, with ``autocommit``, commit changed positions, before partitions go."""
        left = time_left(seconds)
        try:
            self.finish_commits(left())
            if autocommit:
                self.commit(self._prepare_changed(), left())
        except SparklogError as error:
            logger.warning("the last offsets in group %s were not committed: %s", self._config.group_id, error)

    def close(self, autocommit: bool, seconds: float) -> None:
        """Commit changed positions (with ``autocommit``) and leave the group, within ``seconds``. After an interrupt of
        the commit the next call does both."""
        left = time_left(seconds)
        try:
            if self._subscription.manual or self._member.joined:  # else an interrupted call has committed and left
                self.commit_last(autocommit and self._config.auto_commit, left())
            if self._subscription.automatic:
                self.leave(left())
        finally:
            self._ended = True
            self._calls.end()


def _as_dict(commit: GroupCommit) -> Offsets:
    return cast(Offsets, commit.offsets)  # as ``GroupSession.prepare`` was given them


def _log_failure(offsets: Offsets, outcome: object) -> None:
    if isinstance(outcome, BaseException):
        logger.warning("an automatic commit of offsets failed: %s", outcome)
