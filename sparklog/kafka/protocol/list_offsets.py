"""Special offsets, where kafka-python 2 has them: ``kafka.protocol.list_offsets``."""

from __future__ import annotations

from sparklog.client.admin.types import OffsetResetStrategy

__all__ = ["OffsetResetStrategy"]
