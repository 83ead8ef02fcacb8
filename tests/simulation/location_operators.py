"""What operators do to a cluster on several locations, by theme.

**Left out**, since the documents ask operators not to do it, or call the loss expected: taking away the only copy of a
record (an emptied or exchanged disk of a replica that is alone in sync); restoring a root without the files that its
snapshot names; using a forcibly replaced root on purpose (what it still accepts is given up, but what its processes
delete is not); forcing a second promotion while the root is out of reach. Maintenance goes on while the root is
restored or takes locations over, but what a process deletes within ``LONGEST_LOOK_SECONDS`` of its last look is given
up then (``Truth.deletes_late``).

Each operator is a process like others: stopped, killed and failed between any two storage calls. It repeats an
interrupted command, as the documents say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sparklog.client.producer.batch_files import PartitionRun, write_files
from sparklog.coordinator import create_cluster
from sparklog.coordinator.begun_files import WRITTEN_COUNTS_SECONDS
from sparklog.coordinator.brokers import add_broker, cordon_broker, move_broker, remove_broker, replace_location
from sparklog.coordinator.take_over import take_over
from sparklog.coordinator.unclean_election import UncleanSearch
from sparklog.ids import SeededIds
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.mirror import mirror
from sparklog.maintenance.promotion import promote
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.decide import elections
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.brokers import is_online
from sparklog.protocol.decide.replicas import alter_reassignments
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from tests.simulation.location_actors import batch_of, metadata_of, roll_and_sweep
from tests.simulation.location_truth import Disk
from tests.simulation.locations import (
    B1,
    B2,
    BROKERS,
    COPY,
    M1,
    M2,
    OTHER,
    OTHER_B,
    ROOT,
    SETTINGS,
    SPARE,
    SPARE_2,
    SPARE_3,
    TOPICS,
    Clock,
    World,
    failing,
)

Snapshot = dict[str, dict[str, tuple[bytes, int]]]
"""Objects by address and key."""

TRIES = 4
"""times that an operator repeats a command."""


def repeat(world: World, name: str, command: Callable[[], object]) -> bool:
    """Run a command until it succeeds, ``TRIES`` times at most; return whether it did."""
    for _ in range(TRIES):
        done = False
        with failing(world, name):
            command()
            done = True
        if done:
            world.counts[name] += 1
            return True
        world.pause(30)
    return False


def broker_at(state: State, url: str) -> int:
    """Return the broker at an address, -1 if there is none."""
    return next((number for number, broker in state.brokers.items() if broker.url == url), -1)


def is_spare(state: State, broker: int) -> bool:
    """Whether every partition with a replica in sync at a broker has another one in sync and online."""
    return all(
        any(other != broker and state.brokers[other].online for other in partition.isr)
        for topic in state.topics.values()
        for partition in topic.partitions
        if broker in partition.isr
    )


def copy_disk(source: Disk, target: Disk) -> None:
    """``cp -r`` at one moment."""
    target.space.objects.update(source.space.objects)


# -- brokers


def reassign(world: World, broker: int, away: bool) -> None:
    """Move replicas of some topics, away from a broker or at random."""
    coordinator = world.open()
    state = coordinator.refresh()
    targets: dict[tuple[str, int], list[int] | None] = {}
    for topic in TOPICS if away else world.random.sample(list(TOPICS), 2):
        replicas = [b for b in state.partition(topic, 0).replicas if b not in state.partition(topic, 0).removing]
        others = [b for b in state.brokers if b not in replicas and b != broker and not state.brokers[b].cordoned]
        if away and broker in replicas:
            targets[topic, 0] = [b for b in replicas if b != broker] or others[:1]
        elif not away and others:
            chosen = world.random.choice(replicas)
            targets[topic, 0] = [world.random.choice(others) if b == chosen else b for b in replicas]
    if targets:
        coordinator.submit(lambda now: alter_reassignments(now, targets))


def reassign_often(world: World) -> None:
    """Move replicas back and forth, and lift cordons by hand, as after a vacuum that was killed."""
    for number in range(world.random.randint(3, 6)):
        if world.random.random() < 0.2:
            repeat(world, "reassign", lambda: reassign(world, -1, False))
        move = partial(_reassign_to, world, {("one", 0): [2 if number % 2 == 0 else 1]})
        if not repeat(world, "reassign", move):
            repeat(world, "uncordon", lambda: _uncordon(world))
            repeat(world, "reassign", move)
        world.pause(200)


def _reassign_to(world: World, targets: dict[tuple[str, int], list[int]]) -> None:
    world.open().submit(lambda now: alter_reassignments(now, targets))
    replicate(world.open(), InProcess())


def _uncordon(world: World) -> None:
    coordinator = world.open()
    for broker in coordinator.refresh().brokers:
        cordon_broker(coordinator, broker, False)


def reuse_id(world: World) -> None:
    """Remove a broker, and give its id to another location."""
    url, new = world.random.choice(BROKERS), SPARE
    number = {B1: 1, B2: 2}[url]
    world.pause(150)
    if not repeat(world, "drain", lambda: reassign(world, number, True)):
        return

    def remove() -> None:
        coordinator = world.open()
        for _ in range(3):
            replicate(coordinator, InProcess())
        if broker_at(coordinator.refresh(), url) >= 0:
            remove_broker(coordinator, number)

    if not repeat(world, "remove", remove):
        return
    world.pause(60)

    def add() -> None:
        coordinator = world.open()
        if broker_at(coordinator.refresh(), new) < 0:
            add_broker(coordinator, new, number)

    if repeat(world, "re-add", add) and world.random.random() < 0.7:
        wanted = {("one", 0): [number], ("two", 0): [number, 3 - number]}
        repeat(world, "move back", lambda: _reassign_to(world, wanted))


def move_copy(world: World) -> None:
    """Copy a location while it is in use, and move the broker to the copy. The old location stays."""
    url = world.random.choice(BROKERS)
    world.pause(150)
    source, target = world.home(url), world.home(SPARE_2)
    for _ in range(3):
        world.simulation.step("copy a location")
        copy_disk(source, target)
        world.pause(world.random.choice((0.01, 30)))
        if repeat(world, "move", lambda: _move(world, url, SPARE_2)):
            return


def _move(world: World, url: str, new: str) -> None:
    coordinator = world.open()
    number = broker_at(coordinator.refresh(), url)
    if number >= 0:
        move_broker(coordinator, number, new)


def remount_elsewhere(world: World) -> None:
    """Mount a disk at another address, which no other operator uses, and move the broker there."""
    url = world.random.choice(BROKERS)
    world.pause(150)
    disk = world.home(url)
    world.simulation.step("mount elsewhere")
    world.point(SPARE_3)
    world.point(url).unmount()
    world.truth.home[SPARE_3] = disk
    world.point(SPARE_3).mount(disk)
    if not repeat(world, "remount", lambda: _move(world, url, SPARE_3)):
        world.point(url).mount(disk)


def replace_disk(world: World) -> None:
    """Put an empty disk in place of a broker's, of which others have all records, and accept it."""
    url = world.random.choice(BROKERS)
    number = {B1: 1, B2: 2}[url]
    repeat(world, "spread", lambda: _spread_one(world))
    world.pause(200)
    disk = world.home(url)
    world.simulation.step("empty a disk")
    state = world.truth.root.newest.state
    if broker_at(state, url) != number or not is_spare(state, number):
        return
    world.truth.emptied(disk)
    disk.space.objects.clear()

    def replace() -> None:
        coordinator = world.open()
        if broker_at(coordinator.refresh(), url) == number:
            replace_location(coordinator, number)

    if repeat(world, "replace", replace):
        disk.emptied.clear()


