"""What ``cluster describe`` and ``cluster list-endpoints`` show: the documents, and the lines made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from sparklog.cli.documents import ClusterBroker, ClusterDescription, ClusterTopic, Endpoint, EndpointList
from sparklog.log.checkpoint import read_newest
from sparklog.log.layout import read_boundary
from sparklog.protocol.levels import needed_version
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.cli.broker_conditions import Condition
    from sparklog.coordinator import Coordinator
    from sparklog.protocol.state import TopicState


def description(coordinator: Coordinator, conditions: Mapping[int, Condition]) -> ClusterDescription:
    """What lies below the root, whose brokers are in these conditions. Raises StorageError."""
    state, root = coordinator.state, coordinator.store.root
    boundary, checkpoint = read_boundary(coordinator.store), read_newest(coordinator.store)
    removed = state.removed_files.values()
    return ClusterDescription(
        cluster_id=state.cluster_id,
        root=root,
        level=state.level,
        needs_version=needed_version(state.level),
        version=state.version,
        timestamp_ms=state.timestamp_ms,
        boundary=None if boundary < 0 else boundary,
        checkpoint=None if checkpoint is None else checkpoint.version,
        controller=state.controller.controller if state.controller.epoch else None,
        controller_epoch=state.controller.epoch,
        removed_files=sum(one.files for one in removed),
        removed_bytes=sum(one.size_bytes for one in removed),
        brokers=[
            ClusterBroker(
                broker=number,
                location=state.brokers[number].url or root,
                online=state.brokers[number].online,
                state=conditions[number].word,
                cordoned=state.brokers[number].cordoned,
            )
            for number in sorted(state.brokers)
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


def description_lines(found: ClusterDescription) -> Iterator[str]:
    """A line for each fact, then a table of the topics."""
    none_gone, some_gone = "none: all commits are kept", f"{found.boundary} (commits up to it may be gone)"
    removed = (
        f"{found.removed_files} files of {found.removed_bytes} bytes, which `sparklog maintain` deletes when their"
    )
    lines = {
        "Cluster ID": found.cluster_id,
        "Root": found.root,
        "Level": f"{found.level} (needs {found.needs_version})",
        "Version": f"{found.version} (last commit {utc(found.timestamp_ms)})",
        "Boundary": none_gone if found.boundary is None else some_gone,
        "Checkpoint": "none yet" if found.checkpoint is None else f"{found.checkpoint}",
        "Brokers": ", ".join(f"{broker.broker} ({_conditions(broker)})" for broker in found.brokers),
        "Controller": "" if found.controller is None else f"{found.controller} (epoch {found.controller_epoch})",
        "Topics": f"{len(found.topics)}",
        "Partitions": f"{sum(topic.partitions for topic in found.topics)}",
        "Segments": f"{sum(topic.segments for topic in found.topics)}",
        "Records": f"{sum(topic.records for topic in found.topics)}",
        "Size": f"{sum(topic.size_bytes for topic in found.topics)} bytes",
        "Removed": f"{removed} time has come" if found.removed_files else "",
    }
    yield from (f"{name + ':':<12}{printable(value)}" for name, value in lines.items() if value)
    if found.topics:
        yield ""
        yield from _topic_table(found.topics)


def _conditions(broker: ClusterBroker) -> str:
    return ", ".join([broker.location, *[broker.state] * (broker.state != "online"), *["cordoned"] * broker.cordoned])


def _topic_table(topics: list[ClusterTopic]) -> Iterator[str]:
    """Partitions, segments, records that can be read, bytes of the segments."""
    names = [printable(topic.topic) for topic in topics]
    width = max(len("TOPIC"), *map(len, names))
    yield f"{'TOPIC':<{width}} {'PARTITIONS':>10} {'SEGMENTS':>10} {'RECORDS':>15} {'BYTES':>15}"
    for name, one in zip(names, topics, strict=True):
        yield f"{name:<{width}} {one.partitions:>10} {one.segments:>10} {one.records:>15} {one.size_bytes:>15}"


def utc(timestamp_ms: int) -> str:
    """``2026-11-22 11:45:34.000 UTC``."""
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")


def endpoints(coordinator: Coordinator, conditions: Mapping[int, Condition], with_fenced: bool) -> EndpointList:
    """Where the brokers are; those that are not online, which are fenced, only where they are asked for."""
    state, root = coordinator.state, coordinator.store.root
    return EndpointList(
        endpoints=[
            Endpoint(
                id=number,
                host=state.brokers[number].url or root,
                port=-1,
                rack=None,
                state="unfenced" if condition.word == "online" else "fenced",
                endpoint_type="broker",
            )
            for number, condition in sorted(conditions.items())
            if condition.word == "online" or with_fenced
        ]
    )


def endpoint_lines(found: EndpointList, with_state: bool) -> Iterator[str]:
    """Kafka's table, which has a column for the state where fenced brokers are asked for."""
    rows = [("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")]
    for one in found.endpoints:
        rows.append((f"{one.id}", printable(one.host), f"{one.port}", one.rack or "null", one.state, one.endpoint_type))
    wide = max(len(row[1]) for row in rows)
    for number, host, port, rack, state, kind in rows:
        shown = f"{state:<10} " if with_state else ""
        yield f"{number:<10} {host:<{wide}} {port:<10} {rack:<10} {shown}{kind}"
