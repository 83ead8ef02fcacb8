"""A model of what locations hold, over the real decisions: locations are sets of paths, and everybody can be stopped.

Actors keep what they have read and written as long as they like: a writer commits a file that it began at any earlier
version, replication adds a replica on what it saw then, a removal of surplus copies deletes one of them an hour later.
Operators change the locations in between. After every step each broker in an ISR has each live file, except for what an
operator's disk took along when no other replica had it.

Not modelled: storage, so the steps of ``maintenance`` and ``client`` that only move bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

from msgspec import structs

from sparklog.coordinator import begun_files
from sparklog.errors import ObjectNotFoundError, SparklogError
from sparklog.protocol.commits import Action, Append, RegisterBroker, Run
from sparklog.protocol.decide import brokers as decide_brokers
from sparklog.protocol.decide import locations as decide_locations
from sparklog.protocol.decide import replicas as decide_replicas
from sparklog.protocol.decide.acks import brokers_to_write
from sparklog.protocol.decide.append import AppendRequest, Begun, PartitionAppend, decide_append
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.elections import CheckedBrokers, broker_checks, elect_preferred
from sparklog.protocol.decide.locations import Removal, SeenLocation
from sparklog.protocol.decide.replicas import CaughtUp
from sparklog.protocol.decide.topics import NewTopic, create_topic
from sparklog.protocol.file_names import file_name
from sparklog.protocol.fold import Draft
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

T = TypeVar("T")
TOPIC = "t"
ROOT = "/root"
PARTITIONS = 2
MAX_BROKERS = 4
STEPS = 80

WEIGHTS = {
    "write": 6,
    "write_as_job": 4,
    "commit_write": 8,
    "see_replica": 6,
    "add_replica": 6,
    "reassign": 6,
    "begin_cleaning": 3,
    "decide_cleaning": 4,
    "delete_surplus": 4,
    "end_cleaning": 3,
    "uncordon": 1,
    "register": 2,
    "remove": 3,
    "replace": 1,
    "copy_location": 2,
    "look": 2,
    "move": 3,
    "check_brokers": 2,
    "elect_preferred": 1,
    "restore": 1,
}
"""The kinds of steps, and how often each comes."""


@dataclass
class Write:
    """Files that are written and not committed: by a client, or by a job that another process commits."""

    appends: list[PartitionAppend]
    begun: Begun
    is_job: bool


@dataclass
class Cleaning:
    """A removal of surplus copies: those that it has decided to delete, at the location that it began with."""

    removal: Removal
    url: str
    paths: list[str] | None = None


@dataclass
class Moving:
    """A broker's files were copied to ``url``, and perhaps looked at."""

    broker: int
    url: str
    looks: int = 0
    seen: dict[TopicPartition, SeenLocation] = field(default_factory=dict)


@dataclass
class Version:
    """A version of the cluster, what is live in it, and what the locations held when it was committed."""

    state: State
    live: dict[TopicPartition, list[str]]
    files: dict[str, set[str]]


class Location:
    """What a location answers when a file is looked for."""

    is_local = True

    def __init__(self, paths: set[str]) -> None:
        self._paths = paths

    def info(self, key: str) -> None:
        if key.replace(".index", ".log") not in self._paths:
            raise ObjectNotFoundError(f"{key} does not exist", path=key)


