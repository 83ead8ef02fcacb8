"""Which seeds a run simulates: ``SPARKLOG_SEED=n`` that one, ``SPARKLOG_SEEDS=n`` so many, else a few."""

from __future__ import annotations

import os


def seeds(default: int = 100) -> range:
    if "SPARKLOG_SEED" in os.environ:
        return range(int(os.environ["SPARKLOG_SEED"]), int(os.environ["SPARKLOG_SEED"]) + 1)
    return range(int(os.environ.get("SPARKLOG_SEEDS", str(default))))
