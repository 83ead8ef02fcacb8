"""Error classes by the number that Kafka's protocol gives them."""

from __future__ import annotations

from sparklog.errors import kafka, raised
from sparklog.errors.base import BrokerResponseError


def _by_number() -> dict[int, type[BrokerResponseError]]:
    found: dict[int, type[BrokerResponseError]] = {}
    for module in (raised, kafka):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, BrokerResponseError) and "errno" in vars(kind):
                assert kind.errno is not None
                found.setdefault(kind.errno, kind)
    return found


kafka_errors = _by_number()
"""The class of each number, NoError for 0. ``UnsupportedVersionError`` for 35, which two have."""


def for_code(error_code: int) -> type[BrokerResponseError]:
    """The class of a number. One that is not known gives a class of its own, an UnknownError with that number.

    for_code(3)     # UnknownTopicOrPartitionError
    """
    known = kafka_errors.get(error_code)
    if known is not None:
        return known
    return type("UnrecognizedBrokerError", (kafka.UnknownError,), {"errno": error_code})
