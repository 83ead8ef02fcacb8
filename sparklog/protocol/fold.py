"""The fold: (state, commit) -> state. Every process that reads the same commits holds the same state.

Rules: pure; refuses a commit that does not follow from the state it is applied to (a wrong version, predecessor,
checksum, or an action that contradicts the state) with CorruptMetadataError, since a commit in the log has been decided
already and can only fail to apply when its bytes are not what was decided. A commit costs the size of its change and of
the few maps it touches, not of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from sparklog import limits
from sparklog.errors import CorruptMetadataError
from sparklog.protocol import checksum as sums
from sparklog.protocol import groups as membership
from sparklog.protocol import levels, log_time
from sparklog.protocol import partition_changes as changes
from sparklog.protocol.commits import (
    AcknowledgeRevocation,
    Action,
    AlterConfig,
    Append,
    ApplicationWrite,
    ChangeBroker,
    ChangePartition,
    Commit,
    CommitOffsets,
    CreatePartitions,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteRecords,
    DeleteSegments,
    DeleteTopic,
    ElectController,
    FenceWriters,
    ForgetRemovedFiles,
    InitProducer,
    JoinGroup,
    LeaveGroup,
    MoveCluster,
    RegisterBroker,
    RemoveFiles,
    ReplaceSegments,
    ResetTime,
    UnregisterBroker,
    commit_key,
)
from sparklog.protocol.state import (
    ApplicationState,
    BrokerState,
    ControllerState,
    GroupOffset,
    GroupState,
    PartitionProducer,
    PartitionState,
    ProducerState,
    RemovedFiles,
    SequenceRange,
    State,
    TopicState,
)

_OfPartition = Append | ReplaceSegments | DeleteSegments | DeleteRecords | ChangePartition

TRANSACTIONAL_ID_EXPIRATION_MS = 604_800_000
"""How long a silent transactional id is remembered: Kafka's default of ``transactional.id.expiration.ms``, a week."""

PRODUCER_ID_EXPIRATION_MS = 86_400_000
"""How long a partition remembers a silent producer: Kafka's default of ``producer.id.expiration.ms``, one day."""


def apply(state: State, commit: Commit, digest: str) -> State:
    """The state after ``commit``, whose stored bytes have this digest.

    Raises CorruptMetadataError when the commit does not follow from ``state``.
    """
    _check_follows(state, commit)
    draft = Draft(state, commit.timestamp)
    for action in commit.actions:
        draft.apply(action)
    new = draft.finish(commit.version, digest, commit.format)
    if new.checksum != commit.checksum:
        raise _contradiction(
            commit.version, f"its checksum of live segments is {commit.checksum}, the state gives {new.checksum}"
        )
    return new


def _check_follows(state: State, commit: Commit) -> None:
    if commit.version != state.version + 1:
        raise _contradiction(commit.version, f"it was applied to version {state.version}")
    if commit.previous != state.digest:
        raise _contradiction(
            commit.version,
            f"it names {commit.previous} as the digest of commit {state.version}, whose bytes give {state.digest}: "
            "one of the two was edited or replaced",
        )
    if commit.timestamp <= state.timestamp_ms and ResetTime(time_ms=commit.timestamp) not in commit.actions:
        raise _contradiction(commit.version, f"its time {commit.timestamp} is not after {state.timestamp_ms}")


def _contradiction(version: int, why: str) -> CorruptMetadataError:
    path = commit_key(version)
    return CorruptMetadataError(
        f"commit {path} does not follow from the commits before it: {why}; restore it from a copy of the root",
        path=path,
    )


