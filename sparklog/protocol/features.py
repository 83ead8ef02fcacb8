"""What a commit needs: whether a cluster's level allows its actions. The only place that checks.

Every commit passes ``check_level`` before it is stored. At the newest level there is nothing to check.

Rules: pure. Not for: which level a feature takes (``levels.FEATURES``), raising the level (``decide.features``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from sparklog.errors import FeatureLevelError
from sparklog.protocol import levels
from sparklog.protocol.commits import Action, AlterConfig, CreateTopic, DeleteSegments, LiveSegment, ReplaceSegments
from sparklog.protocol.file_names import is_history
from sparklog.protocol.levels import FEATURES, Feature

HISTORY = FEATURES[0]


def is_allowed(feature: Feature, level: int) -> bool:
    """Return whether a cluster of this level may have a feature."""
    return level >= feature.level


def check_written(level: int) -> None:
    """Refuse to write at a level that this version only reads, or does not know. Raises FeatureLevelError."""
    if level > levels.CURRENT:
        raise FeatureLevelError(
            f"invalid feature level {level}: this sparklog knows levels up to {levels.CURRENT}; upgrade sparklog first",
            level=level,
        )
    if level < levels.OLDEST_WRITTEN:
        raise FeatureLevelError(
            f"the cluster has feature level {level}, which this sparklog reads and does not write: it writes levels "
            f"{levels.OLDEST_WRITTEN} to {levels.CURRENT}. `sparklog features upgrade --feature-level "
            f"{levels.OLDEST_WRITTEN}` raises it; programs older than {levels.needs_of(levels.OLDEST_WRITTEN)} then "
            "stop. Nothing was written",
            level=level,
        )


def check_level(actions: Iterable[Action], level: int) -> None:
    """Refuse actions that the cluster's level does not allow. Raises FeatureLevelError."""
    check_written(level)
    if level < levels.CURRENT:
        for needed, what in _needed(actions):
            check_feature(needed, level, what)


def check_feature(feature: Feature, level: int, what: str) -> None:
    """Refuse a feature, of which ``what`` is asked for, below its level. Raises FeatureLevelError."""
    if is_allowed(feature, level):
        return
    raise FeatureLevelError(
        f"{what} needs feature level {feature.level} ({feature.name}), and the cluster has level {level}. `sparklog "
        f"features upgrade --feature-level {feature.level}` raises it, once no program older than sparklog "
        f"{levels.needs_of(feature.level)} uses the cluster: those stop then. Nothing was written",
        level=level,
        needed=feature.level,
    )


def _needed(actions: Iterable[Action]) -> Iterator[tuple[Feature, str]]:
    """Yield the features that actions use, and what uses them."""
    for action in actions:
        if isinstance(action, CreateTopic):
            yield from _of_configs(action.configs)
        elif isinstance(action, AlterConfig):
            yield from _of_configs(action.set)
        elif isinstance(action, ReplaceSegments):
            for struct in (action.removed, *action.added):
                yield from _of_fields(struct)
        elif isinstance(action, DeleteSegments):
            yield from _of_fields(action.removed)


def _of_configs(names: Iterable[str]) -> Iterator[tuple[Feature, str]]:
    for name in names:
        yield from ((feature, f"the config {name}") for feature in FEATURES if name in feature.configs)


def _of_fields(struct: msgspec.Struct) -> Iterator[tuple[Feature, str]]:
    if isinstance(struct, LiveSegment) and is_history(struct.run.path):
        yield HISTORY, f"the history segment {struct.run.path}"
    for feature in FEATURES:
        for name in feature.fields.get(type(struct).__name__, ()):
            if getattr(struct, name):
                yield feature, f"the field {name} of a segment"
