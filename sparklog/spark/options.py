"""Parse and check the options of ``format("sparklog")``: those of Spark's Kafka source and sink, and a few of our own.

Names are case-insensitive. An unknown name that resembles a known one is refused with a suggestion; other unknown names
are ignored with a warning. Names that start with ``kafka.`` are settings of Kafka's clients: those that apply here are
honoured, a few are refused as Spark's Kafka source refuses them, and the rest are ignored.

Rules: pure, no Spark; every message names the option, its value, and the expected values. The tables at the top list
all names (``docs/spark.md`` explains each).
Not for: whether topics and offsets exist (``planning``).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from sparklog.config.definitions import INT_MAX, LONG_MAX
from sparklog.config.environment import ROOT_VARIABLE, default_root
from sparklog.config.kafka_addresses import are_brokers
from sparklog.errors import InvalidOptionError
from sparklog.errors.suggestions import did_you_mean
from sparklog.spark.sink.repeated_batches import ON_MISMATCH
from sparklog.spark.source.filters import EPOCH
from sparklog.spark.source.offsets import (
    EveryPartition,
    EveryTimestamp,
    OffsetLimit,
    PartitionOffsets,
    PerPartition,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)
from sparklog.spark.source.ranges import MaxPartitions
from sparklog.types import EARLIEST, LATEST, TopicPartition

logger = logging.getLogger(__name__)

BOOTSTRAP = ("kafka.bootstrap.servers", "bootstrap.servers")
SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
SOURCE_OPTIONS = (
    *SUBSCRIPTIONS,
    *STREAM_ONLY,
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "versionAsOf",
    "timestampAsOf",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "pushDownPredicate",
    "commitOffsets",
    "readerLeaseMs",
)
SINK_OPTIONS = (
    "topic",
    "partitioner",
    "acks",
    "includeTimestamp",
    "txnAppId",
    "txnVersion",
    "onBatchMismatch",
    "checkpointLocation",
    "commitOffsets",
    "queryName",
)
ENDINGS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
TIME_TRAVEL = ("versionAsOf", "timestampAsOf")
"""Options of a batch query alone, as are ``ENDINGS``."""
TABLE_OPTIONS = ("columns",)
SYSTEM = "system"
SYSTEM_OPTIONS = ("topic", "partition", "group", "since", "until", "step", "orphans")
"""Options of a read of a system table; but for ``topic``, no other read or write has them."""
KNOWN_OPTIONS = {name.lower(): name for name in (*BOOTSTRAP, "path", *SOURCE_OPTIONS, *SINK_OPTIONS, *TABLE_OPTIONS)}
CATALOG_OPTIONS = ("provider", "owner", "location", "external", "comment", "table_type", "is_managed_location")
"""Options that Spark's catalog adds to those of a table."""
STORAGE_PREFIX = "storage."
REFUSED_KAFKA_OPTIONS = {
    "kafka.auto.offset.reset": "startingOffsets sets where to start",
    "kafka.key.deserializer": "keys are binary columns; use expressions on the DataFrame to decode them",
    "kafka.value.deserializer": "values are binary columns; use expressions on the DataFrame to decode them",
    "kafka.key.serializer": "keys are binary or string columns; use expressions on the DataFrame to encode them",
    "kafka.value.serializer": "values are binary or string columns; use expressions on the DataFrame to encode them",
    "kafka.enable.auto.commit": "a Spark job commits no consumer offsets",
    "kafka.interceptor.classes": "there is no Kafka client to intercept records of",
}
JAVA_PARTITIONERS = (
    "org.apache.kafka.clients.producer.internals.defaultpartitioner",
    "org.apache.kafka.clients.producer.uniformstickypartitioner",
)
"""Partitioners of Kafka's own that ``default`` stands for, in lower case."""
DEFAULT_READER_LEASE_MS = 600_000
LEAST_READER_LEASE_MS = 1000
LONGEST_READER_LEASE_MS = 86_400_000
"""milliseconds. The lease of a killed reader keeps retired files for that long."""
FROM_EARLIEST = EveryPartition(EARLIEST)
TO_LATEST = EveryPartition(LATEST)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}


class Address(NamedTuple):
    """The root URL of a cluster and the options that the storage library needs to open it."""

    root: str
    storage_options: Mapping[str, object]

    def __repr__(self) -> str:
        return f"Address({self.root!r})"  # options may hold credentials