class Copies:
    """The model; ``random`` chooses the steps. ``name_version`` is the rule for the version in a file's name: of the
    state that the writer's stores are from, or of the newest one that it has read."""

    def __init__(self, random: Random, name_version: Callable[[State, State], int] | None = None) -> None:
        self.random = random
        self.name_version = name_version or (lambda stores, newest: stores.version)
        self.files: dict[str, set[str]] = {ROOT: set(), "/1": set(), "/2": set()}
        self.live: dict[TopicPartition, list[str]] = {TopicPartition(TOPIC, number): [] for number in range(PARTITIONS)}
        self.versions: list[Version] = []
        self.gone_with_disk: set[tuple[str, str]] = set()
        self.writes: list[Write] = []
        self.evidence: list[CaughtUp] = []
        self.cleanings: list[Cleaning] = []
        self.moves: list[Moving] = []
        self.history = 0
        self.names = 0
        self.log: list[str] = []
        self.state = State(cluster_id="c")
        self._commit([RegisterBroker(broker=0)])
        for url in ("/1", "/2"):
            self._submit(partial(decide_brokers.register_broker, broker=None, url=url, root=ROOT))
        assignment = [[0, 1], [2, 1]]
        new = NewTopic(name=TOPIC, topic_id="id", partitions=PARTITIONS, assignment=assignment)
        self._submit(lambda state: create_topic(state, new))
        self._submit(lambda state: decide_brokers.elect_controller(state, "c", 0))

    # -- the log

    def _commit(self, actions: list[Action]) -> None:
        version = self.state.version + 1
        draft = Draft(self.state, self.state.timestamp_ms + 1)
        for action in actions:
            draft.apply(action)
            if isinstance(action, Append):
                self.live[TopicPartition(action.topic, action.partition)].append(action.run.path)
        self.state = draft.finish(version, f"{self.history:032x}{version:032x}")
        live = {name: list(paths) for name, paths in self.live.items()}
        files = {url: set(paths) for url, paths in self.files.items()}
        self.versions.append(Version(self.state, live, files))

    def _submit(self, decide: Callable[[State], Decision[T]]) -> T:
        decision = decide(self.state)
        if decision.actions:
            self._commit(decision.actions)
        return decision.result

    def _url(self, state: State, broker: int) -> str:
        return decide_brokers.location(state.brokers[broker], ROOT)

    def _any_state(self) -> State:
        """A state that somebody has read: the newest, a recent one, or any."""
        versions = self.random.choice((self.versions[-1:], self.versions[-6:], self.versions))
        return self.random.choice(versions).state

    def _any_partition(self) -> TopicPartition:
        return self.random.choice(sorted(self.live))

    # -- steps

    def run(self, weights: Mapping[str, int] = WEIGHTS, steps: int = STEPS) -> str:
        """Run steps of the kinds with a weight until one breaks the rule; return what is wrong, empty if nothing."""
        for _ in range(steps):
            action = getattr(self, self.random.choices(list(weights), list(weights.values()))[0])
            before = self.state.version
            refused = ""
            try:
                done = action()
            except SparklogError as error:  # refused, which changes nothing
                done, refused = None, type(error).__name__
            self.log.append(f"{before} {action.__name__} {done or ''} {refused}")
            wrong = self.find_missing()
            if wrong:
                return "\n".join([*self.log[-30:], wrong])
        return ""

    def find_missing(self) -> str:
        """Return which broker in an ISR lacks a live file."""
        for name, paths in self.live.items():
            isr = self.state.partition(*name).isr
            for broker in isr:
                url = self._url(self.state, broker)
                for path in paths:
                    if path not in self.files[url] and not (len(isr) == 1 and (url, path) in self.gone_with_disk):
                        return f"broker {broker} at {url}, in the ISR {isr} of {name}, lacks {path}"
        return ""

    # -- writers

    def write(self) -> str:
        """Write a file at the stores of a state, as a client does."""
        stores = self._any_state()
        return self._write(stores, stores, self._newer(stores), is_job=self.random.random() < 0.3)

    def write_as_job(self) -> str:
        """Write a file at the stores of the driver's state, to the brokers that a task has read since."""
        driver = self._any_state()
        task = self._newer(driver)
        return self._write(driver, task, task, is_job=True)

    def _newer(self, state: State) -> State:
        """A state of the same history, not older."""
        newer = [found.state for found in self.versions if found.state.version >= state.version]
        return self.random.choice(newer)

    def _write(self, stores: State, targets: State, newest: State, is_job: bool) -> str:
        first = self._any_partition()
        if TOPIC not in targets.topics:
            return ""
        brokers = brokers_to_write(targets, *first)
        if not all(broker in stores.brokers for broker in brokers):
            return ""
        partitions = [first]
        partitions += [other for other in self.live if other != first and self._goes_to(targets, other, brokers)]
        written = [broker for broker in brokers if self.random.random() < 0.9] or [brokers[0]]
        self.names += 1
        version = self.name_version(stores, newest)
        path = f"{TOPIC}-{first.partition}/{file_name(0, version, f'w{self.names}')}"
        for broker in written:
            self.files[self._url(stores, broker)].add(path)
        run = Run(
            path=path,
            broker=written[0],
            replicas=written if len(written) > 1 else [],
            batches=1,
            records=1,
            size_bytes=1,
            min_timestamp_us=1,
            max_timestamp_us=1,
        )
        appends = [PartitionAppend(topic=TOPIC, topic_id="id", partition=at.partition, run=run) for at in partitions]
        self.writes.append(Write(appends, Begun(stores.version, stores.digest), is_job))
        return f"{path} to {written} as of {stores.version}"

    def _goes_to(self, state: State, name: TopicPartition, brokers: tuple[int, ...]) -> bool:
        try:
            return set(brokers_to_write(state, *name)) == set(brokers)
        except SparklogError:
            return False

    def commit_write(self) -> str:
        if not self.writes:
            return ""
        write = self.writes.pop(self.random.randrange(len(self.writes)))
        request = AppendRequest(appends=write.appends, acks=self.random.choice((1, -1)), begun=[write.begun])
        digests = {found.state.version: found.state.digest for found in self.versions}
        log: Any = SimpleNamespace(
            state=self.state, refresh=lambda: self.state, find_digest=digests.get, store=SimpleNamespace(root=ROOT)
        )
        if self.random.random() < 0.5 and not write.is_job:  # a client that has just written them does not look
            if begun_files.find_digest(log, write.begun) != write.begun.digest:
                return ""
            present = structs.replace(request, begun=())
        else:
            present = begun_files.check_begun(log, self._location, request)
        self._submit(lambda state: decide_append(state, present))
        return write.appends[0].run.path

    def _location(self, state: State, broker: int) -> Any:
        return Location(self.files[self._url(state, broker)])

    # -- replication and elections

    def see_replica(self) -> str:
        """Copy what a replica lacks, and keep what it has then as evidence."""
        state = self._any_state() if self.random.random() < 0.2 else self.state
        name = self._any_partition()
        if TOPIC not in state.topics:
            return ""
        partition, needed = state.partition(*name), self._live_at(state, name)
        behind = [broker for broker in partition.replicas if broker not in partition.isr]
        if not behind:
            return ""
        broker = self.random.choice(behind)
        there = self.files[self._url(state, broker)]
        for source in partition.isr:
            there.update(needed & self.files[self._url(state, source)])
        if not needed <= there:
            return ""
        lacking = tuple(
            other
            for other in partition.isr
            if any(decide_brokers.may_lack(state, other, path) for path in needed)
            and not (decide_brokers.is_online(state, other) and needed <= self.files[self._url(state, other)])
        )
        end = partition.log_end_offset
        self.evidence.append(CaughtUp(TOPIC, "id", name.partition, broker, end, state.version, lacking))
        return f"{name} at {broker} as of {state.version}"

    def _live_at(self, state: State, name: TopicPartition) -> set[str]:
        return set(self.versions[state.version].live[name])

    def add_replica(self) -> str:
        if not self.evidence:
            return ""
        caught_up = self.evidence.pop(self.random.randrange(len(self.evidence)))
        result = self._submit(lambda state: decide_replicas.expand_isr(state, [caught_up]))
        return f"{caught_up.topic}-{caught_up.partition} joined {[replica.broker for replica in result.joined]}"

    def reassign(self) -> str:
        name = self._any_partition()
        target = self.random.sample(
            sorted(self.state.brokers), min(len(self.state.brokers), self.random.choice((1, 2)))
        )
        self._submit(lambda state: decide_replicas.alter_reassignments(state, {name: target}))
        partition = self.state.partition(*name)
        return f"{name} to {target}: {partition.replicas} isr {partition.isr}"

    def check_brokers(self) -> str:
        """Find a location that does not answer, or answers again."""
        broker = self.random.choice(sorted(self.state.brokers))
        found = [broker]
        online = self.state.brokers[broker].online
        checked = (
            CheckedBrokers(offline=found) if online and self.random.random() < 0.4 else CheckedBrokers(online=found)
        )
        self._submit(lambda state: broker_checks(state, 1, checked))
        return str(checked)

    def elect_preferred(self) -> None:
        self._submit(lambda state: elect_preferred(state))

    # -- removal of surplus copies

    def begin_cleaning(self) -> str:
        with_surplus = [broker for broker in sorted(self.state.brokers) if self._find_surplus(broker)]
        if not with_surplus:
            return ""
        broker = self.random.choice(with_surplus)
        removal = self._submit(lambda state: decide_locations.begin_removal(state, broker))
        self.cleanings.append(Cleaning(removal, removal.url or ROOT))
        return f"{broker}"

    def decide_cleaning(self) -> str:
        """Decide which copies to delete, as of the newest state."""
        undecided = [cleaning for cleaning in self.cleanings if cleaning.paths is None]
        if not undecided:
            return ""
        cleaning = self.random.choice(undecided)
        broker = cleaning.removal.broker
        if broker not in self.state.brokers or not decide_locations.may_remove(self.state, cleaning.removal):
            cleaning.paths = []
            return ""
        cleaning.paths = sorted(self._find_surplus(broker, cleaning.removal.kept) & self.files[cleaning.url])
        return f"{broker}: {cleaning.paths}"

    def _find_surplus(self, broker: int, kept: Collection[TopicPartition] = ()) -> set[str]:
        """The live files at a broker that no partition with a replica there has, nor one of ``kept``."""
        needed = {
            path
            for name, paths in self.live.items()
            if broker in self.state.partition(*name).replicas or name in kept
            for path in paths
        }
        live = {path for paths in self.live.values() for path in paths}
        return (live - needed) & self.files[self._url(self.state, broker)]

    def delete_surplus(self) -> str:
        decided = [cleaning for cleaning in self.cleanings if cleaning.paths]
        if not decided:
            return ""
        cleaning = self.random.choice(decided)
        assert cleaning.paths is not None
        path = cleaning.paths.pop()
        self.files[cleaning.url].discard(path)
        return f"{path} at {cleaning.url}"

    def end_cleaning(self) -> str:
        done = [cleaning for cleaning in self.cleanings if cleaning.paths == []]
        if not done:
            return ""
        cleaning = self.random.choice(done)
        self.cleanings.remove(cleaning)
        lifted = self._submit(lambda state: decide_locations.end_removal(state, cleaning.removal))
        return f"{cleaning.removal.broker} {lifted}"

    def uncordon(self) -> str:
        """An operator lifts a cordon, when no vacuum is running."""
        broker = self.random.choice(sorted(self.state.brokers))
        if any(cleaning.removal.broker == broker for cleaning in self.cleanings):
            return ""
        return f"{broker} {self._submit(lambda state: decide_brokers.cordon(state, broker, False))}"

    # -- operators

    def register(self) -> str:
        if len(self.state.brokers) >= MAX_BROKERS:
            return ""
        self.names += 1
        url = f"/new{self.names}"
        self.files[url] = set()
        unused = [broker for broker in range(MAX_BROKERS) if broker not in self.state.brokers]
        broker = self.random.choice(unused)
        self._submit(lambda state: decide_brokers.register_broker(state, broker, url, ROOT))
        return f"{broker} at {url}"

    def remove(self) -> str:
        used = {broker for name in self.live for broker in self.state.partition(*name).replicas}
        unused = sorted(self.state.brokers.keys() - used) or sorted(self.state.brokers)
        broker = self.random.choice(unused)
        url = self.state.brokers[broker].url
        self._submit(lambda state: decide_brokers.unregister_broker(state, broker, url))
        return f"{broker}"

    def replace(self) -> str:
        """A disk is lost, and an empty one is registered in its place."""
        broker = self.random.choice(sorted(self.state.brokers))
        url = self.state.brokers[broker].url
        if not url:
            return ""
        self._submit(lambda state: decide_locations.replace_location(state, broker, url))
        lost, self.files[url] = self.files[url], set()
        committed = {path for paths in self.live.values() for path in paths}
        self.gone_with_disk |= {(url, path) for path in lost & committed}
        self.gone_with_disk |= {(url, path) for path in committed if (url, path) in self.gone_with_disk}
        return f"{broker} at {url}"

    def copy_location(self) -> str:
        broker = self.random.choice(sorted(self.state.brokers))
        self.names += 1
        url = f"/copy{self.names}"
        self.files[url] = set(self.files[self._url(self.state, broker)])
        lost = {path for at, path in self.gone_with_disk if at == self._url(self.state, broker)}
        self.gone_with_disk |= {(url, path) for path in lost}
        self.moves.append(Moving(broker, url))
        return f"{broker} to {url}"

    def look(self) -> str:
        """Look at the location that a broker is to be moved to, in any state since."""
        if not self.moves:
            return ""
        moving = self.random.choice(self.moves)
        state = self.state
        if moving.broker not in state.brokers:
            return ""
        moving.looks += 1
        for name in self.live:
            partition = state.partition(*name)
            missing = sorted(self._live_at(state, name) - self.files[moving.url])
            moving.seen[name] = SeenLocation("id", partition.log_end_offset, state.version, tuple(missing))
        return f"{moving.broker} at {moving.url}"

    def move(self) -> str:
        looked = [moving for moving in self.moves if moving.looks]
        if not looked:
            return ""
        moving = self.random.choice(looked)
        self.moves.remove(moving)
        is_last = self.random.random() < 0.5
        result = self._submit(
            lambda state: decide_locations.move_location(
                state, moving.broker, moving.url, ROOT, moving.seen, is_last=is_last
            )
        )
        return f"{moving.broker} to {moving.url}: {result}"

    def restore(self) -> str:
        """Restore the root and all locations to an earlier version. Processes with a coordinator end; a job's commit
        opens the root anew."""
        if len(self.versions) < 12 or self.random.random() < 0.5:
            return ""
        found = self.random.choice(self.versions[-8:])
        self.history += 1
        self.state = found.state
        self.live = {name: list(paths) for name, paths in found.live.items()}
        elsewhere = {url: set() for url in self.files}  # type: dict[str, set[str]]
        self.files = {**elsewhere, **{url: set(paths) for url, paths in found.files.items()}}
        del self.versions[found.state.version + 1 :]
        self.writes = [write for write in self.writes if write.is_job]
        self.evidence, self.cleanings, self.moves = [], [], []
        with suppress(SparklogError):
            for broker in sorted(self.state.brokers):
                self._submit(partial(decide_brokers.cordon, broker=broker, cordoned=False))
        return f"to {found.state.version}"
