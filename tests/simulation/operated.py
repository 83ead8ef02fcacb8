"""A complete simulated run of a cluster on several locations, with operators."""

from __future__ import annotations

from sparklog.errors import SparklogError
from sparklog.testing.faulty_store import REPEATED
from tests.simulation.location_actors import (
    ControllerProcess,
    Job,
    Mirror,
    Producer,
    Service,
    bring_up,
    clean_up_all,
    correct_boundary,
    put_back_commits,
    replicate_all,
    roll_and_sweep,
    take_out_commit_of_killed,
    vacuum_all,
)
from tests.simulation.location_operators import EXCLUSIVE, LOCATION_THEMES, ROOT_THEMES, THEMES, make_other_cluster
from tests.simulation.location_truth import BRICKED
from tests.simulation.locations import MIRRORS, World

NEEDED = frozenset({"reassign", "swap", "force", "continue", "copy"})
"""Themes that concern what maintenance deletes."""


ROOT_REPLACED = frozenset({"promote", "force", "continue", "chain", "restore"})
"""Themes that concern clean-ups and mirrors."""

LASTING = frozenset({"restore", "continue", "reuse", "move", "replace"})
"""Themes that concern files which are begun long before they are committed."""


def choose_themes(seed: int) -> tuple[str, ...]:
    """Return the themes of a seed: each in turn, often with another one."""
    names = list(THEMES)
    first = names[seed % len(names)]
    other = [*LOCATION_THEMES, *([] if first in ROOT_THEMES else ROOT_THEMES)][seed // len(names) % 17 % 13 % 8]
    if seed // len(names) % 2 or first in EXCLUSIVE or other in EXCLUSIVE or other == first:
        return (first,)
    return (first, other)


def build(seed: int, themes: tuple[str, ...] = ()) -> World:
    world = World(seed, themes or choose_themes(seed))
    chance = world.random
    if "swap" in world.themes:
        make_other_cluster(world)
    world.spawn("producer", Producer(world, "p", 3, acks=chance.choice((-1, -1, 1))).work)
    if "continue" in world.themes:
        for name in ("q", "r"):
            world.spawn(f"producer-{name}", Producer(world, name, 3).work)
    if chance.random() < 0.6:
        world.spawn("transactions", Producer(world, "t", 2, transactional=True).work)
    if chance.random() < 0.6 or LASTING.intersection(world.themes):
        world.spawn("job", Job(world, "j", 3 if {"restore", "continue"}.intersection(world.themes) else 1).work)
    for theme in world.themes:
        for number, operate in enumerate(THEMES[theme]):
            world.spawn(f"operator-{theme}-{number}", lambda operate=operate: operate(world))  # type: ignore[misc]
    world.spawn("controller", ControllerProcess(world, "controller", 80, 1.1).work, ends=False)
    needed = NEEDED.intersection(world.themes)
    if (chance.random() < 0.6 and "unclean" not in world.themes) or "reuse" in world.themes:
        world.spawn("replication", Service(world, "replicated", replicate_all, 120).work, ends=False)
    for number in range(2 if needed else chance.choice((0, 1))):
        world.spawn(f"vacuum-{number}", Service(world, "vacuumed", vacuum_all, 250).work, ends=False)
    if needed or chance.random() < 0.4:
        world.spawn("cron", Service(world, "rolled", roll_and_sweep, 200).work, ends=False)
    # What is on its way at a remote storage when a root is restored in place is lost (``log.commits.removal``).
    if ROOT_REPLACED.intersection(world.themes) and not ("restore" in world.themes and REPEATED in world.rates):
        world.spawn("clean-up", Service(world, "cleaned up", clean_up_all, 200).work, ends=False)
        for url in MIRRORS:
            world.spawn(f"mirror-{url[-2:]}", Mirror(world, url, 100).work, ends=False)
    return world


def simulate(seed: int, themes: tuple[str, ...] = ()) -> World:
    """Run and check the simulation; what is wrong is in ``world.truth.findings``."""
    world = build(seed, themes)
    try:
        world.run()
        world.sound()
        try:
            if world.counts["restored"]:
                correct_boundary(world)
                put_back_commits(world)
                take_out_commit_of_killed(world)
            bring_up(world)
            world.truth.check_end(world.later(60))
        except SparklogError as error:
            world.truth.find(BRICKED, repr(error))
    finally:
        world.close()
    return world
