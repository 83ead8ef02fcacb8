"""Partitioners as objects: ``kafka.partitioner``."""

from sparklog.client.producer.custom_partitioners import DefaultPartitioner as DefaultPartitioner
from sparklog.client.producer.custom_partitioners import Partitioner as Partitioner
from sparklog.client.producer.custom_partitioners import StickyPartitioner as StickyPartitioner
from sparklog.client.producer.custom_partitioners import murmur2 as murmur2
