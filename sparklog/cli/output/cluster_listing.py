"""Builds the documents of ``cluster describe`` and ``cluster list-endpoints``, and the lines from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from sparklog.cli.arguments.parser import plural_s
from sparklog.cli.output.documents import ClusterBroker, ClusterDescription, ClusterTopic, Endpoint, EndpointList
from sparklog.cli.output.tables import table
from sparklog.clock import utc_text
from sparklog.monitoring.facts.files import retired_files
from sparklog.monitoring.facts.topics import topics
from sparklog.protocol.levels import CURRENT, needed_version
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.client.admin.cluster import LogDescription
    from sparklog.client.admin.types import BrokerCondition
    from sparklog.protocol.state import State


def description(state: State, log: LogDescription, conditions: Mapping[int, BrokerCondition]) -> ClusterDescription:
    retired = retired_files(state)
    return ClusterDescription.of(
        state,
        root=log.root,
        needs_version=needed_version(state.level),
        boundary=None if log.boundary < 0 else log.boundary,
        checkpoint=log.checkpoint,
        controller=state.controller.controller if state.controller.epoch else None,
        controller_epoch=state.controller.epoch,
        removed_files=retired.files,
        removed_bytes=retired.bytes,
        brokers=[
            ClusterBroker.of(
                state.brokers[number], location=conditions[number].location, state=conditions[number].state
            )
            for number in sorted(state.brokers.keys() & conditions.keys())
        ],
        topics=[ClusterTopic.of(each, records=each.offsets, size_bytes=each.bytes) for each in topics(state)],
    )


def description_lines(description: ClusterDescription) -> Iterator[str]:
    """Format a line for each fact, then a table of the topics."""
    all_kept, some_removed = "none: all commits are kept", f"{description.boundary} (commits up to it may be removed)"
    files = f"{description.removed_files} file{plural_s(description.removed_files)}"
    retired = f"{files} of {description.removed_bytes} bytes, to be deleted by `sparklog maintain`"
    lines = {
        "Cluster ID": description.cluster_id,
        "Root": description.root,
        "Level": f"{description.level} (needs {description.needs_version}{_newer_level(description.level)})",
        "Version": f"{description.version} (last commit {utc_text(description.timestamp_ms)})",
        "Boundary": all_kept if description.boundary is None else some_removed,
        "Checkpoint": "none yet" if description.checkpoint is None else f"{description.checkpoint}",
        "Brokers": ", ".join(f"{broker.broker} ({_conditions(broker)})" for broker in description.brokers),
        "Controller": ""
        if description.controller is None
        else f"{description.controller} (epoch {description.controller_epoch})",
        "Topics": f"{len(description.topics)}",
        "Partitions": f"{sum(topic.partitions for topic in description.topics)}",
        "Segments": f"{sum(topic.segments for topic in description.topics)}",
        "Offsets": f"{sum(topic.records for topic in description.topics)}",
        "Size": f"{sum(topic.size_bytes for topic in description.topics)} bytes",
        "Removed": retired if description.removed_files else "",
    }
    yield from (f"{name + ':':<12}{printable(value)}" for name, value in lines.items() if value)
    if description.topics:
        yield ""
        yield from _topic_table(description.topics)


def _newer_level(level: int) -> str:
    return f"; `sparklog features upgrade` raises it to {CURRENT}" if level < CURRENT else ""


def _conditions(broker: ClusterBroker) -> str:
    return ", ".join([broker.location, *[broker.state] * (broker.state != "online"), *["cordoned"] * broker.cordoned])


def _topic_table(topics: list[ClusterTopic]) -> Iterator[str]:
    """Format a table of partitions, segments, offsets between start and end, and bytes of the segments."""
    names = [printable(topic.topic) for topic in topics]
    width = max(len("TOPIC"), *map(len, names))
    yield f"{'TOPIC':<{width}} {'PARTITIONS':>10} {'SEGMENTS':>10} {'OFFSETS':>15} {'BYTES':>15}"
    for name, topic in zip(names, topics, strict=True):
        yield f"{name:<{width}} {topic.partitions:>10} {topic.segments:>10} {topic.records:>15} {topic.size_bytes:>15}"


def endpoints(brokers: Iterable[Mapping[str, Any]], with_fenced: bool) -> EndpointList:
    """List the locations of the brokers; those that are not online, which are fenced, only with ``with_fenced``."""
    return EndpointList(
        endpoints=[
            Endpoint(
                id=broker["broker_id"],
                host=broker["host"],
                port=broker["port"],
                rack=broker["rack"],
                state="fenced" if broker["is_fenced"] else "unfenced",
                endpoint_type="broker",
            )
            for broker in brokers
            if with_fenced or not broker["is_fenced"]
        ]
    )


def endpoint_lines(endpoint_list: EndpointList, with_state: bool) -> list[str]:
    """Format Kafka's table, which has a column for the state if fenced brokers are included."""
    rows: list[list[object]] = [["ID", "HOST", "PORT", "RACK", *["STATE"] * with_state, "ENDPOINT_TYPE"]]
    for endpoint in endpoint_list.endpoints:
        state = [endpoint.state] * with_state
        rack = endpoint.rack or "null"
        rows.append([endpoint.id, endpoint.host, endpoint.port, rack, *state, endpoint.endpoint_type])
    return table(rows, [10, -1, 10, 10, *[10] * with_state, 0])
