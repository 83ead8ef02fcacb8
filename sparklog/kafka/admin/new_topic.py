"""Topics to create, where kafka-python 2 has them."""

from __future__ import annotations

from sparklog.client.admin.types import NewTopic

__all__ = ["NewTopic"]
