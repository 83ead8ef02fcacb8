"""The sticky partitioner: ``kafka.partitioner.sticky``."""

from sparklog.client.producer.custom_partitioners import StickyPartitioner as StickyPartitioner
