"""Is a write whose number was used before the same write again, or another one?

Spark runs a micro-batch again when it could not note that the batch was finished, and the rows are those of the first
time. But a batch can also come under a used number with other rows: offsets or commits of the checkpoint were lost or
removed, the folder was restored from an older copy, or copied for another query. To take that for a repetition would
drop its rows. The log remembers of each numbered write how many records it added to which partitions, and under what
it was numbered: the query and the topic that option ``topic`` names.

Certain of a repetition are its number, its topics, where its sources end (``stream_checkpoint.batch_digest``), and the
records of each topic. The records of each partition are certain where all rows of a topic were placed by a key or by
the column ``partition``; else Spark's batches decide. Where the ends of the sources are known both times, they decide:
the same was read, however many records a query that chooses by chance may have written.

Rules: pure. Not for: writing (``writer``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from sparklog.protocol.commits import WrittenRange
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.state import ApplicationState, State

FAIL, SKIP, APPEND = "fail", "skip", "append"
ON_MISMATCH = (FAIL, SKIP, APPEND)
"""What becomes of a write under a used number that is not the same: an error, nothing, or one more write."""
REMEDIES = (
    "Nothing was written. The checkpoint was restored, copied or removed in part, the query was changed, or another "
    "instance of it runs; use a new checkpoint, or set onBatchMismatch (on_batch_mismatch of write_batch) to append, "
    "which writes these rows too, or to skip, which leaves them out"
)
QUERY_PREFIX = "query:"
MOST_SHOWN = 3
"""partitions that a message names before it counts the rest."""


def application_of(query_id: str, topic: str = "") -> str:
    """What the batches of a query are numbered under in the log; ``topic`` is what option ``topic`` names, if any."""
    return f"{QUERY_PREFIX}{query_id}:{topic}" if topic else f"{QUERY_PREFIX}{query_id}"


def numbered_as(state: State, application: str, former: str, topic: str) -> str:
    """The application of a write to ``topic``, which before names had topics in them was numbered as ``former``.

    A query that began under the former name keeps it, so that its last batch is known after an upgrade.
    """
    known = state.applications.get(former)
    if known is None or application in state.applications or {one.topic for one in known.ranges} - {topic}:
        return application
    return former


def difference(known: ApplicationState, request: AppendRequest, spread: Collection[str], state: State) -> str:
    """How a write differs from the one that is known under its number or a higher one; empty where it does not.

    ``spread`` are the topics whose records another run may place in other partitions.
    """
    if known.version > request.application_version:
        return f"comes after number {known.version} (commit {known.commit_version}): only the last one may be repeated"
    then, now = _by_topic(known.ranges), _by_topic(request.appends)
    digests = {known.source_digest, request.source_digest}
    found = []
    if "" not in digests and len(digests) == 2:
        found.append("it has read other records of its sources")
    if set(then) != set(now):
        found.append(f"it went to {_names(then)} then, and to {_names(now)} now")
    for topic in sorted(set(then) & set(now)):
        if _is_gone(topic, known, state):
            found.append(f"topic {topic} was deleted since")
        elif digests == {known.source_digest} and known.source_digest:
            continue  # the same for certain, though a query may choose among records by chance
        elif then[topic].total() != now[topic].total():
            found.append(f"topic {topic} got {then[topic].total():,} records then, and {now[topic].total():,} now")
        elif topic not in spread and then[topic] != now[topic]:
            found.append(f"topic {topic} got as many records, but {_partitions(then[topic], now[topic])}")
    return f"was written before, in commit {known.commit_version}, and differs: {'; '.join(found)}" if found else ""


def mismatch(application: str, version: int, why: str) -> str:
    """What to say of a write and how it differs."""
    kind = "micro-batch" if application.startswith(QUERY_PREFIX) else "version"
    return f"{kind} {version} of {application} {why}"


def _by_topic(written: Iterable[PartitionAppend | WrittenRange]) -> dict[str, Counter[int]]:
    """Records by topic and partition; what has none is left out."""
    found: dict[str, Counter[int]] = {}
    for one in written:
        records = one.records if isinstance(one, WrittenRange) else one.run.records
        if records:
            found.setdefault(one.topic, Counter())[one.partition] += records
    return found


def _is_gone(topic: str, known: ApplicationState, state: State) -> bool:
    """Whether the topic that was written to then is gone, though another may have its name."""
    now = state.topics.get(topic)
    return now is None or any(one.topic == topic and one.topic_id != now.topic_id for one in known.ranges)


def _names(topics: Mapping[str, object]) -> str:
    return ", ".join(sorted(topics)) or "no topic"


def _partitions(then: Counter[int], now: Counter[int]) -> str:
    differing = [number for number in sorted({*then, *now}) if then[number] != now[number]]
    shown = [
        f"{then[number]:,} then and {now[number]:,} now in partition {number}" for number in differing[:MOST_SHOWN]
    ]
    rest = len(differing) - len(shown)
    return ", ".join(shown) + (f" and others in {rest} more" if rest else "")
