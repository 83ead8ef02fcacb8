"""Values as JSON: ``kafka.serializer.json``."""

from sparklog.client.serializers import JsonSerializer as JsonSerializer
