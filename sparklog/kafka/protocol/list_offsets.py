"""Special offsets, where kafka-python 2 has them: ``kafka.protocol.list_offsets``."""

from sparklog.client.admin.types import OffsetResetStrategy as OffsetResetStrategy
