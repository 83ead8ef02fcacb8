"""What the Delta tables of topics list, checked against the log at every commit of a table, by code of its own.

A table's files have to exist, and to be the history of the topic at the version of the log that the table says it
shows, which never goes back. ``TableWatch`` is told about every commit of the log, every commit of a table, and every
file that is deleted.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.parse import unquote

from sparklog.protocol.segments import Segment

GONE = "a table lists a file that is gone"
DIFFERS = "a table differs from the log at the version that it shows"


class History(NamedTuple):
    """The files of a topic's history that its table has to list, and those that it may: files with records below the
    log start offset."""

    files: frozenset[str] = frozenset()
    inexact: frozenset[str] = frozenset()

    def allows(self, listed: Collection[str]) -> bool:
        return self.files <= {*listed} <= self.files | self.inexact


class TableWatch:
    """The tables of a cluster, and the history of its topics at every version. ``find`` reports a violation."""

    def __init__(self, find: Callable[[str, str], None], exists: Callable[[str], bool]) -> None:
        self._find = find
        self._exists = exists
        self._histories: dict[str, list[tuple[int, History]]] = {}
        self.listed: dict[str, set[str]] = {}
        self._versions: dict[str, int] = {}
        self._shown: dict[str, int] = {}

    def log_changed(self, topic: str, version: int, history: History) -> None:
        """Remember the history of a topic from a version of the log on."""
        known = self._histories.setdefault(topic, [(-1, History())])
        if known[-1][1] != history:
            known.append((version, history))

    def committed(self, key: str, data: bytes) -> None:
        """Check a new commit of a table."""
        _, topic, _, name = key.split("/")
        number, listed = int(name.removesuffix(".json")), self.listed.setdefault(topic, set())
        if number != self._versions.get(topic, -1) + 1:
            self._find(DIFFERS, f"{key} follows version {self._versions.get(topic, -1)}")
        self._versions[topic] = number
        actions = [json.loads(line) for line in data.splitlines()]
        removed = [_key(topic, action["remove"]["path"]) for action in actions if "remove" in action]
        added = [_key(topic, action["add"]["path"]) for action in actions if "add" in action]
        if len({*added}) < len(added) or not listed.issuperset(removed) or not listed.isdisjoint(added):
            self._find(DIFFERS, f"{key} removes {removed} and adds {added}, and {sorted(listed)} are listed")
        listed.difference_update(removed)
        listed.update(added)
        for path in listed:
            if not self._exists(path):
                self._find(GONE, f"{path} is listed by {key}")
        shown = [action["txn"]["version"] for action in actions if "txn" in action]
        if len(shown) != 1 or shown[0] < self._shown.get(topic, -1):
            self._find(DIFFERS, f"{key} shows {shown} after version {self._shown.get(topic, -1)}")
        for version in shown:
            self._shown[topic] = version
            if not self.history(topic, version).allows(listed):
                self._find(DIFFERS, f"{key} lists {sorted(listed)}, not {self.history(topic, version)} of {version}")

    def deleted(self, key: str) -> None:
        """Check that no table lists a file that was deleted."""
        for topic, listed in self.listed.items():
            if key in listed:
                self._find(GONE, f"{key} was deleted, and the table of {topic} lists it")

    def history(self, topic: str, version: int) -> History:
        """Return the history of a topic at a version of the log."""
        known = self._histories.get(topic, [(-1, History())])
        return known[bisect_right(known, version, key=lambda each: each[0]) - 1][1]

    def check_end(self, topics: Collection[str]) -> None:
        """Check that the tables show the newest history of these topics."""
        for topic in topics:
            newest = self._histories.get(topic, [(-1, History())])[-1][1]
            if not newest.allows(self.listed.get(topic, ())):
                self._find(DIFFERS, f"the table of {topic} lists {sorted(self.listed.get(topic, ()))}, not {newest}")


def history_of(segments: Collection[Segment], log_start_offset: int) -> History:
    """Return the files of a partition's history at a version."""
    files: set[str] = set()
    inexact: set[str] = set()
    for segment in sorted(segments, key=lambda each: each.base_offset):
        if segment.end_offset <= log_start_offset:
            continue
        if not segment.path.endswith(".parquet"):
            break
        if json.loads(segment.stats)["minValues"]["offset"] < log_start_offset:
            inexact.add(segment.path)
        else:
            files.add(segment.path)
    return History(frozenset(files), frozenset(inexact))


def _key(topic: str, path: str) -> str:
    return f"tables/{topic}/{unquote(path)}"
