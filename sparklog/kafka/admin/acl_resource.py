"""The same as ``kafka.admin._acls``, where kafka-python 2 has it."""

from __future__ import annotations

from sparklog.kafka.admin._acls import *  # noqa: F403
from sparklog.kafka.admin._acls import __all__ as __all__
