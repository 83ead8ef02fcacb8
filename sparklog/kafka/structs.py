"""The structs: ``kafka.structs``, including those that only version 2 has."""

from sparklog.client.admin.client import GroupInformation as GroupInformation
from sparklog.client.admin.client import MemberInformation as MemberInformation
from sparklog.client.consumer.records import ConsumerGroupMetadata as ConsumerGroupMetadata
from sparklog.client.consumer.records import MemberState as MemberState
from sparklog.client.producer.cluster_metadata import BrokerMetadata as BrokerMetadata
from sparklog.types import OffsetAndMetadata as OffsetAndMetadata
from sparklog.types import OffsetAndTimestamp as OffsetAndTimestamp
from sparklog.types import TopicPartition as TopicPartition
from sparklog.types import TopicPartitionReplica as TopicPartitionReplica
