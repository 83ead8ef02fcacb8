"""Error classes by their number in Kafka's protocol."""

from __future__ import annotations

from sparklog.errors import kafka, raised
from sparklog.errors.base import BrokerResponseError


def _index_by_number() -> dict[int, type[BrokerResponseError]]:
    classes: dict[int, type[BrokerResponseError]] = {}
    for module in (raised, kafka):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, BrokerResponseError) and "errno" in vars(kind):
                assert kind.errno is not None
                classes.setdefault(kind.errno, kind)
    return classes


kafka_errors = _index_by_number()
"""The class of each number, NoError for 0. Two classes have 35: it maps to ``UnsupportedVersionError``."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """Return the class of a number. An unknown number gets a new subclass of UnknownError with that ``errno``.

    for_code(3)     # UnknownTopicOrPartitionError
    """
    kind = kafka_errors.get(error_code)
    if kind is not None:
        return kind
    return type("UnrecognizedBrokerError", (kafka.UnknownError,), {"errno": error_code})
