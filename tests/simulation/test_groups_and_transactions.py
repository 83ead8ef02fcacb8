"""Producers, transactions and a group on a failing storage, killed and stalled at random: no finding for any seed.

The seeds of a run are printed; ``SPARKLOG_SEED=n`` reruns one; see ``seeds``.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from sparklog.log.settings import LogSettings
from sparklog.protocol import levels
from sparklog.testing.checks import assert_clean
from sparklog.testing.faulty_store import CRASH_AFTER, CRASH_BEFORE, LOST_ANSWER
from sparklog.testing.history import READ, History
from sparklog.types import TopicPartition
from tests.simulation.group_members import GroupMemberLife
from tests.simulation.members import Life, Member
from tests.simulation.seeds import name, shards
from tests.simulation.world import MANY_CHECKPOINTS, TOPICS, IdempotentProducer, Janitor, TransactionalProducer, World

EAGER = ("range", "roundrobin")
COOPERATIVE = ("cooperative-sticky",)


def build(
    seed: int, life: type[Life] = Life, settings: LogSettings = MANY_CHECKPOINTS, level: int = levels.CURRENT
) -> World:
    """Build a world with members of one kind; with odd seeds they use eager assignors."""
    world = World(seed, settings=settings, level=level)
    assignors = EAGER if seed % 2 else COOPERATIVE
    facts: dict[str, Any] = {"assignors": assignors, "life": life}
    world.spawn("p1", IdempotentProducer(world, "p1", 6).work)
    world.spawn("p2", IdempotentProducer(world, "p2", 6).work)
    for number in range(2):
        world.spawn(f"x{number}", TransactionalProducer(world, f"x{number}", "x", 4).work)
    world.spawn("m1", Member(world, "m1", 10, **facts).work)
    world.spawn("m2", Member(world, "m2", 10, instance="static", **facts).work)
    world.spawn("c1", Member(world, "c1", 10, copies=True, **facts).work)
    world.spawn("c2", Member(world, "c2", 10, copies=True, **facts).work)
    world.spawn("janitor", Janitor(world, 6, dead_members=life is GroupMemberLife).work)
    return world


COPY = re.compile(r"(in-\d+):(\d+)-(\d+)")


def copied(history: History) -> Counter[tuple[str, int]]:
    """Return how often each record of "in" was copied, according to the final records of "out"."""
    copies: Counter[tuple[str, int]] = Counter()
    for operation in history.of(READ):
        for read in operation.reads if operation.final else ():
            for _, value in read.records if read.topic == "out" else ():
                for partition, start, end in COPY.findall(value):
                    copies.update((partition, offset) for offset in range(int(start), int(end)))
    return copies


def check(history: History) -> None:
    assert_clean(history)
    twice = [record for record, times in copied(history).items() if times > 1]
    assert not twice, f"copied more than once: {twice}"


def check_settled(world: World) -> None:
    """Check the end state: every partition has one owner that knows it, and wrong clocks had no effect."""
    owned = [partition for partitions in world.settled.values() for partition in partitions]
    assert sorted(owned) == [TopicPartition("in", partition) for partition in range(TOPICS["in"])], world.settled
    assert world.broken == []


@pytest.mark.parametrize("shard", shards(18), ids=name)
@pytest.mark.parametrize("life", [Life, GroupMemberLife])
def test_every_seed_passes_all_checks(life: type[Life], shard: range, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes: Counter[str] = Counter()
    injected: Counter[str] = Counter()
    copies = 0
    for seed in shard:
        try:
            world = build(seed, life)
            world.settle_at_end("m1", "m2", "c1", "c2")
            history = world.run()
            check(history)
            check_settled(world)
        except BaseException:
            print(f"failing seed: SPARKLOG_SEED={seed}")
            raise
        outcomes.update(f"{operation.kind} {operation.outcome}" for operation in history.operations)
        injected.update(fault.kind for store in world.lives for fault in store.injected)
        copies += len(copied(history))
    with capsys.disabled():
        print(f"\n{life.__name__}, seeds {name(shard)}: {dict(injected)}, {copies} copies, {dict(outcomes)}")
    if len(shard) == 1:
        return
    assert injected[CRASH_BEFORE] + injected[CRASH_AFTER] > 0
    assert injected[LOST_ANSWER] > 0
    assert copies > 0
