"""What has to hold of a cluster whose records lie at several locations, checked at the disks below mounts and faults.

Disks are identified by what they are, not by where they are mounted: ``home`` says which disk belongs to an address. At
every commit of a root in force, ``Truth`` compares the replicas in sync with the disks that belong to their brokers; at
every deletion it looks who needs the file. So a violation is detected at the call that causes it.

**In force** is the root that clients are to use: the first one until a mirror is promoted. What an operation is
documented to lose is *given up*: commits after the snapshot that is restored, those after the mirror's when a promotion
was forced, copies on a disk that an operator emptied until that is in the log, and what an unclean leader lacks.

Rules: nothing here is a step of the simulation; findings are collected and not raised. Not for: what one broker's
maintenance does to a log (``truth``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator
from sparklog.errors import ObjectExistsError, SparklogError
from sparklog.log.layout import CLUSTER_KEY, COMMITS, commit_version, read_certain_boundary, read_cluster_file
from sparklog.log.owner_files import OWNERS, read_root
from sparklog.protocol.commit_bytes import decode_commit, stored_digest
from sparklog.protocol.commits import Append, Commit, DeleteTopic, MoveCluster, ReplaceSegments, commit_key
from sparklog.protocol.file_names import begun_at, index_path, is_data_file, log_path_of
from sparklog.protocol.fold import fold
from sparklog.protocol.segments import Segment, replacement_of, segment_of
from sparklog.protocol.state import State
from sparklog.store.base import BytesLike
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.types import TopicPartition

DELETED = "a file was deleted that a replica in sync needs"
UNREADABLE = "an acknowledged record is at none of its replicas"
LACKS = "a replica in sync lacks a file"
TWO_ROOTS = "two roots of one cluster are in force"
TWICE = "two records were acknowledged at one offset"
LOST = "an acknowledged record is not in the log"
DIFFERENT = "an acknowledged record reads differently"
REPEATED = "a record is in the log twice"
DROPPED = "an unclean election dropped records that its leader has"
COMMIT_GONE = "a commit of the log was deleted"
OTHER_TIMELINE = "a client that opens the root reads another timeline"
STILL_OPEN = "a root that was replaced accepts commits"
BRICKED = "the cluster no longer works on a sound storage"

FINDINGS = (
    DELETED,
    UNREADABLE,
    LACKS,
    TWO_ROOTS,
    TWICE,
    LOST,
    DIFFERENT,
    REPEATED,
    DROPPED,
    COMMIT_GONE,
    OTHER_TIMELINE,
    STILL_OPEN,
    BRICKED,
)


class Finding(NamedTuple):
    """One violation: its kind (one of ``FINDINGS``), and where."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Disk(MemoryStore):
    """A disk, bucket or folder, wherever it is mounted. It notifies ``truth`` of what is written and deleted.

    ``emptied`` are files that were on it when an operator took its content away, until the log knows of that.
    """

    truth: Truth | None = None

    def __init__(self, name: str, clock: object) -> None:
        forget_space(name)
        super().__init__(name, clock)  # type: ignore[arg-type]
        self.name = name
        self.emptied: set[str] = set()
        self.deleted: set[str] = set()
        """Data files that a process deleted."""

    def __repr__(self) -> str:
        return self.name

    def has(self, path: str) -> bool:
        """Whether a segment file and its index are here."""
        return path in self.space.objects and index_path(path) in self.space.objects

    def put(self, key: str, data: BytesLike) -> None:
        super().put(key, data)
        self.emptied.discard(key)

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        try:
            super().put_if_absent(key, data)
        except ObjectExistsError:
            if self.truth is not None and key == CLUSTER_KEY:
                self.truth.promoted_again(self)
            raise
        if self.truth is not None:
            if key.startswith(COMMITS):
                self.truth.follow(self)
            elif key == CLUSTER_KEY:
                self.truth.became_root(self)

    def delete(self, key: str) -> None:
        existed = key in self.space.objects
        super().delete(key)
        if existed and self.truth is not None:
            self.truth.deleted(self, key)


