"""sparklog.kafka has kafka-python's modules and names, bound to sparklog's own classes and functions."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import sparklog
import sparklog.kafka
from sparklog.kafka.record.abc import ABCRecord

NAMES = {  # module -> names that programs import from it, in versions 2 and 3
    "": "KafkaAdminClient KafkaConsumer KafkaProducer AsyncConsumerRebalanceListener ConsumerRebalanceListener "
    "DefaultSerializer JsonSerializer Serializer Deserializer ConsumerGroupMetadata OffsetAndMetadata TopicPartition "
    "TopicPartitionReplica IsolationLevel OffsetSpec __version__",
    "admin": "KafkaAdminClient ACL ACLFilter ACLOperation ACLPermissionType ACLResourcePatternType ResourceType "
    "ResourcePattern ResourcePatternFilter AlterConfigOp ConfigResource ConfigResourceType ConfigType ConfigSourceType "
    "UpdateFeatureType GroupState GroupType MemberToRemove NewPartitions NewTopic OffsetSpec OffsetTimestamp "
    "AbortTransactionSpec PartitionProducerState ProducerState TransactionDescription TransactionListing "
    "TransactionState ScramMechanism UserScramCredentialDeletion UserScramCredentialUpsertion",
    "admin._acls": "ACL ACLFilter",
    "admin.acl_resource": "ACL ACLFilter",
    "admin.client": "KafkaAdminClient",
    "admin.config_resource": "ConfigResource ConfigResourceType",
    "admin.new_partitions": "NewPartitions",
    "admin.new_topic": "NewTopic",
    "cluster": "ClusterMetadata",
    "codec": "has_gzip has_snappy has_lz4 has_zstd gzip_encode gzip_decode",
    "common": "KafkaError TopicPartition OffsetAndMetadata LeaderNotAvailableError",
    "consumer": "KafkaConsumer",
    "consumer.fetcher": "ConsumerRecord",
    "consumer.group": "KafkaConsumer",
    "consumer.subscription_state": "ConsumerRebalanceListener AsyncConsumerRebalanceListener",
    "coordinator.assignors.abstract": "AbstractPartitionAssignor RebalanceProtocol",
    "coordinator.assignors.cooperative_sticky": "CooperativeStickyAssignor",
    "coordinator.assignors.range": "RangePartitionAssignor",
    "coordinator.assignors.roundrobin": "RoundRobinPartitionAssignor",
    "coordinator.assignors.sticky.sticky_assignor": "StickyPartitionAssignor",
    "errors": "KafkaError KafkaTimeoutError CommitFailedError UnknownTopicOrPartitionError TopicAlreadyExistsError",
    "future": "Future",
    "metrics": "AbstractMetricsReporter KafkaMetric MetricName Metrics",
    "metrics.kafka_metric": "KafkaMetric",
    "metrics.metric_name": "MetricName",
    "metrics.metrics": "Metrics",
    "metrics.metrics_reporter": "AbstractMetricsReporter",
    "net.sasl.oauth": "AbstractTokenProvider",
    "oauth": "AbstractTokenProvider",
    "oauth.abstract": "AbstractTokenProvider",
    "partitioner": "Partitioner DefaultPartitioner StickyPartitioner murmur2",
    "partitioner.abc": "Partitioner",
    "partitioner.default": "DefaultPartitioner murmur2",
    "partitioner.hashed": "murmur2",
    "partitioner.sticky": "StickyPartitioner",
    "producer": "KafkaProducer",
    "producer.future": "FutureRecordMetadata RecordMetadata",
    "producer.kafka": "KafkaProducer",
    "protocol.consumer": "IsolationLevel OffsetSpec",
    "protocol.consumer.metadata": "ConsumerProtocolSubscription ConsumerProtocolAssignment",
    "protocol.consumer.offsets": "IsolationLevel OffsetSpec OffsetTimestamp OffsetResetStrategy",
    "protocol.list_offsets": "OffsetResetStrategy",
    "protocol.offset": "OffsetResetStrategy",
    "record.abc": "ABCRecord",
    "sasl.oauth": "AbstractTokenProvider",
    "serializer": "DefaultSerializer JsonSerializer Serializer Deserializer DeserializeWrapper SerializeWrapper",
    "serializer.abstract": "Serializer Deserializer",
    "serializer.default": "DefaultSerializer",
    "serializer.json": "JsonSerializer",
    "serializer.wrapper": "DeserializeWrapper SerializeWrapper",
    "structs": "TopicPartition TopicPartitionReplica OffsetAndMetadata OffsetAndTimestamp ConsumerGroupMetadata "
    "MemberState BrokerMetadata GroupInformation MemberInformation",
    "util": "TOPIC_LEGAL_CHARS TOPIC_MAX_LENGTH ensure_valid_topic_name",
    "version": "__version__",
}


@pytest.mark.parametrize("module", sorted(NAMES))
def test_each_module_has_the_names_of_kafka_python(module: str) -> None:
    imported = importlib.import_module(f"sparklog.kafka.{module}".rstrip("."))
    assert [name for name in NAMES[module].split() if not hasattr(imported, name)] == []


def test_a_name_exported_by_several_modules_is_the_same_object() -> None:
    exported: dict[str, object] = {}
    for module, names in NAMES.items():
        imported = importlib.import_module(f"sparklog.kafka.{module}".rstrip("."))
        for name in names.split():
            assert exported.setdefault(name, getattr(imported, name)) is getattr(imported, name), f"{module}.{name}"
    assert exported["KafkaProducer"] is sparklog.Producer
    assert exported["KafkaConsumer"] is sparklog.Consumer
    assert exported["KafkaAdminClient"] is sparklog.AdminClient


def test_every_public_error_is_in_the_errors_module() -> None:
    import sparklog.errors
    import sparklog.kafka.errors as errors

    classes = {name for name, value in vars(sparklog.errors).items() if isinstance(value, type) and name[0] != "_"}
    assert classes
    assert {name for name in classes if getattr(errors, name, None) is not getattr(sparklog.errors, name)} == set()


def test_a_consumer_record_is_an_abc_record() -> None:
    assert isinstance(sparklog.ConsumerRecord("t", 0, 0, 0, 0, 0, None, None, [], None, -1, -1, -1), ABCRecord)


def test_a_token_provider_can_be_subclassed() -> None:
    from sparklog.kafka.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def __init__(self) -> None:
            super().__init__(region="somewhere")

        def token(self) -> str:
            return "secret"

    assert (Provider().token(), Provider().extensions()) == ("secret", {})
    with pytest.raises(TypeError):
        AbstractTokenProvider()  # type: ignore[abstract]


def test_every_codec_is_available_and_gzip_compresses() -> None:
    from sparklog.kafka import codec

    assert all(has() for has in (codec.has_gzip, codec.has_snappy, codec.has_lz4, codec.has_zstd))
    assert codec.gzip_decode(codec.gzip_encode(b"abc" * 100)) == b"abc" * 100


def test_topic_names_are_validated_as_in_kafka_python() -> None:
    from sparklog.kafka.util import ensure_valid_topic_name

    ensure_valid_topic_name("orders")
    with pytest.raises(ValueError, match="topic"):
        ensure_valid_topic_name("a b")
    with pytest.raises(TypeError):
        ensure_valid_topic_name(None)


def test_a_metrics_reporter_can_be_subclassed() -> None:
    from sparklog.kafka.metrics.metrics_reporter import AbstractMetricsReporter
    from sparklog.testing import cluster

    reported: list[object] = []

    class Reporter(AbstractMetricsReporter):
        def init(self, metrics: list[Any]) -> None:
            reported.append(metrics)

        def metric_change(self, metric: Any) -> None:
            reported.append(metric.metric_name.name)

        def metric_removal(self, metric: Any) -> None:
            pass

        def configure(self, configs: Any) -> None:
            pass

        def close(self) -> None:
            reported.append("closed")

    with cluster() as c, sparklog.Producer(cluster=c.coordinator, metric_reporters=[Reporter]):
        pass
    assert (reported[0], reported[-1]) == ([], "closed")
    assert "request-rate" in reported


def test_a_producer_reports_its_record_format_version() -> None:
    assert sparklog.Producer.max_usable_produce_magic((3, 0)) == 2
