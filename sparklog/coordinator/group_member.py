"""A member of a consumer group: joins, sends heartbeats, learns its partitions, commits, leaves.

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

The commit log decides which members are in the group and which partitions each owns (``protocol.group.rebalance``);
this class compares the state last reported to its caller with the newest one. No other member gets a revoked partition
before the caller acknowledges, so a caller that stops reading first never reads a partition together with another.

Liveness: every member renews its lease and watches those of others (``leases``). A member that sent no heartbeat within
its session timeout is removed by a commit that is valid only in the generation it was decided in. A removed member
notices as soon as it reads the log or commits; it has lost its partitions, and rejoins under a new id.

Rules: no threads and no waiting here; time and ids are the coordinator's, so a simulation can drive it. Leases raise
suspicion, only the log says which members are in the group.

Not for: positions, callbacks, scheduling (``client.consumer``).
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.leases import Lease, MemberWatch, lease_key
from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    IndeterminateCommitError,
    SparklogError,
    UnknownMemberIdError,
    UnlinkedHistoryError,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import (
    GroupCommit,
    Joined,
    JoinRequest,
    Offsets,
    acknowledge_revocation,
    commit_group_offsets,
    expire_silent_members,
    expire_stuck_members,
    join_group,
    leave_group,
    split_offsets,
    topic_ids,
    without_deleted_topics,
)
from sparklog.protocol.group.rebalance import list_partitions, member_of_instance
from sparklog.protocol.state import GroupState, MemberState, Partitions, State
from sparklog.retry import is_a, retry
from sparklog.types import TopicPartition, printable

logger = logging.getLogger(__name__)

COOPERATIVE = "cooperative-sticky"
"""The assignor whose members keep reading partitions they retain; with others they revoke all first, as in Kafka."""

_COMMIT_TRIES = 5
"""tries of a commit that rebalances overtake, or whose outcome is unknown."""

_REMOVED = "it was removed from the group"

_OTHER_TIMELINE = "the root may have been restored from a copy since they were found, and their records may be others"

_NOTHING: frozenset[TopicPartition] = frozenset()


class MemberChange(NamedTuple):
    """Changes of a member's partitions since the last call; handle ``revoked``, ``lost``, ``assigned`` in this order.

    Offsets of ``revoked`` may still be committed; ``lost`` may already belong to others. A partition in both
    ``revoked`` and ``assigned`` is read on from its committed offset. ``completed``: a rebalance ended for this member,
    even if it got no partition. ``to_acknowledge``: others wait for its revoked partitions.
    """

    generation: int
    revoked: frozenset[TopicPartition] = _NOTHING
    lost: frozenset[TopicPartition] = _NOTHING
    assigned: frozenset[TopicPartition] = _NOTHING
    completed: bool = False
    to_acknowledge: bool = False

    def __bool__(self) -> bool:
        return bool(self.revoked or self.lost or self.assigned or self.completed or self.to_acknowledge)


class Told(NamedTuple):
    """What the caller of a member was told: as which member it owns which partitions, with the ids of their topics; the
    generation it took part in, and the one in which its last rebalance was completed; the ids of all topics so far, by
    name."""

    member: str = ""
    owned: Mapping[TopicPartition, str] = {}
    generation: int = -1
    completed: int = -1
    topic_ids: Mapping[str, str] = {}


class SeenGroup(NamedTuple):
    """The state, the group in it and the member's id that the last look was at; None and "" to look again."""

    state: State | None = None
    group: GroupState | None = None
    member: str = ""


