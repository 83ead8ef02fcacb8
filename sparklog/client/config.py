"""The arguments of the Python clients: their names, the checks of their values, and the cluster they name.

    config = check_arguments("Producer", given, PRODUCER_DEFAULTS, NO_EFFECT)
    coordinator = cluster_of("Producer", config)

Rules: names and defaults are those of kafka-python (2.3 and 3.1), so that a program migrates by changing the import and
``bootstrap_servers``; without the latter, SPARKLOG_BOOTSTRAP_SERVER names the cluster. Arguments that only make sense
with sockets are accepted without effect, with a line in the debug log; an unknown name is refused, with the nearest
known one.

Not for: the effect of the arguments, and configs of topics and of the cluster (``sparklog.config``).
"""

from __future__ import annotations

import inspect
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparklog.clock import SystemClock
from sparklog.config.environment import ROOT_VARIABLE, default_root
from sparklog.config.kafka_addresses import are_brokers
from sparklog.coordinator import Coordinator
from sparklog.coordinator.shared import shared_cluster
from sparklog.errors import (
    InvalidClientConfigurationError,
    InvalidClientConfigurationTypeError,
    StorageUnavailableError,
)
from sparklog.errors.suggestions import did_you_mean
from sparklog.retry import is_a, pauses_until, retry
from sparklog.types import as_python, is_array, number, without_secrets

logger = logging.getLogger(__name__)

SOCKET_DEFAULTS: Mapping[str, object] = {
    "api_version": None,
    "client_dns_lookup": "use_all_dns_ips",
    "connections_max_idle_ms": 540_000,
    "kafka_client": None,
    "max_in_flight_requests_per_connection": 5,
    "net": None,
    "proxy_url": None,
    "receive_buffer_bytes": None,
    "receive_message_max_bytes": 100_000_000,
    "reconnect_backoff_max_ms": 30_000,
    "reconnect_backoff_ms": 50,
    "sasl_kerberos_domain_name": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_mechanism": None,
    "sasl_oauth_token_provider": None,
    "sasl_plain_password": None,
    "sasl_plain_username": None,
    "security_protocol": "PLAINTEXT",
    "selector": None,
    "send_buffer_bytes": None,
    "socket_connection_setup_timeout_max_ms": 30_000,
    "socket_connection_setup_timeout_ms": 10_000,
    "socket_options": [(6, 1, 1)],
    "socks5_proxy": None,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_check_hostname": True,
    "ssl_context": None,
    "ssl_crlfile": None,
    "ssl_keyfile": None,
    "ssl_password": None,
}
"""Arguments for connections that all of kafka-python's clients have, with their defaults. Accepted and shown in
``config``, but without effect: there are no connections."""

SOCKET_ARGUMENTS = frozenset(SOCKET_DEFAULTS) | {
    "api_version_auto_timeout_ms",
    "bootstrap_topics_filter",
    "sock_chunk_buffer_count",
    "sock_chunk_bytes",
    "ssl_ciphers",
}
"""The same, and the arguments that only some clients, or only those of kafka-python 2, have."""

METRIC_ARGUMENTS: Mapping[str, object] = {
    "metric_reporters": [],
    "metrics_enabled": True,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30_000,
}
"""Arguments for metrics, with kafka-python's defaults; see ``client.metrics``."""

API_VERSION = (4, 2)
"""The value of ``config["api_version"]``, which in kafka-python is the version of the Kafka broker."""

CLUSTER_ARGUMENTS: Mapping[str, object] = {
    "bootstrap_servers": None,
    "bootstrap_timeout_ms": 30_000,
    "storage_options": None,
    "cluster": None,
}
"""Arguments that name the cluster: its root, how long to try to open it, and the options of the storage's client; or an
open cluster."""

Converter = Callable[[str, "list[tuple[str, Any]]", Any], Any]
"""(topic, headers, data) -> bytes for a serializer, any object for a deserializer; data may be None."""

OPEN_PAUSE_SECONDS = 0.1
"""seconds between two attempts to open a cluster whose storage does not answer."""


def check_arguments(
    client: str,
    given: Mapping[str, object],
    known: Mapping[str, object],
    ignored: frozenset[str] = SOCKET_ARGUMENTS,
) -> dict[str, Any]:
    """Return every argument in ``known``, with the given value or else the default.

    Names in ``ignored`` are dropped with a debug log line, even if their value is None. ``client`` is the class's name,
    for messages.

    Raises:
        InvalidClientConfigurationError: an unknown name; the message suggests the nearest one.
    """
    config = dict(known)
    for name, value in given.items():
        if name in config:
            config[name] = value
        elif name in ignored:
            logger.debug("%s(%s=...) has no effect: there is no server to connect to", client, name)
        else:
            hint = did_you_mean(name, known) or f"; it takes {', '.join(sorted(known))}"
            raise InvalidClientConfigurationError(f"{client} has no argument {name[:100]!r}{hint}", config=name)
    return config


