"""What changed the Delta tables of topics, as rows of the system table ``publications``.

Rules: it only reads the logs of the tables, which others may have written to by mistake: what a commit does not state
is null. Not for: publishing (``maintenance.tables``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sparklog.delta.actions import Line
from sparklog.delta.table_log import TableLog
from sparklog.log.parallel import map_parallel
from sparklog.store.base import Store

Row = tuple[Any, ...]
_MAX_VERSION = 2**63


def publications(store: Store, topics: Iterable[str], since_ms: int | None, until_ms: int | None) -> list[Row]:
    """Return the rows of commits that were stored at or after ``since_ms`` and before ``until_ms``, by time and topic.

    Raises StorageError, CorruptMetadataError.
    """

    def read(topic: str) -> list[Row]:
        commits = TableLog(store, topic).commits(since_ms, until_ms)
        return [_row(topic, version, stored_ms, lines) for version, stored_ms, lines in commits]

    found = map_parallel(read, topics, store.parallel_requests)
    return sorted((row for rows in found for row in rows), key=lambda row: row[:3])


def _row(topic: str, version: int, stored_ms: int, lines: Sequence[Line]) -> Row:
    info = next((line.commit_info for line in lines if line.commit_info is not None), {})
    operation, parameters = info.get("operation"), info.get("operationParameters")
    added = [line.add.size for line in lines if line.add is not None]
    removed = [line.remove.size or 0 for line in lines if line.remove is not None]
    return (
        stored_ms,
        topic,
        version,
        next(iter(_versions(parameters)), None),
        operation if isinstance(operation, str) else None,
        len(added),
        sum(added),
        len(removed),
        sum(removed),
    )


def _versions(parameters: object) -> Iterator[int]:
    text = parameters.get("version") if isinstance(parameters, dict) else None
    if isinstance(text, str) and text.isdecimal() and text.isascii() and len(text) < 20 and int(text) < _MAX_VERSION:
        yield int(text)