class Draft:
    """A state in the making: copies each map once, when it first changes. Not thread-safe; lives for one commit.

    ``decide`` uses it too, to see what the earlier actions of a commit that is being put together amount to.
    """

    def __init__(self, state: State, timestamp_ms: int) -> None:
        self._state = state
        self._timestamp_ms = timestamp_ms
        self._maps: dict[str, Any] = {}
        self._partitions: dict[str, list[PartitionState]] = {}
        self._topic_sums: dict[str, int] = {}
        self._checksum = sums.from_text(state.checksum)
        self._next_producer_id = state.next_producer_id

    def apply(self, action: Action) -> None:
        """Take one action in. Raises CorruptMetadataError if it contradicts the state."""
        _FOLDS[type(action)](self, action)

    def finish(self, version: int, digest: str, level: int = levels.CURRENT) -> State:
        """The new state after a commit of this level; the draft may be gone on with."""
        topics = self._maps.get("topics", self._state.topics)
        if self._partitions:
            topics = dict(topics)
            for name, partitions in self._partitions.items():
                checksum = sums.to_text(self._topic_sums[name])
                topics[name] = replace(topics[name], partitions=tuple(partitions), checksum=checksum)
        return replace(
            self._state,
            **{**self._maps, "topics": topics},
            version=version,
            timestamp_ms=self._timestamp_ms,
            digest=digest,
            checksum=sums.to_text(self._checksum),
            next_producer_id=self._next_producer_id,
            level=max(self._state.level, level),
        )

    # -- the maps, copied on first change

    def _map(self, name: str) -> dict[Any, Any]:
        if name not in self._maps:
            self._maps[name] = dict(getattr(self._state, name))
        return self._maps[name]  # type: ignore[no-any-return]

    def _refuse(self, why: str) -> CorruptMetadataError:
        return _contradiction(self._state.version + 1, why)

    def _topic(self, name: str, topic_id: str) -> TopicState:
        topics = self._maps.get("topics", self._state.topics)
        topic = topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            raise self._refuse(f"it changes topic {name!r} with id {topic_id}, which does not exist")
        return topic  # type: ignore[no-any-return]

    def _partition_list(self, name: str, topic_id: str) -> list[PartitionState]:
        topic = self._topic(name, topic_id)
        if name not in self._partitions:
            self._partitions[name] = list(topic.partitions)
            self._topic_sums[name] = sums.from_text(topic.checksum)
        return self._partitions[name]

    # -- brokers, topics, configs

    def _register_broker(self, action: RegisterBroker) -> None:
        brokers = self._map("brokers")
        if action.broker in brokers:
            raise self._refuse(f"broker {action.broker} is registered already")
        brokers[action.broker] = BrokerState(broker=action.broker, url=action.url)

    def _unregister_broker(self, action: UnregisterBroker) -> None:
        brokers = self._map("brokers")
        if action.broker not in brokers:
            raise self._refuse(f"broker {action.broker} is not registered")
        del brokers[action.broker]

    def _change_broker(self, action: ChangeBroker) -> None:
        brokers = self._map("brokers")
        if action.broker not in brokers:
            raise self._refuse(f"broker {action.broker} is not registered")
        known = brokers[action.broker]
        brokers[action.broker] = BrokerState(
            broker=known.broker,
            url=action.url or known.url,
            online=known.online if action.online is None else action.online,
            cordoned=known.cordoned if action.cordoned is None else action.cordoned,
            lost_files_at=self._state.version + 1 if action.lost_files or action.url else known.lost_files_at,
        )

    def _elect_controller(self, action: ElectController) -> None:
        known = self._maps.get("controller", self._state.controller)
        if action.controller_epoch <= known.epoch:
            raise self._refuse(f"controller epoch {action.controller_epoch} is not after {known.epoch}")
        self._maps["controller"] = ControllerState(controller=action.controller, epoch=action.controller_epoch)

    def _change_partition(self, action: ChangePartition) -> None:
        partitions = self._partition_list(action.topic, action.topic_id)
        partition = self._partition_of(action, partitions)
        wrong = changes.why_not_led(partition, action)
        if wrong:
            raise self._refuse(f"{action.topic}-{action.partition} cannot change: {wrong}")
        partitions[action.partition] = changes.led(partition, action)

    def _create_topic(self, action: CreateTopic) -> None:
        topics = self._map("topics")
        if action.topic in topics:
            raise self._refuse(f"topic {action.topic!r} exists already")
        topics[action.topic] = TopicState(
            name=action.topic,
            topic_id=action.topic_id,
            created_ms=self._timestamp_ms,
            partitions=tuple(self._new_partition(replicas) for replicas in action.replicas),
            configs=dict(action.configs),
        )
        self._rebalance_subscribers(action.topic)

    def _new_partition(self, replicas: list[int]) -> PartitionState:
        if not replicas:
            raise self._refuse("a partition has no replica")
        return PartitionState(replicas=tuple(replicas), isr=tuple(replicas), leader=replicas[0])

    def _create_partitions(self, action: CreatePartitions) -> None:
        partitions = self._partition_list(action.topic, action.topic_id)
        partitions.extend(self._new_partition(replicas) for replicas in action.replicas)
        self._rebalance_subscribers(action.topic)

    def _delete_topic(self, action: DeleteTopic) -> None:
        topic = self._topic(action.topic, action.topic_id)
        live = self._topic_sums.pop(action.topic, sums.from_text(topic.checksum))
        self._partitions.pop(action.topic, None)
        del self._map("topics")[action.topic]
        self._checksum = sums.subtract(self._checksum, live)
        self._forget_offsets_of(action.topic_id, len(topic.partitions))
        self._rebalance_subscribers(action.topic)

    def _alter_config(self, action: AlterConfig) -> None:
        if not action.topic:
            self._maps["configs"] = _altered(self._map("configs"), action)
            return
        topics = self._map("topics")
        if action.topic not in topics:
            raise self._refuse(f"it configures topic {action.topic!r}, which does not exist")
        topic = topics[action.topic]
        topics[action.topic] = replace(topic, configs=_altered(topic.configs, action))

    # -- records

    def _append(self, action: Append) -> None:
        partitions = self._partition_list(action.topic, action.topic_id)
        partition = self._partition_of(action, partitions)
        if action.base_offset != partition.log_end_offset:
            raise self._refuse(
                f"it appends to {action.topic}-{action.partition} at offset {action.base_offset}, "
                f"and the log ends at {partition.log_end_offset}"
            )
        added = sums.run_hash(action.topic_id, action.partition, action.base_offset, action.run)
        self._count(action.topic, added, sums.EMPTY)
        partitions[action.partition] = _appended(partition, action, self._timestamp_ms)

    def _partition_of(self, action: _OfPartition, partitions: list[PartitionState]) -> PartitionState:
        if action.partition >= len(partitions):
            raise self._refuse(f"it changes {action.topic}-{action.partition}, which does not exist")
        return partitions[action.partition]

    def _count(self, topic: str, added: int, removed: int) -> None:
        """Segments with these hashes came and went."""
        self._checksum = sums.subtract(sums.add(self._checksum, added), removed)
        self._topic_sums[topic] = sums.subtract(sums.add(self._topic_sums[topic], added), removed)

    def _replace_segments(self, action: ReplaceSegments) -> None:
        partitions = self._partition_list(action.topic, action.topic_id)
        partition = self._partition_of(action, partitions)
        wrong = changes.why_not_replaced(partition, action)
        if wrong:
            raise self._refuse(f"its segments of {action.topic}-{action.partition} do not fit: {wrong}")
        hashes = [sums.replacement_hash(action.topic_id, action.partition, added) for added in action.added]
        self._count(action.topic, sums.total(hashes), sums.from_text(action.removed.checksum))
        partitions[action.partition] = changes.replaced(partition, action, self._state.version + 1)

    def _delete_segments(self, action: DeleteSegments) -> None:
        partitions = self._partition_list(action.topic, action.topic_id)
        partition = self._partition_of(action, partitions)
        wrong = changes.why_not_deleted(partition, action)
        if wrong:
            raise self._refuse(f"segments of {action.topic}-{action.partition} cannot be deleted: {wrong}")
        self._count(action.topic, sums.EMPTY, sums.from_text(action.removed.checksum))
        partitions[action.partition] = changes.deleted(partition, action, self._state.version + 1)

    def _delete_records(self, action: DeleteRecords) -> None:
        partitions = self._partition_list(action.topic, action.topic_id)
        partition = self._partition_of(action, partitions)
        start, end = partition.log_start_offset, partition.log_end_offset
        if not start <= action.log_start_offset <= end:
            raise self._refuse(
                f"it starts {action.topic}-{action.partition} at {action.log_start_offset}, outside {start} to {end}"
            )
        partitions[action.partition] = replace(partition, log_start_offset=action.log_start_offset)

    # -- files out of the log

    def _remove_files(self, action: RemoveFiles) -> None:
        self._map("removed_files")[action.listing] = RemovedFiles(
            version=self._state.version + 1,
            delete_at_ms=self._timestamp_ms + action.delay_ms,
            files=action.files,
            size_bytes=action.size_bytes,
        )

    def _forget_removed_files(self, action: ForgetRemovedFiles) -> None:
        waiting = self._map("removed_files")
        for listing in action.listings:
            waiting.pop(listing, None)

    def _fence_writers(self, action: FenceWriters) -> None:
        if action.version > self._state.version:
            raise self._refuse(f"it fences writers at version {action.version}, which is not there yet")
        self._maps["writer_fence"] = max(action.version, self._state.writer_fence)

    def _move_cluster(self, action: MoveCluster) -> None:
        self._maps["moved_to"] = action.url

    def _reset_time(self, action: ResetTime) -> None:
        """What the state holds of times after this one is set to it; rare, so it may look at everything."""
        now_ms, state = action.time_ms, self._state
        groups, removed = self._map("groups"), self._map("removed_files")
        groups.update(list(log_time.groups_until(groups, now_ms)))
        removed.update(list(log_time.removed_until(removed, now_ms, state.timestamp_ms)))
        producers = self._map("producers")
        for number, known in list(producers.items()):
            if known.timestamp_ms > now_ms:
                producers[number] = replace(known, timestamp_ms=now_ms)
        topics = self._map("topics")
        for name, topic in list(topics.items()):
            if topic.created_ms > now_ms:
                topics[name] = replace(topic, created_ms=now_ms)
            partitions = self._partition_list(name, topic.topic_id)
            partitions[:] = [log_time.partition_until(partition, now_ms) for partition in partitions]

    def _application_write(self, action: ApplicationWrite) -> None:
        self._map("applications")[action.application] = ApplicationState(
            version=action.application_version,
            commit_version=self._state.version + 1,
            ranges=tuple(action.ranges),
            source_digest=action.source_digest,
        )

    def _init_producer(self, action: InitProducer) -> None:
        if action.producer_id > self._next_producer_id:
            raise self._refuse(
                f"it gives out producer id {action.producer_id}, and the next one is {self._next_producer_id}"
            )
        self._next_producer_id = max(self._next_producer_id, action.producer_id + 1)
        if not action.transactional_id and not action.producer_epoch:
            return  # nobody can fence it: the partitions remember what it wrote for as long as they need to
        oldest = self._timestamp_ms - TRANSACTIONAL_ID_EXPIRATION_MS
        producers = {number: known for number, known in self._map("producers").items() if known.timestamp_ms >= oldest}
        producers[action.producer_id] = ProducerState(
            epoch=action.producer_epoch,
            transactional_id=action.transactional_id,
            committed_epoch=action.committed_epoch,
            timestamp_ms=self._timestamp_ms,
        )
        self._maps["producers"] = producers

    # -- groups

    def _commit_offsets(self, action: CommitOffsets) -> None:
        groups = self._map("groups")
        group: GroupState = groups.get(action.group, GroupState())
        offsets = dict(group.offsets)
        for item in action.offsets:
            offsets[f"{item.topic_id}:{item.partition}"] = GroupOffset(
                topic=item.topic,
                topic_id=item.topic_id,
                partition=item.partition,
                offset=item.offset,
                leader_epoch=item.leader_epoch,
                metadata=item.metadata,
                timestamp_ms=self._timestamp_ms,
            )
        groups[action.group] = replace(group, offsets=offsets)

    def _join_group(self, action: JoinGroup) -> None:
        groups = self._map("groups")
        group = groups.get(action.group, GroupState())
        groups[action.group] = membership.with_member(group, action, self._partition_counts())

    def _leave_group(self, action: LeaveGroup) -> None:
        group = self._group(action.group)
        self._map("groups")[action.group] = membership.without_members(
            group, action.members, self._partition_counts(), self._timestamp_ms
        )

    def _acknowledge_revocation(self, action: AcknowledgeRevocation) -> None:
        group = self._group(action.group)
        if action.member not in group.members:
            raise self._refuse(f"member {action.member} is not in group {action.group!r}")
        self._map("groups")[action.group] = membership.acknowledged(group, action.member)

    def _delete_group(self, action: DeleteGroup) -> None:
        self._group(action.group)
        del self._map("groups")[action.group]

    def _delete_offsets(self, action: DeleteOffsets) -> None:
        group = self._group(action.group)
        gone = {f"{one.topic_id}:{one.partition}" for one in action.partitions}
        offsets = {key: offset for key, offset in group.offsets.items() if key not in gone}
        self._map("groups")[action.group] = replace(group, offsets=offsets)

    def _group(self, name: str) -> GroupState:
        group = self._maps.get("groups", self._state.groups).get(name)
        if group is None:
            raise self._refuse(f"it changes group {name!r}, which does not exist")
        return group  # type: ignore[no-any-return]

    def _partition_counts(self) -> dict[str, int]:
        topics = self._maps.get("topics", self._state.topics)
        return {name: len(self._partitions.get(name, topic.partitions)) for name, topic in topics.items()}

    def _rebalance_subscribers(self, topic: str) -> None:
        """A topic came, grew or went: groups that subscribe to it begin a generation."""
        groups = self._maps.get("groups", self._state.groups)
        concerned = [
            name for name, group in groups.items() if any(topic in member.topics for member in group.members.values())
        ]
        for name in concerned:
            self._map("groups")[name] = membership.rebalanced(groups[name], self._partition_counts())

    def _forget_offsets_of(self, topic_id: str, partitions: int) -> None:
        keys = {f"{topic_id}:{partition}" for partition in range(partitions)}
        for name, group in list(self._maps.get("groups", self._state.groups).items()):
            if not keys.isdisjoint(group.offsets):
                offsets = {key: offset for key, offset in group.offsets.items() if key not in keys}
                self._map("groups")[name] = replace(group, offsets=offsets)


