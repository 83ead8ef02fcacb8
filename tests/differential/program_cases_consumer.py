"""Cases of kafka-python's consumer without a group."""

from __future__ import annotations

import json
from typing import Any

from tests.differential.cases import program, programs
from tests.differential.targets import Workspace


def assigned(w: Workspace, topic: str, **settings: Any) -> Any:
    consumer = w.reader(**settings)
    consumer.assign([w.partition(topic)])
    return consumer


def three(w: Workspace, **settings: Any) -> Any:
    """Return a consumer assigned to a topic of three records."""
    return assigned(w, w.filled(b"0", b"1", b"2"), **settings)


def own(w: Workspace) -> Any:
    return w.partition(w.prefix)


# -- positions

programs(
    consumer_iterates=lambda w: [record.value for record in three(w)],
    consumer_latest_is_the_default=lambda w: (
        c := w.consumer(),
        c.assign([w.partition(w.filled(b"0"))]),
        c.position(own(w)),
    )[-1],
    consumer_position_at_start=lambda w: three(w).position(own(w)),
    consumer_position_after_poll=lambda w: (c := three(w), w.poll(c, 3), c.position(own(w)))[-1],
    consumer_position_unassigned=lambda w: w.consumer().position(w.partition("x")),
    consumer_position_tuple=lambda w: three(w).position((w.prefix, 0)),
    consumer_seek=lambda w: (c := three(w), c.seek(own(w), 2), [r.offset for r in w.poll(c, 1)])[-1],
    consumer_seek_negative=lambda w: three(w).seek(own(w), -1),
    consumer_seek_text=lambda w: three(w).seek(own(w), "1"),
    consumer_seek_unassigned=lambda w: w.consumer().seek(w.partition("x"), 0),
    consumer_seek_tuple=lambda w: three(w).seek((w.prefix, 0), 0),
    consumer_seek_to_beginning_tuple=lambda w: three(w).seek_to_beginning((w.prefix, 0)),
    consumer_seek_to_beginning_unassigned=lambda w: w.consumer().seek_to_beginning(w.partition("x")),
    consumer_seek_to_end_unassigned=lambda w: three(w).seek_to_end(w.partition("x")),
    consumer_seek_to_beginning_of_nothing=lambda w: w.consumer().seek_to_beginning(),
    consumer_seek_to_end_of_nothing=lambda w: w.consumer().seek_to_end(),
    consumer_seek_to_end=lambda w: (c := three(w), c.seek_to_end(), c.position(own(w)))[-1],
    consumer_seek_beyond_end=lambda w: (
        c := three(w, auto_offset_reset="earliest"),
        c.seek(own(w), 50),
        [r.offset for r in w.poll(c, 3)],
    )[-1],
    consumer_seek_beyond_end_none=lambda w: (
        c := three(w, auto_offset_reset="none"),
        c.seek(own(w), 50),
        w.attempt(lambda: w.poll(c, 1, seconds=5)),
    )[-1],
    consumer_no_offset_none=lambda w: w.attempt(lambda: w.poll(three(w, auto_offset_reset="none"), 1, seconds=5)),
    consumer_reset_unknown=lambda w: w.poll(three(w, auto_offset_reset="middle"), 1, seconds=3),
)


# -- polling

programs(
    consumer_poll_nothing_assigned=lambda w: w.consumer().poll(timeout_ms=10),
    consumer_next_nothing_assigned=lambda w: next(w.consumer(consumer_timeout_ms=100)),
    consumer_poll_negative=lambda w: three(w).poll(timeout_ms=-1),
    consumer_poll_max_records_0=lambda w: three(w).poll(max_records=0),
    consumer_poll_max_records_text=lambda w: three(w).poll(max_records="1"),
    consumer_poll_max_records=lambda w: [
        len(records) for records in three(w).poll(timeout_ms=5000, max_records=2).values()
    ],
    consumer_poll_keys=lambda w: list(three(w).poll(timeout_ms=5000)),
    consumer_max_poll_records=lambda w: [len(r) for r in three(w, max_poll_records=1).poll(timeout_ms=5000).values()],
    consumer_poll_after_close=lambda w: (c := three(w), c.close(), c.poll())[-1],
    consumer_next_after_close=lambda w: (c := three(w), c.close(), next(c))[-1],
    consumer_close_twice=lambda w: (c := three(w), c.close(), c.close())[-1],
    consumer_iteration_ends=lambda w: list(w.reader(w.topic(), consumer_timeout_ms=300)),
    consumer_unknown_topic=lambda w: w.poll(w.reader(w.prefix), 1, seconds=1),
    consumer_unknown_partition=lambda w: (
        c := w.reader(),
        c.assign([w.partition(w.topic(), 7)]),
        w.poll(c, 1, seconds=1),
    )[-1],
    consumer_bootstrap_connected=lambda w: w.consumer().bootstrap_connected(),
)


