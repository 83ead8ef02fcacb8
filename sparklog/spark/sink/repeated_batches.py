"""Decide whether a write under a used number is a repetition of the first write, or a different one.

Spark runs a micro-batch again if it could not record that the batch was finished, and the rows are the same as the
first time. But a batch with other rows can also arrive under a used number: offsets or commits of the checkpoint were
lost or removed, or the folder was restored from an older copy, or copied for another query. Treating it as a repetition
would drop its rows. For each numbered write the log records how many records it added to which partitions, under the
application id: the query and the topic of option ``topic``.

A repetition always has the same number, topics, end of its sources, and records per topic. It has the same records per
partition if all rows of a topic were placed by a key or by the column ``partition``; otherwise these depend on Spark's
batches. If what was read is known for both writes (``BatchSources``), it decides instead of the record counts: the same
records were read, even if a nondeterministic query wrote another number. Ends alone do not decide: a batch may begin
earlier, its sources have other files under the same number, or their root have been restored.

Rules: pure. Not for: noticing that a number was used (``protocol.decide.append``), writing (``writer``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sparklog.protocol.commits import WrittenRange
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.state import ApplicationState, State

FAIL, SKIP, APPEND = "fail", "skip", "append"
ON_MISMATCH = (FAIL, SKIP, APPEND)
"""What happens to a different write under a used number: an error, nothing, or another append."""
REMEDIES = (
    "Nothing was written. The checkpoint was restored, copied or partly removed, the query was changed, or another "
    "instance of it runs; use a new checkpoint, or set onBatchMismatch (on_batch_mismatch of write_batch) to append, "
    "which writes these rows too, or to skip, which drops them"
)
QUERY_PREFIX = "query:"
MOST_SHOWN = 3
"""partitions that a message names; it only counts the others."""


class BatchSources(NamedTuple):
    """Digests of which records a micro-batch reads, empty where that is not known (``stream.checkpoint``).

    ``ends`` is of the offsets at which it ends in all of its sources. ``ranges`` is of those at which it begins, too,
    and of the commits in which they were found: in a source that was restored the same offsets are those of other
    records. ``is_exact``: with equal ranges it reads the same records. Not so for the first batch, whose start is
    stored nowhere, nor if a source's offsets mean nothing outside of this checkpoint, as those of Spark's sources of
    files and of rates.
    """

    ends: str = ""
    ranges: str = ""
    is_exact: bool = False

    @property
    def recorded(self) -> str:
        """The digest that is stored with the write: one half of each. Earlier versions recorded the ends."""
        return f"{self.ends[:_HALF]}{self.ranges[:_HALF] or _UNKNOWN}" if self.ends else ""

    def differ(self, recorded: str) -> bool:
        """Whether the write with this digest has read other records, or may have: this one was planned again, and
        counts do not show whether its source was restored in between."""
        if not recorded or not self.ends or recorded == self.ends:
            return False
        is_unknown = _UNKNOWN in (recorded[_HALF:], self.recorded[_HALF:])
        return recorded[:_HALF] != self.ends[:_HALF] or not (is_unknown or recorded == self.recorded)

    def are_same(self, recorded: str) -> bool:
        """Whether the write with this digest has certainly read the same records."""
        return self.is_exact and recorded == self.recorded


_HALF = 16
_UNKNOWN = "0" * _HALF


def application_of(query_id: str, topic: str = "") -> str:
    """Return the application id of a query's batches in the log; ``topic`` is the value of option ``topic``, if any."""
    return f"{QUERY_PREFIX}{query_id}:{topic}" if topic else f"{QUERY_PREFIX}{query_id}"


def query_numbered_as(state: State, query_id: str, topic: str) -> str:
    """Return the application id of the batches of a query with this option ``topic``, as ``numbered_as``."""
    return numbered_as(state, application_of(query_id, topic), application_of(query_id), topic)


def numbered_as(state: State, application: str, former: str, topic: str) -> str:
    """Return the application id of a write to ``topic``. Before ids contained topics it was ``former``.

    A query that started under the former id keeps it, so that its last batch is recognised after an upgrade.
    """
    recorded = state.applications.get(former)
    if recorded is None or application in state.applications or {span.topic for span in recorded.ranges} - {topic}:
        return application
    return former


def find_difference(
    recorded: ApplicationState, request: AppendRequest, sources: BatchSources, spread: Collection[str], state: State
) -> str:
    """Return how a write differs from the recorded one of its number or a higher one; empty if it does not.

    ``spread`` are the topics whose records another run may place in other partitions.
    """
    if recorded.version > request.application_version:
        last = f"number {recorded.version} (commit {recorded.commit_version})"
        return f"comes after {last}: only the last one may be repeated"
    then, now = _count_by_topic(recorded.ranges), _count_by_topic(request.appends)
    differences = []
    if sources.differ(recorded.source_digest):
        differences.append("it has read other records of its sources, or its offsets were looked up again")
    if set(then) != set(now):
        differences.append(f"it went to {_names(then)} then, and to {_names(now)} now")
    for topic in sorted(set(then) & set(now)):
        if _is_deleted(topic, recorded, state):
            differences.append(f"topic {topic} was deleted since")
        elif sources.are_same(recorded.source_digest):
            continue  # the same input for certain, even if a nondeterministic query wrote other records
        elif then[topic].total() != now[topic].total():
            differences.append(
                f"topic {topic} got {then[topic].total():,} records then, and {now[topic].total():,} now"
            )
        elif topic not in spread and then[topic] != now[topic]:
            differences.append(f"topic {topic} got as many records, but {_partitions(then[topic], now[topic])}")
    if not differences:
        return ""
    return f"was written before, in commit {recorded.commit_version}, and differs: {'; '.join(differences)}"


def describe_mismatch(application: str, version: int, why: str) -> str:
    """Return a message that names a write and how it differs."""
    kind = "micro-batch" if application.startswith(QUERY_PREFIX) else "version"
    return f"{kind} {version} of {application} {why}"


def _count_by_topic(written: Iterable[PartitionAppend | WrittenRange]) -> dict[str, Counter[int]]:
    """Return numbers of records by topic and partition, without zeros."""
    counts: dict[str, Counter[int]] = {}
    for span in written:
        records = span.records if isinstance(span, WrittenRange) else span.run.records
        if records:
            counts.setdefault(span.topic, Counter())[span.partition] += records
    return counts


def _is_deleted(topic: str, recorded: ApplicationState, state: State) -> bool:
    """Return whether the topic of the first write was deleted, even if another topic has its name."""
    now = state.topics.get(topic)
    return now is None or any(span.topic == topic and span.topic_id != now.topic_id for span in recorded.ranges)


def _names(topics: Mapping[str, object]) -> str:
    return ", ".join(sorted(topics)) or "no topic"


def _partitions(then: Counter[int], now: Counter[int]) -> str:
    differing = [number for number in sorted({*then, *now}) if then[number] != now[number]]
    shown = [
        f"{then[number]:,} then and {now[number]:,} now in partition {number}" for number in differing[:MOST_SHOWN]
    ]
    rest = len(differing) - len(shown)
    return ", ".join(shown) + (f" and others in {rest} more" if rest else "")
