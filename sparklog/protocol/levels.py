"""Levels: what changed in the stored formats, and since which version of sparklog.

The ``format`` of a commit is a level, and that of a checkpoint's manifest too. A cluster's level is the highest of any
commit in it: it is raised by the first commit of a newer program, without being asked, and never lowered. A program
that meets a higher level than it knows stops before it writes anything, and says which version is needed.

Rules: every change of anything stored (a field, a bound, an action, a column) raises the level in the table below, once
for each released version; ``tests/golden/schemas`` has what each level stores, and a test compares it with the code.
Two things never change, so that every version can tell a newer object from a damaged one: ``format`` is the first field
of a commit, and ``digest`` the last, the SHA-256 of all bytes before it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from sparklog.errors import UnsupportedVersionError


class Level(NamedTuple):
    """What ``since`` this version of sparklog is written, and what that changed."""

    number: int
    since: str
    changes: str


LEVELS = (
    Level(1, "0.1.0", "the first one"),
    Level(
        2,
        "0.2.0",
        "commits say which version they need; every number, text and list of a commit has a bound; boundary.json, "
        "announcements and listings of removed files have a format; actions of a large commit lie in meta/actions/; "
        "the log's time can be set back; an application's write has a digest of its source; checkpoints are in parts; "
        "producers and applications are forgotten by actions; partitions say when they last forgot a producer; "
        "locations.json",
    ),
)
"""Oldest first. This version reads all of them, and writes the last."""

CURRENT = LEVELS[-1].number
"""The level of every commit that this version writes."""

NEEDS = LEVELS[-1].since
"""The oldest version of sparklog that reads what this one writes."""

FIRST = LEVELS[0].number

_VERSION = re.compile(r"\d[0-9A-Za-z.+!-]{0,39}\Z")


def needed_version(level: object, stated: object = "") -> str:
    """Which sparklog reads an object of a level, for messages: what the table says, else what the object itself states.

    What it states comes from storage, so anything but a version is left out.
    """
    known = next((one.since for one in LEVELS if one.number == level), "")
    if not known and isinstance(stated, str) and _VERSION.fullmatch(stated):
        known = stated
    return f"sparklog {known} or newer" if known else "a newer sparklog"


class _Formatted(msgspec.Struct):
    """Any stored object; one without a format is of the first level."""

    format: int = FIRST
    needs: object = ""


_FORMATTED_DECODER = msgspec.json.Decoder(_Formatted)


def check_format(path: str, data: bytes) -> None:
    """Refuse an object of a newer format, whatever else is in it. Raises UnsupportedVersionError, MsgspecError."""
    found = _FORMATTED_DECODER.decode(data)
    if found.format > CURRENT:
        raise newer(path, found.format, found.needs)


def newer(path: str, level: int, stated: object = "") -> UnsupportedVersionError:
    """The error for an object of a level that this version does not know. Nothing is wrong with the object."""
    needs = needed_version(level, stated)
    return UnsupportedVersionError(
        f"{path} has format {level}, and this sparklog knows formats up to {CURRENT}: it needs {needs}; upgrade "
        "sparklog. Nothing is damaged, and this program has written nothing",
        path=path,
        level=level,
        needs=needs,
    )


def unknown(path: str, level: int, why: object) -> UnsupportedVersionError:
    """The error for an intact object of a known level that has something in it which this version does not know."""
    return UnsupportedVersionError(
        f"{path} is intact and of a known format ({level}), and has what this sparklog does not know: {why}; it was "
        "written by an unknown version or another program. Use what wrote it, and keep the file as it is",
        path=path,
        level=level,
    )
