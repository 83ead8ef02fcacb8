"""The cluster as partitioners see it: ``kafka.cluster``."""

from sparklog.client.producer.cluster_metadata import BrokerMetadata as BrokerMetadata
from sparklog.client.producer.cluster_metadata import ClusterMetadata as ClusterMetadata