@program
def consumer_record_fields(w: Workspace) -> Any:
    topic = w.topic()
    w.send(topic, b"v", key=b"k", headers=[("h", b"x")], timestamp_ms=1_600_000_000_000)
    record = w.poll(assigned(w, topic), 1)[0]
    return {"fields": list(record._fields), **{n: getattr(record, n) for n in record._fields if n != "leader_epoch"}}


@program
def consumer_record_is_a_tuple(w: Workspace) -> Any:
    record = w.poll(three(w), 1)[0]
    return isinstance(record, tuple), record[0], len(record), record == record


@program
def consumer_several_topics_in_order(w: Workspace) -> Any:
    topic = w.topic(partitions=2)
    for number in (0, 1):
        w.send(topic, *(b"%d-%d" % (number, each) for each in range(3)), partition=number)
    consumer = w.reader()
    consumer.assign([w.partition(topic, 0), w.partition(topic, 1)])
    got = [record.value for record in w.poll(consumer, 6)]
    return {str(number): [value for value in got if value.startswith(b"%d" % number)] for number in (0, 1)}


@program
def consumer_max_records_of_single_sends(w: Workspace) -> Any:
    topic = w.filled(*(b"%d" % n for n in range(5)))
    return [len(each) for each in assigned(w, topic).poll(timeout_ms=5000, max_records=5).values()]


@program
def consumer_update_offsets_false(w: Workspace) -> Any:
    consumer = three(w)
    first = [r.offset for r in next(iter(consumer.poll(timeout_ms=5000, max_records=1, update_offsets=False).values()))]
    return first, consumer.position(own(w))


@program
def consumer_pause_and_resume(w: Workspace) -> Any:
    consumer = three(w)
    consumer.pause(own(w))
    none, paused = w.poll(consumer, 1, seconds=1), consumer.paused()
    consumer.resume(own(w))
    return none, paused, [record.offset for record in w.poll(consumer, 3)], consumer.paused()


programs(
    consumer_pause_tuple=lambda w: three(w).pause((w.prefix, 0)),
    consumer_pause_unassigned=lambda w: three(w).pause(w.partition("x")),
    consumer_resume_tuple=lambda w: three(w).resume((w.prefix, 0)),
)


# -- subscriptions and assignments

programs(
    subscribe_nothing=lambda w: w.consumer().subscribe(),
    subscribe_empty_list=lambda w: w.consumer().subscribe([]),
    subscribe_both=lambda w: w.consumer().subscribe(["a"], pattern="b"),
    subscribe_text=lambda w: w.consumer().subscribe("topic"),
    subscribe_numbers=lambda w: w.consumer().subscribe([1]),
    subscribe_invalid_name=lambda w: w.consumer().subscribe(["a b"]),
    subscribe_empty_name=lambda w: w.consumer().subscribe([""]),
    subscribe_set=lambda w: (c := w.consumer(), c.subscribe({w.topic()}), sorted(c.subscription()))[-1],
    subscribe_tuple=lambda w: (c := w.consumer(), c.subscribe((w.topic(),)), sorted(c.subscription()))[-1],
    subscribe_bad_pattern=lambda w: w.consumer().subscribe(pattern="["),
    subscribe_bad_listener=lambda w: w.consumer().subscribe(["a"], listener=5),
    subscribe_after_assign=lambda w: (c := three(w), c.subscribe([w.prefix]))[-1],
    assign_after_subscribe=lambda w: (c := w.consumer(w.topic()), c.assign([own(w)]))[-1],
    assign_nothing_then_subscribe=lambda w: (c := three(w), c.assign([]), c.subscribe([w.prefix]), c.subscription())[
        -1
    ],
    assign_nothing=lambda w: (c := three(w), c.assign([]), c.assignment(), c.poll(timeout_ms=10))[-2:],
    assign_text=lambda w: w.consumer().assign(["a"]),
    assign_tuple=lambda w: (c := w.reader(), c.assign([(w.topic(), 0)]), c.assignment())[-1],
    assign_one_not_in_a_list=lambda w: w.consumer().assign(w.partition("a")),
    assign_none=lambda w: w.consumer().assign(None),
    unsubscribe=lambda w: (c := w.consumer(w.topic()), c.unsubscribe(), c.subscription(), c.assignment())[-2:],
    unsubscribe_at_first=lambda w: w.consumer().unsubscribe(),
    subscription_at_first=lambda w: w.consumer().subscription(),
    subscription_given=lambda w: sorted(w.consumer(w.topic()).subscription()),
    assignment_at_first=lambda w: w.consumer().assignment(),
    subscribe_without_group=lambda w: [r.value for r in w.poll(w.reader(w.filled(b"0")), 1)],
    subscribe_pattern_without_group=lambda w: (
        w.filled(b"0"),
        c := w.reader(),
        c.subscribe(pattern=f"^{w.prefix}$"),
        [r.value for r in w.poll(c, 1)],
    )[-1],
)


