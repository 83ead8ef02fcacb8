"""Cases of kafka-python's producer."""

from __future__ import annotations

import json
from typing import Any

from tests.differential.cases import program, programs
from tests.differential.targets import SECONDS, Workspace

HOUR_AGO = 3_600_000


# -- what send() returns and stores


def sent(w: Workspace, *arguments: Any, **named: Any) -> Any:
    """Send one record and return it as a consumer receives it."""
    settings = named.pop("settings", {})
    topic = w.topic(partitions=named.pop("partitions", 1), configs=named.pop("configs", None))
    producer = w.producer(**settings)
    metadata = producer.send(topic, *arguments, **named).get(SECONDS)
    consumer = w.reader()
    consumer.assign([w.partition(topic, metadata.partition)])
    record = w.poll(consumer, 1)[0]
    return {
        "offset": record.offset,
        "key": record.key,
        "value": record.value,
        "headers": record.headers,
        "type": record.timestamp_type,
        "sizes": [record.serialized_key_size, record.serialized_value_size, record.serialized_header_size],
    }


programs(
    producer_record_value=lambda w: sent(w, b"v"),
    producer_record_key=lambda w: sent(w, b"v", b"k"),
    producer_record_none_value=lambda w: sent(w, None, b"k"),
    producer_record_empty_value=lambda w: sent(w, b""),
    producer_record_empty_key=lambda w: sent(w, b"v", b""),
    producer_record_bytearray=lambda w: sent(w, bytearray(b"v")),
    producer_record_memoryview=lambda w: sent(w, memoryview(b"v")),
    producer_record_headers=lambda w: sent(w, b"v", headers=[("a", b"1"), ("a", b"2"), ("é", b"")]),
    producer_record_no_headers=lambda w: sent(w, b"v", headers=[]),
    producer_record_header_none=lambda w: sent(w, b"v", headers=[("a", None)]),
    producer_record_header_text_value=lambda w: sent(w, b"v", headers=[("a", "1")]),
    producer_record_header_bytes_name=lambda w: sent(w, b"v", headers=[(b"a", b"1")]),
    producer_record_headers_tuple=lambda w: sent(w, b"v", headers=(("a", b"1"),)),
    producer_record_headers_dict=lambda w: sent(w, b"v", headers={"a": b"1"}),
    producer_record_header_list_pair=lambda w: sent(w, b"v", headers=[["a", b"1"]]),
    producer_record_text_value=lambda w: sent(w, "v"),
    producer_record_text_key=lambda w: sent(w, b"v", "k"),
    producer_record_number_value=lambda w: sent(w, 1),
    producer_record_nothing=lambda w: sent(w),
    producer_record_serialized=lambda w: sent(
        w, {"a": 1}, "k", settings={"value_serializer": lambda v: json.dumps(v).encode(), "key_serializer": str.encode}
    ),
    producer_record_serializer_gets_none=lambda w: sent(
        w,
        None,
        "k",
        settings={"value_serializer": lambda v: b"none" if v is None else b"", "key_serializer": str.encode},
    ),
    producer_record_gzip=lambda w: sent(w, b"v" * 100, settings={"compression_type": "gzip"}),
    producer_record_log_append_time=lambda w: sent(w, b"v", configs={"message.timestamp.type": "LogAppendTime"}),
    producer_partition_given=lambda w: [
        w.producer().send(w.topic(partitions=3), b"v", partition=2).get(SECONDS).partition
    ],
    producer_partition_negative=lambda w: w.producer().send(w.topic(), b"v", partition=-1).get(SECONDS),
    producer_partition_too_high=lambda w: w.producer().send(w.topic(), b"v", partition=1).get(SECONDS),
    producer_partition_text=lambda w: w.producer().send(w.topic(), b"v", partition="0").get(SECONDS),
    producer_topic_none=lambda w: w.producer(max_block_ms=500).send(None, b"v").get(SECONDS),
    producer_topic_empty=lambda w: w.producer(max_block_ms=500).send("", b"v").get(SECONDS),
    producer_topic_invalid=lambda w: w.producer(max_block_ms=500).send("a b", b"v").get(SECONDS),
    producer_topic_bytes=lambda w: w.producer(max_block_ms=500).send(b"topic", b"v").get(SECONDS),
    producer_topic_unknown=lambda w: w.producer(max_block_ms=500).send(w.prefix, b"v").get(SECONDS),
    producer_partitions_for=lambda w: w.producer().partitions_for(w.topic(partitions=3)),
    producer_partitions_for_unknown=lambda w: w.producer(max_block_ms=500).partitions_for(w.prefix),
    producer_timestamp_text=lambda w: w.producer().send(w.topic(), b"v", timestamp_ms="1").get(SECONDS),
)


