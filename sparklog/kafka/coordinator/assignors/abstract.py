"""The base class and data types of assignors: ``kafka.coordinator.assignors.abstract``."""

from sparklog.client.consumer.assignors import AbstractPartitionAssignor as AbstractPartitionAssignor
from sparklog.client.consumer.assignors import ConsumerProtocolAssignment as ConsumerProtocolAssignment
from sparklog.client.consumer.assignors import ConsumerProtocolSubscription as ConsumerProtocolSubscription
from sparklog.client.consumer.assignors import RebalanceProtocol as RebalanceProtocol