# -- metadata and offsets

programs(
    consumer_topics=lambda w: w.topic() in w.consumer().topics(),
    consumer_topics_type=lambda w: type(w.consumer().topics()),
    consumer_partitions=lambda w: w.consumer().partitions_for_topic(w.topic(partitions=3)),
    consumer_partitions_of_unknown=lambda w: w.consumer().partitions_for_topic(w.prefix),
    consumer_beginning_offsets=lambda w: three(w).beginning_offsets([own(w)]),
    consumer_end_offsets=lambda w: three(w).end_offsets([own(w)]),
    consumer_end_offsets_unassigned=lambda w: w.consumer().end_offsets([w.partition(w.filled(b"0"))]),
    consumer_end_offsets_of_unknown=lambda w: w.consumer().end_offsets([own(w)], timeout_ms=500),
    consumer_end_offsets_empty=lambda w: w.consumer().end_offsets([]),
    consumer_end_offsets_tuple=lambda w: three(w).end_offsets([(w.prefix, 0)]),
    consumer_offsets_for_times=lambda w: (
        t := w.topic(),
        [w.send(t, b"v", timestamp_ms=1_600_000_000_000 + n * 1000) for n in range(3)],
        w.consumer().offsets_for_times({own(w): 1_600_000_000_500}),
    )[-1],
    consumer_offsets_for_late_times=lambda w: three(w).offsets_for_times({own(w): 9_000_000_000_000}),
    consumer_offsets_for_negative_times=lambda w: three(w).offsets_for_times({own(w): -5}),
    consumer_offsets_for_text_times=lambda w: three(w).offsets_for_times({own(w): "now"}),
    consumer_offsets_for_no_times=lambda w: w.consumer().offsets_for_times({}),
    consumer_highwater=lambda w: (c := three(w), w.poll(c, 3), c.highwater(own(w)))[-1],
    consumer_highwater_before_fetch=lambda w: three(w).highwater(own(w)),
    consumer_highwater_unassigned=lambda w: w.consumer().highwater(w.partition("x")),
    consumer_highwater_tuple=lambda w: three(w).highwater((w.prefix, 0)),
    consumer_commit_without_group=lambda w: three(w).commit(),
    consumer_commit_async_without_group=lambda w: three(w).commit_async(),
    consumer_committed_without_group=lambda w: three(w).committed(own(w)),
    consumer_group_metadata_without_group=lambda w: w.consumer().group_metadata(),
)


# -- deserializers

