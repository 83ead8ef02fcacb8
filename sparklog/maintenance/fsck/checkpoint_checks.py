"""Reads all checkpoints of a cluster, and finds out what is wrong with those that cannot be used.

Rules: reads only. A part that several checkpoints share is read once, while it is in the cache.
Not for: whether a checkpoint agrees with the commits (``metadata_checks``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from sparklog.errors import CorruptionError, ObjectNotFoundError, UnsupportedVersionError
from sparklog.log.checkpoints import checkpoint
from sparklog.log.checkpoints.checkpoint import LATEST_KEY, Manifest
from sparklog.log.checkpoints.files import read_segments_file
from sparklog.log.checkpoints.lists import ListCache, Lists, tail_segments
from sparklog.log.checkpoints.tiers import FileReference
from sparklog.log.layout import CHECKPOINTS, checkpoint_version, is_boundary_mark, manifest_version
from sparklog.log.segments import TopicSegments, to_part
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.kinds import WARNING, Finding
from sparklog.protocol.state import State, TopicState
from sparklog.store.base import Store

_CACHED_ROWS = 2_000_000
"""Rows of parts that are cached between checkpoints, some 300 MB."""


@dataclass
class KeptCheckpoint:
    """One checkpoint. ``fault`` says why it cannot be used; ``state`` and ``manifest`` are None if it cannot be read.

    ``kind`` is the kind of the finding for the fault.
    """

    key: str
    version: int
    manifest: Manifest | None = None
    state: State | None = None
    lists: Lists | None = None
    files: Sequence[FileReference] = ()
    fault: str = ""
    path: str = ""
    kind: str = kinds.DAMAGED_CHECKPOINT

    @property
    def is_sound(self) -> bool:
        return not self.fault

    def blame(self, kind: str, fault: str, path: str = "") -> None:
        """Record a fault, unless there is one already."""
        if not self.fault:
            self.kind, self.fault, self.path = kind, fault, path or self.key

    def finding(self, replaceable: bool) -> Finding:
        """Return the finding for the fault. ``replaceable``: the state of the cluster is known without it."""
        if self.kind == kinds.NEWER_VERSION:
            return newer_version(self.fault, self.path or self.key, self.version)
        return Finding(
            kind=self.kind,
            severity=WARNING,
            message=self.fault,
            action="run `sparklog fsck --repair`, which writes a new one from the commits and removes this one"
            if replaceable
            else "keep it: it is the only source of the state that it holds",
            repairable=replaceable,
            path=self.path or self.key,
            version=self.version,
        )


class Checkpoints:
    """All checkpoints of a cluster, oldest first. Not thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache = ListCache(store)
        self._parts: OrderedDict[str, pa.RecordBatch] = OrderedDict()
        self._rows = 0
        keys = [info.key for info in store.list(CHECKPOINTS) if info.key != LATEST_KEY]
        self.keys = [key for key in keys if checkpoint_version(key) is not None]
        self.stray = [key for key in keys if checkpoint_version(key) is None]
        self.kept: list[KeptCheckpoint] = []
        for key in self.keys:
            version = manifest_version(key)
            if version is not None:
                self.kept.append(self._read(KeptCheckpoint(key, version)))

    def _read(self, kept: KeptCheckpoint) -> KeptCheckpoint:
        try:
            kept.manifest = checkpoint.read_manifest(self._store, kept.key)
            if kept.manifest.version != kept.version:
                kept.blame(kinds.DAMAGED_CHECKPOINT, f"{kept.key} says that its version is {kept.manifest.version}")
                return kept
            kept.files = [*kept.manifest.head_parts, *kept.manifest.lists]
            kept.state = checkpoint.read_heads(self._store, kept.manifest)
            kept.lists = checkpoint.read_lists(self._store, kept.manifest, self._cache)
            kept.files = checkpoint.list_files(self._store, kept.manifest, self._cache)
            if kept.state.version != kept.version:
                kept.blame(kinds.DAMAGED_CHECKPOINT, f"{kept.key} holds a state of version {kept.state.version}")
        except UnsupportedVersionError as error:
            kept.blame(kinds.NEWER_VERSION, str(error))
        except (CorruptionError, ObjectNotFoundError, pa.ArrowException) as error:
            path = getattr(error, "path", None) or kept.key
            kept.blame(kinds.DAMAGED_CHECKPOINT, str(error), path.removeprefix(self._store.root + "/"))
        return kept

    def at(self, version: int) -> list[KeptCheckpoint]:
        return [kept for kept in self.kept if kept.version == version]

    def lists(self, kept: KeptCheckpoint, topic: TopicState) -> pa.RecordBatch | None:
        """Return the segments of a topic in a checkpoint, in order; if they cannot be read, record a fault and return
        None."""
        assert kept.lists is not None
        listed = kept.lists.of(topic.topic_id)
        try:
            parts = [*self._read_parts(listed.files), to_part(tail_segments(listed))]
            return TopicSegments(topic, parts, []).table()
        except (CorruptionError, ObjectNotFoundError, pa.ArrowException) as error:
            path = getattr(error, "path", None) or kept.key
            kept.blame(kinds.DAMAGED_CHECKPOINT, str(error), path.removeprefix(self._store.root + "/"))
            return None

    def _read_parts(self, files: Sequence[FileReference]) -> list[pa.RecordBatch]:
        parts = []
        for file in files:
            part = self._parts.pop(file.key, None)
            if part is None:
                part = read_segments_file(self._store, file)
                self._rows += part.num_rows
            self._parts[file.key] = part
            parts.append(part)
        while self._rows > _CACHED_ROWS:
            self._rows -= self._parts.popitem(last=False)[1].num_rows
        return parts

    def hint_fault(self) -> Finding | None:
        """Return a finding if latest.json names no sound checkpoint; one that is old, or of a later version, is not a
        fault."""
        try:
            named = checkpoint.read_hint(self._store)
        except ObjectNotFoundError:
            return None
        except (CorruptionError, msgspec.MsgspecError, RecursionError) as error:
            message = f"{LATEST_KEY} cannot be read: {error}"
        else:
            if any(kept.key == named for kept in self.kept if kept.is_sound or kept.kind == kinds.NEWER_VERSION):
                return None
            message = f"{LATEST_KEY} names {named}, which does not exist or cannot be used"
        return Finding(
            kind=kinds.STALE_HINT,
            severity=WARNING,
            message=message,
            action="run `sparklog fsck --repair`, which removes it; the checkpoints are listed until one is written",
            repairable=True,
            path=LATEST_KEY,
        )

    def unused(self) -> list[str]:
        """Return the files of checkpoints that no readable manifest names: their writer died before its manifest.

        Marks of the boundary are not unused: the newest is needed, and clean-ups remove the others.
        """
        named = set(filter(is_boundary_mark, self.keys))
        for kept in self.kept:
            named.add(kept.key)
            named.update(file.key for file in kept.files)
        return [key for key in self.keys if key not in named]


def newer_version(message: str, path: str, version: int) -> Finding:
    """Return a finding for an object that only a later version of sparklog can check."""
    return Finding(
        kind=kinds.NEWER_VERSION,
        severity=WARNING,
        message=message,
        action="check the cluster with that version; until then do not change anything",
        path=path,
        version=version,
    )
