"""The records that a consumer returns: ``kafka.consumer.fetcher``."""

from sparklog.client.consumer.records import ConsumerRecord as ConsumerRecord
