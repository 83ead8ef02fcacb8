"""Cases of transactions of kafka-python."""

from __future__ import annotations

from typing import Any

from tests.differential.cases import program, programs
from tests.differential.targets import SECONDS, Workspace


def transactional(w: Workspace, **settings: Any) -> Any:
    producer = w.producer(transactional_id="t-" + w.prefix, **settings)
    producer.init_transactions()
    return producer


programs(
    transaction_methods_without_id=lambda w: {
        name: w.attempt(getattr(w.producer(), name))
        for name in ("init_transactions", "begin_transaction", "commit_transaction", "abort_transaction")
    },
    transaction_offsets_without_id=lambda w: w.producer().send_offsets_to_transaction({}, "g"),
    transaction_begin_before_init=lambda w: w.producer(transactional_id="t-" + w.prefix).begin_transaction(),
    transaction_commit_before_begin=lambda w: transactional(w).commit_transaction(),
    transaction_abort_before_begin=lambda w: transactional(w).abort_transaction(),
    transaction_send_outside=lambda w: transactional(w).send(w.topic(), b"v").get(SECONDS),
    transaction_init_twice=lambda w: transactional(w).init_transactions(),
    transaction_empty=lambda w: [(p := transactional(w)).begin_transaction(), p.commit_transaction()],
)


@program
def transaction_begin_twice(w: Workspace) -> Any:
    producer = transactional(w)
    producer.begin_transaction()
    return producer.begin_transaction()


