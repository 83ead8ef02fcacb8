"""The admin client: ``kafka.admin.client``."""

from __future__ import annotations

from sparklog.client.admin.client import AdminClient as KafkaAdminClient

__all__ = ["KafkaAdminClient"]
