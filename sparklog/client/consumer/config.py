"""The arguments of ``Consumer``: kafka-python's names and defaults, checked and typed, and a few of our own.

Our own: ``storage_options`` and ``cluster`` beside ``bootstrap_servers``; ``tail_backoff_ms`` and
``tail_backoff_max_ms``, the shortest and longest pause between two checks for new commits while none appear.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from sparklog.client.config import (
    CLUSTER_ARGUMENTS,
    METRIC_ARGUMENTS,
    SOCKET_DEFAULTS,
    Converter,
    build_shown_config,
    check_arguments,
    close_converters,
    cluster_of,
    converter,
    invalid_argument,
    milliseconds,
    one_of,
    whole_number,
)
from sparklog.client.consumer.assignors import (
    CooperativeStickyAssignor,
    JavaAssignors,
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    overrides_assign,
)
from sparklog.client.metrics.metrics import MetricSettings, metric_settings
from sparklog.coordinator import Coordinator
from sparklog.protocol.group.assignors import ASSIGNORS
from sparklog.protocol.group.start_offset import EARLIEST, LATEST, NONE
from sparklog.protocol.names import validate_client_id
from sparklog.types import as_python, number

LOCAL_TAIL_BACKOFF_MAX_MS = 10
"""On a local disk a check for commits is a system call: about 100 per second while idle."""

REMOTE_TAIL_BACKOFF_MAX_MS = 1000
"""On an object store a check for commits is a request: one per second while idle."""

DEFAULTS: Mapping[str, object] = {
    **CLUSTER_ARGUMENTS,
    **METRIC_ARGUMENTS,
    "allow_auto_create_topics": True,
    "auto_commit_interval_ms": 5000,
    "auto_offset_reset": "latest",
    "check_crcs": True,
    "client_id": "sparklog",
    "client_rack": "",
    "consumer_timeout_ms": math.inf,
    "default_api_timeout_ms": 60000,
    "default_offset_commit_callback": None,
    "enable_auto_commit": True,
    "enable_incremental_fetch_sessions": True,
    "exclude_internal_topics": True,
    "fetch_max_bytes": 52428800,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "group_id": None,
    "group_instance_id": None,
    "heartbeat_interval_ms": 3000,
    "isolation_level": "read_uncommitted",
    "key_deserializer": None,
    "max_partition_fetch_bytes": 1048576,
    "max_poll_interval_ms": 300000,
    "max_poll_records": 500,
    "metadata_max_age_ms": 300000,
    "metric_group_prefix": "consumer",
    "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
    "request_timeout_ms": 30000,
    "retry_backoff_ms": 100,
    "session_timeout_ms": 45000,
    "tail_backoff_ms": 2,
    "tail_backoff_max_ms": None,
    "value_deserializer": None,
}
"""The arguments of ``Consumer`` with their defaults; ``SOCKET_ARGUMENTS`` are also accepted, without effect."""

DEFAULT_CONFIG: Mapping[str, object] = {
    **SOCKET_DEFAULTS,
    "ssl_ciphers": None,
    **DEFAULTS,
}
"""The defaults including the arguments of version 3 without effect: ``Consumer.DEFAULT_CONFIG``."""

DURATION_RESET = "by_duration"

_RESETS = {"smallest": EARLIEST, "largest": LATEST}
_DURATION = re.compile(r"\Aby_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?\Z", re.IGNORECASE)
_CLASS_NAMES = {name.replace("-", ""): name for name in ASSIGNORS}


@dataclass(frozen=True)
class OffsetReset:
    """Where to start without a committed offset, or with one out of range; ``age_ms`` is the age for by_duration."""

    strategy: str
    age_ms: int = 0


@dataclass(frozen=True)
class ConsumerConfig:
    """The typed arguments. Times are in seconds and sizes in bytes unless the name says otherwise."""

    allow_internal: bool
    assignors: tuple[str, ...]
    auto_commit: bool
    auto_commit_interval: float
    client_id: str
    commit_callback: Callable[..., object] | None
    consumer_timeout: float
    api_timeout: float
    close_deserializers: Callable[[], None]
    deserialize_key: Converter | None
    deserialize_value: Converter | None
    fetch_max_bytes: int
    fetch_max_wait: float
    group_id: str
    heartbeat_interval: float
    instance_id: str
    max_partition_fetch_bytes: int
    max_poll_interval: float
    max_poll_records: int
    metric_group_prefix: str
    metrics: MetricSettings
    request_timeout: float
    reset: OffsetReset
    retry_backoff: float
    session_timeout_ms: int
    shown: dict[str, Any]
    tail_backoff: float
    tail_backoff_max: float

    @property
    def max_check_age(self) -> float:
        """Return for how many seconds a check for commits is current; 0 on a local disk, where checks are cheap."""
        return 0.0 if self.tail_backoff_max * 1000 <= LOCAL_TAIL_BACKOFF_MAX_MS else self.tail_backoff_max / 10


_invalid_argument = partial(invalid_argument, "Consumer")


def consumer_config(given: Mapping[str, object]) -> tuple[ConsumerConfig, Coordinator]:
    """Return the checked arguments, and the cluster that they name.

    Raises InvalidClientConfigurationError for an unknown name or an invalid value, and what ``cluster_of`` raises.
    """
    arguments = check_arguments("Consumer", given, DEFAULTS)

    number = partial(whole_number, "Consumer", arguments)

    def seconds(name: str, least: int = 0) -> float:
        return milliseconds("Consumer", arguments, name, least) / 1000

    def flag(name: str) -> bool:
        return bool(one_of("Consumer", arguments, name, (True, False)))

    one_of("Consumer", arguments, "isolation_level", ("read_uncommitted", "read_committed"))
    coordinator = cluster_of("Consumer", arguments)
    tail_backoff = seconds("tail_backoff_ms", 1)
    key_deserializer, value_deserializer = arguments["key_deserializer"], arguments["value_deserializer"]
    config = ConsumerConfig(
        allow_internal=not flag("exclude_internal_topics"),
        assignors=_assignors(arguments["partition_assignment_strategy"]),
        auto_commit=flag("enable_auto_commit"),
        auto_commit_interval=seconds("auto_commit_interval_ms"),
        client_id=_text(arguments, "client_id") or "sparklog",
        commit_callback=_callback(arguments["default_offset_commit_callback"]),
        consumer_timeout=_consumer_timeout(arguments),
        api_timeout=seconds("default_api_timeout_ms"),
        close_deserializers=partial(close_converters, key_deserializer, value_deserializer),
        deserialize_key=converter("Consumer", "key_deserializer", key_deserializer, "deserialize", "bytes"),
        deserialize_value=converter("Consumer", "value_deserializer", value_deserializer, "deserialize", "bytes"),
        fetch_max_bytes=number("fetch_max_bytes", 1),
        fetch_max_wait=seconds("fetch_max_wait_ms"),
        group_id=_group_id(arguments),
        heartbeat_interval=seconds("heartbeat_interval_ms", 1),
        instance_id=_text(arguments, "group_instance_id"),
        max_partition_fetch_bytes=number("max_partition_fetch_bytes", 1),
        max_poll_interval=seconds("max_poll_interval_ms", 1),
        max_poll_records=number("max_poll_records", 1),
        metric_group_prefix=_metric_group_prefix(arguments["metric_group_prefix"]),
        metrics=metric_settings("Consumer", arguments),
        request_timeout=seconds("request_timeout_ms"),
        reset=_reset(arguments["auto_offset_reset"]),
        retry_backoff=seconds("retry_backoff_ms"),
        session_timeout_ms=number("session_timeout_ms", 1),
        shown=build_shown_config(DEFAULT_CONFIG, given, coordinator),
        tail_backoff=tail_backoff,
        tail_backoff_max=max(tail_backoff, _tail_backoff_max(arguments, coordinator)),
    )
    _check_together(config)
    _check_timeouts(arguments, given)
    return config, coordinator


def _check_together(config: ConsumerConfig) -> None:
    if config.heartbeat_interval * 1000 >= config.session_timeout_ms:
        raise _invalid_argument(
            "heartbeat_interval_ms",
            int(config.heartbeat_interval * 1000),
            f"give less than session_timeout_ms={config.session_timeout_ms}, preferably a third of it",
        )
    if config.instance_id and not config.group_id:
        raise _invalid_argument("group_instance_id", config.instance_id, "give a group_id as well")


def _check_timeouts(arguments: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Check that a request may last longer than its wait for records, and a connection longer than a request."""
    request_ms = milliseconds("Consumer", arguments, "request_timeout_ms")
    wait_ms = milliseconds("Consumer", arguments, "fetch_max_wait_ms")
    if wait_ms >= request_ms:
        if "fetch_max_wait_ms" in given:
            raise _invalid_argument("fetch_max_wait_ms", wait_ms, f"give less than request_timeout_ms={request_ms}")
        raise _invalid_argument("request_timeout_ms", request_ms, f"give more than fetch_max_wait_ms={wait_ms}")
    idle_ms = given.get("connections_max_idle_ms")
    if (idle := number(idle_ms)) is not None and idle <= request_ms:
        raise _invalid_argument("connections_max_idle_ms", idle_ms, f"give more than request_timeout_ms={request_ms}")


