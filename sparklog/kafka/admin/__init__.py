"""The admin client and the types of its arguments: ``kafka.admin``."""

from sparklog.client.admin.security import ConfigSourceType as ConfigSourceType
from sparklog.client.admin.security import ConfigType as ConfigType
from sparklog.client.admin.security import ScramMechanism as ScramMechanism
from sparklog.client.admin.security import UpdateFeatureType as UpdateFeatureType
from sparklog.client.admin.security import UserScramCredentialDeletion as UserScramCredentialDeletion
from sparklog.client.admin.security import UserScramCredentialUpsertion as UserScramCredentialUpsertion
from sparklog.client.admin.types import AbortTransactionSpec as AbortTransactionSpec
from sparklog.client.admin.types import AlterConfigOp as AlterConfigOp
from sparklog.client.admin.types import ConfigFilterType as ConfigFilterType
from sparklog.client.admin.types import ConfigResource as ConfigResource
from sparklog.client.admin.types import ConfigResourceType as ConfigResourceType
from sparklog.client.admin.types import ElectionType as ElectionType
from sparklog.client.admin.types import GroupState as GroupState
from sparklog.client.admin.types import GroupType as GroupType
from sparklog.client.admin.types import IsolationLevel as IsolationLevel
from sparklog.client.admin.types import MemberToRemove as MemberToRemove
from sparklog.client.admin.types import NewPartitions as NewPartitions
from sparklog.client.admin.types import NewTopic as NewTopic
from sparklog.client.admin.types import OffsetSpec as OffsetSpec
from sparklog.client.admin.types import OffsetTimestamp as OffsetTimestamp
from sparklog.client.admin.types import PartitionProducerState as PartitionProducerState
from sparklog.client.admin.types import ProducerState as ProducerState
from sparklog.client.admin.types import TransactionDescription as TransactionDescription
from sparklog.client.admin.types import TransactionListing as TransactionListing
from sparklog.client.admin.types import TransactionState as TransactionState
from sparklog.kafka.admin._acls import *  # noqa: F403
from sparklog.kafka.admin.client import KafkaAdminClient as KafkaAdminClient
