"""``sparklog cluster``: create a cluster, describe it, print its id, and keep a mirror of its commit log.

``cluster-id`` is Kafka's kafka-cluster; ``create`` is what kafka-storage's format is there, and ``describe`` shows what
lies below the root. ``mirror`` and ``promote`` are for the day that the root is lost, ``reset-time`` for the day after
a machine with a wrong clock wrote.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.broker_conditions import complain_of, conditions_of
from sparklog.cli.common import (
    CommandParser,
    UsageError,
    bootstrap_server,
    complain,
    connect,
    given,
    require,
    say,
    suggestion,
)
from sparklog.cli.json_output import add_json, print_json

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator

ACTIONS = ("create", "describe", "cluster-id", "list-endpoints", "mirror", "promote", "reset-time")
LISTINGS = ("describe", "cluster-id", "list-endpoints")

FLAGS = {"if-not-exists": ("create",), "to": ("mirror", "promote"), "force": ("promote",), "json": LISTINGS,
         "include-fenced-brokers": ("list-endpoints",)}  # fmt: skip
"""The options that belong to some of the actions."""

PROGRESS_SECONDS = 5.0
"""Seconds between two lines about a mirror that takes long."""


def parser() -> CommandParser:
    options = CommandParser(
        "cluster",
        "create          make an empty cluster at a root: a folder or a bucket's folder\n"
        "describe        print its id, version, brokers, topics and sizes\n"
        "cluster-id      print its id\n"
        "list-endpoints  print where its brokers are\n"
        "mirror          copy what is new of its commit log to another location; run it again and again\n"
        "promote         let the cluster go on at a mirror, in the place of its root\n"
        "reset-time      set the log's time back to the present, where a wrong clock has driven it ahead",
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
    add_json(options, ", ".join(LISTINGS))
    options.add_argument(
        "--include-fenced-brokers", action="store_true", help="list-endpoints: also those that are not online"
    )
    return options


def run(options: argparse.Namespace) -> int:
    if options.action not in ACTIONS:
        said = f"{options.action!r} is not an action" if options.action else "an action is missing"
        listed = f"{', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}"
        raise UsageError(f"{said}: {listed}{suggestion(options.action or '', ACTIONS)}")
    for name, actions in FLAGS.items():
        if given(options, name) and options.action not in actions:
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{options.action}]"')
    if options.action == "create":
        _create(options)
    elif options.action in ("mirror", "promote"):
        require(options, "to")
        (_mirror if options.action == "mirror" else _promote)(options)
    elif options.action == "describe":
        _describe(connect(options), options.json)
    elif options.action == "reset-time":
        _reset_time(connect(options))
    elif options.action == "list-endpoints":
        _list_endpoints(connect(options), options)
    else:
        _cluster_id(connect(options).state.cluster_id, options.json)
    return 0


def _create(options: argparse.Namespace) -> None:
    from sparklog.coordinator import create_cluster
    from sparklog.errors import ClusterAlreadyExistsError

    root, storage_options = bootstrap_server(options)
    try:
        coordinator = create_cluster(root, storage_options)
    except ClusterAlreadyExistsError as error:
        if not options.if_not_exists:
            raise ClusterAlreadyExistsError(
                f"{error.message}; --if-not-exists leaves the one that is there as it is, and succeeds", **error.context
            ) from error
    else:
        say(f"Created cluster {coordinator.state.cluster_id} at {coordinator.store.root}.")


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
    say(f"{target.root} mirrors version {done.version}: {done.commits:,} commits, {done.size_bytes:,} bytes copied.")


def _promote(options: argparse.Namespace) -> None:
    root, storage_options = bootstrap_server(options)
    from sparklog.maintenance.mirror import promote

    done = promote(options.to, root, storage_options, options.force)
    say(f"The cluster goes on at {options.to}, version {done.version}. Broker 0 is {done.old_root}.")
    if done.may_have_lost:
        complain("WARNING: what was committed at the old root and had not come to the mirror is lost.")


def _reset_time(coordinator: Coordinator) -> None:
    from sparklog.cli.cluster_listing import utc

    before_ms = coordinator.state.timestamp_ms
    ahead_ms = coordinator.reset_time()
    if not ahead_ms:
        print(f"The log's time is {utc(before_ms)}, which is not ahead: nothing to do.")
        return
    print(f"The log's time was {utc(before_ms)}, {ahead_ms // 1000} s ahead, and is {utc(before_ms - ahead_ms)} now.")


def _cluster_id(cluster_id: str, as_json: bool) -> None:
    from sparklog.cli.documents import ClusterIdentity

    if as_json:
        print_json(ClusterIdentity(cluster_id=cluster_id))
    else:
        print(f"Cluster ID: {cluster_id}")


def _list_endpoints(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.cli.cluster_listing import endpoint_lines, endpoints

    conditions = conditions_of(coordinator)
    found = endpoints(coordinator, conditions, options.include_fenced_brokers)
    if options.json:
        print_json(found)
    else:
        print(*endpoint_lines(found, options.include_fenced_brokers), sep="\n")
    complain_of(conditions)


def _describe(coordinator: Coordinator, as_json: bool) -> None:
    from sparklog.cli.cluster_listing import description, description_lines

    conditions = conditions_of(coordinator)
    found = description(coordinator, conditions)
    if as_json:
        print_json(found)
    else:
        print(*description_lines(found), sep="\n")
    complain_of(conditions)
