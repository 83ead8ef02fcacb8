"""The errors that sparklog raises, Kafka's and its own, grouped by what the caller does next.

Rules: a class that Kafka has keeps Kafka's name, number and bases, and derives from no other class of Kafka's. Where
kafka-python raises a built-in error of Python, the class derives from that as well. A class is added only if a caller
would act differently, or catches it by Kafka's name.

Not for: Kafka's errors that sparklog never raises (``kafka``).
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
    """Success. Calls that report per partition or member return this class; it is never raised."""


class KafkaTimeoutError(RetriableError):
    """Not done within the timeout. An operation that was in flight may still take effect."""


# -- change the call: nothing was written


class InvalidCallError(KafkaError):
    """The call is invalid, or invalid at this time; nothing was written."""


class InvalidRequestError(InvalidCallError, BrokerResponseError, errno=42):
    """A request that is invalid, whatever the state of the cluster."""


class IllegalArgumentError(InvalidCallError):
    """An argument that the call cannot use."""


class InvalidArgumentError(InvalidRequestError, IllegalArgumentError, ValueError, AssertionError):
    """An argument with an invalid value. A ValueError too, as kafka-python 3 raises, and an AssertionError, as version
    2 did."""


class InvalidArgumentTypeError(InvalidRequestError, IllegalArgumentError, TypeError, AssertionError):
    """An argument of the wrong type. A TypeError too, as kafka-python 3 raises, and an AssertionError, as version 2
    did."""


class FeatureUpdateFailedError(InvalidCallError, BrokerResponseError, errno=96):
    """The features of the cluster could not be changed."""


class InvalidTopicError(InvalidCallError, BrokerResponseError, ValueError, errno=17):
    """A topic name that Kafka's rules forbid. A ValueError too, which is what kafka-python's clients raise."""


class InvalidTopicTypeError(InvalidTopicError, TypeError):
    """A topic name that is not text. A TypeError too, as with kafka-python."""


class InvalidPartitionsError(InvalidCallError, BrokerResponseError, errno=37):
    """An invalid partition count or number."""


class InvalidReplicationFactorError(InvalidCallError, BrokerResponseError, errno=38):
    """More replicas than there are brokers, or fewer than one."""


class InvalidReplicationAssignmentError(InvalidCallError, BrokerResponseError, errno=39):
    """Brokers that cannot hold a partition: named twice, not registered, cordoned, or none of them in sync."""


InvalidReplicaAssignmentError = InvalidReplicationAssignmentError
"""The name in Kafka's Java client."""


class InvalidConfigurationError(InvalidCallError, BrokerResponseError, ValueError, errno=40, code="INVALID_CONFIG"):
    """An unknown setting, or a value of the wrong type or out of bounds. A ValueError too, as with kafka-python."""


class KafkaConfigurationError(InvalidCallError):
    """Arguments of a client that are invalid or contradict each other."""


class InvalidClientConfigurationError(InvalidConfigurationError, KafkaConfigurationError):
    """An argument of ``Producer``, ``Consumer`` or ``AdminClient`` that is unknown, invalid, or contradicts another.

    kafka-python raises KafkaConfigurationError for these, and in some cases ValueError.
    """


class InvalidClientConfigurationTypeError(InvalidClientConfigurationError, TypeError):
    """An argument of the wrong type. A TypeError too, as with kafka-python."""


class InvalidRequiredAcksError(BrokerResponseError, errno=21):
    """Invalid ``acks``."""


class InvalidAcksError(InvalidRequiredAcksError, InvalidClientConfigurationError):
    """Invalid ``acks`` as an argument of ``Producer``."""


class InvalidOptionError(InvalidRequestError):
    """A Spark option or command-line value that is unknown, malformed or contradicts another."""


class RefusedRecordError(InvalidCallError, ValueError):
    """A record that its topic does not accept. The others of the same call may be sent without it.

    A ValueError too, which is what kafka-python's ``send`` raises.
    """


