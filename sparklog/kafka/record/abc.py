"""What is a record to those that look at its type: ``kafka.record.abc``."""

from __future__ import annotations

from abc import ABC

from sparklog.client.consumer.records import ConsumerRecord


class ABCRecord(ABC):  # noqa: B024 # what is registered is a tuple
    """A record, for type hints and ``isinstance``."""


ABCRecord.register(ConsumerRecord)

__all__ = ["ABCRecord"]
