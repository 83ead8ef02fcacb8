"""Checks the Delta tables of topics: whether they can be read, list only files that exist, and equal the log.

A table is derived from the log, so no finding here is about records of the log; the next publication mends all of them
(``maintenance.tables``), and ``--repair`` has nothing to do. A table that only lacks the newest files is as it should
be; what it lists besides the log's files is a note.
Not for: the files of history segments (``file_checks``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from sparklog.delta.actions import TableSnapshot, file_key
from sparklog.delta.listing import find_table, has_table
from sparklog.delta.publication import path_in_table, plan_publication, published_version
from sparklog.delta.table_log import TableLog
from sparklog.errors import CorruptMetadataError, StorageError
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.kinds import INFO, WARNING, Finding
from sparklog.protocol.file_names import table_folder
from sparklog.protocol.state import State
from sparklog.store.base import Store

_MENDS = "the next publication mends it: run `sparklog maintain --once`"


def check_tables(
    root: Store, stores: Mapping[int, Store], state: State, lists: Mapping[str, TopicSegments], topics: Collection[str]
) -> Iterator[Finding]:
    """Check the tables of the topics that have one, or of those among ``topics``."""
    for name, listed in sorted(lists.items()):
        if (topics and name not in topics) or not has_table(state, name, lists.__getitem__):
            continue
        try:
            yield from _check_table(root, stores, state, name, listed)
        except (CorruptMetadataError, StorageError) as error:
            yield Finding(
                kind=kinds.DAMAGED_TABLE,
                severity=WARNING,
                message=f"the topic's Delta table cannot be read: {error}",
                action=f"delete the folder {table_folder(name)}/_delta_log while no maintenance runs; the next "
                "publication creates the table again",
                path=f"{table_folder(name)}/_delta_log/",
                topic=name,
            )


def _check_table(
    root: Store, stores: Mapping[int, Store], state: State, topic: str, listed: TopicSegments
) -> Iterator[Finding]:
    log = TableLog(root, topic)
    snapshot = log.read()
    gone = _find_gone(stores, state, topic, snapshot)
    if gone:  # or was it deleted since the table was read?
        present = log.read().files
        gone = [key for key in gone if key in present]
    for key in gone:
        yield Finding(
            kind=kinds.TABLE_FILE_GONE,
            severity=WARNING,
            message="the topic's Delta table lists a file that does not exist: queries of the table fail",
            action=_MENDS,
            path=f"{table_folder(topic)}/{key}",
            topic=topic,
        )
    message = _difference(state, topic, snapshot, listed)
    if message:
        path = f"{table_folder(topic)}/_delta_log/"
        yield Finding(kind=kinds.TABLE_DIFFERS, severity=INFO, message=message, action=_MENDS, path=path, topic=topic)


def _find_gone(stores: Mapping[int, Store], state: State, topic: str, snapshot: TableSnapshot) -> list[str]:
    """Return the files that the table lists and that do not exist, at the locations that are checked."""
    gone: list[str] = []
    for broker, store in stores.items():
        url = state.brokers[broker].url if broker in state.brokers else ""
        folder = f"{table_folder(topic)}/"
        prefix = file_key(path_in_table(topic, folder, url)) if url else ""
        files = [key for key in snapshot.files if key.startswith(prefix) and (prefix or "://" not in key)]
        if files:
            present = {info.key.removeprefix(folder) for info in store.list(folder)}
            gone += [key for key in files if key.removeprefix(prefix) not in present]
    return gone


def _difference(state: State, topic: str, snapshot: TableSnapshot, listed: TopicSegments) -> str:
    """Return how the table differs from the log, empty if it does not."""
    table = find_table(state, topic, listed, snapshot)
    shown = published_version(snapshot, state.cluster_id, topic)
    publication = plan_publication(snapshot, table)
    if not publication.removes and (publication.metadata is None or snapshot.version < 0):
        return ""  # equal, or only behind
    what = []
    if publication.removes or publication.adds:
        what.append(f"lists {len(publication.removes)} files that are not in the log and lacks {len(publication.adds)}")
    if publication.metadata is not None:
        what.append("has other columns or properties")
    differences = ", and ".join(what)
    return f"the topic's Delta table shows version {shown} of the log: at version {state.version} it {differences}"