@program
def producer_metadata_fields(w: Workspace) -> Any:
    producer, topic = w.producer(), w.topic()
    found = [producer.send(topic, value=b"v", key=b"k", headers=[("h", b"1")]).get(SECONDS) for _ in range(2)][1]
    return {
        "fields": list(getattr(found, "_fields", ())),
        "topic": found.topic,
        "partition": found.partition,
        "offset": found.offset,
        "topic_partition": found.topic_partition,
        "sizes": [found.serialized_key_size, found.serialized_value_size, found.serialized_header_size],
        "timestamp": isinstance(found.timestamp, int) and found.timestamp > 10**12,
    }


@program
def producer_given_timestamp(w: Workspace) -> Any:
    topic = w.topic(configs={"message.timestamp.after.max.ms": "9223372036854775807"})
    producer = w.producer()
    futures = [producer.send(topic, b"v", timestamp_ms=when) for when in (1, 1_600_000_000_000, 4_000_000_000_000)]
    return [each.get(SECONDS).timestamp for each in futures]


@program
def producer_timestamp_too_far_ahead(w: Workspace) -> Any:
    topic = w.topic(configs={"message.timestamp.after.max.ms": "1000"})
    return w.producer().send(topic, b"v", timestamp_ms=4_000_000_000_000).get(SECONDS)


@program
def producer_timestamp_too_old(w: Workspace) -> Any:
    topic = w.topic(configs={"message.timestamp.before.max.ms": "1000"})
    return w.producer().send(topic, b"v", timestamp_ms=1_000).get(SECONDS)


@program
def producer_keys_choose_partitions(w: Workspace) -> Any:
    producer, topic = w.producer(), w.topic(partitions=7)
    return [producer.send(topic, b"v", key=b"key-%d" % n).get(SECONDS).partition for n in range(20)]


@program
def producer_keyless_records_reach_every_partition(w: Workspace) -> Any:
    producer, topic = w.producer(), w.topic(partitions=3)
    found = set()
    for _ in range(60):
        found.add(producer.send(topic, b"v").get(SECONDS).partition)
    return sorted(found)


# -- futures and callbacks


@program
def producer_callbacks(w: Workspace) -> Any:
    got: list[Any] = []
    future = w.producer().send(w.topic(), b"v")
    chained = future.add_callback(lambda tag, metadata: got.append((tag, metadata.offset)), "tag")
    future.add_errback(got.append)
    future.get(SECONDS)
    future.add_callback(lambda metadata: got.append(("late", metadata.offset)))
    return {
        "got": got,
        "chained": chained is future,
        "done": future.is_done,
        "ok": future.succeeded(),
        "failed": future.failed(),
    }


@program
def producer_too_large_for_request(w: Workspace) -> Any:
    got: list[Any] = []
    producer, topic = w.producer(max_request_size=1000), w.topic()
    future = w.attempt(lambda: producer.send(topic, b"v" * 2000))
    if isinstance(future, Exception):
        return {"send": future}
    future.add_errback(got.append)
    return {"get": w.attempt(lambda: future.get(SECONDS)), "errbacks": got, "failed": future.failed()}


@program
def producer_too_large_for_topic(w: Workspace) -> Any:
    got: list[Any] = []
    producer, topic = w.producer(), w.topic(configs={"max.message.bytes": "1000"})
    future = w.attempt(lambda: producer.send(topic, b"v" * 2000))
    if isinstance(future, Exception):
        return {"send": future}
    future.add_errback(got.append)
    return {
        "get": w.attempt(lambda: future.get(SECONDS)),
        "errbacks": got,
        "next": producer.send(topic, b"v").get(SECONDS).offset,
    }


@program
def producer_large_but_compresses_below_limit(w: Workspace) -> Any:
    producer, topic = w.producer(compression_type="gzip"), w.topic(configs={"max.message.bytes": "1000"})
    return producer.send(topic, b"v" * 5000).get(SECONDS).offset


@program
def producer_waits_for_a_topic(w: Workspace) -> Any:
    import threading

    producer = w.producer(max_block_ms=15_000)
    timer = threading.Timer(1.0, w.topic)
    timer.start()
    try:
        return producer.send(w.prefix, b"v").get(SECONDS).offset
    finally:
        timer.join()


@program
def producer_future_get_timeout(w: Workspace) -> Any:
    producer, topic = w.producer(linger_ms=60_000), w.topic()
    producer.send(topic, b"first").get  # noqa: B018
    future = producer.send(topic, b"v")
    answer = w.attempt(lambda: future.get(timeout=0.05))
    producer.flush()
    return {"early": answer, "later": future.get(SECONDS).offset}


