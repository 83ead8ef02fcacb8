"""Resources with configs, where kafka-python 2 has them."""

from __future__ import annotations

from sparklog.client.admin.types import ConfigResource, ConfigResourceType

__all__ = ["ConfigResource", "ConfigResourceType"]
