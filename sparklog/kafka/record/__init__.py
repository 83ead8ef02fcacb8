"""The package of record types: ``kafka.record``."""

from sparklog.client.consumer.records import ConsumerRecord

__all__ = [
    "ConsumerRecord",
]
