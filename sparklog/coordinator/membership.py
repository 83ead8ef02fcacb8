"""A member of a consumer group: joins, shows that it lives, sees what it owns, commits, leaves.

    member = GroupMember(coordinator, "billing", session_timeout_ms=45_000)
    member.join(["orders"])
    while True:                                # whenever the caller likes
        member.beat()                          # every few seconds, perhaps from another thread
        change = member.reconcile()
        ...                                    # stop reading change.revoked and change.lost
        if change.to_acknowledge:
            member.acknowledge(offsets of change.revoked)
        ...                                    # start reading change.assigned
        member.commit(offsets)

Who is in the group and owns what is decided by the commit log (``protocol.groups``); this class compares what its
caller was told with what the log says by now. What the caller was told to give up nobody else gets until it
acknowledges, so a caller that has stopped reading before that never reads what another member reads.

Liveness: every member renews its lease and watches those of others (``leases``). One that stayed silent for its session
timeout is taken out by a commit that holds only in the generation it was decided in. A member that was taken out finds
out as soon as it reads the log or commits anything; it has lost its partitions, and joins again under a new id.

Rules: no threads and no waiting here; time and ids are the coordinator's, so a simulation can drive it. Reading a lease
tells who to suspect, the log alone tells who is in.

Not for: positions, callbacks, when to do what (``client.consumer``).
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.leases import Lease, LeaseWatch, lease_key
from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    IndeterminateCommitError,
    SparklogError,
    UnknownMemberIdError,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest, Offsets, join_group
from sparklog.protocol.group.membership import list_partitions, member_of_instance
from sparklog.protocol.state import GroupState, MemberState, Partitions, State
from sparklog.store.process_lock import ProcessLock
from sparklog.types import OffsetAndMetadata, TopicPartition, printable

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


COOPERATIVE = "cooperative-sticky"
"""The assignor whose members keep reading what stays theirs; the others' give up everything first, as in Kafka."""

_COMMIT_TRIES = 5
"""tries of a commit that rebalances overtake, or whose outcome the storage does not tell."""

_TAKEN_OUT = "it was taken out of the group"

_NOTHING: frozenset[TopicPartition] = frozenset()


_locally = ProcessLock()
_local: WeakKeyDictionary[Coordinator, WeakSet[GroupMember]] = WeakKeyDictionary()
"""The members of this process by coordinator, so that they acknowledge a rebalance in one commit."""


class Change(NamedTuple):
    """What became of a member's partitions since it last looked; ``revoked``, ``lost`` and ``assigned`` in this order.

    ``revoked`` may still be committed, ``lost`` may belong to others already. A partition in both ``revoked`` and
    ``assigned`` is read on from what is committed. ``completed``: a rebalance is over for this member, also where it
    got nothing. ``to_acknowledge``: others wait for what it gives up.
    """

    generation: int
    revoked: frozenset[TopicPartition] = _NOTHING
    lost: frozenset[TopicPartition] = _NOTHING
    assigned: frozenset[TopicPartition] = _NOTHING
    completed: bool = False
    to_acknowledge: bool = False

    def __bool__(self) -> bool:
        return bool(self.revoked or self.lost or self.assigned or self.completed or self.to_acknowledge)


