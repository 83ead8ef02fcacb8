"""The base class of partitioners: ``kafka.partitioner.abc``."""

from sparklog.client.producer.partitioners import Partitioner as Partitioner
