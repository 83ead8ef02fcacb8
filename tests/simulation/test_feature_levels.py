"""The same world on a cluster of the oldest level that is written, and with the level raised while it is used.

The seeds of a run are printed; ``SPARKLOG_SEED=n`` reruns one; see ``seeds``.
"""

from __future__ import annotations

import json

import pytest

from sparklog.protocol import levels
from sparklog.store.memory import MemoryStore
from tests.level_contents import find_beyond_level
from tests.simulation.group_members import GroupMemberLife
from tests.simulation.seeds import name, shards
from tests.simulation.test_groups_and_transactions import build, check, check_settled
from tests.simulation.world import Operator


def formats(store: MemoryStore) -> list[int]:
    """The levels of the commits that are kept, oldest first."""
    return [json.loads(store.get(info.key))["format"] for info in store.list("meta/commits/")]


@pytest.mark.parametrize("shard", shards(5), ids=name)
@pytest.mark.parametrize("is_raised", [False, True])
def test_every_seed_passes_all_checks_at_an_older_level(is_raised: bool, shard: range) -> None:
    for seed in shard:
        try:
            world = build(seed, GroupMemberLife, level=levels.OLDEST_WRITTEN)
            if is_raised:
                world.spawn("operator", Operator(world).work)
            world.settle_at_end("m1", "m2", "c1", "c2")
            check(world.run())
            check_settled(world)
            stored = formats(world.store)
            assert stored == sorted(stored)
            if is_raised:
                assert stored[-1] == levels.CURRENT
            else:
                assert find_beyond_level(world.store, levels.OLDEST_WRITTEN) == []
                assert set(stored) == {levels.OLDEST_WRITTEN}
        except BaseException:
            print(f"failing seed: SPARKLOG_SEED={seed}")
            raise
