"""Operators add, remove, move, replace, mount, swap, promote, restore and copy locations and roots while producers,
Spark jobs, maintenance and mirrors run, are stopped, fail and die: for any seed every acknowledged record stays
readable, and replicas in sync have every file.

The seeds of a run are printed; ``SPARKLOG_SEED=n`` reruns one; see ``seeds``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.operated import simulate
from tests.simulation.seeds import name, shards

DEFAULT_SEEDS = 26
"""Each theme twice: a few seconds; ``make test-simulation`` runs thousands."""


@pytest.mark.parametrize("shard", shards(DEFAULT_SEEDS), ids=name)
def test_every_seed_passes_all_checks(shard: range, capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for seed in shard:
        try:
            world = simulate(seed)
            assert world.truth.findings == [], "\n".join(map(str, world.truth.findings[:10]))
        except BaseException:
            print(f"failing seed: SPARKLOG_SEED={seed}")
            raise
        counts.update(world.counts)
        counts.update(world.truth.seen)
    with capsys.disabled():
        print(f"\noperators, seeds {name(shard)}: {dict(sorted(counts.items()))}")
    if len(shard) == 1:
        return
    for event in ("acknowledged", "jobs committed", "stopped", "killed", "restored", "move", "re-add"):
        assert counts[event] > 0, f"no {event}"


def test_a_seed_gives_the_same_run_twice() -> None:
    assert simulate(5).simulation.trace == simulate(5).simulation.trace
