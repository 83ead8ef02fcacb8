"""Decisions about the feature level of a cluster. Rules: as in ``decide``."""

from __future__ import annotations

from sparklog.errors import FeatureUpdateFailedError
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.features import check_written
from sparklog.protocol.state import State


def raise_level(state: State, level: int, is_downgrade: bool = False) -> Decision[int]:
    """Raise the cluster's level; the result is the previous level. Raising to the current level changes nothing.

    Raises FeatureLevelError for a level that this version does not write, FeatureUpdateFailedError for a lower one, and
    for a higher one if a downgrade was asked for: the raise cannot be undone.
    """
    if level < state.level:
        raise FeatureUpdateFailedError(
            f"the feature level cannot be lowered from {state.level} to {level}: commits, checkpoints and files of "
            f"level {state.level} are stored, and older programs cannot read them. To go back, restore a copy of the "
            "root that was made before the upgrade",
            level=state.level,
        )
    if level > state.level:
        if is_downgrade:
            raise FeatureUpdateFailedError(
                f"the cluster has feature level {state.level}, and a downgrade does not raise it to {level}: "
                "`sparklog features upgrade` does. Nothing was changed",
                level=state.level,
            )
        check_written(level)
    return Decision([], state.level, level)
