"""The methods of ``AdminClient`` for brokers, which are storage locations. Kafka configures brokers in files instead,
and has ``unregister_broker`` alone.

Not for: what a location must be (``coordinator.brokers``).
"""

from __future__ import annotations

from functools import partial

from sparklog.client.admin.base import AdminBase
from sparklog.client.admin.types import BrokerCondition
from sparklog.coordinator import brokers
from sparklog.coordinator.broker_probes import probe_brokers
from sparklog.coordinator.take_over import take_over
from sparklog.log.broker_files import disallow_location
from sparklog.protocol.decide.reassignment import drain_broker
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

PROBE_TIMEOUT_MS = 5000
"""ms within which the locations have to answer, unless a call sets another timeout."""


class BrokerAdmin(AdminBase):
    """The methods of ``AdminClient`` for brokers. Thread-safe."""

    def check_brokers(self, probe_timeout_ms: int = PROBE_TIMEOUT_MS) -> dict[int, BrokerCondition]:
        """Ask all locations whether they answer, and return their conditions by broker id.

        The state shows a location as online until a controller notices its failure, and none may be running. Raises
        StorageError if the root does not answer.
        """
        return self._conditions(self.read_state(), probe_timeout_ms)

    def _conditions(self, state: State, probe_timeout_ms: int = PROBE_TIMEOUT_MS) -> dict[int, BrokerCondition]:
        probes = probe_brokers(self._coordinator, probe_timeout_ms / 1000)
        return {
            number: BrokerCondition(
                "offline" if not state.brokers[number].online else "online" if probe.answered else "unreachable",
                probe.last_seen_ms,
                probe.why or None,
                state.brokers[number].url or self._coordinator.store.root,
            )
            for number, probe in probes.items()
            if number in state.brokers
        }

    def add_broker(self, location: str, broker_id: int | None = None) -> int:
        """Register a storage location; return its broker id. Raises as ``coordinator.brokers.add_broker``."""
        return brokers.add_broker(self._opened(), location, broker_id)

    def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker that holds no replica. Raises as ``coordinator.brokers.remove_broker``."""
        brokers.remove_broker(self._opened(), broker_id)

    def cordon_broker(self, broker_id: int, cordoned: bool = True) -> bool:
        """Place no new replicas on a broker, or place them again; return whether that is a change.

        Raises BrokerIdNotRegisteredError.
        """
        return brokers.cordon_broker(self._opened(), broker_id, cordoned)

    def drain_broker(self, broker_id: int) -> list[TopicPartition]:
        """Cordon a broker and begin to move its replicas to the others; return their partitions.

        Raises BrokerIdNotRegisteredError, PolicyViolationError for the root, and InvalidReplicaAssignmentError, with
        nothing changed, if a replica cannot be placed elsewhere.
        """
        partitions: list[TopicPartition] = self._opened().submit(partial(drain_broker, broker=broker_id))
        brokers.cordon_broker(self._opened(), broker_id)  # also if a removal of surplus copies had cordoned it
        return partitions

    def move_broker(self, broker_id: int, location: str) -> None:
        """Set the new location of a broker whose files were moved. Raises as ``coordinator.brokers.move_broker``."""
        brokers.move_broker(self._opened(), broker_id, location)

    def replace_location(self, broker_id: int) -> None:
        """Declare the files of a broker lost: it starts empty at its location, and replication refills it.

        Raises BrokerIdNotRegisteredError, DuplicateBrokerRegistrationError, PolicyViolationError, StorageError.
        """
        brokers.replace_location(self._opened(), broker_id)

    def take_over_locations(self, force: bool = False) -> dict[int, str]:
        """Make this root the owner of all locations, after it was restored from a backup or moved; return why locations
        did not answer, by broker: those are taken over when they do.

        Raises PolicyViolationError if the root that owns them answers, unless ``force``d; StorageError.
        """
        return take_over(self._opened(), force).unreached

    def allow_location(self, location: str) -> tuple[str, bool]:
        """Let clients contact brokers below a location outside the root; return its URL and whether that is new."""
        coordinator = self._opened()
        url = coordinator.brokers.open(location).root
        return url, coordinator.brokers.allow(url, coordinator.log.ids)

    def disallow_location(self, location: str) -> tuple[str, bool]:
        """Remove a location from the allowed ones; return its URL and whether it was one."""
        coordinator = self._opened()
        url = coordinator.brokers.open(location).root
        return url, disallow_location(coordinator.store, url, coordinator.log.ids)
