"""An assignor: ``kafka.coordinator.assignors.cooperative_sticky``."""

from sparklog.client.consumer.assignors import CooperativeStickyAssignor as CooperativeStickyAssignor
