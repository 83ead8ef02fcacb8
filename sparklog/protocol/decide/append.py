"""Decision to append written runs: their offsets, checks of producers, and everything that is committed with them.

Rules: as in ``decide``.
Not for: which brokers must hold the files (``acks``), producer ids and epochs (``producers``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import (
    InvalidPartitionsError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTopicError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.commits import Action, Append, ApplicationWrite, CreateTopic, Run, WrittenRange
from sparklog.protocol.decide.acks import (
    ACKS_ALL,
    check_not_stale,
    is_led_alone,
    make_partition_change,
    with_copies,
    with_counted_copies,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.producers import ProducerIdentity, after_transaction, is_committed, transaction_end
from sparklog.protocol.decide.topics import NewTopic, create_written_topic
from sparklog.protocol.file_names import NO_VERSION, begun_at
from sparklog.protocol.names import collision_key, validate_application_id, validate_written_topic
from sparklog.protocol.partition_fold import last_sequence
from sparklog.protocol.state import ApplicationState, PartitionState, State, missing_partition

UNKNOWN_OFFSET = -1
"""``Appended.base_offset`` of records that are certainly in the log, but whose offsets are no longer known."""


class PartitionAppend(msgspec.Struct, frozen=True, kw_only=True):
    """One run of written batches for one partition. ``topic_id`` is that of the topic the writer saw. ``null_keys``: a
    record has no key."""

    topic: str
    topic_id: str
    partition: int
    run: Run
    null_keys: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


class Begun(NamedTuple):
    """The commit that the writer of files knew when it began them: its version, which is in their names, and its
    digest. The version alone means nothing in a root that was restored from before it: there another commit gets it.

    ``reader`` is the coordinator that had read it, for offsets to commit: the same one notices if the root is restored
    since, another may not.
    """

    version: int
    digest: str
    reader: str = ""


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Appends that become visible together, or not at all.

    ``application`` with ``application_version`` makes the request idempotent: a version at or below the newest one is
    a repetition and gets the result of that one, unless that is the write of commit ``application_replaces``, which the
    caller knows to be a different write. ``is_repetition``: the caller has found it to be one, and dropped its records.
    ``source_digest`` is stored with it. ``new_topics`` are created with it if they do not exist yet.
    The offsets of ``groups`` are committed with the records: consume-transform-produce. With a ``transaction`` the
    request is a complete transaction of the named producer; sequences of its runs start at 0. ``acks`` is Kafka's: for
    -1 (all) ``min.insync.replicas`` in-sync replicas must hold the runs, for 1 and 0 one. ``timeline`` is
    ``CommitLog.unlinked_jumps`` at the time when the producer got its id, or began its files: the coordinator refuses
    what may belong to another timeline. ``begun`` says the same for files that another process has written.
    """

    appends: Sequence[PartitionAppend]
    acks: int = ACKS_ALL
    application: str = ""
    application_version: int = -1
    application_replaces: int = -1
    is_repetition: bool = False
    source_digest: str = ""
    new_topics: Sequence[NewTopic] = ()
    groups: Sequence[GroupCommit] = ()
    transaction: ProducerIdentity | None = None
    timeline: int | None = None
    begun: Sequence[Begun] = ()


class Appended(NamedTuple):
    """Offsets of one appended run: ``[base_offset, base_offset + records)``, or ``UNKNOWN_OFFSET``.

    ``log_append_time``: its records have the commit's timestamp.
    """

    topic: str
    topic_id: str
    partition: int
    base_offset: int
    records: int
    log_append_time: bool = False


class AppendResult(NamedTuple):
    """The result of an AppendRequest. ``duplicate``: an earlier write had already appended everything.

    ``producer`` is the identity for a transactional producer's next transaction.
    """

    appended: list[Appended]
    duplicate: bool = False
    producer: ProducerIdentity | None = None