@program
def transaction_committed_and_aborted(w: Workspace) -> Any:
    topic, producer = w.topic(), transactional(w)
    for value, end in (
        (b"a", producer.commit_transaction),
        (b"b", producer.abort_transaction),
        (b"c", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.send(topic, value)
        producer.flush()
        end()
    return {"committed": w.values(topic, 2, isolation_level="read_committed"), "all": w.values(topic)}


@program
def transaction_offsets_of_records(w: Workspace) -> Any:
    topic, producer = w.topic(), transactional(w)
    offsets = []
    for value in (b"a", b"b"):
        producer.begin_transaction()
        future = producer.send(topic, value)
        producer.commit_transaction()
        offsets.append(future.get(SECONDS).offset)
    w.values(topic, 2, isolation_level="read_committed")
    return {"offsets": offsets, "end": w.reader().end_offsets([w.partition(topic)])}


@program
def transaction_future_while_open(w: Workspace) -> Any:
    topic, producer = w.topic(), transactional(w)
    producer.begin_transaction()
    future = producer.send(topic, b"a")
    answer = w.attempt(lambda: future.get(2).offset)
    flushed = w.attempt(producer.flush)
    producer.commit_transaction()
    return {"get": answer, "flush": flushed, "after": future.get(SECONDS).offset}


@program
def transaction_future_while_open_without_timeout(w: Workspace) -> Any:
    topic, producer = w.topic(), transactional(w)
    producer.begin_transaction()
    return producer.send(topic, b"a").get().offset


@program
def transaction_open_hides_later_records(w: Workspace) -> Any:
    topic, producer = w.topic(), transactional(w)
    producer.begin_transaction()
    producer.send(topic, b"open")
    producer.flush()
    w.send(topic, b"later")
    committed, all_of_them = w.reader(isolation_level="read_committed"), w.reader()
    ends = [c.end_offsets([w.partition(topic)])[w.partition(topic)] for c in (committed, all_of_them)]
    producer.commit_transaction()
    return {"ends": ends, "values": w.values(topic, 2, isolation_level="read_committed")}


@program
def transaction_fencing(w: Workspace) -> Any:
    topic, first = w.topic(), transactional(w)
    first.begin_transaction()
    first.send(topic, b"zombie")
    first.flush()
    second = transactional(w)
    second.begin_transaction()
    second.send(topic, b"new")
    second.commit_transaction()
    return {
        "commit": w.attempt(first.commit_transaction),
        "abort": w.attempt(first.abort_transaction),
        "begin": w.attempt(first.begin_transaction),
        "send": w.attempt(lambda: first.send(topic, b"x").get(SECONDS)),
        "values": w.values(topic, 1, isolation_level="read_committed"),
    }


@program
def transaction_with_a_failed_record(w: Workspace) -> Any:
    topic, producer = w.topic(configs={"max.message.bytes": "1000"}), transactional(w)
    producer.begin_transaction()
    producer.send(topic, b"small")
    first = w.attempt(lambda: producer.send(topic, b"v" * 2000).get(5))
    commit = w.attempt(producer.commit_transaction)
    answers = {"send": first, "commit": commit, "abort": w.attempt(producer.abort_transaction)}
    producer.begin_transaction()
    producer.send(topic, b"next")
    producer.commit_transaction()
    return {**answers, "values": w.values(topic, 1, isolation_level="read_committed")}


@program
def transaction_moves_offsets(w: Workspace) -> Any:
    source, target = w.filled(b"1", b"2", suffix="-in"), w.topic("-out")
    producer, group = transactional(w), "g-" + w.prefix
    consumer = w.consumer(source, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
    records = w.poll(consumer, 2)
    producer.begin_transaction()
    for record in records:
        producer.send(target, record.value + b"!")
    offsets = {w.partition(source): w.kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1)}
    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    producer.commit_transaction()
    return w.values(target, 2, isolation_level="read_committed"), consumer.committed(w.partition(source))


@program
def transaction_offsets_by_group_name(w: Workspace) -> Any:
    source, producer, group = w.filled(b"1"), transactional(w), "g-" + w.prefix
    producer.begin_transaction()
    given = {w.partition(source): w.kafka.OffsetAndMetadata(1, "note", -1)}
    answer = w.attempt(lambda: producer.send_offsets_to_transaction(given, group))
    ended = w.attempt(producer.commit_transaction)
    consumer = w.consumer(group_id=group)
    return {"send": answer, "commit": ended, "committed": consumer.committed(w.partition(source), metadata=True)}


@program
def transaction_aborted_offsets(w: Workspace) -> Any:
    source, producer, group = w.filled(b"1"), transactional(w), "g-" + w.prefix
    producer.begin_transaction()
    given = {w.partition(source): w.kafka.OffsetAndMetadata(1, "", -1)}
    producer.send_offsets_to_transaction(given, w.kafka.ConsumerGroupMetadata(group))
    producer.abort_transaction()
    return w.consumer(group_id=group).committed(w.partition(source))


@program
def transaction_described(w: Workspace) -> Any:
    topic, producer, name = w.topic(), transactional(w), "t-" + w.prefix
    admin = w.admin()
    producer.begin_transaction()
    producer.send(topic, b"v")
    producer.flush()
    found = admin.describe_transactions([name])[name]
    listed = [each for rows in admin.list_transactions().values() for each in rows if each.transactional_id == name]
    producer.abort_transaction()
    return {
        "fields": found._fields,
        "state": found.state,
        "timeout": found.transaction_timeout_ms,
        "partitions": found.topic_partitions,
        "listed": [each.state for each in listed],
    }


@program
def transaction_unknown_described(w: Workspace) -> Any:
    return w.attempt(lambda: w.admin().describe_transactions(["nobody-" + w.prefix]))


@program
def transaction_producers_described(w: Workspace) -> Any:
    topic, producer = w.topic(), transactional(w)
    producer.begin_transaction()
    producer.send(topic, b"v")
    producer.flush()
    found = w.admin().describe_producers([w.partition(topic)])
    producer.commit_transaction()
    state = next(iter(found.values()))
    return {
        "keys": list(found),
        "count": len(state.active_producers),
        "open": [each.current_transaction_start_offset for each in state.active_producers],
        "sequence": [each.last_sequence for each in state.active_producers],
    }


@program
def transaction_close_aborts(w: Workspace) -> Any:
    topic, producer = w.topic(), transactional(w)
    producer.begin_transaction()
    producer.send(topic, b"open")
    producer.flush()
    producer.close()
    again = transactional(w)
    again.begin_transaction()
    again.send(topic, b"done")
    again.commit_transaction()
    return w.values(topic, 1, isolation_level="read_committed")
