"""Formats records for console-consumer: Kafka's DefaultMessageFormatter, its properties, and its other formatters."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from sparklog.cli.arguments.client_properties import known_properties
from sparklog.cli.arguments.parser import UsageError, logger
from sparklog.cli.arguments.process import argument_bytes
from sparklog.cli.output.deserializers import Deserializer, deserializer
from sparklog.client.consumer.offsets_topic import GROUP_KEY_VERSION, OffsetKey, OffsetValue, read_key, read_value
from sparklog.client.consumer.records import ConsumerRecord
from sparklog.errors import InvalidRecordError
from sparklog.errors.suggestions import did_you_mean
from sparklog.types import LOG_APPEND_TIME

PROPERTIES = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.delivery": "false",
    "print.epoch": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "headers.deserializer": "",
}
"""Every property with its default. ``X.deserializer.NAME`` are properties of the deserializer itself; ignored."""


class MessageFormatter:
    """Formats records as lines of bytes. Stateless, hence thread-safe. Raises UsageError for unknown
    classes."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = known_properties(properties, PROPERTIES, "formatter", lambda name: ".deserializer." in name)
        self._flags = {name: settings[name].strip().lower() == "true" for name in settings if name.startswith("print.")}
        self._separator = argument_bytes(settings["key.separator"])
        self._line_end = argument_bytes(settings["line.separator"])
        self._headers_separator = argument_bytes(settings["headers.separator"])
        self._null = argument_bytes(settings["null.literal"])
        self._key, self._value, self._header = (
            deserializer(name) if (name := settings[f"{part}.deserializer"]) else None
            for part in ("key", "value", "headers")
        )

    def line(self, record: ConsumerRecord) -> bytes:
        """Format a record as a line with its line end; empty if nothing is to be printed.

        Raises InvalidRecordError for bytes that the deserializer rejects.
        """
        fields: list[bytes] = []
        if self._flags["print.timestamp"]:
            kind = b"LogAppendTime" if record.timestamp_type == LOG_APPEND_TIME else b"CreateTime"
            fields.append(b"%b:%d" % (kind, record.timestamp))
        if self._flags["print.partition"]:
            fields.append(b"Partition:%d" % record.partition)
        if self._flags["print.offset"]:
            fields.append(b"Offset:%d" % record.offset)
        if self._flags["print.delivery"]:
            fields.append(b"Delivery:NOT_PRESENT")  # counts deliveries of share groups
        if self._flags["print.epoch"]:
            fields.append(b"Epoch:%d" % record.leader_epoch)
        if self._flags["print.headers"]:
            fields.append(self._headers(record))
        if self._flags["print.key"]:
            fields.append(self._format_bytes(record.key, self._key))
        if self._flags["print.value"]:
            fields.append(self._format_bytes(record.value, self._value))
        return self._separator.join(fields) + self._line_end if fields else b""

    def _headers(self, record: ConsumerRecord) -> bytes:
        headers = [name.encode() + b":" + self._format_bytes(value, self._header) for name, value in record.headers]
        return self._headers_separator.join(headers) or b"NO_HEADERS"

    def _format_bytes(self, data: bytes | None, convert: Deserializer | None) -> bytes:
        if data is None:
            return self._null
        return data if convert is None else convert(data)


class LoggingMessageFormatter(MessageFormatter):
    """Prints and logs each record, as Kafka's class of that name."""

    def line(self, record: ConsumerRecord) -> bytes:
        logger.info(
            "%s-%d offset %d, key:%r, value:%r",
            record.topic,
            record.partition,
            record.offset,
            record.key,
            record.value,
        )
        return super().line(record)


class NoOpMessageFormatter(MessageFormatter):
    """Prints nothing: for counting records or measuring reads."""

    def line(self, record: ConsumerRecord) -> bytes:
        return b""


class OffsetsMessageFormatter(MessageFormatter):
    """Prints the offsets that groups commit, records of ``__consumer_offsets``, as Kafka did before version 4. Other
    records are skipped."""

    def line(self, record: ConsumerRecord) -> bytes:
        key = read_key(record.key)
        if not isinstance(key, OffsetKey):
            return b""
        value = read_value(record.value) if record.value is not None else None
        if record.value is not None and value is None:
            raise InvalidRecordError(f"cannot decode the value of an offset of group {key.group!r}")
        return self._line(key, value).encode() + self._line_end

    def _line(self, key: OffsetKey, value: OffsetValue | None) -> str:
        shown = "NULL"
        if value is not None:
            epoch = "Optional.empty" if value.leader_epoch < 0 else f"Optional[{value.leader_epoch}]"
            shown = (
                f"OffsetAndMetadata(offset={value.offset}, leaderEpoch={epoch}, metadata={value.metadata}, "
                f"commitTimestamp={value.timestamp_ms}, expireTimestamp=None)"
            )
        return f"[{key.group},{key.topic},{key.partition}]::{shown}"


class JsonOffsetsMessageFormatter(OffsetsMessageFormatter):
    def _line(self, key: OffsetKey, value: OffsetValue | None) -> str:
        of_key = {"group": key.group, "topic": key.topic, "partition": key.partition}
        of_value = None
        if value is not None:
            data = {
                "offset": value.offset,
                "leaderEpoch": value.leader_epoch,
                "metadata": value.metadata,
                "commitTimestamp": value.timestamp_ms,
            }
            of_value = {"version": value.version, "data": data}
        return _json({"key": {"type": key.version, "data": of_key}, "value": of_value})


class GroupMetadataMessageFormatter(MessageFormatter):
    """Prints the groups of ``__consumer_offsets``: here only deleted ones, since it has no records of others."""

    def line(self, record: ConsumerRecord) -> bytes:
        group = read_key(record.key)
        return self._line(group).encode() + self._line_end if isinstance(group, str) else b""

    def _line(self, group: str) -> str:
        return f"{group}::NULL"


class JsonGroupMetadataMessageFormatter(GroupMetadataMessageFormatter):
    def _line(self, group: str) -> str:
        return _json({"key": {"type": GROUP_KEY_VERSION, "data": {"group": group}}, "value": None})


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


FORMATTERS: Mapping[str, type[MessageFormatter]] = {
    "DefaultMessageFormatter": MessageFormatter,
    "LoggingMessageFormatter": LoggingMessageFormatter,
    "NoOpMessageFormatter": NoOpMessageFormatter,
    "OffsetsMessageFormatter": OffsetsMessageFormatter,
    "GroupMetadataMessageFormatter": GroupMetadataMessageFormatter,
}

_KAFKA_4: Mapping[str, type[MessageFormatter]] = {
    "org.apache.kafka.tools.consumer.OffsetsMessageFormatter": JsonOffsetsMessageFormatter,
    "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter": JsonGroupMetadataMessageFormatter,
}


def formatter(name: str, properties: Mapping[str, str]) -> MessageFormatter:
    """Return the formatter with the name of Kafka's class. Raises UsageError."""
    simple = re.split(r"[.$]", name)[-1]
    if simple not in FORMATTERS:
        supported = ", ".join(FORMATTERS)
        raise UsageError(f"unknown formatter {name!r}: must be one of {supported}{did_you_mean(simple, FORMATTERS)}")
    return _KAFKA_4.get(name, FORMATTERS[simple])(properties)
