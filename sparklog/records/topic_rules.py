"""What a topic accepts and how its records are compressed, resolved once from its configs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparklog.config.topic_configs import TopicConfig
from sparklog.schema.languages.record_schema import PartSchema, RecordSchema

if TYPE_CHECKING:
    from typing_extensions import Self

LOG_OVERHEAD_BYTES = 12
"""bytes that ``max.message.bytes`` counts on top of a record: its default is 1 MiB plus Kafka's LOG_OVERHEAD."""


@dataclass(frozen=True, kw_only=True)
class TopicRules:
    """Sizes are in bytes, times in milliseconds. ``max_request_size`` is the producer's own limit of a record.

    ``schema``: what keys and values have to fit, None if they need not.
    """

    topic: str
    codec: str = "none"
    codec_level: int | None = None
    log_append_time: bool = False
    needs_key: bool = False
    max_message_bytes: int
    before_max_ms: int
    after_max_ms: int
    max_request_size: int = 2**63 - 1
    schema: RecordSchema | None = None

    @classmethod
    def resolve(
        cls,
        topic: str,
        config: TopicConfig,
        codec: str,
        level: int | None,
        schema: RecordSchema | None = None,
        **more: Any,
    ) -> Self:
        """Return the rules of a topic with this config. ``codec`` and ``level`` are the producer's, which apply if the
        topic's ``compression.type`` is ``producer``. ``schema`` is how its records are read, with earlier versions;
        None: by the config alone."""
        chosen = config.compression_type
        if chosen != "producer":
            codec, level = "none" if chosen == "uncompressed" else chosen, config.compression_level(chosen)
        return cls(
            topic=topic,
            codec=codec,
            codec_level=level,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
            needs_key="compact" in config.cleanup_policy,
            max_message_bytes=config.max_message_bytes,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            schema=_validated(config, schema or config.record_schema),
            **more,
        )

    @property
    def max_record_bytes(self) -> int:
        """The largest key, value and headers together, uncompressed, that no limit refuses."""
        return min(self.max_message_bytes - LOG_OVERHEAD_BYTES, self.max_request_size)


def _validated(config: TopicConfig, schema: RecordSchema) -> RecordSchema | None:
    """Return the schema that records have to fit, None if they need not."""
    value, key = config.value_schema_validation, config.key_schema_validation
    if not (value or key):
        return None
    return RecordSchema(schema.value if value else PartSchema(), schema.key if key else PartSchema())
