"""Options of reads and writes: which are accepted, and which are refused."""

from __future__ import annotations

import logging
import pickle

import pytest

from sparklog.errors import InvalidOptionError
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.options import SinkOptions, SourceOptions, TopicSubscription, sink_options, source_options
from sparklog.spark.source.offsets import EveryPartition, EveryTimestamp, PartitionOffsets, PartitionTimestamps
from sparklog.spark.stream.options import stream_options
from sparklog.types import EARLIEST, LATEST, TopicPartition


def source(**options: str) -> SourceOptions:
    return source_options({"path": "/data/log", "subscribe": "a", **options})


def sink(**options: str) -> SinkOptions:
    return sink_options({"path": "/data/log", **options})


def test_by_default_a_read_is_from_earliest_to_latest_and_fails_on_data_loss() -> None:
    parsed = source()
    assert (parsed.starting, parsed.ending) == (EveryPartition(EARLIEST), EveryPartition(LATEST))
    assert parsed.fail_on_data_loss
    assert not any([parsed.include_headers, parsed.push_down_predicate, parsed.latest_if_no_match])


def test_names_are_case_insensitive() -> None:
    parsed = source_options({"PATH": "/x", "SUBSCRIBE": "a", "includeheaders": "TRUE", "MINPARTITIONS": " 3 "})
    assert parsed.include_headers
    assert parsed.min_partitions == 3


@pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "bootstrap.servers", "path", "Kafka.Bootstrap.Servers"])
def test_the_root_option_has_three_names(name: str) -> None:
    assert source_options({name: "s3://bucket/log/", "subscribe": "a"}).address.root == "s3://bucket/log"


def test_the_root_defaults_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", "/data/log/")
    assert source_options({"subscribe": "a"}).address.root == "/data/log"
    assert source_options({"subscribe": "a", "path": "/other"}).address.root == "/other"


def test_a_root_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKLOG_BOOTSTRAP_SERVER", raising=False)
    with pytest.raises(InvalidOptionError, match=r"no cluster given.*kafka\.bootstrap\.servers"):
        source_options({"subscribe": "a"})


def test_two_given_roots_must_agree() -> None:
    assert source(**{"bootstrap.servers": "/data/log/"}).address.root == "/data/log"
    with pytest.raises(InvalidOptionError, match="two clusters"):
        source(**{"bootstrap.servers": "/other"})


def test_a_given_root_overrides_the_folder_of_a_table() -> None:
    table = {"provider": "sparklog", "owner": "me", "bootstrap.servers": "/data/log"}
    assert source_options({**table, "subscribe": "a", "path": "file:/warehouse/t"}).address.root == "/data/log"


def test_the_location_of_a_table_is_a_url() -> None:
    assert source_options({"path": "file:/data/log", "subscribe": "a"}).address.root == "file:///data/log"


@pytest.mark.parametrize("brokers", ["localhost:9092", "a.example.com:9092, b.example.com:9092"])
def test_kafka_brokers_are_refused_as_a_root(brokers: str) -> None:
    with pytest.raises(InvalidOptionError, match="looks like Kafka brokers"):
        source_options({"kafka.bootstrap.servers": brokers, "subscribe": "a"})


def test_memory_roots_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="memory of one process"):
        source_options({"path": "memory://x", "subscribe": "a"})


def test_storage_options_reach_the_store_with_their_types() -> None:
    parsed = source(**{"storage.endpoint_url": "http://h:1", "storage.anon": "True", "storage.config": '{"a":1}'})
    assert parsed.address.storage_options == {"endpoint_url": "http://h:1", "anon": True, "config": {"a": 1}}


def test_broken_json_in_a_storage_option_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"storage\.config"):
        source(**{"storage.config": "{"})


# -- subscriptions


def test_subscribed_topics_are_trimmed_and_blanks_dropped() -> None:
    assert source(subscribe=" a, ,b ,a").subscription == TopicSubscription(topics=("a", "b"))


def test_assigned_partitions_are_sorted() -> None:
    parsed = source_options({"path": "/x", "assign": '{"b":[1,0],"a":[2]}'}).subscription
    assert parsed.assign == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "none is set"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign and subscribe are set"),
        ({"subscribe": " , "}, "for option subscribe: "),
        ({"subscribePattern": " "}, "for option subscribePattern: "),
        ({"subscribePattern": "("}, "regular expression"),
        ({"assign": "a"}, "for option assign: "),
    ],
)
def test_exactly_one_subscription_option_is_required(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        source_options({"path": "/x", **options})


# -- start and end


def test_precedence_is_timestamp_then_timestamps_by_partition_then_offsets() -> None:
    options = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a":{"0":7}}',
        "startingTimestamp": "5",
    }
    assert source(**options).starting == EveryTimestamp(5)
    del options["startingTimestamp"]
    assert source(**options).starting == PartitionTimestamps({TopicPartition("a", 0): 7})