def _text(arguments: Mapping[str, object], name: str) -> str:
    value = as_python(arguments[name])
    if value is None:
        return ""
    if not isinstance(value, str) or (not value and name != "client_id"):
        raise _invalid_argument(name, value, "give a name, or omit it")
    return validate_client_id(value, name)


def _group_id(arguments: Mapping[str, object]) -> str:
    """Return the group id, given as text or UTF-8 bytes. Whether it is a valid name is checked where it is used."""
    value = as_python(arguments["group_id"])
    with suppress(UnicodeDecodeError):
        value = value.decode() if isinstance(value, bytes) else value
    if value is None or (isinstance(value, str) and value):
        return value or ""
    raise _invalid_argument("group_id", arguments["group_id"], "give a name, or omit it")


def _metric_group_prefix(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise _invalid_argument("metric_group_prefix", given, "give a non-empty string")
    return given


def _callback(given: object) -> Callable[..., object] | None:
    if given is None or callable(given):
        return given
    what = "give a function of (offsets, exception or True)"
    raise _invalid_argument("default_offset_commit_callback", given, what, of_type=True)


def _consumer_timeout(arguments: Mapping[str, object]) -> float:
    """Return the seconds that iteration waits for a record; in kafka-python any negative number means forever."""
    value = arguments["consumer_timeout_ms"]
    given = number(value)
    if given is None or math.isnan(given):
        raise _invalid_argument("consumer_timeout_ms", value, "give milliseconds, or math.inf")
    return math.inf if given < 0 else given / 1000


def _tail_backoff_max(arguments: Mapping[str, object], coordinator: Coordinator) -> float:
    if arguments["tail_backoff_max_ms"] is not None:
        return milliseconds("Consumer", arguments, "tail_backoff_max_ms", 1) / 1000
    is_fast = coordinator.store.parallel_requests == 1
    return (LOCAL_TAIL_BACKOFF_MAX_MS if is_fast else REMOTE_TAIL_BACKOFF_MAX_MS) / 1000


def _reset(value: object) -> OffsetReset:
    text = value.lower() if isinstance(value, str) else ""
    text = _RESETS.get(text, text)
    if text in (EARLIEST, LATEST, NONE):
        return OffsetReset(text)
    match = _DURATION.match(text)
    if match is None or not any(match.groups()):
        raise _invalid_argument("auto_offset_reset", value, "give earliest, latest, none, or by_duration:PnDTnHnMnS")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return OffsetReset(DURATION_RESET, int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000))


