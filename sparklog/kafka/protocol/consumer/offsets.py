"""Special offsets: ``kafka.protocol.consumer.offsets``."""

from sparklog.client.admin.types import IsolationLevel as IsolationLevel
from sparklog.client.admin.types import OffsetResetStrategy as OffsetResetStrategy
from sparklog.client.admin.types import OffsetSpec as OffsetSpec
from sparklog.client.admin.types import OffsetTimestamp as OffsetTimestamp
