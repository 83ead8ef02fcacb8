"""The options of ``format("sparklog")``: those of Spark's Kafka source and sink, and a few of our own.

Names are case-insensitive. An unknown name that resembles a known one is refused, naming the one that was probably
meant; other unknown names are let pass with a warning. Names that start with ``kafka.`` are settings of Kafka's
clients: those that mean something here are honoured, a few are refused as Spark's Kafka source refuses them, and the
rest is ignored.

Rules: pure, no Spark; every message says which option, what it was, and what it takes. The tables at the top list all
names (``docs/spark.md`` explains each).
Not for: whether topics and offsets exist, which is ``planning``.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparklog.config.environment import ROOT_VARIABLE, default_root
from sparklog.errors import InvalidOptionError
from sparklog.spark.sink.repetition import ON_MISMATCH
from sparklog.spark.source.offsets import (
    EveryPartition,
    EveryTimestamp,
    OffsetLimit,
    PartitionOffsets,
    PartitionTimestamps,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)
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
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "minPartitions",
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
TABLE_OPTIONS = ("columns",)
KNOWN_OPTIONS = {name.lower(): name for name in (*BOOTSTRAP, "path", *SOURCE_OPTIONS, *SINK_OPTIONS, *TABLE_OPTIONS)}
CATALOG_OPTIONS = ("provider", "owner", "location", "external", "comment", "table_type", "is_managed_location")
"""What Spark's catalog adds to the options of a table."""
STORAGE_PREFIX = "storage."
REFUSED_KAFKA_OPTIONS = {
    "kafka.auto.offset.reset": "startingOffsets says where to start",
    "kafka.key.deserializer": "keys are binary columns; use expressions on the DataFrame to decode them",
    "kafka.value.deserializer": "values are binary columns; use expressions on the DataFrame to decode them",
    "kafka.key.serializer": "keys are binary or string columns; use expressions on the DataFrame to encode them",
    "kafka.value.serializer": "values are binary or string columns; use expressions on the DataFrame to encode them",
    "kafka.enable.auto.commit": "a Spark job commits no consumer offsets",
    "kafka.interceptor.classes": "there is no Kafka client whose records could be intercepted",
}
JAVA_PARTITIONERS = {
    "org.apache.kafka.clients.producer.internals.defaultpartitioner": "default",
    "org.apache.kafka.clients.producer.uniformstickypartitioner": "default",
}
DEFAULT_READER_LEASE_MS = 600_000
LEAST_READER_LEASE_MS = 1000
LONGEST_READER_LEASE_MS = 86_400_000
"""milliseconds. A reader that was killed keeps removed files for that long."""
FROM_EARLIEST = EveryPartition(EARLIEST)
TO_LATEST = EveryPartition(LATEST)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_LEVELS = {"gzip": (-1, 9), "lz4": (1, 17), "zstd": (-131_072, 22)}
ACKS = {"all": -1, "-1": -1, "1": 1, "0": 0}
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
"""The largest whole numbers of Java's types, which options of these types may have."""
_BROKERS = re.compile(r"[\w.-]+:\d+(\s*,\s*[\w.-]+:\d+)*")


@dataclass(frozen=True)
class Address:
    """Which cluster: its root URL and what the storage library needs to open it."""

    root: str
    storage_options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Subscription:
    """Which partitions: exactly one of the three is set."""

    assign: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics that are named, each once; none for a pattern."""
        return self.topics or tuple(dict.fromkeys(where.topic for where in self.assign))


@dataclass(frozen=True)
class SourceOptions:
    """The checked options of a read."""

    address: Address
    subscription: Subscription
    starting: OffsetLimit = FROM_EARLIEST
    ending: OffsetLimit = TO_LATEST
    latest_if_no_match: bool = False
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    push_down_predicate: bool = False
    reader_lease_ms: int = DEFAULT_READER_LEASE_MS


@dataclass(frozen=True)
class SinkOptions:
    """The checked options of a write. ``codec`` is for topics whose ``compression.type`` is ``producer``.

    ``acks`` is -1 where all replicas in sync get the records, 1 or 0 where the leader alone does.

    Without ``include_timestamp`` a column ``timestamp`` is ignored as any other.

    ``on_mismatch`` says what becomes of a write that differs from the one known under its number (``repetition``);
    empty where it was not asked for.

    ``group`` and ``checkpoint`` say whose consumer offsets a streaming query commits with its output, and where it
    keeps them; both are empty where it commits none.
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
        """The value without blanks around it; empty where it is not set."""
        return self.get(name, "").strip()

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name).lower() or str(default).lower()
        if value not in ("true", "false"):
            raise _invalid(name, self[name], "it takes true or false")
        return value == "true"

    def integer(self, name: str, minimum: int, maximum: int = MAX_LONG) -> int | None:
        """A whole number; None where it is not set."""
        if name not in self:
            return None
        try:
            value = int(self.text(name))
        except ValueError:
            value = minimum - 1
        if not minimum <= value <= maximum:
            raise _invalid(name, self[name], f"it takes a whole number from {minimum} to {maximum}")
        return value


