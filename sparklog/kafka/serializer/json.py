"""Values as JSON: ``kafka.serializer.json``."""

from __future__ import annotations

from sparklog.client.serializers import JsonSerializer

__all__ = ["JsonSerializer"]
