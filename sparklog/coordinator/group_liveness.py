"""Finds dead members of consumer groups from outside the groups.

Members watch each other (``group_member``), but after the last one dies no member is left to do so. The storage tells
when a lease was written, so its age is the difference of two times of the storage's clock: a member whose lease is
older than its session timeout is dead. No machine's clock is involved, and no waiting.

    expire_dead_members(coordinator, ["billing"])         # before a change that requires a group without members
    DeadMembers(coordinator).expire()                     # of all groups, as maintenance does

Rules: removing members is a commit that is valid only in the generation it was decided in, and only for members that
have committed nothing since. A member whose state is unknown, since it has no lease yet or the storage does not report
times, counts as alive; ``DeadMembers`` watches it by its own elapsed time, as members do.
Not for: how members watch each other (``group_member``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from msgspec.structs import replace

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.group_member import expire
from sparklog.coordinator.leases import LEASES, MemberWatch, group_prefix, lease_key
from sparklog.errors import NonEmptyGroupError, StorageError, UnknownMemberIdError
from sparklog.log.parallel import map_parallel
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import GroupState, State

Result = TypeVar("Result")

LEASE_SLACK_MS = 1000
"""ms that a lease may be older than the session timeout if the storage stamps whole seconds."""


OLD_LEASE_MS = 3_600_000
"""ms after which a lease without a member is deleted: a lease may be written before the join is committed."""


def dead_members(coordinator: Coordinator, groups: Mapping[str, GroupState]) -> dict[str, list[str]]:
    """Return the dead members of these groups by group, without groups that have none. Raises StorageError."""
    return _Leases(coordinator, groups).dead()


def abandoned_emptied(coordinator: Coordinator, groups: Mapping[str, GroupState]) -> dict[str, GroupState]:
    """Return these groups as tools show them: a group whose members are all dead has no members.

    If one member is alive, it will remove the others. If the storage does not answer, the groups are unchanged.
    """
    try:
        dead = dead_members(coordinator, groups)
    except StorageError:
        return dict(groups)
    return {
        name: replace(group, members={}, assignor="", target={})
        if group.members and len(dead.get(name, ())) == len(group.members)
        else group
        for name, group in groups.items()
    }


def expire_dead_members(coordinator: Coordinator, names: Collection[str]) -> list[str]:
    """Remove the dead members of these groups; return the removed ones. Raises as ``submit``."""
    state = coordinator.refresh()
    groups = {name: state.groups[name] for name in names if name in state.groups}
    return _expire(coordinator, dead_members(coordinator, groups), groups)


def _expire(coordinator: Coordinator, dead: Mapping[str, list[str]], groups: Mapping[str, GroupState]) -> list[str]:
    removed: list[str] = []
    for name, members in dead.items():
        leases = _Leases(coordinator, {name: groups[name]})  # a member may be back since this process looked
        silent = [member for member in members if not leases.is_alive(name, member)]
        removed += expire(coordinator, name, silent, groups[name])
    return removed


def submit_without_dead_members(
    coordinator: Coordinator, group: str, decide: Callable[[State], Decision[Result]]
) -> Result:
    """Submit a change that requires a group without members; if that fails, remove dead members and retry."""
    try:
        return coordinator.submit(decide)
    except (NonEmptyGroupError, UnknownMemberIdError):
        if not expire_dead_members(coordinator, [group]):
            raise
    return coordinator.submit(decide)


class _Leases:
    """The leases of some groups, listed at one moment."""

    def __init__(self, coordinator: Coordinator, groups: Mapping[str, GroupState]) -> None:
        self._groups = {name: group for name, group in groups.items() if group.members}
        self._now_ms = coordinator.log.storage_clock.storage_now_ms() if self._groups else None
        self._written: dict[str, int] = {}
        if self._now_ms is not None:
            prefix = group_prefix(next(iter(self._groups))) if len(self._groups) == 1 else LEASES
            self._written = {info.key: info.modified_ms for info in coordinator.store.list(prefix)}
        whole_seconds = all(stamp % 1000 == 0 for stamp in self._written.values())
        self._slack_ms = LEASE_SLACK_MS if whole_seconds else 0

    def dead(self) -> dict[str, list[str]]:
        dead = {
            name: [member for member in group.members if self._is_dead(name, member)]
            for name, group in self._groups.items()
        }
        return {name: members for name, members in dead.items() if members}

    def unknown(self) -> dict[str, dict[str, int]]:
        """Return the members whose state is unknown, with their session timeouts in ms, by group."""
        timeouts = {
            name: {
                member: state.session_timeout_ms
                for member, state in group.members.items()
                if self._age_ms(name, member) is None
            }
            for name, group in self._groups.items()
        }
        return {name: members for name, members in timeouts.items() if members}

    def is_alive(self, group: str, member: str) -> bool:
        """Return whether a member is known to be alive."""
        return self._age_ms(group, member) is not None and not self._is_dead(group, member)

    def _is_dead(self, group: str, member: str) -> bool:
        age_ms = self._age_ms(group, member)
        return age_ms is not None and age_ms > self._groups[group].members[member].session_timeout_ms + self._slack_ms

    def _age_ms(self, group: str, member: str) -> int | None:
        written_ms = self._written.get(lease_key(group, member), 0)
        return self._now_ms - written_ms if self._now_ms is not None and written_ms > 0 else None


def remove_old_leases(coordinator: Coordinator) -> int:
    """Delete orphaned leases of killed members; return how many. Raises StorageError.

    A lease is deleted if it was not written for ``OLD_LEASE_MS`` by the storage's clock, and its member is in no group
    in a state that was read after the listing. A live member would write its lease again at its next heartbeat anyhow.
    If the storage does not report times, none is deleted.
    """
    now_ms = coordinator.log.storage_clock.storage_now_ms()
    if now_ms is None:
        return 0
    old = [info.key for info in coordinator.store.list(LEASES) if 0 < info.modified_ms < now_ms - OLD_LEASE_MS]
    if not old:
        return 0
    member_keys = {
        lease_key(name, member) for name, group in coordinator.refresh().groups.items() for member in group.members
    }
    orphans = [key for key in old if key not in member_keys and key.count("/") == LEASES.count("/") + 1]
    map_parallel(coordinator.store.delete, orphans, coordinator.store.parallel_requests)
    return len(orphans)


class DeadMembers:
    """Removes the dead members of all groups, at every call. Not thread-safe.

    ``unknown_ms`` is the longest session timeout of members whose state was unknown at the last call, 0 if there were
    none: calls repeated for that long determine it.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._watches: dict[str, MemberWatch] = {}
        self.unknown_ms = 0

    def expire(self) -> list[str]:
        """Remove dead members; return them. Raises StorageError, CommitConflictError, IndeterminateCommitError."""
        groups = self._coordinator.refresh().groups
        leases = _Leases(self._coordinator, groups)
        dead, unknown = leases.dead(), leases.unknown()
        self._watches = {name: self._watches.get(name) or self._watch(name) for name in unknown}
        for name, members in unknown.items():
            dead[name] = [*dead.get(name, ()), *self._watches[name].look(members)]
        removed = _expire(self._coordinator, dead, groups)
        undecided = {member: timeout for members in unknown.values() for member, timeout in members.items()}
        self.unknown_ms = max((timeout for member, timeout in undecided.items() if member not in removed), default=0)
        return removed

    def _watch(self, group: str) -> MemberWatch:
        return MemberWatch(self._coordinator.store, self._coordinator.log.clock, group)
