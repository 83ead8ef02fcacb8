"""Names of segment files, and the version in them.

A file is named ``<20 digits>-v<version>-<write id>.log``: the base offset that its writer expected, and the version of
the cluster that the writer knew when it began the file. A commit that fences writers at a version
(``commits.FenceWriters``) excludes every file begun at that version or before; so a file that is not part of the log by
then never will be, however long its writer was suspended, and may be deleted without comparing clocks.
Not for: keys of metadata (``commits.commit_key``).
"""

from __future__ import annotations

import re

NO_VERSION = -1
"""The version of a name without one: it counts as begun before all commits."""

_NAME = re.compile(r"(?:^|/)\d{20}-v(\d{1,19})-[A-Za-z0-9_-]{1,64}\.(?:log|index)\Z")


def file_name(expected_offset: int, version: int, write_id: str) -> str:
    """Return the name of a new ``.log``; ``version`` -1 (a cluster without commits) counts as 0."""
    return f"{expected_offset:020d}-v{max(version, 0)}-{write_id}.log"


def begun_at(path: str) -> int:
    """Return the version in the name of a ``.log`` or ``.index``, ``NO_VERSION`` if it has none."""
    match = _NAME.search(path)
    return int(match.group(1)) if match else NO_VERSION
