"""The metadata of group members: ``kafka.protocol.consumer.metadata``."""

from sparklog.client.consumer.assignors import ConsumerProtocolAssignment as ConsumerProtocolAssignment
from sparklog.client.consumer.assignors import ConsumerProtocolSubscription as ConsumerProtocolSubscription
