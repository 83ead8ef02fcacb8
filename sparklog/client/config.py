"""The arguments of the Python clients: which names they take, what each must be, and which cluster they mean.

    config = check_arguments("Producer", given, PRODUCER_DEFAULTS, NO_EFFECT)
    coordinator = cluster_of("Producer", config)

Rules: names and defaults are those of kafka-python (2.3 and 3.1), so that a program moves by changing the import and
``bootstrap_servers``. What only makes sense with sockets is accepted and does nothing, which a line in the debug log
says; a name that no client has is refused with the nearest one that exists.

Not for: what the arguments do, and settings of topics and of the cluster (``sparklog.config``).
"""

from __future__ import annotations

import difflib
import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator
from sparklog.coordinator.coordinator import shared_cluster
from sparklog.errors import InvalidConfigurationError, StorageUnavailableError

logger = logging.getLogger(__name__)

SOCKET_ARGUMENTS = frozenset(
    {
        "api_version",
        "api_version_auto_timeout_ms",
        "bootstrap_topics_filter",
        "client_dns_lookup",
        "connections_max_idle_ms",
        "kafka_client",
        "max_in_flight_requests_per_connection",
        "net",
        "proxy_url",
        "receive_buffer_bytes",
        "receive_message_max_bytes",
        "reconnect_backoff_max_ms",
        "reconnect_backoff_ms",
        "sasl_kerberos_domain_name",
        "sasl_kerberos_name",
        "sasl_kerberos_service_name",
        "sasl_mechanism",
        "sasl_oauth_token_provider",
        "sasl_plain_password",
        "sasl_plain_username",
        "security_protocol",
        "selector",
        "send_buffer_bytes",
        "sock_chunk_buffer_count",
        "sock_chunk_bytes",
        "socket_connection_setup_timeout_max_ms",
        "socket_connection_setup_timeout_ms",
        "socket_options",
        "socks5_proxy",
        "ssl_cafile",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_ciphers",
        "ssl_context",
        "ssl_crlfile",
        "ssl_keyfile",
        "ssl_password",
    }
)
"""What kafka-python's clients take for connections. There are no connections: accepted, no effect."""

METRIC_ARGUMENTS: Mapping[str, object] = {
    "metric_reporters": (),
    "metrics_enabled": True,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30_000,
}
"""How a client measures itself, with kafka-python's defaults; see ``client.metrics``."""

CLUSTER_ARGUMENTS: Mapping[str, object] = {
    "bootstrap_servers": None,
    "bootstrap_timeout_ms": 30_000,
    "storage_options": None,
    "cluster": None,
}
"""What names the cluster: its root, how long to try to open it, the options of the storage's client, or a coordinator
that is open already."""

_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}")

OPEN_PAUSE_SECONDS = 0.1
"""seconds between two tries to open a cluster whose storage does not answer."""


def check_arguments(
    client: str,
    given: Mapping[str, object],
    known: Mapping[str, object],
    ignored: frozenset[str] = SOCKET_ARGUMENTS,
) -> dict[str, Any]:
    """Every argument in ``known``, as given or else with the default it has there.

    Names in ``ignored`` are dropped with a debug log line, also those that have the value None. ``client`` is the
    class's name, for messages.

    Raises:
        InvalidConfigurationError: a name that is neither, with the nearest one that is.
    """
    config = dict(known)
    for name, value in given.items():
        if name in config:
            config[name] = value
        elif name in ignored:
            logger.debug("%s(%s=...) has no effect: there is no server to connect to", client, name)
        else:
            raise _unknown(client, name, known)
    return config


def _unknown(client: str, name: str, known: Mapping[str, object]) -> InvalidConfigurationError:
    underscored = name.replace(".", "_")
    nearest = [underscored] if underscored in known else difflib.get_close_matches(name[:100], known, n=1)
    hint = f"; did you mean {nearest[0]}?" if nearest else f"; it takes {', '.join(sorted(known))}"
    return InvalidConfigurationError(f"{client} has no argument {name[:100]!r}{hint}", config=name)


# -- values


def whole_number(client: str, config: Mapping[str, object], name: str, least: int = 0, most: float = math.inf) -> int:
    """The value of an argument that is a whole number in these bounds, inclusive. Raises InvalidConfigurationError.

    ``math.inf``, kafka-python's word for no limit, is the greatest int64.
    """
    value = config[name]
    if value == math.inf:
        value = 2**63 - 1
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        bounds = f"from {least} to {most}" if most != math.inf else f"of at least {least}"
        raise InvalidConfigurationError(
            f"{client}({name}={value!r}): give a whole number {bounds}", config=name, value=value
        )
    return value


def one_of(client: str, config: Mapping[str, object], name: str, choices: Sequence[object]) -> Any:
    """The value of an argument that is one of these. Raises InvalidConfigurationError."""
    value = config[name]
    if not any(value == choice and type(value) is type(choice) for choice in choices):
        shown = ", ".join(repr(choice) for choice in choices)
        raise InvalidConfigurationError(f"{client}({name}={value!r}): give one of {shown}", config=name, value=value)
    return value


# -- the cluster


def cluster_of(client: str, config: Mapping[str, object]) -> Coordinator:
    """The coordinator of the cluster that the arguments name; clients of one process share it.

    A storage that does not answer is asked again for ``bootstrap_timeout_ms``, as Kafka's clients do.

    Raises InvalidConfigurationError where they name none, or what ``shared_cluster`` raises.
    """
    given = config.get("cluster")
    given = getattr(given, "coordinator", given)  # of a ``Cluster``
    if given is not None:
        if not isinstance(given, Coordinator):
            raise InvalidConfigurationError(
                f"{client}(cluster=...) takes what sparklog.open_cluster() returns, not {type(given).__name__}; give "
                "an address as bootstrap_servers",
                config="cluster",
            )
        return given
    options = config.get("storage_options")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidConfigurationError(
            f"{client}(storage_options=...) takes a dict for the storage's client, not {type(options).__name__}",
            config="storage_options",
        )
    root = root_of(client, config.get("bootstrap_servers"))
    timeout_ms = whole_number(client, {**CLUSTER_ARGUMENTS, **config}, "bootstrap_timeout_ms")
    return _opened(root, cast("Mapping[str, object] | None", options), timeout_ms / 1000)


def _opened(root: str, options: Mapping[str, object] | None, seconds: float) -> Coordinator:
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while True:
        try:
            return shared_cluster(root, options)
        except StorageUnavailableError as error:
            if clock.monotonic() + OPEN_PAUSE_SECONDS > deadline:
                raise
            logger.info("%s does not answer and is asked again: %s", root, error)
            clock.sleep(OPEN_PAUSE_SECONDS)


def root_of(client: str, servers: object) -> str:
    """The cluster's root from ``bootstrap_servers``: an address or folder, or a list that has only that.

    Raises InvalidConfigurationError for anything else.
    """
    found = servers
    if isinstance(servers, list | tuple | set | frozenset) and len(servers) == 1:
        found = next(iter(servers))
    if isinstance(found, os.PathLike):
        found = os.fspath(found)
    if not isinstance(found, str) or not found.strip() or _HOST_AND_PORT.fullmatch(found):
        raise InvalidConfigurationError(
            f"{client}(bootstrap_servers={servers!r}): give the one root of the cluster, a folder or an address such "
            "as '/data/log' or 's3://bucket/log'; there is no server with a port",
            config="bootstrap_servers",
        )
    return found
