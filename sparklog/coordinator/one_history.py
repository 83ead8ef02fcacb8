"""What a process found in a log is acted on in the same history only.

A maintenance job, an operator's command or the controller reads the log, works for minutes, and then commits what it
found or deletes what it found obsolete. If it was suspended meanwhile, and the root was restored from a copy whose
clients have since removed the commits that it knew, it continues from a checkpoint that nothing links to what it read:
the same names and offsets may be others there.

Not for: clients that append what they wrote (``AppendRequest.history``, ``begun_files``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from sparklog.coordinator.coordinator import Coordinator

Options = ParamSpec("Options")
Result = TypeVar("Result")


def in_one_history(
    work: Callable[Concatenate[Coordinator, Options], Result],
) -> Callable[Concatenate[Coordinator, Options], Result]:
    """Make ``work``, which begins with a refresh, raise UnlinkedHistoryError at a later one or a commit once the log
    has left the history of the first."""

    @wraps(work)
    def work_in_one_history(coordinator: Coordinator, /, *args: Options.args, **options: Options.kwargs) -> Result:
        with coordinator.log.one_history(from_refresh=True):
            return work(coordinator, *args, **options)

    return work_in_one_history
