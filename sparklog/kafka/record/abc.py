"""The record type, for ``isinstance``: ``kafka.record.abc``."""

from __future__ import annotations

from abc import ABC

from sparklog.client.consumer.records import ConsumerRecord


class ABCRecord(ABC):  # noqa: B024 # the registered class is a tuple
    """A record, for type hints and ``isinstance``."""


ABCRecord.register(ConsumerRecord)

__all__ = ["ABCRecord"]
