"""Partitioners as objects: ``kafka.partitioner``."""

from sparklog.client.producer.partitioners import DefaultPartitioner as DefaultPartitioner
from sparklog.client.producer.partitioners import Partitioner as Partitioner
from sparklog.client.producer.partitioners import StickyPartitioner as StickyPartitioner
from sparklog.client.producer.partitioners import murmur2 as murmur2
