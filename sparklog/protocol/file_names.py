"""Names of segment files, and what the version in a name is for.

A file is named ``<20 digits>-v<version>-<write id>.log``: the base offset that its writer expected, and the version of
the cluster that it knew when it began the file. A commit that fences writers at a version (``commits.FenceWriters``)
rules out every file begun at that version or before; so what is not part of the log by then never will be, however long
its writer was stopped, and may be deleted without comparing any clocks.
"""

from __future__ import annotations

import re

NO_VERSION = -1
"""The version of a name that has none: it counts as begun before everything."""

_NAME = re.compile(r"(?:^|/)\d{20}-v(\d{1,19})-[A-Za-z0-9_-]{1,64}\.(?:log|index)\Z")


def file_name(expected_offset: int, version: int, write_id: str) -> str:
    """The name of a new ``.log``; ``version`` -1 (a cluster without commits) counts as 0."""
    return f"{expected_offset:020d}-v{max(version, 0)}-{write_id}.log"


def begun_at(path: str) -> int:
    """The version in the name of a ``.log`` or ``.index``, ``NO_VERSION`` where it has none."""
    found = _NAME.search(path)
    return int(found.group(1)) if found else NO_VERSION
