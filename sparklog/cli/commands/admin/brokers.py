"""``sparklog brokers``: the storage locations of a cluster. Kafka has brokers where a configuration file says so."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, connect, given, say, suggestion
from sparklog.cli.output.broker_conditions import TIMEOUT_MS
from sparklog.cli.output.json_output import add_json, print_json

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator
    from sparklog.protocol.state import State

TAKES = {
    "add": ("location", "id"),
    "list": (),
    "remove": ("id",),
    "cordon": ("id",),
    "uncordon": ("id",),
    "drain": ("id",),
    "move": ("id", "location"),
    "replace": ("id",),
    "allow": ("location",),
    "disallow": ("location",),
}
"""The actions, and the options that belong to each."""

OUTPUT_IS_OPTIONAL = True
"""The exit code says what was found, also where nobody reads the output."""

FOUND_EXIT_CODE = 2
"""Of ``list --exit-code`` where a broker is not online; 1 is a failure to look."""


def parser() -> CommandParser:
    options = CommandParser(
        "brokers",
        "A broker is a storage location: a folder on another disk, a bucket, another region, an HDFS cluster. Broker 0 "
        "is\nthe root itself.\n"
        "  add       register a location; new topics and reassignments may put replicas there\n"
        "  list      print the brokers, how they are, and what they hold\n"
        "  remove    let a location go that holds no replica any more (see drain)\n"
        "  cordon    give it no new replicas; uncordon lifts that\n"
        "  drain     cordon it, and begin to move its replicas to the others\n"
        "  move      say that its files are at another address now\n"
        "  replace   take an empty location in the place of one whose files are lost; replication fills it\n"
        "  allow     let clients contact brokers below an address elsewhere than the root (as add and move do)\n"
        "  disallow  take such an address off the list",
        "sparklog brokers add --bootstrap-server /data/log --location s3://other-bucket/log",
        "add|list|remove|cordon|uncordon|drain|move|replace|allow|disallow [OPTIONS]",
    )
    options.add_actions(TAKES)
    options.add_connection()
    options.add_argument("--id", metavar="N", type=int, help="the broker (add: the next free number)")
    options.add_argument("--location", metavar="URL", help="a path or URL; add, move, allow, disallow")
    options.add_argument(
        "--timeout", metavar="MS", type=int, default=TIMEOUT_MS,
        help=f"list: how long to wait for the locations' answers ({TIMEOUT_MS})",
    )  # fmt: skip
    options.add_argument(
        "--exit-code", action="store_true", help=f"list: exit code {FOUND_EXIT_CODE} if a broker is not online"
    )
    add_json(options, "list")
    return options


def run(options: argparse.Namespace) -> int:
    action = _check(options)
    if action == "list":
        return _list(connect(options), options)
    actions: dict[str, Callable[[Coordinator, argparse.Namespace], None]] = {
        "add": _add,
        "remove": _remove,
        "cordon": _cordon,
        "uncordon": _cordon,
        "drain": _drain,
        "move": _move,
        "replace": _replace,
        "allow": _allow,
        "disallow": _disallow,
    }
    actions[action](connect(options), options)
    return 0


def _check(options: argparse.Namespace) -> str:
    action: str = options.action or ""
    if action not in TAKES:
        said = f"{action!r} is not an action" if action else "an action is missing"
        raise UsageError(f"{said}: {', '.join(TAKES)}{suggestion(action, TAKES)}")
    for name in ("id", "location"):
        value = getattr(options, name)
        if value is not None and name not in TAKES[action]:
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{action}]"')
        if value in (None, "") and name in TAKES[action] and (action, name) != ("add", "id"):
            raise UsageError(f'Missing required argument "[{name}]"')
    for name in ("exit-code", "json"):
        if action != "list" and given(options, name):
            raise UsageError(f'Option "[{name}]" can\'t be used with option "[{action}]"')
    if options.timeout < 0:
        raise UsageError(f"--timeout {options.timeout}: milliseconds, 0 or more")
    return action


def _add(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.coordinator.brokers import add_broker

    number = add_broker(coordinator, options.location, options.id)
    say(f"Added broker {number} at {coordinator.state.brokers[number].url}.")


def _remove(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.coordinator.brokers import remove_broker

    remove_broker(coordinator, options.id)
    print(f"Removed broker {options.id}.")


def _cordon(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.coordinator.brokers import cordon_broker

    done = cordon_broker(coordinator, options.id, options.action == "cordon")
    already = "" if done else " already"
    print(f"Broker {options.id} is{already} {'cordoned' if options.action == 'cordon' else 'not cordoned'}.")


def _drain(coordinator: Coordinator, options: argparse.Namespace) -> None:
    """In one commit, so that no new replica comes meanwhile; nothing happens where one of them has no place to go."""
    from sparklog.maintenance.replicas.reassignment import plan_drain
    from sparklog.protocol.decide.brokers import cordon, find_broker
    from sparklog.protocol.decide.decision import Decision
    from sparklog.protocol.decide.replicas import alter_reassignments

    def decide(state: State) -> Decision:
        if not find_broker(state, options.id).url:
            raise PolicyViolationError(f"broker {options.id} is the root of the cluster, which stays")
        decided = alter_reassignments(state, plan_drain(state, options.id))
        for error in decided.result.values():
            if error is not None:
                raise error
        return Decision([*cordon(state, options.id, True).actions, *decided.actions], sorted(decided.result))

    from sparklog.errors import PolicyViolationError

    places = coordinator.submit(decide)
    print(f"Broker {options.id} is cordoned.")
    if places:
        one = "" if len(places) == 1 else "s"
        print(f"Successfully started partition reassignment{one} for {','.join(map(str, places))}")
        complain("Note: the replication of `sparklog maintain` copies them; then the broker can be removed.")


def _move(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.coordinator.brokers import move_broker

    move_broker(coordinator, options.id, options.location)
    say(f"Broker {options.id} is at {coordinator.state.brokers[options.id].url}.")


def _replace(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.coordinator.brokers import replace_location

    replace_location(coordinator, options.id)
    say(f"Broker {options.id} is {coordinator.state.brokers[options.id].url or coordinator.store.root}.")
    complain("Note: `sparklog maintain` finds out at its next pass what is missing there, and copies it.")


def _allow(coordinator: Coordinator, options: argparse.Namespace) -> None:
    url = coordinator.brokers.open(options.location).root
    done = coordinator.brokers.allow(url, coordinator.log.ids)
    say(f"Brokers below {url} are {'' if done else 'already '}allowed.")


def _disallow(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.log.broker_files import disallow_location

    url = coordinator.brokers.open(options.location).root
    done = disallow_location(coordinator.store, url, coordinator.log.ids)
    say(f"{url} is {'not allowed any more' if done else 'not on the list'}.")
    if done:
        complain("Note: programs that have opened a location there keep it until they end.")


def _list(coordinator: Coordinator, options: argparse.Namespace) -> int:
    from sparklog.cli.output.broker_listing import lines, listing

    found = listing(coordinator, options.timeout)
    if options.json:
        print_json(found)
    else:
        for line in lines(found):
            print(line)
        for broker in found.brokers:
            if broker.problem is not None:
                complain(f"broker {broker.broker} did not answer: {broker.problem}")
    well = all(broker.state == "online" for broker in found.brokers)
    return 0 if well or not options.exit_code else FOUND_EXIT_CODE