def _assignors(given: object) -> tuple[str, ...]:
    """Return assignor names, given as names, class names of Kafka's clients, or classes that have a ``name``."""
    items = given if isinstance(given, list | tuple) else [given]
    names = tuple(dict.fromkeys(_assignor(item) for item in items))
    if not names:
        raise _invalid_argument("partition_assignment_strategy", given, f"give one or more of {', '.join(ASSIGNORS)}")
    if len(names) > 1 and CooperativeStickyAssignor.name in names and not isinstance(given, JavaAssignors):
        raise _invalid_argument(
            "partition_assignment_strategy",
            names,
            f"{CooperativeStickyAssignor.name} uses another protocol than the other assignors; give it alone",
        )
    return names


def _assignor(item: object) -> str:
    if overrides_assign(item):
        raise _invalid_argument(
            "partition_assignment_strategy",
            item,
            f"an assignor of your own is not supported; give one of {', '.join(ASSIGNORS)}",
        )
    name: object = item if isinstance(item, str) else getattr(item, "name", None)
    if isinstance(name, str):
        if name in ASSIGNORS:
            return name
        plain = name.rpartition(".")[2].lower().removesuffix("assignor").removesuffix("partition")
        if plain in _CLASS_NAMES:
            return _CLASS_NAMES[plain]
    raise _invalid_argument("partition_assignment_strategy", item, f"give one or more of {', '.join(ASSIGNORS)}")
