"""Check the options of a streaming read: those of a batch read without an end, limits per trigger, a consumer group.

Rules: pure, no Spark; errors as in ``spark.options``. Not for: applying the limits (``stream.offsets``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.errors import InvalidOptionError
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC, validate_group_id
from sparklog.spark.options import Options, SourceOptions, checked_names, streaming_source

DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000
"""milliseconds; Spark's Kafka source has the same."""
_STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_TIME = re.compile(r"(\d{1,15})\s*([a-z]*)")
_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class StreamOptions:
    """The checked options of a streaming read. ``group`` is empty if no consumer offsets are committed.

    ``start_of_group`` is the group at whose committed offsets a new query starts; partitions without one start by the
    options.
    """

    source: SourceOptions
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    group: str = ""
    start_of_group: str = ""


def stream_options(raw: Mapping[str, str]) -> StreamOptions:
    """Check the options of a streaming read. Raises InvalidOptionError."""
    options = checked_names(raw)
    source = streaming_source(options)
    if CONSUMER_OFFSETS_TOPIC in source.subscription.topic_names:
        raise InvalidOptionError(
            f"{CONSUMER_OFFSETS_TOPIC} is derived from the commit log: batch queries and Consumer can read it, "
            "streaming queries cannot; leave it out",
            option="subscribe",
        )
    most, least = options.integer("maxOffsetsPerTrigger", 1), options.integer("minOffsetsPerTrigger", 1)
    if most is not None and least is not None and least > most:
        raise InvalidOptionError(
            f"minOffsetsPerTrigger ({least}) is greater than maxOffsetsPerTrigger ({most}); swap the two",
            option="minOffsetsPerTrigger",
        )
    return StreamOptions(
        source=source,
        max_offsets=most,
        min_offsets=least,
        max_trigger_delay_ms=_parse_delay(options),
        group=_find_group(options),
        start_of_group="" if any(name in options for name in _STARTS) else options.text("kafka.group.id"),
    )


def _parse_delay(options: Options) -> int:
    text = options.text("maxTriggerDelay").lower()
    if not text:
        return DEFAULT_MAX_TRIGGER_DELAY_MS
    match = _TIME.fullmatch(text)
    if match is None or match[2] not in _UNITS_MS:
        raise InvalidOptionError(
            f"invalid value {text!r} for option maxTriggerDelay: expected a time such as 500ms, 30s, 15m or 2h",
            option="maxTriggerDelay",
        )
    return int(match[1]) * _UNITS_MS[match[2]]


def _find_group(options: Options) -> str:
    """Return the group to which offsets are committed; empty without one or with ``commitOffsets=false``."""
    group = options.text("kafka.group.id")
    if group:
        validate_group_id(group)
    return group if options.boolean("commitOffsets", True) else ""
