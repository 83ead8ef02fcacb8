"""The arguments of ``Producer``, ``Consumer`` and ``AdminClient`` as types, for editors and type checkers.

    def __init__(self, **configs: Unpack[ProducerArguments])

An editor completes the names; mypy reports misspelt names and values of the wrong type. A program that collects its
arguments in a dict declares it: ``config: ProducerArguments = {"acks": "all"}``.

Rules: types alone. Every argument of a client is listed here, which a test checks; times are milliseconds if the name
says so, sizes are bytes. A ``float`` accepts fractions and ``math.inf``, except ``retries``, which accepts whole
numbers and ``math.inf``: a type cannot say that. Not for: defaults and checks (``config``, ``producer.config``,
``consumer.config``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict

from sparklog.client.serializers import Deserializer, Serializer
from sparklog.coordinator import Coordinator
from sparklog.types import OffsetAndMetadata, TopicPartition

Acks = Literal[-1, 0, 1, "all"]
"""Which replicas must have the records before a commit; -1 means all, as ``"all"`` does."""

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
"""The codec of a producer, unless the topic's ``compression.type`` names one."""

Isolation = Literal["read_uncommitted", "read_committed"]
"""Both read the same: records get offsets only when they are committed."""


class HeaderSerializer(Protocol):
    """An object with the interface of ``Serializer``."""

    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any, /) -> Any: ...


class TopicSerializer(Protocol):
    """An object that serializes without the headers, as in kafka-python 2."""

    def serialize(self, topic: str, data: Any, /) -> Any: ...


class HeaderDeserializer(Protocol):
    """An object with the interface of ``Deserializer``."""

    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: Any, /) -> Any: ...


class TopicDeserializer(Protocol):
    """An object that deserializes without the headers, as in kafka-python 2."""

    def deserialize(self, topic: str, data: Any, /) -> Any: ...


class ChoosesPartitions(Protocol):
    """An object with the interface of ``Partitioner``."""

    def partition(
        self,
        topic: str,
        key: Any,
        serialized_key: bytes | None,
        value: Any,
        serialized_value: bytes | None,
        cluster: Any,
        /,
    ) -> int: ...


class AssignsPartitions(Protocol):
    """An object, or a class, with the interface of ``AbstractPartitionAssignor``."""

    @property
    def name(self) -> str: ...

    def assign(self, cluster: Any, members: Iterable[Any], /) -> Any: ...


class OpenCluster(Protocol):
    """What ``sparklog.open_cluster`` returns, a ``Cluster``."""

    @property
    def coordinator(self) -> Coordinator: ...


Bytes = bytes | bytearray | memoryview | None
AnySerializer = Serializer | HeaderSerializer | TopicSerializer | Callable[[Any], Bytes]
AnyDeserializer = Deserializer | HeaderDeserializer | TopicDeserializer | Callable[[Any], Any]
AnyPartitioner = ChoosesPartitions | Callable[["bytes | None", "list[int]", "list[int]"], int]
AnyAssignor = str | AssignsPartitions | type[AssignsPartitions]
CommitCallback = Callable[["dict[TopicPartition, OffsetAndMetadata]", Any], object]


class ClusterArguments(TypedDict, total=False):
    """The cluster: its root and the options of the storage's client, or an open cluster."""

    bootstrap_servers: str | os.PathLike[str] | Iterable[str] | None
    bootstrap_timeout_ms: float
    storage_options: Mapping[str, Any] | None
    cluster: Coordinator | OpenCluster | None


class SocketArguments(TypedDict, total=False):
    """Arguments of kafka-python's clients for connections. No effect: there are no connections."""

    api_version: tuple[int, ...] | str | None
    api_version_auto_timeout_ms: float
    bootstrap_topics_filter: Iterable[str]
    client_dns_lookup: str | None
    connections_max_idle_ms: float
    kafka_client: Any
    max_in_flight_requests_per_connection: int
    net: Any
    proxy_url: str | None
    receive_buffer_bytes: int | None
    receive_message_max_bytes: int
    reconnect_backoff_max_ms: float
    reconnect_backoff_ms: float
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_name: str | None
    sasl_kerberos_service_name: str | None
    sasl_mechanism: str | None
    sasl_oauth_token_provider: Any
    sasl_plain_password: str | None
    sasl_plain_username: str | None
    security_protocol: str
    selector: Any
    send_buffer_bytes: int | None
    sock_chunk_buffer_count: int
    sock_chunk_bytes: int
    socket_connection_setup_timeout_max_ms: float
    socket_connection_setup_timeout_ms: float
    socket_options: Sequence[Sequence[Any]]
    socks5_proxy: str | None
    ssl_cafile: str | os.PathLike[str] | None
    ssl_certfile: str | os.PathLike[str] | None
    ssl_check_hostname: bool
    ssl_ciphers: str | None
    ssl_context: Any
    ssl_crlfile: str | os.PathLike[str] | None
    ssl_keyfile: str | os.PathLike[str] | None
    ssl_password: Any


class MetricArguments(TypedDict, total=False):
    """The metrics of clients. No effect on ``AdminClient``, which has none."""

    metric_reporters: Sequence[Any]
    metrics_enabled: bool
    metrics_num_samples: int
    metrics_sample_window_ms: float


class ProducerArguments(ClusterArguments, SocketArguments, MetricArguments, total=False):
    """The arguments of ``Producer``; see docs/clients.md for their meaning and defaults."""

    acks: Acks
    allow_auto_create_topics: bool
    batch_size: int
    buffer_memory: int
    client_id: str | None
    compression_type: Compression | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    default_api_timeout_ms: float
    delivery_timeout_ms: float
    enable_idempotence: bool
    key_serializer: AnySerializer | None
    linger_ms: float
    max_block_ms: float
    max_request_size: int
    metadata_max_age_ms: float
    partitioner: AnyPartitioner | None
    request_timeout_ms: float
    retries: float
    retry_backoff_ms: float
    transaction_timeout_ms: float
    transactional_id: str | None
    value_serializer: AnySerializer | None


class ConsumerArguments(ClusterArguments, SocketArguments, MetricArguments, total=False):
    """The arguments of ``Consumer``; see docs/clients.md for their meaning and defaults."""

    allow_auto_create_topics: bool
    auto_commit_interval_ms: float
    auto_offset_reset: str
    check_crcs: bool
    client_id: str | None
    client_rack: str | None
    consumer_timeout_ms: float
    default_api_timeout_ms: float
    default_offset_commit_callback: CommitCallback | None
    enable_auto_commit: bool
    enable_incremental_fetch_sessions: bool
    exclude_internal_topics: bool
    fetch_max_bytes: int
    fetch_max_wait_ms: float
    fetch_min_bytes: int
    group_id: str | bytes | None
    group_instance_id: str | None
    heartbeat_interval_ms: float
    isolation_level: Isolation
    key_deserializer: AnyDeserializer | None
    max_partition_fetch_bytes: int
    max_poll_interval_ms: float
    max_poll_records: int
    metadata_max_age_ms: float
    metric_group_prefix: str
    partition_assignment_strategy: AnyAssignor | Sequence[AnyAssignor]
    request_timeout_ms: float
    retry_backoff_ms: float
    session_timeout_ms: int
    tail_backoff_ms: float
    tail_backoff_max_ms: float | None
    value_deserializer: AnyDeserializer | None


class AdminArguments(ClusterArguments, SocketArguments, MetricArguments, total=False):
    """The arguments of ``AdminClient``."""

    client_id: str | None
    default_api_timeout_ms: float
    metadata_max_age_ms: float
    request_timeout_ms: float
    retry_backoff_ms: float
