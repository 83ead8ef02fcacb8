"""The methods of ``AdminClient`` for the cluster's feature level, Kafka's ``metadata.version``.

Not for: which level a feature takes (``protocol.levels``), what is refused (``protocol.decide.features``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sparklog.client.admin.base import AdminBase, Result
from sparklog.client.admin.security import UpdateFeatureType
from sparklog.client.admin.types import member_of
from sparklog.errors import FeatureUpdateFailedError, InvalidArgumentError, InvalidArgumentTypeError
from sparklog.protocol import levels
from sparklog.protocol.decide.features import raise_level
from sparklog.types import whole


class FeatureAdmin(AdminBase):
    """The methods of ``AdminClient`` for features. Thread-safe."""

    def describe_features(self, send_request_to_controller: bool = False) -> Result:
        """Return the feature levels that this version writes, the cluster's, and the version of the log that was read.

        There is one feature, ``metadata.version``: the level of all stored formats. ``send_request_to_controller`` has
        no effect.

            >>> described = admin.describe_features()
            >>> described["supported_features"], described["finalized_features"]
            ({'metadata.version': (2, 3)}, {'metadata.version': (3, 3)})
        """
        state = self.read_state()
        return {
            "supported_features": {levels.FEATURE: (levels.OLDEST_WRITTEN, levels.CURRENT)},
            "finalized_features": {levels.FEATURE: (state.level, state.level)},
            "finalized_features_epoch": state.version,
        }

    def update_features(
        self, feature_updates: Mapping[str, object], validate_only: bool = False, timeout_ms: int = 60_000
    ) -> dict[str, str]:
        """Raise the feature level of the cluster; programs that do not know the new one stop then. With
        ``validate_only`` nothing is changed.

        ``feature_updates`` maps ``metadata.version`` to a level, or to an upgrade type and a level, as with
        kafka-python. The result is ``OK`` for the feature. The level cannot be lowered, and a downgrade does not raise
        it.

            >>> admin.update_features({"metadata.version": 3})
            {'metadata.version': 'OK'}

        Raises FeatureUpdateFailedError for a lower level, a downgrade to a higher one or another feature,
        FeatureLevelError for a level that this version does not write, InvalidArgumentError, InvalidArgumentTypeError,
        StorageError.
        """
        level, kind = _update_of(feature_updates)
        decide = partial(raise_level, level=level, is_downgrade=kind is not UpdateFeatureType.UPGRADE)
        coordinator = self._opened()
        if validate_only:
            decide(coordinator.refresh())
        else:
            coordinator.submit(decide)
        return {levels.FEATURE: "OK"}


def _update_of(updates: object) -> tuple[int, UpdateFeatureType]:
    """Return the level that is asked for, and how. Raises as ``update_features``."""
    if not isinstance(updates, Mapping):
        raise InvalidArgumentTypeError(f"feature_updates is {updates!r}: give {{'{levels.FEATURE}': level}}")
    if set(updates) != {levels.FEATURE}:
        raise FeatureUpdateFailedError(f"{sorted(map(str, updates))}: the only feature is {levels.FEATURE}")
    stated = updates[levels.FEATURE]
    kind, level = stated if isinstance(stated, tuple) and len(stated) == 2 else (UpdateFeatureType.UPGRADE, stated)
    update_type = member_of(UpdateFeatureType, kind)
    if update_type is UpdateFeatureType.UNKNOWN:
        raise InvalidArgumentError(f"invalid upgrade type {kind!r} of {levels.FEATURE}")
    number = whole(level)
    if number is None:
        raise InvalidArgumentTypeError(f"the level of {levels.FEATURE} is {level!r}: give a whole number")
    return number, update_type
