"""A cluster as a Python object: made or opened by its root, with its topics and the clients that work on it.

    cluster = sparklog.create_cluster("/data/log")
    cluster.create_topic("orders", partitions=4)
    with cluster.producer() as producer:
        producer.send("orders", b"value")

Rules: thread-safe. It shows what this process has read; a method that answers from the storage says so.
Not for: what administrators do beyond topics (``client.admin``), decisions and commits (``coordinator``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sparklog.client.admin import AdminClient
from sparklog.client.config import cluster_of, root_of
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.client.representation import Facts, Shown, listed, table
from sparklog.client.scan import Scan, scan
from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator import create_cluster as create
from sparklog.errors import ClusterAlreadyExistsError, TopicAlreadyExistsError
from sparklog.protocol.names import is_internal_topic

Root = str | os.PathLike[str]
"""A folder, or an address such as ``s3://bucket/log``."""


def create_cluster(
    root: Root | None = None, storage_options: Mapping[str, object] | None = None, *, if_not_exists: bool = False
) -> Cluster:
    """Create a cluster at a folder or address (default: SPARKLOG_BOOTSTRAP_SERVER), and open it.

    ``storage_options`` go to the storage's client, as ``Producer`` takes them. With ``if_not_exists`` a cluster that is
    there already is opened.

        >>> cluster = sparklog.create_cluster(root, if_not_exists=True)
        >>> cluster.topics()
        ['orders']

    Raises:
        ClusterAlreadyExistsError: there is one at this root.
        InvalidConfigurationError: a host and port in place of a root.
        UnsupportedStoreError: no such kind of storage, or its package is not installed.
        StorageError: the storage did not answer, or refused.
    """
    address = root_of("create_cluster", root, "root")
    try:
        create(address, storage_options)
    except ClusterAlreadyExistsError as error:
        if not if_not_exists:
            raise ClusterAlreadyExistsError(
                f"{error.message}; if_not_exists=True, or sparklog.open_cluster, opens the one that is there",
                **error.context,
            ) from error
    return open_cluster(address, storage_options)


def open_cluster(root: Root | None = None, storage_options: Mapping[str, object] | None = None) -> Cluster:
    """Open the cluster at a folder or address (default: SPARKLOG_BOOTSTRAP_SERVER). The clients of a process share what
    they know of it.

        >>> sparklog.open_cluster(root).topics()
        ['orders']

    Raises:
        ClusterNotFoundError: there is none at this root.
        InvalidConfigurationError, UnsupportedStoreError, StorageError: as ``create_cluster``.
    """
    given = {"bootstrap_servers": root, "storage_options": storage_options}
    return Cluster(cluster_of("open_cluster", given, "root"))


class Cluster(Shown):
    """A log on shared storage: its topics, and the clients of it. Thread-safe.

    Made by ``sparklog.create_cluster`` and ``sparklog.open_cluster``. ``Producer``, ``Consumer`` and ``AdminClient``
    take it as ``cluster=``.

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
        """The folder or address, without credentials: what clients take as ``bootstrap_servers``."""
        return self.coordinator.store.root

    @property
    def cluster_id(self) -> str:
        """Kafka's cluster id: 22 characters."""
        return self.coordinator.state.cluster_id

    # -- topics

    def topics(self) -> list[str]:
        """The names of the topics that exist now, without internal ones. Reads the storage; raises StorageError."""
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
        self.coordinator.delete_topic(name)

    def offsets(self, topic: str) -> dict[int, tuple[int, int]]:
        """The first offset of each partition, and the one after its last record. Reads the storage.

            cluster.offsets("orders")        # {0: (0, 1200), 1: (0, 1187)}

        Raises UnknownTopicOrPartitionError, StorageError.
        """
        partitions = self.coordinator.refresh().topic(topic).partitions
        return {number: (at.log_start_offset, at.high_watermark) for number, at in enumerate(partitions)}

    # -- clients

    def producer(self, **configs: Any) -> Producer:
        """A ``Producer`` of this cluster; arguments and errors are those of the class."""
        return Producer(cluster=self.coordinator, **configs)

    def consumer(self, *topics: str, **configs: Any) -> Consumer:
        """A ``Consumer`` of this cluster; arguments and errors are those of the class."""
        return Consumer(*topics, cluster=self.coordinator, **configs)

    def scan(self, topic: str, **arguments: Any) -> Scan:
        """The committed records of a topic as Arrow; arguments and errors are those of ``sparklog.scan``.

        >>> sparklog.open_cluster(root).scan("orders").to_arrow().num_rows
        0
        """
        return scan(topic, cluster=self.coordinator, **arguments)

    def admin(self, **configs: Any) -> AdminClient:
        """An ``AdminClient`` of this cluster; arguments and errors are those of the class."""
        return AdminClient(cluster=self.coordinator, **configs)

    # -- showing

    def _facts(self) -> Facts:
        state = self.coordinator.state
        names = [name for name in state.topics if not is_internal_topic(name)]
        return {"root": self.root, "id": state.cluster_id, "topics": listed(names) or "none"}

    def _repr_html_(self) -> str:
        try:
            state = self.coordinator.state
            rows = [
                (
                    name,
                    len(found.partitions),
                    f"{sum(at.high_watermark - at.log_start_offset for at in found.partitions):,}",
                    f"{sum(at.size_bytes for at in found.partitions):,}",
                )
                for name, found in sorted(state.topics.items())
                if not is_internal_topic(name)
            ]
            title = f"Cluster {self.root} ({state.cluster_id}), version {state.version}"
        except Exception:
            return super()._repr_html_()
        return table(title, ["topic", "partitions", "offsets", "bytes"], rows)
