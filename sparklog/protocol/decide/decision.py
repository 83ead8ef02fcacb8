"""What every decision comes to."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparklog.protocol.commits import Action


class Decision(NamedTuple):
    """The actions a request comes to, and what to answer once they are committed. No actions: answer at once."""

    actions: list[Action]
    result: Any
