"""Settings of a commit log. Users have the defaults, whose reasons are in ``limits``; tests pass others."""

from __future__ import annotations

from typing import NamedTuple

from sparklog import limits


class LogSettings(NamedTuple):
    """When checkpoints are written, commits and checkpoints removed, and actions stored beside a commit.

    The ages have to be the same in all processes of a cluster: one relies on what the others keep.
    """

    checkpoint_interval_commits: int = limits.CHECKPOINT_INTERVAL_COMMITS
    checkpoint_interval_segments: int = limits.CHECKPOINT_INTERVAL_SEGMENTS
    min_commit_age_ms: int = limits.MIN_COMMIT_AGE_MS
    min_commits_kept: int = limits.MIN_COMMITS_KEPT
    commits_removed_inline: int = limits.COMMITS_REMOVED_INLINE
    min_checkpoint_age_ms: int = limits.MIN_CHECKPOINT_AGE_MS
    max_inline_actions: int = limits.MAX_INLINE_ACTIONS

    @property
    def away_seconds(self) -> float:
        """seconds without reading the log after which its commits may have been removed in the meantime."""
        return self.min_commit_age_ms / 2000

    @property
    def rebase_after_commits(self) -> int:
        """commits after which a process that only reads looks for a checkpoint, to bound its memory."""
        return 4 * self.checkpoint_interval_commits


DEFAULTS = LogSettings()
