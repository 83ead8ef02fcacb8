"""Cases of consumer groups of kafka-python: commits, members, rebalances."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.differential.cases import program, programs
from tests.differential.targets import SECONDS, Workspace

SLOW: dict[str, Any] = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 500}


def member(w: Workspace, *topics: str, **settings: Any) -> Any:
    given = {"group_id": "g-" + w.prefix, "auto_offset_reset": "earliest", "enable_auto_commit": False, **SLOW}
    return w.consumer(*topics, **{**given, **settings})


def knowing(consumer: Any, topic: str) -> Any:
    """Wait until the consumer has the topic's metadata: kafka-python may join earlier, get no partitions and rejoin."""
    assert consumer.partitions_for_topic(topic)
    return consumer


def outsider(w: Workspace, topic: str, **settings: Any) -> Any:
    consumer = member(w, **settings)
    consumer.assign([w.partition(topic)])
    return consumer


def committed(w: Workspace, topic: str, number: int = 0) -> Any:
    return member(w).committed(w.partition(topic, number))


def offset(w: Workspace, *arguments: Any) -> Any:
    return w.kafka.OffsetAndMetadata(*arguments)


# -- commits

COMMITS: dict[str, Any] = {
    "plain": lambda w: offset(w, 2, "", -1),
    "metadata": lambda w: offset(w, 2, "héllo", -1),
    "none_metadata": lambda w: offset(w, 2, None, -1),
    "only_offset": lambda w: offset(w, 2),
    "two_fields": lambda w: offset(w, 2, ""),
    "beyond_end": lambda w: offset(w, 99, "", -1),
    "negative": lambda w: offset(w, -1, "", -1),
    "number": lambda w: 2,
    "long_metadata": lambda w: offset(w, 2, "m" * 4097, -1),
    "longest_metadata": lambda w: offset(w, 2, "m" * 4096, -1),
}


def committing(make: Any) -> Any:
    def case(w: Workspace) -> Any:
        topic = w.filled(b"0", b"1", b"2")
        partition = w.partition(topic)
        answer = w.attempt(lambda: outsider(w, topic).commit({partition: make(w)}))
        found = member(w).committed(partition, metadata=True)
        if found is not None:
            found = [found.offset, len(found.metadata) if len(found.metadata or "") > 100 else found.metadata]
        return {"commit": answer, "committed": found}

    return case


programs(**{f"commit_{name}": committing(make) for name, make in COMMITS.items()})


