"""The options of a streaming read: those of a batch read without an end, limits per trigger, and a consumer group.

Rules: pure, no Spark; errors as in ``options``. Not for: what the limits come to (``stream_offsets``).
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
    """The checked options of a streaming read. ``group`` is empty where no consumer offsets are committed.

    ``start_of_group`` says that a new query starts where this group stands, as far as it has offsets.
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
            f"{CONSUMER_OFFSETS_TOPIC} is derived from the commit log, and a batch query or Consumer reads it, but no "
            "streaming query; leave it out",
            option="subscribe",
        )
    most, least = options.integer("maxOffsetsPerTrigger", 1), options.integer("minOffsetsPerTrigger", 1)
    if most is not None and least is not None and least > most:
        raise InvalidOptionError(
            f"minOffsetsPerTrigger is {least} and maxOffsetsPerTrigger only {most}; exchange the two",
            option="minOffsetsPerTrigger",
        )
    return StreamOptions(
        source=source,
        max_offsets=most,
        min_offsets=least,
        max_trigger_delay_ms=_delay(options),
        group=_group(options),
        start_of_group="" if any(name in options for name in _STARTS) else options.text("kafka.group.id"),
    )


def _delay(options: Options) -> int:
    text = options.text("maxTriggerDelay").lower()
    if not text:
        return DEFAULT_MAX_TRIGGER_DELAY_MS
    found = _TIME.fullmatch(text)
    if found is None or found[2] not in _UNITS_MS:
        raise InvalidOptionError(
            f"option maxTriggerDelay cannot be {text!r}: it takes a time such as 500ms, 30s, 15m or 2h",
            option="maxTriggerDelay",
        )
    return int(found[1]) * _UNITS_MS[found[2]]


def _group(options: Options) -> str:
    """The group that finished batches are committed to; ``commitOffsets=false`` switches it off."""
    group = options.text("kafka.group.id")
    if group:
        validate_group_id(group)
    return group if options.boolean("commitOffsets", True) else ""
