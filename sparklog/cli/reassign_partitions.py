"""``sparklog reassign-partitions``: Kafka's kafka-reassign-partitions. Moves replicas from broker to broker.

``--execute`` writes down what is wanted; the replicas are copied by the replication step of ``sparklog maintain``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sparklog.cli.common import CommandParser, UsageError, complain, connect, given, refuse_controller, require, say
from sparklog.cli.json_output import add_json, print_json
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.cli.documents import ReassignmentStatus
    from sparklog.cli.json_files import ReplicasOf
    from sparklog.coordinator import Coordinator
    from sparklog.errors import SparklogError
    from sparklog.protocol.commits import Action
    from sparklog.protocol.decision import Decision
    from sparklog.protocol.state import PartitionState, State

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
"""The actions, and the options that belong to each."""

NEEDS = {"generate": TAKES["generate"], "execute": TAKES["execute"][:1], "verify": TAKES["verify"][:1],
         "cancel": TAKES["cancel"][:1], "list": ()}  # fmt: skip

ALREADY = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
THROTTLE_WARNING = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Kafka's settings of a throttle: bytes a second for the cluster, and per topic ``partition:broker`` pairs."""


def parser() -> CommandParser:
    options = CommandParser(
        "reassign-partitions",
        "Move the replicas of partitions to other brokers, which are storage locations. --execute writes down where "
        "they\nare to be; the replication of `sparklog maintain` copies the files, and what is no longer wanted goes "
        "when all new\nreplicas are in sync. Reads and writes go on meanwhile.",
        "sparklog reassign-partitions --bootstrap-server /data/log --execute --reassignment-json-file moves.json",
        "ACTION [OPTIONS]",
    )
    options.add_connection()
    action = options.add_argument_group("Actions (exactly one)")
    action.add_argument("--generate", action="store_true", help="propose an assignment of topics to brokers")
    action.add_argument("--execute", action="store_true", help="begin to move replicas")
    action.add_argument("--verify", action="store_true", help="print how far it is, and lift the throttle when done")
    action.add_argument("--cancel", action="store_true", help="leave the replicas where they were")
    action.add_argument("--list", action="store_true", help="print what is being moved")
    options.add_argument(
        FILE_FLAG, metavar="FILE",
        help='{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2]}]}, as --generate prints it',
    )  # fmt: skip
    options.add_argument(TOPICS_FLAG, metavar="FILE", help='{"version":1,"topics":[{"topic":"orders"}]}')
    options.add_argument("--broker-list", metavar="IDS", help="the brokers to spread topics over, such as 0,1,2")
    options.add_argument(
        "--throttle", metavar="BYTES", type=int, default=-1, help="copy at most BYTES a second (no limit)"
    )
    options.add_argument("--additional", action="store_true", help="although something is being moved already")
    options.add_argument(
        "--disallow-replication-factor-change", action="store_true", help="refuse another number of replicas"
    )
    options.add_argument("--preserve-throttles", action="store_true", help="leave the throttle as it is")
    add_json(options, "--list, --verify")
    options.add_controller()
    options.add_without_effect("--disable-rack-aware")
    options.add_without_effect("--replica-alter-log-dirs-throttle", "--timeout", metavar="N", type=int)
    return options


def run(options: argparse.Namespace) -> int:
    action = _check(options)
    return {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action](
        options
    )


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
        raise UsageError(f"--throttle {options.throttle}: bytes a second, at least 1, or -1 for no limit")
    return action


# -- generate


def _generate(options: argparse.Namespace) -> int:
    from sparklog.cli.json_files import TopicsFile, read_json

    brokers = _broker_list(options.broker_list)
    topics = [one.topic for one in read_json(options.topics_to_move_json_file, TOPICS_FLAG, TopicsFile).topics]
    _refuse_repeated("List of topics to reassign contains duplicate entries", topics)
    state = connect(options).state
    _check_brokers(state, brokers)
    present = {
        TopicPartition(topic, number): partition.replicas
        for topic in topics
        for number, partition in enumerate(state.topic(topic).partitions)
    }
    proposed = [place for topic in topics for place in _spread(state, topic, brokers)]
    print(f"Current partition replica assignment\n{assignment_json(present)}\n")
    print(f"Proposed partition reassignment configuration\n{assignment_json(dict(proposed))}")
    return 0


