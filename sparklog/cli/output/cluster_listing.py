"""Builds the documents of ``cluster describe`` and ``cluster list-endpoints``, and the lines from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from sparklog.cli.output.documents import ClusterBroker, ClusterDescription, ClusterTopic, Endpoint, EndpointList
from sparklog.protocol.levels import needed_version
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.client.admin.cluster import LogDescription
    from sparklog.client.admin.types import BrokerCondition
    from sparklog.protocol.state import State, TopicState


def description(state: State, log: LogDescription, conditions: Mapping[int, BrokerCondition]) -> ClusterDescription:
    """Describe the cluster, with the given conditions of its brokers."""
    removed = state.removed_files.values()
    return ClusterDescription(
        cluster_id=state.cluster_id,
        root=log.root,
        level=state.level,
        needs_version=needed_version(state.level),
        version=state.version,
        timestamp_ms=state.timestamp_ms,
        boundary=None if log.boundary < 0 else log.boundary,
        checkpoint=log.checkpoint,
        controller=state.controller.controller if state.controller.epoch else None,
        controller_epoch=state.controller.epoch,
        removed_files=sum(listing.files for listing in removed),
        removed_bytes=sum(listing.size_bytes for listing in removed),
        brokers=[
            ClusterBroker(
                broker=number,
                location=conditions[number].location,
                online=state.brokers[number].online,
                state=conditions[number].state,
                cordoned=state.brokers[number].cordoned,
            )
            for number in sorted(state.brokers.keys() & conditions.keys())
        ],
        topics=[_topic(state.topics[name]) for name in sorted(state.topics)],
    )


def _topic(topic: TopicState) -> ClusterTopic:
    partitions = topic.partitions
    return ClusterTopic(
        topic=topic.name,
        partitions=len(partitions),
        segments=sum(partition.segments for partition in partitions),
        records=sum(partition.log_end_offset - partition.log_start_offset for partition in partitions),
        size_bytes=sum(partition.size_bytes for partition in partitions),
    )


def description_lines(description: ClusterDescription) -> Iterator[str]:
    """Format a line for each fact, then a table of the topics."""
    all_kept, some_removed = "none: all commits are kept", f"{description.boundary} (commits up to it may be removed)"
    retired = (
        f"{description.removed_files} files of {description.removed_bytes} bytes, to be deleted by `sparklog maintain`"
    )
    lines = {
        "Cluster ID": description.cluster_id,
        "Root": description.root,
        "Level": f"{description.level} (needs {description.needs_version})",
        "Version": f"{description.version} (last commit {utc(description.timestamp_ms)})",
        "Boundary": all_kept if description.boundary is None else some_removed,
        "Checkpoint": "none yet" if description.checkpoint is None else f"{description.checkpoint}",
        "Brokers": ", ".join(f"{broker.broker} ({_conditions(broker)})" for broker in description.brokers),
        "Controller": ""
        if description.controller is None
        else f"{description.controller} (epoch {description.controller_epoch})",
        "Topics": f"{len(description.topics)}",
        "Partitions": f"{sum(topic.partitions for topic in description.topics)}",
        "Segments": f"{sum(topic.segments for topic in description.topics)}",
        "Records": f"{sum(topic.records for topic in description.topics)}",
        "Size": f"{sum(topic.size_bytes for topic in description.topics)} bytes",
        "Removed": retired if description.removed_files else "",
    }
    yield from (f"{name + ':':<12}{printable(value)}" for name, value in lines.items() if value)
    if description.topics:
        yield ""
        yield from _topic_table(description.topics)


def _conditions(broker: ClusterBroker) -> str:
    return ", ".join([broker.location, *[broker.state] * (broker.state != "online"), *["cordoned"] * broker.cordoned])


def _topic_table(topics: list[ClusterTopic]) -> Iterator[str]:
    """Format a table of partitions, segments, readable records and bytes of the segments."""
    names = [printable(topic.topic) for topic in topics]
    width = max(len("TOPIC"), *map(len, names))
    yield f"{'TOPIC':<{width}} {'PARTITIONS':>10} {'SEGMENTS':>10} {'RECORDS':>15} {'BYTES':>15}"
    for name, topic in zip(names, topics, strict=True):
        yield f"{name:<{width}} {topic.partitions:>10} {topic.segments:>10} {topic.records:>15} {topic.size_bytes:>15}"


def utc(timestamp_ms: int) -> str:
    """Format a time as ``2026-11-22 11:45:34.000 UTC``."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


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


def endpoint_lines(endpoint_list: EndpointList, with_state: bool) -> Iterator[str]:
    """Format Kafka's table, which has a column for the state if fenced brokers are included."""
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    for endpoint in endpoint_list.endpoints:
        host, rack = printable(endpoint.host), endpoint.rack or "null"
        rows.append((f"{endpoint.id}", host, f"{endpoint.port}", rack, endpoint.state, endpoint.endpoint_type))
    width = max(len(row[1]) for row in rows)
    for number, host, port, rack, state, kind in rows:
        state_column = f"{state:<10} " if with_state else ""
        yield f"{number:<10} {host:<{width}} {port:<10} {rack:<10} {state_column}{kind}"