def _spread_one(world: World) -> None:
    """Give topic ``one`` a second replica."""
    world.open().submit(lambda state: alter_reassignments(state, {("one", 0): [1, 2]}))


# -- mounts


def swap_disks(world: World) -> None:
    """Mount two disks at each other's addresses, or another cluster's; after a while the right ones again."""
    world.pause(200)
    url = world.random.choice(BROKERS)
    other = BROKERS[1 - BROKERS.index(url)]
    if world.random.random() < 0.4:
        other = OTHER_B
    for _ in range(world.random.choice((1, 1, 2))):
        world.simulation.step("swap")
        world.point(url).swap(world.point(other))
        world.pause(world.random.choice((50, 600, 2000)))
        world.simulation.step("swap back")
        for address in (url, other):
            world.point(address).mount(world.home(address))
        world.pause(200)


_other: list[dict[str, dict[str, tuple[bytes, int]]]] = []


def make_templates() -> None:
    """Make what seeds begin with, before a test breaks a rule on purpose: it would break it for the next ones, too."""
    if not _other:
        world = World(0)
        make_other_cluster(world)
        world.close()


def make_other_cluster(world: World) -> None:
    """Add another cluster, with a record at a location of its own, before the run."""
    if not _other:
        clock, ids = Clock(world.simulation), SeededIds(1)
        cluster = create_cluster(world.point(OTHER), clock=clock, ids=ids, settings=SETTINGS)
        add_broker(cluster, OTHER_B, 1)
        cluster.create_topic("theirs", assignment=[[1]])
        run = PartitionRun(0, [batch_of("theirs", [b"theirs"], 0)], -1)
        cluster.append(AppendRequest(appends=write_files(cluster, metadata_of(cluster, "theirs"), [run])))
        _other.append({url: dict(world.home(url).space.objects) for url in (OTHER, OTHER_B)})
    for url, objects in _other[0].items():
        world.home(url).space.objects.update(objects)
    world.truth.add_root(world.home(OTHER))


