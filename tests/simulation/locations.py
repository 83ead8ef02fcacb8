"""A simulated cluster on several locations: three brokers, two mirrors, and operators who move, lose and mix them up.

Each address is a mount point (``sparklog.testing.mount_point``) on a disk, and what an operator does to a location is
done to these. All processes are real code: producers that write real segment files to replicated topics, a Spark job
whose driver, tasks and commit are far apart, the controller, replication, maintenance, mirrors, and the functions
behind ``brokers``, ``cluster`` and ``reassign-partitions``. Each may be stopped for any time, fail or die at any
storage call. ``location_truth`` says what must hold.

A seed has one or two *themes* (``location_operators``), so that rare combinations of one kind of event are frequent.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster, shared
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.removals import LATE_REQUEST_MS
from sparklog.errors import ClusterMovedError, SparklogError, StorageUnavailableError
from sparklog.ids import SeededIds
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.layout import CLUSTER_KEY
from sparklog.log.settings import LogSettings
from sparklog.maintenance import mirror as mirroring
from sparklog.maintenance.gc.recent_look import LONGEST_LOOK_SECONDS
from sparklog.protocol.decide.topics import alter_configs
from sparklog.spark.sink import output
from sparklog.store import open as opening
from sparklog.store.base import Store
from sparklog.store.memory import forget_space
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    LOST_ANSWER,
    NEVER_ANSWERS,
    REPEATED,
    UNAVAILABLE,
    Call,
    FaultyStore,
    LateEffect,
    SimulatedCrash,
    SimulatedInterrupt,
)
from sparklog.testing.mount_point import MountPoint
from tests.simulation.location_truth import Disk, Truth
from tests.simulation.machines import some_machines
from tests.simulation.scheduler import SideBySide, Simulation

SCHEME = "sim"
ROOT, B1, B2, SPARE, SPARE_2, SPARE_3, M1, M2, COPY, OTHER, OTHER_B = (
    f"{SCHEME}://w/{name}" for name in ("root", "b1", "b2", "b3", "b4", "b5", "m1", "m2", "copy", "other", "other-b")
)
BROKERS = (B1, B2)
MIRRORS = (M1, M2)

TOPICS: Mapping[str, tuple[int, ...]] = {"one": (1,), "two": (1, 2), "three": (2, 0, 1), "root": (0,)}
"""Topics of one partition each, and its first replicas."""

SEGMENT_SECONDS = 100
DELETE_DELAY_SECONDS = 60
VACUUM_SECONDS = 300
CONFIGS = {
    "segment.ms": str(SEGMENT_SECONDS * 1000),
    "file.delete.delay.ms": str(DELETE_DELAY_SECONDS * 1000),
    "history.delete.delay.ms": str(DELETE_DELAY_SECONDS * 1000),
    "retention.ms": "-1",
}
CLUSTER_CONFIGS = {"metadata.max.retention.ms": "60000", "broker.session.timeout.ms": "10000"}
SETTINGS = LogSettings(checkpoint_interval_commits=5, min_commits_kept=0)
MACHINES = 4
STOP_SECONDS = (10.0, 2500.0)
RATES: tuple[Mapping[str, float], ...] = (
    {},
    {UNAVAILABLE: 0.004, LOST_ANSWER: 0.004},
    {UNAVAILABLE: 0.01, LOST_ANSWER: 0.01, CRASH_BEFORE: 0.003, CRASH_AFTER: 0.003},
    {LOST_ANSWER: 0.004, REPEATED: 0.3, CRASH_AFTER: 0.003, NEVER_ANSWERS: 0.0005},
)
"""Storage faults of a seed: none, some, many with crashes, or requests that are sent twice or never answered."""
STOP_RATES = (0.0, 0.002, 0.01, 0.03)
ACTING = frozenset({"delete", "put", "put_if_absent", "close", "list"})
STOPS_BEFORE_ACTING = 6
DIES = (SimulatedCrash, SimulatedInterrupt)


class Look(NamedTuple):
    """A call after which a process may delete: when it was made, and how often the root had been restored or had taken
    locations over."""

    at: float
    changes: int

    @classmethod
    def now(cls, world: World) -> Look:
        return cls(world.simulation.monotonic(), world.counts["restored"] + world.counts["taking over"])


class Life:
    """One process of an actor, until it dies: its stores, and the coordinator that its Spark code shares."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.crashed = False
        self.unreachable: set[str] = set()
        """Addresses that this process cannot reach."""
        self.looked = Look.now(world)
        """This process's last call that was no deletion."""
        self.shared: dict[object, Any] = {}
        self.stores: dict[tuple[str, str], LifeStore] = {}

    def store(self, url: str, required: str = "", fields: Mapping[str, object] | None = None) -> LifeStore:
        """Return the store of an address, with the faults of this process."""
        key = (url, f"{required} {sorted((fields or {}).items())}")
        store = self.stores.get(key)
        if store is None:
            point = self.world.point(url)
            store = self.stores[key] = LifeStore(self, point.guarded_by(required, fields) if required else point)
        return store


