"""The sticky assignor, under its full path."""

from sparklog.client.consumer.assignors import StickyPartitionAssignor as StickyPartitionAssignor
