"""``sparklog reassign-partitions``: Kafka's kafka-reassign-partitions. Moves replicas from broker to broker.

``--execute`` commits the new assignment; the replication step of ``sparklog maintain`` copies the replicas.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandError,
    CommandParser,
    UsageError,
    complain,
    connect_admin,
    duplicates,
    given,
    join,
    parse_broker_ids,
    plural_s,
    refuse_controller,
    require,
    say,
)
from sparklog.cli.output.json_output import add_json, print_document, print_json
from sparklog.errors import SparklogError, UnknownTopicOrPartitionError
from sparklog.types import TopicPartition, printable

if TYPE_CHECKING:
    from sparklog.cli.arguments.json_files import ReplicasOf
    from sparklog.cli.output.documents import ReassignmentDetails, ReassignmentStatus
    from sparklog.protocol.state import State

ERROR_PREFIX = "Error: "
ANY_LOG_DIR = "any"
FILE_FLAG = "--reassignment-json-file"
TOPICS_FLAG = "--topics-to-move-json-file"

TAKES = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file", "throttle", "additional", "disallow-replication-factor-change"),
    "verify": ("reassignment-json-file", "preserve-throttles", "json"),
    "cancel": ("reassignment-json-file", "preserve-throttles"),
    "list": ("json",),
}

NEEDS = {"generate": TAKES["generate"], "execute": TAKES["execute"][:1], "verify": TAKES["verify"][:1],
         "cancel": TAKES["cancel"][:1], "list": ()}  # fmt: skip

ALREADY_IN_PROGRESS = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
THROTTLE_WARNING = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


def parser() -> CommandParser:
    options = CommandParser(
        "reassign-partitions",
        "Move the replicas of partitions to other brokers, which are storage locations. --execute commits the new "
        "assignment;\nthe replication of `sparklog maintain` copies the files, and old replicas are removed when all "
        "new ones are in sync.\nReads and writes continue in the meantime.",
        "sparklog reassign-partitions --bootstrap-server /data/log --execute --reassignment-json-file moves.json",
        "ACTION [OPTIONS]",
    )
    action = options.add_group("Actions (exactly one)")
    action.add_switch("--generate", "propose an assignment of topics to brokers")
    action.add_switch("--execute", "start to move replicas")
    action.add_switch("--verify", "print the progress, and lift the throttle when done")
    action.add_switch("--cancel", "cancel reassignments: the old replicas stay")
    action.add_switch("--list", "print the reassignments in progress")
    options.add_value(
        FILE_FLAG,
        "FILE",
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}, as --generate prints it',
    )
    options.add_value(TOPICS_FLAG, "FILE", '{"version":1,"topics":[{"topic":"orders"}]}')
    options.add_value("--broker-list", "IDS", "the brokers to place the topics on, such as 0,1,2")
    options.add_number("--throttle", "BYTES", "copy at most BYTES per second (default: no limit)", default=-1)
    options.add_switch("--additional", "even if other reassignments are in progress")
    options.add_switch("--disallow-replication-factor-change", "refuse to change the number of replicas")
    options.add_switch("--preserve-throttles", "do not lift the throttle")
    add_json(options, "--list, --verify")
    options.add_controller()
    options.add_without_effect("--disable-rack-aware")
    options.add_without_effect("--replica-alter-log-dirs-throttle", "--timeout", metavar="N", type=int)
    return options


def run(options: argparse.Namespace) -> int:
    action = _check(options)
    act = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action]
    return act(options)


def _check(options: argparse.Namespace) -> str:
    refuse_controller(options)
    actions = [action for action in TAKES if given(options, action)]
    if len(actions) != 1:
        raise UsageError("Command must include exactly one action: --generate, --execute, --verify, --cancel, --list")
    action = actions[0]
    require(options, *NEEDS[action])
    for name in sorted({name for names in TAKES.values() for name in names} - set(TAKES[action])):
        if given(options, name) and getattr(options, name.replace("-", "_")) != -1:
            raise UsageError(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    if options.throttle < -1 or options.throttle == 0:
        raise UsageError(
            f"invalid --throttle {options.throttle}: must be at least 1 (bytes per second), or -1 for no limit"
        )
    return action


# -- generate


def _generate(options: argparse.Namespace) -> int:
    from sparklog.cli.arguments.json_files import TopicsFile, read_json

    brokers = parse_broker_ids(options.broker_list)
    _refuse_duplicates("Broker list contains duplicate entries", brokers)
    topics = [entry.topic for entry in read_json(options.topics_to_move_json_file, TOPICS_FLAG, TopicsFile).topics]
    _refuse_duplicates("List of topics to reassign contains duplicate entries", topics)
    with connect_admin(options) as admin:
        proposed = admin.propose_assignment(topics, sorted(brokers))
        state = admin.read_state()
    current = {partition: state.partition(*partition).replicas for partition in proposed}
    print(f"Current partition replica assignment\n{assignment_json(current)}\n")
    print(f"Proposed partition reassignment configuration\n{assignment_json(proposed)}")
    return 0


def _refuse_duplicates(what: str, entries: Sequence[object]) -> None:
    if repeated := duplicates(map(str, entries)):
        raise CommandError(f"{what}: [{', '.join(repeated)}]")


def assignment_json(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the assignment as the tool prints and reads it, by topic and partition."""
    import msgspec

    from sparklog.cli.arguments.json_files import ReassignmentFile, ReplicasOf

    partitions = [
        ReplicasOf(*partition, list(replicas), [ANY_LOG_DIR] * len(replicas))
        for partition, replicas in sorted(assignment.items())
    ]
    return msgspec.json.encode(ReassignmentFile(partitions=partitions)).decode()