class LifeStore(FaultyStore):
    """What one process sees of an address. All stores of a process die together."""

    def __init__(self, life: Life, point: MountPoint) -> None:
        self.life = life
        world = life.world
        super().__init__(point, seed=world.random.getrandbits(64), rates=world.rates, before=self._before)

    @property
    def parallel_requests(self) -> int:
        return 1  # requests are made one by one in any case, and pools take half of the time

    @property
    def crashed(self) -> bool:
        return self.life.crashed

    @crashed.setter
    def crashed(self, value: bool) -> None:
        self.life.crashed = self.life.crashed or value

    def guarded_by(self, key: str, fields: Mapping[str, object] | None = None) -> LifeStore:
        return self.life.store(self.root, key, fields)

    def _wait_for_ever(self, call: Call) -> None:
        self.life.crashed = True
        self.life.world.give_up()

    def _keep_late(self, effect: LateEffect) -> None:
        super()._keep_late(effect)
        world = self.life.world
        world.on_their_way.append((world.simulation.monotonic() + LATE_REQUEST_MS / 1000, self, effect))

    def _before(self, step: int, call: Call) -> None:
        world = self.life.world
        began = world.simulation.monotonic()
        seconds = world.stop_seconds(call)
        if seconds:
            world.simulation.sleep(seconds)
        world.simulation.step(" ".join((*call, self.root)))
        world.land_overdue()
        if self.root in self.life.unreachable:
            raise StorageUnavailableError(f"{self.root} does not answer this machine", path=self.root)
        looked, now = self.life.looked, Look.now(world)
        if call.operation != "delete":
            self.life.looked = now
        elif looked.changes < now.changes and began - looked.at <= LONGEST_LOOK_SECONDS:
            disk = world.point(self.root).mounted
            assert isinstance(disk, Disk)
            world.truth.deletes_late(disk, call.key)


class _Shared:
    """In place of the table of shared coordinators: each simulated process has its own."""

    held = nullcontext()

    @property
    def entries(self) -> dict[object, Any]:
        return _current().life.shared


_worlds: list[World] = []


def _current() -> World:
    return _worlds[-1]


def _open_shared(root: str | Store, options: Mapping[str, object] | None = None) -> Coordinator:
    world = _current()
    return open_cluster(root, options, world.simulation.clock, world.simulation.ids(), SETTINGS)


class _Pool(SideBySide):
    def __init__(self, workers: int, name: str = "") -> None:
        super().__init__(workers)


def install(patch: pytest.MonkeyPatch) -> None:
    """Make the addresses of a simulated world openable, and give each simulated process its own coordinators."""
    patch.setitem(opening.OPENERS, SCHEME, lambda text, options: _current().open_address(text))
    patch.setattr(output, "ThreadPoolExecutor", _Pool)
    patch.setattr(shared, "coordinators", _Shared())
    patch.setattr(shared, "open_cluster", _open_shared)
    patch.setattr(mirroring, "RandomIds", lambda: _current().simulation.ids())


