"""Functions as serializers: ``kafka.serializer.wrapper``."""

from sparklog.client.serializers import DeserializeWrapper as DeserializeWrapper
from sparklog.client.serializers import SerializeWrapper as SerializeWrapper
