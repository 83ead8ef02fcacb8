"""Checks of topic names: ``kafka.util``."""

from __future__ import annotations

import re

from sparklog.limits import MAX_TOPIC_NAME_LENGTH as TOPIC_MAX_LENGTH
from sparklog.protocol.names import validate_topic_name as ensure_valid_topic_name

__all__ = ["TOPIC_LEGAL_CHARS", "TOPIC_MAX_LENGTH", "ensure_valid_topic_name"]

TOPIC_LEGAL_CHARS = re.compile("^[a-zA-Z0-9._-]+$")
