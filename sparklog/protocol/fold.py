"""The fold: (state, commit) -> state. Every process that reads the same commits computes the same state.

Rules: pure; refuses a commit that does not follow from the state it is applied to (a wrong version, predecessor,
checksum, or an action that contradicts the state) with CorruptMetadataError, since a commit in the log has already been
decided and can only fail to apply if its bytes are not what was decided. Its cost is proportional to the change, not
to the cluster. Nothing expires because of a commit's time, which is one client's clock: expiry is by explicit actions
(``decide.expiry``). Not for: whether a change is allowed (``decide``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from immutables import Map
from msgspec.structs import replace

from sparklog.errors import CorruptMetadataError
from sparklog.protocol import indexes, log_time, partition_fold, schema_versions, segment_checksum
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
    ForgetApplications,
    ForgetPartitionProducers,
    ForgetProducers,
    ForgetRemovedFiles,
    InitProducer,
    JoinGroup,
    LeaveGroup,
    MoveCluster,
    PartitionAction,
    RegisterBroker,
    RemoveFiles,
    ReplaceSegments,
    ResetTime,
    UnregisterBroker,
    commit_key,
)
from sparklog.protocol.group import rebalance
from sparklog.protocol.state import (
    EMPTY,
    ApplicationState,
    BrokerState,
    ControllerState,
    GroupOffset,
    GroupState,
    PartitionState,
    ProducerState,
    RemovedFiles,
    State,
    TopicState,
    offset_key,
)

Entry = tuple[Any, ...]
"""Identifies an entry of the state, which checkpoints store individually, by its kind and key; all other fields of the
state are stored every time:

    topics               its name; all of it but its partitions and schemas
    schemas              topic, config, number of the version
    partitions           topic, number; all of it but its producers
    partition_producers  topic, number, producer id
    brokers, producers   its id
    applications         its name
    groups               its name; all of it but its offsets
    offsets              group, key of the offset
    removed_files        key of the listing
