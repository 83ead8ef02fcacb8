"""A cluster as a Python object: created or opened by its root, with its topics and clients.

    cluster = sparklog.create_cluster("/data/log")
    cluster.create_topic("orders", partitions=4)
    with cluster.producer() as producer:
        producer.send("orders", b"value")

Rules: thread-safe. It shows the state that this process has read; methods that read the storage say so. Not for:
administration beyond topics (``client.admin``), decisions and commits (``coordinator``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from sparklog.client.admin.client import AdminClient
from sparklog.client.config import cluster_of, root_of
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.client.representation import Facts, Shown, join_names, shorten, table
from sparklog.client.scan.scan import Scan, scan
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator import create_cluster as create
from sparklog.coordinator.group_liveness import abandoned_emptied
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import ClusterAlreadyExistsError, FeatureLevelError, TopicAlreadyExistsError
from sparklog.monitoring.facts.groups import Groups, group_facts
from sparklog.monitoring.facts.topics import topic_facts
from sparklog.protocol import levels
from sparklog.protocol.names import is_internal_topic
from sparklog.protocol.state import State
from sparklog.types import printable

Root = str | os.PathLike[str]
"""A folder, or a URL such as ``s3://bucket/log``."""


def create_cluster(
    root: Root | None = None,
    storage_options: Mapping[str, object] | None = None,
    *,
    if_not_exists: bool = False,
    release_version: str | None = None,
) -> Cluster:
    """Create a cluster in a folder or at a URL (default: SPARKLOG_BOOTSTRAP_SERVER), and open it.

    ``storage_options`` are passed to the storage's client, as by ``Producer``. With ``if_not_exists`` an existing
    cluster is opened. ``release_version`` is the oldest version of sparklog that is to read and write it, such as
    ``"0.2.0"`` (default: this one); features of later versions need `sparklog features upgrade` first.

        >>> cluster = sparklog.create_cluster(root, if_not_exists=True)
        >>> cluster.topics()
        ['orders']

    Raises:
        ClusterAlreadyExistsError: there is a cluster at this root.
        InvalidConfigurationError: the root is a host and port.
        FeatureLevelError: this version does not write what that release reads.
        UnsupportedStoreError: unknown kind of storage, or its package is not installed.
        StorageError: the storage did not answer, or refused the request.
    """
    address = root_of("create_cluster", root, "root")
    try:
        create(address, storage_options, level=level_of(release_version))
    except ClusterAlreadyExistsError as error:
        if not if_not_exists:
            raise ClusterAlreadyExistsError(
                f"{error.message}; to open it, use if_not_exists=True or sparklog.open_cluster()",
                **error.context,
            ) from error
    return open_cluster(address, storage_options)


def level_of(release: str | None) -> int:
    """Return the feature level of a release (None: of this one). Raises FeatureLevelError for an unknown release."""
    level = levels.CURRENT if release is None else levels.level_of_release(release)
    if level is None:
        known = ", ".join(entry.since for entry in levels.LEVELS)
        raise FeatureLevelError(
            f"unknown release version {release!r}: this is sparklog {levels.RELEASE}, and levels came with {known}"
        )
    return level


def open_cluster(root: Root | None = None, storage_options: Mapping[str, object] | None = None) -> Cluster:
    """Open the cluster in a folder or at a URL (default: SPARKLOG_BOOTSTRAP_SERVER).

    The clients of a process share its state.

        >>> sparklog.open_cluster(root).topics()
        ['orders']

    Raises:
        ClusterNotFoundError: there is no cluster at this root.
        InvalidConfigurationError, UnsupportedStoreError, StorageError: as ``create_cluster``.
    """
    given = {"bootstrap_servers": root, "storage_options": storage_options}
    return Cluster(cluster_of("open_cluster", given, "root"))