Live = dict[TopicPartition, tuple[Segment, ...]]


class Version:
    """A version of a history: the state after a commit, the live segments, and the appends of that commit."""

    __slots__ = ("appends", "live", "parent", "state")

    def __init__(
        self, state: State, live: Live, parent: Version | None, appends: Mapping[tuple[TopicPartition, str], int]
    ) -> None:
        self.state = state
        self.live = live
        self.parent = parent
        self.appends = appends

    def ancestors(self) -> Iterator[Version]:
        version: Version | None = self
        while version is not None:
            yield version
            version = version.parent

    def history(self) -> dict[tuple[TopicPartition, str], int]:
        """The base offset of every append of this timeline, by partition and path."""
        return {append: base for version in self.ancestors() for append, base in version.appends.items()}


class Root:
    """One root: its disk, the newest version of its log, and the disk of broker 0 as long as that has no address."""

    def __init__(self, disk: Disk, newest: Version, data_disk: Disk) -> None:
        self.disk = disk
        self.newest = newest
        self.data_disk = data_disk
        self.in_force = True
        self.continues = False
        """Whether it took over since the last promotion began: that one may not replace it."""
        self.is_replaced = False
        """Whether a promotion has replaced it, that was not given up."""
        self.forced = False
        """Whether it was superseded by a forced promotion: what it still accepts is lost."""


class Acknowledged(NamedTuple):
    """Records of one run, acknowledged at ``base_offset``; None if the client was not told."""

    partition: TopicPartition
    path: str
    base_offset: int | None
    values: Sequence[bytes]