# -- execute, verify, cancel, list


def _read_assignment(options: argparse.Namespace) -> list[ReplicasOf]:
    from sparklog.cli.arguments.json_files import ReassignmentFile, read_json, read_partitions

    moves = read_json(options.reassignment_json_file, FILE_FLAG, ReassignmentFile).partitions
    for move in moves:
        log_dirs = [ANY_LOG_DIR] * len(move.replicas) if move.log_dirs is None else move.log_dirs
        if len(log_dirs) != len(move.replicas):
            raise CommandError(
                f"Size of replicas list {move.replicas} is different from size of log dirs list {log_dirs} for "
                f"partition {move.topic_partition}"
            )
        named = [name for name in log_dirs if name != ANY_LOG_DIR]
        if named:
            raise CommandError(
                f'partition {move.topic_partition}: invalid log dir {named[0]}: a broker has only one; use "any"'
            )
    read_partitions(moves, "Partition reassignment contains duplicate topic partitions")
    return moves


def _execute(options: argparse.Namespace) -> int:
    moves = _read_assignment(options)
    if not moves:
        raise CommandError("Partition reassignment list cannot be empty")
    for move in moves:
        if not move.replicas:
            raise CommandError(f"Partition replica list cannot be empty (partition {move.topic_partition})")
        if repeated := duplicates(move.replicas):
            raise CommandError(
                "Partition replica lists may not contain duplicate entries: "
                f"{move.topic_partition} contains multiple entries for {join(repeated)}"
            )
    partitions = [move.topic_partition for move in moves]
    with connect_admin(options) as admin:
        if not options.additional and admin.list_partition_reassignments():
            raise CommandError(ALREADY_IN_PROGRESS)
        state = admin.read_state()
        current = {partition: state.partition(*partition).replicas for partition in partitions}
        unknown = next((broker for move in moves for broker in move.replicas if broker not in state.brokers), None)
        if unknown is not None:
            raise CommandError(f"Unknown broker id {unknown}; existing ids: {sorted(state.brokers)}")
        print(f"Current partition replica assignment\n\n{assignment_json(current)}\n")
        print("Save this to use as the --reassignment-json-file option during rollback")
        failed = admin.reassign_partitions(
            {move.topic_partition: move.replicas for move in moves},
            max(options.throttle, 0),
            not options.disallow_replication_factor_change,
        )
    if _complain_of_errors("Error reassigning partition(s); none of them is moved:", failed):
        return 1
    if options.throttle > 0:
        print(THROTTLE_WARNING)
        print(f"The inter-broker throttle limit was set to {options.throttle} B/s")
    say(f"Successfully started partition reassignment{plural_s(len(moves))} for {join(sorted(partitions))}")
    return 0


