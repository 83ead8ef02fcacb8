"""An assignor: ``kafka.coordinator.assignors.range``."""

from sparklog.client.consumer.assignors import RangePartitionAssignor as RangePartitionAssignor