def _broker_list(text: str) -> list[int]:
    try:
        brokers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--broker-list: {text!r} is not a list of broker ids such as 0,1,2") from None
    _refuse_repeated("Broker list contains duplicate entries", brokers)
    return sorted(brokers)


def _refuse_repeated(what: str, entries: Sequence[object]) -> None:
    twice = sorted({str(entry) for entry in entries if entries.count(entry) > 1})
    if twice:
        raise UsageError(f"{what}: [{', '.join(twice)}]", prefixed=True)


def _check_brokers(state: State, brokers: Iterable[int]) -> None:
    for broker in brokers:
        if broker not in state.brokers:
            raise UsageError(f"Unknown broker id {broker}; there are {sorted(state.brokers)}", prefixed=True)
        if state.brokers[broker].cordoned:
            raise UsageError(
                f"broker {broker} is cordoned and gets no new replicas; leave it out, or `sparklog brokers uncordon "
                f"--id {broker}`",
                prefixed=True,
            )


def _spread(state: State, topic: str, brokers: Sequence[int]) -> list[tuple[TopicPartition, Sequence[int]]]:
    """As new topics are spread: round-robin, with as many replicas as the topic has now."""
    from sparklog.protocol.placement import first_places, spread

    found = state.topic(topic)
    factor = len(found.partitions[0].replicas) - len(found.partitions[0].adding)
    if factor > len(brokers):
        raise UsageError(
            f"topic {topic} has {factor} replicas of each partition, and --broker-list names {len(brokers)} brokers",
            prefixed=True,
        )
    start, shift = first_places(found.topic_id, len(brokers))
    lists = spread(brokers, len(found.partitions), factor, start=start, shift=shift)
    return [(TopicPartition(topic, number), replicas) for number, replicas in enumerate(lists)]


def assignment_json(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """The assignment as the tool prints and reads it, by topic and partition."""
    import json

    partitions = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": list(assignment[place]),
            "log_dirs": [ANY_LOG_DIR] * len(assignment[place]),
        }
        for place in sorted(assignment)
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"), ensure_ascii=False)


# -- execute, verify, cancel, list


def _read_assignment(options: argparse.Namespace) -> list[ReplicasOf]:
    from sparklog.cli.json_files import ReassignmentFile, read_json, repeated

    wanted = read_json(options.reassignment_json_file, FILE_FLAG, ReassignmentFile).partitions
    for one in wanted:
        log_dirs = [ANY_LOG_DIR] * len(one.replicas) if one.log_dirs is None else one.log_dirs
        if len(log_dirs) != len(one.replicas):
            raise UsageError(
                f"Size of replicas list {one.replicas} is different from size of log dirs list {log_dirs} for "
                f"partition {one.place}",
                prefixed=True,
            )
        named = [name for name in log_dirs if name != ANY_LOG_DIR]
        if named:
            raise UsageError(
                f'partition {one.place} names the log dir {named[0]}: a broker is one location here; write "any"',
                prefixed=True,
            )
    twice = repeated(one.place for one in wanted)
    if twice:
        raise UsageError(f"Partition reassignment contains duplicate topic partitions: {twice}", prefixed=True)
    return wanted


def _execute(options: argparse.Namespace) -> int:
    wanted = _read_assignment(options)
    if not wanted:
        raise UsageError("Partition reassignment list cannot be empty", prefixed=True)
    for one in wanted:
        if not one.replicas:
            raise UsageError(f"Partition replica list cannot be empty (partition {one.place})", prefixed=True)
        twice = sorted({broker for broker in one.replicas if one.replicas.count(broker) > 1})
        if twice:
            raise UsageError(
                "Partition replica lists may not contain duplicate entries: "
                f"{one.place} contains multiple entries for {','.join(map(str, twice))}",
                prefixed=True,
            )
    coordinator = connect(options)
    state = coordinator.state
    _check_execute(state, wanted, options.additional)
    present = {one.place: state.partition(*one.place).replicas for one in wanted}
    print(f"Current partition replica assignment\n\n{assignment_json(present)}\n")
    print("Save this to use as the --reassignment-json-file option during rollback")
    failed = _submit(coordinator, wanted, options.throttle, not options.disallow_replication_factor_change)
    if failed:
        complain("Error reassigning partition(s), none of which is moved:")
        for place in sorted(failed):
            complain(f"{place}: {failed[place]}")
        return 1
    if options.throttle > 0:
        print(THROTTLE_WARNING)
        print(f"The inter-broker throttle limit was set to {options.throttle} B/s")
    say(f"Successfully started partition reassignment{_s(wanted)} for {_places(one.place for one in wanted)}")
    return 0