def source_options(raw: Mapping[str, str]) -> SourceOptions:
    """Check the options of a batch read. Raises InvalidOptionError."""
    options = checked_names(raw)
    for name in STREAM_ONLY:
        if name in options:
            logger.warning("option %s is for streaming queries; a batch query reads everything it is asked for", name)
    if "kafka.group.id" in options:
        logger.warning("option kafka.group.id was ignored: a batch query commits no consumer offsets")
    starting, ending = _starting(options), _ending(options)
    _check_order(starting, ending)
    return _source(options, starting, ending)


def streaming_source(options: Options) -> SourceOptions:
    """The options that a streaming read shares with a batch read. Raises InvalidOptionError.

    It starts at the latest offsets unless told otherwise, and has no end.
    """
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name in options:
            raise InvalidOptionError(
                f"option {name} has no meaning in a streaming query, which has no end; leave it out, and use "
                "trigger(availableNow=True) to stop at what there is now",
                option=name,
            )
    starting = _limit(options, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", TO_LATEST)
    return _source(options, starting, TO_LATEST)


def _source(options: Options, starting: OffsetLimit, ending: OffsetLimit) -> SourceOptions:
    options.integer("fetchOffset.numRetries", 0, MAX_INT)
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
        min_partitions=options.integer("minPartitions", 1, MAX_INT),
        max_records_per_partition=options.integer("maxRecordsPerPartition", 1),
        push_down_predicate=options.boolean("pushDownPredicate", False),
        reader_lease_ms=_reader_lease_ms(options),
    )


def _reader_lease_ms(options: Options) -> int:
    found = options.integer("readerLeaseMs", 0)
    if found is None:
        return DEFAULT_READER_LEASE_MS
    if 0 < found < LEAST_READER_LEASE_MS or found > LONGEST_READER_LEASE_MS:
        raise _invalid(
            "readerLeaseMs",
            options["readerLeaseMs"],
            f"it takes {LEAST_READER_LEASE_MS} to {LONGEST_READER_LEASE_MS} milliseconds, or 0 to announce nothing",
        )
    return found


