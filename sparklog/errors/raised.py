"""The errors that sparklog raises: groups by what the caller does next, and in them Kafka's errors and its own.

Rules: a class that Kafka has is named as there, has its number and its bases, and derives from no other class of
Kafka's. Where kafka-python raises one of Python's own errors, the class derives from that as well. A kind is added only
if a caller would act differently, or catches it by Kafka's name.

Not for: Kafka's errors that mean nothing here (``kafka``).
"""

from __future__ import annotations

from sparklog.errors.base import (
    AuthorizationError,
    BrokerResponseError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
)


class NoError(BrokerResponseError, errno=0, code="NO_ERROR"):
    """It worked. Calls that report per partition or member give this class; it is never raised."""


class KafkaTimeoutError(RetriableError):
    """Not done within the time allowed. What was under way may still happen."""


# -- change the call: nothing was written


class InvalidCallError(KafkaError):
    """The call itself is wrong, or wrong now; nothing was written."""


class InvalidRequestError(InvalidCallError, BrokerResponseError, errno=42, code="INVALID_REQUEST"):
    """A request that cannot be met, whatever the state of the cluster."""


class IllegalArgumentError(InvalidCallError):
    """An argument that the call cannot use."""


class InvalidArgumentError(InvalidRequestError, IllegalArgumentError, ValueError, AssertionError):
    """An argument with a value that cannot be. A ValueError too, as kafka-python 3 raises, and an AssertionError, as
    version 2 did."""


class InvalidArgumentTypeError(InvalidRequestError, IllegalArgumentError, TypeError, AssertionError):
    """An argument of the wrong type. A TypeError too, as kafka-python 3 raises, and an AssertionError, as version 2
    did."""


class InvalidTopicError(InvalidCallError, BrokerResponseError, ValueError, errno=17, code="INVALID_TOPIC"):
    """A topic name that Kafka's rules refuse. A ValueError too, which is what kafka-python's clients raise."""


class InvalidTopicTypeError(InvalidTopicError, TypeError):
    """A topic that is not named by text. A TypeError too, as with kafka-python."""


class InvalidPartitionsError(InvalidCallError, BrokerResponseError, errno=37, code="INVALID_PARTITIONS"):
    """A partition count or number that cannot be."""


class InvalidReplicationFactorError(InvalidCallError, BrokerResponseError, errno=38, code="INVALID_REPLICATION_FACTOR"):
    """More replicas than there are brokers, or fewer than one."""


class InvalidReplicationAssignmentError(
    InvalidCallError, BrokerResponseError, errno=39, code="INVALID_REPLICATION_ASSIGNMENT"
):
    """Brokers that cannot hold a partition: named twice, not registered, cordoned, or none of them in sync."""


InvalidReplicaAssignmentError = InvalidReplicationAssignmentError
"""As Kafka's Java client has it."""


class InvalidConfigurationError(InvalidCallError, BrokerResponseError, ValueError, errno=40, code="INVALID_CONFIG"):
    """An unknown setting, or a value of the wrong type or out of bounds. A ValueError too, as with kafka-python."""


class KafkaConfigurationError(InvalidCallError):
    """Arguments of a client that contradict each other or that no client can have."""


class InvalidClientConfigurationError(InvalidConfigurationError, KafkaConfigurationError):
    """An argument of ``Producer``, ``Consumer`` or ``AdminClient`` that is unknown, cannot be, or contradicts another.

    What kafka-python raises for that: KafkaConfigurationError, and here and there ValueError.
    """


class InvalidClientConfigurationTypeError(InvalidClientConfigurationError, TypeError):
    """An argument of the wrong type. A TypeError too, as with kafka-python."""


class InvalidRequiredAcksError(BrokerResponseError, errno=21, code="INVALID_REQUIRED_ACKS"):
    """``acks`` that no producer may ask for."""


class InvalidAcksError(InvalidRequiredAcksError, InvalidClientConfigurationError):
    """The same as an argument of ``Producer``."""


class InvalidOptionError(InvalidRequestError):
    """A Spark option or command-line value that is unknown, malformed or contradicts another."""


class RefusedRecordError(InvalidCallError, ValueError):
    """A record that its topic does not take. The others of the same call may be sent without it.

    A ValueError too, which is what kafka-python's ``send`` raises.
    """


class InvalidRecordError(RefusedRecordError, BrokerResponseError, errno=87, code="INVALID_RECORD"):
    """A row that cannot become a record: wrong type, no topic, no key, or no partition."""


class InvalidRecordTypeError(InvalidRecordError, TypeError):
    """A partition that is not named by its number. A TypeError too, as with kafka-python."""


