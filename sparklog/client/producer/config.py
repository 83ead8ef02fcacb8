"""The arguments of ``Producer``: kafka-python's names and defaults, checked and typed.

Not for: what the clients have in common (``client.config``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparklog.client.config import (
    CLUSTER_ARGUMENTS,
    METRIC_ARGUMENTS,
    SOCKET_DEFAULTS,
    Converter,
    check_arguments,
    close_converters,
    cluster_of,
    converter,
    invalid_argument,
    milliseconds,
    one_of,
    whole_number,
)
from sparklog.client.producer.custom_partitioners import ChoosePartition, RotatePartition, resolve_partitioner
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidAcksError, InvalidConfigurationError
from sparklog.format.codecs import CODECS, compressor
from sparklog.protocol.decide.acks import ACKS_ALL
from sparklog.protocol.features import check_written
from sparklog.protocol.names import validate_client_id
from sparklog.types import as_python, whole

DEFAULTS: Mapping[str, object] = {
    **CLUSTER_ARGUMENTS,
    **METRIC_ARGUMENTS,
    "acks": -1,
    "allow_auto_create_topics": True,
    "batch_size": 16384,
    "buffer_memory": 33554432,
    "client_id": None,
    "compression_type": None,
    "compression_gzip_level": None,
    "compression_lz4_level": None,
    "compression_zstd_level": None,
    "default_api_timeout_ms": 60000,
    "delivery_timeout_ms": 120000,
    "enable_idempotence": True,
    "key_serializer": None,
    "linger_ms": 0,
    "max_block_ms": 60000,
    "max_request_size": 1048576,
    "metadata_max_age_ms": 300000,
    "partitioner": None,
    "request_timeout_ms": 30000,
    "retries": math.inf,
    "retry_backoff_ms": 100,
    "transaction_timeout_ms": 60000,
    "transactional_id": None,
    "value_serializer": None,
}
"""The arguments of ``Producer`` with their defaults; ``SOCKET_ARGUMENTS`` are accepted too, without effect."""

DEFAULT_CONFIG: Mapping[str, object] = {**SOCKET_DEFAULTS, "ssl_ciphers": None, **DEFAULTS}
"""The same with the arguments of kafka-python 3 that have no effect: ``Producer.DEFAULT_CONFIG``."""

IN_FLIGHT_OF_IDEMPOTENCE = 5
"""requests. With more in flight at the same time, Kafka's brokers could not detect repetitions."""


@dataclass(frozen=True)
class ProducerConfig:
    """Times are seconds, sizes are bytes."""

    acks: int
    batch_size: int
    buffer_memory: int
    codec: str
    level: int | None
    create_topics: bool
    delivery_timeout: float
    idempotent: bool
    linger: float
    max_block: float
    max_request_size: int
    metadata_max_age: float
    choose_partition: ChoosePartition | None
    rotate_partition: RotatePartition | None
    retries: int
    retry_backoff: float
    close_serializers: Callable[[], None]
    serialize_key: Converter | None
    serialize_value: Converter | None
    transactional_id: str
    transaction_timeout: float


_invalid_argument = partial(invalid_argument, "Producer")


def producer_config(given: Mapping[str, object]) -> tuple[ProducerConfig, Coordinator]:
    """Check the arguments; return them typed, with the cluster they name.

    Raises InvalidClientConfigurationError for an unknown name or an invalid value, FeatureLevelError for a
    cluster that is only read, and the errors of ``cluster_of``.
    """
    arguments = check_arguments("Producer", given, DEFAULTS)

    number = partial(whole_number, "Producer", arguments)

    def seconds(name: str, least: int = 0) -> float:
        return milliseconds("Producer", arguments, name, least) / 1000

    acks = _acks(arguments["acks"])
    transactional_id = _transactional_id(arguments)
    if arguments["client_id"] is not None:
        validate_client_id(arguments["client_id"], "client_id")
    codec, level = _codec(arguments)
    choose_partition, rotate_partition = resolve_partitioner(arguments["partitioner"])
    key_serializer, value_serializer = arguments["key_serializer"], arguments["value_serializer"]
    config = ProducerConfig(
        acks=acks,
        batch_size=number("batch_size"),
        buffer_memory=number("buffer_memory", 1),
        codec=codec,
        level=level,
        create_topics=one_of("Producer", arguments, "allow_auto_create_topics", (True, False)),
        delivery_timeout=seconds("delivery_timeout_ms"),
        idempotent=_idempotence(arguments, given),
        linger=seconds("linger_ms"),
        max_block=seconds("max_block_ms"),
        max_request_size=number("max_request_size"),
        metadata_max_age=seconds("metadata_max_age_ms"),
        choose_partition=choose_partition,
        rotate_partition=rotate_partition,
        retries=number("retries"),
        retry_backoff=seconds("retry_backoff_ms"),
        close_serializers=partial(close_converters, key_serializer, value_serializer),
        serialize_key=converter("Producer", "key_serializer", key_serializer, "serialize", "value"),
        serialize_value=converter("Producer", "value_serializer", value_serializer, "serialize", "value"),
        transactional_id=transactional_id,
        transaction_timeout=seconds("transaction_timeout_ms", 1),
    )
    _check_together(config, given)
    coordinator = cluster_of("Producer", arguments)
    check_written(coordinator.state.level)  # before any file is written
    return config, coordinator


