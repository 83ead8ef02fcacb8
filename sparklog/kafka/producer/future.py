"""The future that ``send`` returns, and its result: ``kafka.producer.future``."""

from sparklog.client.producer.futures import FutureRecordMetadata as FutureRecordMetadata
from sparklog.client.producer.futures import RecordMetadata as RecordMetadata
