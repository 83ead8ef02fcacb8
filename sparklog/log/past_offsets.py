"""Where the partitions of a topic ended at an older version of the cluster.

    ends = find_past_ends(log, "orders", version)

A record's offset never changes, so an older version of a topic is its log up to these offsets, without the records that
compaction or retention have removed since. They are found in the commits after the version: the first append to a
partition begins where it ended. So it costs the reading of these commits, as far as needed, and goes back as far as
commits are kept (``metadata.max.retention.ms``).
"""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.errors import InvalidRequestError, UnknownTopicOrPartitionError
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.log.commits.commit_files import complete_commit, read_ahead
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.layout import read_certain_boundary
from sparklog.protocol.commits import Append, Commit, CreatePartitions, CreateTopic
from sparklog.protocol.state import State

READ_AHEAD = 64


def find_past_version(log: CommitLog, state: State, version: int | None, time_ms: int | None) -> int | None:
    """Return the version that one of these names, None if neither is given. Errors as ``find_version``, and
    InvalidRequestError if both are."""
    if version is not None and time_ms is not None:
        raise InvalidRequestError("give version or as_of, not both")
    return version if time_ms is None else find_version(log, state, time_ms)


def find_version(log: CommitLog, state: State, time_ms: int) -> int:
    """Return the newest version at a time in ms since the epoch, by the times of the commits.

    Raises InvalidRequestError if the commits of that time were removed, or there were none; StorageError.
    """
    if time_ms >= state.timestamp_ms:
        return state.version
    version = newest_version_before(log.store, state.version, time_ms + 1)
    _check_kept(log, version, f"the time {time_ms} ms is")
    if version < 0:
        raise InvalidRequestError(f"the time {time_ms} ms is before the first commit of {log.store.root}")
    return version


def find_past_ends(log: CommitLog, state: State, topic: str, version: int) -> dict[int, int]:
    """Return the end offset of each partition that a topic had at a version.

    Raises UnknownTopicOrPartitionError if the topic of today did not exist then, InvalidRequestError for a version that
    does not exist or whose commits were removed, StorageError, CorruptMetadataError.
    """
    if not 0 <= version <= state.version:
        raise InvalidRequestError(
            f"version {version} does not exist: the newest of {log.store.root} is {state.version}"
        )
    _check_kept(log, version, f"version {version} is")
    found = state.topic(topic)
    ends = {number: partition.high_watermark for number, partition in enumerate(found.partitions)}
    unknown = set(ends)
    for commit in _commits(log, version + 1, state.version):
        if not unknown:
            break  # each partition has got records since, and so was created before
        for action in commit.actions:
            if not isinstance(action, CreateTopic | CreatePartitions | Append) or action.topic_id != found.topic_id:
                continue
            if isinstance(action, CreateTopic):
                raise UnknownTopicOrPartitionError(
                    f"topic {topic!r} did not exist at version {version}: version {commit.version} created it",
                    topic=topic,
                )
            if isinstance(action, CreatePartitions):
                ends = dict(list(ends.items())[: -len(action.replicas)])
                unknown &= set(ends)
            elif action.partition in unknown:
                ends[action.partition] = action.base_offset
                unknown.discard(action.partition)
    _check_kept(log, version, f"version {version} is")  # commits may have been removed while they were read
    return ends


def _commits(log: CommitLog, first: int, last: int) -> Iterator[Commit]:
    for number in range(first, last + 1, READ_AHEAD):
        count = min(READ_AHEAD, last + 1 - number)
        for version, data in enumerate(read_ahead(log.store, number, count), number):
            yield complete_commit(log.store, data, version).commit


def _check_kept(log: CommitLog, version: int, what: str) -> None:
    boundary = read_certain_boundary(log.store)
    if version < boundary:
        raise InvalidRequestError(
            f"{what} too long ago: {log.store.root} keeps the commits after version {boundary}, for "
            "metadata.max.retention.ms; choose a later one"
        )
