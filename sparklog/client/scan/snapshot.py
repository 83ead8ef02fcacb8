"""All topics of a cluster at one version, so that a join of several is of one moment.

    then = sparklog.snapshot("/data/log", as_of=datetime(2026, 11, 1, tzinfo=timezone.utc))
    orders, customers = then.scan("orders").to_arrow(), then.scan("customers").to_arrow()
    then.table(spark, "orders").join(then.table(spark, "customers"), "customer")

Rules: a version is a number, so nothing is kept for a snapshot: it lasts as long as the commits and records do.
Not for: reading (``scan``, ``sparklog.table``, ``sparklog.create_view``, ``sparklog.read``).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sparklog.client.config import cluster_of
from sparklog.client.representation import Facts, Shown
from sparklog.client.scan.scan import EPOCH, Scan, find_time_ms, scan
from sparklog.coordinator import Coordinator
from sparklog.log.past_offsets import find_past_time, find_past_topics, find_past_version


def snapshot(
    root: str | os.PathLike[str] | None = None,
    *,
    version: int | None = None,
    as_of: datetime | int | None = None,
    storage_options: Mapping[str, object] | None = None,
    cluster: Any = None,
) -> Snapshot:
    """Return all topics of a cluster at one version: by default the newest, else ``version``, or the newest one at the
    time ``as_of``, a datetime with a time zone or ms since the epoch.

    ``root`` is the folder or URL of the cluster, with ``storage_options`` for the storage's client; or give an open
    ``cluster``. A version shows each topic up to the offsets at which it ended then, without records that were removed
    since. It can be read as long as the commits after it are kept (``metadata.max.retention.ms``).

        >>> with sparklog.Producer(bootstrap_servers=root) as producer:
        ...     _ = producer.send("orders", b"a").get()
        ...     then = sparklog.snapshot(root)
        ...     _ = producer.send("orders", b"b").get()
        >>> then.topics
        ('orders',)
        >>> then.scan("orders", columns=["value"]).to_arrow().to_pylist()
        [{'value': b'a'}]

    Raises:
        InvalidRequestError: a version that does not exist, or is too old to be known.
        InvalidConfigurationError: an invalid argument; the message names it.
        ClusterNotFoundError, StorageError: as ``Consumer``.
    """
    time_ms = find_time_ms("snapshot", version, as_of)
    given = {"bootstrap_servers": root, "storage_options": storage_options, "cluster": cluster}
    coordinator = cluster_of("snapshot", given, "root")
    state = coordinator.refresh()
    past = find_past_version(coordinator.log, state, version, time_ms)
    if past is None:
        past = state.version
    topics = find_past_topics(coordinator.log, state, past)
    return Snapshot(coordinator, past, find_past_time(coordinator.log, state, past), sorted(topics), storage_options)


class Snapshot(Shown):
    """All topics of a cluster at one version. Returned by ``sparklog.snapshot``. Immutable, thread-safe.

    ``version`` is the version of the cluster, ``timestamp`` the time of its commit (None if only later commits are
    kept), and ``topics`` the names of the topics that existed then and still exist.

        >>> _ = sparklog.Producer(bootstrap_servers=root).send("orders", b"a").get()
        >>> then = sparklog.snapshot(root)
        >>> sparklog.snapshot(root, version=then.version).topics
        ('orders',)
    """

    def __init__(
        self,
        coordinator: Coordinator,
        version: int,
        time_ms: int | None,
        topics: Sequence[str],
        storage_options: Mapping[str, object] | None,
    ) -> None:
        self._coordinator = coordinator
        self._storage_options = storage_options
        self.version = version
        self.timestamp = None if time_ms is None else EPOCH + timedelta(milliseconds=time_ms)
        self.topics = tuple(topics)

    def _facts(self) -> Facts:
        return {"version": self.version, "topics": len(self.topics)}

    def scan(self, topic: str, **options: Any) -> Scan:
        """Return a topic to be read as Arrow, without Spark. ``options`` are those of ``sparklog.scan``, such as
        ``columns`` and ``filter``; errors as there.

            >>> _ = sparklog.Producer(bootstrap_servers=root).send("orders", b"a").get()
            >>> sparklog.snapshot(root).scan("orders", columns=["offset"]).to_arrow().num_rows
            1
        """
        return scan(topic, cluster=self._coordinator, version=self.version, **options)

    def table(self, spark: Any, topic: str) -> Any:
        """Return a topic as a DataFrame of its table. Errors as ``sparklog.table``.

        then = sparklog.snapshot("/data/log")
        then.table(spark, "orders").join(then.table(spark, "customers"), "customer")
        """
        return self._on_spark("table")(spark, self._root, topic, **self._options)

    def create_view(self, spark: Any, topic: str, name: str | None = None) -> Any:
        """Give a topic's table a name for SQL, and return its DataFrame. Errors as ``sparklog.create_view``.

        then = sparklog.snapshot("/data/log")
        then.create_view(spark, "orders")
        then.create_view(spark, "customers")
        spark.sql("SELECT name, sum(amount) FROM orders JOIN customers USING (customer) GROUP BY name")
        """
        return self._on_spark("create_view")(spark, self._root, topic, name, **self._options)

    def read(self, spark: Any, topic: str, **options: Any) -> Any:
        """Return a topic as a DataFrame of records. ``options`` are those of ``sparklog.read``, such as ``columns``;
        errors as there.

            sparklog.snapshot("/data/log").read(spark, "orders", columns=["value"])
        """
        return self._on_spark("read")(spark, self._root, topic, **self._options, **options)

    @property
    def _root(self) -> str:
        return self._coordinator.store.root

    @property
    def _options(self) -> Mapping[str, Any]:
        return {"version": self.version, "storage_options": self._storage_options}

    def _on_spark(self, name: str) -> Any:
        """Return a function of the package that needs Spark, which clients do not import."""
        return getattr(importlib.import_module("sparklog"), name)
