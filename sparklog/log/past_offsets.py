"""Where the partitions of a topic ended at an older version of the cluster.

    ends = find_past_ends(log, state, "orders", version)

A record's offset never changes, so an older version of a topic is its log up to these offsets, without the records that
compaction or retention have removed since. They are found in the commits after the version: the first append to a
partition begins where it ended. So it costs the reading of these commits, as far as needed, and goes back as far as
commits are kept (``metadata.max.retention.ms``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral

from sparklog.clock import utc_text
from sparklog.errors import InvalidRequestError, ObjectNotFoundError, UnknownTopicOrPartitionError
from sparklog.log.commits.cleanup import newest_version_at
from sparklog.log.commits.commit_files import StoredCommit, read_commits
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.time_search import Timed
from sparklog.log.layout import read_certain_boundary
from sparklog.protocol.commits import Append, CreatePartitions, CreateTopic
from sparklog.protocol.state import State, TopicState


def find_past_version(log: CommitLog, state: State, version: int | None, time_ms: int | None) -> int | None:
    """Return the version that one of these names, None if neither is given. Errors as ``find_version``, and
    InvalidRequestError if both are, or one is not a whole number."""
    if version is not None and time_ms is not None:
        raise InvalidRequestError("give version or as_of, not both")
    _check_whole("version", version, "a whole number")
    _check_whole("as_of", time_ms, "a datetime with a time zone, or ms since the epoch")
    return version if time_ms is None else find_version(log, state, time_ms)


def _check_whole(name: str, value: object, wanted: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise InvalidRequestError(f"invalid {name} {value!r}: give {wanted}")


def find_version(log: CommitLog, state: State, time_ms: int) -> int:
    """Return the newest version at a time in ms since the epoch, by the times of the commits; after a reset of the
    log's time as ``time_search`` says.

    Raises InvalidRequestError if the commits of that time were removed, or there were none; StorageError.
    """
    if time_ms >= state.timestamp_ms:
        return state.version
    version = newest_version_at(log.store, Timed(state.version, state.timestamp_ms), time_ms)
    _check_kept(log, version, f"the time {_time_text(time_ms)} is")
    if version < 0:
        raise InvalidRequestError(
            f"the time {_time_text(time_ms)} is before the first commit of {log.store.root}; choose a later one"
        )
    return version


def _time_text(time_ms: int) -> str:
    try:
        return f"{utc_text(time_ms)} ({time_ms} ms)"
    except OverflowError:
        return f"{time_ms} ms"


def find_past_time(log: CommitLog, state: State, version: int) -> int | None:
    """Return the time of a version in ms since the epoch, by its commit; None if that was removed."""
    if version == state.version:
        return state.timestamp_ms
    try:
        return next(log.commits(version, version)).timestamp
    except ObjectNotFoundError:
        return None


def find_past_ends(log: CommitLog, state: State, topic: str, version: int) -> dict[int, int]:
    """Return the end offset of each partition that a topic had at a version.

    Raises UnknownTopicOrPartitionError if the topic of today did not exist then, InvalidRequestError for a version that
    does not exist or whose commits were removed, StorageError, CorruptMetadataError.
    """
    past = _Past(state.topic(topic))
    _go_back(log, state, [past], version)
    if past.created_by is not None:
        raise UnknownTopicOrPartitionError(
            f"topic {topic!r} did not exist at version {version}: version {past.created_by} created it", topic=topic
        )
    return past.ends


def find_past_topics(
    log: CommitLog, state: State, version: int, names: Iterable[str] | None = None
) -> dict[str, dict[int, int]]:
    """Return those of these topics, by default all, that existed at a version, with the end offset of each partition
    that they had. Errors as ``find_past_ends``."""
    topics = [_Past(state.topic(name)) for name in (state.topics if names is None else names)]
    _go_back(log, state, topics, version)
    return {past.name: past.ends for past in topics if past.created_by is None}


class _Past:
    """A topic at an older version: the ``ends`` of its partitions, as far as the commits that were read state them.

    Not thread-safe.
    """

    def __init__(self, topic: TopicState) -> None:
        self.name = topic.name
        self.topic_id = topic.topic_id
        self.ends = {number: partition.high_watermark for number, partition in enumerate(topic.partitions)}
        self.created_by: int | None = None
        self._unknown = set(self.ends)

    @property
    def is_known(self) -> bool:
        """Whether the commits after those that were read change nothing: each partition has got records since, and the
        last one has older records, so all were created before."""
        return self.created_by is not None or (not self._unknown and self.ends[len(self.ends) - 1] > 0)

    def undo(self, action: CreateTopic | CreatePartitions | Append, version: int) -> None:
        """Take note of an action of a commit after the version; they come oldest first."""
        if isinstance(action, CreateTopic):
            self.created_by = version
        elif isinstance(action, CreatePartitions):
            self.ends = dict(list(self.ends.items())[: -len(action.replicas)])
            self._unknown &= set(self.ends)
        elif action.partition in self._unknown:
            self.ends[action.partition] = action.base_offset
            self._unknown.discard(action.partition)


def _go_back(log: CommitLog, state: State, topics: Sequence[_Past], version: int) -> None:
    """Read the commits after a version, as far as needed."""
    if not 0 <= version <= state.version:
        raise InvalidRequestError(
            f"version {version} does not exist: the newest of {log.store.root} is {state.version}"
        )
    _check_kept(log, version, f"version {version} is")
    waiting = {past.topic_id: past for past in topics if not past.is_known}
    for stored in _kept_commits(log, version, state.version):
        if not waiting:
            break
        commit = stored.commit
        for action in commit.actions:
            if isinstance(action, CreateTopic | CreatePartitions | Append) and action.topic_id in waiting:
                past = waiting[action.topic_id]
                past.undo(action, commit.version)
                if past.is_known:
                    del waiting[action.topic_id]
    _check_kept(log, version, f"version {version} is")  # commits may have been removed while they were read


def _kept_commits(log: CommitLog, version: int, last: int) -> Iterator[StoredCommit]:
    """Yield the commits after a version. Raises InvalidRequestError if one was removed meanwhile."""
    try:
        yield from read_commits(log.store, version + 1, last)
    except ObjectNotFoundError:
        _check_kept(log, version, f"version {version} is")
        raise


def _check_kept(log: CommitLog, version: int, what: str) -> None:
    boundary = read_certain_boundary(log.store)
    if version < boundary:
        raise InvalidRequestError(
            f"{what} too long ago: {log.store.root} keeps the commits after version {boundary}, for "
            "metadata.max.retention.ms; choose a later one"
        )