def _check_execute(state: State, wanted: Sequence[ReplicasOf], additional: bool) -> None:
    from sparklog.protocol.decide_replicas import reassignments

    if not additional and reassignments(state):
        raise UsageError(ALREADY, prefixed=True)
    for one in wanted:
        state.partition(*one.place)
        for broker in one.replicas:
            if broker not in state.brokers:
                raise UsageError(f"Unknown broker id {broker}; there are {sorted(state.brokers)}", prefixed=True)


def _submit(
    coordinator: Coordinator, wanted: Sequence[ReplicasOf], throttle: int, factor_may_change: bool
) -> dict[TopicPartition, SparklogError]:
    """Begin all moves in one commit, with their throttle; if one of them cannot be, none is, and why is returned."""
    from sparklog.protocol.decide_replicas import alter_reassignments
    from sparklog.protocol.decision import Decision

    targets = {(one.topic, one.partition): one.replicas for one in wanted}

    def decide(state: State) -> Decision:
        decided = alter_reassignments(state, targets, factor_may_change)
        failed = {place: error for place, error in decided.result.items() if error is not None}
        if failed:
            return Decision([], failed)
        limits = _throttle(state, wanted, throttle) if throttle > 0 else []
        return Decision([*limits, *decided.actions], failed)

    failed: dict[TopicPartition, SparklogError] = coordinator.submit(decide)
    return failed


def _throttle(state: State, wanted: Sequence[ReplicasOf], rate: int) -> list[Action]:
    """The rate for the cluster, and for each topic which replicas it holds for: sources and destinations."""
    from sparklog.protocol.decide import alter_configs

    actions = alter_configs(state, "", dict.fromkeys(RATES, str(rate)), []).actions[:]
    for topic in sorted({one.topic for one in wanted}):
        sources: list[str] = []
        destinations: list[str] = []
        for one in sorted((one for one in wanted if one.topic == topic), key=lambda one: one.partition):
            partition = state.partition(*one.place)
            held = [broker for broker in partition.replicas if broker not in partition.adding]
            sources += [f"{one.partition}:{broker}" for broker in held]
            destinations += [f"{one.partition}:{broker}" for broker in one.replicas if broker not in held]
        lists = dict(zip(LISTS, (",".join(sources), ",".join(destinations)), strict=True))
        actions += alter_configs(state, topic, lists, []).actions
    return actions


def _verify(options: argparse.Namespace) -> int:
    from sparklog.protocol.decide_replicas import reassignments

    wanted = _read_assignment(options)
    coordinator = connect(options)
    state = coordinator.state
    moving = reassignments(state)
    found = [
        _status(one, _found(state, one.place), one.place in moving) for one in sorted(wanted, key=lambda one: one.place)
    ]
    lift = not moving and not options.preserve_throttles
    topics = {one.topic for one in wanted}
    if options.json:
        from sparklog.cli.documents import ReassignmentVerification

        if lift:
            _lift_throttle(coordinator, topics)
        print_json(ReassignmentVerification(partitions=found, throttles_cleared=lift))
        return 0
    print("Status of partition reassignment:")
    for one in found:
        say(_status_line(one))
    print()
    if lift:
        _say_throttle(coordinator, topics)
        _lift_throttle(coordinator, topics)
    return 0


def _found(state: State, place: TopicPartition) -> PartitionState | None:
    topic = state.topics.get(place.topic)
    if topic is None or not 0 <= place.partition < len(topic.partitions):
        return None
    return topic.partitions[place.partition]


