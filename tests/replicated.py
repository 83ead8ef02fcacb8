"""A cluster whose brokers are separate folders, each behind a store that counts calls and injects faults.

The folders are in files, or in memory where nothing depends on files: that takes a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sparklog.clock import Clock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.log.broker_files import encode_identity
from sparklog.log.records.fetch import Fetcher
from sparklog.protocol.commits import ChangeBroker, ChangePartition, FenceWriters, RegisterBroker
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import PartitionState, State
from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Fault, FaultyStore
from sparklog.testing.substitutes import substituted


class Brokers:
    """The cluster in ``root``: broker 0 is there, broker n in another folder.

    ``coordinator`` uses ``stores``, one for each broker; any code in this process that opens an address gets these,
    too.
    """

    def __init__(self, stores: Sequence[FaultyStore], clock: Clock | None) -> None:
        self.stores = stores
        self.coordinator = open_cluster(stores[0], clock=clock)

    @property
    def root(self) -> str:
        return self.stores[0].root

    def commit(self, *actions: ChangeBroker | ChangePartition | FenceWriters) -> State:
        """Commit these actions as another process would, without the coordinator."""
        other = open_cluster(without_faults(self.root))
        other.submit(lambda state: Decision(list(actions), None))
        return other.refresh()

    def partition(self, topic: str = "t", partition: int = 0) -> PartitionState:
        return self.coordinator.refresh().partition(topic, partition)

    def lead(
        self, leader: int, isr: Sequence[int], topic: str = "t", partition: int = 0, replicas: Sequence[int] = ()
    ) -> None:
        """Set the leader and ISR of a partition, and its replicas if given, in the next leader epoch."""
        state = open_cluster(without_faults(self.root)).state
        current = state.partition(topic, partition)
        self.commit(
            ChangePartition(
                topic=topic,
                topic_id=state.topic(topic).topic_id,
                partition=partition,
                leader=leader,
                leader_epoch=current.leader_epoch + 1,
                isr=list(isr),
                replicas=list(replicas or current.replicas),
            )
        )

    def values(self, broker: int, topic: str = "t", partition: int = 0) -> list[bytes]:
        """Return every value of a partition, read from one broker only, without faults."""
        coordinator = open_cluster(without_faults(self.root))
        state = coordinator.state
        end = state.partition(topic, partition).log_end_offset
        segments = coordinator.segments(topic, state).partition(partition).between(0, end)
        store = without_faults(self.stores[broker].root)
        values: list[bytes] = []
        for records in Fetcher(lambda number: store).read(topic, segments, 0, end, ["value"]):
            values += records.batch.column(0).to_pylist()
        return values

    def files(self, broker: int) -> list[str]:
        """Return all segment files of a broker, including orphans."""
        return sorted(
            info.key
            for info in without_faults(self.stores[broker].root).list()
            if info.key.endswith((".log", ".index"))
        )


def without_faults(root: str) -> Store:
    """Return the store of an address itself, also while it is substituted."""
    return MemoryStore(root.removeprefix("memory://")) if root.startswith("memory://") else LocalStore(root)


def prepare(folder: Path | str, brokers: int = 2) -> list[str]:
    """Create the cluster and register its brokers; return their locations."""
    roots = [f"{folder}/root", *(f"{folder}/broker{number}" for number in range(1, brokers))]
    coordinator = create_cluster(roots[0])
    more = [RegisterBroker(broker=number, url=root) for number, root in enumerate(roots) if number]
    for broker in more:
        without_faults(broker.url).put(IDENTITY_KEY, encode_identity(coordinator.state.cluster_id, broker.broker))
    coordinator.submit(lambda state: Decision(list(more), None))
    return roots


@contextmanager
def brokers(
    folder: Path | str,
    count: int = 2,
    faults: Iterable[tuple[int, Fault]] = (),
    clock: Clock | None = None,
    factor: int = 0,
    partitions: int = 1,
    **configs: str,
) -> Iterator[Brokers]:
    """A cluster of ``count`` brokers with a topic ``t`` on ``factor`` of them (default: all); ``faults`` by broker.

    Broker n leads partition n, and the next brokers are its followers. ``configs`` are the topic's, with underscores
    for dots. ``folder`` is a path or an address in memory.
    """
    roots = prepare(folder, count)
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    assignment = [[(number + replica) % count for replica in range(factor or count)] for number in range(partitions)]
    open_cluster(roots[0]).create_topic("t", configs=settings, assignment=assignment)
    with opened(roots, faults, clock) as cluster:
        yield cluster


@contextmanager
def opened(
    roots: Sequence[str], faults: Iterable[tuple[int, Fault]] = (), clock: Clock | None = None
) -> Iterator[Brokers]:
    """Open the prepared cluster through new stores, which count steps and inject ``faults`` from then on."""
    stores = [FaultyStore(without_faults(root)) for root in roots]
    with ExitStack() as stack:
        for store in stores:
            stack.enter_context(substituted(store))
        cluster = Brokers(stores, clock)
        for store in stores:
            store.reset_counts()
        for broker, fault in faults:
            stores[broker].inject(fault)
        yield cluster
