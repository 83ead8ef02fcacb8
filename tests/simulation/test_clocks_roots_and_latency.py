"""Replaced roots, slow readers and suspended machines: no finding for any seed.

The seeds of a run are printed; ``SPARKLOG_SEED=n`` reruns one; see ``seeds``.
"""

from __future__ import annotations

import pytest

from tests.simulation import restored, suspended
from tests.simulation.seeds import name, shards
from tests.simulation.slow_readers import SlowReaders


@pytest.mark.parametrize("shard", shards(20), ids=name)
def test_records_acknowledged_after_a_root_was_replaced_are_stored(
    shard: range, capsys: pytest.CaptureFixture[str]
) -> None:
    noticed = repairs = 0
    for seed in shard:
        try:
            world = restored.build(seed)
            assert list(map(str, world.findings())) == []
            assert world.broken == []
        except BaseException:
            print(f"failing seed: SPARKLOG_SEED={seed}")
            raise
        noticed += world.noticed
        repairs += world.repairs
    with capsys.disabled():
        print(f"\nreplaced roots, seeds {name(shard)}: {noticed} clients noticed, {repairs} repairs")
    assert noticed > 0 or len(shard) == 1


@pytest.mark.parametrize("shard", shards(40), ids=name)
def test_a_slow_reader_reaches_the_end(shard: range, capsys: pytest.CaptureFixture[str]) -> None:
    looks = 0
    for seed in shard[::10]:  # each takes as long as ten of the others
        try:
            world = SlowReaders(seed)
            assert world.run() == []
        except BaseException:
            print(f"failing seed: SPARKLOG_SEED={seed}")
            raise
        looks += world.looks
    with capsys.disabled():
        print(f"\nslow readers, every tenth of the seeds {name(shard)}: {looks} looks while others wrote")
    assert looks > 0


@pytest.mark.parametrize("shard", shards(14), ids=name)
def test_suspended_machines_lose_no_record(shard: range, capsys: pytest.CaptureFixture[str]) -> None:
    late = 0
    for seed in shard:
        try:
            world = suspended.simulate(seed)
            assert world.findings == []
        except BaseException:
            print(f"failing seed: SPARKLOG_SEED={seed}")
            raise
        late += world.late
    with capsys.disabled():
        print(f"\nsuspended machines, seeds {name(shard)}: {late} stale commits detected")
    assert late > 0 or len(shard) == 1