"""


class Folded(NamedTuple):
    """A state, and the entries that its newest commit may have changed, added or removed."""

    state: State
    touched: Set[Entry]


def fold(state: State, commit: Commit, digest: str) -> Folded:
    """Return the state after ``commit``, whose stored bytes have this digest, and the entries that it touched.

    Raises CorruptMetadataError if the commit does not follow from ``state``.
    """
    check_follows(state, commit)
    draft = Draft(state, commit.timestamp, commit.actions, commit.format)
    new = draft.finish(commit.version, digest)
    if new.checksum != commit.checksum:
        raise _contradiction(
            commit.version, f"its checksum of live segments is {commit.checksum}, the state gives {new.checksum}"
        )
    return Folded(new, draft.touched)


def check_follows(state: State, commit: Commit) -> None:
    """Check number, predecessor and time of a commit. Raises CorruptMetadataError."""
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
        f"commit {path} does not follow from the commits before it: {why}; `sparklog fsck` says how to repair it, "
        "else restore it from a copy of the root",
        path=path,
    )


class Draft:
    """Builder of the next commit, from the state ``base``, and of the state after it. Not thread-safe.

    ``actions`` are those applied so far, at the commit's time. ``level`` is that of the commit, never below the base's.
    ``touched`` are the entries that may have changed. All changes go through ``_put``, ``_drop``, ``_put_partition`` or
    ``_put_offset``, which record it.
    Requests that share a commit are decided on it as well, to see the effect of the actions before their own.
    """

    def __init__(self, base: State, timestamp_ms: int, actions: Iterable[Action] = (), level: int = 0) -> None:
        """Apply these actions. Raises as ``fold``."""
        self.base = base
        self.timestamp_ms = timestamp_ms
        self.level = max(base.level, level)
        self.actions: list[Action] = []
        self.touched: set[Entry] = set()
        self._fields: dict[str, Any] = {}
        self._indexes = base.indexes
        self._partitions: dict[str, list[PartitionState]] = {}
        self._topic_sums: dict[str, int] = {}
        self._checksum = segment_checksum.from_text(base.checksum)
        self._next_producer_id = base.next_producer_id
        for action in actions:
            self.apply(action)

    def apply(self, action: Action) -> None:
        """Apply one action. Raises CorruptMetadataError if it contradicts the state; the draft is of no use then."""
        _FOLDS[type(action)](self, action)
        self.actions.append(action)

    def raise_level(self, level: int) -> None:
        """Make this at least the level of the commit."""
        self.level = max(self.level, level)

    @property
    def is_empty(self) -> bool:
        """Whether the commit would change nothing."""
        return not self.actions and self.level == self.base.level

    @property
    def checksum(self) -> str:
        """The checksum of all live segments after these actions."""
        return segment_checksum.to_text(self._checksum)

    def finish(self, version: int, digest: str) -> State:
        """Return the new state after the commit. The draft may still be used after this."""
        topics: Map[str, TopicState] = self._field("topics")
        for name, partitions in self._partitions.items():
            checksum = segment_checksum.to_text(self._topic_sums[name])
            topics = topics.set(name, replace(topics[name], partitions=tuple(partitions), checksum=checksum))
        return replace(
            self.base,
            **{**self._fields, "topics": topics, "indexes": self._indexes},
            version=version,
            timestamp_ms=self.timestamp_ms,
            digest=digest,
            checksum=self.checksum,
            next_producer_id=self._next_producer_id,
            level=self.level,
        )

    # -- the only places that change an entry

    def _field(self, name: str) -> Any:
        return self._fields[name] if name in self._fields else getattr(self.base, name)

    def _put(self, kind: str, key: Any, value: Any) -> None:
        self._fields[kind] = self._field(kind).set(key, value)
        self.touched.add((kind, key))

    def _drop(self, kind: str, key: Any) -> None:
        entries: Map[Any, Any] = self._field(kind)
        if key in entries:
            self._fields[kind] = entries.delete(key)
            self.touched.add((kind, key))

    def _put_partition(self, topic: str, number: int, partition: PartitionState) -> None:
        """Set a partition. Its producers are separate entries."""
        partitions = self._partitions[topic]
        self.touched.update((("topics", topic), ("partitions", topic, number)))  # the topic: its checksum
        if number == len(partitions):
            partitions.append(partition)
        else:
            partitions[number] = partition

    def _put_offset(self, group: str, group_state: GroupState, key: str, offset: GroupOffset | None) -> GroupState:
        """Return the group with an offset, or without it for None."""
        before = group_state.offsets.get(key)
        if before is None and offset is None:
            return group_state
        self.touched.add(("offsets", group, key))
        if before is not None and (offset is None or offset.topic_id != before.topic_id):
            self._indexes = indexes.with_offset(self._indexes, group, before.topic_id, -1)
        if offset is not None and (before is None or offset.topic_id != before.topic_id):
            self._indexes = indexes.with_offset(self._indexes, group, offset.topic_id, 1)
        offsets = group_state.offsets.delete(key) if offset is None else group_state.offsets.set(key, offset)
        return replace(group_state, offsets=offsets)

    def _refuse(self, why: str) -> CorruptMetadataError:
        return _contradiction(self.base.version + 1, why)

    def _topic(self, name: str, topic_id: str) -> TopicState:
        topic = self._field("topics").get(name)
        if topic is None or topic.topic_id != topic_id:
            raise self._refuse(f"it changes topic {name!r} with id {topic_id}, which does not exist")
        return topic  # type: ignore[no-any-return]

    def _partition_list(self, name: str, topic_id: str) -> list[PartitionState]:
        topic = self._topic(name, topic_id)
        if name not in self._partitions:
            self._partitions[name] = list(topic.partitions)
            self._topic_sums[name] = segment_checksum.from_text(topic.checksum)
        return self._partitions[name]

    # -- brokers, topics, configs

    def _register_broker(self, action: RegisterBroker) -> None:
        if action.broker in self._field("brokers"):
            raise self._refuse(f"broker {action.broker} is already registered")
        self._put_broker(action.broker, BrokerState(broker=action.broker, url=action.url))

    def _put_broker(self, number: int, broker: BrokerState | None) -> None:
        """Set or remove (None) a broker. Brokers are few: a plain dict."""
        others = {other: state for other, state in self._field("brokers").items() if other != number or broker}
        self._fields["brokers"] = others if broker is None else {**others, number: broker}
        self.touched.add(("brokers", number))

    def _unregister_broker(self, action: UnregisterBroker) -> None:
        if action.broker not in self._field("brokers"):
            raise self._refuse(f"broker {action.broker} is not registered")
        self._put_broker(action.broker, None)

    def _change_broker(self, action: ChangeBroker) -> None:
        former = self._field("brokers").get(action.broker)
        if former is None:
            raise self._refuse(f"broker {action.broker} is not registered")
        changed = BrokerState(
            broker=former.broker,
            url=action.url or former.url,
            online=former.online if action.online is None else action.online,
            cordoned=former.cordoned if action.cordoned is None else action.cordoned,
            lost_files_at=self.base.version + 1 if action.lost_files or action.url else former.lost_files_at,
        )
        self._put_broker(action.broker, changed)

    def _elect_controller(self, action: ElectController) -> None:
        former = self._field("controller")
        if action.controller_epoch <= former.epoch:
            raise self._refuse(f"controller epoch {action.controller_epoch} is not after {former.epoch}")
        self._fields["controller"] = ControllerState(controller=action.controller, epoch=action.controller_epoch)

    def _change_partition(self, action: ChangePartition) -> None:
        partition = self._partition_of(action)
        problem = partition_fold.leadership_problem(partition, action)
        if problem:
            raise self._refuse(f"{action.topic}-{action.partition} cannot change: {problem}")
        self._put_partition(action.topic, action.partition, partition_fold.apply_leadership(partition, action))

    def _create_topic(self, action: CreateTopic) -> None:
        if action.topic in self._field("topics"):
            raise self._refuse(f"topic {action.topic!r} already exists")
        created = TopicState(
            name=action.topic,
            topic_id=action.topic_id,
            created_ms=self.timestamp_ms,
            partitions=(),
            configs=dict(action.configs),
        )
        self._put_topic(created)
        self._indexes = indexes.with_topic(self._indexes, action.topic)
        self._create_partitions(action)

    def _put_topic(self, topic: TopicState) -> None:
        """Set a topic after its configs were set, with the versions of its schemas."""
        schemas = schema_versions.add_versions(topic.schemas, topic.configs, self.base.version + 1, self.timestamp_ms)
        for config, versions in schemas.items():
            known = len(topic.schemas.get(config, ()))
            self.touched.update(("schemas", topic.name, config, number + 1) for number in range(known, len(versions)))
        self._put("topics", topic.name, replace(topic, schemas=schemas))

    def _create_partitions(self, action: CreateTopic | CreatePartitions) -> None:
        partitions = self._partition_list(action.topic, action.topic_id)
        for replicas in map(tuple, action.replicas):
            if not replicas:
                raise self._refuse("a partition has no replica")
            created = PartitionState(replicas=replicas, isr=replicas, leader=replicas[0])
            self._put_partition(action.topic, len(partitions), created)
        self._rebalance_subscribers(action.topic)

    def _delete_topic(self, action: DeleteTopic) -> None:
        partitions = self._partition_list(action.topic, action.topic_id)
        for number, partition in enumerate(partitions):
            self.touched.add(("partitions", action.topic, number))
            self.touched.update(("partition_producers", action.topic, number, id_) for id_ in partition.producers)
        for config, versions in self._topic(action.topic, action.topic_id).schemas.items():
            self.touched.update(("schemas", action.topic, config, number + 1) for number in range(len(versions)))
        topic_sum = self._topic_sums.pop(action.topic)
        del self._partitions[action.topic]
        self._drop("topics", action.topic)
        self._indexes = indexes.without_topic(self._indexes, action.topic)
        self._checksum = segment_checksum.add(self._checksum, -topic_sum)
        self._forget_offsets_of(action.topic_id, len(partitions))
        self._rebalance_subscribers(action.topic)

    def _alter_config(self, action: AlterConfig) -> None:
        if not action.topic:
            self._fields["configs"] = _alter_configs(self._field("configs"), action)
            return
        topic = self._field("topics").get(action.topic)
        if topic is None:
            raise self._refuse(f"it configures topic {action.topic!r}, which does not exist")
        self._put_topic(replace(topic, configs=_alter_configs(topic.configs, action)))

    # -- records

    def _append(self, action: Append) -> None:
        partition = self._partition_of(action)
        if action.base_offset != partition.log_end_offset:
            raise self._refuse(
                f"it appends to {action.topic}-{action.partition} at offset {action.base_offset}, "
                f"and the log ends at {partition.log_end_offset}"
            )
        added = segment_checksum.run_hash(action.topic_id, action.partition, action.base_offset, action.run)
        self._change_checksums(action.topic, added)
        self._put_partition(
            action.topic, action.partition, partition_fold.apply_append(partition, action, self.timestamp_ms)
        )
        if action.producer_id >= 0:
            self.touched.add(("partition_producers", action.topic, action.partition, action.producer_id))

    def _partition_of(self, action: PartitionAction) -> PartitionState:
        partitions = self._partition_list(action.topic, action.topic_id)
        if action.partition >= len(partitions):
            raise self._refuse(f"it changes {action.topic}-{action.partition}, which does not exist")
        return partitions[action.partition]

    def _change_checksums(self, topic: str, change: int) -> None:
        """Change the checksums by the hashes of added segments, less those of removed ones."""
        self._checksum = segment_checksum.add(self._checksum, change)
        self._topic_sums[topic] = segment_checksum.add(self._topic_sums[topic], change)

    def _replace_segments(self, action: ReplaceSegments) -> None:
        partition = self._partition_of(action)
        problem = partition_fold.replacement_problem(partition, action)
        if problem:
            raise self._refuse(f"its segments of {action.topic}-{action.partition} do not fit: {problem}")
        hashes = [segment_checksum.replacement_hash(action.topic_id, action.partition, added) for added in action.added]
        self._change_checksums(action.topic, sum(hashes) - segment_checksum.from_text(action.removed.checksum))
        replaced = partition_fold.apply_replacement(partition, action, self.base.version + 1)
        self._put_partition(action.topic, action.partition, replaced)

    def _delete_segments(self, action: DeleteSegments) -> None:
        partition = self._partition_of(action)
        problem = partition_fold.deletion_problem(partition, action)
        if problem:
            raise self._refuse(f"segments of {action.topic}-{action.partition} cannot be deleted: {problem}")
        self._change_checksums(action.topic, -segment_checksum.from_text(action.removed.checksum))
        deleted = partition_fold.apply_deletion(partition, action, self.base.version + 1)
        self._put_partition(action.topic, action.partition, deleted)

    def _delete_records(self, action: DeleteRecords) -> None:
        partition = self._partition_of(action)
        start, end = partition.log_start_offset, partition.log_end_offset
        if not start <= action.log_start_offset <= end:
            raise self._refuse(
                f"it starts {action.topic}-{action.partition} at {action.log_start_offset}, outside {start} to {end}"
            )
        started = replace(partition, log_start_offset=action.log_start_offset)
        self._put_partition(action.topic, action.partition, started)

    # -- files out of the log

    def _remove_files(self, action: RemoveFiles) -> None:
        removed = RemovedFiles(
            version=self.base.version + 1,
            delete_at_ms=self.timestamp_ms + action.delay_ms,
            files=action.files,
            size_bytes=action.size_bytes,
        )
        self._put("removed_files", action.listing, removed)

    def _forget_removed_files(self, action: ForgetRemovedFiles) -> None:
        for listing in action.listings:
            self._drop("removed_files", listing)

    def _fence_writers(self, action: FenceWriters) -> None:
        if action.version > self.base.version:
            raise self._refuse(f"it fences writers at version {action.version}, which does not exist yet")
        self._fields["writer_fence"] = max(action.version, self.base.writer_fence)

    def _move_cluster(self, action: MoveCluster) -> None:
        self._fields["moved_to"] = action.url

    def _reset_time(self, action: ResetTime) -> None:
        """Set all later times in the state to this one. Rare, so it may scan the whole state."""
        now_ms = action.time_ms
        for name, group in log_time.reset_groups(self._field("groups"), now_ms):
            for key, offset in group.offsets.items():
                if offset is not self._group(name).offsets[key]:
                    self.touched.add(("offsets", name, key))
            self._put("groups", name, group)
        for listing, removed in log_time.reset_removed_files(
            self._field("removed_files"), now_ms, self.base.timestamp_ms
        ):
            self._put("removed_files", listing, removed)
        for number, producer in self._field("producers").items():
            if producer.timestamp_ms > now_ms:
                self._put("producers", number, replace(producer, timestamp_ms=now_ms))
        for name, topic in self._field("topics").items():
            changed = log_time.reset_topic(topic, now_ms)
            if changed is not topic:
                self._put("topics", name, changed)
                for config, versions in topic.schemas.items():
                    self.touched.update(("schemas", name, config, number + 1) for number in range(len(versions)))
            self._reset_partitions(name, topic.topic_id, now_ms)

    def _reset_partitions(self, topic: str, topic_id: str, now_ms: int) -> None:
        for number, partition in enumerate(self._partition_list(topic, topic_id)):
            changed = log_time.reset_partition(partition, now_ms)
            if changed is not partition:
                late = (id_ for id_, producer in partition.producers.items() if producer.timestamp_ms > now_ms)
                self.touched.update(("partition_producers", topic, number, id_) for id_ in late)
                self._put_partition(topic, number, changed)

    def _application_write(self, action: ApplicationWrite) -> None:
        written = ApplicationState(
            version=action.application_version,
            commit_version=self.base.version + 1,
            ranges=tuple(action.ranges),
            source_digest=action.source_digest,
        )
        self._put("applications", action.application, written)

    def _forget_applications(self, action: ForgetApplications) -> None:
        for application in action.applications:
            self._drop("applications", application)

    # -- producers

    def _init_producer(self, action: InitProducer) -> None:
        if action.producer_id > self._next_producer_id:
            raise self._refuse(
                f"it assigns producer id {action.producer_id}, and the next one is {self._next_producer_id}"
            )
        self._next_producer_id = max(self._next_producer_id, action.producer_id + 1)
        if not action.transactional_id and not action.producer_epoch:
            return  # it cannot be fenced: partitions keep the state they need of it
        changed = ProducerState(
            epoch=action.producer_epoch,
            transactional_id=action.transactional_id,
            committed_epoch=action.committed_epoch,
            timestamp_ms=self.timestamp_ms,
        )
        self._change_producer(action.producer_id, changed)

    def _change_producer(self, number: int, changed: ProducerState | None) -> None:
        before = self._field("producers").get(number)
        self._indexes = indexes.with_producer(self._indexes, number, before, changed)
        if changed is None:
            self._drop("producers", number)
        else:
            self._put("producers", number, changed)

    def _forget_producers(self, action: ForgetProducers) -> None:
        for number in action.producers:
            self._change_producer(number, None)

    def _forget_partition_producers(self, action: ForgetPartitionProducers) -> None:
        partition = self._partition_of(action)
        producers = partition.producers
        for number in action.producers:
            if number in producers:
                producers = producers.delete(number)
                self.touched.add(("partition_producers", action.topic, action.partition, number))
        changed = replace(partition, producers=producers, producers_forgotten_at=self.base.version + 1)
        self._put_partition(action.topic, action.partition, changed)

    # -- groups

    def _commit_offsets(self, action: CommitOffsets) -> None:
        group: GroupState = self._field("groups").get(action.group) or GroupState()
        for item in action.offsets:
            offset = GroupOffset(
                topic=item.topic,
                topic_id=item.topic_id,
                partition=item.partition,
                offset=item.offset,
                leader_epoch=item.leader_epoch,
                metadata=item.metadata,
                timestamp_ms=self.timestamp_ms,
            )
            group = self._put_offset(action.group, group, offset_key(item.topic_id, item.partition), offset)
        self._change_group(action.group, group)

    def _change_group(self, name: str, changed: GroupState) -> None:
        before: GroupState | None = self._field("groups").get(name)
        if before is None or before.members is not changed.members:
            topics = indexes.subscribed_topics(before), indexes.subscribed_topics(changed)
            self._indexes = indexes.with_members(self._indexes, name, *topics)
        self._put("groups", name, changed)

    def _join_group(self, action: JoinGroup) -> None:
        group = self._field("groups").get(action.group) or GroupState()
        self._change_group(action.group, rebalance.with_member(group, action, self._partition_counts()))

    def _leave_group(self, action: LeaveGroup) -> None:
        group = self._group(action.group)
        left = rebalance.without_members(group, action.members, self._partition_counts(), self.timestamp_ms)
        self._change_group(action.group, left)

    def _acknowledge_revocation(self, action: AcknowledgeRevocation) -> None:
        group = self._group(action.group)
        if action.member not in group.members:
            raise self._refuse(f"member {action.member} is not in group {action.group!r}")
        self._change_group(action.group, rebalance.acknowledge(group, action.member))

    def _delete_group(self, action: DeleteGroup) -> None:
        group = self._group(action.group)
        for key in group.offsets:
            group = self._put_offset(action.group, group, key, None)
        self._indexes = indexes.with_members(self._indexes, action.group, indexes.subscribed_topics(group), frozenset())
        self._drop("groups", action.group)

    def _delete_offsets(self, action: DeleteOffsets) -> None:
        group = self._group(action.group)
        for item in action.partitions:
            group = self._put_offset(action.group, group, offset_key(item.topic_id, item.partition), None)
        self._change_group(action.group, group)

    def _group(self, name: str) -> GroupState:
        group: GroupState | None = self._field("groups").get(name)
        if group is None:
            raise self._refuse(f"it changes group {name!r}, which does not exist")
        return group

    def _partition_counts(self) -> Mapping[str, int]:
        return _Counts(self._field("topics"), self._partitions)

    def _rebalance_subscribers(self, topic: str) -> None:
        """Begin a generation of the groups that subscribe to a topic that was created, extended or deleted."""
        for name in self._indexes.subscribers.get(topic, EMPTY):
            self._change_group(name, rebalance.rebalance(self._group(name), self._partition_counts()))

    def _forget_offsets_of(self, topic_id: str, partitions: int) -> None:
        for name in self._indexes.offsets.get(topic_id, EMPTY):
            group = self._group(name)
            for partition in range(partitions):
                group = self._put_offset(name, group, offset_key(topic_id, partition), None)
            self._change_group(name, group)


class _Counts(Mapping[str, int]):
    """The partition counts of all topics, looked up on access."""

    def __init__(self, topics: Map[str, TopicState], changed: Mapping[str, list[PartitionState]]) -> None:
        self._topics = topics
        self._changed = changed

    def __getitem__(self, topic: str) -> int:
        changed = self._changed.get(topic)
        return len(self._topics[topic].partitions if changed is None else changed)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._topics)

    def __len__(self) -> int:
        return len(self._topics)


# A table of functions: bound methods in each draft would be reference cycles, three per commit, for the collector.
_FOLDS: dict[type, Callable[[Draft, Any], None]] = {
    RegisterBroker: Draft._register_broker,
    CreateTopic: Draft._create_topic,
    CreatePartitions: Draft._create_partitions,
    DeleteTopic: Draft._delete_topic,
    AlterConfig: Draft._alter_config,
    Append: Draft._append,
    ApplicationWrite: Draft._application_write,
    InitProducer: Draft._init_producer,
    ForgetProducers: Draft._forget_producers,
    ForgetPartitionProducers: Draft._forget_partition_producers,
    ForgetApplications: Draft._forget_applications,
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


def _alter_configs(configs: dict[str, str], action: AlterConfig) -> dict[str, str]:
    kept = {name: value for name, value in configs.items() if name not in action.delete}
    return {**kept, **action.set}