@dataclass(frozen=True)
class TopicSubscription:
    """Selects partitions; exactly one of the three fields is set."""

    assign: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The named topics, each once; empty for a pattern."""
        return self.topics or tuple(dict.fromkeys(topic for topic, _ in self.assign))


@dataclass(frozen=True)
class SourceOptions:
    """The checked options of a read."""

    address: Address
    subscription: TopicSubscription
    starting: OffsetLimit = FROM_EARLIEST
    ending: OffsetLimit = TO_LATEST
    latest_if_no_match: bool = False
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_partitions: MaxPartitions = None
    max_records_per_partition: int | None = None
    push_down_predicate: bool = False
    reader_lease_ms: int = DEFAULT_READER_LEASE_MS
    version: int | None = None
    as_of_ms: int | None = None

    @property
    def is_of_past(self) -> bool:
        """Whether the topics are read as they were at an older version or time."""
        return self.version is not None or self.as_of_ms is not None


@dataclass(frozen=True)
class SinkOptions:
    """The checked options of a write. ``codec`` is for topics whose ``compression.type`` is ``producer``.

    ``acks`` is -1 to write to all replicas in sync, 1 or 0 to write to the leader alone.

    Without ``include_timestamp`` a column ``timestamp`` is ignored like any other column.

    ``on_mismatch`` decides what happens to a write that differs from the one recorded under its number
    (``sink.repeated_batches``); empty if the option is not set.

    ``group`` and ``checkpoint`` are the consumer group to which a streaming query commits offsets with its output, and
    the checkpoint that holds them; both are empty if it commits none.
    """

    address: Address
    topic: str = ""
    partitioner: str = "default"
    ignore_keys: bool = False
    codec: str = "none"
    codec_level: int | None = None
    acks: int = -1
    include_timestamp: bool = True
    application: str = ""
    application_version: int = -1
    on_mismatch: str = ""
    group: str = ""
    checkpoint: str = ""


class Options(Mapping[str, str]):
    """Option values by lower-case name. Immutable."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def is_table(self) -> bool:
        """Whether these are the properties of a table in Spark's catalog."""
        return "provider" in self and "owner" in self

    def text(self, name: str) -> str:
        """Return the value without surrounding blanks; empty if it is not set."""
        return self.get(name, "").strip()

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name).lower() or str(default).lower()
        if value not in ("true", "false"):
            raise _invalid(name, self[name], "expected true or false")
        return value == "true"

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """Return one of the choices, in lower case; the default if it is not set. Raises InvalidOptionError."""
        value = self.text(name).lower()
        if value and value not in choices:
            raise _invalid(name, value, f"expected one of {', '.join(choices)}")
        return value or default

    def integer(self, name: str, minimum: int, maximum: int = LONG_MAX) -> int | None:
        """Return a whole number; None if it is not set. Raises InvalidOptionError."""
        if name not in self:
            return None
        try:
            value = int(self.text(name))
        except ValueError:
            value = minimum - 1
        if not minimum <= value <= maximum:
            raise _invalid(name, self[name], f"expected a whole number from {minimum} to {maximum}")
        return value


def source_options(raw: Mapping[str, str]) -> SourceOptions:
    """Check the options of a batch read. Raises InvalidOptionError."""
    options = checked_names(raw)
    for name in STREAM_ONLY:
        if name in options:
            logger.warning("option %s was ignored: it limits micro-batches, and a batch query has no such limit", name)
    if "kafka.group.id" in options:
        logger.warning("option kafka.group.id was ignored: a batch query commits no consumer offsets")
    starting = _limit(options, "starting", FROM_EARLIEST)
    _refuse_word(starting, LATEST, "startingOffsets", "cannot be latest (-1) in a batch query: it would read nothing")
    ending = _limit(options, "ending", TO_LATEST)
    _refuse_word(ending, EARLIEST, "endingOffsets", "cannot be earliest (-2): the query would read nothing")
    _check_order(starting, ending)
    version, as_of_ms = _older_version(options)
    return replace(_source(options, starting, ending), version=version, as_of_ms=as_of_ms)