@pytest.mark.parametrize("value", ["latest", "LATEST", '{"a":{"0":-1}}', '{"a":"latest"}'])
def test_a_batch_cannot_start_at_latest(value: str) -> None:
    with pytest.raises(InvalidOptionError, match="startingOffsets cannot be latest"):
        source(startingOffsets=value)


@pytest.mark.parametrize("value", ["earliest", '{"a":{"0":1,"1":-2}}', '{"a":"earliest"}'])
def test_a_read_cannot_end_at_earliest(value: str) -> None:
    with pytest.raises(InvalidOptionError, match="endingOffsets cannot be earliest"):
        source(endingOffsets=value)


def test_starting_and_ending_offsets_must_name_the_same_partitions() -> None:
    with pytest.raises(InvalidOptionError, match="a-1 has starting offsets and no ending ones"):
        source(startingOffsets='{"a":{"0":1,"1":1}}', endingOffsets='{"a":{"0":2}}')
    source(startingOffsets='{"a":{"0":1,"1":1}}', endingOffsets='{"a":"latest"}')


def test_a_start_after_its_end_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="a-0 would start at 3, after its end at 2"):
        source(startingOffsets='{"a":{"0":3}}', endingOffsets='{"a":{"0":2}}')
    with pytest.raises(InvalidOptionError, match="would start at 9"):
        source(startingOffsetsByTimestamp='{"a":{"0":9}}', endingOffsetsByTimestamp='{"a":{"0":2}}')


def test_special_offsets_are_not_compared() -> None:
    parsed = source(startingOffsets='{"a":{"0":5}}', endingOffsets='{"a":{"0":-1}}')
    assert isinstance(parsed.ending, PartitionOffsets)


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "9223372036854775808"])
def test_a_timestamp_is_a_whole_number_of_milliseconds(value: str) -> None:
    with pytest.raises(InvalidOptionError, match="startingTimestamp"):
        source(startingTimestamp=value)


def test_an_older_version_is_a_number_or_a_time() -> None:
    assert (source().is_of_past, source(versionAsOf="7").version) == (False, 7)
    for text in ("1700000000000", "2023-11-14T22:13:20Z", "2023-11-15 00:13:20+02:00"):
        assert source(timestampAsOf=text).as_of_ms == 1_700_000_000_000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"versionAsOf": "-1"}, "versionAsOf: expected a whole number"),
        ({"versionAsOf": "x"}, "versionAsOf: expected a whole number"),
        ({"timestampAsOf": "yesterday"}, "a time with a time zone"),
        ({"timestampAsOf": "2023-11-14T22:13:20"}, "a time with a time zone"),
        ({"versionAsOf": "1", "timestampAsOf": "1"}, "leave one out"),
        ({"versionAsOf": "1", "endingOffsets": "latest"}, "sets where the topics end, and so does endingOffsets"),
        ({"timestampAsOf": "1", "endingTimestamp": "5"}, "and so does endingTimestamp"),
    ],
)
def test_an_older_version_that_cannot_be_read_is_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        source(**options)


@pytest.mark.parametrize("name", ["versionAsOf", "timestampAsOf"])
def test_a_stream_has_no_older_version(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"{name} does not apply to a streaming query, which follows the log"):
        stream_options({"path": "/data/log", "subscribe": "a", name: "1"})


def test_the_timestamp_strategy_is_error_or_latest() -> None:
    assert source(startingOffsetsByTimestampStrategy="LATEST").latest_if_no_match
    for wrong in ("earliest", ""):
        with pytest.raises(InvalidOptionError, match="startingOffsetsByTimestampStrategy"):
            source(startingOffsetsByTimestampStrategy=wrong)


# -- other values and names


@pytest.mark.parametrize("name", ["minPartitions", "maxPartitions", "maxRecordsPerPartition"])
@pytest.mark.parametrize("value", ["0", "-1", "x", ""])
def test_numbers_of_tasks_are_positive(name: str, value: str) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        source(**{name: value})


def test_the_most_tasks_are_a_number_or_auto() -> None:
    assert source().max_partitions is None
    assert source(maxPartitions="3", minPartitions="3").max_partitions == 3
    assert source(maxPartitions=" Auto ", minPartitions="9").max_partitions == "auto"
    with pytest.raises(InvalidOptionError, match=r"'few'.*expected a whole number from 1 to 2147483647, or auto"):
        source(maxPartitions="few")


@pytest.mark.parametrize("other", [{"minPartitions": "4"}, {"maxRecordsPerPartition": "1"}])
def test_fewer_tasks_are_refused_beside_an_option_for_more(other: dict[str, str]) -> None:
    with pytest.raises(
        InvalidOptionError, match=f"{next(iter(other))}.*maxPartitions|maxPartitions.*{next(iter(other))}"
    ):
        source(maxPartitions="3", **other)


