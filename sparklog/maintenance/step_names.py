"""The names of the steps of maintenance, for programs that do not run them: ``steps`` is slow to import."""

from __future__ import annotations

STEP_NAMES = (
    "elections",
    "replication",
    "roll",
    "retention",
    "compaction",
    "publication",
    "deletion",
    "cleanup",
    "expiry",
    "mirror",
)
"""In the order of a pass; those of ``steps.STEPS``."""