def streaming_source(options: Options) -> SourceOptions:
    """Check the options that a streaming read shares with a batch read. Raises InvalidOptionError.

    A streaming read starts at the latest offsets by default, and has no end.
    """
    for name in TIME_TRAVEL:
        if name in options:
            raise InvalidOptionError(
                f"option {name} does not apply to a streaming query, which follows the log; leave it out, or read that "
                "version in a batch query",
                option=name,
            )
    for name in ENDINGS:
        if name in options:
            raise InvalidOptionError(
                f"option {name} does not apply to a streaming query, which has no end; leave it out, and use "
                "trigger(availableNow=True) to stop at the current end",
                option=name,
            )
    return _source(options, _limit(options, "starting", TO_LATEST), TO_LATEST)


def _source(options: Options, starting: OffsetLimit, ending: OffsetLimit) -> SourceOptions:
    options.integer("fetchOffset.numRetries", 0, INT_MAX)
    for name in ("fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs"):
        options.integer(name, 0)
    return SourceOptions(
        address=address(options),
        subscription=_subscription(options),
        starting=starting,
        ending=ending,
        latest_if_no_match=_latest_if_no_match(options),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        include_headers=options.boolean("includeHeaders", False),
        min_partitions=options.integer("minPartitions", 1, INT_MAX),
        max_partitions=_max_partitions(options),
        max_records_per_partition=options.integer("maxRecordsPerPartition", 1),
        push_down_predicate=options.boolean("pushDownPredicate", False),
        reader_lease_ms=_reader_lease_ms(options),
    )


def _max_partitions(options: Options) -> MaxPartitions:
    """Raises InvalidOptionError also beside an option that it contradicts."""
    name = "maxPartitions"
    if options.text(name).lower() == "auto":
        most: MaxPartitions = "auto"
    else:
        try:
            most = options.integer(name, 1, INT_MAX)
        except InvalidOptionError:
            raise _invalid(name, options[name], f"expected a whole number from 1 to {INT_MAX}, or auto") from None
    if most is None:
        return None
    if "maxRecordsPerPartition" in options:
        raise InvalidOptionError(
            "options maxPartitions and maxRecordsPerPartition are set: the one joins partitions to larger tasks, the "
            "other one splits them to smaller ones; leave one out",
            option=name,
        )
    least = options.integer("minPartitions", 1, INT_MAX)
    if least is not None and most != "auto" and most < least:
        raise InvalidOptionError(f"minPartitions ({least}) is greater than maxPartitions ({most})", option=name)
    return most


def _older_version(options: Options) -> tuple[int | None, int | None]:
    """Return the version, and the time in ms, as of which topics are read. Raises InvalidOptionError for both, or with
    an end."""
    given = [name for name in TIME_TRAVEL if name in options]
    if len(given) > 1:
        raise InvalidOptionError("options versionAsOf and timestampAsOf are set; leave one out", option=given[1])
    endings = [name for name in ENDINGS if name in options]
    if given and endings:
        raise InvalidOptionError(
            f"option {given[0]} sets where the topics end, and so does {endings[0]}; leave one out", option=endings[0]
        )
    return options.integer("versionAsOf", 0), _time(options, "timestampAsOf")


def _time(options: Options, name: str) -> int | None:
    """Return a time in ms since the epoch, None if it is not set. Raises InvalidOptionError."""
    text = options.text(name)
    if name not in options or text.isdecimal():
        return options.integer(name, 0)
    try:
        time = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise _invalid(name, text, "expected milliseconds, or a time with a time zone such as 2026-11-01T09:30:00Z")
    return (time - EPOCH) // timedelta(milliseconds=1)


