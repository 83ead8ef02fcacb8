"""What a coordinator answers to a request: (state, request) -> actions and a result, or an error.

Every rule of who may write what is here, without storage and without a clock. A decision is only valid against the very
state it was made from: when another commit wins the race, the coordinator asks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from sparklog import limits
from sparklog.config.cluster_configs import ClusterConfig, validate_cluster_configs
from sparklog.config.effects import check_misleading, misleading
from sparklog.config.topic_configs import canonical_topic_configs, validate_topic_configs
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OutOfOrderSequenceNumberError,
    PolicyViolationError,
    ProducerFencedError,
    TopicAlreadyExistsError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.commits import (
    Action,
    AlterConfig,
    Append,
    ApplicationWrite,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Run,
    WrittenRange,
)
from sparklog.protocol.decide_append import (
    ACKS_ALL,
    check_not_stale,
    election,
    is_led_alone,
    with_copies,
    with_counted_copies,
)
from sparklog.protocol.decide_groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide_producers import (
    ProducerIdentity,
    after_transaction,
    is_committed,
    transaction_end,
)
from sparklog.protocol.decision import Decision
from sparklog.protocol.file_names import NO_VERSION, begun_at
from sparklog.protocol.names import (
    collision_key,
    validate_application_id,
    validate_partition_count,
    validate_partition_increase,
    validate_written_topic,
)
from sparklog.protocol.partition_changes import last_sequence
from sparklog.protocol.placement import available_brokers, first_places, places_after, spread
from sparklog.protocol.state import ApplicationState, PartitionState, State, TopicState

UNKNOWN_OFFSET = -1
"""``Appended.base_offset`` of what is in the log for certain, where its offsets cannot be told any more."""


class NewTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic to create. ``assignment`` is one list of broker ids per partition, else they are spread evenly."""

    name: str
    topic_id: str
    partitions: int = 1
    replication_factor: int = 1
    configs: Mapping[str, str] = {}
    assignment: Sequence[Sequence[int]] | None = None


