"""What was decided about topics is committed only while they are the same.

An operator confirms a change of a topic; deleted and created again meanwhile, one has other records. Not for: a commit
that states topic ids by itself (``GroupCommit``, ``topic_deletion``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State

Result = TypeVar("Result")


class CoordinatorOfTopics(Coordinator):
    """A coordinator whose ``submit`` raises UnknownTopicOrPartitionError once a topic of ``state`` of these ids is
    gone."""

    def __init__(self, coordinator: Coordinator, state: State, topic_ids: Collection[str]) -> None:
        self._shared = coordinator
        self._ids = {name: topic.topic_id for name, topic in state.topics.items() if topic.topic_id in topic_ids}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)

    def submit(
        self,
        decide: Callable[[State], Decision[Result]],
        others: int = 0,
        timelines: Sequence[int | None] = (),
    ) -> Result:
        return self._shared.submit(partial(self._decide, decide), others, timelines)

    def _decide(self, decide: Callable[[State], Decision[Result]], state: State) -> Decision[Result]:
        for name, topic_id in self._ids.items():
            if name not in state.topics or state.topics[name].topic_id != topic_id:
                raise UnknownTopicOrPartitionError(
                    f"topic {name} was deleted since this was confirmed; nothing was changed", topic=name
                )
        return decide(state)
