"""A cluster for the duration of a test, in one line.

    with sparklog.testing.cluster() as c:
        c.create_topic("orders", partitions=3)
        with sparklog.Producer(bootstrap_servers=c.bootstrap_servers) as producer:
            producer.send("orders", b"hello")
        assert [record.value for record in c.records("orders")] == [b"hello"]

It is in the memory of this process under a unique name, and is deleted after the block. With ``folder`` it is in files,
for tests with several processes (such as Spark's executors); these files are not deleted. With ``faults``, clients of
this process that use ``bootstrap_servers`` work on a storage that fails with the given rates; calls through the cluster
object itself do not fail.

Not for: benchmarks, since memory is not a storage; data to keep.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.clock import Clock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.shared import forget_shared
from sparklog.ids import Ids, RandomIds
from sparklog.store.memory import forget_space
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FaultyStore
from sparklog.testing.substitutes import substituted


class Cluster:
    """A running cluster of a test. Thread-safe.

    ``bootstrap_servers`` is the address for clients; ``coordinator`` works on the cluster without faults; ``store`` is
    the storage as clients see it, whose ``injected`` lists the faults so far, or None without ``faults``.
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
        """Return all records of a topic, or of one partition, by partition and offset: for assertions.

        Raises UnknownTopicOrPartitionError.
        """
        state = self.coordinator.refresh()
        partitions: Sequence[int] = range(len(state.topic(topic).partitions)) if partition is None else [partition]
        records: list[ConsumerRecord] = []
        with LogReader(self.coordinator) as reader:
            for number in partitions:
                head = state.partition(topic, number)
                records += reader.records(topic, number, head.log_start_offset, head.log_end_offset, state)
        return records


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
    """Create a cluster that exists until the block ends; ``topics`` maps names to numbers of partitions.

    ``faults`` maps kinds of ``sparklog.testing.faulty_store`` to probabilities per call of the storage, such as
    ``{"unavailable": 0.02, "lost_answer": 0.02}``; ``seed`` decides which calls. Raises ClusterAlreadyExistsError if
    ``folder`` already holds a cluster.
    """
    name = f"test-{RandomIds().write_id()}"
    store = open_store(f"memory://{name}" if folder is None else folder)
    with ExitStack() as stack:
        stack.callback(forget_shared, store.root)  # the coordinator that clients of this process share
        stack.callback(forget_space, name)
        clean = create_cluster(store, clock=clock, ids=ids)
        faulty = FaultyStore(store, seed=seed, rates=faults) if faults else None
        test_cluster = Cluster(clean, store.root, faulty)
        for topic, partitions in (topics or {}).items():
            test_cluster.create_topic(topic, partitions)
        if faulty is not None:
            stack.enter_context(substituted(faulty))
        yield test_cluster
