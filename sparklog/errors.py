"""Every error sparklog raises, grouped by what the caller does next.

    SparklogError
    |- InvalidRequestError            change the call: nothing was written
    |  |- InvalidTopicError           a name that breaks Kafka's rules
    |  |- InvalidPartitionsError      a partition count that cannot be
    |  |- InvalidReplicationFactorError
    |  |- InvalidReplicaAssignmentError  a list of brokers that cannot hold a partition
    |  |- InvalidConfigurationError   an unknown setting or a value out of bounds
    |  |- InvalidOptionError          a Spark option or a command-line value
    |  |- InvalidRecordError          a row that no topic takes (type, key, header, partition)
    |  |- InvalidTimestampError       outside message.timestamp.before/after.max.ms
    |  |- MessageSizeTooLargeError    a record over max.message.bytes
    |  |- PolicyViolationError        a setting of the cluster forbids it
    |  |- RecordListTooLargeError     a commit or batch over a hard limit
    |  |- SerializationError          a serializer refused a key, value or header
    |  |- IllegalStateError           not now: the client is closed, or in another mode
    |  |- InvalidTxnStateError        not in this state of the transaction
    |  |- InvalidSessionTimeoutError  outside group.min/max.session.timeout.ms
    |  |- InconsistentGroupProtocolError  no assignor that all members of the group have
    |  |- GroupMaxSizeReachedError    the group has group.max.size members
    |  |- NonEmptyGroupError          the group has members; stop them first
    |  |- NoOffsetForPartitionError   no committed offset, and auto.offset.reset is none
    |  `- UnsupportedStoreError       a URL whose storage cannot arbitrate commits
    |- NotFoundError                  name something that exists
    |  |- UnknownTopicOrPartitionError
    |  |- ClusterNotFoundError
    |  |- BrokerIdNotRegisteredError
    |  |- NoReassignmentInProgressError
    |  |- OffsetOutOfRangeError
    |  `- GroupIdNotFoundError
    |- AlreadyExistsError             choose another name, or take what is there
    |  |- TopicAlreadyExistsError
    |  |- DuplicateBrokerRegistrationError  the id or the location is taken
    |  |- ElectionNotNeededError      the leader is the right one already
    |  `- ClusterAlreadyExistsError
    |- FencedError                    stop: a newer writer has taken over
    |  |- ProducerFencedError
    |  |- OutOfOrderSequenceNumberError
    |  |- UnknownProducerIdError      a producer that has expired
    |  |- ClusterMovedError           the cluster goes on at another root
    |  |- RootReplacedError           the root was restored from a copy, or made again: open the cluster again
    |  |- UnlinkedHistoryError        who the caller is in the log read now cannot be told: get another producer id
    |  |- ControllerMovedError        another controller has a higher epoch
    |  |- IllegalGenerationError      a rebalance has happened since
    |  |- UnknownMemberIdError        the member has left or was expired
    |  |- FencedInstanceIdError       another process uses this group.instance.id now
    |  `- CommitFailedError           offsets of partitions that belong to another member now
    |- RebalanceInProgressError       poll, then try again
    |- ReplicaError                   nothing was written: it works once the replicas are well
    |  |- LeaderNotAvailableError     no in-sync replica answers
    |  |- BrokerNotAvailableError     a location does not pass its checks
    |  |- ReassignmentInProgressError
    |  |- PreferredLeaderNotAvailableError
    |  `- EligibleLeadersNotAvailableError
    |- TransactionAbortedError        abort the transaction and begin another
    |- KafkaTimeoutError              not done in time; it may still happen
    |- DataLossError                  records that were asked for are gone
    |- CorruptionError                stored bytes are not what was written: repair
    |  |- CorruptRecordError          a .log file
    |  |- CorruptIndexError           an .index file
    |  `- CorruptMetadataError        cluster.json, a commit, a checkpoint, the boundary
    |- UnsupportedVersionError        upgrade sparklog
    |- CommitConflictError            retry: others committed first, too many times
    |- WriteRefusedError              the files cannot become part of the log: write the records again
    |  |- NotLeaderOrFollowerError    they are on no broker that is in sync
    |  |- NotEnoughReplicasError      they are on fewer brokers in sync than min.insync.replicas
    |  `- StaleWriteError             they were begun too long ago
    |- IndeterminateCommitError       unknown whether it happened: read back, then decide
    `- StorageError                   the storage refused or failed: mend it, then retry
       |- ObjectNotFoundError
       |- ObjectExistsError
       |- StoragePermissionError
       |- StorageFullError
       `- StorageUnavailableError

Class names are those of Kafka's clients where Kafka has the error. Every error is picklable, so that it crosses from
an executor to the driver whole, and carries what it is about as attributes: ``topic``, ``partition``, ``offset``,
``path`` and others, ``None`` where they do not apply.
"""

