"""A complete simulated run of maintenance jobs, writers and readers that race with each other."""

from __future__ import annotations

from contextlib import nullcontext, suppress

from sparklog.errors import SparklogError
from tests.simulation.maintained import NOTHING_FAILS, STOP_RATE, Holder, Seeker, Tail, World, Writer, all_partitions
from tests.simulation.maintainers import JOBS, PUBLISHERS, Maintainer, collect_all_garbage
from tests.simulation.truth import LISTED


def build(seed: int, stop_rate: float) -> World:
    world = World(seed, stop_rate=stop_rate)
    for number in range(3):
        world.spawn(f"writer-{number}", Writer(world, number, 12).work)
    world.spawn("tail-1", Tail(world, "tail-1", 8).work)
    world.spawn("tail-2", Tail(world, "tail-2", 8, NOTHING_FAILS).work)
    world.spawn("holder", Holder(world, "holder", 5, NOTHING_FAILS).work)
    world.spawn("seeker", Seeker(world, "seeker", 4, NOTHING_FAILS).work)
    for name, job, pause in [*JOBS, *(PUBLISHERS if world.has_tables else [])]:
        world.spawn(name, Maintainer(world, name, job, pause).work, ends=False)
    return world


def check_lists(world: World) -> None:
    """Check the segment lists of a process that opens the cluster after the run."""
    try:
        coordinator = world.later(0)
        for partition in all_partitions(coordinator.state):
            world.truth.check_listed(partition, coordinator.segments(partition.topic).partition(partition.partition))
    except SparklogError as error:
        world.truth.find(LISTED, repr(error))


def simulate(seed: int, strict: bool = True, stop_rate: float = STOP_RATE) -> World:
    """Run and check the simulation; problems are in ``world.truth.findings``. ``strict``: no actor may fail.

    ``stop_rate`` is the probability that a process is stopped at a call.
    """
    world = build(seed, stop_rate)
    try:
        world.run(strict)
        check_lists(world)
        with nullcontext() if strict else suppress(SparklogError):
            collect_all_garbage(world)
        world.truth.check_end()
        world.truth.check_leaked()
    finally:
        world.close()
    return world
