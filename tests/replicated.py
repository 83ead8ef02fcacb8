"""A cluster whose brokers are folders of their own, each behind a store that counts, and fails where it is told to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sparklog.clock import Clock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.log.records.fetch import Fetcher
from sparklog.protocol.commits import ChangeBroker, ChangePartition, FenceWriters, RegisterBroker
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import PartitionState, State
from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.testing.faulty_store import Fault, FaultyStore
from sparklog.testing.substitutes import substituted


class Brokers:
    """The cluster in ``folder``: broker 0 is its root, broker n the folder ``n``.

    ``coordinator`` works on ``stores``, one for each broker; who opens an address in this process gets these too.
    """

    def __init__(self, folder: Path, stores: Sequence[FaultyStore], clock: Clock | None) -> None:
        self.folder = folder
        self.stores = stores
        self.coordinator = open_cluster(stores[0], clock=clock)

    @property
    def root(self) -> str:
        return self.stores[0].root

    def commit(self, *actions: ChangeBroker | ChangePartition | FenceWriters) -> State:
        """Commit these actions beside the coordinator's back, as another process would."""
        another = open_cluster(LocalStore(self.root))
        another.submit(lambda state: Decision(list(actions), None))
        return another.refresh()

    def partition(self, topic: str = "t", partition: int = 0) -> PartitionState:
        return self.coordinator.refresh().partition(topic, partition)

    def lead(
        self, leader: int, isr: Sequence[int], topic: str = "t", partition: int = 0, replicas: Sequence[int] = ()
    ) -> None:
        """Give a partition another leader and ISR, and other replicas if given, in the next leader epoch."""
        state = open_cluster(LocalStore(self.root)).state
        now = state.partition(topic, partition)
        self.commit(
            ChangePartition(
                topic=topic,
                topic_id=state.topic(topic).topic_id,
                partition=partition,
                leader=leader,
                leader_epoch=now.leader_epoch + 1,
                isr=list(isr),
                replicas=list(replicas or now.replicas),
            )
        )

    def values(self, broker: int, topic: str = "t", partition: int = 0) -> list[bytes]:
        """Every value of a partition, read from one broker alone, without its faults."""
        coordinator = open_cluster(LocalStore(self.root))
        state = coordinator.state
        end = state.partition(topic, partition).log_end_offset
        segments = coordinator.segments(topic, state).partition(partition).between(0, end)
        store: Store = LocalStore(self.stores[broker].root)
        found: list[bytes] = []
        for records in Fetcher(lambda number: store).read(topic, segments, 0, end, ["value"]):
            found += records.batch.column(0).to_pylist()
        return found

    def files(self, broker: int) -> list[str]:
        """The segment files of a broker, whether or not they are part of the log."""
        return sorted(
            info.key for info in LocalStore(self.stores[broker].root).list() if info.key.endswith((".log", ".index"))
        )


def prepare(folder: Path, brokers: int = 2) -> list[str]:
    """Create the cluster and register its brokers; where each of them is."""
    roots = [str(folder / "root"), *(str(folder / f"broker{number}") for number in range(1, brokers))]
    coordinator = create_cluster(roots[0])
    more = [RegisterBroker(broker=number, url=root) for number, root in enumerate(roots) if number]
    coordinator.submit(lambda state: Decision(list(more), None))
    return roots


@contextmanager
def brokers(
    folder: Path,
    count: int = 2,
    faults: Iterable[tuple[int, Fault]] = (),
    clock: Clock | None = None,
    factor: int = 0,
    partitions: int = 1,
    **configs: str,
) -> Iterator[Brokers]:
    """A cluster of so many brokers with a topic ``t`` on ``factor`` of them (default: all); ``faults`` by broker.

    Partition n is led by broker n, and the next ones follow. ``configs`` are the topic's, with underscores for dots.
    """
    roots = prepare(folder, count)
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    assignment = [[(number + replica) % count for replica in range(factor or count)] for number in range(partitions)]
    open_cluster(roots[0]).create_topic("t", configs=settings, assignment=assignment)
    with opened(roots, faults, clock) as found:
        yield found


@contextmanager
def opened(
    roots: Sequence[str], faults: Iterable[tuple[int, Fault]] = (), clock: Clock | None = None
) -> Iterator[Brokers]:
    """The prepared cluster, through stores of its own; their steps count, and ``faults`` come, once it is open."""
    stores = [FaultyStore(LocalStore(root)) for root in roots]
    with ExitStack() as stack:
        for store in stores:
            stack.enter_context(substituted(store))
        found = Brokers(Path(roots[0]), stores, clock)
        for store in stores:
            store.reset_counts()
        for broker, fault in faults:
            stores[broker].inject(fault)
        yield found