def decide_append(state: State, request: AppendRequest) -> Decision[AppendResult]:
    """Assign offsets to written runs.

    Raises InvalidTopicError for internal topics, UnknownTopicOrPartitionError if a topic was deleted or re-created
    since the records were written, or may not be created any more, InvalidRecordError for a record without a key if the
    topic is compacted by now, NotLeaderOrFollowerError, NotEnoughReplicasError and StaleWriteError if they have to be
    written again, ProducerFencedError and OutOfOrderSequenceNumberError by Kafka's rules for idempotent producers,
    UnknownProducerIdError if an earlier attempt at the same append may have been forgotten, InvalidRequestError for a
    repetition whose number is not known, and the errors of ``commit_group_offsets``.
    """
    if request.application:
        validate_application_id(request.application)
        newest = state.applications.get(request.application)
        if newest is not None and _is_repeated(request, newest):
            return Decision([], AppendResult([Appended(**asdict(run)) for run in newest.ranges], duplicate=True))
        if request.is_repetition:  # the number was forgotten meanwhile, or the root restored from a copy without it
            raise InvalidRequestError(
                f"version {request.application_version} of application {request.application} was in the log when this "
                "job began, so its rows were not written, and is not any more: the application was deleted, or the "
                "root restored from a copy. Nothing was committed; run the job again"
            )
    if request.transaction is not None and is_committed(state, request.transaction):
        return Decision([], _repeat_result(state, request, request.transaction))
    creations = [creation for new in request.new_topics for creation in _create_if_missing(state, new)]
    _check_distinct(creations)
    created = {action.topic: action for action in creations}
    cursor = _Cursor(state, created, request.acks)
    appended = [cursor.append(item) for item in request.appends]
    has_appends = bool(cursor.actions)
    actions: list[Action] = [*creations, *cursor.actions]
    if request.application:
        actions.append(_make_application_write(request, appended))
    for commit in request.groups:
        actions += commit_group_offsets(state, commit).actions
    producer = None
    if request.transaction is not None:
        producer = after_transaction(request.transaction)
        actions.append(transaction_end(state, request.transaction))
    return Decision(actions, AppendResult(appended, duplicate=bool(appended) and not has_appends, producer=producer))


def _is_repeated(request: AppendRequest, newest: ApplicationState) -> bool:
    return request.application_version <= newest.version and request.application_replaces != newest.commit_version


def _repeat_result(state: State, request: AppendRequest, transaction: ProducerIdentity) -> AppendResult:
    """Return the result of a transaction that is committed already; its producer has written nothing since.

    Runs without sequences were appended as well, but their offsets are not recorded.
    """
    appended = [
        Appended(
            item.topic,
            item.topic_id,
            item.partition,
            _find_committed_offset(state, item, transaction),
            item.run.records,
        )
        for item in request.appends
        if item.producer_id >= 0
    ]
    return AppendResult(appended, duplicate=True, producer=after_transaction(transaction))


def _find_committed_offset(state: State, item: PartitionAppend, transaction: ProducerIdentity) -> int:
    """Return the base offset of a run of a committed transaction; ``UNKNOWN_OFFSET`` if its topic was deleted or no
    longer records it."""
    topic = state.topics.get(item.topic)
    if topic is None or item.topic_id not in ("", topic.topic_id) or item.partition >= len(topic.partitions):
        return UNKNOWN_OFFSET
    producer = topic.partitions[item.partition].producers.get(transaction.producer_id)
    if producer is None or producer.epoch != transaction.producer_epoch:
        return UNKNOWN_OFFSET
    # Only the last of many runs for a partition are recorded; all of them got consecutive offsets.
    last = producer.appends[-1]
    return last.base_offset - (last.first - item.base_sequence)


def _make_application_write(request: AppendRequest, appended: list[Appended]) -> ApplicationWrite:
    """Return the action that records an application's write, with one range per partition: runs of one request get
    consecutive offsets, however many tasks wrote them."""
    ranges: dict[tuple[str, str, int], Appended] = {}
    for run in appended:
        partition = (run.topic, run.topic_id, run.partition)
        first = ranges.get(partition)
        ranges[partition] = run if first is None else first._replace(records=first.records + run.records)
    return ApplicationWrite(
        application=request.application,
        application_version=request.application_version,
        ranges=[
            WrittenRange(
                topic=run.topic,
                topic_id=run.topic_id,
                partition=run.partition,
                base_offset=run.base_offset,
                records=run.records,
            )
            for run in ranges.values()
        ],
        source_digest=request.source_digest,
    )


