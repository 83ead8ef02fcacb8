"""Text as bytes: ``kafka.serializer.default``."""

from sparklog.client.serializers import DefaultSerializer as DefaultSerializer
