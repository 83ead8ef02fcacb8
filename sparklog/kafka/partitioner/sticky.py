"""The sticky partitioner: ``kafka.partitioner.sticky``."""

from sparklog.client.producer.partitioners import StickyPartitioner as StickyPartitioner
