"""Environment variables: the default cluster, and switches of the command line.

Rules: read at each call, so that a program may set it. Not for: settings of clusters and topics.
"""

from __future__ import annotations

import os

from sparklog.errors import InvalidConfigurationError

ROOT_VARIABLE = "SPARKLOG_BOOTSTRAP_SERVER"
"""The environment variable that names a cluster's root."""

DEBUG_VARIABLE = "SPARKLOG_DEBUG"
KAFKA_EXIT_CODES_VARIABLE = "SPARKLOG_KAFKA_EXIT_CODES"

_SWITCH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("", "0", "false", "no", "off"), False)}


def default_root() -> str | None:
    """Return the root that the environment names, or None."""
    return os.environ.get(ROOT_VARIABLE, "").strip() or None


def is_enabled(variable: str) -> bool:
    """Return whether the environment switches something on. Raises InvalidConfigurationError."""
    value = os.environ.get(variable, "")
    enabled = _SWITCH.get(value.strip().lower())
    if enabled is None:
        raise InvalidConfigurationError(
            f"invalid {variable}={value}: set it to 1, true, yes or on, or to 0, false, no or off", config=variable
        )
    return enabled
