"""Which members of consumer groups are dead, as seen from outside of the groups.

Members watch each other (``membership``); of a group whose last member died nobody is left to do so. A lease has been
written when the storage says so, so its age is the difference of two times of the storage's clock: a member whose lease
is older than its session timeout is dead. No clock of any machine takes part, and nobody has to wait.

    expire_dead_members(coordinator, ["billing"])         # before a change that wants a group without members
    DeadMembers(coordinator).expire()                     # of all groups, as maintenance does

Rules: what follows is a commit that holds only in the generation it was decided in. A member that cannot be judged,
since it has no lease yet or the storage does not tell times, counts as alive; ``DeadMembers`` watches it, by its own
elapsed time, as members do.
Not for: what members do about each other (``membership``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from msgspec.structs import replace

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.leases import LEASES, LeaseWatch, group_prefix, lease_key
from sparklog.coordinator.membership import expire
from sparklog.errors import NonEmptyGroupError, StorageError, UnknownMemberIdError
from sparklog.log.parallel import each
from sparklog.protocol.state import GroupState

Result = TypeVar("Result")

LEASE_SLACK_MS = 1000
"""ms that a lease may be older than the session timeout where the storage stamps whole seconds."""


OLD_LEASE_MS = 3_600_000
"""ms after which a lease is removed whose member is in no group: it is written before the join is committed."""


def dead_members(coordinator: Coordinator, groups: Mapping[str, GroupState]) -> dict[str, list[str]]:
    """The dead members of these groups, by group; groups that have none are left out. Raises StorageError."""
    return _Leases(coordinator, groups).dead()


def abandoned_emptied(coordinator: Coordinator, groups: Mapping[str, GroupState]) -> dict[str, GroupState]:
    """These groups as they are to be shown: those whose members are all dead are without members.

    Where one is alive it is about to take out the others. A storage that cannot be asked says nothing about members.
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
    """Take the dead members out of these groups; returns who was taken out. Errors as ``Coordinator.leave_group``."""
    state = coordinator.refresh()
    groups = {name: state.groups[name] for name in names if name in state.groups}
    return [
        member
        for name, members in dead_members(coordinator, groups).items()
        for member in expire(coordinator, name, members, groups[name].generation)
    ]


def without_dead_members(coordinator: Coordinator, group: str, change: Callable[[], Result]) -> Result:
    """Make a change that wants a group without members; where it has some, dead ones are taken out first."""
    try:
        return change()
    except (NonEmptyGroupError, UnknownMemberIdError):
        if not expire_dead_members(coordinator, [group]):
            raise
    return change()


class _Leases:
    """The leases of some groups as the storage lists them at one moment."""

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
        found = {
            name: [member for member in group.members if self._is_dead(name, member)]
            for name, group in self._groups.items()
        }
        return {name: members for name, members in found.items() if members}

    def unknown(self) -> dict[str, dict[str, int]]:
        """The members that cannot be judged, with their session timeouts in ms, by group."""
        found = {
            name: {
                member: known.session_timeout_ms
                for member, known in group.members.items()
                if self._age_ms(name, member) is None
            }
            for name, group in self._groups.items()
        }
        return {name: members for name, members in found.items() if members}

    def _is_dead(self, group: str, member: str) -> bool:
        age_ms = self._age_ms(group, member)
        return age_ms is not None and age_ms > self._groups[group].members[member].session_timeout_ms + self._slack_ms

    def _age_ms(self, group: str, member: str) -> int | None:
        written_ms = self._written.get(lease_key(group, member), 0)
        return self._now_ms - written_ms if self._now_ms is not None and written_ms > 0 else None


def remove_old_leases(coordinator: Coordinator) -> int:
    """Remove leases that killed members left behind; returns how many there were. Raises StorageError.

    A lease goes that nobody has written for ``OLD_LEASE_MS`` by the storage's clock, and whose member is in no group by
    a state that was read after that. A member that lives writes its own again at its next heartbeat, in any case. On a
    storage that does not tell times none goes.
    """
    now_ms = coordinator.log.storage_clock.storage_now_ms()
    if now_ms is None:
        return 0
    old = [info.key for info in coordinator.store.list(LEASES) if 0 < info.modified_ms < now_ms - OLD_LEASE_MS]
    if not old:
        return 0
    held = {lease_key(name, member) for name, group in coordinator.refresh().groups.items() for member in group.members}
    gone = [key for key in old if key not in held and key.count("/") == LEASES.count("/") + 1]
    each(coordinator.store.delete, gone)
    return len(gone)


class DeadMembers:
    """Takes the dead members out of all groups, again and again. Not thread-safe.

    ``unknown_ms`` is the longest session timeout of the members that could not be judged the last time, 0 for none:
    whoever calls again until then gets to know of them.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._watches: dict[str, LeaseWatch] = {}
        self.unknown_ms = 0

    def expire(self) -> list[str]:
        """Returns who was taken out. Raises StorageError, CommitConflictError and IndeterminateCommitError."""
        groups = self._coordinator.refresh().groups
        leases = _Leases(self._coordinator, groups)
        dead, unknown = leases.dead(), leases.unknown()
        self._watches = {name: self._watches.get(name) or self._watch(name) for name in unknown}
        for name, members in unknown.items():
            dead[name] = [*dead.get(name, ()), *self._watches[name].look(members)]
        gone = [
            member
            for name, members in dead.items()
            for member in expire(self._coordinator, name, members, groups[name].generation)
        ]
        left = {member: timeout for members in unknown.values() for member, timeout in members.items()}
        self.unknown_ms = max((timeout for member, timeout in left.items() if member not in gone), default=0)
        return gone

    def _watch(self, group: str) -> LeaseWatch:
        return LeaseWatch(self._coordinator.store, self._coordinator.log.clock, group)
