"""Topics: the list, and a topic with its partitions, configs, segments, schemas and history.

Rules: pure. Not for: records (``records``), throughput (``plots``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from sparklog.config.definitions import DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG, ConfigDef, ConfigEntry
from sparklog.config.typed_configs import TypedConfigs
from sparklog.monitoring.facts.topics import topic_facts
from sparklog.protocol.names import is_internal_topic
from sparklog.protocol.schema_versions import find_current
from sparklog.protocol.state import NO_TIMESTAMP_US, PartitionState, State, TopicState
from sparklog.ui.views.cells import ago_cell, size_cell
from sparklog.ui.views.query import Query, address
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import number, plural, shown, size, time

MAX_DRAWN_PARTITIONS = 50
MAX_DRAWN_SEGMENTS = 2000


class TopicRow(NamedTuple):
    """What the list says about a topic. ``newest_ms`` is the time of its newest record, None without one."""

    name: str
    partitions: int
    replication: int
    records: int
    segments: int
    bytes: int
    newest_ms: int | None
    unhealthy: int
    unfit: int


def topic_row(topic: TopicState) -> TopicRow:
    """Return what the list says about a topic."""
    facts = topic_facts(topic)
    newest_us = max((each.max_timestamp_us for each in topic.partitions), default=NO_TIMESTAMP_US)
    return TopicRow(
        topic.name,
        facts.partitions,
        facts.replication_factor,
        facts.offsets,
        facts.segments,
        facts.bytes,
        None if newest_us == NO_TIMESTAMP_US else newest_us // 1000,
        sum(is_unhealthy(each) for each in topic.partitions),
        facts.unfit,
    )


class TopicRows:
    """The rows of all topics, made once for each topic that changed. Not thread-safe, but harmless: rows are equal."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[TopicState, TopicRow]] = {}

    def of(self, state: State) -> list[TopicRow]:
        known = self._rows
        rows: dict[str, tuple[TopicState, TopicRow]] = {}
        for name, topic in state.topics.items():
            kept = known.get(name)
            rows[name] = kept if kept is not None and kept[0] is topic else (topic, topic_row(topic))
        self._rows = rows
        return [row for _, row in rows.values()]


def is_unhealthy(partition: PartitionState) -> bool:
    """Return whether a partition has no leader, or fewer in-sync replicas than replicas."""
    return partition.leader < 0 or len(partition.isr) < len(partition.replicas)


def topics_table(rows: Sequence[TopicRow], cluster: str, query: Query, now_ms: int) -> Table:
    """Return the list of topics whose names contain the text ``q`` of the query."""
    wanted = query.text("q").lower()
    internal = query.choice("internal", ("yes", "no"), "yes") == "yes"
    found = [row for row in rows if wanted in row.name.lower() and (internal or not is_internal_topic(row.name))]
    columns: list[Column[TopicRow]] = [
        Column("topic", "Topic", lambda row: row.name, lambda row: _topic_cell(row, cluster)),
        Column("partitions", "Partitions", lambda row: row.partitions, lambda row: number(row.partitions), True),
        Column("replication", "Replicas", lambda row: row.replication, lambda row: number(row.replication), True),
        Column("records", "Offsets", lambda row: row.records, lambda row: number(row.records), True,
               "offsets between the start and the end of the log; compaction may have removed some of the records"),
        Column("bytes", "Size", lambda row: row.bytes, lambda row: size_cell(row.bytes), True,
               "bytes of one copy"),
        Column("segments", "Segments", lambda row: row.segments, lambda row: number(row.segments), True),
        Column("newest", "Newest record", lambda row: row.newest_ms,
               lambda row: ago_cell(row.newest_ms, now_ms), True),
        Column("health", "Health", lambda row: row.unhealthy, _health_cell),
    ]  # fmt: skip
    empty = f"No topic has {shown(wanted, 60)!r} in its name." if wanted else "There are no topics yet."
    return make_table(found, columns, query, caption="Topics", sort="topic", empty=empty)


def _topic_cell(row: TopicRow, cluster: str) -> Cell:
    note = "internal" if is_internal_topic(row.name) else ""
    return Cell(shown(row.name), address(cluster, "topics", row.name), note)


def _health_cell(row: TopicRow) -> Cell:
    if row.unhealthy:
        return Cell(f"{row.unhealthy:,} under-replicated", kind="bad")
    return Cell(f"{row.unfit:,} unfit records", kind="warn") if row.unfit else Cell("ok", kind="good")


