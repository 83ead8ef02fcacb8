"""The hash of keys, where kafka-python 1 has it: ``kafka.partitioner.hashed``."""

from sparklog.client.producer.custom_partitioners import murmur2 as murmur2
