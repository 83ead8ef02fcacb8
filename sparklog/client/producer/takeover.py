"""Taking a transactional id over, and recognising one's own attempts whose commits had no answer.

A commit that gives out the next epoch may be stored although its answer was lost. Whoever tries again then finds the
epoch taken, and would take itself for replaced. But an attempt without an answer says which commit it was, by number
and write id, and the log says whether that one is in it; and what it gave out is known here.

Not for: what an epoch means (``protocol.decide_producers``).
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
    """The epochs that one producer asks for. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, transactional_id: str) -> None:
        self._coordinator = coordinator
        self._transactional_id = transactional_id
        self._decided: ProducerIdentity | None = None
        self._unanswered: dict[tuple[int, str], ProducerIdentity] = {}

    def take(self, present: ProducerIdentity | None = None) -> ProducerIdentity:
        """The id with its next epoch, or what an earlier attempt of this very producer got. Errors as
        ``decide_producers.init_producer``, which says what ``present`` is, and those of reading the log."""
        try:
            identity: ProducerIdentity = self._coordinator.submit(lambda state: self._decide(state, present))
        except IndeterminateCommitError as error:
            write_id = error.context.get("write_id")
            if isinstance(write_id, str) and self._decided is not None:  # an interrupted one does not say which it was
                self._unanswered[int(error.context["version"]), write_id] = self._decided
            raise
        except ProducerFencedError:
            own = self._own()
            if own is None:
                raise
            identity = own
        self._unanswered.clear()
        return identity

    def _decide(self, state: State, present: ProducerIdentity | None) -> Decision:
        decision = decide_producers.init_producer(state, self._transactional_id, present)
        self._decided = decision.result
        return decision

    def _own(self) -> ProducerIdentity | None:
        """What an attempt without an answer got, if it is in the log and nobody has taken over since."""
        if not self._unanswered:
            return None
        state = self._coordinator.refresh()
        number = state.indexes.transactional_ids.get(self._transactional_id)
        for (version, write_id), identity in self._unanswered.items():
            is_newest = number == identity.producer_id and state.producers[number].epoch == identity.producer_epoch
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