def _reader_lease_ms(options: Options) -> int:
    lease_ms = options.integer("readerLeaseMs", 0)
    if lease_ms is None:
        return DEFAULT_READER_LEASE_MS
    if 0 < lease_ms < LEAST_READER_LEASE_MS or lease_ms > LONGEST_READER_LEASE_MS:
        raise _invalid(
            "readerLeaseMs",
            options["readerLeaseMs"],
            f"expected {LEAST_READER_LEASE_MS} to {LONGEST_READER_LEASE_MS} milliseconds, or 0 for no lease",
        )
    return lease_ms


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write. Raises InvalidOptionError."""
    options = checked_names(raw)
    application = options.text("txnAppId")
    version = options.integer("txnVersion", 0)
    if bool(application) != (version is not None):
        given, missing = ("txnAppId", "txnVersion") if application else ("txnVersion", "txnAppId")
        raise InvalidOptionError(f"option {given} requires {missing}: together they number a write", option=missing)
    codec = options.choice("kafka.compression.type", CODECS, "none")
    return SinkOptions(
        address=address(options),
        topic=options.text("topic"),
        partitioner=_partitioner(options),
        ignore_keys=options.boolean("kafka.partitioner.ignore.keys", False),
        codec=codec,
        acks=_acks(options),
        include_timestamp=options.boolean("includeTimestamp", True),
        codec_level=_codec_level(options, codec),
        application=application,
        application_version=-1 if version is None else version,
        on_mismatch=options.choice("onBatchMismatch", ON_MISMATCH, ""),
        group=options.text("kafka.group.id") if options.boolean("commitOffsets", True) else "",
        checkpoint=options.text("checkpointLocation"),
    )


# -- names


def checked_names(raw: Mapping[str, str]) -> Options:
    """Return the options after checking every name. Raises InvalidOptionError for a probable misspelling."""
    options = Options(raw)
    for name in options:
        _check_name(name)
    return options


def _check_name(name: str) -> None:
    if name in KNOWN_OPTIONS or name in CATALOG_OPTIONS or name.startswith((STORAGE_PREFIX, "option.")):
        return
    if name in (SYSTEM, *SYSTEM_OPTIONS):
        what = "names a table to read" if name == SYSTEM else "belongs to reads with option system"
        raise InvalidOptionError(f"option {name} {what}: it does not apply here; leave it out", option=name)
    why = REFUSED_KAFKA_OPTIONS.get(name)
    if why is not None:
        raise InvalidOptionError(f"option {name} is not supported: {why}; leave it out", option=name)
    if name.startswith(("kafka.security.", "kafka.sasl.", "kafka.ssl.")):
        logger.warning("option %s was ignored: a log is protected by the storage's credentials and encryption", name)
    elif name.startswith("kafka."):
        logger.debug("option %s of Kafka's clients was ignored, or has its own meaning here", name)
    elif hint := did_you_mean(name, KNOWN_OPTIONS.values()):
        raise InvalidOptionError(f"unknown option {name!r}{hint}", option=name)
    else:
        logger.warning("unknown option %s was ignored", name)


# -- address


def address(options: Options) -> Address:
    """Return the address of the cluster that the options name, or the environment if they name none.

    Raises InvalidOptionError if none is named, or two.
    """
    roots = {name: _root(options.text(name)) for name in (*BOOTSTRAP, "path") if options.text(name)}
    if options.is_table and len(roots) > 1:
        roots.pop("path", None)  # Spark gives a table a folder of its own
    root = default_root()
    if not roots and root is not None:
        roots = {ROOT_VARIABLE: _root(root)}
    if not roots:
        raise InvalidOptionError(
            "no cluster given: set its root, a URL or a folder, as option kafka.bootstrap.servers or "
            f"bootstrap.servers, pass it to load() or save(), or set {ROOT_VARIABLE}",
            option=BOOTSTRAP[0],
        )
    if len(set(roots.values())) > 1:
        given = " and ".join(f"{name} is {root}" for name, root in roots.items())
        raise InvalidOptionError(f"the options name two clusters: {given}; leave one out", option=next(iter(roots)))
    root = next(iter(roots.values()))
    if are_brokers(root):
        raise InvalidOptionError(
            f"{root!r} looks like Kafka brokers; a sparklog cluster has none: give its root instead, such as "
            "s3://bucket/log or /data/log",
            option=next(iter(roots)),
        )
    if root[:7].lower() == "memory:":
        raise InvalidOptionError(
            f"{root!r} lives in the memory of one process, and Spark uses several; give a folder or URL that all "
            "of them can reach",
            option=next(iter(roots)),
        )
    return Address(root, storage_options(options))


def _root(text: str) -> str:
    text = text.strip()
    if text[:6].lower() == "file:/" and text[:7] != "file://":
        text = "file:///" + text[5:].lstrip("/")  # Spark's form of a table's location
    return text.rstrip("/") or text


def storage_options(options: Options) -> dict[str, object]:
    """Return the options ``storage.<name>`` for the storage library, with booleans, JSON objects and lists decoded.

    Raises InvalidOptionError.
    """
    return {
        name.removeprefix(STORAGE_PREFIX): _storage_value(name, options[name])
        for name in options
        if name.startswith(STORAGE_PREFIX)
    }


def _storage_value(name: str, text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise _invalid(name, "[hidden]", f"invalid JSON: {error}") from None


# -- source


def _subscription(options: Options) -> TopicSubscription:
    given = [name for name in SUBSCRIPTIONS if name in options]
    if len(given) != 1:
        number = f"{' and '.join(given)} are" if given else "none is"
        raise InvalidOptionError(
            f"exactly one of the options {', '.join(SUBSCRIPTIONS)} is required, but {number} set",
            option=given[1] if given else SUBSCRIPTIONS[1],
        )
    value = options.text(given[0])
    if given[0] == "assign":
        return TopicSubscription(assign=parse_partitions("assign", value))
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise _invalid("subscribe", value, "expected comma-separated topics")
        return TopicSubscription(topics=topics)
    _check_pattern(value)
    return TopicSubscription(pattern=value)


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _invalid("subscribePattern", pattern, f"not a Python regular expression: {error}") from None
    if not pattern:
        raise _invalid("subscribePattern", pattern, "expected a regular expression that matches part of a topic's name")


def _limit(options: Options, side: str, default: EveryPartition) -> OffsetLimit:
    """Return the limit on this side, starting or ending. The first option that is set decides: one time for all, a
    time per partition, offsets."""
    one, each, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    if one in options:
        timestamp = options.integer(one, 0)
        assert timestamp is not None
        return EveryTimestamp(timestamp)
    if each in options:
        return parse_timestamps(each, options.text(each))
    if offsets in options:
        return parse_offsets(offsets, options.text(offsets))
    return default


def _refuse_word(limit: OffsetLimit, word: int, option: str, why: str) -> None:
    if isinstance(limit, EveryPartition) and limit.offset == word:
        raise InvalidOptionError(f"option {option} {why}", option=option)
    if isinstance(limit, PartitionOffsets):
        named = [str(partition) for partition, offset in limit.partitions.items() if offset == word]
        named += [f"topic {topic}" for topic, offset in limit.topics.items() if offset == word]
        if named:
            raise InvalidOptionError(f"option {option} {why} ({', '.join(sorted(named))})", option=option)


def _check_order(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Check that limits given per partition name the same partitions, and that no start is after its end.

    Raises InvalidOptionError.
    """
    if not isinstance(starting, PerPartition) or not isinstance(ending, PerPartition):
        return
    if type(starting) is not type(ending):  # offsets on one side, times on the other
        return
    for partition in sorted({*starting.partitions, *ending.partitions}):
        first, last = starting.get(partition), ending.get(partition)
        if first is None or last is None:
            missing, present = ("starting", "ending") if first is None else ("ending", "starting")
            raise InvalidOptionError(f"{partition} has {present} offsets and no {missing} ones; give both or neither")
        if first > last >= 0:
            raise InvalidOptionError(f"{partition} would start at {first}, after its end at {last}; swap the two")


