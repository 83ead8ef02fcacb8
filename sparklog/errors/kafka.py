"""Errors of Kafka's clients and brokers that sparklog never raises: there are no connections, sessions or ACLs.

They exist so that a program written for kafka-python can import and catch them under the same names, numbers and bases.
Each docstring gives the meaning in Kafka. Not for: errors that sparklog raises (``raised``).
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
    """The request was cancelled before a response arrived."""


class KafkaConnectionError(InvalidMetadataError):
    """No connection to a broker."""


class KafkaProtocolError(KafkaError):
    """Bytes that do not follow Kafka's protocol."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """A response to a different request."""


class InvalidReceiveError(KafkaProtocolError):
    """A response with an invalid size."""


class MetadataEmptyBrokerList(RetriableError):
    """Metadata without any broker."""


class NodeNotReadyError(RetriableError):
    """The broker is not connected yet."""


class UnknownBrokerIdError(KafkaError):
    """A broker that is not in the metadata."""


class QuotaViolationError(KafkaError):
    """A measured rate is over its quota."""


class StaleMetadata(InvalidMetadataError):
    """The client's metadata of the cluster is out of date."""


class TooManyInFlightRequests(RetriableError):
    """The number of unanswered requests has reached its limit."""


class UnrecognizedBrokerVersion(KafkaError):
    """The version of the broker cannot be determined."""


class UnsupportedCodecError(KafkaError):
    """No library for this compression codec is installed."""


# -- Responses of Kafka's brokers


class UnknownError(BrokerResponseError, errno=-1):
    """An unexpected error of the broker."""


class InvalidFetchRequestError(BrokerResponseError, errno=4, code="INVALID_FETCH_SIZE"):
    """A fetch with a negative size."""


class RequestTimedOutError(RetriableError, BrokerResponseError, errno=7):
    """The broker did not complete the request within its timeout."""


class ReplicaNotAvailableError(InvalidMetadataError, BrokerResponseError, errno=9):
    """A replica that belongs on this broker cannot be read there."""


class NetworkExceptionError(InvalidMetadataError, BrokerResponseError, errno=13):
    """The connection was lost before the response arrived."""


class CoordinatorLoadInProgressError(RetriableError, BrokerResponseError, errno=14):
    """The coordinator is still loading its groups or transactions."""


class CoordinatorNotAvailableError(RetriableError, BrokerResponseError, errno=15):
    """No broker currently coordinates the group or transaction."""


class NotCoordinatorError(RetriableError, BrokerResponseError, errno=16):
    """Another broker coordinates the group or transaction."""


class NotEnoughReplicasAfterAppendError(RetriableError, BrokerResponseError, errno=20):
    """The leader appended the records, but too few in-sync replicas have them."""


class InvalidCommitOffsetSizeError(BrokerResponseError, errno=28):
    """Offsets and metadata that are too large to be committed."""


class TopicAuthorizationFailedError(AuthorizationError, errno=29):
    """Not allowed for this topic."""


class GroupAuthorizationFailedError(AuthorizationError, errno=30):
    """Not allowed for this group."""


class UnsupportedSaslMechanismError(BrokerResponseError, errno=33):
    """The broker does not support this SASL mechanism."""


class IllegalSaslStateError(BrokerResponseError, errno=34):
    """A request that does not fit the state of the SASL handshake."""


class IncompatibleBrokerVersion(UnsupportedVersionError, errno=35, code="UNSUPPORTED_VERSION"):
    """The broker is too old for the request."""


class NotControllerError(RetriableError, BrokerResponseError, errno=41):
    """This broker is not the controller."""


class UnsupportedForMessageFormatError(BrokerResponseError, errno=43):
    """The format of the stored records does not support the request."""


class DuplicateSequenceNumberError(BrokerResponseError, errno=46):
    """The broker already has records with this sequence number."""


class InvalidProducerEpochError(BrokerResponseError, errno=47):
    """A producer with an old epoch."""


