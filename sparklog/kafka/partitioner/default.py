"""The default partitioner: ``kafka.partitioner.default``."""

from sparklog.client.producer.partitioners import DefaultPartitioner as DefaultPartitioner
from sparklog.client.producer.partitioners import murmur2 as murmur2
