"""Incremental checkpoints: reading one back gives the state of the commits, and little is written for what is
unchanged."""

from __future__ import annotations

import random
import uuid

import pytest
from msgspec.structs import replace

from sparklog.ids import SeededIds
from sparklog.log.checkpoints import checkpoint, heads, lists, tiers
from sparklog.log.checkpoints.lists import ListCache, read_list
from sparklog.log.layout import CHECKPOINTS
from sparklog.log.segments import TopicSegments
from sparklog.protocol import levels
from sparklog.protocol.commits import (
    Action,
    AlterConfig,
    Append,
    ApplicationWrite,
    Commit,
    CommitOffsets,
    CommittedOffset,
    CreatePartitions,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteSegments,
    DeleteTopic,
    ForgetApplications,
    ForgetPartitionProducers,
    ForgetProducers,
    ForgetRemovedFiles,
    GroupPartition,
    InitProducer,
    JoinGroup,
    LeaveGroup,
    RegisterBroker,
    RemovedSegments,
    RemoveFiles,
    Run,
)
from sparklog.protocol.fold import Draft, Entry, fold
from sparklog.protocol.indexes import with_indexes
from sparklog.protocol.segments import Segment, SegmentEvent, segment_events
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore


class World:
    """Random commits, their state, and the inputs of a checkpoint."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.state = State(cluster_id="c", level=levels.CURRENT)
        self.touched: dict[Entry, int] = {}
        self.recent: dict[str, list[SegmentEvent]] = {}
        self.live: dict[str, list[Segment]] = {}
        self.made = 0
        self.ids = SeededIds(seed)
        self.commit([RegisterBroker(broker=0)])

    def commit(self, actions: list[Action]) -> None:
        draft = Draft(self.state, self.state.timestamp_ms + 1)
        for action in actions:
            draft.apply(action)
        version = self.state.version + 1
        commit = Commit(
            format=1,
            version=version,
            write_id="w",
            timestamp=self.state.timestamp_ms + 1,
            previous=self.state.digest,
            checksum=draft.finish(version, "").checksum,
            actions=actions,
        )
        self.state, touched = fold(self.state, commit, f"{version:064x}")
        self.touched.update(dict.fromkeys(touched, version))
        for topic_id, events in segment_events(commit).items():
            self.recent.setdefault(topic_id, []).extend(events)
            for event in events:
                segments = self.live.setdefault(topic_id, [])
                if isinstance(event, Segment):
                    segments.append(event)
                else:
                    segments[:] = [s for s in segments if s.partition != event.partition or s.end_offset > event.end]

    def step(self) -> None:
        actions: list[Action] = []
        wanted = [self.random.choice(_KINDS) for _ in range(self.random.randint(1, 3))]
        for kind in wanted:
            draft = Draft(self.state, self.state.timestamp_ms + 1)
            for action in actions:
                draft.apply(action)
            actions += kind(self, draft.finish(self.state.version, self.state.digest))
        self.commit(actions)

    def pick(self, among: object) -> str:
        return self.random.choice(sorted(among))  # type: ignore[call-overload]

    def checkpoint(self, store: MemoryStore, base: checkpoint.Manifest | None, cache: ListCache) -> checkpoint.Manifest:
        since = base.version if base is not None else -1
        recent = {name: [event for event in events if event.version > since] for name, events in self.recent.items()}
        recent = {name: events for name, events in recent.items() if events}
        touched = [entry for entry, version in self.touched.items() if version > since]
        return checkpoint.write_checkpoint(store, self.ids, self.state, base, recent, 0, touched, cache)


def _create(world: World, state: State) -> list[Action]:
    world.made += 1
    name = f"t{world.random.randint(0, 6)}"
    if name in state.topics:
        return []
    replicas = [[0]] * world.random.randint(1, 4)
    configs = {"a": str(world.made), "value.schema": world.random.choice(_SCHEMAS)}
    return [CreateTopic(topic=name, topic_id=f"id{world.made}", replicas=replicas, configs=configs)]


_SCHEMAS = ("", "a int", "a int, b int", "a int NOT NULL")


def _change_schema(world: World, state: State) -> list[Action]:
    if not state.topics:
        return []
    config = world.random.choice(["key.schema", "value.schema"])
    return [AlterConfig(topic=world.pick(state.topics), set={config: world.random.choice(_SCHEMAS)})]


def _grow(world: World, state: State) -> list[Action]:
    if not state.topics:
        return []
    topic = state.topics[world.pick(state.topics)]
    return [CreatePartitions(topic=topic.name, topic_id=topic.topic_id, replicas=[[0]])]


def _delete(world: World, state: State) -> list[Action]:
    if not state.topics or world.random.random() < 0.6:
        return []
    topic = state.topics[world.pick(state.topics)]
    return [DeleteTopic(topic=topic.name, topic_id=topic.topic_id)]


def _append(world: World, state: State) -> list[Action]:
    if not state.topics:
        return []
    topic = state.topics[world.pick(state.topics)]
    number = world.random.randrange(len(topic.partitions))
    producer = world.random.choice([-1, 1, 2, 3])
    end = topic.partitions[number].log_end_offset
    run = Run(
        path=f"x-{state.version}-{end}.log", batches=1, records=2, size_bytes=9, min_timestamp_us=1, max_timestamp_us=2
    )
    return [
        Append(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=number,
            base_offset=end,
            run=run,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=end if producer >= 0 else -1,
        )
    ]


def _retain(world: World, state: State) -> list[Action]:
    """All segments of a partition from before this commit are deleted."""
    for name in sorted(state.topics):
        topic = state.topics[name]
        before = world.state.topics.get(name)
        for number, partition in enumerate(topic.partitions):
            same = before is not None and topic is before and partition.segments
            if same and world.random.random() < 0.3:
                counts = RemovedSegments(
                    segments=partition.segments, size_bytes=partition.size_bytes, checksum="0" * 32
                )
                return [
                    DeleteSegments(
                        topic=name,
                        topic_id=topic.topic_id,
                        partition=number,
                        end_offset=partition.log_end_offset,
                        removed=counts,
                    )
                ]
    return []


def _offsets(world: World, state: State) -> list[Action]:
    if not state.topics:
        return []
    topic = state.topics[world.pick(state.topics)]
    offsets = [CommittedOffset(topic=topic.name, topic_id=topic.topic_id, partition=0, offset=state.version + 1)]
    return [CommitOffsets(group=f"g{world.random.randint(0, 3)}", offsets=offsets)]


def _forget_offsets(world: World, state: State) -> list[Action]:
    if not state.groups:
        return []
    name = world.pick(state.groups)
    partitions = [
        GroupPartition(topic=offset.topic, topic_id=offset.topic_id, partition=offset.partition)
        for _, offset in sorted(state.groups[name].offsets.items())[:2]
    ]
    return [DeleteOffsets(group=name, partitions=partitions)]


def _join(world: World, state: State) -> list[Action]:
    member, group = f"m{world.random.randint(0, 2)}", f"g{world.random.randint(0, 3)}"
    topics = [f"t{world.random.randint(0, 6)}"]
    return [JoinGroup(group=group, member=member, topics=topics, assignors=["range"])]


def _leave(world: World, state: State) -> list[Action]:
    if not state.groups:
        return []
    name = world.pick(state.groups)
    return [LeaveGroup(group=name, members=list(state.groups[name].members)[:1])]


def _delete_group(world: World, state: State) -> list[Action]:
    empty = [name for name, group in state.groups.items() if not group.members]
    return [DeleteGroup(group=world.pick(empty))] if empty else []


def _producers(world: World, state: State) -> list[Action]:
    number = world.random.randint(0, min(5, state.next_producer_id))
    if world.random.random() < 0.3:
        return [ForgetProducers(producers=[number])]
    return [InitProducer(producer_id=number, producer_epoch=state.version + 1, transactional_id=f"x{number}")]


def _forget_in_partition(world: World, state: State) -> list[Action]:
    if not state.topics:
        return []
    topic = state.topics[world.pick(state.topics)]
    return [ForgetPartitionProducers(topic=topic.name, topic_id=topic.topic_id, partition=0, producers=[1, 2])]


def _applications(world: World, state: State) -> list[Action]:
    name = f"a{world.random.randint(0, 3)}"
    if world.random.random() < 0.3:
        return [ForgetApplications(applications=[name])]
    return [ApplicationWrite(application=name, application_version=state.version + 1)]


def _files(world: World, state: State) -> list[Action]:
    if state.removed_files and world.random.random() < 0.5:
        return [ForgetRemovedFiles(listings=[world.pick(state.removed_files)])]
    return [RemoveFiles(listing=f"l{state.version}", files=1, size_bytes=2, delay_ms=3)]


def _configs(world: World, state: State) -> list[Action]:
    return [AlterConfig(set={"log.retention.hours": str(state.version + 2)})]


_KINDS = [
    _create, _grow, _delete, _append, _append, _append, _append, _retain, _offsets, _offsets, _forget_offsets, _join,
    _leave, _delete_group, _producers, _forget_in_partition, _applications, _files, _configs, _change_schema,
]  # fmt: skip


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so small that merges and files happen all the time."""
    monkeypatch.setattr(tiers, "SMALL_ROWS", 5)
    monkeypatch.setattr(checkpoint, "MAX_HEAD_PARTS", 3)
    monkeypatch.setattr(checkpoint, "MAX_LIST_PARTS", 3)
    monkeypatch.setattr(lists, "TAIL_SEGMENTS", 3)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("seed", range(40))
