"""Indexes of the state: which producer has a transactional id, which groups subscribe to a topic or have offsets of it.

They are derived: the fold updates them with each change, ``with_indexes`` builds them from scratch, and both give the
same result. They are not stored.

Rules: pure; a change costs the size of what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from immutables import Map
from msgspec.structs import replace

from sparklog.protocol.names import collision_key
from sparklog.protocol.state import EMPTY, GroupState, Indexes, ProducerState, State


def with_indexes(state: State) -> State:
    """Return the state with indexes built from its other parts."""
    ids = {state.producers[number].transactional_id: number for number in sorted(state.producers)}
    ids.pop("", None)
    subscribers: dict[str, dict[str, bool]] = {}
    offsets: dict[str, dict[str, int]] = {}
    for name, group in state.groups.items():
        for topic in subscribed_topics(group):
            subscribers.setdefault(topic, {})[name] = True
        for offset in group.offsets.values():
            counts = offsets.setdefault(offset.topic_id, {})
            counts[name] = counts.get(name, 0) + 1
    built = Indexes(
        transactional_ids=Map(ids),
        topic_names=Map({collision_key(name): name for name in sorted(state.topics)}),
        subscribers=Map({topic: Map(names) for topic, names in subscribers.items()}),
        offsets=Map({topic_id: Map(counts) for topic_id, counts in offsets.items()}),
    )
    return replace(state, indexes=built)


def with_topic(indexes: Indexes, name: str) -> Indexes:
    return replace(indexes, topic_names=indexes.topic_names.set(collision_key(name), name))


def without_topic(indexes: Indexes, name: str) -> Indexes:
    key = collision_key(name)
    if indexes.topic_names.get(key) != name:
        return indexes
    return replace(indexes, topic_names=indexes.topic_names.delete(key))


def with_producer(indexes: Indexes, number: int, old: ProducerState | None, new: ProducerState | None) -> Indexes:
    """Return the indexes after a producer was added, removed or changed its transactional id."""
    before = old.transactional_id if old is not None else ""
    after = new.transactional_id if new is not None else ""
    if before == after:
        return indexes
    ids = indexes.transactional_ids
    if before and ids.get(before) == number:
        ids = ids.delete(before)
    if after:
        ids = ids.set(after, number)
    return replace(indexes, transactional_ids=ids)


def subscribed_topics(group: GroupState | None) -> frozenset[str]:
    """Return the topics that members of a group subscribe to."""
    if group is None:
        return frozenset()
    return frozenset(topic for member in group.members.values() for topic in member.topics)


def with_members(indexes: Indexes, group: str, before: frozenset[str], after: frozenset[str]) -> Indexes:
    """Return the indexes after a group's subscribed topics changed."""
    if before == after:
        return indexes
    subscribers = indexes.subscribers
    for topic in before - after:
        subscribers = _without(subscribers, topic, group)
    for topic in after - before:
        subscribers = subscribers.set(topic, subscribers.get(topic, EMPTY).set(group, True))
    return replace(indexes, subscribers=subscribers)


def with_offset(indexes: Indexes, group: str, topic_id: str, change: int) -> Indexes:
    """Return the indexes after a group's number of offsets of a topic grew by ``change``."""
    counts = indexes.offsets.get(topic_id, EMPTY)
    count = counts.get(group, 0) + change
    if count:
        return replace(indexes, offsets=indexes.offsets.set(topic_id, counts.set(group, count)))
    return replace(indexes, offsets=_without(indexes.offsets, topic_id, group))


def _without(index: Map[str, Any], key: str, group: str) -> Map[str, Any]:
    groups: Mapping[str, Any] | None = index.get(key)
    if groups is None or group not in groups:
        return index
    remaining = index[key].delete(group)
    return index.set(key, remaining) if remaining else index.delete(key)
