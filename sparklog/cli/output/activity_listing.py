"""Shows what happens in a cluster: as plain tables, and as a screen of a given size (rich, the extra ``top``).

Rules: names are text of strangers: control characters are escaped, and rich takes nothing in them for markup. rich is
imported by ``screen`` only.
Not for: reading it (``monitoring.activity``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparklog.cli.output.tables import table
from sparklog.clock import utc_text
from sparklog.types import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sparklog.monitoring.activity import Activity, GroupActivity, TopicActivity

GROUP_HEAD = ("GROUP", "STATE", "MEMBERS", "LAG", "BEHIND", "COMMITS/S")
TOPIC_HEAD = ("TOPIC", "RECORDS/S", "BYTES/S", "APPENDS/S", "PARTITIONS", "SIZE")
FIXED_LINES = 8
"""Lines of a screen that show no group and no topic: title, heads, rules, the counts of what is left out, the foot."""
MIN_WIDTH, MIN_HEIGHT = 20, 10


def lines_of(activity: Activity, root: str) -> list[str]:
    """Return all that there is as plain lines, for a pipe."""
    groups = [GROUP_HEAD, *map(_group_row, activity.groups)]
    topics = [TOPIC_HEAD, *map(_topic_row, activity.topics)]
    lines = [_title(activity, root), "", *table(topics, [-15, -9, -9, -9, -10, 0])]
    return [*lines, "", *table(groups, [-15, -10, -7, -9, -9, 0])]


def screen(activity: Activity, root: str, width: int, height: int, foot: str) -> RenderableType:
    """Return a screen of this size: the busiest topics, and the groups that are the furthest behind."""
    from rich.console import Group
    from rich.text import Text

    width, height = max(width, MIN_WIDTH), max(height, MIN_HEIGHT)
    of_groups, of_topics = _share(len(activity.groups), len(activity.topics), height - FIXED_LINES)
    parts: list[RenderableType] = [_line(_title(activity, root), "bold reverse", width)]
    parts += _rows(GROUP_HEAD, list(map(_group_row, activity.groups)), of_groups, width, "groups")
    parts += _rows(TOPIC_HEAD, list(map(_topic_row, activity.topics)), of_topics, width, "topics")
    parts.append(_line(foot, "dim", width))
    assert all(isinstance(part, Text) for part in parts)
    return Group(*parts)


def _share(groups: int, topics: int, lines: int) -> tuple[int, int]:
    """Return how many groups and topics are shown: half of the lines for each, and what one does not need for the
    other."""
    half = lines // 2
    of_groups = min(groups, max(half, lines - topics))
    return of_groups, min(topics, lines - of_groups)


def _rows(
    head: Sequence[str], rows: Sequence[Sequence[str]], count: int, width: int, what: str
) -> list[RenderableType]:
    """Return a head, the first rows, a line on the others, and an empty line; the first column takes what is left."""
    shown = [head, *rows[:count]]
    widths = [max(len(row[column]) for row in shown) for column in range(1, len(head))]
    first = max(width - sum(widths) - 2 * len(widths), 8)
    lines: list[RenderableType] = []
    for number, row in enumerate(shown):
        name = _fit(row[0], first)
        cells = [name, *(text.rjust(size) for text, size in zip(row[1:], widths, strict=True))]
        lines.append(_line("  ".join(cells), "bold" if number == 0 else "", width))
    more = len(rows) - count
    lines.append(_line(f"and {more:,} more {what}" if more else "" if rows else f"no {what}", "dim", width))
    return lines


def _fit(text: str, width: int) -> str:
    """Return a text of exactly so many columns of a terminal."""
    from rich.cells import cell_len, set_cell_size

    return set_cell_size(text, width - 1) + "…" if cell_len(text) > width else set_cell_size(text, width)


def _line(text: str, style: str, width: int) -> RenderableType:
    from rich.cells import set_cell_size
    from rich.text import Text

    return Text(set_cell_size(text, width), style=style, no_wrap=True, overflow="crop")


def _title(activity: Activity, root: str) -> str:
    commits = f"{activity.commits_per_second:,.1f} commits/s"
    return f"{printable(root)}  version {activity.version:,}  {commits}  {utc_text(activity.time_ms)[11:19]} UTC"


def _group_row(group: GroupActivity) -> tuple[str, ...]:
    behind = "?" if group.lag_seconds is None else _duration(group.lag_seconds)
    rate = f"{group.commits_per_second:,.1f}"
    return printable(group.group), group.state, str(group.members), f"{group.lag:,}", behind, rate


def _topic_row(topic: TopicActivity) -> tuple[str, ...]:
    rates = (f"{topic.records_per_second:,.1f}", _size(topic.bytes_per_second), f"{topic.appends_per_second:,.1f}")
    return printable(topic.topic), *rates, str(topic.partitions), _size(topic.size_bytes)


def _size(number: float) -> str:
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
