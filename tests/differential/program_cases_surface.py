"""Cases of the names that programs import from kafka-python, and of its exceptions."""

from __future__ import annotations

import inspect
from typing import Any

from tests.differential.cases import program, programs
from tests.differential.outcomes import AtLeast
from tests.differential.targets import Workspace

ERRORS = """
    AuthenticationFailedError AuthenticationMethodNotSupported BrokerNotAvailableError BrokerResponseError Cancelled
    ClusterAuthorizationFailedError CommitFailedError ConcurrentTransactions CoordinatorLoadInProgressError
    CoordinatorNotAvailableError CorruptRecordError DuplicateSequenceNumberError FencedInstanceIdError
    FencedLeaderEpochError GroupAuthorizationFailedError GroupIdNotFoundError GroupMaxSizeReachedError
    GroupSubscribedToTopicError IllegalArgumentError IllegalGenerationError IllegalStateError
    InconsistentGroupProtocolError IncompatibleBrokerVersion InvalidCommitOffsetSizeError InvalidConfigurationError
    InvalidFetchRequestError InvalidGroupIdError InvalidPartitionsError InvalidProducerEpochError
    InvalidReplicationFactorError InvalidRequestError InvalidRequiredAcksError InvalidSessionTimeoutError
    InvalidTimestampError InvalidTopicError InvalidTxnStateError KafkaConfigurationError KafkaConnectionError
    KafkaError KafkaTimeoutError LeaderNotAvailableError MemberIdRequiredError MessageSizeTooLargeError NoError
    NoBrokersAvailable NoOffsetForPartitionError NodeNotReadyError NonEmptyGroupError NotControllerError
    NotCoordinatorError NotEnoughReplicasAfterAppendError NotEnoughReplicasError NotLeaderForPartitionError
    OffsetMetadataTooLargeError OffsetNotAvailableError OffsetOutOfRangeError OutOfOrderSequenceNumberError
    PolicyViolationError ProducerFencedError ReassignmentInProgressError RebalanceInProgressError
    RecordListTooLargeError RecordTooLargeError RequestTimedOutError RetriableError SecurityDisabledError
    StaleMetadata TopicAlreadyExistsError TopicAuthorizationFailedError TransactionAbortedError
    TransactionCoordinatorFencedError TransactionalIdAuthorizationFailedError TransactionalIdNotFoundError
    UnknownError UnknownLeaderEpochError UnknownMemberIdError UnknownProducerIdError UnknownTopicIdError
    UnknownTopicOrPartitionError UnrecognizedBrokerVersion UnreleasedInstanceIdError UnsupportedCodecError
    UnsupportedForMessageFormatError UnsupportedVersionError ConnectionError TimeoutError FailedPayloadsError
    KafkaUnavailableError GroupCoordinatorNotAvailableError GroupLoadInProgressError NotCoordinatorForGroupError
    TopicPartitionError BufferExhaustedError
"""
ERROR_NAMES = ERRORS.split()


@program
def errors_names(w: Workspace) -> Any:
    return {name: hasattr(w.errors, name) for name in ERROR_NAMES}


@program
def errors_numbers(w: Workspace) -> Any:
    return {name: getattr(getattr(w.errors, name, None), "errno", None) for name in ERROR_NAMES}


@program
def errors_retriable(w: Workspace) -> Any:
    return {name: getattr(getattr(w.errors, name, None), "retriable", "absent") for name in ERROR_NAMES}


@program
def errors_bases(w: Workspace) -> Any:
    """The base classes that ``except`` may name, of kafka-python's and the builtin ones."""

    def bases(name: str) -> Any:
        error = getattr(w.errors, name, None)
        if not inspect.isclass(error):
            return "absent"
        return sorted({each.__name__ for each in error.__mro__ if each.__name__ in ERROR_NAMES} - {name})

    return {name: bases(name) for name in ERROR_NAMES}


@program
def errors_by_number(w: Workspace) -> Any:
    """The error class of each error code of the protocol."""
    return {str(code): w.errors.for_code(code).__name__ for code in range(-1, 130)}


programs(
    errors_for_code=lambda w: [w.errors.for_code(code) for code in (0, 1, 3, 25, -1)],
    errors_for_unknown_code=lambda w: w.errors.for_code(9999).errno,
    errors_text=lambda w: str(w.errors.UnknownTopicOrPartitionError("orders")).startswith(
        "[Error 3] UnknownTopicOrPartitionError"
    ),
    errors_kafka_error_text=lambda w: str(w.errors.KafkaError("words")),
    errors_equal=lambda w: w.errors.KafkaError("a") == w.errors.KafkaError("a"),
)

