"""``sparklog brokers``: manages the storage locations of a cluster. Kafka configures brokers in files instead."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    complain_of,
    connect_admin,
    given,
    join,
    plural_s,
    require_action,
    say,
)
from sparklog.cli.output.json_output import add_json, print_document

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient

TIMEOUT_MS = 5000
"""The default of ``--timeout``, without an import of the admin client."""

TAKES = {
    "add": ("location", "id"),
    "list": (),
    "remove": ("id",),
    "cordon": ("id",),
    "uncordon": ("id",),
    "drain": ("id",),
    "move": ("id", "location"),
    "replace": ("id",),
    "take-over": (),
    "allow": ("location",),
    "disallow": ("location",),
}

OUTPUT_IS_OPTIONAL = True

FOUND_EXIT_CODE = 2
"""Exit code of ``list --exit-code`` if a broker is not online; 1 means that the check failed."""


def parser() -> CommandParser:
    options = CommandParser(
        "brokers",
        "A broker is a storage location: a folder on another disk, a bucket, another region, an HDFS cluster. Broker 0 "
        "is\nthe root itself.\n"
        "  add       register a location; new topics and reassignments may put replicas there\n"
        "  list      print the brokers, their states, and what they hold\n"
        "  remove    unregister a location that holds no replicas (see drain)\n"
        "  cordon    place no new replicas there; uncordon reverts this\n"
        "  drain     cordon a broker, and start to move its replicas to the other brokers\n"
        "  move      set the new location of a broker whose files have been moved\n"
        "  replace   declare the files of a location lost: its broker starts empty there, and replication refills it\n"
        "  take-over make this root, which was restored or moved, the owner of all locations\n"
        "  allow     let clients contact brokers at a location outside the root (as add and move do)\n"
        "  disallow  remove a location from the allowed ones",
        "sparklog brokers add --bootstrap-server /data/log --location s3://other-bucket/log",
        "add|list|remove|cordon|uncordon|drain|move|replace|take-over|allow|disallow [OPTIONS]",
    )
    options.add_actions(TAKES)
    options.add_number("--id", "N", "the broker (add: the next free number)")
    options.add_value("--location", "URL", "a path or URL; add, move, allow, disallow")
    options.add_number(
        "--timeout", "MS", f"list: how long to wait for the locations to answer ({TIMEOUT_MS})", default=TIMEOUT_MS
    )
    options.add_switch("--exit-code", f"list: exit code {FOUND_EXIT_CODE} if a broker is not online")
    options.add_switch("--force", "take-over: even if the root that owns the locations answers")
    add_json(options, "list")
    return options


def run(options: argparse.Namespace) -> int:
    action = _check(options)
    with connect_admin(options) as admin:
        if action == "list":
            return _list(admin, options)
        change = {
            "add": _add, "remove": _remove, "cordon": _cordon, "uncordon": _cordon, "drain": _drain, "move": _move,
            "replace": _replace, "take-over": _take_over, "allow": _allow, "disallow": _disallow,
        }[action]  # fmt: skip
        change(admin, options)
    return 0


def _check(options: argparse.Namespace) -> str:
    action: str = options.action or ""
    require_action(action, TAKES)
    for name in ("id", "location"):
        value = getattr(options, name)
        if value is not None and name not in TAKES[action]:
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{action}]"')
        if value in (None, "") and name in TAKES[action] and (action, name) != ("add", "id"):
            raise UsageError(f'Missing required argument "[{name}]"')
    for name in ("exit-code", "json"):
        if action != "list" and given(options, name):
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{action}]"')
    if action != "take-over" and given(options, "force"):
        raise UsageError(f'Option "[force]" can\'t be used with option "[{action}]"')
    if options.timeout < 0:
        raise UsageError(f"invalid --timeout {options.timeout}: must be 0 or more milliseconds")
    return action


def _add(admin: AdminClient, options: argparse.Namespace) -> None:
    number = admin.add_broker(options.location, options.id)
    say(f"Added broker {number} at {admin.read_state().brokers[number].url}.")


def _remove(admin: AdminClient, options: argparse.Namespace) -> None:
    admin.unregister_broker(options.id)
    print(f"Removed broker {options.id}.")


def _cordon(admin: AdminClient, options: argparse.Namespace) -> None:
    changed = admin.cordon_broker(options.id, options.action == "cordon")
    already = "" if changed else " already"
    print(f"Broker {options.id} is{already} {'cordoned' if options.action == 'cordon' else 'not cordoned'}.")


def _drain(admin: AdminClient, options: argparse.Namespace) -> None:
    partitions = admin.drain_broker(options.id)
    print(f"Broker {options.id} is cordoned.")
    if partitions:
        print(f"Successfully started partition reassignment{plural_s(len(partitions))} for {join(partitions)}")
        complain("Note: the replication of `sparklog maintain` copies them; then the broker can be removed.")


def _move(admin: AdminClient, options: argparse.Namespace) -> None:
    admin.move_broker(options.id, options.location)
    say(f"Broker {options.id} is at {admin.read_state().brokers[options.id].url}.")


def _replace(admin: AdminClient, options: argparse.Namespace) -> None:
    admin.replace_location(options.id)
    say(f"Broker {options.id} is {admin.read_state().brokers[options.id].url}.")
    complain("Note: the next pass of `sparklog maintain` finds the missing files and copies them.")


def _take_over(admin: AdminClient, options: argparse.Namespace) -> None:
    unreached = admin.take_over_locations(options.force)
    brokers = admin.read_state().brokers
    taken = sorted(number for number, broker in brokers.items() if number not in unreached and broker.url)
    plural = plural_s(len(taken))
    owned = f"the location{plural} of broker{plural} {join(taken)}" if taken else "no location but its own"
    say(f"This root owns {owned} now.")
    complain_of(unreached)
    if unreached:
        complain("Note: these are taken over when they answer.")


def _allow(admin: AdminClient, options: argparse.Namespace) -> None:
    url, added = admin.allow_location(options.location)
    say(f"Brokers below {url} are {'' if added else 'already '}allowed.")


def _disallow(admin: AdminClient, options: argparse.Namespace) -> None:
    url, removed = admin.disallow_location(options.location)
    say(f"{url} is {'no longer allowed' if removed else 'not on the list'}.")
    if removed:
        complain("Note: programs that have already opened a location there use it until they end.")


def _list(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.cli.output.broker_listing import lines, listing

    broker_list = listing(admin, options.timeout)
    print_document(broker_list, options.json, lines(broker_list))
    if not options.json:
        complain_of({broker.broker: broker.problem for broker in broker_list.brokers})
    all_online = all(broker.state == "online" for broker in broker_list.brokers)
    return 0 if all_online or not options.exit_code else FOUND_EXIT_CODE
