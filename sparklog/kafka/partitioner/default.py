"""The default partitioner: ``kafka.partitioner.default``."""

from sparklog.client.producer.custom_partitioners import DefaultPartitioner as DefaultPartitioner
from sparklog.client.producer.custom_partitioners import murmur2 as murmur2