class InvalidTimestampError(RefusedRecordError, BrokerResponseError, errno=32, code="INVALID_TIMESTAMP"):
    """A record's timestamp lies outside what the topic accepts."""


class InvalidTimestampTypeError(InvalidTimestampError, TypeError):
    """A timestamp that is no number. A TypeError too, as with kafka-python."""


class MessageSizeTooLargeError(RefusedRecordError, BrokerResponseError, errno=10, code="MESSAGE_SIZE_TOO_LARGE"):
    """A record is larger than the topic's ``max.message.bytes``."""


class PolicyViolationError(InvalidCallError, BrokerResponseError, errno=44, code="POLICY_VIOLATION"):
    """A setting of the cluster forbids the request."""


class RecordListTooLargeError(InvalidCallError, BrokerResponseError, errno=18, code="RECORD_LIST_TOO_LARGE"):
    """One commit or one batch would pass a hard limit (see ``sparklog.limits``)."""


class SerializationError(InvalidRequestError, TypeError):
    """A key, value or header that is not bytes, and no serializer makes bytes of it.

    A TypeError too, which is what kafka-python's ``send`` raises.
    """


class IllegalStateError(InvalidCallError):
    """The client is closed, is used by another process than its maker's, or cannot do this in its present mode."""


class NotAssignedError(IllegalStateError, ValueError):
    """A partition that the consumer does not have. A ValueError too, which is what kafka-python's ``seek`` raises."""


class InvalidTxnStateError(InvalidCallError, BrokerResponseError, errno=48, code="INVALID_TXN_STATE"):
    """A step of a transaction that does not follow from the one before."""


class TransactionStateError(InvalidTxnStateError, IllegalStateError):
    """``send`` outside of a transaction. An IllegalStateError too, as with kafka-python."""


class InvalidTransactionTimeoutError(
    InvalidCallError, BrokerResponseError, errno=50, code="INVALID_TRANSACTION_TIMEOUT"
):
    """A ``transaction_timeout_ms`` over the cluster's ``transaction.max.timeout.ms``."""


class InvalidSessionTimeoutError(InvalidCallError, BrokerResponseError, errno=26, code="INVALID_SESSION_TIMEOUT"):
    """A session timeout outside of the cluster's bounds."""


class InconsistentGroupProtocolError(
    InvalidCallError, BrokerResponseError, errno=23, code="INCONSISTENT_GROUP_PROTOCOL"
):
    """A member and its group have no assignor in common."""


class GroupMaxSizeReachedError(InvalidCallError, BrokerResponseError, errno=81, code="GROUP_MAX_SIZE_REACHED"):
    """A group that may not grow."""


class NonEmptyGroupError(InvalidCallError, BrokerResponseError, errno=68, code="NON_EMPTY_GROUP"):
    """A change from outside to a group that has members."""


class GroupSubscribedToTopicError(InvalidCallError, BrokerResponseError, errno=86, code="GROUP_SUBSCRIBED_TO_TOPIC"):
    """Offsets of a topic that members of the group read are not deleted."""


class InvalidGroupIdError(InvalidCallError, BrokerResponseError, errno=24, code="INVALID_GROUP_ID"):
    """A group id that no group can have."""


class OffsetMetadataTooLargeError(InvalidCallError, BrokerResponseError, errno=12, code="OFFSET_METADATA_TOO_LARGE"):
    """The text committed with an offset is longer than a group keeps."""


class SecurityDisabledError(InvalidCallError, BrokerResponseError, errno=54, code="SECURITY_DISABLED"):
    """No ACLs are kept: the permissions of the storage decide."""


class NoOffsetForPartitionError(InvalidCallError):
    """A partition without a committed offset, where ``auto.offset.reset`` is ``none``."""


class UnsupportedStoreError(InvalidRequestError):
    """The URL's storage has no verified put-if-absent, so it cannot arbitrate commits."""


# -- name something that exists


class NotFoundError(KafkaError):
    """What was named does not exist."""


class UnknownTopicOrPartitionError(
    NotFoundError, InvalidMetadataError, BrokerResponseError, errno=3, code="UNKNOWN_TOPIC_OR_PARTITION"
):
    """No such topic, or no such partition in it."""


class InvalidPartitionError(UnknownTopicOrPartitionError, ValueError):
    """A record names a partition that its topic does not have. A ValueError too, as with kafka-python's ``send``."""


class TransactionalIdNotFoundError(NotFoundError, BrokerResponseError, errno=105, code="TRANSACTIONAL_ID_NOT_FOUND"):
    """No producer has used this transactional id, or not for ``transactional.id.expiration.ms``."""


