"""Every error that sparklog raises, grouped by what the caller does next, and all of Kafka's by name and number.

    KafkaError, or SparklogError
    |- InvalidCallError               change the call: nothing was written
    |  |- InvalidRequestError         invalid, whatever the state of the cluster
    |  |  |- InvalidArgumentError     an invalid value; also a ValueError
    |  |  |- InvalidArgumentTypeError a value of the wrong type; also a TypeError
    |  |  |- InvalidOptionError       a Spark option or a command-line value
    |  |  |- SerializationError       a key, value or header that is not bytes; also a TypeError
    |  |  `- UnsupportedStoreError    a URL whose storage cannot arbitrate commits
    |  |- InvalidTopicError           a name that breaks Kafka's rules
    |  |- InvalidPartitionsError      an invalid partition count
    |  |- InvalidReplicationFactorError
    |  |- InvalidReplicationAssignmentError  a list of brokers that cannot hold a partition
    |  |- InvalidConfigurationError   an unknown setting or a value out of bounds
    |  |  `- InvalidClientConfigurationError  of a client; also a KafkaConfigurationError and a ValueError
    |  |     `- InvalidAcksError      acks other than 0, 1 and all
    |  |- FeatureLevelError           the cluster's feature level does not allow it: `sparklog features upgrade`
    |  |- FeatureUpdateFailedError    a feature level that cannot be set
    |  |- RefusedRecordError          a record that its topic does not accept; also a ValueError
    |  |  |- InvalidRecordError       its type, key, header or partition
    |  |  |- InvalidTimestampError    outside message.timestamp.before/after.max.ms
    |  |  `- MessageSizeTooLargeError over max.message.bytes
    |  |- PolicyViolationError        a setting of the cluster forbids it
    |  |- RecordListTooLargeError     a commit or batch over a hard limit
    |  |- IllegalStateError           not possible now: the client is closed, or in another mode
    |  |  `- NotAssignedError         a partition that the consumer does not have
    |  |- InvalidTxnStateError        not in this state of the transaction
    |  |- InvalidTransactionTimeoutError  over transaction.max.timeout.ms
    |  |- InvalidSessionTimeoutError  outside group.min/max.session.timeout.ms
    |  |- InconsistentGroupProtocolError  no assignor that all members of the group support
    |  |- GroupMaxSizeReachedError    the group has group.max.size members
    |  |- NonEmptyGroupError          the group has members; stop them first
    |  |- GroupSubscribedToTopicError members of the group read the topic; stop them first
    |  |- OffsetMetadataTooLargeError the metadata of an offset is too long
    |  |- SecurityDisabledError       ACLs: the permissions of the storage decide
    |  `- NoOffsetForPartitionError   no committed offset, and auto.offset.reset is none
    |- NotFoundError                  name something that exists
    |  |- UnknownTopicOrPartitionError
    |  |- ClusterNotFoundError
    |  |- TransactionalIdNotFoundError
    |  |- BrokerIdNotRegisteredError
    |  |- NoReassignmentInProgressError
    |  |- OffsetOutOfRangeError
    |  `- GroupIdNotFoundError
    |- AlreadyExistsError             choose another name, or use the existing one
    |  |- TopicAlreadyExistsError
    |  |- DuplicateBrokerRegistrationError  the id or the location is in use
    |  |- ElectionNotNeededError      the partition already has this leader
    |  `- ClusterAlreadyExistsError
    |- FencedError                    stop: a newer writer has taken over
    |  |- ProducerFencedError
    |  |- OutOfOrderSequenceNumberError
    |  |- UnknownProducerIdError      a producer that has expired
    |  |- ClusterMovedError           the cluster continues at another root
    |  |- RootReplacedError           the root was restored from a copy, or created again: reopen the cluster
    |  |- UnlinkedHistoryError        what was found in the log may be another's now: look again, get a new producer id
    |  |- ControllerMovedError        another controller has a higher epoch
    |  |- IllegalGenerationError      a rebalance has happened since
    |  |- UnknownMemberIdError        the member has left or was expired
    |  |- FencedInstanceIdError       another process now uses this group.instance.id
    |  `- CommitFailedError           the group rejects offsets of this consumer
    |- RebalanceInProgressError       poll, then retry
    |- ReplicaError                   nothing was written: retry once enough replicas are available
    |  |- LeaderNotAvailableError     no in-sync replica is available
    |  |- BrokerNotAvailableError     a storage location fails its checks
    |  |- ReassignmentInProgressError
    |  |- PreferredLeaderNotAvailableError
    |  `- EligibleLeadersNotAvailableError
    |- TransactionAbortedError        abort the transaction and begin another
    |- KafkaTimeoutError              not done in time; outcome unknown
    |- DataLossError                  requested records are lost
    |- CorruptionError                stored bytes differ from what was written: repair
    |  |- CorruptRecordError          a .log file
    |  |- CorruptIndexError           an .index file
    |  `- CorruptMetadataError        cluster.json, a commit, a checkpoint, the boundary
    |- UnsupportedVersionError        upgrade sparklog
    |- CommitConflictError            retry: other writers won every attempt
    |- WriteRefusedError              the files cannot become part of the log: write the records again
    |  |- NotLeaderForPartitionError  no in-sync broker holds them
    |  |- NotEnoughReplicasError      fewer in-sync brokers than min.insync.replicas hold them
    |  `- StaleWriteError             they were begun too long ago
    |- IndeterminateCommitError       outcome unknown: read back, then decide
    `- StorageError                   the storage refused or failed: fix it, then retry
       |- ObjectNotFoundError
       |- ObjectExistsError
       |- StoragePermissionError
       |- StorageFullError
       `- StorageUnavailableError

Kafka's own groups cut across these: ``except RetriableError`` catches errors that a retry may resolve,
InvalidMetadataError those that reading the newest state may resolve, BrokerResponseError those with a number in
Kafka's protocol (``errno``), AuthorizationError operations that the storage does not allow. Every class of
``kafka.errors`` is here, with its number, its bases and its older names; those that sparklog never raises are in
``kafka``. ``for_code`` returns the class of a number.

Every error is picklable, so that it reaches the driver from an executor unchanged, and has its details as attributes:
``topic``, ``partition``, ``offset``, ``path`` and others, ``None`` where they do not apply.
"""

from __future__ import annotations

from sparklog.errors.base import AuthorizationError as AuthorizationError
from sparklog.errors.base import BrokerResponseError as BrokerResponseError
from sparklog.errors.base import InvalidMetadataError as InvalidMetadataError
from sparklog.errors.base import KafkaError as KafkaError
from sparklog.errors.base import RetriableError as RetriableError
from sparklog.errors.base import SparklogError as SparklogError
from sparklog.errors.base import kafka_errors as kafka_errors
from sparklog.errors.codes import for_code as for_code
from sparklog.errors.kafka import *  # noqa: F403
from sparklog.errors.raised import *  # noqa: F403