@pytest.mark.parametrize(
    ("options", "largest"),
    [
        ({"minPartitions": "2147483648"}, "2147483647"),
        ({"fetchOffset.numRetries": "2147483648"}, "2147483647"),
        ({"maxRecordsPerPartition": "9223372036854775808"}, "9223372036854775807"),
        ({"kafkaConsumer.pollTimeoutMs": "9223372036854775808"}, "9223372036854775807"),
    ],
)
def test_numbers_refused_by_kafkas_source_are_refused(options: dict[str, str], largest: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"expected a whole number from . to {largest}$"):
        SparklogDataSource({"path": "/x", "subscribe": "a", **options}).schema()


@pytest.mark.parametrize(
    ("codec", "level", "allowed"), [("gzip", "10", "-1 to 9"), ("lz4", "0", "1 to 17"), ("zstd", "23", "-131072 to 22")]
)
def test_a_level_that_the_codec_does_not_have_is_refused(codec: str, level: str, allowed: str) -> None:
    with pytest.raises(InvalidOptionError, match=allowed):
        sink(**{"kafka.compression.type": codec, f"kafka.compression.{codec}.level": level})


def test_gzip_accepts_its_level_minus_one() -> None:
    parsed = sink(**{"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "-1"})
    assert parsed.codec_level is None


def test_booleans_are_true_or_false() -> None:
    with pytest.raises(
        InvalidOptionError, match=r"invalid value .yes. for option failOnDataLoss: expected true or false"
    ):
        source(failOnDataLoss="yes")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("includeHeader", "includeHeaders"),
        ("bootstrap.server", "bootstrap.servers"),
        ("max_records_per_partition", "maxRecordsPerPartition"),
        ("failOnDataloss2", "failOnDataLoss"),
        ("txnVerison", "txnVersion"),
        ("partitoner", "partitioner"),
    ],
)
def test_the_error_for_a_misspelt_option_suggests_the_right_name(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidOptionError, match=rf"did you mean {meant}\?"):
        source(**{wrong: "1"})
    with pytest.raises(InvalidOptionError, match=rf"did you mean {meant}\?"):
        sink(**{wrong: "1"})


def test_an_unknown_option_unlike_any_known_one_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        source(favouriteColour="blue")
    assert "unknown option favouritecolour" in caplog.text


def test_options_that_spark_adds_to_a_named_query_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        sink(queryName="late", checkpointLocation="/data/c", topic="a")
    assert caplog.text == ""


@pytest.mark.parametrize(
    "name", ["kafka.retries", "kafka.max.poll.records", "kafka.security.protocol", "kafka.group.id"]
)
def test_options_of_kafka_clients_are_accepted(name: str) -> None:
    source(**{name: "1"})
    sink(**{name: "1"})


@pytest.mark.parametrize(
    "name",
    [
        "kafka.auto.offset.reset",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.enable.auto.commit",
        "kafka.interceptor.classes",
        "kafka.value.serializer",
    ],
)
def test_options_that_sparks_kafka_source_refuses_are_refused(name: str) -> None:
    with pytest.raises(InvalidOptionError, match="is not supported"):
        source(**{name: "x"})


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_options_of_streams_are_ignored_in_a_batch_with_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        source(**{name: "1"})
    assert name in caplog.text


# -- sink


def test_a_write_uses_the_codec_and_level_of_the_producer() -> None:
    parsed = sink(**{"kafka.compression.type": "ZSTD", "kafka.compression.zstd.level": "3"})
    assert (parsed.codec, parsed.codec_level) == ("zstd", 3)


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"kafka\.compression\.type"):
        sink(**{"kafka.compression.type": "brotli"})


@pytest.mark.parametrize(("given", "missing"), [("txnAppId", "txnVersion"), ("txnVersion", "txnAppId")])
def test_application_id_and_version_are_required_together(given: str, missing: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"option {given} requires {missing}"):
        sink(**{given: "1"})
    assert sink(txnAppId="job", txnVersion="0").application_version == 0


def test_java_partitioners_other_than_kafkas_are_refused() -> None:
    own = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    assert sink(**{"kafka.partitioner.class": own}).partitioner == "default"
    with pytest.raises(InvalidOptionError, match="Java classes cannot run here"):
        sink(**{"kafka.partitioner.class": "com.example.Mine"})


def test_the_topic_option_is_trimmed() -> None:
    assert sink(topic=" orders ").topic == "orders"


def test_checked_options_are_picklable() -> None:
    for options in (source(startingOffsets='{"a":{"0":1}}'), sink(topic="a")):
        assert pickle.loads(pickle.dumps(options)) == options