class UnknownTopicTimeoutError(UnknownTopicOrPartitionError, KafkaTimeoutError):
    """No such topic or partition, in a call for which kafka-python waits until its time is up. ``send`` waits here
    too, for ``max_block_ms``; what a consumer is asked is answered at once."""


class ClusterNotFoundError(NotFoundError):
    """The root holds no ``cluster.json``."""


class BrokerIdNotRegisteredError(NotFoundError, BrokerResponseError, errno=102, code="BROKER_ID_NOT_REGISTERED"):
    """No storage location is registered under this broker id."""


class NoReassignmentInProgressError(NotFoundError, BrokerResponseError, errno=85, code="NO_REASSIGNMENT_IN_PROGRESS"):
    """The replicas of this partition are not being moved."""


class OffsetOutOfRangeError(NotFoundError, BrokerResponseError, errno=1, code="OFFSET_OUT_OF_RANGE"):
    """An offset below the log start offset or above the log end offset."""


class GroupIdNotFoundError(NotFoundError, BrokerResponseError, errno=69, code="GROUP_ID_NOT_FOUND"):
    """No such consumer group."""


# -- choose another name, or take what is there


class AlreadyExistsError(KafkaError):
    """What was to be created is there already."""


class TopicAlreadyExistsError(AlreadyExistsError, BrokerResponseError, errno=36, code="TOPIC_ALREADY_EXISTS"):
    """A topic of this name exists, or one whose name collides with it."""


class ClusterAlreadyExistsError(AlreadyExistsError):
    """The root already holds a cluster."""


class DuplicateBrokerRegistrationError(
    AlreadyExistsError, BrokerResponseError, errno=101, code="DUPLICATE_BROKER_REGISTRATION"
):
    """The broker id is taken, or the location is in use already."""


class ElectionNotNeededError(
    AlreadyExistsError, InvalidMetadataError, BrokerResponseError, errno=84, code="ELECTION_NOT_NEEDED"
):
    """The partition has the leader that an election would give it."""


# -- stop: a newer writer has taken over


class FencedError(KafkaError):
    """A newer incarnation of the caller has taken over; this one must stop."""


class ProducerFencedError(FencedError, BrokerResponseError, errno=90, code="PRODUCER_FENCED"):
    """A producer with the same id and a higher epoch exists."""