from __future__ import annotations

from typing import Any


class SparklogError(Exception):
    """Base of every error here. ``message`` says what happened, where, and what to do; ``context`` holds the facts."""

    retriable = False

    def __init__(self, message: str = "", **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.get("context", {}).get(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.context))


def _rebuild(kind: type[SparklogError], message: str, context: dict[str, Any]) -> SparklogError:
    return kind(message, **context)


class InvalidRequestError(SparklogError):
    """The call itself is wrong; nothing was written."""


class InvalidTopicError(InvalidRequestError):
    """A topic name that Kafka's rules refuse."""


class InvalidPartitionsError(InvalidRequestError):
    """A partition count or number that cannot be."""


class InvalidReplicationFactorError(InvalidRequestError):
    """More replicas than there are brokers, or fewer than one."""


class InvalidReplicaAssignmentError(InvalidRequestError):
    """Brokers that cannot hold a partition: named twice, not registered, cordoned, or none of them in sync."""


class InvalidConfigurationError(InvalidRequestError):
    """An unknown setting, or a value of the wrong type or out of bounds."""


class InvalidOptionError(InvalidRequestError):
    """A Spark option or command-line value that is unknown, malformed or contradicts another."""


class InvalidRecordError(InvalidRequestError, ValueError):
    """A row that cannot become a record: wrong type, no topic, or a partition that does not exist.

    A ValueError too, which is what kafka-python's ``send`` raises.
    """


class InvalidTimestampError(InvalidRecordError):
    """A record's timestamp lies outside what the topic accepts."""


class MessageSizeTooLargeError(InvalidRecordError):
    """A record is larger than the topic's ``max.message.bytes``."""


class PolicyViolationError(InvalidRequestError):
    """A setting of the cluster forbids the request."""


class RecordListTooLargeError(InvalidRequestError):
    """One commit or one batch would pass a hard limit (see ``sparklog.limits``)."""


class SerializationError(InvalidRequestError, TypeError):
    """A serializer or deserializer failed (``__cause__`` says how), or there is none and what is given is no bytes.

    A TypeError too, which is what kafka-python's ``send`` raises.
    """


class IllegalStateError(InvalidRequestError):
    """The client is closed, is used by another process than its maker's, or cannot do this in its present mode."""


class InvalidTxnStateError(InvalidRequestError):
    """A step of a transaction that does not follow from the one before."""


class InvalidSessionTimeoutError(InvalidRequestError):
    """A session timeout outside of the cluster's bounds."""


class InconsistentGroupProtocolError(InvalidRequestError):
    """A member and its group have no assignor in common."""


class GroupMaxSizeReachedError(InvalidRequestError):
    """A group that may not grow."""


class NonEmptyGroupError(InvalidRequestError):
    """A change from outside to a group that has members."""


class NoOffsetForPartitionError(InvalidRequestError):
    """A partition without a committed offset, where ``auto.offset.reset`` is ``none``."""


class UnsupportedStoreError(InvalidRequestError):
    """The URL's storage has no verified put-if-absent, so it cannot arbitrate commits."""


class NotFoundError(SparklogError):
    """What was named does not exist."""


class UnknownTopicOrPartitionError(NotFoundError):
    """No such topic, or no such partition in it."""


class ClusterNotFoundError(NotFoundError):
    """The root holds no ``cluster.json``."""


class BrokerIdNotRegisteredError(NotFoundError):
    """No storage location is registered under this broker id."""


class NoReassignmentInProgressError(NotFoundError):
    """The replicas of this partition are not being moved."""


class OffsetOutOfRangeError(NotFoundError):
    """An offset below the log start offset or above the log end offset."""


class GroupIdNotFoundError(NotFoundError):
    """No such consumer group."""


class AlreadyExistsError(SparklogError):
    """What was to be created is there already."""


class TopicAlreadyExistsError(AlreadyExistsError):
    """A topic of this name exists, or one whose name collides with it."""


class ClusterAlreadyExistsError(AlreadyExistsError):
    """The root already holds a cluster."""


class DuplicateBrokerRegistrationError(AlreadyExistsError):
    """The broker id is taken, or the location is in use already."""


class ElectionNotNeededError(AlreadyExistsError):
    """The partition has the leader that an election would give it."""


class FencedError(SparklogError):
    """A newer incarnation of the caller has taken over; this one must stop."""


class ProducerFencedError(FencedError):
    """A producer with the same id and a higher epoch exists."""