def sink_options(raw: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write. Raises InvalidOptionError."""
    options = checked_names(raw)
    application = options.text("txnAppId")
    version = options.integer("txnVersion", 0)
    if bool(application) != (version is not None):
        given, missing = ("txnAppId", "txnVersion") if application else ("txnVersion", "txnAppId")
        raise InvalidOptionError(f"option {given} needs {missing}: together they number a write", option=missing)
    codec = options.text("kafka.compression.type").lower() or "none"
    if codec not in CODECS:
        raise _invalid("kafka.compression.type", codec, f"it takes one of {', '.join(CODECS)}")
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
        on_mismatch=_on_mismatch(options),
        group=options.text("kafka.group.id") if options.boolean("commitOffsets", True) else "",
        checkpoint=options.text("checkpointLocation"),
    )


# -- names


def checked_names(raw: Mapping[str, str]) -> Options:
    """The options, after a look at every name. Raises InvalidOptionError for a probable misspelling."""
    options = Options(raw)
    for name in options:
        _check_name(name)
    return options


def _check_name(name: str) -> None:
    if name in KNOWN_OPTIONS or name in CATALOG_OPTIONS or name.startswith((STORAGE_PREFIX, "option.")):
        return
    why = REFUSED_KAFKA_OPTIONS.get(name)
    if why is not None:
        raise InvalidOptionError(f"option {name} is not supported: {why}; leave it out", option=name)
    if name.startswith("kafka."):
        _note_kafka_option(name)
        return
    close = difflib.get_close_matches(name, KNOWN_OPTIONS, n=1, cutoff=0.75)
    if close:
        meant = KNOWN_OPTIONS[close[0]]
        raise InvalidOptionError(f"there is no option {name!r}; did you mean {meant}?", option=name)
    logger.warning("option %s is unknown to sparklog and was ignored", name)


def _note_kafka_option(name: str) -> None:
    if name == "kafka.group.id":
        return  # of streaming queries
    if name.startswith(("kafka.security.", "kafka.sasl.", "kafka.ssl.")):
        logger.warning("option %s was ignored: the storage's own credentials and encryption protect a log", name)
    else:
        logger.debug("option %s of Kafka's clients was ignored or has its own use here", name)


# -- address


def address(options: Options) -> Address:
    """The cluster that the options name, else the environment. Raises InvalidOptionError where they name none, or
    two."""
    named = {name: _root(options.text(name)) for name in (*BOOTSTRAP, "path") if options.text(name)}
    if options.is_table and len(named) > 1:
        named.pop("path", None)  # Spark gives a table a folder of its own
    root = default_root()
    if not named and root is not None:
        named = {ROOT_VARIABLE: _root(root)}
    if not named:
        raise InvalidOptionError(
            "which cluster? Give its root, a URL or a folder, as option kafka.bootstrap.servers or bootstrap.servers, "
            f"or to load() and save(), or set {ROOT_VARIABLE}",
            option=BOOTSTRAP[0],
        )
    if len(set(named.values())) > 1:
        given = " and ".join(f"{name} is {root}" for name, root in named.items())
        raise InvalidOptionError(f"the options name two clusters: {given}; leave one out", option=next(iter(named)))
    root = next(iter(named.values()))
    if _BROKERS.fullmatch(root):
        raise InvalidOptionError(
            f"{root!r} looks like Kafka brokers; a sparklog cluster has none: give its root instead, such as "
            "s3://bucket/log or /data/log",
            option=next(iter(named)),
        )
    if root.startswith("memory:"):
        raise InvalidOptionError(
            f"{root!r} lives in the memory of one process, and Spark uses several; give a folder or a URL of storage "
            "that all of them reach",
            option=next(iter(named)),
        )
    return Address(root, storage_options(options))


def _root(text: str) -> str:
    if text.startswith("file:/") and not text.startswith("file://"):
        text = "file://" + text.removeprefix("file:")  # how Spark writes a table's location
    return text.rstrip("/") or text


def storage_options(options: Options) -> dict[str, object]:
    """Options ``storage.<name>``, for the storage library: true and false as such, JSON objects and lists decoded."""
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
        raise _invalid(name, text, f"it starts like JSON and is none: {error}") from None


# -- source


def _subscription(options: Options) -> Subscription:
    given = [name for name in SUBSCRIPTIONS if name in options]
    if len(given) != 1:
        found = f"{' and '.join(given)} are given" if given else "none is given"
        raise InvalidOptionError(
            f"exactly one of the options {', '.join(SUBSCRIPTIONS)} says which topics to read, and {found}",
            option=given[1] if given else SUBSCRIPTIONS[1],
        )
    value = options.text(given[0])
    if given[0] == "assign":
        return Subscription(assign=parse_partitions("assign", value))
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise _invalid("subscribe", value, "it takes topics with commas between them")
        return Subscription(topics=topics)
    _check_pattern(value)
    return Subscription(pattern=value)


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _invalid("subscribePattern", pattern, f"as a Python regular expression it fails: {error}") from None
    if not pattern:
        raise _invalid("subscribePattern", pattern, "it takes a regular expression that finds a part of topics' names")


def _limit(options: Options, one: str, each: str, offsets: str, default: EveryPartition) -> OffsetLimit:
    """The first that is given of one time, a time per partition, offsets."""
    if one in options:
        timestamp = options.integer(one, 0)
        assert timestamp is not None
        return EveryTimestamp(timestamp)
    if each in options:
        return parse_timestamps(each, options.text(each))
    if offsets in options:
        return parse_offsets(offsets, options.text(offsets))
    return default


def _starting(options: Options) -> OffsetLimit:
    limit = _limit(options, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", FROM_EARLIEST)
    _refuse_word(limit, LATEST, "startingOffsets", "cannot be latest (-1) in a batch query, which would read nothing")
    return limit


def _ending(options: Options) -> OffsetLimit:
    limit = _limit(options, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets", TO_LATEST)
    _refuse_word(limit, EARLIEST, "endingOffsets", "cannot be earliest (-2), where nothing has been read yet")
    return limit


def _refuse_word(limit: OffsetLimit, word: int, option: str, why: str) -> None:
    if isinstance(limit, EveryPartition) and limit.offset == word:
        raise InvalidOptionError(f"option {option} {why}", option=option)
    if isinstance(limit, PartitionOffsets):
        found = [str(where) for where, offset in limit.partitions.items() if offset == word]
        found += [f"topic {topic}" for topic, offset in limit.topics.items() if offset == word]
        if found:
            raise InvalidOptionError(f"option {option} {why}: it is so for {', '.join(sorted(found))}", option=option)


def _check_order(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """Where both ends are given per partition, they name the same partitions, and no start is after its end."""
    offsets = isinstance(starting, PartitionOffsets) and isinstance(ending, PartitionOffsets)
    if not offsets and not (isinstance(starting, PartitionTimestamps) and isinstance(ending, PartitionTimestamps)):
        return
    assert isinstance(starting, (PartitionOffsets, PartitionTimestamps))
    assert isinstance(ending, (PartitionOffsets, PartitionTimestamps))
    words = (starting.topics, ending.topics) if offsets else ({}, {})  # type: ignore[union-attr]
    for where in sorted({*starting.partitions, *ending.partitions}):
        first = starting.partitions.get(where, words[0].get(where.topic))
        last = ending.partitions.get(where, words[1].get(where.topic))
        if first is None or last is None:
            missing, present = ("starting", "ending") if first is None else ("ending", "starting")
            raise InvalidOptionError(f"{where} has {present} offsets and no {missing} ones; give both or neither")
        if first > last >= 0:
            raise InvalidOptionError(f"{where} would start at {first}, after its end at {last}; exchange the two")


def _latest_if_no_match(options: Options) -> bool:
    value = options.text("startingOffsetsByTimestampStrategy").lower()
    if "startingOffsetsByTimestampStrategy" not in options:
        value = "error"
    if value not in ("error", "latest"):
        raise _invalid("startingOffsetsByTimestampStrategy", value, "it takes error or latest")
    return value == "latest"


# -- sink


def _acks(options: Options) -> int:
    given = {name: options.text(name).lower() for name in ("acks", "kafka.acks") if options.text(name)}
    for name, value in given.items():
        if value not in ACKS:
            raise _invalid(name, value, f"it takes {', '.join(ACKS)}")
    if len({ACKS[value] for value in given.values()}) > 1:
        raise InvalidOptionError(f"options acks and kafka.acks differ: {given}; leave one out", option="acks")
    return next((ACKS[value] for value in given.values()), ACKS["all"])


def _on_mismatch(options: Options) -> str:
    value = options.text("onBatchMismatch").lower()
    if value and value not in ON_MISMATCH:
        raise _invalid("onBatchMismatch", value, f"it takes {', '.join(ON_MISMATCH)}")
    return value


def _codec_level(options: Options, codec: str) -> int | None:
    """The codec's level; None for its own, which Kafka's producer writes as -1 for gzip."""
    level = options.integer(f"kafka.compression.{codec}.level", *CODEC_LEVELS.get(codec, (-MAX_INT, MAX_INT)))
    return None if codec == "gzip" and level == -1 else level


def _partitioner(options: Options) -> str:
    own, java = options.text("partitioner"), options.text("kafka.partitioner.class")
    if own or not java:
        return own or "default"
    known = JAVA_PARTITIONERS.get(java.lower())
    if known is None:
        raise _invalid(
            "kafka.partitioner.class",
            java,
            "Java classes cannot run here; option partitioner takes default, integer_key, or a function of your own as "
            "module:callable",
        )
    return known


def _invalid(option: str, value: str, why: str) -> InvalidOptionError:
    shown = value if len(value) <= 200 else f"{value[:200]}..."
    return InvalidOptionError(f"option {option} cannot be {shown!r}: {why}", option=option)