class OutOfOrderSequenceNumberError(FencedError, BrokerResponseError, errno=45, code="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    """A producer's sequence leaves a gap, so records in between were lost."""


class RootReplacedError(FencedError):
    """The root holds another history than the one this client has read: restored from a copy, or made again."""


class UnlinkedHistoryError(FencedError):
    """The state was read from a checkpoint that nothing links to the one before: a producer id may be another one's."""


class ClusterMovedError(FencedError):
    """A mirror of this root was promoted; the cluster goes on there, and nothing is written here any more."""


class StaleControllerEpochError(FencedError, BrokerResponseError, errno=11, code="STALE_CONTROLLER_EPOCH"):
    """A controller that has been replaced gave an order."""


class ControllerMovedError(StaleControllerEpochError):
    """Another controller, of a higher epoch, has taken over."""


class IllegalGenerationError(FencedError, BrokerResponseError, errno=22, code="ILLEGAL_GENERATION"):
    """A group member acts for a generation that is over."""


class UnknownProducerIdError(FencedError, BrokerResponseError, errno=59, code="UNKNOWN_PRODUCER_ID"):
    """A producer id that the cluster, or a partition, has forgotten: ``transactional.id.expiration.ms`` or
    ``producer.id.expiration.ms`` has passed."""


class UnknownMemberIdError(FencedError, BrokerResponseError, errno=25, code="UNKNOWN_MEMBER_ID"):
    """A member that the group does not have (any more)."""


class FencedInstanceIdError(FencedError, BrokerResponseError, errno=82, code="FENCED_INSTANCE_ID"):
    """A static member whose ``group.instance.id`` another process has taken over."""


class CommitFailedError(FencedError):
    """Offsets that the group does not take from this consumer: a rebalance has given its partitions to other members,
    which read them again, or it never was one of the group's members. ``__cause__`` may say more."""

    def __init__(self, *args: object, **context: object) -> None:
        super().__init__(*(args or ("the group has given the partitions to other members",)), **context)


# -- try again, now or once the replicas or the storage are well


class RebalanceInProgressError(BrokerResponseError, errno=27, code="REBALANCE_IN_PROGRESS"):
    """The group is being rebalanced; ``poll`` takes part in it."""


class ReplicaError(KafkaError):
    """The replicas of a partition do not allow this now; nothing was written. Once they do, it works."""


class LeaderNotAvailableError(
    ReplicaError, InvalidMetadataError, BrokerResponseError, errno=5, code="LEADER_NOT_AVAILABLE"
):
    """A partition has no leader: none of its in-sync replicas answers."""


class BrokerNotAvailableError(ReplicaError, BrokerResponseError, errno=8, code="BROKER_NOT_AVAILABLE"):
    """A storage location does not pass its checks."""


class ReassignmentInProgressError(ReplicaError, BrokerResponseError, errno=60, code="REASSIGNMENT_IN_PROGRESS"):
    """The replicas of the partition are being moved; wait for the end, or cancel it."""


class PreferredLeaderNotAvailableError(
    ReplicaError, InvalidMetadataError, BrokerResponseError, errno=80, code="PREFERRED_LEADER_NOT_AVAILABLE"
):
    """The preferred leader is offline or not in sync."""


class EligibleLeadersNotAvailableError(
    ReplicaError, InvalidMetadataError, BrokerResponseError, errno=83, code="ELIGIBLE_LEADERS_NOT_AVAILABLE"
):
    """No replica may become leader."""


class TransactionAbortedError(KafkaError):
    """The transaction cannot be committed any more; nothing of it is visible."""


# -- what is stored is gone, damaged, or newer than this program


class DataLossError(KafkaError):
    """Records in the requested range are no longer there."""


class CorruptionError(KafkaError):
    """Stored bytes are not the bytes that were written. Nothing of the damaged part is returned."""


class CorruptRecordError(CorruptionError, BrokerResponseError, errno=2, code="CORRUPT_MESSAGE"):
    """A part of a ``.log`` file does not match its checksum, or is cut short."""


CorruptRecordException = CorruptRecordError
"""kafka-python's older name."""


class CorruptIndexError(CorruptionError):
    """An ``.index`` file does not match its checksum, or contradicts itself."""


class CorruptMetadataError(CorruptionError):
    """``cluster.json``, a commit, a checkpoint or the boundary is damaged or was edited."""


class UnsupportedVersionError(BrokerResponseError, errno=35, code="UNSUPPORTED_VERSION"):
    """Written by a newer sparklog than this one."""


# -- writing: what became of it, and whether to write again


class CommitConflictError(RetriableError):
    """Other writers won every attempt; nothing was written. Retrying is safe."""


class WriteRefusedError(RetriableError):
    """Written files that can no longer become part of the log, or brokers that cannot take any.

    Nothing was committed; the same records may be written again, to the brokers that the newest state names.
    """


class NotLeaderForPartitionError(
    WriteRefusedError, InvalidMetadataError, BrokerResponseError, errno=6, code="NOT_LEADER_FOR_PARTITION"
):
    """No broker that is in sync has the records: the partition has no leader, or its replicas changed meanwhile."""


NotLeaderOrFollowerError = NotLeaderForPartitionError
"""As Kafka's Java client has it."""


class NotEnoughReplicasError(
    WriteRefusedError, RetriableError, BrokerResponseError, errno=19, code="NOT_ENOUGH_REPLICAS"
):
    """Fewer replicas in sync than ``min.insync.replicas`` asks for, in a write with ``acks=all``."""


class StaleWriteError(WriteRefusedError):
    """A file that was begun before the version of the cluster up to which files of slow writers are given up."""


class IndeterminateCommitError(KafkaError):
    """The storage did not say whether the commit happened. ``version`` and ``write_id`` name it."""


# -- the storage


class StorageError(KafkaError):
    """The storage failed or refused; ``path`` names the object.

    After ``put_if_absent`` the outcome is unknown, whatever the kind of error, unless ``nothing_written`` is true: then
    the store is certain that nothing was sent, or that what was sent can have no effect any more.
    """


class ObjectNotFoundError(StorageError):
    """No object under this key."""


class ObjectExistsError(StorageError):
    """put_if_absent found an object under this key."""


class ClusterAuthorizationFailedError(AuthorizationError, errno=31, code="CLUSTER_AUTHORIZATION_FAILED"):
    """Not allowed for the cluster."""


class StoragePermissionError(StorageError, ClusterAuthorizationFailedError):
    """The credentials do not allow this."""


class StorageFullError(StorageError):
    """No space, or a quota is used up."""


class StorageUnavailableError(StorageError, RetriableError):
    """No answer, or an answer that says to try again. A write may or may not have happened."""
