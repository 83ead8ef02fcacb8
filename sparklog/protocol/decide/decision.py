"""The type of every decision. Not for: making one (the other modules of ``decide``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparklog.errors import SparklogError
from sparklog.protocol.commits import Action
from sparklog.types import TopicPartition

ErrorByPartition = dict[TopicPartition, SparklogError | None]
"""The result of a decision that refuses some partitions and takes the others: the error of each, or None."""

Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True)
class Decision(Generic[Result]):
    """The actions to commit for a request, and its result once they are committed; immediately if there are none.

    A ``level`` above the cluster's raises it, by a commit that may have no actions.
    """

    actions: list[Action]
    result: Result
    level: int = 0


def decide_each(
    partitions: Iterable[tuple[str, int]], decide: Callable[[TopicPartition], Iterable[Action]]
) -> Decision[ErrorByPartition]:
    """Decide for each partition by itself; those for which ``decide`` raises are refused."""
    decision: Decision[ErrorByPartition] = Decision([], {})
    for partition in map(TopicPartition._make, partitions):
        try:
            decision.actions.extend(decide(partition))
        except SparklogError as error:
            decision.result[partition] = error
        else:
            decision.result[partition] = None
    return decision
