"""The errors of ``kafka.errors``: all that sparklog has."""

from sparklog.errors import *  # noqa: F403
