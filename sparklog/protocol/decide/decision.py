"""The type of every decision. Not for: making one (the other modules of ``decide``)."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparklog.protocol.commits import Action


class Decision(NamedTuple):
    """The actions to commit for a request, and its result once they are committed; immediately if there are none."""

    actions: list[Action]
    result: Any