@program
def producer_order_and_offsets(w: Workspace) -> Any:
    producer, topic = w.producer(linger_ms=20), w.topic()
    futures = [producer.send(topic, b"%d" % n) for n in range(50)]
    producer.flush()
    return {"offsets": [each.get(0).offset for each in futures] == list(range(50)), "values": w.values(topic)[-2:]}


# -- life


@program
def producer_send_after_close(w: Workspace) -> Any:
    producer, topic = w.producer(), w.topic()
    producer.close()
    return {
        "send": w.attempt(lambda: producer.send(topic, b"v")),
        "flush": w.attempt(producer.flush),
        "close": w.attempt(producer.close),
        "partitions_for": type(w.attempt(lambda: producer.partitions_for(topic))) is set,
    }


@program
def producer_with_block(w: Workspace) -> Any:
    topic = w.topic()
    with w.producer(linger_ms=5000) as producer:
        producer.send(topic, b"v")
    return w.values(topic)


@program
def producer_close_timeouts(w: Workspace) -> Any:
    return [w.attempt(lambda value=value: w.producer().close(timeout=value)) for value in (-1, "a")]  # type: ignore[misc]


@program
def producer_bootstrap_connected(w: Workspace) -> Any:
    return w.producer().bootstrap_connected()


@program
def producer_unfinished_goes_out_of_scope(w: Workspace) -> Any:
    topic = w.topic()

    def notify(number: int) -> None:
        w.kafka.KafkaProducer(bootstrap_servers=w.address).send(topic, b"%d" % number)

    for number in range(3):
        notify(number)
    return w.values(topic)


@program
def producer_flush_returns(w: Workspace) -> Any:
    producer = w.producer()
    producer.send(w.topic(), b"v")
    return [producer.flush(), producer.flush(timeout=5)]


# -- settings

SETTINGS: dict[str, dict[str, Any]] = {
    "unknown": {"no_such_setting": 1},
    "acks_0": {"acks": 0},
    "acks_1": {"acks": 1},
    "acks_all": {"acks": "all"},
    "acks_2": {"acks": 2},
    "acks_1_idempotent": {"acks": 1, "enable_idempotence": True},
    "retries_0": {"retries": 0},
    "retries_0_idempotent": {"retries": 0, "enable_idempotence": True},
    "in_flight_6_idempotent": {"max_in_flight_requests_per_connection": 6, "enable_idempotence": True},
    "not_idempotent": {"enable_idempotence": False, "acks": 1, "retries": 0},
    "transactional_not_idempotent": {"transactional_id": "t", "enable_idempotence": False},
    "compression_unknown": {"compression_type": "rar"},
    "compression_gzip": {"compression_type": "gzip"},
    "compression_none": {"compression_type": None},
    "compression_zstd": {"compression_type": "zstd"},
    "linger_negative": {"linger_ms": -1},
    "batch_size_0": {"batch_size": 0},
    "batch_size_text": {"batch_size": "many"},
    "api_version": {"api_version": (2, 8, 0)},
    "api_version_text": {"api_version": "2.8"},
    "security_unknown": {"security_protocol": "SECRET"},
    "sasl": {
        "security_protocol": "PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
    },
    "delivery_below_request": {"delivery_timeout_ms": 10, "request_timeout_ms": 20, "linger_ms": 5},
    "client_id": {"client_id": "me"},
    "client_id_none": {"client_id": None},
    "partitioner_not_callable": {"partitioner": 5},
    "serializer_not_callable": {"value_serializer": 5},
    "metric_reporters": {"metric_reporters": []},
    "buffer_memory": {"buffer_memory": 1024},
}


def configured(settings: dict[str, Any]) -> Any:
    def case(w: Workspace) -> Any:
        topic = w.topic()
        producer = w.producer(**settings)
        return producer.send(topic, b"v").get(SECONDS).offset

    return case


programs(**{f"producer_setting_{name}": configured(settings) for name, settings in SETTINGS.items()})


@program
def producer_acks_0_answers(w: Workspace) -> Any:
    topic = w.topic()
    producer = w.producer(acks=0, enable_idempotence=False)
    metadata = producer.send(topic, b"v").get(SECONDS)
    producer.close()
    return metadata.offset, w.values(topic)


# -- exceptions of user code


def failing(error: type[Exception]) -> Any:
    def fail(*_: Any) -> Any:
        raise error("mine")

    return fail


@program
def producer_serializer_raises(w: Workspace) -> Any:
    topic = w.topic()
    by_value = w.producer(value_serializer=failing(ZeroDivisionError))
    by_key = w.producer(key_serializer=failing(KeyError))
    return [
        w.attempt(lambda: by_value.send(topic, 1).get(SECONDS)),
        w.attempt(lambda: by_key.send(topic, b"v", "k").get(SECONDS)),
    ]


