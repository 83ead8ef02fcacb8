"""The base classes of serializers: ``kafka.serializer.abstract``."""

from sparklog.client.serializers import Deserializer as Deserializer
from sparklog.client.serializers import Serializer as Serializer