def _latest_if_no_match(options: Options) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    value = options.text(name).lower() if name in options else "error"
    if value not in ("error", "latest"):
        raise _invalid(name, value, "expected error or latest")
    return value == "latest"


# -- sink


def _acks(options: Options) -> int:
    given = {name: options.choice(name, ACKS, "") for name in ("acks", "kafka.acks") if options.text(name)}
    if len({ACKS[value] for value in given.values()}) > 1:
        raise InvalidOptionError(f"options acks and kafka.acks differ: {given}; leave one out", option="acks")
    return next((ACKS[value] for value in given.values()), ACKS["all"])


def _codec_level(options: Options, codec: str) -> int | None:
    """Return the codec's level; None for its default, which Kafka's producer writes as -1 for gzip."""
    level = options.integer(f"kafka.compression.{codec}.level", *CODEC_LEVELS.get(codec, (-INT_MAX, INT_MAX)))
    return None if codec == "gzip" and level == -1 else level


def _partitioner(options: Options) -> str:
    own, java = options.text("partitioner"), options.text("kafka.partitioner.class")
    if java and not own and java.lower() not in JAVA_PARTITIONERS:
        raise _invalid(
            "kafka.partitioner.class",
            java,
            "Java classes cannot run here; use option partitioner with default, integer_key, or your own function as "
            "module:callable",
        )
    return own or "default"


def _invalid(option: str, value: str, why: str) -> InvalidOptionError:
    shown = value if len(value) <= 200 else f"{value[:200]}..."
    return InvalidOptionError(f"invalid value {shown!r} for option {option}: {why}", option=option)