# A table of the class: bound methods in each draft would be reference cycles, three a commit, for the collector.
_FOLDS: dict[type, Callable[[Draft, Any], None]] = {
    RegisterBroker: Draft._register_broker,
    CreateTopic: Draft._create_topic,
    CreatePartitions: Draft._create_partitions,
    DeleteTopic: Draft._delete_topic,
    AlterConfig: Draft._alter_config,
    Append: Draft._append,
    ApplicationWrite: Draft._application_write,
    InitProducer: Draft._init_producer,
    CommitOffsets: Draft._commit_offsets,
    JoinGroup: Draft._join_group,
    LeaveGroup: Draft._leave_group,
    AcknowledgeRevocation: Draft._acknowledge_revocation,
    DeleteGroup: Draft._delete_group,
    DeleteOffsets: Draft._delete_offsets,
    ReplaceSegments: Draft._replace_segments,
    DeleteSegments: Draft._delete_segments,
    DeleteRecords: Draft._delete_records,
    RemoveFiles: Draft._remove_files,
    ForgetRemovedFiles: Draft._forget_removed_files,
    FenceWriters: Draft._fence_writers,
    UnregisterBroker: Draft._unregister_broker,
    ChangeBroker: Draft._change_broker,
    ElectController: Draft._elect_controller,
    ChangePartition: Draft._change_partition,
    MoveCluster: Draft._move_cluster,
    ResetTime: Draft._reset_time,
}


