"""The same as ``kafka.admin._acls``, where kafka-python 2 has it."""

from sparklog.kafka.admin._acls import *  # noqa: F403
