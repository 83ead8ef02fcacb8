"""How console-consumer prints a record: Kafka's DefaultMessageFormatter and its properties."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cli.common import UsageError, logger, suggestion
from sparklog.cli.deserializers import Deserializer, deserializer
from sparklog.client.reader import ConsumerRecord
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
"""Every property with its default. Those that go on ``X.deserializer.`` are the deserializer's own, and ignored."""

FORMATTERS = ("DefaultMessageFormatter", "LoggingMessageFormatter", "NoOpMessageFormatter")


class MessageFormatter:
    """Turns records into the bytes of lines. Stateless, so thread-safe.

    ``columns`` are those of a record that it looks at. Raises UsageError for unknown properties and classes.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        settings = {**PROPERTIES, **_checked(properties)}
        self._flags = {name: settings[name].strip().lower() == "true" for name in settings if name.startswith("print.")}
        self._separator = settings["key.separator"].encode()
        self._line_end = settings["line.separator"].encode()
        self._headers_separator = settings["headers.separator"].encode()
        self._null = settings["null.literal"].encode()
        self._key, self._value, self._header = (
            _optional(settings[f"{part}.deserializer"]) for part in ("key", "value", "headers")
        )

    @property
    def columns(self) -> list[str]:
        """The columns to fetch; at least one, so that records can be counted."""
        named = {name: self._flags[f"print.{name}"] for name in ("key", "value", "timestamp", "headers")}
        return [name for name, wanted in named.items() if wanted] or ["timestamp"]

    def line(self, record: ConsumerRecord) -> bytes:
        """The record's line, its end included; empty where nothing is to be printed.

        Raises InvalidRecordError for bytes that the deserializer does not take.
        """
        fields: list[bytes] = []
        if self._flags["print.timestamp"]:
            kind = b"LogAppendTime" if record.timestamp_type == LOG_APPEND_TIME else b"CreateTime"
            fields.append(b"%b:%d" % (kind, record.timestamp_us // 1000))
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
            fields.append(self._shown(record.key, self._key))
        if self._flags["print.value"]:
            fields.append(self._shown(record.value, self._value))
        return self._separator.join(fields) + self._line_end if fields else b""

    def _headers(self, record: ConsumerRecord) -> bytes:
        shown = [name.encode() + b":" + self._shown(value, self._header) for name, value in record.headers]
        return self._headers_separator.join(shown) or b"NO_HEADERS"

    def _shown(self, data: bytes | None, convert: Deserializer | None) -> bytes:
        if data is None:
            return self._null
        return data if convert is None else convert(data)


class LoggingMessageFormatter(MessageFormatter):
    """Prints and logs each record, as Kafka's class of that name."""

    def line(self, record: ConsumerRecord) -> bytes:
        logger.info("%s-%d offset %d, key:%r, value:%r", *record[:3], record.key, record.value)
        return super().line(record)


class NoOpMessageFormatter(MessageFormatter):
    """Prints nothing: to count, or to measure reading."""

    def line(self, record: ConsumerRecord) -> bytes:
        return b""


def formatter(name: str, properties: Mapping[str, str]) -> MessageFormatter:
    """A formatter by the name of Kafka's class. Raises UsageError."""
    kinds = (MessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter)
    simple = name.rpartition(".")[2]
    if simple not in FORMATTERS:
        known = ", ".join(FORMATTERS)
        raise UsageError(f"there is no formatter {name!r} here, but {known}{suggestion(simple, FORMATTERS)}")
    return kinds[FORMATTERS.index(simple)](properties)


def _optional(name: str) -> Deserializer | None:
    return deserializer(name) if name else None


def _checked(properties: Mapping[str, str]) -> dict[str, str]:
    """The known ones; a misspelled one is an error rather than silence."""
    kept: dict[str, str] = {}
    for name, value in properties.items():
        if name in PROPERTIES:
            kept[name] = value
        elif ".deserializer." in name:
            logger.debug("property %s has no effect here", name)
        else:
            raise UsageError(f"the formatter has no property {name!r}{suggestion(name, PROPERTIES)}")
    return kept
