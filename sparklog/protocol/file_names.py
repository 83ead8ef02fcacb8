"""Names of segment files, and the version in them.

A file is named ``<20 digits>-v<version>-<write id>.log``: the base offset that its writer expected, and the version of
the cluster that the writer knew when it began the file. A history segment is a ``.parquet`` of such a name, in a folder
of the topic's Delta table (``segment_folder``). Beside a file lies its index, ``.index`` or ``.parquet.index``.

A commit that fences writers at a version (``commits.FenceWriters``) excludes every file begun at that version or
before; so a file that is not part of the log by then never will be, however long its writer was suspended, and may be
deleted without comparing clocks.
Not for: keys of metadata (``commits.commit_key``).
"""

from __future__ import annotations

import re

NO_VERSION = -1
"""The version of a name without one: it counts as begun before all commits."""

TABLES = "tables/"
"""Folder of the Delta tables of all topics."""

HISTORY_EXTENSION = ".parquet"
"""By which history segments are told from others."""

_NAME = re.compile(r"(?:^|/)\d{20}-v(\d{1,19})-[A-Za-z0-9_-]{1,64}\.(?:log|index|parquet|parquet\.index)\Z")
_HISTORY_FOLDER = rf"{TABLES}[^/]+/_segments/partition=\d+"


def _data_files(name: str) -> re.Pattern[str]:
    """Return the pattern of all files of segments with such a name."""
    return re.compile(rf"[^/]+-\d+/{name}\.(?:log|index)|{_HISTORY_FOLDER}/{name}\.parquet(?:\.index)?")


_IN_FOLDER = _data_files(r"[^/]+")
_WRITTEN = _data_files(r"\d{20}-[A-Za-z0-9_-]{1,90}")
_TABLE_LOG = re.compile(rf"{TABLES}[^/]+/_delta_log/")
_ROOT = re.compile(rf"(?:(.*)/)?{_HISTORY_FOLDER}")


def file_name(expected_offset: int, version: int, write_id: str, extension: str = ".log") -> str:
    """Return the name of a new ``.log`` or ``.parquet``; ``version`` -1 (a cluster without commits) counts as 0."""
    return f"{expected_offset:020d}-v{max(version, 0)}-{write_id}{extension}"


def segment_folder(topic: str, partition: int, history: bool = False) -> str:
    """Return the folder of a partition's files, or of its history segments.

    Those lie inside the folder of a Delta table, since some of its readers follow no path that leaves it; below a
    folder whose name begins with ``_``, which Delta's ``VACUUM`` does not list; and in one that is named as Delta names
    the folder of a partition, since some readers take the partition's number from the path.
    """
    return f"{table_folder(topic)}/_segments/partition={partition}" if history else f"{topic}-{partition}"


def table_folder(topic: str) -> str:
    """Return the folder of a topic's Delta table."""
    return f"{TABLES}{topic}"


def topic_in(key: str) -> str:
    """Return the topic in the path of a file; other topics may have runs in a ``.log``, too."""
    return key.split("/")[1] if is_history(log_path_of(key)) else key.partition("/")[0].rpartition("-")[0]


def root_of(folder: str) -> str:
    """Return the address of the root or location below which this folder of segments lies, empty if it is relative."""
    match = _ROOT.fullmatch(folder)
    return (match.group(1) or "") if match else folder.rpartition("/")[0]


def is_in_data_folder(key: str) -> bool:
    """Whether a key is that of a ``.log``, ``.parquet`` or index in a partition's folder, whatever its name."""
    return _IN_FOLDER.fullmatch(key) is not None


def is_table_log(key: str) -> bool:
    """Return whether a key is in the log of a Delta table, whichever program wrote it."""
    return _TABLE_LOG.match(key) is not None


def is_data_file(key: str) -> bool:
    """Whether a key is one that some version of sparklog gives to a ``.log``, ``.parquet`` or index."""
    return _WRITTEN.fullmatch(key) is not None


def index_path(log_path: str) -> str:
    """Return the path of the index of a ``.log`` or ``.parquet``."""
    return f"{log_path.removesuffix('.log')}.index"


def log_path_of(path: str) -> str:
    """Return the path of the ``.log`` or ``.parquet`` that it, or its index, belongs to."""
    stem = path.removesuffix(".index")
    return path if stem == path else stem if is_history(stem) else f"{stem}.log"


def is_history(path: str) -> bool:
    """Whether the path of a segment is that of a history segment."""
    return path.endswith(HISTORY_EXTENSION)


def begun_at(path: str) -> int:
    """Return the version in the name of a ``.log``, ``.parquet`` or index, ``NO_VERSION`` if it has none."""
    match = _NAME.search(path)
    return int(match.group(1)) if match else NO_VERSION