def unmount_for_a_while(world: World) -> None:
    for _ in range(world.random.randint(1, 3)):
        world.pause(150)
        url = world.random.choice(BROKERS)
        if world.point(url).mounted is not world.home(url):
            continue
        world.simulation.step("unmount")
        if world.random.random() < 0.4:
            world.point(url).unmount(calls=world.random.randint(1, 12))
        else:
            world.point(url).unmount()
            world.pause(world.random.choice((1, 60, 400)))
        world.simulation.step("mount")
        world.point(url).mount(world.home(url))


def elect_uncleanly(world: World) -> None:
    """A location is away for a while, and when it is back, but not in sync, the other one is; then one is elected that
    is not in sync, while its location comes and goes."""
    if world.random.random() < 0.3:  # else only the operator elects
        repeat(world, "allow", partial(_alter, world, "two", {"unclean.leader.election.enable": "true"}))
    first, second = world.random.sample(BROKERS, 2)
    numbers = {B1: 1, B2: 2}
    wait_until(world, lambda state: state.partition("two", 0).log_end_offset > 0)
    world.simulation.step("unmount")
    world.point(first).unmount()
    wait_until(world, lambda state: numbers[first] not in state.partition("two", 0).isr)
    world.simulation.step("mount")
    world.point(first).mount(world.home(first))
    wait_until(world, lambda state: is_online(state, numbers[first]))
    world.simulation.step("unmount the other")
    world.point(second).unmount()
    wait_until(world, lambda state: state.partition("two", 0).leader < 0)
    for _ in range(3):
        if world.random.random() < 0.7:
            world.simulation.step("unmount for some calls")
            world.point(first).unmount(calls=world.random.randint(1, 8), after=world.random.randint(0, 6))
        repeat(world, "elect", lambda: _elect(world))
    for url in (first, second):
        world.point(url).mount(world.home(url))


def wait_until(world: World, condition: Callable[[State], bool]) -> None:
    """Let others work until the log says something, 20 minutes at most."""
    for _ in range(20):
        if condition(world.truth.root.newest.state):
            return
        world.pause(120)


