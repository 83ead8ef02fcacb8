"""Leases: how the members of a group show that they live, and how others find out who does not.

A lease is one small object per member that only its owner writes, again and again::

    leases/groups/<group>/<member>      {"member":"c-1","beat":17,"time_ms":1790000000000}

Others compare what they read with what they read before. One that has stayed the same for the member's session timeout,
by the reader's own monotonic clock, belongs to a member that is gone: clocks of different machines are never compared.

Rules: a lease decides nothing. What follows from a silent one is a commit, which the log arbitrates; a lease that is
lost, damaged or left behind costs a member its place at worst, and never a record. No threads, no waiting.

Not for: who is in a group and owns what (``protocol.groups``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from sparklog.clock import Clock
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.store.base import Store

LEASES = "leases/groups/"

MAX_LEASE_BYTES = 4096
"""bytes. A lease names its member, whose id has at most 1024 characters."""

_LONGEST_NAME = 180
"""bytes of a quoted name as part of a key; storages admit 255, and a hash of 43 characters is added to longer ones."""


class LeaseFile(msgspec.Struct, frozen=True):
    """What is stored: ``beat`` counts up; ``member`` and ``time_ms`` (by the owner's clock) are for people."""

    member: str
    beat: int
    time_ms: int


def group_prefix(group: str) -> str:
    """The folder of a group's leases, with a trailing slash."""
    return f"{LEASES}{_part(group)}/"


def lease_key(group: str, member: str) -> str:
    """Where a member's lease is."""
    return group_prefix(group) + _part(member)


def _part(name: str) -> str:
    """A name as one part of a key: percent-encoded, and cut short with a hash where that makes it too long."""
    quoted = quote(name, safe="")
    if len(quoted) > _LONGEST_NAME:
        quoted = f"{quoted[: _LONGEST_NAME - 66]}-{hashlib.sha256(name.encode()).hexdigest()}"
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


class Lease:
    """A member's own lease. Not thread-safe: one thread renews it."""

    def __init__(self, store: Store, clock: Clock, group: str, member: str) -> None:
        self._store = store
        self._clock = clock
        self._member = member
        self._beat = 0
        self.key = lease_key(group, member)

    def renew(self) -> None:
        """Show that the member lives. Raises StorageError."""
        self._beat += 1
        self._store.put(self.key, msgspec.json.encode(LeaseFile(self._member, self._beat, self._clock.now_ms())))


class _Seen(NamedTuple):
    """What a lease held when it was last read, and since when it has held that."""

    content: bytes
    since: float


class LeaseWatch:
    """What this process has seen of the leases of one group's other members. Not thread-safe.

    Each ``look`` reads the lease of the member that follows in the ring of member ids, and goes on to the next ones for
    as long as what it finds looks silent. So a healthy group costs one read per member and look, every member is
    watched by somebody, and of any number that die together all are found in the same session timeout.
    """

    def __init__(self, store: Store, clock: Clock, group: str) -> None:
        self._store = store
        self._clock = clock
        self._group = group
        self._seen: dict[str, _Seen] = {}
        self._looked = clock.monotonic()
        self._stalled = False

    def look(self, members: Mapping[str, int], me: str = "") -> list[str]:
        """The members that were silent for their session timeout. ``members`` has those in milliseconds, by member id.

        ``me`` is the member that looks; without one every lease is read. Raises StorageError.
        """
        self._seen = {name: seen for name, seen in self._seen.items() if name in members}
        self._forget_after_a_stall(min(members.values(), default=0) / 1000)
        gone: list[str] = []
        for place, name in enumerate(_ring(members, me)):
            known = name in self._seen
            silent_seconds = self._silence(name)
            if silent_seconds >= members[name] / 1000 and known:
                gone.append(name)
            elif me and silent_seconds <= 0 and (known or place == 0):
                break  # it lives; who follows is its business
        return gone

    def _forget_after_a_stall(self, shortest_timeout_seconds: float) -> None:
        """Who has not looked for long cannot tell how long others were silent: it may have been stopped with them.

        Twice in a row it is no stall: it looks more rarely than a member with a short timeout has to be looked after.
        """
        now = self._clock.monotonic()
        self._stalled = not self._stalled and now - self._looked >= shortest_timeout_seconds
        if self._stalled:
            self._seen.clear()
        self._looked = now

    def _silence(self, member: str) -> float:
        """Seconds since a lease was first seen as it is; 0 where it has changed or was never read."""
        content, now = self._read(member), self._clock.monotonic()
        seen = self._seen.get(member)
        if seen is None or seen.content != content:
            self._seen[member] = _Seen(content, now)
            return 0.0
        return max(now - seen.since, 1e-9)

    def _read(self, member: str) -> bytes:
        """The lease as it is stored; an absent one is empty, and one too large is damage, which is silent as well."""
        try:
            return self._store.get(lease_key(self._group, member), MAX_LEASE_BYTES)
        except ObjectNotFoundError:
            return b""
        except CorruptMetadataError:
            return b"damaged"


def _ring(members: Iterable[str], me: str) -> Sequence[str]:
    """The other members, beginning with the one after ``me``."""
    order = sorted(members)
    return [name for name in order if name > me] + [name for name in order if name < me]