class World:
    """One run: disks, mounts, actors and the truth."""

    def __init__(self, seed: int, themes: Iterable[str] = ()) -> None:
        self.seed = seed
        self.simulation = Simulation(seed)
        self.random: random.Random = self.simulation.random
        self.themes = tuple(themes)
        self.rates: Mapping[str, float] = self.random.choice(RATES)
        self.copy_of_root: dict[str, tuple[bytes, int]] = {}
        """What the root was restored from."""
        self.on_their_way: deque[tuple[float, LifeStore, LateEffect]] = deque()
        """Requests that are served late, with the time until which the storage serves them."""
        self.stop_rate = self.random.choice(STOP_RATES)
        self.counts: Counter[str] = Counter()
        self.busy: set[str] = set()
        self.disks: list[Disk] = []
        self.points: dict[str, MountPoint] = {}
        self.truth = Truth()
        self.lives: dict[str, Life] = {}
        self.machines = some_machines(self.simulation, MACHINES)
        _worlds.append(self)
        self._set_up()

    # -- disks and addresses

    def new_disk(self, name: str) -> Disk:
        disk = Disk(f"{name}-of-{self.seed}", self.simulation)
        disk.truth = self.truth
        self.disks.append(disk)
        return disk

    def point(self, url: str) -> MountPoint:
        """Return the mount point of an address; a disk is mounted there at its first use."""
        point = self.points.get(url)
        if point is None:
            disk = self.new_disk(url.rpartition("/")[2])
            self.truth.home[url] = disk
            point = self.points[url] = MountPoint(url, disk, self.new_disk(f"below-{disk.name}"))
        return point

    def home(self, url: str) -> Disk:
        """Return the disk that belongs to an address."""
        self.point(url)
        return self.truth.home[url]

    def open_address(self, url: str) -> Store:
        return self.life.store(url) if self.simulation.actor else self.point(url)

    def address_of(self, disk: Disk) -> str:
        return next(url for url, home in self.truth.home.items() if home is disk)

    @property
    def root_url(self) -> str:
        """The address of the root in force."""
        return self.address_of(self.truth.root.disk)

    def _set_up(self) -> None:
        objects = _template(self)
        for url, content in objects.items():
            self.home(url).space.objects.update(content)
        self.truth.add_root(self.home(ROOT))

    # -- processes

    @property
    def life(self) -> Life:
        """The process of the actor that runs now."""
        return self.lives.get(self.simulation.actor) or self.new_life()

    def new_life(self) -> Life:
        """Start a new process for the actor that runs now."""
        life = self.lives[self.simulation.actor] = Life(self)
        return life

    def give_up(self) -> None:
        """Stop the actor that runs now for ever."""
        self.counts["never answered"] += 1
        self.busy.discard(self.simulation.actor)
        self.simulation.stop()

    def stop_seconds(self, call: Call) -> float:
        """Return for how long the process is stopped before a call: more often before it acts."""
        rate = self.stop_rate * (STOPS_BEFORE_ACTING if call.operation in ACTING else 1)
        if rate == 0.0 or self.random.random() >= rate:
            return 0.0
        self.counts["stopped"] += 1
        return self.random.uniform(*STOP_SECONDS)

    def open(self, url: str = "") -> Coordinator:
        """Open the cluster in the process that runs now: at an address, else where this actor takes it to be."""
        address = url or (ROOT if self.random.random() < 0.2 else self.root_url)
        try:
            return self.open_at(address)
        except ClusterMovedError:
            return self.open_at(self.root_url)

    def open_at(self, url: str) -> Coordinator:
        store = self.life.store(url, CLUSTER_KEY)
        log = CommitLog.open(store, self.simulation.clock, self.simulation.ids(), settings=SETTINGS)
        return Coordinator(log)

    def pause(self, longest_seconds: float) -> None:
        self.simulation.sleep(self.random.uniform(0, longest_seconds))

    def spawn(self, name: str, work: Callable[[], None], ends: bool = True) -> None:
        """Start an actor. The run ends once all actors with ``ends`` are done."""

        def until_done() -> None:
            try:
                work()
            finally:
                self.busy.discard(name)

        if ends:
            self.busy.add(name)
        self.simulation.spawn(name, until_done if ends else work, self.random.choice(self.machines))

    def run(self) -> None:
        """Run all actors. Raises if one fails with what is no error of sparklog."""
        self.simulation.run()

    def land_overdue(self) -> None:
        """Let requests happen that have been on their way for as long as one may be (``coordinator.removals``)."""
        while self.on_their_way and self.on_their_way[0][0] <= self.simulation.monotonic():
            _, store, effect = self.on_their_way.popleft()
            store.land(effect)

    def land_all(self) -> None:
        """Let all requests happen that are on their way: an operator has waited for them."""
        while self.on_their_way:
            _, store, effect = self.on_their_way.popleft()
            store.land(effect)

    def sound(self) -> Clock:
        """Mount each disk where it belongs, end all faults and stops; return the clock for what follows the run."""
        for url, point in self.points.items():
            point.mount(self.truth.home[url])
        self.rates, self.stop_rate = {}, 0.0
        for life in self.lives.values():
            life.crashed = True
        return Clock(self.simulation)

    def later(self, seconds: float = 0.0) -> Coordinator:
        """Return the cluster as a new client opens it after the run, that many seconds later."""
        self.simulation.advance(seconds)
        root = self.point(self.root_url).guarded_by(CLUSTER_KEY)
        log = CommitLog.open(root, Clock(self.simulation), self.simulation.ids(), settings=SETTINGS)
        return Coordinator(log)

    def close(self) -> None:
        _worlds.remove(self)
        for disk in self.disks:
            forget_space(disk.name)


class Clock:
    """The clock before and after the run, on which a sleep only advances the time."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def now_ms(self) -> int:
        return self._simulation.now_ms()

    def monotonic(self) -> float:
        return self._simulation.monotonic()

    def sleep(self, seconds: float) -> None:
        self._simulation.advance(seconds)


@contextmanager
def failing(world: World, name: str) -> Iterator[None]:
    """Count what ends a process or fails a call, and go on."""
    try:
        yield
    except DIES:
        world.counts["killed"] += 1
        world.new_life()
    except SparklogError as error:
        world.counts[f"{name}: {type(error).__name__}"] += 1


# -- the cluster that every seed begins with

_templates: list[dict[str, dict[str, tuple[bytes, int]]]] = []


def _template(world: World) -> dict[str, dict[str, tuple[bytes, int]]]:
    """Return the objects of a new cluster by address; made once, and the same whichever seed is the first."""
    if not _templates:
        clock, ids = Clock(world.simulation), SeededIds(0)
        cluster = create_cluster(world.point(ROOT), clock=clock, ids=ids, settings=SETTINGS)
        cluster.submit(partial(alter_configs, topic="", changes=CLUSTER_CONFIGS))
        for url in BROKERS:
            add_broker(cluster, url)
        for topic, replicas in TOPICS.items():
            cluster.create_topic(topic, configs=CONFIGS, assignment=[replicas])
        _templates.append({url: dict(world.home(url).space.objects) for url in (ROOT, *BROKERS)})
    return _templates[0]
