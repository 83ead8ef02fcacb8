"""An assignor: ``kafka.coordinator.assignors.roundrobin``."""

from sparklog.client.consumer.assignors import RoundRobinPartitionAssignor as RoundRobinPartitionAssignor