def _create_if_missing(state: State, new: NewTopic) -> list[CreateTopic]:
    """Return no action if another writer has already created the topic with the same partition count, by which keys
    were partitioned."""
    existing = state.topics.get(new.name)
    if existing is None:
        return [action for action in create_written_topic(state, new).actions if isinstance(action, CreateTopic)]
    if len(existing.partitions) != new.partitions:
        raise InvalidPartitionsError(
            f"topic {new.name!r} was created with {len(existing.partitions)} partitions while records were written for "
            f"{new.partitions}, so keys would be in the wrong partitions; run the write again",
            topic=new.name,
        )
    return []


def _check_distinct(creations: Sequence[CreateTopic]) -> None:
    """Check that names of topics that are created together do not collide."""
    first: dict[str, CreateTopic] = {}
    for action in creations:
        other = first.setdefault(collision_key(action.topic), action)
        if other.topic == action.topic and other is not action:
            raise InvalidTopicError(f"topic {action.topic!r} would be created twice; name it once", topic=action.topic)
        if other is not action:
            raise InvalidTopicError(
                f"topics {other.topic!r} and {action.topic!r} cannot be created together: names may not differ only "
                "in '.' and '_', which metrics cannot tell apart; choose another name",
                topic=action.topic,
            )


class _Rules(NamedTuple):
    """What a topic's newest config says: whether records get the commit's timestamp, and whether all need keys."""

    stamps: bool
    needs_keys: bool


class _Cursor:
    """State of the partitions while the appends of one request are decided. Lives for one decision."""

    def __init__(self, state: State, created: Mapping[str, CreateTopic], acks: int) -> None:
        self.actions: list[Action] = []
        self._state = state
        self._created = created
        self._acks = acks
        self._rules: dict[str, _Rules] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._led: dict[tuple[str, int], PartitionState] = {}
        self._sequences: dict[tuple[str, int, int], tuple[int, int]] = {}

    def append(self, item: PartitionAppend) -> Appended:
        validate_written_topic(item.topic)
        topic_id, partition = self._find(item)
        topic_partition = (item.topic, item.partition)
        rules = self._rules_of(item.topic)
        if item.producer_id >= 0:
            earlier_offset = self._check_producer(item, partition)
            if earlier_offset is not None:
                return Appended(item.topic, topic_id, item.partition, earlier_offset, item.run.records, rules.stamps)
        if item.null_keys and rules.needs_keys:
            raise _keyless(item)
        check_not_stale(self._state, item.run, *topic_partition)
        run = with_counted_copies(self._state, item.run, *topic_partition)
        if not is_led_alone(partition, run):
            partition = self._with_copies(item, run, topic_id, partition)
        end = self._ends.get(topic_partition, partition.log_end_offset)
        self._ends[topic_partition] = end + item.run.records
        self.actions.append(
            Append(
                topic=item.topic,
                topic_id=topic_id,
                partition=item.partition,
                base_offset=end,
                leader_epoch=partition.leader_epoch,
                run=run,
                log_append_time=rules.stamps,
                producer_id=item.producer_id,
                producer_epoch=item.producer_epoch,
                base_sequence=item.base_sequence,
            )
        )
        return Appended(item.topic, topic_id, item.partition, end, item.run.records, rules.stamps)

    def _rules_of(self, topic: str) -> _Rules:
        rules = self._rules.get(topic)
        if rules is None:
            config = TopicConfig.resolve(self._configs(topic), self._state.configs)
            stamps = config.message_timestamp_type == "LogAppendTime"
            rules = self._rules[topic] = _Rules(stamps, "compact" in config.cleanup_policy)
        return rules

    def _configs(self, topic: str) -> Mapping[str, str]:
        created = self._created.get(topic)
        return self._state.topics[topic].configs if created is None else created.configs

    def _with_copies(self, item: PartitionAppend, run: Run, topic_id: str, partition: PartitionState) -> PartitionState:
        """Return the partition after the run; if that needs another leader, the election comes before the append."""
        topic_partition = (item.topic, item.partition)
        before = self._led.get(topic_partition, partition)
        configs = self._configs(item.topic)
        after = with_copies(self._state, configs, *topic_partition, before, run, self._acks)
        if after.leader != before.leader:
            self.actions.append(make_partition_change(item.topic, topic_id, item.partition, after))
        self._led[topic_partition] = after
        return after

    def _find(self, item: PartitionAppend) -> tuple[str, PartitionState]:
        creation = self._created.get(item.topic)
        if creation is not None:
            if not 0 <= item.partition < len(creation.replicas):
                raise missing_partition(item.topic, item.partition, len(creation.replicas))
            replicas = tuple(creation.replicas[item.partition])
            return creation.topic_id, PartitionState(replicas=replicas, isr=replicas, leader=replicas[0])
        topic = self._state.topic(item.topic)
        if item.topic_id and topic.topic_id != item.topic_id:
            raise UnknownTopicOrPartitionError(
                f"topic {item.topic!r} was deleted and created again (id {item.topic_id} then, {topic.topic_id} now) "
                "while records were written for it; run the write again",
                topic=item.topic,
                partition=item.partition,
            )
        return topic.topic_id, self._state.partition(item.topic, item.partition)

    def _check_producer(self, item: PartitionAppend, partition: PartitionState) -> int | None:
        """Return the base offset of this append if it is a duplicate, None if it is the next one; raise otherwise."""
        global_state = self._state.producers.get(item.producer_id)
        if global_state is not None and item.producer_epoch < global_state.epoch:
            raise _fenced(item, global_state.epoch)
        last = last_sequence(item.base_sequence, item.run.records)
        key = (item.topic, item.partition, item.producer_id)
        producer = partition.producers.get(item.producer_id)
        epoch, expected = -1, 0
        if key in self._sequences:
            epoch, expected = self._sequences[key]
        elif producer is not None:
            epoch, expected = producer.epoch, last_sequence(producer.appends[-1].last, 2)
            if epoch == item.producer_epoch:
                for earlier in producer.appends:
                    if (earlier.first, earlier.last) == (item.base_sequence, last):
                        return earlier.base_offset
        elif global_state is None or not global_state.transactional_id:  # a transaction commits once by its epoch
            _check_not_forgotten(item, partition)
        self._check_sequence(item, epoch, expected)
        self._sequences[key] = (item.producer_epoch, last_sequence(last, 2))
        return None

    @staticmethod
    def _check_sequence(item: PartitionAppend, epoch: int, expected: int) -> None:
        """Check the sequence as Kafka's ProducerAppendInfo: a new epoch starts at 0, the same epoch continues; an
        unknown producer may do either, since its state in the partition may have expired (before its file was begun,
        see ``_check_not_forgotten``)."""
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


