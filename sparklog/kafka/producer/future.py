"""The future that ``send`` returns, and its result: ``kafka.producer.future``."""

from __future__ import annotations

from sparklog.client.producer.futures import FutureRecordMetadata, RecordMetadata

__all__ = ["FutureRecordMetadata", "RecordMetadata"]