@program
def commit_without_arguments(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1", b"2")
    consumer = outsider(w, topic)
    before = consumer.committed(w.partition(topic))
    w.poll(consumer, 3)
    return before, consumer.commit(), consumer.committed(w.partition(topic))


programs(
    commit_unknown_topic=lambda w: member(w).commit({w.partition(w.prefix): offset(w, 1, "", -1)}, timeout_ms=1500),
    commit_not_a_dict=lambda w: outsider(w, w.topic()).commit([1]),
    commit_tuple_key=lambda w: outsider(w, w.topic()).commit({(w.prefix, 0): offset(w, 1, "", -1)}),
    commit_empty=lambda w: outsider(w, w.topic()).commit({}),
    committed_nothing=lambda w: committed(w, w.topic()),
    committed_tuple=lambda w: member(w).committed((w.topic(), 0)),
    committed_metadata_nothing=lambda w: member(w).committed(w.partition(w.topic()), metadata=True),
)


@program
def commit_async_callback(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1")
    consumer, got = outsider(w, topic), []
    w.poll(consumer, 2)
    future = consumer.commit_async(callback=lambda offsets, result: got.append([offsets, result]))
    end = time.monotonic() + SECONDS
    while not got and time.monotonic() < end:
        consumer.poll(timeout_ms=100)
    return {"future": future is not None, "got": got and [list(got[0][0]), isinstance(got[0][1], Exception)]}


@program
def commit_async_then_close(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1")
    consumer = outsider(w, topic)
    w.poll(consumer, 2)
    consumer.commit_async()
    consumer.close()
    return committed(w, topic)


@program
def commit_by_an_outsider_of_a_live_group(w: Workspace) -> Any:
    topic = w.filled(b"0")
    inside = member(w, topic)
    w.poll(inside, 1)
    other = outsider(w, topic)
    return other.commit({w.partition(topic): offset(w, 1, "", -1)})


@program
def group_continues_where_it_committed(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1", b"2")
    first = member(w, topic, max_poll_records=1)
    one = w.poll(first, 1)
    first.commit()
    first.close()
    second = member(w, topic)
    return [each.value for each in one], [each.value for each in w.poll(second, 2)]


@program
def auto_commit_at_close(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1")
    consumer = member(w, topic, enable_auto_commit=True)
    w.poll(consumer, 2)
    consumer.close()
    return committed(w, topic)


@program
def auto_commit_not_at_close(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1")
    consumer = member(w, topic, enable_auto_commit=True)
    w.poll(consumer, 2)
    consumer.close(autocommit=False)
    return committed(w, topic)


@program
def auto_commit_at_unsubscribe(w: Workspace) -> Any:
    """Without a group: kafka-python sends a member's commit and leave request together, so the commit often fails."""
    topic = w.filled(b"0", b"1")
    consumer = outsider(w, topic, enable_auto_commit=True)
    w.poll(consumer, 2)
    consumer.unsubscribe()
    consumer.close()
    return committed(w, topic)


@program
def auto_commit_in_a_with_block_left_by_an_exception(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1")

    def use() -> None:
        with member(w, topic, enable_auto_commit=True) as consumer:
            w.poll(consumer, 2)
            raise ZeroDivisionError

    return w.attempt(use), committed(w, topic)


@program
def auto_commit_while_iterating(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1", b"2")
    consumer = member(w, topic, enable_auto_commit=True, consumer_timeout_ms=2000)
    for record in consumer:
        if record.offset == 1:
            break
    consumer.close()
    return committed(w, topic)


@program
def auto_commit_interval(w: Workspace) -> Any:
    topic = w.filled(b"0", b"1")
    consumer = member(w, topic, enable_auto_commit=True, auto_commit_interval_ms=100)
    w.poll(consumer, 2)
    found = None
    for _ in range(50):
        consumer.poll(timeout_ms=100)
        found = committed(w, topic)
        if found is not None:
            break
    return found


@program
def auto_commit_without_group(w: Workspace) -> Any:
    return [r.value for r in w.poll(w.reader(w.filled(b"0"), group_id=None, enable_auto_commit=True), 1)]


# -- members and rebalances


class Polling:
    """A member that polls on its own thread until it is stopped."""

    def __init__(self, consumer: Any) -> None:
        self.consumer, self.stop = consumer, threading.Event()
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                self.consumer.poll(timeout_ms=1000)
            except Exception as error:
                self.error = error
                return

    def end(self) -> None:
        self.stop.set()
        self.thread.join(SECONDS)


def together(w: Workspace, consumers: list[Any], ready: Any) -> list[Any]:
    """Poll until ``ready`` accepts the sizes of the assignments; return the assignments."""
    running = [Polling(each) for each in consumers]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not ready([len(each.assignment()) for each in consumers]):
        time.sleep(0.05)
    for each in running:
        each.end()
    return [each.assignment() for each in consumers]


ASSIGNORS = {
    "range": "kafka.coordinator.assignors.range.RangePartitionAssignor",
    "roundrobin": "kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor",
    "sticky": "kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor",
    "cooperative": "kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor",
}


def sharing(path: str) -> Any:
    def case(w: Workspace) -> Any:
        module, _, name = path.rpartition(".")
        assignor = getattr(w.module(module), name)
        topics = [w.topic("-a", 4), w.topic("-b", 3)]
        consumers = [member(w, *topics, partition_assignment_strategy=[assignor]) for _ in range(2)]
        parts = together(w, consumers, lambda sizes: sum(sizes) == 7 and min(sizes) > 0)
        return sorted(len(each) for each in parts), len(set().union(*parts))

    return case


programs(**{f"group_of_two_{name}": sharing(path) for name, path in ASSIGNORS.items()})


@program
def group_more_members_than_partitions(w: Workspace) -> Any:
    topic = w.topic(partitions=1)
    parts = together(w, [member(w, topic) for _ in range(2)], lambda sizes: sum(sizes) == 1)
    return sorted(len(each) for each in parts)


@program
def group_leaver_gives_its_partitions(w: Workspace) -> Any:
    topic = w.topic(partitions=2)
    first, second = member(w, topic), member(w, topic)
    together(w, [first, second], lambda sizes: sizes == [1, 1])
    second.close()
    return [len(each) for each in together(w, [first], lambda sizes: sizes == [2])]


@program
def group_listener_calls(w: Workspace) -> Any:
    topic, calls = w.topic(partitions=2), []

    class Listener(w.kafka.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
        def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append(["revoked", sorted(f"{each.topic}-{each.partition}" for each in revoked)])

        def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append(["assigned", sorted(f"{each.topic}-{each.partition}" for each in assigned)])

    consumer = member(w)
    consumer.subscribe([topic], listener=Listener())
    together(w, [knowing(consumer, topic)], lambda sizes: sizes == [2])
    consumer.close()
    return calls


@program
def group_listener_raises(w: Workspace) -> Any:
    topic = w.filled(b"0")

    class Listener(w.kafka.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            raise ZeroDivisionError("mine")

    consumer = member(w)
    consumer.subscribe([topic], listener=Listener())
    return w.poll(consumer, 1, seconds=8)


@program
def group_pattern(w: Workspace) -> Any:
    w.topic("-x1"), w.topic("-x2"), w.topic("-y")
    consumer = member(w)
    consumer.subscribe(pattern=f"^{w.prefix}-x.*")
    return together(w, [consumer], lambda sizes: sizes == [2]), consumer.subscription()


@program
def group_static_member_returns(w: Workspace) -> Any:
    topic = w.topic(partitions=2)
    consumer = member(w, topic, group_instance_id="me")
    together(w, [consumer], lambda sizes: sizes == [2])
    first = consumer.group_metadata()
    consumer.close()
    again = member(w, topic, group_instance_id="me")
    together(w, [again], lambda sizes: sizes == [2])
    second = again.group_metadata()
    return {"instance": second.group_instance_id, "generation grew": second.generation_id > first.generation_id}


@program
def group_metadata_fields(w: Workspace) -> Any:
    topic = w.topic()
    consumer = knowing(member(w, topic), topic)
    before = consumer.group_metadata()
    together(w, [consumer], lambda sizes: sizes == [1])
    after = consumer.group_metadata()
    return {
        "fields": list(after._fields),
        "before": [before.group_id == consumer.config["group_id"], before.generation_id, before.member_id],
        "after": [after.generation_id, bool(after.member_id), after.group_instance_id],
    }


@program
def group_mixed_protocols(w: Workspace) -> Any:
    eager, cooperative = (ASSIGNORS[name].rpartition(".") for name in ("range", "cooperative"))
    strategies = [getattr(w.module(path), name) for path, _, name in (eager, cooperative)]
    return w.poll(member(w, w.filled(b"0"), partition_assignment_strategy=strategies), 1, seconds=5)


@program
def group_inconsistent_protocols(w: Workspace) -> Any:
    topic = w.filled(b"0")
    one, two = (ASSIGNORS[name].rpartition(".") for name in ("range", "roundrobin"))
    first = member(w, topic, partition_assignment_strategy=[getattr(w.module(one[0]), one[2])])
    w.poll(first, 1)
    second = member(w, topic, partition_assignment_strategy=[getattr(w.module(two[0]), two[2])])
    return w.poll(second, 1, seconds=5)


GROUP_IDS = {
    "empty": "",
    "spaces": "a group",
    "unicode": "gruppe-é",
    "slash": "a/b",
    "dots": "..",
    "long": "g" * 300,
    "bytes": b"g",
}


def named(group: Any) -> Any:
    def case(w: Workspace) -> Any:
        given = group + ("-" + w.prefix if isinstance(group, str) and len(group) > 2 else group[:0])
        consumer = w.consumer(group_id=given)
        topic = w.filled(b"0")
        consumer.assign([w.partition(topic)])
        consumer.commit({w.partition(topic): offset(w, 1, "", -1)}, timeout_ms=3000)
        return consumer.committed(w.partition(topic), timeout_ms=3000)

    return case


programs(**{f"group_id_{name}": named(group) for name, group in GROUP_IDS.items()})
