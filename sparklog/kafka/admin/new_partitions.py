"""Partitions to add, where kafka-python 2 has them."""

from sparklog.client.admin.types import NewPartitions as NewPartitions
