"""Every error that sparklog raises, grouped by what the caller does next, and all of Kafka's by name and number.

    KafkaError, or SparklogError
    |- InvalidCallError               change the call: nothing was written
    |  |- InvalidRequestError         it cannot be met, whatever the state of the cluster
    |  |  |- InvalidArgumentError     a value that cannot be; also a ValueError
    |  |  |- InvalidArgumentTypeError a value of the wrong type; also a TypeError
    |  |  |- InvalidOptionError       a Spark option or a command-line value
    |  |  |- SerializationError       a key, value or header that is not bytes; also a TypeError
    |  |  `- UnsupportedStoreError    a URL whose storage cannot arbitrate commits
    |  |- InvalidTopicError           a name that breaks Kafka's rules
    |  |- InvalidPartitionsError      a partition count that cannot be
    |  |- InvalidReplicationFactorError
    |  |- InvalidReplicationAssignmentError  a list of brokers that cannot hold a partition
    |  |- InvalidConfigurationError   an unknown setting or a value out of bounds
    |  |  `- InvalidClientConfigurationError  of a client; also a KafkaConfigurationError and a ValueError
    |  |     `- InvalidAcksError      acks that no producer may ask for
    |  |- RefusedRecordError          a record that its topic does not take; also a ValueError
    |  |  |- InvalidRecordError       its type, key, header or partition
    |  |  |- InvalidTimestampError    outside message.timestamp.before/after.max.ms
    |  |  `- MessageSizeTooLargeError over max.message.bytes
    |  |- PolicyViolationError        a setting of the cluster forbids it
    |  |- RecordListTooLargeError     a commit or batch over a hard limit
    |  |- IllegalStateError           not now: the client is closed, or in another mode
    |  |  `- NotAssignedError         a partition that the consumer does not have
    |  |- InvalidTxnStateError        not in this state of the transaction
    |  |- InvalidTransactionTimeoutError  over transaction.max.timeout.ms
    |  |- InvalidSessionTimeoutError  outside group.min/max.session.timeout.ms
    |  |- InconsistentGroupProtocolError  no assignor that all members of the group have
    |  |- GroupMaxSizeReachedError    the group has group.max.size members
    |  |- NonEmptyGroupError          the group has members; stop them first
    |  |- GroupSubscribedToTopicError members of the group read the topic; stop them first
    |  |- OffsetMetadataTooLargeError a text with an offset that is too long
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
    |  `- CommitFailedError           offsets that the group does not take from this consumer
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
    |  |- NotLeaderForPartitionError  they are on no broker that is in sync
    |  |- NotEnoughReplicasError      they are on fewer brokers in sync than min.insync.replicas
    |  `- StaleWriteError             they were begun too long ago
    |- IndeterminateCommitError       unknown whether it happened: read back, then decide
    `- StorageError                   the storage refused or failed: mend it, then retry
       |- ObjectNotFoundError
       |- ObjectExistsError
       |- StoragePermissionError
       |- StorageFullError
       `- StorageUnavailableError


Across these groups go those of Kafka: ``except RetriableError`` catches what may work when it is tried again,
InvalidMetadataError what may work with the newest state, BrokerResponseError what has a number in Kafka's protocol
(``errno``), AuthorizationError what the storage does not allow. Every class of ``kafka.errors`` is here, with its
number, its bases and its older names; those that nothing here raises are in ``kafka``. ``for_code`` gives the class of
a number.

Every error is picklable, so that it crosses from an executor to the driver whole, and carries what it is about as
attributes: ``topic``, ``partition``, ``offset``, ``path`` and others, ``None`` where they do not apply.
"""

from __future__ import annotations

from sparklog.errors.base import (
    AuthorizationError as AuthorizationError,
)
from sparklog.errors.base import (
    BrokerResponseError as BrokerResponseError,
)
from sparklog.errors.base import (
    InvalidMetadataError as InvalidMetadataError,
)
from sparklog.errors.base import (
    KafkaError as KafkaError,
)
from sparklog.errors.base import (
    RetriableError as RetriableError,
)
from sparklog.errors.base import (
    SparklogError as SparklogError,
)
from sparklog.errors.codes import for_code as for_code
from sparklog.errors.codes import kafka_errors as kafka_errors
from sparklog.errors.kafka import *  # noqa: F403
from sparklog.errors.raised import *  # noqa: F403
