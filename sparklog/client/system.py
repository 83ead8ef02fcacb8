"""The system tables of a cluster, for users: ``sparklog.system``.

    system = sparklog.system("/data/log")
    system.read("lag", group="billing", since="6h").to_pandas()

Not for: what the tables hold (``monitoring``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sparklog.client.config import cluster_of
from sparklog.client.representation import Facts, Shown
from sparklog.client.representation import table as html_table
from sparklog.client.table_view import ROWS_SHOWN, TableView
from sparklog.clock import utc_text
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidConfigurationError
from sparklog.monitoring.arguments import Time, check_table, parse_selection
from sparklog.monitoring.schemas import TABLES
from sparklog.monitoring.system_tables import RowSelection, SystemTables

logger = logging.getLogger(__name__)


def system(
    root: str | os.PathLike[str] | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
    cluster: Any = None,
) -> System:
    """Return the system tables of a cluster: what it holds now, and what its commits have changed.

    ``root`` is the folder or URL of the cluster, with ``storage_options`` for the storage's client; or give an open
    ``cluster``. Nothing is read before a table is.

        >>> with sparklog.Producer(bootstrap_servers=root) as producer:
        ...     _ = producer.send("orders", b"a").get()
        >>> sparklog.system(root).read("appends", topic="orders").select(["partition", "records"]).to_pylist()
        [{'partition': 0, 'records': 1}]

    Raises:
        InvalidConfigurationError: an invalid argument; the message names it.
        ClusterNotFoundError, StorageError: as ``Consumer``.
    """
    given = {"bootstrap_servers": root, "storage_options": storage_options, "cluster": cluster}
    return System(cluster_of("system", given, "root"))


class System(Shown):
    """The system tables of a cluster. Returned by ``sparklog.system``. Thread-safe.

    ``tables`` are their names. The commits that one table needed are kept in memory for the next; each call reads the
    new ones.

        >>> sparklog.system(root).schema("throughput").names
        ['minute', 'topic', 'partition', 'records', 'bytes', 'appends']
    """

    tables = tuple(TABLES)

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._tables = SystemTables(coordinator)

    def _facts(self) -> Facts:
        return {"root": self._coordinator.store.root, "version": self._coordinator.state.version}

    def _repr_html_(self) -> str:
        rows = [(each.name, each.rows) for each in TABLES.values()]
        return super()._repr_html_() + html_table("system tables", ["table", "a row is"], rows)

    def schema(self, table: str) -> pa.Schema:
        """Return the columns of a table. Raises InvalidConfigurationError for an unknown one."""
        return TABLES[check_table(table)].schema

    def read(
        self,
        table: str,
        *,
        since: Time | None = None,
        until: Time | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        step: str | int | None = None,
        orphans: bool = False,
    ) -> pa.Table:
        """Return a system table, or its rows of a ``topic``, ``partition`` or ``group``.

        ``since`` and ``until`` select commits by their time: a datetime with a time zone, or its text, ms since the
        epoch, or how long ago, such as ``"90m"`` or ``"7d"``. Commits are kept for ``metadata.max.retention.ms``; what
        is older is missing, and a warning says so, as it does if there are no rows because the topic or the group
        does not exist. ``lag`` is that of now, or at ``until``; with ``since`` it is stated
        at each ``step`` from then on: ms or a duration such as ``"10s"``, by default a minute. ``orphans`` lets
        ``storage`` count orphans, for which it lists all files of all locations, as ``sparklog vacuum`` does.

            >>> sparklog.system(root).read("topics").column("partitions").to_pylist()
            [1]

        Raises:
            InvalidConfigurationError: an unknown table, or an argument that is invalid or does not apply to it.
            InvalidRequestError: the lag at too many times.
            UnknownTopicOrPartitionError: ``segments`` or ``publications`` of a topic that does not exist.
            StorageError, CorruptMetadataError: as ``Consumer``.
        """
        selection = parse_selection(
            table,
            self._coordinator.log.clock.now_ms(),
            since=since,
            until=until,
            topic=topic,
            partition=partition,
            group=group,
            step=step,
            orphans=orphans,
        )
        rows = self._tables.read(table, selection)
        self._warn_of_missing_commits(table, selection)
        if not rows.num_rows:
            self._warn_of_unknown_names(selection)
        return rows

    def show(self, table: str, *, limit: int = ROWS_SHOWN, **selection: Any) -> TableView:
        """Return the first rows of a system table for a notebook or a terminal; ``table`` of it has all of them.

        ``selection`` are the arguments of ``read``.

            >>> _ = producer.send("orders", b"a").get()
            >>> sparklog.system(root).show("throughput").table.column("records").to_pylist()
            [1]

        Raises as ``read``; InvalidConfigurationError for a limit below 1.
        """
        if isinstance(limit, bool) or limit < 1:
            raise InvalidConfigurationError(f"invalid limit {limit!r}: must be at least 1", config="limit")
        return TableView(table, self.read(table, **selection), limit)

    def _warn_of_unknown_names(self, selection: RowSelection) -> None:
        """Log why there are no rows if the topic or the group does not exist: what was deleted may still have some."""
        state = self._coordinator.state
        for kind, name, names in (("topic", selection.topic, state.topics), ("group", selection.group, state.groups)):
            if name is not None and name not in names:
                logger.warning("there are no rows: %s %r does not exist", kind, name[:200])

    def _warn_of_missing_commits(self, table: str, selection: RowSelection) -> None:
        times = [time_ms for time_ms in (selection.since_ms, selection.until_ms) if time_ms is not None]
        first_ms = self._tables.first_ms(table) if times else None
        if first_ms is not None and min(times) < first_ms:
            logger.warning(
                "the commits of %s before %s were removed (metadata.max.retention.ms, .bytes): their rows are missing",
                self._coordinator.store.root,
                utc_text(first_ms),
            )
