"""Initialize a transactional id, and recognize this producer's own attempts whose outcome was unknown.

A commit that assigns the next epoch may be stored although its answer was lost. On a retry the producer finds that
epoch taken, and would conclude that it was fenced. But an attempt whose outcome is unknown carries the version and
write id of its commit, so the log can tell whether that commit is stored; the epoch it assigned is remembered here.

Not for: the meaning of an epoch (``protocol.decide.producers``).
"""

from __future__ import annotations

from sparklog.coordinator import Coordinator
from sparklog.errors import IndeterminateCommitError, ObjectNotFoundError, ProducerFencedError
from sparklog.log.commits.commit_files import read_commit
from sparklog.log.layout import read_certain_boundary
from sparklog.protocol.decide import producers as decide_producers
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.producers import ProducerIdentity
from sparklog.protocol.state import State


class Takeover:
    """The epochs that one producer requests. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, transactional_id: str) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._decided: ProducerIdentity | None = None
        self._unanswered: dict[tuple[int, str], ProducerIdentity] = {}

    def take(self, present: ProducerIdentity | None = None) -> ProducerIdentity:
        """Return the producer id with its next epoch, or the identity that an earlier attempt of this producer got.

        Raises the errors of ``decide_producers.init_producer``, which explains ``present``, and of reading the log.
        """
        try:
            identity = self._coordinator.submit(lambda state: self._decide(state, present))
        except IndeterminateCommitError as error:
            write_id = error.context.get("write_id")
            if isinstance(write_id, str) and self._decided is not None:  # an interrupted attempt has no write id
                self._unanswered[int(error.context["version"]), write_id] = self._decided
            raise
        except ProducerFencedError:
            own = self._find_own_attempt()
            if own is None:
                raise
            identity = own
        self._unanswered.clear()
        return identity

    def _decide(self, state: State, present: ProducerIdentity | None) -> Decision[ProducerIdentity]:
        decision = decide_producers.init_producer(state, self._transactional_id, present)
        self._decided = decision.result
        return decision

    def _find_own_attempt(self) -> ProducerIdentity | None:
        """Return the identity of an unanswered attempt, if its commit is in the log and its epoch is the newest."""
        if not self._unanswered:
            return None
        state = self._coordinator.refresh()
        producer_id = state.indexes.transactional_ids.get(self._transactional_id)
        for (version, write_id), identity in self._unanswered.items():
            is_newest = (
                producer_id == identity.producer_id and state.producers[producer_id].epoch == identity.producer_epoch
            )
            if is_newest and version <= state.version and self._is_in_log(version, write_id):
                return identity
        return None

    def _is_in_log(self, version: int, write_id: str) -> bool:
        store = self._coordinator.store
        try:
            commit = read_commit(store, version).commit
        except ObjectNotFoundError:
            return False
        return commit.write_id == write_id and read_certain_boundary(store) < version
