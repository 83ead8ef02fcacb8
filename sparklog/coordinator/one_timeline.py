"""What a process found in a log is acted on in the same timeline only.

A maintenance job, an operator's command or the controller reads the log, works for minutes, and then commits what it
found or deletes what it found obsolete. If it was suspended meanwhile, and the root was restored from a copy whose
clients have since removed the commits that it knew, it continues from a checkpoint that nothing links to what it read:
the same names and offsets may be others there.

Such a work has a coordinator of its own, which raises UnlinkedHistoryError then. Others that share its log are not
concerned: what they found they found before or after.

Not for: clients that append what they wrote (``AppendRequest.timeline``, ``begun_files``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.kept_reading import keep_reading
from sparklog.log.commits.replaced_root import refuse_unlinked_timeline
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State

Options = ParamSpec("Options")
Result = TypeVar("Result")


class CoordinatorOfOneTimeline(Coordinator):
    """A coordinator whose ``refresh`` and ``submit`` raise UnlinkedHistoryError once its log has left the timeline in
    which it was created. ``from_refresh``: the timeline of its first refresh, before which nothing is looked at."""

    def __init__(self, coordinator: Coordinator, from_refresh: bool = False) -> None:
        self._shared = coordinator
        self._timeline = None if from_refresh else coordinator.log.unlinked_jumps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)

    @property
    def of_any_timeline(self) -> Coordinator:
        return self._shared

    def refresh(self) -> State:
        with self.log.held:  # between a refresh and the look, another thread may leave the timeline
            state = self._shared.refresh()
            if self._timeline is None:
                self._timeline = self.log.unlinked_jumps
            if self._timeline != self.log.unlinked_jumps:
                raise refuse_unlinked_timeline(self.store, "what was found in the log may not be there any more")
            return state

    def submit(
        self,
        decide: Callable[[State], Decision[Result]],
        others: int = 0,
        timelines: Sequence[int | None] = (),
    ) -> Result:
        return self._shared.submit(decide, others, (*timelines, self._timeline))


@contextmanager
def one_timeline(coordinator: Coordinator, from_refresh: bool = False) -> Iterator[Coordinator]:
    """Yield a coordinator for a work that is done in one timeline; ``from_refresh`` as for its class. The log is read
    meanwhile: only a process that was suspended finds the commits removed that it knew."""
    if isinstance(coordinator, CoordinatorOfOneTimeline):  # a part of such a work
        yield coordinator
        return
    with keep_reading(coordinator):
        yield CoordinatorOfOneTimeline(coordinator, from_refresh)


def in_one_timeline(
    work: Callable[Concatenate[Coordinator, Options], Result],
) -> Callable[Concatenate[Coordinator, Options], Result]:
    """Make ``work``, which begins with a refresh, raise UnlinkedHistoryError at a later one or a commit once the log
    has left the timeline of the first."""

    @wraps(work)
    def work_in_one_timeline(coordinator: Coordinator, /, *args: Options.args, **options: Options.kwargs) -> Result:
        with one_timeline(coordinator, from_refresh=True) as of_one_timeline:
            return work(of_one_timeline, *args, **options)

    return work_in_one_timeline
