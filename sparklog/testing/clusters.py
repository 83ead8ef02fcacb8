"""A cluster for the length of a test, in one line.

    with sparklog.testing.cluster() as c:
        c.create_topic("orders", partitions=3)
        with sparklog.Producer(bootstrap_servers=c.bootstrap_servers) as producer:
            producer.send("orders", b"hello")
        assert [record.value for record in c.records("orders")] == [b"hello"]

It lies in the memory of this process under a name of its own, and is gone after the block. ``folder`` puts it in real
files, for tests with several processes (Spark's executors are such); these files stay. With ``faults`` the clients that
are given ``bootstrap_servers`` in this process work on a storage that fails as often as told; what the test itself does
through the cluster object does not fail.

Not for: measuring, since memory is no storage; keeping anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.clock import Clock
from sparklog.coordinator import Coordinator, coordinator, create_cluster
from sparklog.ids import Ids, RandomIds
from sparklog.store.memory import forget_space
from sparklog.store.open import open_store, substituted
from sparklog.testing.faulty_store import FaultyStore


class Cluster:
    """A running cluster of a test. Thread-safe.

    ``bootstrap_servers`` is what clients are given; ``coordinator`` works on it without faults; ``store`` is the
    storage as clients see it, whose ``injected`` says which faults there were, or None where no faults were asked for.
    """

    def __init__(self, coordinator: Coordinator, bootstrap_servers: str, store: FaultyStore | None) -> None:
        self.coordinator = coordinator
        self.bootstrap_servers = bootstrap_servers
        self.store = store

    def __repr__(self) -> str:
        return f"Cluster({self.bootstrap_servers!r})"

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and return its topic id. Errors as ``Coordinator.create_topic``."""
        return self.coordinator.create_topic(name, partitions, configs=configs)

    def records(self, topic: str, partition: int | None = None) -> list[ConsumerRecord]:
        """All records of a topic, or of one partition, in the order of partitions and offsets: for assertions.

        Raises UnknownTopicOrPartitionError.
        """
        state = self.coordinator.refresh()
        numbers: Sequence[int] = range(len(state.topic(topic).partitions)) if partition is None else [partition]
        found: list[ConsumerRecord] = []
        with LogReader(self.coordinator) as reader:
            for number in numbers:
                held = state.partition(topic, number)
                found += reader.records(topic, number, held.log_start_offset, held.log_end_offset, state)
        return found


@contextmanager
def cluster(
    *,
    folder: str | os.PathLike[str] | None = None,
    topics: Mapping[str, int] | None = None,
    faults: Mapping[str, float] | None = None,
    seed: int = 0,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Iterator[Cluster]:
    """A new cluster until the block ends; ``topics`` are created with so many partitions each.

    ``faults`` maps kinds of ``sparklog.testing.faulty_store`` to probabilities per call of the storage, such as
    ``{"unavailable": 0.02, "lost_answer": 0.02}``; ``seed`` decides which calls. Raises ClusterAlreadyExistsError where
    ``folder`` holds a cluster.
    """
    name = f"test-{RandomIds().write_id()}"
    store = open_store(f"memory://{name}" if folder is None else folder)
    with ExitStack() as stack:
        stack.callback(_forget, name, store.root)
        clean = create_cluster(store, clock=clock, ids=ids)
        faulty = FaultyStore(store, seed=seed, rates=faults) if faults else None
        found = Cluster(clean, store.root, faulty)
        for topic, partitions in (topics or {}).items():
            found.create_topic(topic, partitions)
        if faulty is not None:
            stack.enter_context(substituted(faulty))
        yield found


def _forget(name: str, root: str) -> None:
    """The objects in memory, and the coordinator that clients of this process shared, go."""
    forget_space(name)
    coordinator.forget_shared(root)
