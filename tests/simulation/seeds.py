"""Which seeds a run simulates: ``SPARKLOG_SEED=n`` that one, ``SPARKLOG_SEEDS=n`` the first n, ``SPARKLOG_SEEDS=a:b``
those from a up to b, else a few. Many are cut into shards, each a test of its own, which several processes share.
"""

from __future__ import annotations

import os

SHARD = 250
"""Seeds of one test: half a minute or so."""


def seeds(default: int) -> range:
    """All seeds of this run."""
    if "SPARKLOG_SEED" in os.environ:
        only = int(os.environ["SPARKLOG_SEED"])
        return range(only, only + 1)
    first, _, end = os.environ.get("SPARKLOG_SEEDS", str(default)).rpartition(":")
    return range(int(first or 0), int(end))


def shards(default: int) -> list[range]:
    """The seeds of this run, in parts for ``pytest.mark.parametrize``."""
    every = seeds(default)
    return [every[start : start + SHARD] for start in range(0, len(every), SHARD)]


def name(shard: range) -> str:
    """What a shard is called in a test's name."""
    return f"{shard.start}:{shard.stop}"