def test_reading_a_checkpoint_gives_the_state_of_random_commits(seed: int) -> None:
    world, store = World(seed), MemoryStore(uuid.uuid4().hex)
    cache = ListCache(store)
    base = world.checkpoint(store, None, cache)
    levels: set[int] = set()
    for number in range(40):
        for _ in range(world.random.randint(0, 6)):
            world.step()
        assert with_indexes(world.state).indexes == world.state.indexes
        base = world.checkpoint(store, base, cache if number % 3 else ListCache(store))
        levels.update(part.level for part in base.head_parts)
        assert len(base.head_parts) <= checkpoint.MAX_HEAD_PARTS
        assert len(base.lists) <= checkpoint.MAX_LIST_PARTS
        assert checkpoint.is_whole(store, base)
        assert checkpoint.read_manifest(store, base.heads.key.removesuffix(".heads") + ".json") == base
        assert checkpoint.read_heads(store, base) == world.state
        assert checkpoint.read_digest(store, base) == world.state.digest
        _check_lists(world, store, base)
    assert len(levels) > 2 or seed, "no parts were merged"


def _check_lists(world: World, store: MemoryStore, base: checkpoint.Manifest) -> None:
    segment_lists = checkpoint.read_lists(store, base)
    assert set(segment_lists.topic_ids()) <= {topic.topic_id for topic in world.state.topics.values()}
    for topic in world.state.topics.values():
        listed = TopicSegments(topic, read_list(store, segment_lists.of(topic.topic_id)), [])
        for number in range(len(topic.partitions)):
            expected = [segment for segment in world.live.get(topic.topic_id, []) if segment.partition == number]
            assert list(listed.partition(number)) == expected