HIDDEN = "[hidden]"
"""What is shown of a secret, and of an option of the storage's client, any of which may be one; Kafka's word."""

_SECRETS = ("sasl_plain_password", "ssl_password")
_ADDRESSES = ("proxy_url", "socks5_proxy")
"""Arguments that may have a user and a password in front of a host."""


def build_shown_config(
    defaults: Mapping[str, object], given: Mapping[str, object], coordinator: Coordinator
) -> dict[str, Any]:
    """Return the ``config`` that a client shows: every argument, with the given value or the default, but for
    passwords and the values of ``storage_options``."""
    servers = given.get("bootstrap_servers")
    config: dict[str, Any] = {**defaults, **given}
    if config.get("api_version") is None:
        config["api_version"] = API_VERSION
    if servers is None:
        config["bootstrap_servers"] = coordinator.store.root
    elif isinstance(servers, os.PathLike):
        config["bootstrap_servers"] = os.fspath(servers)
    if isinstance(config.get("storage_options"), Mapping):
        config["storage_options"] = dict.fromkeys(config["storage_options"], HIDDEN)
    config.update((name, HIDDEN) for name in _SECRETS if config.get(name) is not None)
    config.update((name, without_secrets(config[name])) for name in _ADDRESSES if isinstance(config.get(name), str))
    return config


# -- values


def whole_number(client: str, config: Mapping[str, Any], name: str, least: int = 0) -> int:
    """Return the value of an argument that is a whole number of at least ``least``.

    ``math.inf``, which in kafka-python means no limit, becomes the largest int64. Raises
    InvalidClientConfigurationError, for another type its subclass InvalidClientConfigurationTypeError.
    """
    value = config[name]
    if value == math.inf:
        value = 2**63 - 1
    given = number(value)
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if given is None or isinstance(given, float) or given < least:
        raise invalid_argument(client, name, value, f"give a whole number of at least {least}", of_type=given is None)
    return given


def milliseconds(client: str, config: Mapping[str, Any], name: str, least: int = 0) -> float:
    """Return the value of an argument that is a time of at least ``least`` milliseconds; fractions are accepted.

    ``math.inf`` and errors as in ``whole_number``.
    """
    value = config[name]
    given = number(value)
    if given is None or not given >= least:
        raise invalid_argument(client, name, value, f"give milliseconds of at least {least}", of_type=given is None)
    return 2**63 - 1 if given == math.inf else given


def one_of(client: str, config: Mapping[str, object], name: str, choices: Sequence[object]) -> Any:
    """Return the value of an argument that is one of ``choices``. Raises InvalidClientConfigurationError."""
    value = as_python(config[name])
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        shown = ", ".join(repr(choice) for choice in choices)
        raise invalid_argument(client, name, config[name], f"give one of {shown}")
    return value


# -- the cluster


def invalid_argument(
    client: str, name: str, value: object, what: str, of_type: bool = False
) -> InvalidClientConfigurationError:
    """Return the error of an argument; ``what`` says what to give instead."""
    kind = InvalidClientConfigurationTypeError if of_type else InvalidClientConfigurationError
    return kind(f"{client}({name}={value!r}): {what}", config=name, value=value)


def converter(client: str, name: str, given: Any, method_name: str, data: str) -> Converter | None:
    """Return the serializer or deserializer that an argument gives, as a function of (topic, headers, data).

    It is given as a function of the data, or as an object whose method takes (topic, headers, data) or (topic, data).
    ``data`` is its name, for messages. Raises InvalidClientConfigurationTypeError.
    """
    if given is None:
        return None
    method: Any = getattr(given, method_name, None)
    if callable(method):
        return method if takes(method, "topic", [], b"") else lambda topic, headers, value: method(topic, value)
    if callable(given):
        return lambda topic, headers, value: given(value)
    what = f"give a function of the {data}, or an object with {method_name}(topic, headers, {data})"
    raise invalid_argument(client, name, given, what, of_type=True)


def takes(method: Callable[..., object], *arguments: object) -> bool:
    """Return whether a method of the user's can be called with these arguments; true if it has no signature."""
    try:
        inspect.signature(method).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True