class InvalidRecordError(RefusedRecordError, BrokerResponseError, errno=87):
    """A row that cannot become a record: wrong type, missing topic, missing key, or invalid partition."""


class InvalidRecordTypeError(InvalidRecordError, TypeError):
    """A partition that is not an integer. A TypeError too, as with kafka-python."""


class InvalidTimestampError(RefusedRecordError, BrokerResponseError, errno=32):
    """A record's timestamp is outside the range that the topic accepts."""


class InvalidTimestampTypeError(InvalidTimestampError, TypeError):
    """A timestamp that is not a number. A TypeError too, as with kafka-python."""


class MessageSizeTooLargeError(RefusedRecordError, BrokerResponseError, errno=10):
    """A record is larger than the topic's ``max.message.bytes``."""


class PolicyViolationError(InvalidCallError, BrokerResponseError, errno=44):
    """A setting of the cluster forbids the request."""


class RecordListTooLargeError(InvalidCallError, BrokerResponseError, errno=18):
    """A commit or batch would exceed a hard limit (see ``sparklog.limits``)."""


class SerializationError(InvalidRequestError, TypeError):
    """A key, value or header that is not bytes, without a serializer that converts it.

    A TypeError too, which is what kafka-python's ``send`` raises.
    """


class IllegalStateError(InvalidCallError):
    """The client is closed, is used in another process than the one that created it, or cannot do this in its current
    mode."""


class NotAssignedError(IllegalStateError, ValueError):
    """A partition that is not assigned to the consumer. A ValueError too, which is what kafka-python's ``seek``
    raises."""


class InvalidTxnStateError(InvalidCallError, BrokerResponseError, errno=48):
    """A call that the current state of the transaction does not allow."""


class TransactionStateError(InvalidTxnStateError, IllegalStateError):
    """``send`` outside of a transaction. An IllegalStateError too, as with kafka-python."""


class InvalidTransactionTimeoutError(InvalidCallError, BrokerResponseError, errno=50):
    """A ``transaction_timeout_ms`` above the cluster's ``transaction.max.timeout.ms``."""


class InvalidSessionTimeoutError(InvalidCallError, BrokerResponseError, errno=26):
    """A session timeout outside the cluster's bounds."""


class InconsistentGroupProtocolError(InvalidCallError, BrokerResponseError, errno=23):
    """A member and its group have no assignor in common."""


class GroupMaxSizeReachedError(InvalidCallError, BrokerResponseError, errno=81):
    """The group has ``group.max.size`` members already."""


class NonEmptyGroupError(InvalidCallError, BrokerResponseError, errno=68):
    """A change to a group that is only allowed while the group has no members."""


class GroupSubscribedToTopicError(InvalidCallError, BrokerResponseError, errno=86):
    """Offsets of a topic that members of the group subscribe to cannot be deleted."""


class InvalidGroupIdError(InvalidCallError, BrokerResponseError, errno=24):
    """An invalid group id."""


class OffsetMetadataTooLargeError(InvalidCallError, BrokerResponseError, errno=12):
    """The metadata committed with an offset is too long."""


class SecurityDisabledError(InvalidCallError, BrokerResponseError, errno=54):
    """There are no ACLs: the permissions of the storage decide."""


class NoOffsetForPartitionError(InvalidCallError):
    """A partition without a committed offset, where ``auto.offset.reset`` is ``none``."""


class UnsupportedStoreError(InvalidRequestError):
    """The URL's storage has no verified put-if-absent, so it cannot arbitrate commits."""


# -- name something that exists


class NotFoundError(KafkaError):
    """The named object does not exist."""


class UnknownTopicOrPartitionError(NotFoundError, InvalidMetadataError, BrokerResponseError, errno=3):
    """No such topic, or no such partition in it."""


class InvalidPartitionError(UnknownTopicOrPartitionError, ValueError):
    """A record names a partition that its topic does not have. A ValueError too, as with kafka-python's ``send``."""


class TransactionalIdNotFoundError(NotFoundError, BrokerResponseError, errno=105):
    """No producer has used this transactional id within ``transactional.id.expiration.ms``."""