@program
def producer_partitioner_raises(w: Workspace) -> Any:
    base = w.module("kafka.partitioner.abc").Partitioner

    class Broken(base):  # type: ignore[misc, valid-type]
        def partition(self, *arguments: Any, **named: Any) -> int:
            raise ZeroDivisionError("mine")

    topic = w.topic()
    return w.producer(partitioner=Broken()).send(topic, b"v").get(SECONDS)


@program
def producer_callback_raises(w: Workspace) -> Any:
    producer, topic = w.producer(), w.topic()
    future = producer.send(topic, b"v")
    future.add_callback(failing(ZeroDivisionError))
    return future.get(SECONDS).offset, producer.send(topic, b"w").get(SECONDS).offset


@program
def producer_partitioner_object(w: Workspace) -> Any:
    base = w.module("kafka.partitioner.abc").Partitioner
    seen: list[Any] = []

    class Last(base):  # type: ignore[misc, valid-type]
        def partition(
            self, topic: str, key: Any, serialized_key: Any, value: Any, serialized_value: Any, cluster: Any
        ) -> int:
            seen.append([topic, key, serialized_key, value, serialized_value])
            seen.append(
                [sorted(cluster.partitions_for_topic(topic)), sorted(cluster.available_partitions_for_topic(topic))]
            )
            return max(cluster.partitions_for_topic(topic))

    topic = w.topic(partitions=3)
    producer = w.producer(partitioner=Last(), key_serializer=str.encode, value_serializer=str.encode)
    metadata = producer.send(topic, "v", "k").get(SECONDS)
    return metadata.partition, seen


@program
def producer_sticky_partitioner(w: Workspace) -> Any:
    sticky = w.module("kafka.partitioner.sticky").StickyPartitioner
    producer, topic = w.producer(partitioner=sticky(), linger_ms=100), w.topic(partitions=4)
    futures = [producer.send(topic, b"v") for _ in range(10)]
    keyed = producer.send(topic, b"v", key=b"key-1").get(SECONDS).partition
    return len({each.get(SECONDS).partition for each in futures}), keyed


@program
def producer_serializer_objects(w: Workspace) -> Any:
    module, seen = w.kafka, []

    class Mine(module.Serializer):  # type: ignore[misc, name-defined]
        def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
            seen.append([topic, headers, data])
            return str(data).encode()

    topic = w.topic()
    producer = w.producer(value_serializer=Mine(), key_serializer=Mine())
    producer.send(topic, 1, 2, headers=[("h", b"x")]).get(SECONDS)
    return seen, w.values(topic)


@program
def producer_json_serializer(w: Workspace) -> Any:
    topic = w.topic()
    producer = w.producer(value_serializer=w.kafka.JsonSerializer())
    for value in ({"b": 1, "a": [None, True]}, "é", None, 1.5):
        producer.send(topic, value, key=b"k").get(SECONDS)
    return w.values(topic)


@program
def producer_default_serializer(w: Workspace) -> Any:
    topic = w.topic()
    producer = w.producer(value_serializer=w.kafka.DefaultSerializer(), key_serializer=w.kafka.DefaultSerializer())
    producer.send(topic, "text", "k").get(SECONDS)
    producer.send(topic, b"bytes", None).get(SECONDS)
    return w.values(topic), w.attempt(lambda: producer.send(topic, 5).get(SECONDS))


@program
def producer_config_is_readable(w: Workspace) -> Any:
    producer = w.producer(client_id="me", linger_ms=7)
    names = ("client_id", "linger_ms", "batch_size", "max_request_size", "enable_idempotence", "request_timeout_ms")
    return {name: producer.config[name] for name in names}


@program
def producer_metrics_groups(w: Workspace) -> Any:
    producer, topic = w.producer(), w.topic()
    producer.send(topic, b"v").get(SECONDS)
    metrics = producer.metrics()
    return {name: name in metrics for name in ("producer-metrics", "kafka-metrics-count")}


@program
def producer_metrics_names(w: Workspace) -> Any:
    producer, topic = w.producer(), w.topic()
    producer.send(topic, b"v").get(SECONDS)
    names = sorted(producer.metrics()["producer-metrics"])
    wanted = """
        batch-size-avg record-send-rate record-error-rate request-latency-avg record-queue-time-avg record-retry-rate
        records-per-request-avg compression-rate-avg record-size-max requests-in-flight metadata-age outgoing-byte-rate
    """.split()  # noqa: SIM905
    return {name: name in names for name in wanted}
