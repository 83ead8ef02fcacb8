"""The admin client: ``kafka.admin.client``."""

from sparklog.client.admin.client import AdminClient as KafkaAdminClient

__all__ = ["KafkaAdminClient"]