def _check_not_forgotten(item: PartitionAppend, partition: PartitionState) -> None:
    """Raise UnknownProducerIdError if this append may already be in the log, but the partition has forgotten it.

    The first attempt for a file begun at or after the newest commit that forgot producers came after that commit.
    """
    begun = begun_at(item.run.path)
    if NO_VERSION < begun < partition.producers_forgotten_at:
        raise UnknownProducerIdError(
            f"{item.topic}-{item.partition} does not know producer {item.producer_id}: {item.run.path} was begun at "
            f"version {begun} of the cluster, and version {partition.producers_forgotten_at} forgot producers that "
            "were idle for producer.id.expiration.ms, so it is unknown whether an earlier attempt has appended these "
            "records. This one has not: write them again under a new producer id only if no earlier attempt can have "
            "succeeded",
            topic=item.topic,
            partition=item.partition,
            producer_id=item.producer_id,
            path=item.run.path,
        )


def _keyless(item: PartitionAppend) -> InvalidRecordError:
    return InvalidRecordError(
        f"topic {item.topic!r} was made compacted while records were written for {item.topic}-{item.partition}, and "
        "one of them has no key: compaction would remove it. None of them is in the log; give every record a key, or "
        "remove compact from its cleanup.policy",
        topic=item.topic,
        partition=item.partition,
    )


def _fenced(item: PartitionAppend, epoch: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"producer {item.producer_id}: epoch {item.producer_epoch} is fenced, the current epoch of "
        f"{item.topic}-{item.partition} is {epoch}: a newer instance has taken over; stop this one",
        topic=item.topic,
        partition=item.partition,
    )
