"""A log without tailing, locks and races: commits are stored in sequence, and checkpoints of them can be written."""

from __future__ import annotations

import uuid

from sparklog.clock import ManualClock
from sparklog.ids import SeededIds
from sparklog.log.checkpoints.checkpoint import Manifest
from sparklog.log.checkpoints.checkpointer import Checkpointer, LogSnapshot
from sparklog.log.checkpoints.lists import ListCache
from sparklog.log.commits.commit_attempt import prepare_commit
from sparklog.log.commits.segment_lists import SegmentLists
from sparklog.log.elapsed import ElapsedTime
from sparklog.log.settings import LogSettings
from sparklog.protocol import levels
from sparklog.protocol.commits import Action, Append, CreateTopic, RegisterBroker, Run, commit_key
from sparklog.protocol.fold import Draft
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore

TOPIC_ID = "t1"


class SmallLog:
    """Implements ``CheckpointedLog``. ``avoided`` are the heads of checkpoints that must not be used as a base."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = store or MemoryStore(uuid.uuid4().hex)
        self.clock = ManualClock()
        self.expiry_clock = self.clock
        self.state = State(cluster_id="c", level=levels.CURRENT)
        self.avoided: list[str] = []
        cache = ListCache(self.store)
        self.lists = SegmentLists(self.store, cache, None)
        self.checkpointer = self.new_checkpointer(1, cache)
        self.commit(RegisterBroker(broker=0), CreateTopic(topic="orders", topic_id=TOPIC_ID, replicas=[[0]]))

    def new_checkpointer(self, seed: int, cache: ListCache) -> Checkpointer:
        """A checkpointer that has written nothing yet, as of another process."""
        settings = LogSettings()
        elapsed = ElapsedTime(self.clock, settings.away_seconds)
        return Checkpointer(self, self.clock, SeededIds(seed), settings, elapsed, cache)

    def commit(self, *actions: Action) -> State:
        prepared = prepare_commit(Draft(self.state, self.clock.now_ms() + self.state.version, actions), "w", "")
        self.store.put_if_absent(commit_key(prepared.commit.version), prepared.encoded.data)
        self.lists.take(prepared.commit, prepared.folded.touched)
        self.state = prepared.folded.state
        return self.state

    def append(self, path: str) -> State:
        run = Run(path=path, batches=1, records=1, size_bytes=10, min_timestamp_us=1, max_timestamp_us=5)
        end = self.state.partition("orders", 0).log_end_offset
        return self.commit(Append(topic="orders", topic_id=TOPIC_ID, partition=0, base_offset=end, run=run))

    def paths(self, state: State) -> list[str]:
        """The files of the live segments as of a state."""
        return [segment.path for segment in self.lists.of("orders", state, self.state).partition(0)]

    @property
    def recent_segments(self) -> int:
        return self.lists.recent_count

    def make_durable(self) -> None:
        """Do nothing: all commits are of this process."""

    def rebase_quietly(self) -> None:
        """Do nothing: no other process writes checkpoints."""

    def take_snapshot(self, newest: Manifest | None) -> LogSnapshot:
        base = newest if newest is not None and newest.heads.key not in self.avoided else None
        events, touched = self.lists.changes_since(base.version if base is not None else -1)
        return LogSnapshot(self.state, base, events, touched, 0)

    def follow_checkpoint(self, written: Manifest) -> None:
        """Not followed: this log keeps all its changes."""

    def avoid_base(self, heads: str) -> bool:
        was_avoided = heads in self.avoided
        self.avoided.append(heads)
        return not was_avoided