class Cluster(Shown):
    """A log on shared storage, with its topics and clients. Thread-safe.

    Returned by ``sparklog.create_cluster`` and ``sparklog.open_cluster``. ``Producer``, ``Consumer`` and
    ``AdminClient`` accept it as ``cluster=``.

        >>> cluster = sparklog.open_cluster(root)
        >>> cluster.create_topic("payments", partitions=2)
        >>> with cluster.producer() as producer:
        ...     _ = producer.send("payments", b"v", partition=1)
        >>> cluster.offsets("payments")
        {0: (0, 0), 1: (0, 1)}
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator

    @property
    def root(self) -> str:
        """The folder or URL, without credentials: the ``bootstrap_servers`` of clients."""
        return self.coordinator.store.root

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id: 22 characters."""
        return self.coordinator.state.cluster_id

    # -- topics

    def topics(self) -> list[str]:
        """Return the names of the existing topics, without internal ones. Reads the storage; raises StorageError."""
        return sorted(name for name in self.coordinator.refresh().topics if not is_internal_topic(name))

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
        if_not_exists: bool = False,
    ) -> None:
        """Create a topic. Partitions and replicas default to the cluster's ``num.partitions`` and
        ``default.replication.factor``; ``configs`` are Kafka's topic configs.

            cluster.create_topic("orders", partitions=4, configs={"retention.ms": "86400000"})

        Raises TopicAlreadyExistsError (not with ``if_not_exists``), InvalidTopicError, InvalidPartitionsError,
        InvalidReplicationFactorError, InvalidConfigurationError, StorageError.
        """
        defaults = ClusterConfig.resolve(self.coordinator.refresh().configs)
        try:
            self.coordinator.create_topic(
                name,
                defaults.num_partitions if partitions is None else partitions,
                defaults.default_replication_factor if replication_factor is None else replication_factor,
                configs,
            )
        except TopicAlreadyExistsError:
            if not if_not_exists:
                raise

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records. Raises UnknownTopicOrPartitionError, PolicyViolationError, StorageError."""
        delete_topic(self.coordinator, name)

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return the first offset of each partition and the one after its last record. Reads the storage.

            cluster.offsets("orders")        # {0: (0, 1200), 1: (0, 1187)}

        Raises UnknownTopicOrPartitionError, StorageError.
        """
        partitions = self.coordinator.refresh().topic(topic).partitions
        return {number: (state.log_start_offset, state.high_watermark) for number, state in enumerate(partitions)}

    # -- clients

    def producer(self, **configs: Any) -> Producer:
        """Return a ``Producer`` of this cluster; arguments and errors are those of the class."""
        return Producer(cluster=self.coordinator, **configs)

    def consumer(self, *topics: str, **configs: Any) -> Consumer:
        """Return a ``Consumer`` of this cluster; arguments and errors are those of the class."""
        return Consumer(*topics, cluster=self.coordinator, **configs)

    def scan(self, topic: str, **arguments: Any) -> Scan:
        """Return the committed records of a topic as Arrow; arguments and errors are those of ``sparklog.scan``.

        >>> sparklog.open_cluster(root).scan("orders").to_arrow().num_rows
        0
        """
        return scan(topic, cluster=self.coordinator, **arguments)

    def admin(self, **configs: Any) -> AdminClient:
        """Return an ``AdminClient`` of this cluster; arguments and errors are those of the class."""
        return AdminClient(cluster=self.coordinator, **configs)

    # -- representation

    def _facts(self) -> Facts:
        state = self.coordinator.state
        names = [name for name in state.topics if not is_internal_topic(name)]
        return {"root": self.root, "id": state.cluster_id, "topics": join_names(names) or "none"}

    def _repr_html_(self) -> str:
        try:
            state = self.coordinator.state
            title = f"Cluster {printable(self.root)} ({state.cluster_id}), version {state.version}"
            topics = [name for name in sorted(state.topics) if not is_internal_topic(name)]
            shown = table(title, _TOPIC_COLUMNS, _first_rows(topics, partial(_topic_row, state)))
            if not state.groups:
                return shown
            groups = abandoned_emptied(self.coordinator, state.groups)
            return shown + table(
                "consumer groups", _GROUP_COLUMNS, _first_rows(groups, partial(_group_row, state, groups))
            )
        except Exception:
            return super()._repr_html_()


ROWS_SHOWN = 50
"""Topics, and groups, that a notebook shows of a cluster; the others are counted."""

_TOPIC_COLUMNS = ("topic", "partitions", "offsets", "bytes")
_GROUP_COLUMNS = ("group", "state", "members", "partitions", "lag")


def _first_rows(names: Iterable[str], row: Callable[[str], tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    ordered = sorted(names)
    yield from map(row, ordered[:ROWS_SHOWN])
    if len(ordered) > ROWS_SHOWN:
        yield (f"… and {len(ordered) - ROWS_SHOWN:,} more",)


def _topic_row(state: State, name: str) -> tuple[object, ...]:
    facts = topic_facts(state.topics[name])
    return facts.topic, facts.partitions, f"{facts.offsets:,}", f"{facts.bytes:,}"


def _group_row(state: State, known: Groups, name: str) -> tuple[object, ...]:
    facts = group_facts(state, name, known[name])
    return shorten(name), facts.state, facts.members, facts.partitions, f"{facts.lag:,}"
