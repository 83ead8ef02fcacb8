"""Serializers as objects: ``kafka.serializer``."""

from sparklog.client.serializers import DefaultSerializer as DefaultSerializer
from sparklog.client.serializers import Deserializer as Deserializer
from sparklog.client.serializers import DeserializeWrapper as DeserializeWrapper
from sparklog.client.serializers import JsonSerializer as JsonSerializer
from sparklog.client.serializers import Serializer as Serializer
from sparklog.client.serializers import SerializeWrapper as SerializeWrapper