class Truth:
    """See the module. ``home`` maps each address to the disk that belongs there."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.home: dict[str, Disk] = {}
        self.roots: list[Root] = []
        self.acks: list[Acknowledged] = []
        self.given_up: set[str] = set()
        """Paths of appends that a documented operation lost, unless the log has them all the same."""
        self.excused: set[tuple[str, str]] = set()
        """Disk and path of copies that a documented operation took away."""
        self.forcing: set[str] = set()
        """Addresses whose promotion is being forced."""
        self.chained = False
        """Whether a mirror of a promoted mirror may be promoted."""
        self.changed_at = -1
        """The version of the root as it was restored last, or began to take locations over."""
        self.continuing: Disk | None = None
        """The root that an operator continues."""
        self.seen: Counter[str] = Counter()
        self._replaced: dict[str, list[str]] = {}
        """The files that the segment of a file replaced."""
        self._continued_epoch = 0
        self._versions: dict[str, Version] = {}
        self._seen_findings: set[tuple[str, str]] = set()

    def find(self, kind: str, message: str) -> None:
        if (kind, message) not in self._seen_findings:
            self._seen_findings.add((kind, message))
            self.findings.append(Finding(kind, message))

    @property
    def root(self) -> Root:
        """The root in force of the first cluster."""
        cluster_id = self.roots[0].newest.state.cluster_id
        return next(r for r in reversed(self.roots) if r.in_force and r.newest.state.cluster_id == cluster_id)

    def add_root(self, disk: Disk) -> None:
        """Follow a root from its first commit."""
        state = State(cluster_id=read_cluster_file(disk).cluster_id)
        self.roots.append(Root(disk, Version(state, {}, None, {}), disk))
        self.follow(disk)

    # -- changes of the disks

    def follow(self, disk: Disk) -> None:
        """Apply the commits that were created at a disk since the last call, if a root is there."""
        for root in self.roots:
            if root.disk is disk:
                while self._take_next(root):
                    pass

    def _take_next(self, root: Root) -> bool:
        before = root.newest
        version = before.state.version + 1
        stored = root.disk.space.objects.get(commit_key(version))
        if stored is None:
            return False
        commit, digest = decode_commit(stored[0], version)
        if commit.previous != before.state.digest:
            return False  # to be withdrawn: it was created on top of a hole
        known = self._versions.get(digest)
        if known is None:
            state = fold(before.state, commit, digest).state
            known = self._versions[digest] = _make_version(before, state, commit)
            self.seen.update(type(action).__name__ for action in commit.actions)
        root.newest = known
        if self.continuing is root.disk and not known.state.moved_to:
            self._look_whether_continued(root)
        if root.in_force:
            self._check_commit(root, before, commit)
        elif known.appends:
            paths = {path for _, path in known.appends}
            if root.forced:
                self.given_up |= paths
            else:
                self.find(TWO_ROOTS, f"{root.disk}, whose cluster has moved, accepted version {version}")
        return True

    def _look_whether_continued(self, root: Root) -> None:
        """Whoever closes a root looks at its epoch again after any commit: the first one after an epoch decides."""
        epoch = read_root(root.disk).epoch
        if epoch > self._continued_epoch and self.is_newest_epoch(root.disk):
            self._continued_epoch = epoch
            self.continued(root.disk)

    def _check_commit(self, root: Root, before: Version, commit: Commit) -> None:
        for action in commit.actions:
            if isinstance(action, ReplaceSegments):
                if not action.added:
                    self._check_dropped(root, before, action)
                partition, version = TopicPartition(action.topic, action.partition), commit.version
                replaced = [
                    segment.path
                    for segment in before.live[partition]
                    if action.start_offset <= segment.base_offset < action.end_offset
                ]
                added = [replacement_of(action.partition, segment, version).path for segment in action.added]
                self._replaced.update(dict.fromkeys(added, replaced))
        self._excuse_replaced(root, before)
        self._check_holders(root, set(root.newest.appends), before)

    def _excuse_replaced(self, root: Root, before: Version) -> None:
        """A leader that was elected uncleanly may have the records of a segment in the files from before it replaced
        them: its operator is told to run fsck, which writes the segment again."""
        for partition, segments in root.newest.live.items():
            isr = root.newest.state.partition(*partition).isr
            former = before.state.find_partition(*partition)
            if former is not None and not set(isr).intersection(former.isr):
                for home in filter(None, (self._home(root, broker) for broker in isr)):
                    for path in {segment.path for segment in segments if not home.has(segment.path)}:
                        if self._replaced.get(path) and all(map(home.has, self._replaced[path])):
                            self.excused.add((home.name, path))
                            self.seen["kept by what was replaced"] += 1

    def _check_dropped(self, root: Root, before: Version, action: ReplaceSegments) -> None:
        """Segments leave the log in an unclean election: those that the new leader does not have."""
        partition = TopicPartition(action.topic, action.partition)
        leader = root.newest.state.partition(*partition).leader
        home = self._home(root, leader)
        for segment in before.live[partition]:
            if action.start_offset <= segment.base_offset < action.end_offset:
                if home is not None and home.has(segment.path):
                    self.find(DROPPED, f"{partition} at {segment.base_offset}: broker {leader} has {segment.path}")
                else:
                    self.given_up.add(segment.path)
                    self.given_up |= _paths_in(before, partition, segment)

    def _home(self, root: Root, broker: int) -> Disk | None:
        registered = root.newest.state.brokers.get(broker)
        if registered is None:
            return None
        return self.home.get(registered.url) if registered.url else root.data_disk

    def _check_holders(self, root: Root, new: set[tuple[TopicPartition, str]], before: Version | None = None) -> None:
        """Every replica in sync has every live file. What was lost in a restore counts neither for a ``new`` file nor
        for a replica that has joined since ``before``: a process that was suspended over it has seen the file."""
        state = root.newest.state
        for partition, segments in root.newest.live.items():
            isr = state.partition(*partition).isr
            former = before.state.find_partition(*partition) if before is not None else None
            joined = set() if former is None else set(isr).difference(former.isr)
            homes = [(broker, self._home(root, broker)) for broker in isr]
            for path in {segment.path for segment in segments}:
                lacking = [broker for broker, home in homes if home is None or not home.has(path)]
                if lacking:
                    late = lacking if (partition, path) in new else joined.intersection(lacking)
                    self._check_lacking(root, partition, path, lacking, isr, late)

    def _check_lacking(
        self,
        root: Root,
        partition: TopicPartition,
        path: str,
        lacking: list[int],
        isr: Sequence[int],
        late: Collection[int],
    ) -> None:
        unexcused = []
        for broker in lacking:
            home = self._home(root, broker)
            if home is not None and broker in late and path in home.emptied:  # the log does not know of the loss yet
                self.excused.add((home.name, path))
            if home is None or (home.name, path) not in self.excused:
                unexcused.append(broker)
        where = f"{partition}: {path}"
        if unexcused and len(lacking) == len(isr):
            self.find(UNREADABLE, f"{where} is not at {unexcused}")
        elif unexcused:
            self.find(LACKS, f"{where} is not at {unexcused} of {list(isr)}")
        elif len(lacking) == len(isr):
            for segment in root.newest.live[partition]:
                if segment.path == path:
                    self.given_up |= {path} | _paths_in(root.newest, partition, segment)

    def deleted(self, disk: Disk, key: str) -> None:
        """Check that no root in force needs what was deleted."""
        if key.startswith(COMMITS):
            self._commit_deleted(disk, key)
        if not is_data_file(key):
            return
        disk.deleted.add(key)
        path = log_path_of(key)
        for root in self.roots:
            if root.in_force:
                state = root.newest.state
                for partition, segments in root.newest.live.items():
                    if any(segment.path == path for segment in segments):
                        isr = state.partition(*partition).isr
                        needing = [broker for broker in isr if self._home(root, broker) is disk]
                        if needing and self._is_unclaimed(root, disk):
                            self.excused.add((disk.name, path))
                        if needing and (disk.name, path) not in self.excused:
                            self.find(DELETED, f"{path} of {partition} at {disk}, broker {needing} of {root.disk}")

    def _is_unclaimed(self, root: Root, disk: Disk) -> bool:
        """Whether a root whose promotion was forced has not claimed a location yet, which did not answer then: it is
        the old root's, which goes on until it is told."""
        was_forced = any(other.forced for other in self.roots if other is not root)
        return was_forced and read_root(root.disk).epoch > _newest_epoch(disk)

    def _commit_deleted(self, disk: Disk, key: str) -> None:
        version = commit_version(key)
        for root in self.roots:
            is_of_log = root.in_force and root.disk is disk
            if is_of_log and version is not None and read_certain_boundary(disk) < version <= root.newest.state.version:
                self.find(COMMIT_GONE, f"{key} of {disk}")

    # -- roots that change

    def became_root(self, disk: Disk) -> None:
        """Take note of a promotion: it is decided when the mirror gets a cluster.json."""
        newest = self._newest_known(disk)
        if newest is None:
            return  # a new cluster, or a copy of a root
        cluster_id = newest.state.cluster_id
        former = [root for root in self.roots if root.newest.state.cluster_id == cluster_id and root.in_force]
        if read_cluster_file(disk).cluster_id != cluster_id or not former:
            return
        old = former[-1]
        is_late = read_root(disk).epoch <= read_root(old.disk).epoch  # else it was begun after the take-over
        if old.continues and is_late and not old.newest.state.moved_to:  # until it looks at who owns the locations
            self._give_up(self._add_promoted(disk, newest, old), old)
            return self.follow(disk)
        addresses = [address for address, home in self.home.items() if home is disk]
        moved_to = old.newest.state.moved_to
        forced = bool(self.forcing.intersection(addresses)) or old.continues  # its take-over has ended all others
        if moved_to and moved_to not in addresses:
            self.find(TWO_ROOTS, f"{disk} was promoted, and {old.disk} has moved to {moved_to}")
        elif len(self.roots) > 1 and old.disk is not self.roots[0].disk and not self.chained:
            self.find(TWO_ROOTS, f"{disk} was promoted after {old.disk}")
        elif not moved_to and not forced:
            self.find(TWO_ROOTS, f"{disk} was promoted, and {old.disk} is not closed")
        old.in_force, old.is_replaced, old.forced = False, True, forced
        root = self._add_promoted(disk, newest, old)
        if forced:
            kept = newest.history()
            self.given_up |= {path for (partition, path) in old.newest.history() if (partition, path) not in kept}
            self._excuse_missing(root)
        self.follow(disk)
        self._check_holders(root, set())

    def _add_promoted(self, disk: Disk, newest: Version, old: Root) -> Root:
        """Return the root that a mirror became, which may have been one before its promotion was given up."""
        root = next((root for root in self.roots if root.disk is disk), None)
        if root is None:
            root = Root(disk, newest, old.data_disk)
            self.roots.append(root)
        root.newest, root.in_force, root.forced = newest, True, False
        return root

    def promoted_again(self, disk: Disk) -> None:
        """Take note of a forced promotion that is repeated after the old root took over: it is decided when the mirror,
        which has its cluster.json from the first time, has a later epoch than any other root."""
        if self.is_newest_epoch(disk) and any(root.disk is disk and not root.in_force for root in self.roots):
            self.became_root(disk)

    def force(self, address: str) -> None:
        """Take note that a forced promotion begins, also of a root that has taken over before."""
        self.forcing.add(address)
        for root in self.roots:
            root.continues = False

    def continued(self, disk: Disk) -> None:
        """Take note that a root took over again, whose forced promotion was given up: what the new one accepts, if it
        became a root at all, is lost. It has taken over once it has an epoch and a commit after that, whatever its
        operator's command waits for."""
        root = next(root for root in self.roots if root.disk is disk)
        self.seen["continued"] += 1
        self.forcing.clear()
        root.in_force, root.continues = True, True
        for each in self.roots:
            each.is_replaced = False
        for other in self.roots:
            if other is not root and other.newest.state.cluster_id == root.newest.state.cluster_id:
                self._give_up(other, root)
                self._excuse_missing(root)  # the other was the owner meanwhile

    def is_newest_epoch(self, disk: Disk) -> bool:
        """Whether a root has a higher epoch than every other one: with the same, its command takes another."""
        return all(read_root(root.disk).epoch < read_root(disk).epoch for root in self.roots if root.disk is not disk)

    def _give_up(self, other: Root, kept: Root) -> None:
        """Take note that ``other`` is not in force any more: what it accepted is lost unless ``kept`` has it."""
        other.in_force, other.forced = False, True
        history = kept.newest.history()
        self.given_up |= {path for (partition, path) in other.newest.history() if (partition, path) not in history}

    def _newest_known(self, disk: Disk) -> Version | None:
        """Return the newest version there that a root had: a promoted mirror has commits of its own after it."""
        versions = (commit_version(key) for key in disk.space.objects if key.startswith(COMMITS))
        for version in sorted((version for version in versions if version is not None), reverse=True):
            data = disk.space.objects[commit_key(version)][0]
            previous = decode_commit(data, version)[0].previous  # known by a checkpoint, if the commits before are gone
            known = self._versions.get(stored_digest(data)) or self._versions.get(previous)
            if known is not None:
                return known
        return None

    def _excuse_missing(self, root: Root) -> None:
        for partition, segments in root.newest.live.items():
            for broker in root.newest.state.partition(*partition).isr:
                home = self._home(root, broker)
                if home is not None:
                    lacking = {segment.path for segment in segments if not home.has(segment.path)}
                    self.excused |= {(home.name, path) for path in lacking}

    def restored(self, disk: Disk, former: Mapping[str, bool]) -> None:
        """Take note that a root was set back to a snapshot: what was committed since is lost.

        ``former`` are the keys that were on its disk, and whether they were written so lately that their writer does
        not look for them again. Such a file that was begun in the history that was kept is lost without a trace, as is
        one that maintenance of the former timeline has deleted anywhere: the log has the commit that its writer knew.
        The documents ask to stop writers first.
        """
        for root in self.roots:
            if root.disk is disk:
                newest = self._newest_known(disk)
                assert newest is not None
                self.changed_at = newest.state.version
                kept = newest.history()
                self.given_up |= {path for (partition, path) in root.newest.history() if (partition, path) not in kept}
                root.newest = newest
                still = disk.space.objects
                lost = {log_path_of(key) for key in former if former[key] and is_data_file(key) and key not in still}
                disk.emptied |= {path for path in lost if begun_at(path) <= newest.state.version}
                for home in self.home.values():
                    gone = map(log_path_of, home.deleted.difference(home.space.objects))
                    home.emptied |= {path for path in gone if begun_at(path) <= newest.state.version}
                self._check_holders(root, set())

    def taking_over(self, disk: Disk) -> None:
        """Take note that a root is about to take its locations over."""
        self.changed_at = max(self.changed_at, *(root.newest.state.version for root in self.roots if root.disk is disk))

    def took_over(self, disk: Disk, unreached: Mapping[int, str]) -> None:
        """Check that a take-over has not succeeded while another root owns a location."""
        for broker, why in unreached.items():
            if "it belongs to the root" in why:
                self.find(TWO_ROOTS, f"{disk} took over, and broker {broker} does not answer: {why}")

    def deletes_late(self, disk: Disk, key: str) -> None:
        """Take note of a deletion that follows a look at the log before the root was restored, or took the location
        over. No storage conditions a deletion on the log, so the file is lost as those in ``restored`` are. The
        documents ask to end such a process first. One that comes later after its look is not excused."""
        path = log_path_of(key)
        if is_data_file(key) and begun_at(path) <= self.changed_at:
            disk.emptied.add(path)
            if self._is_live(path):
                self.excused.add((disk.name, path))

    def verified(self, disk: Disk) -> None:
        """Take note that a root has verified its replicas, after it took locations over: where one of those in sync has
        all files of a partition, all of them have them from now on. Else its operator is told to run fsck."""
        for root in self.roots:
            if root.disk is disk and root.in_force:
                for partition, segments in root.newest.live.items():
                    isr = root.newest.state.partition(*partition).isr
                    homes = [home for broker in isr if (home := self._home(root, broker)) is not None]
                    if any(all(home.has(segment.path) for segment in segments) for home in homes):
                        self.excused -= {(home.name, segment.path) for home in homes for segment in segments}
                self.seen["verified"] += 1
                self._check_holders(root, set())

    def emptied(self, disk: Disk) -> None:
        """Take note that an operator is about to take a disk's content away."""
        paths = {key for key in disk.space.objects if is_data_file(key)}
        disk.emptied |= paths
        self.excused |= {(disk.name, path) for path in paths if self._is_live(path)}

    def _is_live(self, path: str) -> bool:
        return any(
            segment.path == path
            for root in self.roots
            if root.in_force
            for segments in root.newest.live.values()
            for segment in segments
        )

    # -- clients

    def acknowledged(
        self, partition: TopicPartition, path: str, base_offset: int | None, values: Sequence[bytes]
    ) -> None:
        self.acks.append(Acknowledged(partition, path, base_offset, values))

    def check_end(self, coordinator: Coordinator) -> None:
        """Check all that was acknowledged, as a client reads it from the root in force on sound mounts."""
        root = self.root
        state = coordinator.state
        self._check_holders(root, set())
        if state.digest != root.newest.state.digest:
            self.find(OTHER_TIMELINE, f"{root.disk}: version {state.version}, not {root.newest.state.version}")
            return
        self._check_commits(root)
        for other in self.roots:
            if other.is_replaced and not other.in_force and not other.newest.state.moved_to:
                self.find(STILL_OPEN, f"{other.disk}, replaced by {root.disk}")
        history = root.newest.history()
        records = {partition: self._read(coordinator, root, partition) for partition in root.newest.live}
        for partition, stored in records.items():
            repeated = [value for value, times in Counter(stored.values()).items() if times > 1]
            if repeated:
                self.find(REPEATED, f"{partition}: {repeated[:3]}")
        for ack in self.acks:
            self._check_ack(ack, history, records)

    def _check_commits(self, root: Root) -> None:
        """Every commit above the boundary is stored: one that was deleted on a condition may have been put back."""
        boundary = read_certain_boundary(root.disk)
        for version in root.newest.ancestors():
            if version.state.version <= boundary:
                return
            key = commit_key(version.state.version)
            stored = root.disk.space.objects.get(key)
            if stored is None or stored_digest(stored[0]) != version.state.digest:
                self.find(COMMIT_GONE, f"{key} of {root.disk}, at the end")

    def _check_ack(
        self,
        ack: Acknowledged,
        history: Mapping[tuple[TopicPartition, str], int],
        records: Mapping[TopicPartition, Mapping[int, bytes]],
    ) -> None:
        base = history.get((ack.partition, ack.path))
        if base is None or (ack.base_offset is not None and base != ack.base_offset):
            if ack.path not in self.given_up:
                self.find(LOST, f"{ack.partition} at {ack.base_offset}: {ack.path}")
            return
        if ack.path in self.given_up:
            return
        for offset, value in enumerate(ack.values, base):
            stored = records.get(ack.partition, {}).get(offset)
            if stored is None:
                self.find(UNREADABLE, f"{ack.partition} at {offset}: {ack.path}")
            elif stored != value:
                self.find(DIFFERENT, f"{ack.partition} at {offset}: {stored!r} instead of {value!r}")

    def _read(self, coordinator: Coordinator, root: Root, partition: TopicPartition) -> dict[int, bytes]:
        records: dict[int, bytes] = {}
        with LogReader(coordinator) as reader:
            for segment in root.newest.live[partition]:
                if segment.path in self.given_up:
                    continue
                try:
                    for record in reader.records(*partition, segment.base_offset, segment.end_offset):
                        assert record.value is not None
                        records[record.offset] = record.value
                except SparklogError as error:
                    self.find(UNREADABLE, f"{partition} at {segment.base_offset}: {error!r}")
        return records


