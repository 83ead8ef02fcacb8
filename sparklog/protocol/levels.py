"""Levels: the versions of all stored formats together, and the version of sparklog that introduced each.

Kafka calls this the feature level of ``metadata.version``. The ``format`` of a commit is a level, as is that of a
checkpoint's manifest. A cluster's level is the highest of any commit in it. Everything is written at the cluster's
level, so that older programs can read it, until `sparklog features upgrade` raises the level by a commit; it is never
lowered. A program that finds a higher level than it supports stops before it writes anything, and says which version is
needed.

Rules: every change of anything stored (a field, a bound, an action, a column) raises the level in the table below, once
for each released version, and belongs to a feature in ``FEATURES``; ``tests/golden/schemas`` has the schemas of each
level, and a test compares them with the code. A small object of its own has as ``format`` the level that introduced its
present fields. Two things never change, so that every version can tell a newer object from a corrupt one: ``format`` is
the first field of a commit, and ``digest`` the last, the SHA-256 of all bytes before it. Not for: encoding
(``commit_bytes``), checking what a commit needs (``features``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from sparklog.errors import UnsupportedVersionError


class Level(NamedTuple):
    """A level: its number, the version of sparklog that writes it ``since``, and its changes."""

    number: int
    since: str
    changes: str


LEVELS = (
    Level(1, "0.1.0", "first level"),
    Level(
        2,
        "0.2.0",
        "commits state the version they need; every number, text and list of a commit has a bound; boundary.json, "
        "reader leases and listings of retired files have a format; actions of a large commit are in meta/actions/; "
        "the log's time can be set back; an application's write has a digest of its source; checkpoints are in parts; "
        "producers and applications expire by actions; partitions record when they last forgot a producer; "
        "locations.json",
    ),
    Level(
        3,
        "0.3.0",
        "segments may be Parquet files in the folder of a topic's Delta table, with flag 8 in their index, and their "
        "statistics in commits; topics record the versions of their schemas, and partitions, segments and changes of "
        "segments how many records do not fit; the config history.format; checkpoints state the version they need; "
        "owner records of locations, and the epoch of a root",
    ),
)
"""Oldest first. This version reads all of them, and writes those from ``OLDEST_WRITTEN`` on."""

CURRENT = LEVELS[-1].number
"""The newest level that this version knows: that of new clusters."""

NEEDS = LEVELS[-1].since
"""The oldest version of sparklog that reads ``CURRENT``."""

FIRST = LEVELS[0].number

RELEASE = "0.3.0"
"""This version of sparklog, as ``sparklog.__version__``, which no module below the command line imports."""

OLDEST_WRITTEN = 2
"""The oldest level at which this version writes; clusters of older ones are read, and have to be upgraded first."""

OWNERS_SINCE = 3
"""The level from which on every program that writes knows which root owns a location, and notes checks of it by epochs:
0.2.0, of the level before, does not."""

FEATURE = "metadata.version"
"""Kafka's name of the feature whose level this is."""


class Feature(NamedTuple):
    """What needs a level: a feature's ``name`` for messages, its configs, and its fields of actions by class."""

    name: str
    level: int
    configs: frozenset[str] = frozenset()
    fields: Mapping[str, tuple[str, ...]] = MappingProxyType({})


FEATURES = (
    Feature(
        "Parquet history and Delta tables",
        3,
        frozenset(("history.format", "log.history.format", "history.delete.delay.ms", "log.history.delete.delay.ms")),
        MappingProxyType({"LiveSegment": ("stats", "file_bytes")}),
    ),
    Feature(
        "typed topics",
        3,
        frozenset(
            f"{part}.{setting}"
            for part in ("value", "key")
            for setting in ("format", "schema", "schema.validation", "keep")
        ),
        MappingProxyType({"LiveSegment": ("unfit",), "RemovedSegments": ("unfit",)}),
    ),
    Feature("rollups of old commits", 3, frozenset(("system.retention.ms",))),
)
"""Everything that a program may use only from a level on. What level 2 brought is part of every cluster that can be
written, and needs no check."""

ROLLUPS = FEATURES[-1]

_VERSION = re.compile(r"\d[0-9A-Za-z.+!-]{0,39}\Z")
_RELEASE = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?")


def needed_version(level: object, stated: object = "") -> str:
    """Return which sparklog reads a level, for messages: from the table, else the version that the object states.

    The stated version comes from storage, so it is ignored unless it looks like a version.
    """
    version = next((entry.since for entry in LEVELS if entry.number == level), "")
    if not version and isinstance(stated, str) and _VERSION.fullmatch(stated):
        version = stated
    return f"sparklog {version} or newer" if version else "a newer sparklog"


def needs_of(level: int) -> str:
    """Return the oldest version of sparklog that reads a known level: the ``needs`` of its commits."""
    return next(entry.since for entry in LEVELS if entry.number == level)


def level_of_release(version: str) -> int | None:
    """Return the newest level that a release such as ``0.2.1`` reads and writes; None if that is not known: the release
    is older than all, newer than ``RELEASE``, or not a version."""
    release = _parse_release(version)
    if release is None or release > _release(RELEASE):
        return None
    return max((entry.number for entry in LEVELS if _release(entry.since) <= release), default=None)


def _parse_release(version: str) -> tuple[int, ...] | None:
    match = _RELEASE.fullmatch(version)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def _release(version: str) -> tuple[int, ...]:
    return _parse_release(version) or ()


class _Formatted(msgspec.Struct):
    """The header of any stored object; one without a format has the first level."""

    format: int = FIRST
    needs: object = ""


_FORMATTED_DECODER = msgspec.json.Decoder(_Formatted)


def check_format(path: str, data: bytes) -> None:
    """Refuse an object of a newer format, whatever its content. Raises UnsupportedVersionError, MsgspecError."""
    header = _FORMATTED_DECODER.decode(data)
    if header.format > CURRENT:
        raise newer(path, header.format, header.needs)


def newer(path: str, level: int, stated: object = "") -> UnsupportedVersionError:
    """Return the error for an intact object of a newer level."""
    needs = needed_version(level, stated)
    return UnsupportedVersionError(
        f"{path} has format {level}, and this sparklog knows formats up to {CURRENT}: it needs {needs}; upgrade "
        "sparklog. Nothing is damaged, and what was acknowledged stays in the log",
        path=path,
        level=level,
        needs=needs,
    )


def unknown(path: str, level: int, why: object) -> UnsupportedVersionError:
    """Return the error for an intact object of a known level with content that this version does not know."""
    return UnsupportedVersionError(
        f"{path} is intact and of a known format ({level}), but contains what this sparklog does not know: {why}; it "
        "was written by an unknown version or another program. Use that program, and keep the file as it is",
        path=path,
        level=level,
    )
