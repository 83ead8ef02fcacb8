"""``sparklog cluster``: create a cluster, describe it, print its id, and keep a mirror of its commit log.

``cluster-id`` is Kafka's kafka-cluster; ``create`` is what kafka-storage's format is there, and ``describe`` shows what
lies below the root. ``mirror`` and ``promote`` are for the day that the root is lost, ``reset-time`` for the day after
a machine with a wrong clock wrote.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.common import (
    CommandParser,
    UsageError,
    bootstrap_server,
    complain,
    connect,
    given,
    require,
    suggestion,
)
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator
    from sparklog.protocol.state import BrokerState, State

ACTIONS = ("create", "describe", "cluster-id", "mirror", "promote", "reset-time")

PROGRESS_SECONDS = 5.0
"""Seconds between two lines about a mirror that takes long."""


def parser() -> CommandParser:
    options = CommandParser(
        "cluster",
        "create      make an empty cluster at a root: a folder or a bucket's folder\n"
        "describe    print its id, version, brokers, topics and sizes\n"
        "cluster-id  print its id\n"
        "mirror      copy what is new of its commit log to another location; run it again and again\n"
        "promote     let the cluster go on at a mirror, in the place of its root\n"
        "reset-time  set the log's time back to the present, where a wrong clock has driven it ahead",
        "sparklog cluster create --bootstrap-server /data/log",
        "|".join(ACTIONS) + " [OPTIONS]",
    )
    options.add_actions(ACTIONS)
    options.add_connection()
    options.add_argument("--if-not-exists", action="store_true", help="create: do nothing where there is a cluster")
    options.add_argument("--to", metavar="URL", help="mirror, promote: the location of the mirror")
    options.add_argument(
        "--force", action="store_true", help="promote: although the root does not answer, and commits may be lost"
    )
    return options


def run(options: argparse.Namespace) -> int:
    if options.action not in ACTIONS:
        said = f"{options.action!r} is no action" if options.action else "an action is missing"
        listed = f"{', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}"
        raise UsageError(f"{said}: {listed}{suggestion(options.action or '', ACTIONS)}")
    for name, actions in {"if-not-exists": ("create",), "to": ("mirror", "promote"), "force": ("promote",)}.items():
        if given(options, name) and options.action not in actions:
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{options.action}]"')
    if options.action == "create":
        _create(options)
    elif options.action in ("mirror", "promote"):
        require(options, "to")
        (_mirror if options.action == "mirror" else _promote)(options)
    elif options.action == "describe":
        _describe(connect(options))
    elif options.action == "reset-time":
        _reset_time(connect(options))
    else:
        print(f"Cluster ID: {connect(options).state.cluster_id}")
    return 0


def _create(options: argparse.Namespace) -> None:
    from sparklog.coordinator import create_cluster
    from sparklog.errors import ClusterAlreadyExistsError

    root, storage_options = bootstrap_server(options)
    try:
        coordinator = create_cluster(root, storage_options)
    except ClusterAlreadyExistsError:
        if not options.if_not_exists:
            raise
    else:
        print(f"Created cluster {coordinator.state.cluster_id} at {coordinator.store.root}.")


def _mirror(options: argparse.Namespace) -> None:
    root, storage_options = bootstrap_server(options)
    from sparklog.clock import SystemClock
    from sparklog.maintenance.mirror import mirror
    from sparklog.store.open import open_store

    clock = SystemClock()
    said = clock.monotonic()

    def progress(version: int, newest: int) -> None:
        nonlocal said
        if clock.monotonic() - said >= PROGRESS_SECONDS:
            said = clock.monotonic()
            complain(f"mirror: version {version:,} of {newest:,}")

    target = open_store(options.to, storage_options)
    done = mirror(open_store(root, storage_options), target, clock, progress)
    print(f"{target.root} mirrors version {done.version}: {done.commits:,} commits, {done.size_bytes:,} bytes copied.")


def _promote(options: argparse.Namespace) -> None:
    root, storage_options = bootstrap_server(options)
    from sparklog.maintenance.mirror import promote

    done = promote(options.to, root, storage_options, options.force)
    print(f"The cluster goes on at {options.to}, version {done.version}. Broker 0 is {done.old_root}.")
    if done.may_have_lost:
        complain("WARNING: what was committed at the old root and had not come to the mirror is lost.")


def _reset_time(coordinator: Coordinator) -> None:
    before_ms = coordinator.state.timestamp_ms
    ahead_ms = coordinator.reset_time()
    if not ahead_ms:
        print(f"The log's time is {_utc(before_ms)}, which is not ahead: nothing to do.")
        return
    print(f"The log's time was {_utc(before_ms)}, {ahead_ms // 1000} s ahead, and is {_utc(before_ms - ahead_ms)} now.")


def _describe(coordinator: Coordinator) -> None:
    from sparklog.log.checkpoint import read_newest
    from sparklog.log.layout import read_boundary
    from sparklog.protocol.levels import needed_version

    state = coordinator.state
    boundary = read_boundary(coordinator.store)
    checkpoint = read_newest(coordinator.store)
    partitions = [partition for topic in state.topics.values() for partition in topic.partitions]
    records = sum(partition.log_end_offset - partition.log_start_offset for partition in partitions)
    lines = {
        "Cluster ID": state.cluster_id,
        "Root": coordinator.store.root,
        "Level": f"{state.level} (needs {needed_version(state.level)})",
        "Version": f"{state.version} (last commit {_utc(state.timestamp_ms)})",
        "Boundary": "none: all commits are kept" if boundary < 0 else f"{boundary} (commits up to it may be gone)",
        "Checkpoint": "none yet" if checkpoint is None else f"{checkpoint.version}",
        "Brokers": _brokers(state, coordinator.store.root),
        "Controller": _controller(state),
        "Topics": f"{len(state.topics)}",
        "Partitions": f"{len(partitions)}",
        "Segments": f"{sum(partition.segments for partition in partitions)}",
        "Records": f"{records}",
        "Size": f"{sum(partition.size_bytes for partition in partitions)} bytes",
        "Removed": _removed(state),
    }
    for name, value in lines.items():
        if value:
            print(f"{name + ':':<12}{printable(value)}")
    if state.topics:
        print()
        _describe_topics(state)


def _describe_topics(state: State) -> None:
    """A table of the topics: partitions, segments, records that can be read, bytes of the segments."""
    width = max(len("TOPIC"), *map(len, state.topics))
    print(f"{'TOPIC':<{width}} {'PARTITIONS':>10} {'SEGMENTS':>10} {'RECORDS':>15} {'BYTES':>15}")
    for name in sorted(state.topics):
        partitions = state.topics[name].partitions
        records = sum(partition.log_end_offset - partition.log_start_offset for partition in partitions)
        segments = sum(partition.segments for partition in partitions)
        size = sum(partition.size_bytes for partition in partitions)
        print(f"{name:<{width}} {len(partitions):>10} {segments:>10} {records:>15} {size:>15}")


def _brokers(state: State, root: str) -> str:
    return ", ".join(f"{number} ({_broker(state.brokers[number], root)})" for number in sorted(state.brokers))


def _broker(broker: BrokerState, root: str) -> str:
    conditions = ["offline"] * (not broker.online) + ["cordoned"] * broker.cordoned
    return ", ".join([broker.url or root, *conditions])


def _controller(state: State) -> str:
    return f"{state.controller.controller} (epoch {state.controller.epoch})" if state.controller.epoch else ""


def _removed(state: State) -> str:
    """Files that left the log and are not deleted yet."""
    if not state.removed_files:
        return ""
    files = sum(removed.files for removed in state.removed_files.values())
    size = sum(removed.size_bytes for removed in state.removed_files.values())
    return f"{files} files of {size} bytes, which `sparklog maintain` deletes when their time has come"


def _utc(timestamp_ms: int) -> str:
    from datetime import datetime, timedelta, timezone

    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