def _paths_in(version: Version, partition: TopicPartition, segment: Segment) -> set[str]:
    """Return the paths of the appends whose records a segment has, also of those that were rolled into it."""
    return {
        path
        for (place, path), base in version.history().items()
        if place == partition and segment.base_offset <= base < segment.end_offset
    }


def _newest_epoch(location: Disk) -> int:
    """Return the epoch of the root that owns a location, 0 without a record."""
    epochs = (key.removeprefix(OWNERS).split("-")[0] for key in location.space.objects if key.startswith(OWNERS))
    return max(map(int, epochs), default=0)


def _make_version(before: Version, state: State, commit: Commit) -> Version:
    live = dict(before.live)
    appends: dict[tuple[TopicPartition, str], int] = {}
    for action in commit.actions:
        if isinstance(action, Append):
            partition = TopicPartition(action.topic, action.partition)
            live[partition] = (*live.get(partition, ()), segment_of(action, commit))
            appends[partition, action.run.path] = action.base_offset
        elif isinstance(action, ReplaceSegments):
            partition = TopicPartition(action.topic, action.partition)
            kept = [s for s in live[partition] if not action.start_offset <= s.base_offset < action.end_offset]
            added = [replacement_of(action.partition, segment, commit.version) for segment in action.added]
            live[partition] = tuple(sorted([*kept, *added], key=lambda segment: segment.base_offset))
        elif isinstance(action, DeleteTopic):
            live = {partition: segments for partition, segments in live.items() if partition.topic != action.topic}
    return Version(state, live, before, appends)


__all__ = ["FINDINGS", "Disk", "Finding", "MoveCluster", "Truth"]