class UnknownTopicTimeoutError(UnknownTopicOrPartitionError, KafkaTimeoutError):
    """No such topic or partition, in a call that waits for its timeout in kafka-python. Here, too, ``send`` waits for
    ``max_block_ms``; calls of a consumer raise immediately."""


class ClusterNotFoundError(NotFoundError):
    """The root holds no ``cluster.json``."""


class BrokerIdNotRegisteredError(NotFoundError, BrokerResponseError, errno=102):
    """No storage location is registered under this broker id."""


class NoReassignmentInProgressError(NotFoundError, BrokerResponseError, errno=85):
    """The replicas of this partition are not being reassigned."""


class OffsetOutOfRangeError(NotFoundError, BrokerResponseError, errno=1):
    """An offset below the log start offset or above the log end offset."""


class GroupIdNotFoundError(NotFoundError, BrokerResponseError, errno=69):
    """No such consumer group."""


# -- choose another name, or use the existing one


class AlreadyExistsError(KafkaError):
    """The object to be created already exists."""


class TopicAlreadyExistsError(AlreadyExistsError, BrokerResponseError, errno=36):
    """A topic of this name exists, or one whose name collides with it."""


class ClusterAlreadyExistsError(AlreadyExistsError):
    """The root already holds a cluster."""


class DuplicateBrokerRegistrationError(AlreadyExistsError, BrokerResponseError, errno=101):
    """The broker id or the location is already in use."""


class ElectionNotNeededError(AlreadyExistsError, InvalidMetadataError, BrokerResponseError, errno=84):
    """The partition already has the leader that the election would choose."""


# -- stop: a newer writer has taken over


class FencedError(KafkaError):
    """A newer incarnation of the caller has taken over; this one must stop."""


class ProducerFencedError(FencedError, BrokerResponseError, errno=90):
    """A producer with the same id and a higher epoch exists."""


class OutOfOrderSequenceNumberError(FencedError, BrokerResponseError, errno=45):
    """A producer's sequence leaves a gap, so records in between were lost."""


class RootReplacedError(FencedError):
    """The root holds another timeline than this client has read: it was restored from a copy or created again."""


class UnlinkedHistoryError(FencedError):
    """The state comes from a checkpoint that is not linked to the state read before, so the producer id may belong to
    another producer, and offsets and files to other records."""


class ClusterMovedError(FencedError):
    """A mirror of this root was promoted; the cluster continues there, and this root is no longer written."""


class StaleControllerEpochError(FencedError, BrokerResponseError, errno=11):
    """A request of a controller that has been replaced."""


class ControllerMovedError(StaleControllerEpochError):
    """Another controller, of a higher epoch, has taken over."""


class IllegalGenerationError(FencedError, BrokerResponseError, errno=22):
    """A group member uses an old generation."""


class UnknownProducerIdError(FencedError, BrokerResponseError, errno=59):
    """The cluster or a partition has forgotten the producer id, after ``transactional.id.expiration.ms`` or
    ``producer.id.expiration.ms``."""


class UnknownMemberIdError(FencedError, BrokerResponseError, errno=25):
    """The member is not, or no longer, in the group."""


class FencedInstanceIdError(FencedError, BrokerResponseError, errno=82):
    """Another process has taken over the ``group.instance.id`` of this static member."""


class CommitFailedError(FencedError):
    """The group rejected offsets of this consumer: a rebalance has assigned its partitions to other members, which
    read the records again, or it was never a member of the group. ``__cause__`` may say more."""

    def __init__(self, *args: object, **context: object) -> None:
        super().__init__(*(args or ("the group has assigned the partitions to other members",)), **context)


# -- retry, now or once the replicas or the storage are available


class RebalanceInProgressError(BrokerResponseError, errno=27):
    """The group is rebalancing; call ``poll`` to take part."""


class ReplicaError(KafkaError):
    """The replicas of a partition do not currently allow the operation; nothing was written, and it may be retried."""


