"""Which actions make a topic's table show a version of the log.

    publication = plan_publication(snapshot, table)
    for part in split(publication, max_bytes):
        encode_commit(commit_lines(part.publication, table, write_id, part.is_last))

A publication compares what the table lists with the history segments of one version of the log, so it is right whatever
happened to the table in between: a publication that was killed or ran twice, a topic that was created again, or
somebody who ran ``OPTIMIZE`` or ``RESTORE``. A file that stays in the table is not named again.

Rules: pure. Paths that the table lists and the log does not are removed, wherever they are; the files themselves are
not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from sparklog.delta.actions import Add, Line, Metadata, Protocol, Remove, TableSnapshot, file_key
from sparklog.delta.actions import Transaction as Txn
from sparklog.delta.table_schema import PARTITION, schema_string
from sparklog.format.parquet.delta_stats import complete_stats
from sparklog.protocol.file_names import NO_VERSION, begun_at, table_folder
from sparklog.protocol.segments import Segment, offsets_in
from sparklog.schema.languages.ddl import SchemaField
from sparklog.schema.typed_columns import flat_columns

ENGINE = "sparklog"
"""What names itself in the history of a table."""

TABLE_PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.deletedFileRetentionDuration": "interval 3650 days",
    "delta.enableExpiredLogCleanup": "false",
}
"""Keep others from changing the table by mistake: Delta refuses ``DELETE``, ``UPDATE`` and ``MERGE``. A ``VACUUM``
deletes no files unless its check of the retention is switched off; then ``VACUUM LITE`` may delete live ones. Old
commits stay, whose numbers a suspended publisher could win."""


class TopicTable(NamedTuple):
    """What a topic's table is to show: a version of the log, its time in ms, and the files by path in the table.

    ``topic_id`` is empty for a topic that was deleted. ``schema``: the typed columns. ``inexact``: the partitions of
    which a file has deleted records; it is listed or left out by ``may_list``.
    """

    cluster_id: str
    topic: str
    topic_id: str
    version: int
    timestamp_ms: int
    files: dict[str, Segment]
    schema: tuple[SchemaField, ...] = ()
    inexact: tuple[int, ...] = ()


class Publication(NamedTuple):
    """The actions that bring a table to a version of the log; ``adds`` and ``removes`` are among them.

    ``is_another_topic``: the table showed a topic that was deleted since, or nothing. ``inexact`` as in ``TopicTable``.
    """

    metadata: Metadata | None
    needs_protocol: bool
    removes: Sequence[Remove]
    adds: Sequence[Add]
    is_another_topic: bool = False
    inexact: Sequence[int] = ()

    @property
    def changes(self) -> bool:
        """Whether the table differs from the log."""
        return bool(self.metadata or self.needs_protocol or self.removes or self.adds)


def application_id(cluster_id: str, topic: str) -> str:
    """Return the application id under which the table records the version of the log that it shows."""
    return f"sparklog:{cluster_id}:{topic}"


def published_version(snapshot: TableSnapshot, cluster_id: str, topic: str) -> int:
    """Return the version of the log that a table shows, -1 if none was published."""
    return snapshot.transactions.get(application_id(cluster_id, topic), -1)


def path_in_table(topic: str, path: str, location: str = "") -> str:
    """Return the path of a file in the Delta log: relative to the table if it is inside, else its address.

    ``location`` is the address of the broker's location, empty for the root.
    """
    if not location:
        return quote(path.removeprefix(f"{table_folder(topic)}/"), safe="/=")
    scheme, separator, rest = location.rpartition("://")
    authority, slash, folder = rest.partition("/") if separator else ("", "", location)
    return f"{scheme or 'file'}://{authority}{slash}{quote(folder, safe='/=')}/{quote(path, safe='/=')}"


def plan_publication(snapshot: TableSnapshot, table: TopicTable) -> Publication:
    """Return how the table has to change to show this version of the log.

    It also returns to the lowest protocol: features that others switched on are not needed without their files.
    """
    wanted = {file_key(path) for path in table.files}
    removed = [add for key, add in snapshot.files.items() if key not in wanted or add.deletion_vector is not None]
    metadata = _changed_metadata(snapshot.metadata, table)
    is_another_topic = metadata is not None and (snapshot.metadata is None or metadata.id != snapshot.metadata.id)
    is_new = _NewRecords(snapshot, table)
    adds: list[Add] = []
    for path, segment in _complete(table).items():
        listed = snapshot.files.get(file_key(path))
        if listed is None:
            adds.append(_add(path, segment, table.timestamp_ms, is_new(segment)))
        elif not _is_unchanged(listed, segment):
            adds.append(_add(listed.path, segment, table.timestamp_ms, False))
    removes = [_remove(add, table.timestamp_ms) for add in removed]
    return Publication(metadata, snapshot.protocol != Protocol(), removes, adds, is_another_topic, table.inexact)


def _complete(table: TopicTable) -> dict[str, Segment]:
    """Return the files of a table, with statistics of all its typed columns."""
    columns = flat_columns(table.schema)
    if not columns:
        return table.files
    return {
        path: msgspec.structs.replace(segment, stats=complete_stats(segment.stats, columns))
        for path, segment in table.files.items()
    }


class Offsets(NamedTuple):
    """The offsets that the files of a partition reach over, from ``first`` to before ``end``."""

    first: int
    end: int

    def contain(self, other: Offsets) -> bool:
        return self.first <= other.first and other.end <= self.end


def offsets_of(segment: Segment) -> Offsets:
    """Return the offsets in the file of a segment."""
    first, last = segment.offsets
    return Offsets(first, last + 1)


def listed_offsets(snapshot: TableSnapshot, topic_id: str) -> dict[int, Offsets]:
    """Return by partition the offsets that the table has in files that the log wrote for this topic."""
    if snapshot.metadata is None or snapshot.metadata.id != topic_id:
        return {}
    return _join_offsets(add for key, add in snapshot.files.items() if begun_at(key) != NO_VERSION)


def _join_offsets(files: Iterable[Add]) -> dict[int, Offsets]:
    joined: dict[int, Offsets] = {}
    for add in files:
        offsets, number = offsets_in(add.stats), add.partition_values.get(PARTITION) or ""
        if offsets is not None and number.isdecimal():
            before = joined.get(int(number), Offsets(offsets[0], 0))
            joined[int(number)] = Offsets(min(before.first, offsets[0]), max(before.end, offsets[1] + 1))
    return joined


def may_list(segment: Segment, log_start_offset: int, listed: Offsets | None) -> bool:
    """Return whether the table may list a file, of a partition of which it has these offsets: not if the file has
    deleted records that the table does not show already."""
    if not segment.begins_before(log_start_offset):
        return True
    return listed is not None and listed.contain(Offsets(segment.offsets[0], log_start_offset))


class _NewRecords:
    """Whether a segment has records that the table did not show yet: ``dataChange`` of its file. Immutable.

    One that has both old and new records counts as new: a stream over the table then gets some twice, and misses none.
    What files of others state is taken only for segments that were live at the version that the table shows, so that an
    ``OPTIMIZE`` is undone without new data, and a row with a large offset hides no later ones.
    """

    def __init__(self, snapshot: TableSnapshot, table: TopicTable) -> None:
        self._own = listed_offsets(snapshot, table.topic_id)
        self._all = _join_offsets(snapshot.files.values())
        is_same_topic = snapshot.metadata is not None and snapshot.metadata.id == table.topic_id
        self._shown = published_version(snapshot, table.cluster_id, table.topic) if is_same_topic else -1

    def __call__(self, segment: Segment) -> bool:
        present = (self._all if segment.version <= self._shown else self._own).get(segment.partition)
        return present is None or not present.contain(offsets_of(segment))


class Part(NamedTuple):
    """What one commit changes of a publication that has too many files for one."""

    publication: Publication
    is_last: bool


def split(publication: Publication, max_bytes: int) -> Iterator[Part]:
    """Yield the parts of a publication in the order in which they are committed, each of about ``max_bytes`` or less.

    What a partition loses and gains stays in one part, unless it loses nothing; then it gains its files in the order of
    their offsets. So no part shows a record twice or hides one that the table showed. The files of a topic that was
    deleted are removed before the metadata changes, so that none is taken for a file of the new topic.
    """
    if publication.is_another_topic:
        *earlier, last = _cut(publication.removes, max_bytes)
        yield from (Part(Publication(None, False, removes, []), False) for removes in earlier)
        publication = publication._replace(removes=last)
    first = publication._replace(removes=[], adds=[])
    part, size = first, 0
    for removes, adds in _units(publication):
        needed = sum(_size_of(remove) for remove in removes) + sum(_size_of(add) for add in adds)
        if size and size + needed > max_bytes:
            yield Part(part, False)
            part, size = Publication(None, False, [], []), 0
        part = part._replace(removes=[*part.removes, *removes], adds=[*part.adds, *adds])
        size += needed
    yield Part(part, True)


def _cut(removes: Iterable[Remove], max_bytes: int) -> list[list[Remove]]:
    """Return the removals in lists of about ``max_bytes`` or less, at least one."""
    lists: list[list[Remove]] = [[]]
    size = 0
    for remove in removes:
        needed = _size_of(remove)
        if lists[-1] and size + needed > max_bytes:
            lists.append([])
            size = 0
        lists[-1].append(remove)
        size += needed
    return lists


def _units(publication: Publication) -> Iterator[tuple[Sequence[Remove], Sequence[Add]]]:
    """Yield what has to be in one commit."""
    if publication.is_another_topic:
        yield publication.removes, ()
        publication = publication._replace(removes=[])
    removes: dict[str, list[Remove]] = {}
    adds: dict[str, list[Add]] = {}
    for remove in publication.removes:
        removes.setdefault((remove.partition_values or {}).get(PARTITION) or "", []).append(remove)
    for add in publication.adds:
        adds.setdefault(add.partition_values[PARTITION] or "", []).append(add)
    for partition in sorted({*removes, *adds}):
        if partition in removes:
            yield removes[partition], adds.get(partition, ())
        else:
            yield from (((), (add,)) for add in adds[partition])


def _size_of(action: Add | Remove) -> int:
    """Return about how many bytes an action takes in a commit."""
    stats = action.stats or "" if isinstance(action, Add) else ""
    return 300 + len(action.path) + 2 * len(stats)


def commit_lines(publication: Publication, table: TopicTable, write_id: str, is_last: bool) -> Iterable[Line]:
    """Yield the actions of a commit of a publication. ``write_id`` makes its bytes unique; with the last one the table
    shows the version."""
    yield Line(
        commit_info={
            "timestamp": table.timestamp_ms,
            "operation": "PUBLISH",
            "operationParameters": {"clusterId": table.cluster_id, "version": str(table.version)},
            "isBlindAppend": False,
            "engineInfo": ENGINE,
            "txnId": write_id,
        }
    )
    if publication.needs_protocol:
        yield Line(protocol=Protocol())
    if publication.metadata is not None:
        yield Line(meta_data=publication.metadata)
    if is_last:
        yield Line(txn=Txn(application_id(table.cluster_id, table.topic), table.version, table.timestamp_ms))
    yield from (Line(remove=remove) for remove in publication.removes)
    yield from (Line(add=add) for add in publication.adds)


def _changed_metadata(present: Metadata | None, table: TopicTable) -> Metadata | None:
    """Return the metadata that the table should get; None if it has them, whenever it was created."""
    if present is not None and not table.topic_id:
        return None
    wanted = Metadata(
        id=table.topic_id or f"deleted-{table.topic}",
        name=table.topic,
        description=f"History of topic {table.topic}, published by sparklog; only sparklog may change it",
        schema_string=schema_string(table.schema),
        partition_columns=[PARTITION],
        configuration=TABLE_PROPERTIES,
        created_time=table.timestamp_ms,
    )
    same = present is not None and msgspec.structs.replace(present, created_time=wanted.created_time) == wanted
    return None if same else wanted


def _is_unchanged(add: Add, segment: Segment) -> bool:
    return (
        add.size == segment.file_bytes
        and add.deletion_vector is None
        and add.stats == segment.stats
        and add.partition_values == {PARTITION: str(segment.partition)}
    )


def _remove(add: Add, timestamp_ms: int) -> Remove:
    """Return the removal of a file, which streams over the table ignore (``dataChange`` is false): compacted records
    are in another file, and expired ones are not withdrawn."""
    return Remove(
        path=add.path,
        deletion_timestamp=timestamp_ms,
        data_change=False,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        deletion_vector=add.deletion_vector,
    )


def _add(path: str, segment: Segment, timestamp_ms: int, is_new: bool) -> Add:
    return Add(
        path=path,
        partition_values={PARTITION: str(segment.partition)},
        size=segment.file_bytes,
        modification_time=timestamp_ms,
        data_change=is_new,
        stats=segment.stats,
    )
