"""The system tables of a cluster, for users: ``sparklog.system``.

    system = sparklog.system("/data/log")
    system.read("lag", group="billing", since="6h").to_pandas()

Not for: what the tables hold (``monitoring``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

from sparklog.client.config import cluster_of
from sparklog.client.representation import Facts, Shown
from sparklog.client.representation import table as html_table
from sparklog.client.table_view import ROWS_SHOWN, TableView
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidConfigurationError
from sparklog.errors.suggestions import did_you_mean
from sparklog.monitoring.schemas import TABLES
from sparklog.monitoring.system_tables import MINUTE_MS, Selection, SystemTables

Time = str | int | datetime
"""A moment: a datetime with a time zone, its text, ms since the epoch, or how long ago, such as ``90m``."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_AGO = re.compile(r"(\d{1,9})(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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
        return TABLES[_check_table(table)].schema

    def read(
        self,
        table: str,
        *,
        since: Time | None = None,
        until: Time | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        step: str | int = MINUTE_MS,
    ) -> pa.Table:
        """Return a system table, or its rows of a ``topic``, ``partition`` or ``group``.

        ``since`` and ``until`` select commits by their time: a datetime with a time zone, or its text, ms since the
        epoch, or how long ago, such as ``"90m"`` or ``"7d"``. Commits are kept for ``metadata.max.retention.ms``; what
        is older is missing. ``lag`` is that of now, or at ``until``; with ``since`` at each ``step`` (ms, or ``"10s"``)
        from then on.

            >>> sparklog.system(root).read("topics").column("partitions").to_pylist()
            [1, 1]

        Raises:
            InvalidConfigurationError: an unknown table, or an invalid argument.
            UnknownTopicOrPartitionError: ``segments`` of a topic that does not exist.
            StorageError, CorruptMetadataError: as ``Consumer``.
        """
        now_ms = self._coordinator.log.clock.now_ms()
        selection = Selection(
            topic=topic,
            partition=partition,
            group=group,
            since_ms=None if since is None else parse_time("since", since, now_ms),
            until_ms=None if until is None else parse_time("until", until, now_ms),
            step_ms=_parse_step(step),
        )
        return self._tables.read(_check_table(table), selection)

    def show(self, table: str, *, limit: int = ROWS_SHOWN, **selection: Any) -> TableView:
        """Return the first rows of a system table for a notebook or a terminal; ``table`` of it has all of them.

        ``selection`` are the arguments of ``read``.

            >>> _ = producer.send("orders", b"a").get()
            >>> sparklog.system(root).show("throughput").table.column("records").to_pylist()
            [1]

        Raises as ``read``; InvalidConfigurationError for a limit below 1.
        """
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InvalidConfigurationError(f"invalid limit {limit!r}: must be at least 1", config="limit")
        return TableView(table, self.read(table, **selection), limit)


def parse_time(name: str, time: Time, now_ms: int) -> int:
    """Return a moment as ms since the epoch. Raises InvalidConfigurationError, which calls it ``name``."""
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    if isinstance(time, str):
        ago = _AGO.fullmatch(time.strip())
        if ago:
            return now_ms - int(ago[1]) * _UNITS_MS[ago[2]]
        try:
            time = datetime.fromisoformat(time.strip())
        except ValueError:
            pass
    if not isinstance(time, datetime):
        raise InvalidConfigurationError(
            f"invalid {name} {time!r}: give a time such as 2026-11-01T09:30:00+00:00, or how long ago, such as 90m",
            config=name,
        )
    if time.tzinfo is None:
        raise InvalidConfigurationError(
            f"invalid {name} {time.isoformat()}: it has no time zone; add one, as in 2026-11-01T09:30:00+00:00",
            config=name,
        )
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _parse_step(step: str | int) -> int:
    """Return a step in ms. Raises InvalidConfigurationError."""
    text = _AGO.fullmatch(step.strip()) if isinstance(step, str) else None
    value = int(text[1]) * _UNITS_MS[text[2]] if text else step
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidConfigurationError(
            f"invalid step {step!r}: give ms, or a duration such as 10s or 5m", config="step"
        )
    return value


def _check_table(name: str) -> str:
    if name not in TABLES:
        raise InvalidConfigurationError(
            f"unknown system table {name!r}{did_you_mean(name, TABLES)}; the tables are {', '.join(TABLES)}",
            config="table",
        )
    return name