def come_and_go(world: World) -> None:
    """Locations are unmounted for moments."""
    world.pause(200)
    for _ in range(10):
        url = world.random.choice(BROKERS)
        if world.point(url).mounted is world.home(url):
            world.point(url).unmount()
            world.pause(world.random.choice((1, 20)))
            world.point(url).mount(world.home(url))
        world.pause(30)


def _alter(world: World, topic: str, changes: dict[str, str]) -> None:
    world.open().submit(partial(alter_configs, topic=topic, changes=changes))


def _elect(world: World) -> None:
    """``leader-election --election-type unclean`` for all partitions without a leader."""
    coordinator = world.open()
    state = coordinator.refresh()
    for topic in ("two", "three"):
        if state.partition(topic, 0).leader < 0:
            election = UncleanSearch(coordinator, state).find(topic, 0)
            coordinator.submit(partial(elections.elect_unclean, elections=[election]))


# -- roots


def promote_mirrors(world: World) -> None:
    """Promote a mirror, and perhaps another operator the other one."""
    world.pause(400)
    repeat(world, "promote", lambda: _promote(world, M1, False))


def promote_the_other(world: World) -> None:
    world.pause(400)
    repeat(
        world,
        "promote other",
        lambda: _promote(world, M2, world.random.random() < 0.3 and bool(world.truth.root.newest.state.moved_to)),
    )


def promote_in_chain(world: World) -> None:
    """Promote a mirror, and later a mirror of that one, while the first new root is out of reach."""
    _mirror(world, ROOT, M1)
    if not repeat(world, "promote", lambda: _promote(world, M1, False)):
        return
    for _ in range(2):
        _mirror(world, M1, M2)
    world.truth.chained = True
    _force(world, M2, M1)


def _mirror(world: World, root: str, target: str) -> None:
    world.pause(200)
    clock = world.simulation.clock
    repeat(world, "mirror by hand", lambda: mirror(world.life.store(root), world.life.store(target), clock))


def _promote(world: World, url: str, force: bool) -> None:
    simulation = world.simulation
    if force:
        world.truth.force(url)
    promote(url, ROOT, None, force, simulation.clock, simulation.ids())
    world.truth.verified(world.home(url))


def force_promotion(world: World) -> None:
    """Promote a mirror while the root is unmounted, or out of the operator's reach while others reach it."""
    world.pause(500)
    _force(world, M1, ROOT)


def _force(world: World, target: str, old: str) -> None:
    unmounted = world.random.random() < 0.4
    if unmounted:
        world.simulation.step("unmount the root")
        world.point(old).unmount()
    for _ in range(TRIES):
        done = False
        world.truth.force(target)
        with failing(world, "force"):
            world.life.unreachable = set() if unmounted else {old}
            promote(target, old, None, True, world.simulation.clock, world.simulation.ids())
            world.truth.verified(world.home(target))
            done = True
        world.life.unreachable = set()
        if done:
            world.counts["forced"] += 1
            break
        world.pause(20)
    world.pause(500)
    world.simulation.step("mount the root")
    world.point(old).mount(world.home(old))


def restore_root(world: World) -> None:
    """Set the root back to a snapshot, with the files of the locations that it names, while clients go on."""
    world.pause(250)
    world.simulation.step("take a snapshot")
    kept = take_snapshot(world)
    for number in range(world.random.choice((0, 3, 3))):  # the log goes on, or stands still
        repeat(world, "alter", partial(_alter, world, "two", {"segment.bytes": str(2_000_000 + number)}))
        world.pause(world.random.choice((5, 80, 200)))
    world.simulation.step("restore")
    if world.truth.root.disk is not world.home(ROOT):
        return
    world.land_all()  # as docs/backup.md tells to wait for
    set_back(world, kept)
    if world.random.random() < 0.7:
        world.pause(world.random.choice((1, 100, 600)))
        repeat(world, "take over", lambda: _take_over(world, False))


def take_snapshot(world: World) -> Snapshot:
    """Return what the root and the locations hold."""
    return {url: dict(world.home(url).space.objects) for url in (ROOT, *BROKERS)}


