"""All errors of sparklog: ``kafka.errors``."""

from sparklog.errors import *  # noqa: F403
