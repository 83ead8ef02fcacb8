"""Leases: the heartbeats of group members and of the controller, and the detection of owners that stopped sending them.

A lease is one small object that only its owner overwrites, at every heartbeat; that of a member::

    leases/groups/<group>/<member>      {"member":"c-1","beat":17,"time_ms":1790000000000}

Others compare its content with what they read before. A lease unchanged for the member's session timeout, by the
reader's own monotonic clock, belongs to a dead member: clocks of different machines are never compared.

Rules: a lease decides nothing. Removing a silent member is a commit, which the log arbitrates; a lease that is lost,
damaged or left behind costs a member its membership at worst, and never a record. No threads, no waiting.

Not for: membership and assignment (``protocol.group.rebalance``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
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
"""bytes of a quoted name as part of a key; storages allow 255. Longer names are cut and get a SHA-256 in hex."""


class LeaseFile(msgspec.Struct, frozen=True):
    """The stored lease: ``beat`` counts up; ``member`` and ``time_ms`` (by the owner's clock) are for people."""

    member: str
    beat: int
    time_ms: int


def group_prefix(group: str) -> str:
    """Return the folder of a group's leases, with a trailing slash."""
    return f"{LEASES}{_key_part(group)}/"


def lease_key(group: str, member: str) -> str:
    """Return the key of a member's lease."""
    return group_prefix(group) + _key_part(member)


def _key_part(name: str) -> str:
    """Return a name as one part of a key: percent-encoded, and if that is too long cut, with a hash appended."""
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
        """Send a heartbeat. Raises StorageError."""
        self._beat += 1
        self._store.put(self.key, msgspec.json.encode(LeaseFile(self._member, self._beat, self._clock.now_ms())))


class _Seen(NamedTuple):
    """The content of a lease at the last read, and since when it is unchanged."""

    content: bytes | None
    since: float


class LeaseWatch:
    """Measures for how long leases have not changed, by this process's own monotonic clock. Not thread-safe."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._looked = clock.monotonic()
        self._stalled = False

    def start_look(self, shortest_timeout_seconds: float) -> None:
        """Begin another look at the leases, and discard what was seen after a long pause between looks: this process
        may have been stopped together with the owners.

        If it happens twice in a row, the caller simply looks less often than the shortest timeout; that is not a stall.
        """
        now = self._clock.monotonic()
        self._stalled = not self._stalled and now - self._looked >= shortest_timeout_seconds
        if self._stalled:
            self._seen.clear()
        self._looked = now

    def unchanged_seconds(self, key: str) -> float | None:
        """Read a lease; return for how long it certainly has its present content, None if that is new. Raises
        StorageError.

        Neither this read nor the one that saw the content first counts: the process may have been stopped during it.
        """
        start, seen = self._clock.monotonic(), self._seen.get(key)
        content = self._read(key)
        if seen is None or seen.content != content:
            self._seen[key] = _Seen(content, self._clock.monotonic())
            return None
        return start - seen.since

    def has_seen(self, key: str) -> bool:
        """Return whether a lease, or that there is none, was seen before."""
        return key in self._seen

    def is_absent(self, key: str) -> bool:
        """Return whether there was no lease at the last look."""
        return key in self._seen and self._seen[key].content is None

    def forget_others(self, keys: Collection[str]) -> None:
        """Forget all leases but these."""
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}

    def _read(self, key: str) -> bytes | None:
        """Return a lease's content: None if absent, constant (hence silent) if it is too large and so damaged."""
        try:
            return self._store.get(key, MAX_LEASE_BYTES)
        except ObjectNotFoundError:
            return None
        except CorruptMetadataError:
            return b"damaged"


class MemberWatch:
    """Watches the leases of the other members of one group. Not thread-safe.

    Each ``look`` reads the lease of the next member in the ring of member ids, and continues to the following ones
    while the leases it reads look silent. So a healthy group costs one read per member and look, every member is
    watched by another one, and any number of members that die together are all detected within one session timeout.
    """

    def __init__(self, store: Store, clock: Clock, group: str) -> None:
        self._leases = LeaseWatch(store, clock)
        self._group = group

    def look(self, members: Mapping[str, int], me: str = "") -> list[str]:
        """Return the members that sent no heartbeat within their session timeout.

        ``members`` are the session timeouts in ms by member id. ``me`` is the member that looks; without it every lease
        is read. Raises StorageError.
        """
        keys = {name: lease_key(self._group, name) for name in members}
        self._leases.forget_others(set(keys.values()))
        self._leases.start_look(min(members.values(), default=0) / 1000)
        silent: list[str] = []
        for index, name in enumerate(_ring(members, me)):
            was_seen = self._leases.has_seen(keys[name])
            unchanged = self._leases.unchanged_seconds(keys[name])
            if unchanged is not None and unchanged >= members[name] / 1000:
                silent.append(name)
            elif me and unchanged is None and (was_seen or index == 0):
                break  # it lives, and watches those after it
        return silent


def _ring(members: Iterable[str], me: str) -> Sequence[str]:
    """Return the other members, starting with the one after ``me``."""
    order = sorted(members)
    return [name for name in order if name > me] + [name for name in order if name < me]