class GroupMember:
    """One member of one consumer group.

    Not thread-safe, but for ``beat``, ``leave`` and the properties, which other threads may use at the same time.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        group: str,
        *,
        client_id: str = "",
        host: str = "",
        instance_id: str = "",
        assignors: Sequence[str] = ("range",),
        session_timeout_ms: int = 45_000,
        rebalance_timeout_ms: int = 300_000,
        incremental: bool = False,
    ) -> None:
        """``instance_id`` makes a static member. ``incremental``: tell differences alone, whatever the assignor."""
        self.coordinator = coordinator
        self.group = group
        self.instance_id = instance_id
        self._client_id = client_id
        self._host = host or socket.gethostname()
        self._assignors = tuple(assignors)
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._incremental = incremental
        self._clock = coordinator.log.clock
        self._watch = LeaseWatch(coordinator.store, self._clock, group)
        self._beating = threading.Lock()
        self._lease: Lease | None = None
        self._member_id = ""
        self._joined = False
        self._topics: tuple[str, ...] = ()
        self._owned: dict[TopicPartition, str] = {}
        self._topic_ids: dict[str, str] = {}
        self._lost: set[TopicPartition] = set()
        self._fenced = False
        self._generation = -1
        self._completed = -1
        self._looked_at: State | None = None
        self._looked_group: GroupState | None = None
        self._beaten = self._clock.monotonic()
        self._giving_up: dict[str, tuple[Partitions, float]] = {}
        with _locally:
            _local.setdefault(coordinator, WeakSet()).add(self)

    # -- what it is

    @property
    def member_id(self) -> str:
        """The id it has in the group; empty while it is in none."""
        return self._member_id if self._joined else ""

    @property
    def generation(self) -> int:
        """The generation it last took part in, -1 while it is in no group."""
        return self._generation if self._joined else -1

    @property
    def joined(self) -> bool:
        """Whether it is in the group as far as it knows."""
        return self._joined

    @property
    def assignor(self) -> str:
        """What the group assigns by, as far as this process has read."""
        return self._group_state(self.coordinator.state).assignor

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What its caller was told that it owns."""
        return frozenset(self._owned)

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics that its caller was told to read, by name; not to be changed."""
        return self._topic_ids

    @property
    def overdue(self) -> bool:
        """Whether it has not been heard of for a session timeout: it may have been expired, so beat before reading."""
        return self._clock.monotonic() - self._beaten >= self._session_timeout_ms / 1000

    # -- joining and leaving

    def join(self, topics: Iterable[str]) -> None:
        """Join with this subscription, or change it; ``reconcile`` tells what comes of it.

        Raises InvalidSessionTimeoutError, InconsistentGroupProtocolError, GroupMaxSizeReachedError, InvalidTopicError
        and InvalidRequestError, and FencedInstanceIdError where another process has taken over the instance id. After
        any other error, such as IndeterminateCommitError, it may be called again.
        """
        self._check_not_fenced()
        self._topics = tuple(sorted(set(topics)))
        if not self._joined:
            self._begin()
        former = member_of_instance(self._group_state(self.coordinator.state), self.instance_id)
        request = JoinRequest(
            group=self.group,
            member=self._member_id,
            instance_id=self.instance_id,
            client_id=self._client_id,
            host=self._host,
            topics=self._topics,
            assignors=self._assignors,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
        )
        try:
            self.coordinator.submit(partial(_join, request=request, known=self._joined))
        except UnknownMemberIdError:
            self._looked_at = None
            return  # it was taken out: reconcile says so, and then it may join again
        self._joined = True
        self._looked_at = self._looked_group = None
        if former not in ("", self._member_id):
            self._forget_lease(former)
        self.beat()

    def _begin(self) -> None:
        """A new id, unless the one of an attempt whose outcome is unknown has still to be tried again."""
        if self._member_id:
            return
        self._lost |= self._owned.keys()
        self._owned = {}
        name = self.instance_id or self._client_id or "consumer"
        self._member_id = f"{name}-{self.coordinator.log.ids.write_id()}"
        self._generation = self._completed = -1
        self._lease = Lease(self.coordinator.store, self._clock, self.group, self._member_id)

    def leave(self, reason: str = "left") -> None:
        """Give up membership, so that others need not wait for the session timeout. Doing it twice is fine.

        A static member is not taken out of the group: it keeps its partitions for when it comes back, as in Kafka.
        What it owned counts as lost from here on.
        """
        member, self._joined = self._member_id, False
        self._member_id = ""
        self._looked_at = self._looked_group = None
        if member and not self.instance_id:
            self._insist(lambda: self.coordinator.leave_group(self.group, [member], reason))
            self._forget_lease(member)

    # -- liveness

    def beat(self, refresh: bool = True) -> None:
        """Renew the lease, read what is new, and take out who was silent for too long, or has not given up what others
        wait for within its rebalance timeout. Raises StorageError.

        ``refresh=False`` saves two requests where something else reads the log all the time; a member that was late
        itself reads it nevertheless.
        """
        with self._beating:
            member, lease = self._member_id, self._lease
            if not self._joined or lease is None:
                return
            lease.renew()
            late = self._clock.monotonic() - self._beaten >= self._session_timeout_ms / 2000
            state = self.coordinator.refresh() if refresh or late else self.coordinator.state
            group = self._group_state(state)
            if member not in group.members:
                return  # reconcile tells its caller
            if late:
                self._giving_up = {}
            self._beaten = self._clock.monotonic()
            timeouts = {name: known.session_timeout_ms for name, known in group.members.items()}
            expire(self.coordinator, self.group, self._watch.look(timeouts, member), group.generation)
            stuck = self._stuck(group)
            expire(
                self.coordinator, self.group, stuck, group.generation, "has let nothing go for its rebalance timeout"
            )

    def _stuck(self, group: GroupState) -> list[str]:
        """The other members that live and have not given up for their rebalance timeout what others wait for."""
        now, before = self._clock.monotonic(), self._giving_up
        self._giving_up = {
            name: before[name] if name in before and before[name][0] == known.revoking else (known.revoking, now)
            for name, known in group.members.items()
            if known.revoking and name != self._member_id
        }
        limits = {name: group.members[name].rebalance_timeout_ms / 1000 for name in self._giving_up}
        return [name for name, (_, since) in self._giving_up.items() if now - since >= limits[name] > 0]

    def _forget_lease(self, member: str) -> None:
        self._quietly(lambda: self.coordinator.store.delete(lease_key(self.group, member)), "delete a lease")

    def _quietly(self, action: Callable[[], object], what: str) -> None:
        """What is good to have but need not succeed."""
        try:
            action()
        except SparklogError as error:
            logger.warning("group %s: could not %s: %s", self.group, what, error)

    # -- partitions

    def reconcile(self) -> Change:
        """What changed for the caller, by what this process has read; ``beat`` and ``refresh`` read more.

        From here on it counts as knowing. Where another process has the instance id now, what it had is lost, and
        the next call and ``join`` raise FencedInstanceIdError.
        """
        state = self.coordinator.state
        if state is self._looked_at:
            return Change(self._generation)
        group = self._group_state(state)
        member = self.member_id
        me = group.members.get(member)
        if me is None:
            return self._out_of(group)
        change = self._compare(state, group, me) if group is not self._looked_group else Change(self._generation)
        self._generation = group.generation
        if not change.to_acknowledge:  # else it is said again until it is done
            self._looked_at, self._looked_group = state, group
        return change

    def _out_of(self, group: GroupState) -> Change:
        """It has left, or was taken out: what it had may be others' already."""
        lost = frozenset(self._lost.union(self._owned))
        self._owned, self._lost = {}, set()
        if self._joined and member_of_instance(group, self.instance_id):
            self._fenced = True
        elif self._joined:
            logger.warning("member %s is not in group %s any more and has to join again", self._member_id, self.group)
        self._joined, self._member_id = False, ""
        if not lost:
            self._check_not_fenced()
        return Change(-1, lost=lost)

    def _compare(self, state: State, group: GroupState, me: MemberState) -> Change:
        topics = {*me.assigned, *me.revoking, *(place.topic for place in self._owned)}
        ids = {topic: state.topics[topic].topic_id for topic in topics if topic in state.topics}
        assigned, revoking = set(list_partitions(me.assigned)), set(list_partitions(me.revoking))
        lost = {place for place, topic_id in self._owned.items() if ids.get(place.topic) != topic_id}
        lost |= {place for place in self._owned if place not in assigned and place not in revoking}
        kept = self._owned.keys() - lost
        settled = not revoking and me.assigned == group.target.get(self._member_id, {})
        if self._incremental or group.assignor == COOPERATIVE:
            revoked = kept - assigned
            added = assigned - kept
        else:
            revoked = kept if group.generation != self._generation else set()
            added = assigned - (kept - revoked) if settled else set()
        completed = settled and self._completed != group.generation
        if completed:
            self._completed = group.generation
        self._owned = {place: ids[place.topic] for place in (kept - revoked) | added}
        self._topic_ids = {**self._topic_ids, **{place.topic: topic_id for place, topic_id in self._owned.items()}}
        lost |= self._lost
        self._lost = set()
        return Change(
            group.generation, frozenset(revoked), frozenset(lost), frozenset(added), completed, bool(revoking)
        )

    def acknowledge(self, offsets: Offsets | None = None) -> None:
        """Let others have what ``reconcile`` said to give up, once the caller has stopped reading it.

        ``offsets`` are committed first, in the same commit. Where a rebalance has overtaken this, they are committed
        alone, and ``reconcile`` asks again. Raises CommitFailedError where the member was taken out.
        """
        last = self._existing(offsets or {})
        member, generation = self.member_id, self._generation
        others = self._others_in_this_process()
        try:
            self._insist(lambda: self.coordinator.acknowledge_revocation(self.group, member, generation, last, others))
        except IllegalGenerationError:
            self.commit(last)
        except UnknownMemberIdError as error:
            raise self._failed(last, _TAKEN_OUT) from error
        finally:  # also after an error of the storage: others wait until this is asked for again, and done
            self._looked_at = self._looked_group = None

    def _others_in_this_process(self) -> int:
        """How many other members with this coordinator have something to give up as well, and will soon say so."""
        known = self._group_state(self.coordinator.state).members
        with _locally:
            ids = [member.member_id for member in _local[self.coordinator] if member.group == self.group]
        return sum(name != self.member_id and bool(known[name].revoking) for name in ids if name in known)

    def _existing(self, offsets: Offsets) -> dict[tuple[str, int], OffsetAndMetadata | int]:
        """Without those of partitions that were deleted, which nobody reads any more."""
        topics = self.coordinator.state.topics
        return {
            (topic, partition): offset
            for (topic, partition), offset in offsets.items()
            if topic in topics and partition < len(topics[topic].partitions)
        }

    # -- offsets

    def commit(self, offsets: Offsets) -> None:
        """Commit positions as a member of the present generation.

        A rebalance that this member does not know of yet is no hindrance as long as it holds the partitions still.
        Raises CommitFailedError where it does not or the topic was made again since, FencedInstanceIdError,
        UnknownTopicOrPartitionError, InvalidRequestError; after IndeterminateCommitError it may be called again.
        """
        if not offsets:
            return
        member, generation = self.member_id, self._generation
        if not member:
            raise self._failed(offsets, "it is not in the group")
        for _ in range(_COMMIT_TRIES):
            commit = GroupCommit(
                group=self.group,
                offsets=offsets,
                member=member,
                generation=generation,
                instance_id=self.instance_id,
                topic_ids=self._topic_ids,
            )
            try:
                return self._insist(partial(self.coordinator.commit_group_offsets, commit))
            except UnknownMemberIdError as error:
                raise self._failed(offsets, _TAKEN_OUT) from error
            except IllegalGenerationError as error:
                generation = self._generation_holding(member, offsets, error)
        raise self._failed(offsets, f"{_COMMIT_TRIES} rebalances in a row overtook it")

    def _generation_holding(self, member: str, offsets: Offsets, error: SparklogError) -> int:
        """The newest generation, if this member holds all of these partitions in it."""
        group = self._group_state(self.coordinator.refresh())
        me = group.members.get(member)
        if me is None:
            raise self._failed(offsets, _TAKEN_OUT) from error
        for topic, partition in offsets:
            if partition not in me.assigned.get(topic, ()) and partition not in me.revoking.get(topic, ()):
                raise self._failed(offsets, f"{topic}-{partition} was given to another member") from error
        return group.generation

    def _failed(self, offsets: Offsets, why: str) -> CommitFailedError:
        places = ", ".join(str(TopicPartition(*place)) for place in sorted(offsets)[:5])
        return CommitFailedError(
            f"member {self._member_id!r} of group {self.group!r} cannot commit the offsets of {places}: {why}; "
            "the members that own these partitions now read again from what was committed before. Poll to take part in "
            "the rebalance; poll more often, take fewer records at a time (max_poll_records), or raise "
            "max_poll_interval_ms or session_timeout_ms if it happens often",
            group=self.group,
            member=self._member_id,
        )

    # -- shared

    def _group_state(self, state: State) -> GroupState:
        return state.groups.get(self.group, GroupState())

    def _check_not_fenced(self) -> None:
        if self._fenced:
            raise FencedInstanceIdError(
                f"another process has joined group {self.group!r} with group.instance.id {self.instance_id!r}; stop "
                "this one, and give every process an id of its own",
                group=self.group,
            )

    def _insist(self, action: Callable[[], Result]) -> Result:
        """Repeat a change whose outcome is unknown: none of a member's own does harm when it happens twice."""
        for _ in range(_COMMIT_TRIES - 1):
            try:
                return action()
            except IndeterminateCommitError:
                self.coordinator.refresh()
        return action()


def _join(state: State, request: JoinRequest, known: bool) -> Decision:
    """As the protocol decides it, but a member that believes to be in (``known``) must not come back unawares: what it
    owned others may have had since."""
    if known and request.member not in state.groups.get(request.group, GroupState()).members:
        raise UnknownMemberIdError(f"member {request.member!r} is not in group {request.group!r} any more; join again")
    return join_group(state, request)


def expire(
    coordinator: Coordinator,
    group: str,
    members: Sequence[str],
    generation: int,
    why: str = "was silent for its session timeout",
) -> list[str]:
    """Take silent members out, if the group is still in this generation; returns who was taken out."""
    if not members:
        return []
    gone = coordinator.leave_group(group, members, "expired", generation)
    for member in gone:
        logger.warning("member %s of group %s %s and was taken out", printable(member), printable(group), why)
        try:
            coordinator.store.delete(lease_key(group, member))
        except SparklogError as error:
            logger.warning("the lease of %s in group %s was not deleted: %s", printable(member), group, error)
    return gone
