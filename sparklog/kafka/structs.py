"""The structs: ``kafka.structs``, including those that only version 2 has."""

from __future__ import annotations

from sparklog.client.admin.client import GroupInformation, MemberInformation
from sparklog.client.consumer.records import ConsumerGroupMetadata, MemberState
from sparklog.client.producer.cluster_metadata import BrokerMetadata
from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition, TopicPartitionReplica

__all__ = [
    "BrokerMetadata",
    "ConsumerGroupMetadata",
    "GroupInformation",
    "MemberInformation",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "TopicPartitionReplica",
]
