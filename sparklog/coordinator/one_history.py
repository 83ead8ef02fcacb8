"""What a process found in a log is acted on in the same history only.

A maintenance job, an operator's command or the controller reads the log, works for minutes, and then commits what it
found or deletes what it found obsolete. If it was suspended meanwhile, and the root was restored from a copy whose
clients have since removed the commits that it knew, it continues from a checkpoint that nothing links to what it read:
the same names and offsets may be others there.

Such a work has a coordinator of its own, which raises UnlinkedHistoryError then. Others that share its log are not
concerned: what they found they found before or after.

Not for: clients that append what they wrote (``AppendRequest.history``, ``begun_files``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.kept_reading import keep_reading
from sparklog.log.commits.replaced_root import refuse_unlinked_history
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State

Options = ParamSpec("Options")
Result = TypeVar("Result")


class CoordinatorOfOneHistory(Coordinator):
    """A coordinator whose ``refresh`` and ``submit`` raise UnlinkedHistoryError once its log has left the history in
    which it was created. ``from_refresh``: the history of its first refresh, before which nothing is looked at."""

    def __init__(self, coordinator: Coordinator, from_refresh: bool = False) -> None:
        self._shared = coordinator
        self._history = None if from_refresh else coordinator.log.unlinked_jumps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)

    @property
    def of_any_history(self) -> Coordinator:
        return self._shared

    def refresh(self) -> State:
        with self.log.held:  # between a refresh and the look, another thread may leave the history
            state = self._shared.refresh()
            if self._history is None:
                self._history = self.log.unlinked_jumps
            if self._history != self.log.unlinked_jumps:
                raise refuse_unlinked_history(self.store, "what was found in the log may not be there any more")
            return state

    def submit(
        self,
        decide: Callable[[State], Decision[Result]],
        others: int = 0,
        histories: Sequence[int | None] = (),
    ) -> Result:
        return self._shared.submit(decide, others, (*histories, self._history))


@contextmanager
def one_history(coordinator: Coordinator, from_refresh: bool = False) -> Iterator[Coordinator]:
    """Yield a coordinator for a work that is done in one history; ``from_refresh`` as for its class. The log is read
    meanwhile: only a process that was suspended finds the commits removed that it knew."""
    if isinstance(coordinator, CoordinatorOfOneHistory):  # a part of such a work
        yield coordinator
        return
    with keep_reading(coordinator):
        yield CoordinatorOfOneHistory(coordinator, from_refresh)


def in_one_history(
    work: Callable[Concatenate[Coordinator, Options], Result],
) -> Callable[Concatenate[Coordinator, Options], Result]:
    """Make ``work``, which begins with a refresh, raise UnlinkedHistoryError at a later one or a commit once the log
    has left the history of the first."""

    @wraps(work)
    def work_in_one_history(coordinator: Coordinator, /, *args: Options.args, **options: Options.kwargs) -> Result:
        with one_history(coordinator, from_refresh=True) as of_one_history:
            return work(of_one_history, *args, **options)

    return work_in_one_history
