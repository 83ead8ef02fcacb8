"""kafka-python's package, backed by sparklog: the same modules and names.

    import sparklog.kafka as kafka                   # in place of: import kafka
    from sparklog.kafka.errors import KafkaTimeoutError
    from sparklog.kafka.coordinator.assignors.range import RangePartitionAssignor

For programs and libraries that cannot be edited, ``sparklog.kafka.install()`` serves ``import kafka`` in this process,
and ``python -m sparklog.kafka.run program.py`` does so for a program.

Rules: re-exports alone: every name is imported from its own module of sparklog, so that
``sparklog.kafka.KafkaProducer`` is ``sparklog.Producer``. Modules are those of version 3, with those of version 2 that
programs import. Not for: what only makes sense with servers (requests and responses, connections, ``kafka.conn``,
``kafka.client_async``).
"""

from __future__ import annotations

from sparklog.client.admin.client import AdminClient as KafkaAdminClient
from sparklog.client.admin.types import IsolationLevel, OffsetSpec
from sparklog.client.consumer.consumer import Consumer as KafkaConsumer
from sparklog.client.consumer.records import ConsumerGroupMetadata
from sparklog.client.consumer.subscription_state import AsyncConsumerRebalanceListener, ConsumerRebalanceListener
from sparklog.client.producer.producer import Producer as KafkaProducer
from sparklog.client.serializers import DefaultSerializer, Deserializer, JsonSerializer, Serializer
from sparklog.kafka import (  # noqa: F401 - `import kafka` alone makes kafka.errors and the others usable
    admin,
    cluster,
    consumer,
    coordinator,
    errors,
    future,
    partitioner,
    producer,
    protocol,
    record,
    serializer,
    structs,
)
from sparklog.kafka.shim import install
from sparklog.kafka.version import __version__
from sparklog.types import OffsetAndMetadata, TopicPartition, TopicPartitionReplica

__all__ = [
    "AsyncConsumerRebalanceListener",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Serializer",
    "TopicPartition",
    "TopicPartitionReplica",
    "__version__",
    "install",
]
