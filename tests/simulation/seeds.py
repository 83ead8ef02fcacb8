"""The seeds of a run: ``SPARKLOG_SEED=n`` selects one, ``SPARKLOG_SEEDS=n`` the first n, ``SPARKLOG_SEEDS=a:b`` those
from a up to b; default: a few. Many seeds are split into shards, one test each, so that several processes share them.
"""

from __future__ import annotations

import os

SHARD = 250
"""Seeds per test: about half a minute."""


def seeds(default: int) -> range:
    """Return all seeds of this run."""
    if "SPARKLOG_SEED" in os.environ:
        only = int(os.environ["SPARKLOG_SEED"])
        return range(only, only + 1)
    first, _, end = os.environ.get("SPARKLOG_SEEDS", str(default)).rpartition(":")
    return range(int(first or 0), int(end))


def shards(default: int) -> list[range]:
    """Return the seeds of this run in shards, for ``pytest.mark.parametrize``."""
    every = seeds(default)
    return [every[start : start + SHARD] for start in range(0, len(every), SHARD)]


def name(shard: range) -> str:
    """Return the pytest id of a shard."""
    return f"{shard.start}:{shard.stop}"