def _complain_of_errors(title: str, outcome: Mapping[TopicPartition, SparklogError | None]) -> bool:
    """Print the errors on standard error, and return whether there are any."""
    failed = {partition: error for partition, error in sorted(outcome.items()) if error is not None}
    if failed:
        complain(title.format(plural_s(len(failed))))
        for partition, error in failed.items():
            complain(f"{partition}: {error}")
    return bool(failed)


def _verify(options: argparse.Namespace) -> int:
    moves = sorted(_read_assignment(options), key=lambda move: move.topic_partition)
    topics = sorted({move.topic for move in moves})
    with connect_admin(options) as admin:
        moving = admin.list_partition_reassignments()
        state = admin.read_state()
        statuses = [_status(move, state, move.topic_partition in moving) for move in moves]
        lift = not moving and not options.preserve_throttles
        if options.json:
            from sparklog.cli.output.documents import ReassignmentVerification

            if lift:
                admin.clear_throttle(topics)
            print_json(ReassignmentVerification(partitions=statuses, throttles_cleared=lift))
            return 0
        print("Status of partition reassignment:")
        for status in statuses:
            say(_status_line(status))
        print()
        if lift:
            _say_throttle(state, topics)
            admin.clear_throttle(topics)
    return 0


def _status(move: ReplicasOf, state: State, is_moving: bool) -> ReassignmentStatus:
    from sparklog.cli.output.documents import ReassignmentStatus

    replicas: list[int] = []
    with suppress(UnknownTopicOrPartitionError):
        replicas += state.partition(*move.topic_partition).replicas
    return ReassignmentStatus(
        topic=move.topic,
        partition=move.partition,
        state="in-progress" if is_moving else "completed" if replicas == move.replicas else "differs",
        replicas=replicas,
        wanted_replicas=move.replicas,
    )


def _status_line(status: ReassignmentStatus) -> str:
    if status.state == "in-progress":
        return f"Reassignment of partition {status} is still in progress."
    if status.state == "completed":
        return f"Reassignment of partition {status} is completed."
    return (
        f"There is no active reassignment of partition {status}, but replica set is {join(status.replicas)} rather "
        f"than {join(status.wanted_replicas)}."
    )


def _cancel(options: argparse.Namespace) -> int:
    moves = _read_assignment(options)
    topics = sorted({move.topic for move in moves})
    with connect_admin(options) as admin:
        active = sorted(admin.list_partition_reassignments([move.topic_partition for move in moves]))
        if not active:
            print("None of the specified partition reassignments are active.")
        else:
            failed = admin.reassign_partitions(dict.fromkeys(active), all_or_none=False)
            if _complain_of_errors("Error cancelling partition reassignment{} for:", failed):
                return 1
            say(f"Successfully cancelled partition reassignment{plural_s(len(active))} for: {join(active)}")
        print("None of the specified partition moves are active.")
        if not options.preserve_throttles:
            _say_throttle(admin.read_state(), topics)
            admin.clear_throttle(topics)
    return 0


def _say_throttle(state: State, topics: Sequence[str]) -> None:
    brokers = sorted(state.brokers)
    print(f"Clearing broker-level throttles on broker{plural_s(len(brokers))} {join(brokers)}")
    say(f"Clearing topic-level throttles on topic{plural_s(len(topics))} {join(topics)}")


def _list(options: argparse.Namespace) -> int:
    from sparklog.cli.output.documents import ReassignmentDetails, ReassignmentList

    with connect_admin(options) as admin:
        in_progress = [
            ReassignmentDetails(topic=topic, partition=number, **reassignment)
            for (topic, number), reassignment in sorted(admin.list_partition_reassignments().items())
        ]
    head = "Current partition reassignments:" if in_progress else "No partition reassignments found."
    print_document(ReassignmentList(reassignments=in_progress), options.json, [head, *map(_line, in_progress)])
    return 0


def _line(details: ReassignmentDetails) -> str:
    adding = f" adding: {join(details.adding_replicas)}." if details.adding_replicas else ""
    removing = f" removing: {join(details.removing_replicas)}." if details.removing_replicas else ""
    return printable(f"{details}: replicas: {join(details.replicas)}.{adding}{removing}")