class FoundGroup(NamedTuple):
    """A change that ``GroupMember.look`` has found, and what holds once it is adopted.

    ``member`` is the one that it is about; ``is_out``: the group no longer has it; ``is_fenced``: but another one with
    its instance id.
    """

    change: MemberChange
    told: Told
    seen: SeenGroup
    member: str
    is_out: bool = False
    is_fenced: bool = False

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the member owns then."""
        return frozenset(self.told.owned)


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
        """``instance_id`` makes a static member. ``incremental``: report only differences, whatever the assignor."""
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
        self._watch = MemberWatch(coordinator.store, self._clock, group)
        self._beating = threading.Lock()
        self._lease: Lease | None = None
        self._member_id = ""
        self._joined_as = ""
        self._left = ("", -1)
        self._topics: tuple[str, ...] = ()
        self._told = Told()
        self._seen = SeenGroup()
        self._fenced = False
        self._last_beat = self._clock.monotonic()
        self._revoking_since: dict[str, tuple[Partitions, float]] = {}
        with coordinator.members_lock:
            coordinator.members.add(self)

    # -- properties

    @property
    def _joined(self) -> bool:
        """Whether it has joined under its current id: the heartbeat thread may clear that while ``join`` returns."""
        return bool(self._joined_as) and self._joined_as == self._member_id

    @property
    def member_id(self) -> str:
        """Its id in the group; empty while it is in none."""
        return self._joined_as if self._joined else ""

    @property
    def generation(self) -> int:
        """The generation it last took part in, -1 while it is in no group."""
        return self._told.generation if self._joined and self._told.member == self._member_id else -1

    @property
    def identity(self) -> tuple[str, int]:
        """Its id and generation; while it is in no group those of its last membership, before the first "" and -1."""
        return (self._joined_as, self.generation) if self._joined else self._left

    @property
    def joined(self) -> bool:
        """Whether it is in the group, as far as it knows."""
        return self._joined

    @property
    def is_listed(self) -> bool:
        """Whether the group has this member, as far as this process has read."""
        return self._member_id in self._group_state(self.coordinator.state).members

    @property
    def assignor(self) -> str:
        """The group's assignor, as far as this process has read."""
        return self._group_state(self.coordinator.state).assignor

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions reported to its caller as owned."""
        return frozenset(self._told.owned)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Ids of the topics reported to its caller, by name."""
        return self._told.topic_ids

    @property
    def overdue(self) -> bool:
        """Whether its last heartbeat is a session timeout ago: it may be expired, so call ``beat`` before reading."""
        return self._clock.monotonic() - self._last_beat >= self._session_timeout_ms / 1000

    # -- joining and leaving

    def join(self, topics: Iterable[str]) -> None:
        """Join with this subscription, or change it; ``reconcile`` reports the result.

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
            self.coordinator.submit(partial(_join, request=request, was_joined=self._joined))
        except UnknownMemberIdError:
            self._seen = SeenGroup()
            return  # it was removed: reconcile reports that, then it may rejoin
        self._joined_as = request.member
        self._seen = SeenGroup()
        if former not in ("", self._member_id):
            _delete_lease(self.coordinator, self.group, former)
        self.beat()

    def _begin(self) -> None:
        """Take a new id, unless that of an earlier attempt with unknown outcome has to be retried."""
        if self._member_id:
            return
        name = self.instance_id or self._client_id or "consumer"
        self._member_id = f"{name}-{self.coordinator.log.ids.write_id()}"
        self._lease = Lease(self.coordinator.store, self._clock, self.group, self._member_id)

    def leave(self, reason: str = "left") -> None:
        """Leave the group, so that others need not wait for the session timeout. Idempotent.

        A static member stays in the group and keeps its partitions for its return, as in Kafka. The partitions it
        owned count as lost from here on.
        """
        self._left = self.identity
        member, self._member_id = self._member_id, ""
        self._seen = SeenGroup()
        if member and not self.instance_id:
            self._insist(partial(leave_group, group=self.group, members=[member], reason=reason))
            _delete_lease(self.coordinator, self.group, member)

    # -- liveness

    def beat(self, refresh: bool = True) -> None:
        """Send a heartbeat: renew the lease, read new commits, and remove members that sent no heartbeat within their
        session timeout or did not revoke partitions within their rebalance timeout. Raises StorageError.

        ``refresh=False`` saves two requests if something else keeps reading the log; a member that was late itself
        reads it nevertheless.
        """
        with self._beating:
            member, lease = self._member_id, self._lease
            if not self._joined or lease is None:
                return
            lease.renew()
            late = self._clock.monotonic() - self._last_beat >= self._session_timeout_ms / 2000
            state = self.coordinator.refresh() if refresh or late else self.coordinator.state
            group = self._group_state(state)
            if member not in group.members:
                return  # reconcile reports it to the caller
            if late:
                self._revoking_since = {}
            self._last_beat = self._clock.monotonic()
            timeouts = {name: member_state.session_timeout_ms for name, member_state in group.members.items()}
            expire(self.coordinator, self.group, self._watch.look(timeouts, member), group)
            stuck = self._find_stuck(group)
            why = "did not revoke its partitions within its rebalance timeout"
            expire(self.coordinator, self.group, stuck, group, why, expire_stuck_members)

    def _find_stuck(self, group: GroupState) -> list[str]:
        """Return the live other members that did not revoke their partitions within their rebalance timeout."""
        now, before = self._clock.monotonic(), self._revoking_since
        self._revoking_since = {
            name: before[name] if name in before and before[name][0] == other.revoking else (other.revoking, now)
            for name, other in group.members.items()
            if other.revoking and name != self._member_id
        }
        limits = {name: group.members[name].rebalance_timeout_ms / 1000 for name in self._revoking_since}
        return [name for name, (_, since) in self._revoking_since.items() if now - since >= limits[name] > 0]

    # -- partitions

    def reconcile(self) -> MemberChange:
        """Return the changes for the caller, as far as this process has read; ``beat`` and ``refresh`` read more.

        They count as reported from here on. If another process has taken over the instance id, all partitions are lost,
        and the next call and ``join`` raise FencedInstanceIdError.
        """
        found = self.look()
        self.adopt(found)
        return found.change

    def look(self) -> FoundGroup:
        """Return what ``reconcile`` would; it counts as reported after ``adopt``. Raises FencedInstanceIdError."""
        state, member, told = self.coordinator.state, self.member_id, self._told
        if state is self._seen.state and member == self._seen.member:
            return FoundGroup(MemberChange(told.generation), told, self._seen, member)
        group = self._group_state(state)
        me = group.members.get(member)
        if me is None:
            return self._find_out(group)
        change, after = MemberChange(group.generation), told._replace(generation=group.generation)
        if group is not self._seen.group or member != self._seen.member:
            change, after = _compare(told, state, group, me, member, self._incremental)
        # A change to acknowledge is reported again until it is.
        return FoundGroup(
            change, after, self._seen if change.to_acknowledge else SeenGroup(state, group, member), member
        )

    def adopt(self, found: FoundGroup) -> None:
        """Count a change as reported. To repeat that does no harm, as after an interrupt in its middle."""
        if found.is_out and found.member == self.member_id:
            self._fenced = self._fenced or found.is_fenced
            self._left = self.identity
            if not found.is_fenced:
                logger.warning("member %s was removed from group %s and has to rejoin", found.member, self.group)
            self._member_id = ""
        self._told, self._seen = found.told, found.seen

    def _find_out(self, group: GroupState) -> FoundGroup:
        """Return the change of a member that left or was removed: its partitions may belong to others already.

        While it is not joined, its id belongs to a join whose outcome is unknown, which is retried with it.
        """
        is_fenced = self._joined and bool(member_of_instance(group, self.instance_id))
        told = self._told._replace(owned={})
        found = FoundGroup(
            MemberChange(-1, lost=self.owned), told, SeenGroup(), self.member_id, self._joined, is_fenced
        )
        if not found.change.lost:
            if is_fenced:
                self.adopt(found)
            self._check_not_fenced()
        return found

    def acknowledge(
        self,
        offsets: Offsets | None = None,
        ids: Mapping[str, str] | None = None,
        timeline: int | None = None,
        replaces: Mapping[tuple[str, int], int | None] | None = None,
    ) -> None:
        """Release the revoked partitions that ``reconcile`` reported, once the caller has stopped reading them.

        ``offsets`` are committed first, in the same commit if they fit one; those of topics that were deleted or
        re-created since are left out (``ids`` and ``timeline`` as for ``prepare``), and those that do not replace what
        ``replaces`` says (``GroupCommit``). If a rebalance has overtaken this, they are committed alone, and
        ``reconcile`` reports again. Raises CommitFailedError if the member was removed, or the offsets are of another
        timeline.
        """
        found = self.prepare(offsets or {}, ids, timeline)
        last = msgspec.structs.replace(found, replaces=replaces or {}, leaves_out_deleted=True)
        others = self._others_in_this_process()
        *earlier, rest = _split(last)
        released = msgspec.structs.replace(rest, instance_id="")  # a fenced one was removed: reconcile reports it
        try:
            for part in earlier:
                self._commit_part(part)
            self._insist(partial(acknowledge_revocation, commit=released), others, [released.timeline])
        except UnlinkedHistoryError as error:
            raise self._commit_failed(last, _OTHER_TIMELINE) from error
        except IllegalGenerationError:
            self.submit(last)
        except UnknownMemberIdError as error:
            raise self._commit_failed(last, _REMOVED) from error
        finally:  # also after a storage error: reconcile reports it again, since others wait
            self._seen = SeenGroup()

    def _others_in_this_process(self) -> int:
        """Return how many other members with this coordinator have to revoke as well, and will acknowledge soon."""
        members = self._group_state(self.coordinator.state).members
        with self.coordinator.members_lock:
            ids = [member.member_id for member in self.coordinator.members if member.group == self.group]
        return sum(name != self.member_id and bool(members[name].revoking) for name in ids if name in members)

    # -- offsets

    def prepare(
        self, offsets: Offsets, ids: Mapping[str, str] | None = None, timeline: int | None = None
    ) -> GroupCommit:
        """Return a commit of offsets that were just found, for ``submit``: by this membership, of the topics as they
        are now.

        ``ids`` are those of the topics whose offsets they are, by name; by default of the topics as reported, or, for
        one that was never this member's, as read. ``timeline`` is the log's ``unlinked_jumps`` of when they were found,
        by default of now.
        """
        reported = {topic: self.topic_ids[topic] for topic, _ in offsets if topic in self.topic_ids}
        return GroupCommit(
            group=self.group,
            offsets=offsets,
            member=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
            topic_ids={**topic_ids(self.coordinator.state, offsets), **reported, **(ids or {})},
            timeline=self.coordinator.log.unlinked_jumps if timeline is None else timeline,
        )

    def commit(self, offsets: Offsets) -> None:
        """Commit offsets that were just found, as a member of the current generation. Raises as ``submit``."""
        self.submit(self.prepare(offsets))

    def submit(self, commit: GroupCommit) -> None:
        """Commit offsets as the member, and of the topics, that they were prepared for; at any later time.

        A later generation does no harm as long as that member still holds the partitions: it gives none up without an
        acknowledgement, which its caller sends after its commits. Raises CommitFailedError if it does not, the topic
        was re-created since or the log has left the timeline, FencedInstanceIdError, UnknownTopicOrPartitionError,
        InvalidRequestError; after IndeterminateCommitError it may be called again.
        """
        for part in _split(commit) if commit.offsets else ():
            self._commit_part(part)

    def _commit_part(self, commit: GroupCommit) -> None:
        if not commit.member or commit.generation < 0:  # no partition was reported: an earlier membership's offsets
            raise self._commit_failed(commit, "it is not in the group")
        for _ in range(_COMMIT_TRIES):
            try:
                self._insist(partial(commit_group_offsets, commit=commit), timelines=[commit.timeline])
                return
            except UnlinkedHistoryError as error:
                raise self._commit_failed(commit, _OTHER_TIMELINE) from error
            except UnknownMemberIdError as error:
                raise self._commit_failed(commit, _REMOVED) from error
            except IllegalGenerationError as error:
                generation = self._generation_holding(commit, error)
                commit = msgspec.structs.replace(commit, generation=generation)
        raise self._commit_failed(commit, f"{_COMMIT_TRIES} rebalances in a row overtook it")

    def _generation_holding(self, commit: GroupCommit, error: SparklogError) -> int:
        """Return the newest generation if the member holds all of these partitions in it."""
        group = self._group_state(self.coordinator.refresh())
        me = group.members.get(commit.member)
        if me is None:
            raise self._commit_failed(commit, _REMOVED) from error
        for topic, partition in without_deleted_topics(self.coordinator.state, commit).offsets:
            if partition not in me.assigned.get(topic, ()) and partition not in me.revoking.get(topic, ()):
                raise self._commit_failed(commit, f"{topic}-{partition} was given to another member") from error
        return group.generation

    def _commit_failed(self, commit: GroupCommit, why: str) -> CommitFailedError:
        partitions = ", ".join(str(TopicPartition(*partition)) for partition in sorted(commit.offsets)[:5])
        member = commit.member or self._member_id
        return CommitFailedError(
            f"member {member!r} of group {self.group!r} cannot commit the offsets of {partitions}: {why}; "
            "their new owners read again from the last committed offsets. Poll to take part in the rebalance; poll "
            "more often, take fewer records at a time (max_poll_records), or raise max_poll_interval_ms or "
            "session_timeout_ms if it happens often",
            group=self.group,
            member=member,
        )

    # -- shared

    def _group_state(self, state: State) -> GroupState:
        return state.groups.get(self.group, GroupState())

    def _check_not_fenced(self) -> None:
        if self._fenced:
            raise FencedInstanceIdError(
                f"another process has joined group {self.group!r} with group.instance.id {self.instance_id!r}; stop "
                "this one, and give each process its own id",
                group=self.group,
            )

    def _insist(
        self, decide: Callable[[State], Decision[object]], others: int = 0, timelines: Sequence[int | None] = ()
    ) -> None:
        """Submit a change, and retry it while its outcome is unknown: all changes of a member are idempotent."""
        retry(
            lambda: self.coordinator.submit(decide, others, timelines),
            self._clock,
            [0.0] * (_COMMIT_TRIES - 1),
            is_a(IndeterminateCommitError),
            note=lambda error: self.coordinator.refresh(),
        )


def _compare(
    told: Told, state: State, group: GroupState, me: MemberState, member: str, incremental: bool
) -> tuple[MemberChange, Told]:
    """Return what has changed for a member since its caller was told, and what that knows then."""
    former = _NOTHING
    if told.member != member:  # all of another membership is lost
        former, told = frozenset(told.owned), Told(topic_ids=told.topic_ids)
    topics = {*me.assigned, *me.revoking, *(partition.topic for partition in told.owned)}
    ids = {topic: state.topics[topic].topic_id for topic in topics if topic in state.topics}
    assigned, revoking = set(list_partitions(me.assigned)), set(list_partitions(me.revoking))
    lost = {partition for partition, topic_id in told.owned.items() if ids.get(partition.topic) != topic_id}
    lost |= {partition for partition in told.owned if partition not in assigned and partition not in revoking}
    kept = told.owned.keys() - lost
    settled = not revoking and me.assigned == group.target.get(member, {})
    if incremental or group.assignor == COOPERATIVE:
        revoked = kept - assigned
        added = assigned - kept
    else:
        revoked = kept if group.generation != told.generation else set()
        added = assigned - (kept - revoked) if settled else set()
    completed = settled and told.completed != group.generation
    owned = {partition: ids[partition.topic] for partition in (kept - revoked) | added}
    after = Told(
        member=member,
        owned=owned,
        generation=group.generation,
        completed=group.generation if completed else told.completed,
        topic_ids={**told.topic_ids, **{partition.topic: topic_id for partition, topic_id in owned.items()}},
    )
    lost |= former
    change = MemberChange(
        group.generation, frozenset(revoked), frozenset(lost), frozenset(added), completed, bool(revoking)
    )
    return change, after


def _split(commit: GroupCommit) -> list[GroupCommit]:
    return [msgspec.structs.replace(commit, offsets=part) for part in split_offsets(commit.offsets)]


def _join(state: State, request: JoinRequest, was_joined: bool) -> Decision[Joined]:
    """Decide a join; a member that thinks it is in the group (``was_joined``) must not rejoin unnoticed, since
    others may have owned its partitions in the meantime."""
    if was_joined and request.member not in state.groups.get(request.group, GroupState()).members:
        raise UnknownMemberIdError(f"member {request.member!r} is no longer in group {request.group!r}; join again")
    return join_group(state, request)


def expire(
    coordinator: Coordinator,
    group: str,
    members: Sequence[str],
    seen: GroupState,
    why: str = "sent no heartbeat within its session timeout",
    decide: Callable[[State, str, Sequence[str], GroupState], Decision[list[str]]] = expire_silent_members,
) -> list[str]:
    """Remove these members unless they have acted, or a generation has begun, since the group was ``seen``; return the
    removed ones."""
    if not members:
        return []
    removed = coordinator.submit(lambda state: decide(state, group, members, seen))
    for member in removed:
        logger.warning("member %s of group %s %s and was removed", printable(member), printable(group), why)
        _delete_lease(coordinator, group, member)
    return removed


def _delete_lease(coordinator: Coordinator, group: str, member: str) -> None:
    """Delete the lease of a member that is no longer in the group, best effort: log and ignore errors."""
    try:
        coordinator.store.delete(lease_key(group, member))
    except SparklogError as error:
        logger.warning("could not delete the lease of %s in group %s: %s", printable(member), printable(group), error)
