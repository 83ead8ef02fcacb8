"""Digests of the traces of one seed in each simulation; ``python -m tests.simulation.digests`` prints them as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import pytest

from tests.simulation import racing, restored, suspended
from tests.simulation.group_members import GroupMemberLife
from tests.simulation.members import Life
from tests.simulation.scheduler import Simulation, run_without_threads
from tests.simulation.slow_readers import SlowReaders
from tests.simulation.test_groups_and_transactions import build
from tests.simulation.test_racing_writers import simulate as race_writers


def digest_traces() -> dict[str, str]:
    """Run each simulation once, and return the digest of what its actors did, in order."""
    roots, readers = restored.build(7), SlowReaders(7)
    roots.findings()
    readers.run()
    runs = {
        "maintenance": racing.simulate(42).simulation,
        "writers": race_writers(42)[0],
        "restored roots": roots.simulation,
        "slow readers": readers.simulation,
        "suspended machines": suspended.simulate(7).simulation,
    }
    digests = {name: _digest(simulation) for name, simulation in runs.items()}
    for life in (Life, GroupMemberLife):
        world = build(7, life)
        digests[life.__name__] = _digest(world.simulation, map(str, world.run().operations))
    return digests


def _digest(simulation: Simulation, operations: Iterable[str] = ()) -> str:
    return hashlib.sha256("\n".join((*simulation.trace, *operations)).encode()).hexdigest()


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        run_without_threads(patch)
        print(json.dumps(digest_traces()))