def test_additional_touched_entries_do_no_harm() -> None:
    world, store = World(7), MemoryStore(uuid.uuid4().hex)
    base = world.checkpoint(store, None, ListCache(store))
    for _ in range(30):
        world.step()
    everything = [*world.touched, ("topics", "never"), ("partitions", "t0", 99), ("offsets", "nobody", "x")]
    manifest = checkpoint.write_checkpoint(store, SeededIds(1), world.state, base, {}, 0, everything)
    assert checkpoint.read_heads(store, manifest) == world.state


def large(topics: int) -> World:
    world = World(0)
    for number in range(topics):
        world.commit([CreateTopic(topic=f"topic-{number}", topic_id=f"id-{number}", replicas=[[0]] * 10)])
    return world


def test_a_checkpoint_writes_only_changes() -> None:
    world, store = large(300), MemoryStore(uuid.uuid4().hex)
    cache = ListCache(store)
    base = world.checkpoint(store, None, cache)
    world.commit(_append(world, world.state))
    manifest = world.checkpoint(store, base, cache)
    assert manifest.older == base.head_parts
    assert manifest.heads.rows == 3  # cluster, topic with its checksum, partition
    assert manifest.heads.size < base.heads.size / 100
    assert [part.rows for part in manifest.lists] == [1]


def test_small_changes_to_many_topics_write_three_objects() -> None:
    world, store = large(100), MemoryStore(uuid.uuid4().hex)
    cache = ListCache(store)
    base = world.checkpoint(store, None, cache)
    before = {info.key for info in store.list(CHECKPOINTS)}
    for topic in world.state.topics_in_order():
        state = replace(world.state, topics=world.state.topics.__class__({topic.name: topic}))
        world.commit(_append(world, state))
    world.checkpoint(store, base, cache)
    added = {info.key.rsplit(".", 1)[1] for info in store.list(CHECKPOINTS) if info.key not in before}
    assert added == {"heads", "lists", "json"}
    assert len([info for info in store.list(CHECKPOINTS) if info.key not in before]) == 3


def test_rows_of_deleted_entries_are_dropped_eventually(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "SMALL_ROWS", 5)
    world, store = World(3), MemoryStore(uuid.uuid4().hex)
    cache = ListCache(store)
    base = world.checkpoint(store, None, cache)
    for number in range(200):
        world.commit([AlterConfig(set={"a": str(number)}), *_files(world, world.state)])
        base = world.checkpoint(store, base, cache)
    assert sum(part.rows for part in base.head_parts) <= 2 * heads.count_rows(world.state) + 5
