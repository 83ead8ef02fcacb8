"""The types of consumer arguments: ``kafka.protocol.consumer``."""

from sparklog.client.admin.types import IsolationLevel as IsolationLevel
from sparklog.client.admin.types import OffsetResetStrategy as OffsetResetStrategy
from sparklog.client.admin.types import OffsetSpec as OffsetSpec
from sparklog.client.admin.types import OffsetTimestamp as OffsetTimestamp
from sparklog.client.consumer.assignors import ConsumerProtocolAssignment as ConsumerProtocolAssignment
from sparklog.client.consumer.assignors import ConsumerProtocolSubscription as ConsumerProtocolSubscription