programs(
    deserializer_function=lambda w: [r.value for r in three(w, value_deserializer=lambda value: int(value.decode()))],
    deserializer_json_fails=lambda w: w.poll(assigned(w, w.filled(b"{"), value_deserializer=json.loads), 1, seconds=5),
    deserializer_divides_by_zero=lambda w: w.poll(three(w, value_deserializer=lambda v: 1 // 0), 1, seconds=5),
    deserializer_of_none=lambda w: [
        r.value for r in assigned(w, w.filled(None), value_deserializer=lambda v: f"got {v}")
    ],
    deserializer_of_none_key=lambda w: [
        r.key for r in assigned(w, w.filled(b"v"), key_deserializer=lambda v: f"got {v}")
    ],
    deserializer_not_callable=lambda w: w.poll(three(w, value_deserializer=5), 1, seconds=3),
)


@program
def deserializer_object_sees_headers(w: Workspace) -> Any:
    seen: list[Any] = []

    class Mine(w.kafka.Deserializer):  # type: ignore[misc, name-defined]
        def deserialize(self, topic: str, headers: Any, data: Any) -> Any:
            seen.append([topic, headers, data])
            return data

    topic = w.topic()
    w.send(topic, b"v", headers=[("schema", b"7")])
    w.poll(assigned(w, topic, value_deserializer=Mine()), 1)
    return seen


@program
def deserializer_json_object(w: Workspace) -> Any:
    topic = w.filled(b'{"a": [1, null]}', None, b'"\\u00e9"')
    return [record.value for record in assigned(w, topic, value_deserializer=w.kafka.JsonSerializer())]


# -- settings

SETTINGS: dict[str, dict[str, Any]] = {
    "unknown": {"no_such_setting": 1},
    "fetch_wait_over_request": {"fetch_max_wait_ms": 50_000, "request_timeout_ms": 40_000},
    "session_over_request": {"session_timeout_ms": 50_000, "request_timeout_ms": 40_000, "group_id": "g-setting"},
    "heartbeat_over_session": {"heartbeat_interval_ms": 50_000, "session_timeout_ms": 40_000, "group_id": "g-setting"},
    "isolation_unknown": {"isolation_level": "read_everything"},
    "isolation_number": {"isolation_level": 1},
    "api_version": {"api_version": (2, 0, 0)},
    "group_instance_id_without_group": {"group_instance_id": "me"},
    "group_instance_id_empty": {"group_instance_id": "", "group_id": "g-setting"},
    "group_instance_id_invalid": {"group_instance_id": "a b", "group_id": "g-setting"},
    "group_instance_id_long": {"group_instance_id": "a" * 250, "group_id": "g-setting"},
    "strategy_unknown": {"partition_assignment_strategy": ["range"], "group_id": "g-setting"},
    "no_strategy": {"partition_assignment_strategy": [], "group_id": "g-setting"},
    "max_poll_records_0": {"max_poll_records": 0},
    "legacy_reset": {"auto_offset_reset": "smallest"},
    "reset_case": {"auto_offset_reset": "EARLIEST"},
    "metrics_off": {"metrics_enabled": False},
    "client_id": {"client_id": "me"},
    "check_crcs": {"check_crcs": False},
    "ssl": {"security_protocol": "PLAINTEXT", "ssl_check_hostname": False, "ssl_cafile": None},
}


def configured(settings: dict[str, Any]) -> Any:
    def case(w: Workspace) -> Any:
        return [record.value for record in w.poll(assigned(w, w.filled(b"v"), **settings), 1, seconds=3)]

    return case


programs(**{f"consumer_setting_{name}": configured(settings) for name, settings in SETTINGS.items()})


@program
def consumer_config_is_readable(w: Workspace) -> Any:
    config = w.consumer(group_id="g-config", max_poll_records=7).config
    names = ("group_id", "max_poll_records", "auto_offset_reset", "enable_auto_commit", "session_timeout_ms",
             "fetch_max_bytes", "isolation_level", "consumer_timeout_ms", "heartbeat_interval_ms")  # fmt: skip
    return {name: config[name] for name in names}


@program
def consumer_metrics(w: Workspace) -> Any:
    consumer = three(w)
    w.poll(consumer, 3)
    metrics = consumer.metrics()
    wanted = ("records-consumed-rate", "fetch-latency-avg", "bytes-consumed-rate", "records-lag-max", "fetch-size-avg",
              "records-per-request-avg", "fetch-rate", "fetch-throttle-time-avg")  # fmt: skip
    found = metrics.get("consumer-fetch-manager-metrics", {})
    return {"groups": sorted(n for n in metrics if "topic" not in n), **{name: name in found for name in wanted}}


@program
def consumer_with_block(w: Workspace) -> Any:
    topic = w.filled(b"v")
    with w.reader(topic) as consumer:
        values = [record.value for record in w.poll(consumer, 1)]
    return values, w.attempt(consumer.poll)