def _acks(value: Any) -> int:
    given = as_python(value)
    if type(given) not in (int, str) or given not in (0, 1, -1, "all"):
        raise InvalidAcksError(f"Producer(acks={value!r}): give one of 0, 1, -1, 'all'", config="acks", value=value)
    return ACKS_ALL if given == "all" else int(given)


def _idempotence(arguments: Mapping[str, object], given: Mapping[str, object]) -> bool:
    """Return whether the producer is idempotent: as given, and by default unless ``acks=0`` waits for no answer."""
    chosen: bool = one_of("Producer", arguments, "enable_idempotence", (True, False))
    is_asked_for = "enable_idempotence" in given or arguments["transactional_id"] is not None
    return chosen and (is_asked_for or as_python(arguments["acks"]) != 0)


def _transactional_id(arguments: Mapping[str, object]) -> str:
    value = as_python(arguments["transactional_id"])
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise _invalid_argument("transactional_id", value, "give a name, or omit it")
    return value


def _check_together(config: ProducerConfig, given: Mapping[str, object]) -> None:
    """Refuse arguments that contradict each other. Idempotence by default is kept, not refused."""
    if config.transactional_id and not config.idempotent:
        raise _invalid_argument(
            "enable_idempotence", False, "a producer with a transactional_id is idempotent; omit this argument"
        )
    if config.transactional_id and config.acks != ACKS_ALL:
        raise _invalid_argument("acks", config.acks, "transactions need acks='all'; omit this argument")
    if config.delivery_timeout < config.linger:
        raise _invalid_argument("delivery_timeout_ms", config.delivery_timeout * 1000, "give at least linger_ms")
    if config.idempotent and (config.transactional_id or "enable_idempotence" in given):
        _check_idempotence(config, given)
    if "request_timeout_ms" in given and "delivery_timeout_ms" in given:
        least = config.linger * 1000 + milliseconds("Producer", given, "request_timeout_ms")
        if config.delivery_timeout * 1000 < least:
            raise _invalid_argument(
                "delivery_timeout_ms",
                given["delivery_timeout_ms"],
                f"give at least {least:.0f}, the sum of linger_ms and request_timeout_ms",
            )


def _check_idempotence(config: ProducerConfig, given: Mapping[str, object]) -> None:
    subject = "a producer with enable_idempotence=True or a transactional_id"
    if config.acks != ACKS_ALL:
        raise _invalid_argument("acks", config.acks, f"{subject} needs acks='all'; omit one of them")
    if not config.retries:
        raise _invalid_argument("retries", 0, f"{subject} needs retries; omit one of them")
    in_flight = given.get("max_in_flight_requests_per_connection")
    if (whole(in_flight) or 0) > IN_FLIGHT_OF_IDEMPOTENCE:
        raise _invalid_argument(
            "max_in_flight_requests_per_connection",
            in_flight,
            f"{subject} takes at most {IN_FLIGHT_OF_IDEMPOTENCE}; omit one of them",
        )


def _codec(arguments: Mapping[str, object]) -> tuple[str, int | None]:
    """Return the codec and its level. Levels of other codecs are ignored, as in Kafka."""
    codec = arguments["compression_type"] or "none"
    if codec not in CODECS:
        raise _invalid_argument("compression_type", codec, f"give None or one of {', '.join(CODECS)}")
    level = arguments.get(f"compression_{codec}_level")
    given, level = level, whole(level)
    if given is not None and level is None:
        raise _invalid_argument(f"compression_{codec}_level", given, "give a whole number")
    try:
        compressor(str(codec), level)
    except InvalidConfigurationError as error:
        raise _invalid_argument(f"compression_{codec}_level", level, error.message) from error
    return str(codec), level
