"""Errors and structs where kafka-python 1 has them: ``kafka.common``."""

from sparklog.kafka.errors import *  # noqa: F403
from sparklog.kafka.structs import *  # noqa: F403