class LeaderNotAvailableError(ReplicaError, InvalidMetadataError, BrokerResponseError, errno=5):
    """A partition has no leader: none of its in-sync replicas is available."""


class BrokerNotAvailableError(ReplicaError, BrokerResponseError, errno=8):
    """A storage location fails its checks."""


class ReassignmentInProgressError(ReplicaError, BrokerResponseError, errno=60):
    """The replicas of the partition are being reassigned; wait until that is complete, or cancel it."""


class PreferredLeaderNotAvailableError(ReplicaError, InvalidMetadataError, BrokerResponseError, errno=80):
    """The preferred leader is offline or not in sync."""


class EligibleLeadersNotAvailableError(ReplicaError, InvalidMetadataError, BrokerResponseError, errno=83):
    """No replica is eligible to become leader."""


class TransactionAbortedError(KafkaError):
    """The transaction can no longer be committed; none of its records are visible."""


# -- stored data is lost, corrupt, or newer than this program


class DataLossError(KafkaError):
    """Records in the requested range are lost."""


class CorruptionError(KafkaError):
    """Stored bytes differ from the bytes that were written. Nothing of the corrupt part is returned."""


class CorruptRecordError(CorruptionError, BrokerResponseError, errno=2, code="CORRUPT_MESSAGE"):
    """A part of a ``.log`` file does not match its checksum, or is truncated."""


CorruptRecordException = CorruptRecordError
"""kafka-python's older name."""


class CorruptIndexError(CorruptionError):
    """An ``.index`` file does not match its checksum, or contradicts itself."""


class CorruptMetadataError(CorruptionError):
    """``cluster.json``, a commit, a checkpoint or the boundary is corrupt or was edited."""


class UnsupportedVersionError(BrokerResponseError, errno=35):
    """Written by a newer sparklog than this one."""


class FeatureLevelError(UnsupportedVersionError, InvalidCallError):
    """The cluster's feature level does not allow this; `sparklog features upgrade` raises it. Nothing was written."""


# -- the outcome of a write, and whether to retry it


class CommitConflictError(RetriableError):
    """Other writers won every attempt; nothing was committed. Retrying is safe."""


class WriteRefusedError(RetriableError):
    """Files that were written can no longer become part of the log, or no broker can take new ones.

    Nothing was committed; the same records may be written again, to the brokers that the newest state names.
    """


class NotLeaderForPartitionError(WriteRefusedError, InvalidMetadataError, BrokerResponseError, errno=6):
    """No in-sync broker has the records: the partition has no leader, or its replicas have changed since."""


NotLeaderOrFollowerError = NotLeaderForPartitionError
"""The name in Kafka's Java client."""


class NotEnoughReplicasError(WriteRefusedError, RetriableError, BrokerResponseError, errno=19):
    """A write with ``acks=all`` to a partition with fewer in-sync replicas than ``min.insync.replicas``."""


class StaleWriteError(WriteRefusedError):
    """A file of a slow writer, begun at or before the version up to which uncommitted files have been fenced."""


class IndeterminateCommitError(KafkaError):
    """Outcome unknown: the storage did not confirm the commit. ``version`` and ``write_id`` identify it."""


# -- the storage


class StorageError(KafkaError):
    """The storage failed or refused; ``path`` names the object.

    After ``put_if_absent`` the outcome is unknown, whatever the error, unless ``nothing_written`` is true: then the
    store is certain that nothing was sent, or that the request can no longer take effect.
    """


class ObjectNotFoundError(StorageError):
    """There is no object under this key."""


class ObjectExistsError(StorageError):
    """put_if_absent found an object under this key."""


class ClusterAuthorizationFailedError(AuthorizationError, errno=31):
    """Not allowed for the cluster."""


class StoragePermissionError(StorageError, ClusterAuthorizationFailedError):
    """The credentials do not allow this."""


class StorageFullError(StorageError):
    """No space left, or a quota is exhausted."""


class StorageUnavailableError(StorageError, RetriableError):
    """No response, or one that asks for a retry. The outcome of a write is unknown."""
