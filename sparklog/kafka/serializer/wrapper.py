"""Functions as serializers: ``kafka.serializer.wrapper``."""

from __future__ import annotations

from sparklog.client.serializers import DeserializeWrapper, SerializeWrapper

__all__ = ["DeserializeWrapper", "SerializeWrapper"]