class InvalidProducerIdMappingError(BrokerResponseError, errno=49):
    """The producer id does not belong to the transactional id."""


class ConcurrentTransactionsError(RetriableError, BrokerResponseError, errno=51):
    """The previous transaction is still being completed."""


class TransactionCoordinatorFencedError(BrokerResponseError, errno=52):
    """The transaction has another coordinator now."""


class TransactionalIdAuthorizationFailedError(AuthorizationError, errno=53):
    """Not allowed for this transactional id."""


class OperationNotAttemptedError(BrokerResponseError, errno=55):
    """Another part of the request failed first."""


class KafkaStorageError(InvalidMetadataError, BrokerResponseError, errno=56, code="KAFKA_STORAGE_ERROR"):
    """The disk of the partition failed."""


class LogDirNotFoundError(BrokerResponseError, errno=57):
    """The broker does not have this log dir."""


class SaslAuthenticationFailedError(BrokerResponseError, errno=58):
    """The credentials were rejected."""


class DelegationTokenAuthDisabledError(BrokerResponseError, errno=61):
    """The cluster has no delegation tokens."""


class DelegationTokenNotFoundError(BrokerResponseError, errno=62):
    """The delegation token does not exist."""


class DelegationTokenOwnerMismatchError(BrokerResponseError, errno=63):
    """The delegation token belongs to another principal."""


class DelegationTokenRequestNotAllowedError(BrokerResponseError, errno=64):
    """This connection may not request delegation tokens."""


class DelegationTokenAuthorizationFailedError(AuthorizationError, errno=65):
    """Not allowed for this delegation token."""


class DelegationTokenExpiredError(BrokerResponseError, errno=66):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(BrokerResponseError, errno=67):
    """A principal type that the broker does not support."""


class FetchSessionIdNotFoundError(RetriableError, BrokerResponseError, errno=70):
    """The broker does not have this fetch session."""


class InvalidFetchSessionEpochError(RetriableError, BrokerResponseError, errno=71):
    """A fetch with an epoch that does not match its session."""


class ListenerNotFoundError(InvalidMetadataError, BrokerResponseError, errno=72):
    """The leader has no listener that matches the client's."""


class TopicDeletionDisabledError(BrokerResponseError, errno=73):
    """The cluster does not allow topics to be deleted (``delete.topic.enable``)."""


class FencedLeaderEpochError(InvalidMetadataError, BrokerResponseError, errno=74):
    """The client's leader epoch is older than the broker's."""


class UnknownLeaderEpochError(InvalidMetadataError, BrokerResponseError, errno=75):
    """The client's leader epoch is newer than the broker's."""


class UnsupportedCompressionTypeError(BrokerResponseError, errno=76):
    """The requesting client does not support this compression codec."""


class StaleBrokerEpochError(BrokerResponseError, errno=77):
    """The broker has re-registered since."""


class OffsetNotAvailableError(RetriableError, BrokerResponseError, errno=78):
    """The new leader does not know its high watermark yet."""


class MemberIdRequiredError(BrokerResponseError, errno=79):
    """The member must join again with the id that it was given."""


class UnstableOffsetCommitError(RetriableError, BrokerResponseError, errno=88):
    """A transaction that commits these offsets is still open."""


class ThrottlingQuotaExceededError(RetriableError, BrokerResponseError, errno=89):
    """The changes to topics exceed the quota."""


class ResourceNotFoundError(BrokerResponseError, errno=91):
    """A resource named in the request does not exist."""


class DuplicateResourceError(BrokerResponseError, errno=92):
    """The request names a resource twice, or one that already exists."""


class UnacceptableCredentialError(BrokerResponseError, errno=93):
    """A credential, or its parameters, that the broker does not accept."""


class InconsistentVoterSetError(BrokerResponseError, errno=94):
    """Sender and receiver disagree about the voters of the quorum."""


class InvalidUpdateVersionError(BrokerResponseError, errno=95):
    """A version that cannot follow the stored one."""


