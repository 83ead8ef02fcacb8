"""Errors of Kafka's clients and brokers that nothing here raises: there are no connections, sessions or ACLs.

They are here so that a program written for kafka-python imports and catches what it did, under the same names, numbers
and bases. The text of each says what it means in Kafka. ``raised`` has those that mean something here.
"""

from __future__ import annotations

from functools import partial

from sparklog.errors.base import (
    AuthorizationError,
    BrokerResponseError,
    InvalidMetadataError,
    KafkaError,
    RetriableError,
)
from sparklog.errors.raised import UnsupportedVersionError

# -- Kafka's clients


class Cancelled(RetriableError):
    """The request was given up before it was answered."""


class KafkaConnectionError(InvalidMetadataError):
    """No connection to a broker."""


class KafkaProtocolError(KafkaError):
    """Bytes that do not follow Kafka's protocol."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """An answer to another request than the one that was asked."""


class InvalidReceiveError(KafkaProtocolError):
    """An answer with a size that cannot be."""


class MetadataEmptyBrokerList(RetriableError):
    """Metadata that name no broker."""


class NodeNotReadyError(RetriableError):
    """The broker is not connected yet."""


class UnknownBrokerIdError(KafkaError):
    """A broker that the metadata do not have."""


class QuotaViolationError(KafkaError):
    """A measured rate is over its quota."""


class StaleMetadata(InvalidMetadataError):
    """What is known of the cluster is out of date."""


class TooManyInFlightRequests(RetriableError):
    """As many requests are unanswered as may be."""


class UnrecognizedBrokerVersion(KafkaError):
    """The version of the broker cannot be told."""


class UnsupportedCodecError(KafkaError):
    """No library for this compression."""


# -- Responses of Kafka's brokers


class UnknownError(BrokerResponseError, errno=-1, code="UNKNOWN"):
    """An error of the broker that it has no name for."""


class InvalidFetchRequestError(BrokerResponseError, errno=4, code="INVALID_FETCH_SIZE"):
    """A fetch of a size below zero."""


class RequestTimedOutError(RetriableError, BrokerResponseError, errno=7, code="REQUEST_TIMED_OUT"):
    """The broker could not do it within the time that the request allows."""


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError, errno=9, code="REPLICA_NOT_AVAILABLE"):
    """A replica that should be on this broker cannot be read there."""


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError, errno=13, code="NETWORK_EXCEPTION"):
    """The connection broke before the answer came."""


class CoordinatorLoadInProgressError(
    RetriableError, BrokerResponseError, errno=14, code="COORDINATOR_LOAD_IN_PROGRESS"
):
    """The coordinator is still reading its groups or transactions."""


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError, errno=15, code="COORDINATOR_NOT_AVAILABLE"):
    """No broker coordinates the group or transaction now."""


class NotCoordinatorError(RetriableError, BrokerResponseError, errno=16, code="NOT_COORDINATOR"):
    """Another broker coordinates the group or transaction."""


class NotEnoughReplicasAfterAppendError(
    RetriableError, BrokerResponseError, errno=20, code="NOT_ENOUGH_REPLICAS_AFTER_APPEND"
):
    """The leader has the records, and too few replicas in sync have them."""


class InvalidCommitOffsetSizeError(BrokerResponseError, errno=28, code="INVALID_COMMIT_OFFSET_SIZE"):
    """Offsets with their texts that are too large to be committed."""


class TopicAuthorizationFailedError(AuthorizationError, errno=29, code="TOPIC_AUTHORIZATION_FAILED"):
    """Not allowed for this topic."""


class GroupAuthorizationFailedError(AuthorizationError, errno=30, code="GROUP_AUTHORIZATION_FAILED"):
    """Not allowed for this group."""


class UnsupportedSaslMechanismError(BrokerResponseError, errno=33, code="UNSUPPORTED_SASL_MECHANISM"):
    """The broker does not have this SASL mechanism."""


class IllegalSaslStateError(BrokerResponseError, errno=34, code="ILLEGAL_SASL_STATE"):
    """A request that does not fit the state of the SASL handshake."""


class IncompatibleBrokerVersion(UnsupportedVersionError, errno=35, code="UNSUPPORTED_VERSION"):
    """The broker is too old for the request."""


class NotControllerError(RetriableError, BrokerResponseError, errno=41, code="NOT_CONTROLLER"):
    """This broker is not the controller."""


class UnsupportedForMessageFormatError(BrokerResponseError, errno=43, code="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
    """The format of the stored records does not have what was asked for."""


class DuplicateSequenceNumberError(BrokerResponseError, errno=46, code="DUPLICATE_SEQUENCE_NUMBER"):
    """The broker has the records with this sequence number already."""


class InvalidProducerEpochError(BrokerResponseError, errno=47, code="INVALID_PRODUCER_EPOCH"):
    """A producer with an epoch that is over."""


class InvalidProducerIdMappingError(BrokerResponseError, errno=49, code="INVALID_PRODUCER_ID_MAPPING"):
    """The producer id is not the one of the transactional id."""


class ConcurrentTransactionsError(RetriableError, BrokerResponseError, errno=51, code="CONCURRENT_TRANSACTIONS"):
    """The transaction before is still being completed."""


class TransactionCoordinatorFencedError(BrokerResponseError, errno=52, code="TRANSACTION_COORDINATOR_FENCED"):
    """The transaction has another coordinator now."""


class TransactionalIdAuthorizationFailedError(
    AuthorizationError, errno=53, code="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
):
    """Not allowed for this transactional id."""


class OperationNotAttemptedError(BrokerResponseError, errno=55, code="OPERATION_NOT_ATTEMPTED"):
    """Another part of the request failed first."""


class KafkaStorageError(InvalidMetadataError, BrokerResponseError, errno=56, code="KAFKA_STORAGE_ERROR"):
    """The disk of the partition failed."""


class LogDirNotFoundError(BrokerResponseError, errno=57, code="LOG_DIR_NOT_FOUND"):
    """The broker does not have this log dir."""


class SaslAuthenticationFailedError(BrokerResponseError, errno=58, code="SASL_AUTHENTICATION_FAILED"):
    """User and password, or what stands for them, were refused."""


class DelegationTokenAuthDisabledError(BrokerResponseError, errno=61, code="DELEGATION_TOKEN_AUTH_DISABLED"):
    """The cluster has no delegation tokens."""


class DelegationTokenNotFoundError(BrokerResponseError, errno=62, code="DELEGATION_TOKEN_NOT_FOUND"):
    """The cluster does not have this delegation token."""


class DelegationTokenOwnerMismatchError(BrokerResponseError, errno=63, code="DELEGATION_TOKEN_OWNER_MISMATCH"):
    """The delegation token belongs to somebody else."""


class DelegationTokenRequestNotAllowedError(BrokerResponseError, errno=64, code="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"):
    """This connection may not ask for delegation tokens."""


class DelegationTokenAuthorizationFailedError(
    AuthorizationError, errno=65, code="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    """Not allowed for this delegation token."""


class DelegationTokenExpiredError(BrokerResponseError, errno=66, code="DELEGATION_TOKEN_EXPIRED"):
    """The time of the delegation token is over."""


class InvalidPrincipalTypeError(BrokerResponseError, errno=67, code="INVALID_PRINCIPAL_TYPE"):
    """A kind of principal that the broker does not know."""


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError, errno=70, code="FETCH_SESSION_ID_NOT_FOUND"):
    """The broker does not have this fetch session."""


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError, errno=71, code="INVALID_FETCH_SESSION_EPOCH"):
    """A fetch with an epoch that its session does not have."""


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError, errno=72, code="LISTENER_NOT_FOUND"):
    """The leader has no listener of the kind that the client uses."""


class TopicDeletionDisabledError(BrokerResponseError, errno=73, code="TOPIC_DELETION_DISABLED"):
    """The cluster deletes no topics (``delete.topic.enable``)."""


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError, errno=74, code="FENCED_LEADER_EPOCH"):
    """The client knows an older leader than the broker."""


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError, errno=75, code="UNKNOWN_LEADER_EPOCH"):
    """The client knows a newer leader than the broker."""


class UnsupportedCompressionTypeError(BrokerResponseError, errno=76, code="UNSUPPORTED_COMPRESSION_TYPE"):
    """The client that asks cannot read this compression."""


class StaleBrokerEpochError(BrokerResponseError, errno=77, code="STALE_BROKER_EPOCH"):
    """The broker has been registered again since."""


class OffsetNotAvailableError(RetriableError, BrokerResponseError, errno=78, code="OFFSET_NOT_AVAILABLE"):
    """The new leader does not know its high watermark yet."""


class MemberIdRequiredError(BrokerResponseError, errno=79, code="MEMBER_ID_REQUIRED"):
    """The member is to join again with the id that it was given."""


class UnstableOffsetCommitError(RetriableError, BrokerResponseError, errno=88, code="UNSTABLE_OFFSET_COMMIT"):
    """A transaction that commits these offsets is still open."""


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError, errno=89, code="THROTTLING_QUOTA_EXCEEDED"):
    """More changes to topics than the quota allows."""


class ResourceNotFoundError(BrokerResponseError, errno=91, code="RESOURCE_NOT_FOUND"):
    """What the request names is not there."""


class DuplicateResourceError(BrokerResponseError, errno=92, code="DUPLICATE_RESOURCE"):
    """The request names the same thing twice, or what is there already."""


class UnacceptableCredentialError(BrokerResponseError, errno=93, code="UNACCEPTABLE_CREDENTIAL"):
    """A password or its parameters that the broker does not take."""


class InconsistentVoterSetError(BrokerResponseError, errno=94, code="INCONSISTENT_VOTER_SET"):
    """Voters of a quorum that differ between sender and receiver."""


class InvalidUpdateVersionError(BrokerResponseError, errno=95, code="INVALID_UPDATE_VERSION"):
    """A version that cannot follow the one that is stored."""


class FeatureUpdateFailedError(BrokerResponseError, errno=96, code="FEATURE_UPDATE_FAILED"):
    """The features of the cluster could not be changed."""


class PrincipalDeserializationFailureError(BrokerResponseError, errno=97, code="PRINCIPAL_DESERIALIZATION_FAILURE"):
    """The principal that a broker forwarded cannot be read."""


class SnapshotNotFoundError(BrokerResponseError, errno=98, code="SNAPSHOT_NOT_FOUND"):
    """The quorum does not have this snapshot."""


class PositionOutOfRangeError(BrokerResponseError, errno=99, code="POSITION_OUT_OF_RANGE"):
    """A position beyond the end of a snapshot."""


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError, errno=100, code="UNKNOWN_TOPIC_ID"):
    """The broker does not know this topic id."""


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError, errno=103, code="INCONSISTENT_TOPIC_ID"):
    """The log of the partition belongs to another topic of this name."""


class InconsistentClusterIdError(BrokerResponseError, errno=104, code="INCONSISTENT_CLUSTER_ID"):
    """Sender and receiver belong to different clusters."""


class FetchSessionTopicIdError(RetriableError, BrokerResponseError, errno=106, code="FETCH_SESSION_TOPIC_ID_ERROR"):
    """A fetch session that names topics by id and by name."""


class IneligibleReplicaError(BrokerResponseError, errno=107, code="INELIGIBLE_REPLICA"):
    """A replica that may not join the ISR now."""


class NewLeaderElectedError(BrokerResponseError, errno=108, code="NEW_LEADER_ELECTED"):
    """The change of the ISR made another replica lead."""


class OffsetMovedToTieredStorageError(BrokerResponseError, errno=109, code="OFFSET_MOVED_TO_TIERED_STORAGE"):
    """The records at this offset are in tiered storage."""


class FencedMemberEpochError(BrokerResponseError, errno=110, code="FENCED_MEMBER_EPOCH"):
    """The group has a newer epoch of this member; join again."""


class UnreleasedInstanceIdError(BrokerResponseError, errno=111, code="UNRELEASED_INSTANCE_ID"):
    """Another member still has this ``group.instance.id``."""


class UnsupportedAssignorError(BrokerResponseError, errno=112, code="UNSUPPORTED_ASSIGNOR"):
    """The group does not have this assignor."""


class StaleMemberEpochError(BrokerResponseError, errno=113, code="STALE_MEMBER_EPOCH"):
    """The member acts with an older epoch than the group knows."""


class MismatchedEndpointTypeError(BrokerResponseError, errno=114, code="MISMATCHED_ENDPOINT_TYPE"):
    """A request for controllers that a broker got, or the other way round."""


class UnsupportedEndpointTypeError(BrokerResponseError, errno=115, code="UNSUPPORTED_ENDPOINT_TYPE"):
    """A kind of endpoint that the cluster does not know."""


class UnknownControllerIdError(BrokerResponseError, errno=116, code="UNKNOWN_CONTROLLER_ID"):
    """No controller has this id."""


class UnknownSubscriptionIdError(BrokerResponseError, errno=117, code="UNKNOWN_SUBSCRIPTION_ID"):
    """The broker does not ask for metrics under this subscription any more."""


class TelemetryTooLargeError(BrokerResponseError, errno=118, code="TELEMETRY_TOO_LARGE"):
    """More metrics at once than the broker takes."""


class InvalidRegistrationError(BrokerResponseError, errno=119, code="INVALID_REGISTRATION"):
    """A broker that cannot be registered as it is."""


class TransactionAbortableError(BrokerResponseError, errno=120, code="TRANSACTION_ABORTABLE"):
    """The transaction failed and has to be aborted."""


class InvalidRecordStateError(BrokerResponseError, errno=121, code="INVALID_RECORD_STATE"):
    """The record is not in the state that the acknowledgement is for."""


class ShareSessionNotFoundError(RetriableError, BrokerResponseError, errno=122, code="SHARE_SESSION_NOT_FOUND"):
    """The broker does not have this share session."""


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError, errno=123, code="INVALID_SHARE_SESSION_EPOCH"):
    """An epoch that the share session does not have."""


class FencedStateEpochError(BrokerResponseError, errno=124, code="FENCED_STATE_EPOCH"):
    """The share group has a newer epoch of this state."""


class InvalidVoterKeyError(BrokerResponseError, errno=125, code="INVALID_VOTER_KEY"):
    """The voter's directory id is another one than the quorum's."""


class DuplicateVoterError(BrokerResponseError, errno=126, code="DUPLICATE_VOTER"):
    """The quorum has this voter already."""


class VoterNotFoundError(BrokerResponseError, errno=127, code="VOTER_NOT_FOUND"):
    """The quorum does not have this voter."""


class LogTruncationError(KafkaError):
    """Records that were read are not in the log any more: an unclean election made a replica lead that lacked them.

    ``divergent_offsets`` are by TopicPartition where the two histories part, None where that cannot be told.
    """

    def __init__(self, divergent_offsets: object = None, *args: object, **context: object) -> None:
        text = args or (f"partitions whose log was cut short: {divergent_offsets}",)
        super().__init__(*text, **context)
        self.divergent_offsets = divergent_offsets

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(type(self), **self.context), (self.divergent_offsets, *self.args))
