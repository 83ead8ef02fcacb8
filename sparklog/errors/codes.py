"""Error classes by their number in Kafka's protocol."""

from __future__ import annotations

from sparklog.errors.base import BrokerResponseError, kafka_errors
from sparklog.errors.kafka import UnknownError


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of a number. An unknown number gets a new subclass of UnknownError with that ``errno``.

    for_code(3)     # UnknownTopicOrPartitionError
    """
    kind = kafka_errors.get(error_code)
    return kind or type("UnrecognizedBrokerError", (UnknownError,), {"errno": error_code})