def close_converters(*given: object) -> None:
    """Close serializers or deserializers, as far as they have a method ``close``."""
    for converter in given:
        close = getattr(converter, "close", None)
        if callable(close):
            close()


def cluster_of(client: str, config: Mapping[str, object], address: str = "bootstrap_servers") -> Coordinator:
    """Return the coordinator of the cluster that the arguments name; the clients of a process share it.

    If the storage does not answer, opening is retried for ``bootstrap_timeout_ms``, as in Kafka's clients. ``address``
    is the name of the argument for the root, for messages.

    Raises InvalidClientConfigurationError if they name no cluster, and the errors of ``shared_cluster``.
    """
    cluster = config.get("cluster")
    coordinator = getattr(cluster, "coordinator", cluster)
    if coordinator is not None:
        if not isinstance(coordinator, Coordinator):
            raise InvalidClientConfigurationError(
                f"{client}(cluster=...) takes the result of sparklog.open_cluster(), not {type(cluster).__name__}; "
                f"give a folder or URL as {address}",
                config="cluster",
            )
        return coordinator
    options = config.get("storage_options")
    if options is not None and not isinstance(options, Mapping):
        raise InvalidClientConfigurationError(
            f"{client}(storage_options=...) takes a dict for the storage's client, not {type(options).__name__}",
            config="storage_options",
        )
    root = root_of(client, config.get("bootstrap_servers"), address)
    timeout_ms = milliseconds(client, {**CLUSTER_ARGUMENTS, **config}, "bootstrap_timeout_ms")
    return _open_cluster(root, options, timeout_ms / 1000)


def _open_cluster(root: str, options: Mapping[str, object] | None, seconds: float) -> Coordinator:
    clock = SystemClock()
    return retry(
        lambda: shared_cluster(root, options),
        clock,
        pauses_until(clock.monotonic() + seconds, OPEN_PAUSE_SECONDS, clock),
        is_a(StorageUnavailableError),
        note=lambda error: logger.info("retrying to open %s after: %s", root, error),
    )


root_for_brokers: list[str | None] = []
"""Empty: addresses of brokers are refused. Otherwise they stand for this root; None is the root of the environment."""


def answer_brokers_with(root: str | None) -> None:
    """Use this cluster for addresses of Kafka brokers, and for none, in this process: programs may not be editable.

    None is the cluster that SPARKLOG_BOOTSTRAP_SERVER names; if it names none, addresses of brokers are refused. Raises
    InvalidClientConfigurationError if the root is itself an address of brokers.
    """
    if _are_brokers(root):
        raise _not_a_root("install", "root", root)
    root_for_brokers[:] = [root]


def root_of(client: str, servers: object, address: str = "bootstrap_servers") -> str:
    """Return the cluster's root from ``bootstrap_servers``: a folder or URL, or a list of only that.

    None means the root given to ``answer_brokers_with``, or that of SPARKLOG_BOOTSTRAP_SERVER. Raises
    InvalidClientConfigurationError for anything else.
    """
    installed = root_for_brokers[0] if root_for_brokers else None
    if servers is None:
        servers = installed or default_root()
    if is_array(servers):
        servers = servers.tolist()  # type: ignore[attr-defined]
    root = servers = as_python(servers)
    if isinstance(servers, list | tuple | set | frozenset) and len(servers) == 1:
        root = next(iter(servers))
    if isinstance(root, os.PathLike):
        root = os.fspath(root)
    if _are_brokers(servers):
        root = (installed or default_root()) if root_for_brokers else None
        if root is not None and not _are_brokers(root):
            logger.info("%s(%s=%r): using the cluster at %s", client, address, servers, root)
    if not isinstance(root, str) or not root.strip() or _are_brokers(root):
        raise _not_a_root(client, address, servers)
    return root


def _not_a_root(client: str, address: str, given: object) -> InvalidClientConfigurationError:
    return InvalidClientConfigurationError(
        f"{client}({address}={given!r}): give the one root of the cluster, a folder or an address such as '/data/log' "
        f"or 's3://bucket/log', or set {ROOT_VARIABLE}; there is no server with a port",
        config=address,
    )


def _are_brokers(servers: object) -> bool:
    addresses = [servers] if isinstance(servers, str) else servers
    if not isinstance(addresses, list | tuple | set | frozenset) or not addresses:
        return False
    return all(isinstance(entry, str) and are_brokers(entry) for entry in addresses)
