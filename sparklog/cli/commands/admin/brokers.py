"""``sparklog brokers``: manages the storage locations of a cluster. Kafka configures brokers in files instead."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandParser, UsageError, complain, connect, given, say
from sparklog.cli.output.broker_conditions import TIMEOUT_MS
from sparklog.cli.output.json_output import add_json, print_json
from sparklog.errors.suggestions import did_you_mean

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator
    from sparklog.protocol.state import State
    from sparklog.types import TopicPartition

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
"""The options of each action."""

OUTPUT_IS_OPTIONAL = True
"""The exit code reports the result even if the output is a closed pipe."""

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
        "  allow     let clients contact brokers at a location outside the root (as add and move do)\n"
        "  disallow  remove a location from the allowed ones",
        "sparklog brokers add --bootstrap-server /data/log --location s3://other-bucket/log",
        "add|list|remove|cordon|uncordon|drain|move|replace|allow|disallow [OPTIONS]",
    )
    options.add_actions(TAKES)
    options.add_connection()
    options.add_argument("--id", metavar="N", type=int, help="the broker (add: the next free number)")
    options.add_argument("--location", metavar="URL", help="a path or URL; add, move, allow, disallow")
    options.add_argument(
        "--timeout", metavar="MS", type=int, default=TIMEOUT_MS,
        help=f"list: how long to wait for the locations to answer ({TIMEOUT_MS})",
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
        reason = f"unknown action {action!r}" if action else "missing action"
        raise UsageError(f"{reason}: {', '.join(TAKES)}{did_you_mean(action, TAKES)}")
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
        raise UsageError(f"invalid --timeout {options.timeout}: must be 0 or more milliseconds")
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

    changed = cordon_broker(coordinator, options.id, options.action == "cordon")
    already = "" if changed else " already"
    print(f"Broker {options.id} is{already} {'cordoned' if options.action == 'cordon' else 'not cordoned'}.")


def _drain(coordinator: Coordinator, options: argparse.Namespace) -> None:
    """Cordon the broker and start to move its replicas.

    Both in one commit, so that no replica is added in between; nothing changes if any cannot be placed elsewhere.
    """
    from sparklog.maintenance.replicas.reassignment import plan_drain
    from sparklog.protocol.decide.brokers import cordon, find_broker
    from sparklog.protocol.decide.decision import Decision
    from sparklog.protocol.decide.replicas import alter_reassignments

    def decide(state: State) -> Decision[list[TopicPartition]]:
        if not find_broker(state, options.id).url:
            raise PolicyViolationError(f"broker {options.id} cannot be drained: it is the root of the cluster")
        decided = alter_reassignments(state, plan_drain(state, options.id))
        for error in decided.result.values():
            if error is not None:
                raise error
        return Decision([*cordon(state, options.id, True).actions, *decided.actions], sorted(decided.result))

    from sparklog.errors import PolicyViolationError

    partitions = coordinator.submit(decide)
    print(f"Broker {options.id} is cordoned.")
    if partitions:
        plural = "" if len(partitions) == 1 else "s"
        print(f"Successfully started partition reassignment{plural} for {','.join(map(str, partitions))}")
        complain("Note: the replication of `sparklog maintain` copies them; then the broker can be removed.")


def _move(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.coordinator.brokers import move_broker

    move_broker(coordinator, options.id, options.location)
    say(f"Broker {options.id} is at {coordinator.state.brokers[options.id].url}.")


def _replace(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.coordinator.brokers import replace_location

    replace_location(coordinator, options.id)
    say(f"Broker {options.id} is {coordinator.state.brokers[options.id].url or coordinator.store.root}.")
    complain("Note: the next pass of `sparklog maintain` finds the missing files and copies them.")


def _allow(coordinator: Coordinator, options: argparse.Namespace) -> None:
    url = coordinator.brokers.open(options.location).root
    added = coordinator.brokers.allow(url, coordinator.log.ids)
    say(f"Brokers below {url} are {'' if added else 'already '}allowed.")


def _disallow(coordinator: Coordinator, options: argparse.Namespace) -> None:
    from sparklog.log.broker_files import disallow_location

    url = coordinator.brokers.open(options.location).root
    removed = disallow_location(coordinator.store, url, coordinator.log.ids)
    say(f"{url} is {'no longer allowed' if removed else 'not on the list'}.")
    if removed:
        complain("Note: programs that have already opened a location there use it until they end.")


def _list(coordinator: Coordinator, options: argparse.Namespace) -> int:
    from sparklog.cli.output.broker_listing import lines, listing

    broker_list = listing(coordinator, options.timeout)
    if options.json:
        print_json(broker_list)
    else:
        for line in lines(broker_list):
            print(line)
        for broker in broker_list.brokers:
            if broker.problem is not None:
                complain(f"broker {broker.broker} did not answer: {broker.problem}")
    all_online = all(broker.state == "online" for broker in broker_list.brokers)
    return 0 if all_online or not options.exit_code else FOUND_EXIT_CODE