def set_back(world: World, kept: Snapshot) -> None:
    """Replace the root by a snapshot, and add what the locations do not have any more."""
    counted_ms = world.simulation.now_ms() - WRITTEN_COUNTS_SECONDS * 1000
    written = {key: modified_ms >= counted_ms for key, (_, modified_ms) in world.home(ROOT).space.objects.items()}
    world.home(ROOT).space.objects.clear()
    world.home(ROOT).space.objects.update(kept[ROOT])
    for url in BROKERS:
        objects = world.home(url).space.objects
        objects.update({key: stored for key, stored in kept[url].items() if key not in objects})
    world.copy_of_root = kept[ROOT]
    world.truth.restored(world.home(ROOT), written)
    world.counts["restored"] += 1


def _take_over(world: World, force: bool) -> None:
    world.truth.taking_over(world.home(ROOT))
    world.counts["taking over"] += 1
    taken = take_over(world.open_at(ROOT), force)
    world.truth.took_over(world.home(ROOT), taken.unreached)
    world.truth.verified(world.home(ROOT))


def continue_at_root(world: World) -> None:
    """Give a forced promotion up, which may hang, and continue at the old root."""
    world.pause(world.random.choice((600, 1500, 3000)))
    world.simulation.step("mount the root")
    world.point(ROOT).mount(world.home(ROOT))

    def continue_there() -> None:
        world.truth.continuing = world.home(ROOT)
        _take_over(world, True)

    repeat(world, "continue", continue_there)


def use_copy(world: World) -> None:
    """Copy the root, and run maintenance on the copy, which names the locations of the root in use."""
    world.pause(250)
    world.simulation.step("cp -r")
    copy_disk(world.home(ROOT), world.home(COPY))
    for _ in range(4):
        world.pause(250)
        with failing(world, "maintain the copy"):
            coordinator = world.open(COPY)
            roll_and_sweep(world, coordinator)
            vacuum(coordinator, 0, dry_run=False, force=True)
            world.counts["maintained the copy"] += 1


def create_in_location(world: World) -> None:
    """``cluster create`` with the address of a broker's location; then that cluster is used, and vacuumed."""
    world.pause(250)
    url = world.random.choice(BROKERS)
    simulation = world.simulation
    created = []

    def create() -> None:
        store = world.life.store(url)
        created.append(create_cluster(store, None, simulation.clock, simulation.ids(), SETTINGS))

    if not repeat(world, "create", create):
        return

    def use() -> None:
        cluster = world.open(url)
        for number in range(25):
            cluster.submit(
                partial(alter_configs, topic="", changes={"offsets.retention.minutes": str(10_000 + number)})
            )
        vacuum(cluster, 0, dry_run=False, force=True)

    for _ in range(2):
        world.pause(100)
        repeat(world, "vacuum the new cluster", use)


LOCATION_THEMES: dict[str, tuple[Callable[[World], None], ...]] = {
    "reassign": (reassign_often,),
    "reuse": (reuse_id,),
    "move": (move_copy,),
    "remount": (remount_elsewhere,),
    "replace": (replace_disk,),
    "swap": (swap_disks,),
    "unmount": (unmount_for_a_while,),
    "unclean": (elect_uncleanly, come_and_go),
}
"""Operators of themes that concern locations."""

ROOT_THEMES: dict[str, tuple[Callable[[World], None], ...]] = {
    "promote": (promote_mirrors, promote_the_other),
    "force": (force_promotion,),
    "continue": (force_promotion, continue_at_root),
    "chain": (promote_in_chain,),
    "restore": (restore_root,),
    "copy": (use_copy,),
    "create": (create_in_location,),
}
"""Operators of themes that concern roots. A seed has one of them at most."""

THEMES = {**LOCATION_THEMES, **ROOT_THEMES}

EXCLUSIVE = frozenset({"replace", "restore", "swap"})
"""Themes that are not mixed with others, since together they take away an only copy."""
