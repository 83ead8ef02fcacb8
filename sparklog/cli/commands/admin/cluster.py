"""``sparklog cluster``: creates a cluster, describes it, prints its id, and mirrors its commit log.

``cluster-id`` is Kafka's kafka-cluster, ``create`` corresponds to kafka-storage's format, and ``describe`` shows the
contents of the root. ``mirror`` and ``promote`` protect against the loss of the root; ``reset-time`` repairs the log's
time after a machine with a wrong clock has written.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    bootstrap_server,
    complain,
    complain_of,
    connect_admin,
    given,
    require,
    require_action,
    say,
)
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.clock import SystemClock, utc_text
from sparklog.errors import ClusterAlreadyExistsError
from sparklog.progress import Progress

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient

ACTIONS = ("create", "describe", "cluster-id", "list-endpoints", "mirror", "promote", "reset-time")
LISTINGS = ("describe", "cluster-id", "list-endpoints")

FLAGS = {"if-not-exists": ("create",), "release-version": ("create",),
         "to": ("mirror", "promote"), "force": ("promote",), "json": LISTINGS,
         "include-fenced-brokers": ("list-endpoints",)}  # fmt: skip


def parser() -> CommandParser:
    options = CommandParser(
        "cluster",
        "create          create an empty cluster at a root: a folder, locally or in a bucket\n"
        "describe        print its id, version, brokers, topics and sizes\n"
        "cluster-id      print its id\n"
        "list-endpoints  print the locations of its brokers\n"
        "mirror          copy the new part of its commit log to another location; run it periodically\n"
        "promote         make a mirror the root of the cluster\n"
        "reset-time      set the log's time back to the present, after a wrong clock has set it into the future",
        "sparklog cluster create --bootstrap-server /data/log",
        "|".join(ACTIONS) + " [OPTIONS]",
    )
    options.add_actions(ACTIONS)
    options.add_switch("--if-not-exists", "create: succeed without effect if there is a cluster")
    options.add_value("--release-version", "VERSION", "create: readable by this release, without later features")
    options.add_value("--to", "URL", "mirror, promote: the location of the mirror")
    options.add_switch("--force", "promote: even if the root does not answer, so that commits may be lost")
    add_json(options, ", ".join(LISTINGS))
    options.add_switch("--include-fenced-brokers", "list-endpoints: also brokers that are not online")
    return options


def run(options: argparse.Namespace) -> int:
    require_action(options.action, ACTIONS, f"{', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}")
    for name, allowed in FLAGS.items():
        if given(options, name) and options.action not in allowed:
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{options.action}]"')
    if options.action == "create":
        _create(options)
    elif options.action in ("mirror", "promote"):
        require(options, "to")
        (_mirror if options.action == "mirror" else _promote)(options)
    else:
        show = {
            "describe": _describe, "reset-time": _reset_time, "list-endpoints": _list_endpoints,
            "cluster-id": _cluster_id,
        }[options.action]  # fmt: skip
        with connect_admin(options) as admin:
            show(admin, options)
    return 0


def _create(options: argparse.Namespace) -> None:
    from sparklog.client.cluster import level_of
    from sparklog.coordinator import create_cluster

    root, storage_options = bootstrap_server(options)
    try:
        coordinator = create_cluster(root, storage_options, level=level_of(options.release_version))
    except ClusterAlreadyExistsError as error:
        if not options.if_not_exists:
            raise ClusterAlreadyExistsError(
                f"{error.message}; with --if-not-exists this succeeds and leaves that cluster unchanged",
                **error.context,
            ) from error
    else:
        say(f"Created cluster {coordinator.state.cluster_id} at {coordinator.store.root}.")


def _mirror(options: argparse.Namespace) -> None:
    root, storage_options = bootstrap_server(options)
    from sparklog.maintenance.mirror import mirror
    from sparklog.store.open import open_store

    open_address = partial(open_store, storage_options=storage_options)
    target = open_address(options.to)
    with Progress("mirror") as progress:
        show = partial(progress.show, "versions")
        result = mirror(open_address(root), target, SystemClock(), show, open_source=open_address)
    copied = f"{result.commits:,} commits, {result.size_bytes:,} bytes copied"
    say(f"{target.root} mirrors version {result.version}: {copied}.")


def _promote(options: argparse.Namespace) -> None:
    root, storage_options = bootstrap_server(options)
    from sparklog.maintenance.promotion import promote

    result = promote(options.to, root, storage_options, options.force)
    say(f"The cluster's root is now {options.to}, version {result.version}, in place of {result.old_root}.")
    if result.may_have_lost:
        complain("WARNING: commits of the old root that had not been mirrored are lost.")


def _reset_time(admin: AdminClient, options: argparse.Namespace) -> None:
    before_ms = admin.read_state().timestamp_ms
    ahead_ms = admin.reset_time()
    if not ahead_ms:
        print(f"The log's time is {utc_text(before_ms)}, not in the future: nothing to do.")
        return
    now = utc_text(before_ms - ahead_ms)
    print(f"The log's time was {utc_text(before_ms)}, {ahead_ms // 1000} s ahead, and is now {now}.")


def _cluster_id(admin: AdminClient, options: argparse.Namespace) -> None:
    from sparklog.cli.output.documents import ClusterIdentity

    cluster_id = admin.read_state().cluster_id
    print_document(ClusterIdentity(cluster_id=cluster_id), options.json, [f"Cluster ID: {cluster_id}"])


def _list_endpoints(admin: AdminClient, options: argparse.Namespace) -> None:
    from sparklog.cli.output.cluster_listing import endpoint_lines, endpoints

    brokers = admin.describe_cluster()["brokers"]
    endpoint_list = endpoints(brokers, options.include_fenced_brokers)
    print_document(endpoint_list, options.json, endpoint_lines(endpoint_list, options.include_fenced_brokers))
    complain_of({broker["broker_id"]: broker["error_message"] for broker in brokers})


def _describe(admin: AdminClient, options: argparse.Namespace) -> None:
    from sparklog.cli.output.cluster_listing import description, description_lines

    conditions = admin.check_brokers()
    document = description(admin.read_state(), admin.describe_log(), conditions)
    print_document(document, options.json, description_lines(document))
    complain_of({broker: condition.problem for broker, condition in conditions.items()})