class PrincipalDeserializationFailureError(BrokerResponseError, errno=97):
    """The principal that a broker forwarded cannot be read."""


class SnapshotNotFoundError(BrokerResponseError, errno=98):
    """The quorum does not have this snapshot."""


class PositionOutOfRangeError(BrokerResponseError, errno=99):
    """A position beyond the end of a snapshot."""


class UnknownTopicIdError(InvalidMetadataError, BrokerResponseError, errno=100):
    """The broker does not know this topic id."""


class InconsistentTopicIdError(InvalidMetadataError, BrokerResponseError, errno=103):
    """The log of the partition belongs to another topic of this name."""


class InconsistentClusterIdError(BrokerResponseError, errno=104):
    """Sender and receiver belong to different clusters."""


class FetchSessionTopicIdError(RetriableError, BrokerResponseError, errno=106, code="FETCH_SESSION_TOPIC_ID_ERROR"):
    """A fetch session that mixes topic ids and topic names."""


class IneligibleReplicaError(BrokerResponseError, errno=107):
    """A replica that is not eligible to join the ISR."""


class NewLeaderElectedError(BrokerResponseError, errno=108):
    """The change of the ISR caused the election of another leader."""


class OffsetMovedToTieredStorageError(BrokerResponseError, errno=109):
    """The records at this offset are in tiered storage."""


class FencedMemberEpochError(BrokerResponseError, errno=110):
    """The group has a newer epoch of this member; join again."""


class UnreleasedInstanceIdError(BrokerResponseError, errno=111):
    """Another member still has this ``group.instance.id``."""


class UnsupportedAssignorError(BrokerResponseError, errno=112):
    """The group does not support this assignor."""


class StaleMemberEpochError(BrokerResponseError, errno=113):
    """The member's epoch is older than the group's."""


class MismatchedEndpointTypeError(BrokerResponseError, errno=114):
    """A request for controllers was sent to a broker, or vice versa."""


class UnsupportedEndpointTypeError(BrokerResponseError, errno=115):
    """An endpoint type that the cluster does not support."""


class UnknownControllerIdError(BrokerResponseError, errno=116):
    """No controller has this id."""


class UnknownSubscriptionIdError(BrokerResponseError, errno=117):
    """The broker no longer collects metrics under this subscription."""


class TelemetryTooLargeError(BrokerResponseError, errno=118):
    """More metrics in one request than the broker accepts."""


class InvalidRegistrationError(BrokerResponseError, errno=119):
    """An invalid broker registration."""


class TransactionAbortableError(BrokerResponseError, errno=120):
    """The transaction failed and must be aborted."""


class InvalidRecordStateError(BrokerResponseError, errno=121):
    """The record is not in a state that allows this acknowledgement."""


class ShareSessionNotFoundError(RetriableError, BrokerResponseError, errno=122):
    """The broker does not have this share session."""


class InvalidShareSessionEpochError(RetriableError, BrokerResponseError, errno=123):
    """An epoch that does not match the share session."""


class FencedStateEpochError(BrokerResponseError, errno=124):
    """The share group has a newer epoch of this state."""


class InvalidVoterKeyError(BrokerResponseError, errno=125):
    """The voter's directory id differs from the quorum's."""


class DuplicateVoterError(BrokerResponseError, errno=126):
    """The quorum already has this voter."""


class VoterNotFoundError(BrokerResponseError, errno=127):
    """The quorum does not have this voter."""


class LogTruncationError(KafkaError):
    """Records that were read are no longer in the log: an unclean election chose a leader that lacked them.

    ``divergent_offsets`` maps each TopicPartition to the offset where the timelines diverge, None where it is unknown.
    """

    def __init__(self, divergent_offsets: object = None, *args: object, **context: object) -> None:
        text = args or (f"partitions whose log was truncated: {divergent_offsets}",)
        super().__init__(*text, **context)
        self.divergent_offsets = divergent_offsets

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(type(self), **self.context), (self.divergent_offsets, *self.args))