# -- one topic


class PartitionRow(NamedTuple):
    number: int
    state: PartitionState


def partitions_table(topic: TopicState, cluster: str, query: Query, now_ms: int) -> Table:
    """Return the partitions of a topic."""
    rows = [PartitionRow(number, state) for number, state in enumerate(topic.partitions)]
    records_of = partial(_records_address, cluster, topic.name)
    columns: list[Column[PartitionRow]] = [
        Column("partition", "Partition", lambda row: row.number,
               lambda row: Cell(str(row.number), records_of(row.number)), True),
        Column("leader", "Leader", lambda row: row.state.leader,
               lambda row: Cell(str(row.state.leader), note=f"epoch {row.state.leader_epoch}")
               if row.state.leader >= 0 else Cell("none", kind="bad"), True),
        Column("replicas", "Replicas", lambda row: row.state.replicas, lambda row: _brokers(row.state.replicas)),
        Column("isr", "In sync", lambda row: len(row.state.isr), _isr_cell,
               hint="replicas that hold every live segment"),
        Column("start", "Start offset", lambda row: row.state.log_start_offset,
               lambda row: number(row.state.log_start_offset), True),
        Column("end", "End offset", lambda row: row.state.log_end_offset,
               lambda row: number(row.state.log_end_offset), True),
        Column("bytes", "Size", lambda row: row.state.size_bytes,
               lambda row: size_cell(row.state.size_bytes), True),
        Column("segments", "Segments", lambda row: row.state.segments, lambda row: number(row.state.segments), True),
        Column("newest", "Newest record", lambda row: _newest_ms(row.state),
               lambda row: ago_cell(_newest_ms(row.state), now_ms), True),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Partitions", sort="partition")


def _records_address(cluster: str, topic: str, partition: int) -> str:
    return address(cluster, "topics", topic, "records", partition=partition)


def _newest_ms(partition: PartitionState) -> int | None:
    return None if partition.max_timestamp_us == NO_TIMESTAMP_US else partition.max_timestamp_us // 1000


def _brokers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _isr_cell(row: PartitionRow) -> Cell:
    missing = sorted(set(row.state.replicas) - set(row.state.isr))
    note = f"missing {_brokers(missing)}" if missing else ""
    return Cell(_brokers(row.state.isr) or "none", note=note, kind="bad" if missing else "")


# -- configs


class ConfigRow(NamedTuple):
    entry: ConfigEntry
    definition: ConfigDef

    @property
    def differs(self) -> bool:
        return self.entry.value != self.definition.default


_SOURCES = {DYNAMIC_TOPIC_CONFIG: "this topic", DEFAULT_CONFIG: "default"}


def configs_table(configs: TypedConfigs, query: Query) -> Table:
    """Return the configs of a topic or of the cluster with their documentation: those that differ from their default,
    or with ``show=all`` all. ``q`` is a text in their name."""
    everything = query.choice("show", ("changed", "all"), "changed") == "all"
    wanted = query.text("q").lower()
    rows = [
        ConfigRow(entry, configs.definitions[entry.name])
        for entry in configs.describe(everything=True)
        if wanted in entry.name
    ]
    columns: list[Column[ConfigRow]] = [
        Column("config", "Config", lambda row: row.entry.name, lambda row: Cell(row.entry.name, kind="code")),
        Column("value", "Value", lambda row: row.entry.value or "",
               lambda row: Cell(shown(row.entry.value if row.entry.value not in (None, "") else "–", 200),
                                kind="changed" if row.differs else "")),
        Column("default", "Default", lambda row: row.definition.default or "",
               lambda row: Cell(shown(row.definition.default or "–", 80), kind="dim")),
        Column("source", "Set by", lambda row: row.entry.source,
               lambda row: _SOURCES.get(row.entry.source, "the cluster")),
        Column("doc", "What it does", lambda row: row.definition.doc,
               lambda row: Cell(row.definition.description, kind="prose",
                                title=f"{row.definition.kind}: {row.definition.allowed}")),
    ]  # fmt: skip
    chosen = [row for row in rows if everything or row.differs]
    return make_table(
        chosen, columns, query, caption="Configs", sort="config", per_page=400,
        empty="Every config is at its default." if not wanted else "No config has this text in its name.",
    )  # fmt: skip


# -- segments


class DrawnSegment(NamedTuple):
    """A segment as a rectangle; ``kind`` is open, closed or history."""

    x: float
    width: float
    kind: str
    text: str
    href: str


class DrawnPartition(NamedTuple):
    number: int
    start: str
    end: str
    segments: list[DrawnSegment]


class Drawing(NamedTuple):
    partitions: list[DrawnPartition]
    left_out: str


def draw_segments(rows: Sequence[Mapping[str, Any]], topic: TopicState, cluster: str) -> Drawing:
    """Return the live segments of a topic, each as wide as its offsets are many, a line for each partition."""
    by_partition: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows[:MAX_DRAWN_SEGMENTS]:
        by_partition.setdefault(row["partition"], []).append(row)
    drawn = [
        _draw_partition(partition, segments, topic, cluster)
        for partition, segments in sorted(by_partition.items())[:MAX_DRAWN_PARTITIONS]
    ]
    missing = len(rows) - sum(len(each.segments) for each in drawn)
    return Drawing(drawn, f"{missing:,} more segments are in the table only." if missing else "")


def _draw_partition(
    partition: int, rows: Sequence[Mapping[str, Any]], topic: TopicState, cluster: str
) -> DrawnPartition:
    start, end = rows[0]["base_offset"], rows[-1]["end_offset"]
    scale = 1000 / max(end - start, 1)
    return DrawnPartition(
        partition,
        number(start),
        number(end),
        [
            DrawnSegment(
                round((row["base_offset"] - start) * scale, 2),
                round(max((row["end_offset"] - row["base_offset"]) * scale, 1.5), 2),
                "history" if row["history"] else "closed" if row["closed"] else "open",
                f"offsets {row['base_offset']:,} to {row['end_offset'] - 1:,}: {plural(row['records'], 'record')}, "
                f"{size(row['bytes'])}, commit {row['version']:,}",
                address(cluster, "topics", topic.name, "records", partition=partition, at=row["base_offset"]),
            )
            for row in rows
        ],
    )


def segments_table(rows: Sequence[Mapping[str, Any]], cluster: str, query: Query) -> Table:
    """Return the live segments of a topic."""
    columns: list[Column[Mapping[str, Any]]] = [
        Column("partition", "Partition", lambda row: row["partition"], lambda row: str(row["partition"]), True),
        Column("base", "First offset", lambda row: row["base_offset"],
               lambda row: Cell(number(row["base_offset"]), address(cluster, "topics", row["topic"], "records",
                                                                    partition=row["partition"], at=row["base_offset"])),
               True),
        Column("records", "Records", lambda row: row["records"], lambda row: number(row["records"]), True),
        Column("bytes", "Size", lambda row: row["bytes"],
               lambda row: size_cell(row["bytes"]), True),
        Column("time", "Newest record", lambda row: row["max_timestamp"],
               lambda row: _moment(row["max_timestamp"]), True),
        Column("kind", "Kind", lambda row: (row["history"], row["closed"]),
               lambda row: "history" if row["history"] else "closed" if row["closed"] else "open"),
        Column("version", "Commit", lambda row: row["version"],
               lambda row: Cell(number(row["version"]), address(cluster, "commits", row["version"])), True),
        Column("broker", "Broker", lambda row: row["broker"], lambda row: str(row["broker"]), True),
        Column("path", "File", lambda row: row["path"], lambda row: Cell(shown(row["path"], 120), kind="code")),
    ]  # fmt: skip
    return make_table(rows, columns, query, caption="Segments", sort="partition", empty="The topic has no records.")


def _moment(value: Any) -> str:
    return "" if value is None else str(value.strftime("%Y-%m-%d %H:%M:%S"))


# -- schemas


class ShownSchema(NamedTuple):
    config: str
    number: int
    is_current: bool
    text: str
    time: str
    version: int
    href: str
    ids: str


def show_schemas(topic: TopicState, cluster: str) -> list[ShownSchema]:
    """Return the versions of a topic's schemas, the newest first."""
    return [
        ShownSchema(
            config,
            number,
            find_current(topic, config) == number,
            schema.text,
            time(schema.timestamp_ms),
            schema.version,
            address(cluster, "commits", schema.version),
            ", ".join(map(str, schema.ids)),
        )
        for config, versions in sorted(topic.schemas.items())
        for number, schema in reversed(list(enumerate(versions, 1)))
    ]