class PartitionAppend(msgspec.Struct, frozen=True, kw_only=True):
    """One run of written batches for one partition. ``topic_id`` is that of the topic the writer saw."""

    topic: str
    topic_id: str
    partition: int
    run: Run
    log_append_time: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Appends that become visible together, or not at all.

    ``application`` with ``application_version`` makes the request happen once: a version at or below the newest one
    seen is answered with what that one got, unless that is the write of commit ``application_replaces``, of which the
    caller knows that it was another one. ``source_digest`` is remembered with it. ``new_topics`` are created with it
    where they do not exist yet.
    The offsets of ``groups`` are committed with the records: consume-transform-produce. With a ``transaction`` the
    request is the whole of one, of the transactional producer named; its runs number their sequences from 0.
    ``acks`` is Kafka's: -1 (all) needs ``min.insync.replicas`` of those in sync to hold the runs, 1 and 0 one of them.
    ``history`` is ``CommitLog.unlinked_jumps`` when the producer got its id: the coordinator decides nothing for an id
    that may be of another history.
    """

    appends: Sequence[PartitionAppend]
    acks: int = ACKS_ALL
    application: str = ""
    application_version: int = -1
    application_replaces: int = -1
    source_digest: str = ""
    new_topics: Sequence[NewTopic] = ()
    groups: Sequence[GroupCommit] = ()
    transaction: ProducerIdentity | None = None
    history: int | None = None


class Appended(NamedTuple):
    """Where one run ended up: offsets ``[base_offset, base_offset + records)``, or at ``UNKNOWN_OFFSET``."""

    topic: str
    topic_id: str
    partition: int
    base_offset: int
    records: int


class AppendResult(NamedTuple):
    """The answer to an AppendRequest. ``duplicate`` says that an earlier write had it all already.

    ``producer`` is whom a transactional producer writes its next transaction as.
    """

    appended: list[Appended]
    duplicate: bool = False
    producer: ProducerIdentity | None = None


# -- topics


def create_topic(state: State, new: NewTopic) -> Decision:
    """Create a topic. Raises InvalidTopicError, TopicAlreadyExistsError, InvalidPartitionsError,
    InvalidReplicationFactorError or InvalidConfigurationError."""
    validate_written_topic(new.name)
    if new.name in state.topics:
        raise TopicAlreadyExistsError(f"topic {new.name!r} already exists", topic=new.name)
    other = state.indexes.topic_names.get(collision_key(new.name))
    if other is not None:
        raise InvalidTopicError(
            f"topic {new.name!r} collides with existing topic {other!r}: names may not differ only in "
            "'.' and '_', which metrics cannot tell apart; choose another name",
            topic=new.name,
        )
    configs = validate_topic_configs(new.configs, state.configs)
    check_misleading(new.name, configs)
    replicas = _assignment(state, new.partitions, new.replication_factor, new.assignment, new)
    return Decision(
        [CreateTopic(topic=new.name, topic_id=new.topic_id, replicas=replicas, configs=configs)], new.topic_id
    )


def assigned(state: State, new: NewTopic) -> NewTopic:
    """The topic with its brokers chosen, for who writes to it before it is created. Errors as ``create_topic``."""
    if new.assignment is not None:
        return new
    chosen = _assignment(state, new.partitions, new.replication_factor, None, new)
    return msgspec.structs.replace(new, assignment=chosen)


def create_partitions(
    state: State, topic: str, total: int, assignment: Sequence[Sequence[int]] | None = None
) -> Decision:
    """Raise a topic's partition count to ``total``. Raises InvalidPartitionsError when it would not grow, and
    InvalidTopicError for an internal topic."""
    validate_written_topic(topic)
    found = state.topic(topic)
    now = len(found.partitions)
    validate_partition_increase(topic, now, total)
    if assignment is not None and len(assignment) != total - now:
        raise InvalidPartitionsError(
            f"the replica assignment names {len(assignment)} partitions, and {total - now} are added to {topic!r}",
            topic=topic,
        )
    like = found.partitions[0]
    factor = len(like.replicas) - len(like.removing)
    replicas = _assignment(state, total - now, factor, assignment, found, first=now)
    return Decision([CreatePartitions(topic=topic, topic_id=found.topic_id, replicas=replicas)], total)


def _assignment(
    state: State,
    partitions: int,
    factor: int,
    assignment: Sequence[Sequence[int]] | None,
    topic: NewTopic | TopicState,
    first: int = 0,
) -> list[list[int]]:
    """One replica list per partition: the given one, or spread over the brokers as Kafka does it (``placement``)."""
    if assignment is not None:
        return _checked_assignment(state, assignment, topic.name)
    validate_partition_count(first + partitions, topic.name)
    brokers = available_brokers(state)
    if not 1 <= factor <= len(brokers):
        raise InvalidReplicationFactorError(
            f"replication factor {factor} of topic {topic.name!r} needs 1 to {len(brokers)}: that many "
            f"brokers (storage locations) of {len(state.brokers)} are online and not cordoned; `sparklog brokers add "
            "--location …` adds one",
            topic=topic.name,
        )
    if isinstance(topic, NewTopic):
        start, shift = first_places(topic.topic_id, len(brokers))
    else:
        start, shift = places_after(topic.partitions[0].replicas, brokers)
    return spread(brokers, partitions, factor, start=start, shift=shift, first=first)


def _checked_assignment(state: State, assignment: Sequence[Sequence[int]], topic: str) -> list[list[int]]:
    if not 1 <= len(assignment) <= limits.MAX_PARTITIONS_PER_TOPIC:
        raise InvalidPartitionsError(f"the replica assignment of {topic!r} names no partition", topic=topic)
    for partition, replicas in enumerate(assignment):
        usable = sorted(number for number, broker in state.brokers.items() if not broker.cordoned)
        unusable = [broker for broker in replicas if broker not in usable]
        if not replicas or unusable or len(set(replicas)) != len(replicas) or len(replicas) != len(assignment[0]):
            raise InvalidReplicationAssignmentError(
                f"replica assignment {list(replicas)} of {topic}-{partition} must name registered brokers that are not "
                f"cordoned ({usable}), each once, and as many as the other partitions do",
                topic=topic,
                partition=partition,
            )
    return [list(replicas) for replicas in assignment]


def delete_topic(state: State, topic: str) -> Decision:
    """Delete a topic with all its records. Raises PolicyViolationError where ``delete.topic.enable`` is false."""
    found = state.topic(topic)
    if not ClusterConfig.resolve(state.configs).delete_topic_enable:
        raise PolicyViolationError(
            f"topic {topic!r} is not deleted: delete.topic.enable is false for this cluster", topic=topic
        )
    return Decision([DeleteTopic(topic=topic, topic_id=found.topic_id)], found.topic_id)


def alter_configs(state: State, topic: str, changes: Mapping[str, str], deletions: Sequence[str]) -> Decision:
    """Set and delete dynamic configs of a topic, or of the cluster where ``topic`` is empty.

    Raises InvalidConfigurationError for unknown names, bad values, and ones that would mislead, also for deletions of
    what is not set.
    """
    current = state.topic(topic).configs if topic else state.configs
    absent = [name for name in deletions if name not in current]
    if absent:
        where = f"topic {topic!r}" if topic else "the cluster"
        raise InvalidConfigurationError(f"{where} has no dynamic config {', '.join(absent)} to delete", topic=topic)
    canonical = canonical_topic_configs(changes) if topic else validate_cluster_configs(changes)
    check_misleading(topic, canonical)
    kept = {name: value for name, value in current.items() if name not in deletions}
    if topic:  # some values only make sense together
        sound = {name: value for name, value in kept.items() if name not in misleading(topic, kept)}
        validate_topic_configs({**sound, **canonical}, state.configs)
    if not canonical and not deletions:
        return Decision([], None)
    return Decision([AlterConfig(topic=topic, set=canonical, delete=list(deletions))], None)


# -- records


def append(state: State, request: AppendRequest) -> Decision:
    """Assign offsets to written runs.

    Raises InvalidTopicError for internal topics, UnknownTopicOrPartitionError when a topic was deleted or re-created
    since the data were written, NotLeaderOrFollowerError, NotEnoughReplicasError and StaleWriteError when they have to
    be written again, ProducerFencedError and OutOfOrderSequenceNumberError by Kafka's rules for idempotent producers,
    UnknownProducerIdError where an earlier try of the same may have been forgotten, and what ``commit_group_offsets``
    does.
    """
    if request.application:
        validate_application_id(request.application)
        known = state.applications.get(request.application)
        if known is not None and _is_repeated(request, known):
            return Decision([], AppendResult([Appended(*_range_fields(r)) for r in known.ranges], duplicate=True))
    if request.transaction is not None and is_committed(state, request.transaction):
        return Decision([], _repeated(state, request, request.transaction))
    creations = [decided for new in request.new_topics for decided in _creation_if_missing(state, new)]
    _check_distinct(creations)
    created = {action.topic: action for action in creations}
    cursor = _Cursor(state, created, request.acks)
    appended = [cursor.append(item) for item in request.appends]
    wrote = bool(cursor.actions)
    actions: list[Action] = [*creations, *cursor.actions]
    if request.application:
        actions.append(_application_write(request, appended))
    for commit in request.groups:
        actions += commit_group_offsets(state, commit).actions
    producer = None
    if request.transaction is not None:
        producer = after_transaction(request.transaction)
        actions.append(transaction_end(state, request.transaction))
    return Decision(actions, AppendResult(appended, duplicate=bool(appended) and not wrote, producer=producer))


def _is_repeated(request: AppendRequest, known: ApplicationState) -> bool:
    return request.application_version <= known.version and request.application_replaces != known.commit_version


def _repeated(state: State, request: AppendRequest, transaction: ProducerIdentity) -> AppendResult:
    """What a transaction got that was committed before: its producer has written nothing since.

    Runs without sequences were written all the same; where, nobody remembers.
    """
    appended = [
        Appended(item.topic, item.topic_id, item.partition, _offset_got(state, item, transaction), item.run.records)
        for item in request.appends
        if item.producer_id >= 0
    ]
    return AppendResult(appended, duplicate=True, producer=after_transaction(transaction))


def _offset_got(state: State, item: PartitionAppend, transaction: ProducerIdentity) -> int:
    """Where a run of a committed transaction is, ``UNKNOWN_OFFSET`` where its topic is gone or does not remember it."""
    topic = state.topics.get(item.topic)
    if topic is None or item.topic_id not in ("", topic.topic_id) or item.partition >= len(topic.partitions):
        return UNKNOWN_OFFSET
    known = topic.partitions[item.partition].producers.get(transaction.producer_id)
    if known is None or known.epoch != transaction.producer_epoch:
        return UNKNOWN_OFFSET
    # Of many runs for a partition only the last are remembered; all of them got consecutive offsets.
    last = known.appends[-1]
    return last.base_offset - (last.first - item.base_sequence)


def _range_fields(written: WrittenRange) -> tuple[str, str, int, int, int]:
    return written.topic, written.topic_id, written.partition, written.base_offset, written.records


def _application_write(request: AppendRequest, appended: list[Appended]) -> ApplicationWrite:
    """Runs of one request for a partition get consecutive offsets: they are one range, however many tasks wrote."""
    first: dict[tuple[str, str, int], int] = {}
    records: Counter[tuple[str, str, int]] = Counter()
    for one in appended:
        where = (one.topic, one.topic_id, one.partition)
        first.setdefault(where, one.base_offset)
        records[where] += one.records
    return ApplicationWrite(
        application=request.application,
        application_version=request.application_version,
        ranges=[
            WrittenRange(
                topic=where[0], topic_id=where[1], partition=where[2], base_offset=base_offset, records=records[where]
            )
            for where, base_offset in first.items()
        ],
        source_digest=request.source_digest,
    )


def _creation_if_missing(state: State, new: NewTopic) -> list[CreateTopic]:
    """Nothing where somebody created the topic meanwhile with as many partitions, by which keys were spread."""
    found = state.topics.get(new.name)
    if found is None:
        return [action for action in create_topic(state, new).actions if isinstance(action, CreateTopic)]
    if len(found.partitions) != new.partitions:
        raise InvalidPartitionsError(
            f"topic {new.name!r} was created with {len(found.partitions)} partitions while records were written for "
            f"{new.partitions}, so keys would be in the wrong ones; run the write again",
            topic=new.name,
        )
    return []


def _check_distinct(creations: Sequence[CreateTopic]) -> None:
    """Names that are created together must not collide either."""
    first: dict[str, CreateTopic] = {}
    for action in creations:
        other = first.setdefault(collision_key(action.topic), action)
        if other.topic == action.topic and other is not action:
            raise InvalidTopicError(f"topic {action.topic!r} is to be created twice; name it once", topic=action.topic)
        if other is not action:
            raise InvalidTopicError(
                f"topics {other.topic!r} and {action.topic!r} cannot be created together: names may not differ only "
                "in '.' and '_', which metrics cannot tell apart; choose another name",
                topic=action.topic,
            )


class _Cursor:
    """The partitions as the appends of one request change them. Lives for one decision."""

    def __init__(self, state: State, created: Mapping[str, CreateTopic], acks: int) -> None:
        self.actions: list[Action] = []
        self._state = state
        self._created = created
        self._acks = acks
        self._ends: dict[tuple[str, int], int] = {}
        self._led: dict[tuple[str, int], PartitionState] = {}
        self._sequences: dict[tuple[str, int, int], tuple[int, int]] = {}

    def append(self, item: PartitionAppend) -> Appended:
        validate_written_topic(item.topic)
        topic_id, partition = self._find(item)
        place = (item.topic, item.partition)
        if item.producer_id >= 0:
            earlier = self._check_producer(item, partition)
            if earlier is not None:
                return Appended(item.topic, topic_id, item.partition, earlier, item.run.records)
        check_not_stale(self._state, item.run, *place)
        run = with_counted_copies(self._state, item.run, *place)
        if not is_led_alone(partition, run):
            partition = self._with_copies(item, run, topic_id, partition)
        end = self._ends.get(place, partition.log_end_offset)
        self._ends[place] = end + item.run.records
        self.actions.append(
            Append(
                topic=item.topic,
                topic_id=topic_id,
                partition=item.partition,
                base_offset=end,
                leader_epoch=partition.leader_epoch,
                run=run,
                log_append_time=item.log_append_time,
                producer_id=item.producer_id,
                producer_epoch=item.producer_epoch,
                base_sequence=item.base_sequence,
            )
        )
        return Appended(item.topic, topic_id, item.partition, end, item.run.records)

    def _with_copies(self, item: PartitionAppend, run: Run, topic_id: str, partition: PartitionState) -> PartitionState:
        """The partition as the run leaves it; where that takes another leader, it is elected before the run."""
        place = (item.topic, item.partition)
        before = self._led.get(place, partition)
        created = self._created.get(item.topic)
        configs = self._state.topics[item.topic].configs if created is None else created.configs
        after = with_copies(self._state, configs, *place, before, run, self._acks)
        if after.leader != before.leader:
            self.actions.append(election(item.topic, topic_id, item.partition, after))
        self._led[place] = after
        return after

    def _find(self, item: PartitionAppend) -> tuple[str, PartitionState]:
        created = self._created.get(item.topic)
        if created is not None:
            if not 0 <= item.partition < len(created.replicas):
                raise _no_partition(item, len(created.replicas))
            replicas = tuple(created.replicas[item.partition])
            return created.topic_id, PartitionState(replicas=replicas, isr=replicas, leader=replicas[0])
        topic = self._state.topic(item.topic)
        if item.topic_id and topic.topic_id != item.topic_id:
            raise UnknownTopicOrPartitionError(
                f"topic {item.topic!r} was deleted and created again (id {item.topic_id} then, {topic.topic_id} now) "
                "while records were written for it; run the write again",
                topic=item.topic,
                partition=item.partition,
            )
        if not 0 <= item.partition < len(topic.partitions):
            raise _no_partition(item, len(topic.partitions))
        return topic.topic_id, topic.partitions[item.partition]

    def _check_producer(self, item: PartitionAppend, partition: PartitionState) -> int | None:
        """The base offset this very append got before, or None if it is the next one; raises if it is neither."""
        global_state = self._state.producers.get(item.producer_id)
        if global_state is not None and item.producer_epoch < global_state.epoch:
            raise _fenced(item, global_state.epoch)
        last = last_sequence(item.base_sequence, item.run.records)
        key = (item.topic, item.partition, item.producer_id)
        known = partition.producers.get(item.producer_id)
        epoch, expected = -1, 0
        if key in self._sequences:
            epoch, expected = self._sequences[key]
        elif known is not None:
            epoch, expected = known.epoch, last_sequence(known.appends[-1].last, 2)
            if epoch == item.producer_epoch:
                for earlier in known.appends:
                    if (earlier.first, earlier.last) == (item.base_sequence, last):
                        return earlier.base_offset
        elif global_state is None or not global_state.transactional_id:  # a transaction commits once by its epoch
            _check_not_forgotten(item, partition)
        self._check_sequence(item, epoch, expected)
        self._sequences[key] = (item.producer_epoch, last_sequence(last, 2))
        return None

    @staticmethod
    def _check_sequence(item: PartitionAppend, epoch: int, expected: int) -> None:
        """Kafka's ProducerAppendInfo: a new epoch starts at 0, the same epoch goes on; an unknown producer may do
        either, since what the partition knew of it may have expired (before its file, see ``_check_not_forgotten``)."""
        if epoch < 0:
            return
        if item.producer_epoch < epoch:
            raise _fenced(item, epoch)
        if item.producer_epoch > epoch:
            expected = 0
        if item.base_sequence != expected:
            raise OutOfOrderSequenceNumberError(
                f"producer {item.producer_id} epoch {item.producer_epoch} sent sequence {item.base_sequence} to "
                f"{item.topic}-{item.partition}, which expects {expected}: records in between were lost or sent out of "
                "order; close the producer and start a new one",
                topic=item.topic,
                partition=item.partition,
            )


def _no_partition(item: PartitionAppend, count: int) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"topic {item.topic!r} has partitions 0 to {count - 1}, not {item.partition}",
        topic=item.topic,
        partition=item.partition,
    )


def _check_not_forgotten(item: PartitionAppend, partition: PartitionState) -> None:
    """Raise UnknownProducerIdError where this append may be in the log, and the partition has forgotten it.

    Whoever began the file at the version of the newest such commit, or later, first asked after that commit.
    """
    begun = begun_at(item.run.path)
    if NO_VERSION < begun < partition.producers_forgotten_at:
        raise UnknownProducerIdError(
            f"{item.topic}-{item.partition} does not know producer {item.producer_id}: {item.run.path} was begun at "
            f"version {begun} of the cluster, and version {partition.producers_forgotten_at} forgot producers that "
            "were silent for producer.id.expiration.ms, so whether an earlier try has appended these records is not "
            "known. This one has not: write them again under a new producer id only if no earlier try can have "
            "succeeded",
            topic=item.topic,
            partition=item.partition,
            producer_id=item.producer_id,
            path=item.run.path,
        )


def _fenced(item: PartitionAppend, epoch: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {item.producer_id} has epoch {item.producer_epoch}, and epoch {epoch} writes to "
        f"{item.topic}-{item.partition} now: a newer instance has taken over; stop this one",
        topic=item.topic,
        partition=item.partition,
    )
