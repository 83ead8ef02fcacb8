"""States and requests for the tests of decisions and of the fold."""

from __future__ import annotations

from typing import Any

from sparklog.protocol.commit_bytes import FORMAT, encode_to_store
from sparklog.protocol.commits import Action, Commit, RegisterBroker, Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import NewTopic, create_topic
from sparklog.protocol.fold import Draft, fold
from sparklog.protocol.state import State


def commit(state: State, actions: list[Action], timestamp: int | None = None) -> State:
    timestamp = state.timestamp_ms + 1 if timestamp is None else timestamp
    draft = Draft(state, timestamp)
    for action in actions:
        draft.apply(action)
    stored = Commit(
        format=FORMAT,
        version=state.version + 1,
        write_id="w",
        timestamp=timestamp,
        previous=state.digest,
        checksum=draft.finish(state.version + 1, "").checksum,
        actions=actions,
    )
    encode_to_store(stored)  # what no reader would accept is refused before it is stored
    return fold(state, stored, f"{state.version + 1:064x}").state


def after(state: State, decision: Decision[object]) -> State:
    return commit(state, decision.actions)


def new_cluster(brokers: int = 1) -> State:
    return commit(State(cluster_id="c"), [RegisterBroker(broker=number) for number in range(brokers)])


def with_topic(name: str = "orders", partitions: int = 2) -> State:
    state = new_cluster()
    return after(state, create_topic(state, NewTopic(name=name, topic_id="t1", partitions=partitions)))


def run(records: int, path: str = "orders-0/x.log") -> Run:
    return Run(path=path, batches=1, records=records, size_bytes=10, min_timestamp_us=1, max_timestamp_us=5)


def item(
    records: int = 3, partition: int = 0, topic_id: str = "t1", topic: str = "orders", **more: int
) -> PartitionAppend:
    return PartitionAppend(topic=topic, topic_id=topic_id, partition=partition, run=run(records), **more)  # type: ignore[arg-type]


def request(*items: PartitionAppend, **more: Any) -> AppendRequest:
    return AppendRequest(appends=items, **more)