def _altered(configs: dict[str, str], action: AlterConfig) -> dict[str, str]:
    kept = {name: value for name, value in configs.items() if name not in action.delete}
    return {**kept, **action.set}


def _appended(partition: PartitionState, action: Append, timestamp_ms: int) -> PartitionState:
    run = action.run
    newest_us = timestamp_ms * 1000 if action.log_append_time else run.max_timestamp_us
    producers = partition.producers
    if action.producer_id >= 0:
        producers = _with_producer(partition, action, timestamp_ms)
    return PartitionState(
        replicas=partition.replicas,
        isr=partition.isr if len(partition.isr) == 1 else changes.in_sync_after(partition.isr, run),
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        log_start_offset=partition.log_start_offset,
        log_end_offset=partition.log_end_offset + run.records,
        segments=partition.segments + 1,
        size_bytes=partition.size_bytes + run.size_bytes,
        max_timestamp_us=max(partition.max_timestamp_us, newest_us),
        producers=producers,
        adding=partition.adding,
        removing=partition.removing,
        cleaned_offset=partition.cleaned_offset,
        changes=partition.changes,
        followed_from=changes.followed_from(partition, run) if len(partition.replicas) > 1 else {},
    )


def _with_producer(partition: PartitionState, action: Append, timestamp_ms: int) -> dict[int, PartitionProducer]:
    """The partition's producers after an append; those silent for longer than Kafka remembers them are dropped."""
    oldest = timestamp_ms - PRODUCER_ID_EXPIRATION_MS
    kept = {number: known for number, known in partition.producers.items() if known.timestamp_ms >= oldest}
    known = kept.get(action.producer_id)
    earlier = known.appends if known is not None and known.epoch == action.producer_epoch else ()
    latest = SequenceRange(
        action.base_sequence,
        last_sequence(action.base_sequence, action.run.records),
        action.base_offset,
        action.run.records,
    )
    kept[action.producer_id] = PartitionProducer(
        epoch=action.producer_epoch,
        appends=(*earlier, latest)[-limits.IDEMPOTENT_BATCHES_KEPT :],
        timestamp_ms=timestamp_ms,
    )
    return kept


def last_sequence(base_sequence: int, records: int) -> int:
    """The sequence of the last of ``records`` records; sequences wrap to 0 after 2^31 - 1, as in Kafka."""
    return (base_sequence + records - 1) % 2**31
