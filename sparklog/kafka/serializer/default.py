"""Text as bytes: ``kafka.serializer.default``."""

from __future__ import annotations

from sparklog.client.serializers import DefaultSerializer

__all__ = ["DefaultSerializer"]
