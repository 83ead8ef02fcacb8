"""The base class of partitioners: ``kafka.partitioner.abc``."""

from sparklog.client.producer.custom_partitioners import Partitioner as Partitioner