class OutOfOrderSequenceNumberError(FencedError):
    """A producer's sequence leaves a gap, so records in between were lost."""


class RootReplacedError(FencedError):
    """The root holds another history than the one this client has read: restored from a copy, or made again."""


class UnlinkedHistoryError(FencedError):
    """The state was read from a checkpoint that nothing links to the one before: a producer id may be another one's."""


class ClusterMovedError(FencedError):
    """A mirror of this root was promoted; the cluster goes on there, and nothing is written here any more."""


class ControllerMovedError(FencedError):
    """Another controller, of a higher epoch, has taken over."""


class IllegalGenerationError(FencedError):
    """A group member acts for a generation that is over."""


class UnknownProducerIdError(FencedError):
    """A producer id that the cluster, or a partition, has forgotten: ``transactional.id.expiration.ms`` or
    ``producer.id.expiration.ms`` has passed."""


class UnknownMemberIdError(FencedError):
    """A member that the group does not have (any more)."""


class FencedInstanceIdError(FencedError):
    """A static member whose ``group.instance.id`` another process has taken over."""


class CommitFailedError(FencedError):
    """Offsets of partitions that a rebalance has given to another member; that one reads them again."""


class RebalanceInProgressError(SparklogError):
    """The group is being rebalanced; ``poll`` takes part in it."""

    retriable = True


class ReplicaError(SparklogError):
    """The replicas of a partition do not allow this now; nothing was written. Once they do, it works."""

    retriable = True


class LeaderNotAvailableError(ReplicaError):
    """A partition has no leader: none of its in-sync replicas answers."""


class BrokerNotAvailableError(ReplicaError):
    """A storage location does not pass its checks."""


class ReassignmentInProgressError(ReplicaError):
    """The replicas of the partition are being moved; wait for the end, or cancel it."""


class PreferredLeaderNotAvailableError(ReplicaError):
    """The preferred leader is offline or not in sync."""


class EligibleLeadersNotAvailableError(ReplicaError):
    """No replica may become leader."""


class TransactionAbortedError(SparklogError):
    """The transaction cannot be committed any more; nothing of it is visible."""


class KafkaTimeoutError(SparklogError):
    """Not done within the time allowed. What was under way may still happen."""

    retriable = True


class DataLossError(SparklogError):
    """Records in the requested range are no longer there."""


class CorruptionError(SparklogError):
    """Stored bytes are not the bytes that were written. Nothing of the damaged part is returned."""


class CorruptRecordError(CorruptionError):
    """A part of a ``.log`` file does not match its checksum, or is cut short."""


class CorruptIndexError(CorruptionError):
    """An ``.index`` file does not match its checksum, or contradicts itself."""


class CorruptMetadataError(CorruptionError):
    """``cluster.json``, a commit, a checkpoint or the boundary is damaged or was edited."""


class UnsupportedVersionError(SparklogError):
    """Written by a newer sparklog than this one."""


class CommitConflictError(SparklogError):
    """Other writers won every attempt; nothing was written. Retrying is safe."""

    retriable = True


class WriteRefusedError(SparklogError):
    """Written files that can no longer become part of the log, or brokers that cannot take any.

    Nothing was committed; the same records may be written again, to the brokers that the newest state names.
    """

    retriable = True


class NotLeaderOrFollowerError(WriteRefusedError):
    """No broker that is in sync has the records: the partition has no leader, or its replicas changed meanwhile."""


class NotEnoughReplicasError(WriteRefusedError):
    """Fewer replicas in sync than ``min.insync.replicas`` asks for, in a write with ``acks=all``."""


class StaleWriteError(WriteRefusedError):
    """A file that was begun before the version of the cluster up to which files of slow writers are given up."""


class IndeterminateCommitError(SparklogError):
    """The storage did not say whether the commit happened. ``version`` and ``write_id`` name it."""


class StorageError(SparklogError):
    """The storage failed or refused; ``path`` names the object.

    After ``put_if_absent`` the outcome is unknown, whatever the kind of error, unless ``nothing_written`` is true: then
    the store is certain that nothing was sent, or that what was sent can have no effect any more.
    """


class ObjectNotFoundError(StorageError):
    """No object under this key."""


class ObjectExistsError(StorageError):
    """put_if_absent found an object under this key."""


class StoragePermissionError(StorageError):
    """The credentials do not allow this."""


class StorageFullError(StorageError):
    """No space, or a quota is used up."""


class StorageUnavailableError(StorageError):
    """No answer, or an answer that says to try again. A write may or may not have happened."""

    retriable = True


KafkaError = SparklogError
"""The name under which programs written for Kafka's clients catch every error."""
