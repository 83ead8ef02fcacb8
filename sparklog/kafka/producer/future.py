"""What ``send`` returns, and what it resolves to: ``kafka.producer.future``."""

from __future__ import annotations

from sparklog.client.producer.futures import FutureRecordMetadata, RecordMetadata

__all__ = ["FutureRecordMetadata", "RecordMetadata"]
