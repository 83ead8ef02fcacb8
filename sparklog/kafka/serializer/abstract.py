"""The base classes of serializers: ``kafka.serializer.abstract``."""

from __future__ import annotations

from sparklog.client.serializers import Deserializer, Serializer

__all__ = ["Deserializer", "Serializer"]