NAMES = {
    "kafka": """KafkaAdminClient KafkaConsumer KafkaProducer AsyncConsumerRebalanceListener ConsumerRebalanceListener
        DefaultSerializer JsonSerializer Serializer Deserializer ConsumerGroupMetadata OffsetAndMetadata TopicPartition
        TopicPartitionReplica IsolationLevel OffsetSpec __version__""",
    "kafka.admin": """KafkaAdminClient ACL ACLFilter ACLOperation ACLPermissionType ACLResourcePatternType ResourceType
        ResourcePattern ResourcePatternFilter AlterConfigOp ConfigResource ConfigResourceType ConfigType
        ConfigSourceType UpdateFeatureType GroupState GroupType MemberToRemove OffsetSpec OffsetTimestamp NewTopic
        NewPartitions AbortTransactionSpec PartitionProducerState ProducerState TransactionDescription
        TransactionListing TransactionState ScramMechanism UserScramCredentialDeletion
        UserScramCredentialUpsertion""",
    "kafka.structs": "TopicPartition OffsetAndMetadata OffsetAndTimestamp ConsumerGroupMetadata TopicPartitionReplica",
    "kafka.consumer": "KafkaConsumer",
    "kafka.consumer.group": "KafkaConsumer",
    "kafka.consumer.fetcher": "ConsumerRecord",
    "kafka.consumer.subscription_state": "ConsumerRebalanceListener",
    "kafka.producer": "KafkaProducer",
    "kafka.producer.kafka": "KafkaProducer",
    "kafka.producer.future": "FutureRecordMetadata RecordMetadata",
    "kafka.partitioner": "DefaultPartitioner StickyPartitioner",
    "kafka.partitioner.default": "DefaultPartitioner murmur2",
    "kafka.serializer": "Serializer Deserializer DefaultSerializer JsonSerializer",
    "kafka.coordinator.assignors.range": "RangePartitionAssignor",
    "kafka.coordinator.assignors.roundrobin": "RoundRobinPartitionAssignor",
    "kafka.coordinator.assignors.sticky.sticky_assignor": "StickyPartitionAssignor",
    "kafka.coordinator.assignors.cooperative_sticky": "CooperativeStickyAssignor",
    "kafka.future": "Future",
    "kafka.version": "__version__",
    "kafka.cluster": "ClusterMetadata",
    "kafka.metrics": "Metrics",
    "kafka.util": "",
    "kafka.codec": "has_gzip has_snappy has_lz4 has_zstd gzip_encode gzip_decode",
}


def importable(path: str, names: str) -> Any:
    def case(w: Workspace) -> Any:
        module = w.module(path)
        return {name: hasattr(module, name) for name in names.split()}

    return case


programs(**{f"names_{path.replace('.', '_')}": importable(path, names) for path, names in NAMES.items()})

METHODS = ("KafkaProducer", "KafkaConsumer", "KafkaAdminClient")


def methods(name: str) -> Any:
    def case(w: Workspace) -> Any:
        """The argument names of each public method, and which have a default."""
        known = {
            each: AtLeast(
                f"{p.name}{'=' if p.default is not p.empty else ''}"
                for p in inspect.signature(value).parameters.values()
            )
            for each, value in inspect.getmembers(getattr(w.kafka, name), callable)
            if not each.startswith("_") and each in PUBLIC[name]
        }
        return known

    return case


PUBLIC = {
    "KafkaProducer": """abort_transaction begin_transaction bootstrap_connected close commit_transaction flush
        init_transactions metrics partitions_for send send_offsets_to_transaction""",
    "KafkaConsumer": """assign assignment beginning_offsets bootstrap_connected close commit commit_async committed
        end_offsets group_metadata highwater metrics offsets_for_times partitions_for_topic pause paused poll position
        resume seek seek_to_beginning seek_to_end subscribe subscription topics unsubscribe""",
    "KafkaAdminClient": """abort_transaction alter_configs alter_group_offsets alter_partition_reassignments close
        create_partitions create_topics delete_group_offsets delete_groups delete_records delete_topics describe_cluster
        describe_configs describe_groups describe_log_dirs describe_producers describe_topics describe_transactions
        elect_leaders find_hanging_transactions list_group_offsets list_groups list_partition_offsets
        list_partition_reassignments list_topics list_transactions remove_group_members reset_configs
        reset_group_offsets wait_for_topics""",
}
PUBLIC = {name: text.split() for name, text in PUBLIC.items()}  # type: ignore[misc]
programs(**{f"methods_{name}": methods(name) for name in METHODS})


def default_settings(name: str) -> Any:
    def case(w: Workspace) -> Any:
        config = getattr(w.kafka, name).DEFAULT_CONFIG
        return AtLeast(config)

    return case


programs(**{f"default_config_{name}": default_settings(name) for name in METHODS})


@program
def default_config_values(w: Workspace) -> Any:
    found = []
    for name in METHODS:
        for key, value in getattr(w.kafka, name).DEFAULT_CONFIG.items():
            if (value is None or isinstance(value, int | float | str | bool)) and "client_id" not in key:
                found.append(f"{name} {key}={value}")
    return AtLeast(found)


@program
def structs_defaults(w: Workspace) -> Any:
    structs = w.structs
    return [
        list(structs.OffsetAndMetadata(1)),
        list(structs.ConsumerGroupMetadata("g"))[:4],
        list(structs.OffsetAndTimestamp(1, 2, 3)),
        structs.TopicPartition("t", 0) == ("t", 0),
        sorted([structs.TopicPartition("b", 0), structs.TopicPartition("a", 1)])[0].topic,
        structs.TopicPartition(topic="t", partition=1)._replace(partition=2).partition,
    ]


programs(
    structs_repr=lambda w: [repr(w.kafka.TopicPartition("t", 0)), repr(w.kafka.OffsetAndMetadata(1, "m", -1))],
    partitioner_default=lambda w: [
        w.module("kafka.partitioner.default").murmur2(each) for each in (b"", b"a", b"key", b"\xff" * 9)
    ],
    enum_values=lambda w: {
        name: [f"{each.name}={each.value}" for each in getattr(w.admins, name)]
        for name in ("ConfigResourceType", "GroupState", "GroupType", "OffsetSpec", "AlterConfigOp", "TransactionState")
    },
    isolation_levels=lambda w: [f"{each.name}={int(each)}" for each in w.kafka.IsolationLevel],
)
