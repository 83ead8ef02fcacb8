"""Addresses of Kafka's brokers, which programs and scripts written for Kafka pass where a root belongs."""

from __future__ import annotations

import re

_BROKER = r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:]+\]):\d{1,5}"
_BROKERS = re.compile(rf"\s*(?:localhost|{_BROKER}(?:\s*,\s*{_BROKER})*)\s*")
"""``localhost`` is kafka-python's default. ``C:\\5`` and ``s3://…`` do not match."""


def are_brokers(root: str) -> bool:
    r"""Return whether a root looks like the addresses of Kafka's brokers.

    >>> are_brokers("kafka_1:9092,SSL://kafka-2.example:9093"), are_brokers("s3://bucket/log"), are_brokers("C:\\5")
    (True, False, False)
    """
    return _BROKERS.fullmatch(root) is not None
