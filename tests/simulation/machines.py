"""The computers that simulated processes run on: some have the right time, others are off by days, and a clock may be
set at any storage call.

All differences are ones that a cluster has to correct: the skew it tolerates (``limits.MAX_CLOCK_SKEW_MS``) is far less
than an hour, and the simulation looks for the effects of days on expiry and deletion.
"""

from __future__ import annotations

import random

from tests.simulation.scheduler import Machine, Simulation

HOUR_MS = 3_600_000
MOST_HOURS_OFF = 240
"""hours: more than a week, after which offsets and transactional ids expire by Kafka's defaults."""

DRIFT = 1e-4
JUMP_RATE = 0.0005
"""The rate of storage calls before which the wall clock is set."""


def hours_off(chance: random.Random) -> int:
    """Return the error of a wrong clock in ms: an hour to ten days, either way."""
    return chance.choice([-1, 1]) * chance.randint(HOUR_MS, MOST_HOURS_OFF * HOUR_MS)


def some_machines(simulation: Simulation, count: int) -> list[Machine]:
    """Create machines, about half of them with the right time."""
    chance = simulation.random
    return [
        simulation.machine(hours_off(chance) if chance.random() < 0.5 else 0, chance.uniform(-DRIFT, DRIFT))
        for _ in range(count)
    ]


def set_clock_now_and_then(simulation: Simulation) -> bool:
    """Before a storage call, rarely set the clock of the machine it comes from; return whether that was done."""
    clock = simulation.clock
    if not isinstance(clock, Machine) or simulation.random.random() >= JUMP_RATE:
        return False
    clock.jump(hours_off(simulation.random))
    return True