def _status(one: ReplicasOf, found: PartitionState | None, is_moving: bool) -> ReassignmentStatus:
    from sparklog.cli.documents import ReassignmentStatus

    replicas = [] if found is None else list(found.replicas)
    return ReassignmentStatus(
        topic=one.topic,
        partition=one.partition,
        state="in-progress" if is_moving else "completed" if replicas == one.replicas else "differs",
        replicas=replicas,
        wanted_replicas=one.replicas,
    )


def _status_line(one: ReassignmentStatus) -> str:
    place = f"{one.topic}-{one.partition}"
    if one.state == "in-progress":
        return f"Reassignment of partition {place} is still in progress."
    if one.state == "completed":
        return f"Reassignment of partition {place} is completed."
    return (
        f"There is no active reassignment of partition {place}, but replica set is {_ids(one.replicas)} rather than "
        f"{_ids(one.wanted_replicas)}."
    )


def _cancel(options: argparse.Namespace) -> int:
    from sparklog.protocol.decide_replicas import alter_reassignments, reassignments

    wanted = _read_assignment(options)
    coordinator = connect(options)
    active = sorted(reassignments(coordinator.state, [one.place for one in wanted]))
    if not active:
        print("None of the specified partition reassignments are active.")
    else:
        decided = coordinator.submit(lambda state: alter_reassignments(state, dict.fromkeys(active)))
        failed = {place: error for place, error in decided.items() if error is not None}
        if failed:
            complain(f"Error cancelling partition reassignment{_s(failed)} for:")
            for place in sorted(failed):
                complain(f"{place}: {failed[place]}")
            return 1
        say(f"Successfully cancelled partition reassignment{_s(active)} for: {_places(active)}")
    print("None of the specified partition moves are active.")
    if not options.preserve_throttles:
        topics = {one.topic for one in wanted}
        _say_throttle(coordinator, topics)
        _lift_throttle(coordinator, topics)
    return 0


def _say_throttle(coordinator: Coordinator, topics: Iterable[str]) -> None:
    names = sorted(topics)
    brokers = sorted(coordinator.state.brokers)
    print(f"Clearing broker-level throttles on broker{_s(brokers)} {_ids(brokers)}")
    say(f"Clearing topic-level throttles on topic{_s(names)} {','.join(names)}")


def _lift_throttle(coordinator: Coordinator, topics: Iterable[str]) -> None:
    from sparklog.protocol.decide import alter_configs
    from sparklog.protocol.decision import Decision

    names = sorted(topics)

    def decide(state: State) -> Decision:
        rates = [name for name in RATES if name in state.configs]
        actions = alter_configs(state, "", {}, rates).actions[:]
        for topic in (name for name in names if name in state.topics):
            lists = [name for name in LISTS if name in state.topics[topic].configs]
            actions += alter_configs(state, topic, {}, lists).actions
        return Decision(actions, None)

    coordinator.submit(decide)


def _list(options: argparse.Namespace) -> int:
    from sparklog.cli.documents import ReassignmentDetails, ReassignmentList
    from sparklog.protocol.decide_replicas import reassignments

    found = [
        ReassignmentDetails(
            topic=place.topic,
            partition=place.partition,
            replicas=list(one.replicas),
            adding_replicas=list(one.adding),
            removing_replicas=list(one.removing),
        )
        for place, one in sorted(reassignments(connect(options).state).items(), key=lambda item: item[0])
    ]
    if options.json:
        print_json(ReassignmentList(reassignments=found))
        return 0
    if not found:
        print("No partition reassignments found.")
        return 0
    print("Current partition reassignments:")
    for one in found:
        adding = f" adding: {_ids(one.adding_replicas)}." if one.adding_replicas else ""
        removing = f" removing: {_ids(one.removing_replicas)}." if one.removing_replicas else ""
        say(f"{one.topic}-{one.partition}: replicas: {_ids(one.replicas)}.{adding}{removing}")
    return 0


def _s(things: Sequence[object] | Mapping[TopicPartition, object]) -> str:
    return "" if len(things) == 1 else "s"


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _places(places: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(places)))
