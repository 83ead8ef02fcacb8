"""The whole simulated run of maintenance against writers, readers and itself."""

from __future__ import annotations

from contextlib import nullcontext, suppress

from sparklog.errors import SparklogError
from tests.simulation.maintained import NOTHING_FAILS, STOP_RATE, Holder, Seeker, Tail, World, Writer, places
from tests.simulation.maintainers import JOBS, Maintainer, last_of_all
from tests.simulation.truth import LISTED


def build(seed: int, stop_rate: float) -> World:
    world = World(seed, stop_rate=stop_rate)
    for number in range(3):
        world.spawn(f"writer-{number}", Writer(world, number, 12).work)
    world.spawn("tail-1", Tail(world, "tail-1", 8).work)
    world.spawn("tail-2", Tail(world, "tail-2", 8, NOTHING_FAILS).work)
    world.spawn("holder", Holder(world, "holder", 5, NOTHING_FAILS).work)
    world.spawn("seeker", Seeker(world, "seeker", 4, NOTHING_FAILS).work)
    for name, job, pause in JOBS:
        world.spawn(name, Maintainer(world, name, job, pause).work, ends=False)
    return world


def check_lists(world: World) -> None:
    """What a process lists that opens the cluster after the run."""
    try:
        coordinator = world.later(0)
        for place in places(coordinator.state):
            world.truth.check_listed(place, coordinator.segments(place.topic).partition(place.partition))
    except SparklogError as error:
        world.truth.find(LISTED, repr(error))


def simulate(seed: int, strict: bool = True, stop_rate: float = STOP_RATE) -> World:
    """A run and all checks after it; ``world.truth.findings`` says what was wrong. ``strict``: no actor may fail.

    ``stop_rate`` is how likely a process is stopped at a call.
    """
    world = build(seed, stop_rate)
    try:
        world.run(strict)
        check_lists(world)
        with nullcontext() if strict else suppress(SparklogError):
            last_of_all(world)
        world.truth.check_end()
        world.truth.check_leaked()
    finally:
        world.close()
    return world
