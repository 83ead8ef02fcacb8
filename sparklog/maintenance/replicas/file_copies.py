"""Copies segment files from one storage location to another: the same bytes under the same path.

Each file is read once and written once. Its checksums are verified on the way against the ``.index`` beside it, so that
damage is never copied: then the next broker that should have the file is tried. A file appears under its name only once
it is complete and verified.

Rules: a task is picklable, tries all its files, and reports what it could not copy instead of raising.
Not for: which files to copy (``replication``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.errors import (
    CorruptionError,
    ObjectNotFoundError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.format.index import decode_index
from sparklog.format.segment_reader import ReadAt
from sparklog.format.verification import verify
from sparklog.log.records.read_order import REPLICA_FAILED
from sparklog.log.records.replicated_file import ReplicatedFile
from sparklog.maintenance.replicas.throttle import Throttle
from sparklog.protocol.file_names import index_path
from sparklog.store.base import Store


class FileToCopy(NamedTuple):
    """A ``.log`` with its ``.index``. ``sources`` are the brokers that should have it, in read order."""

    path: str
    sources: tuple[int, ...]
    size: int


class CopyTask(NamedTuple):
    """Files to copy to one broker. Picklable if the stores are. ``bytes_per_second`` 0 means no limit."""

    broker: int
    stores: Mapping[int, Store]
    files: Sequence[FileToCopy]
    bytes_per_second: float = 0.0
    clock: Clock = SystemClock()


class CopyResult(NamedTuple):
    """What a task did: the paths that the broker has now, bytes copied, and paths that failed with the reason."""

    broker: int
    copied: list[str]
    size_bytes: int
    failed: list[tuple[str, str]]


def copy_files(task: CopyTask) -> CopyResult:
    """Copy the files of a task. If the target itself fails, the remaining files are not tried."""
    throttle = Throttle(task.bytes_per_second, task.clock)
    target = task.stores[task.broker]
    result = CopyResult(task.broker, [], 0, [])
    unavailable: set[int] = set()
    for number, file in enumerate(task.files):
        try:
            size, failures = _copy_from_any(task, target, file, throttle, unavailable)
        except SparklogError as error:
            why = f"could not write to broker {task.broker}: {error.message}"
            return result._replace(failed=[*result.failed, *((rest.path, why) for rest in task.files[number:])])
        if size < 0:
            result.failed.append((file.path, "; ".join(failures)))
        else:
            result.copied.append(file.path)
            result = result._replace(size_bytes=result.size_bytes + size)
    return result


def _copy_from_any(
    task: CopyTask, target: Store, file: FileToCopy, throttle: Throttle, unavailable: set[int]
) -> tuple[int, list[str]]:
    """Copy a file; return the bytes copied, -1 if no source has a sound copy, and the failures of the sources tried.

    Sources that do not answer are added to ``unavailable``, and are not tried again.
    """
    failures: list[str] = []
    for broker in file.sources:
        if broker not in task.stores:
            continue
        if broker in unavailable:
            failures.append(f"broker {broker} did not answer before")
            continue
        try:
            return copy_segment_file(task.stores[broker], target, file.path, throttle), failures
        except _SourceError as error:
            failures.append(f"broker {broker}: {error}")
            if isinstance(error.__cause__, StorageUnavailableError):
                unavailable.add(broker)
    if is_sound(target, file.path):
        return 0, failures
    return -1, failures or ["no available broker has a copy"]


class _SourceError(Exception):
    """The source has no sound copy, or does not answer."""


class _Tee:
    """Reads from a source, and writes what is read sequentially to the target. Not thread-safe."""

    def __init__(self, read_at: ReadAt, output: ReplicatedFile, throttle: Throttle) -> None:
        self.position = 0
        self._read_at = read_at
        self._output = output
        self._throttle = throttle

    def read_at(self, position: int, length: int) -> pa.Buffer:
        try:
            data = self._read_at(position, length)
        except REPLICA_FAILED as error:
            raise _SourceError(error.message) from error
        if position == self.position and data.size:
            self._throttle.take(data.size)
            self._output.write(data)
            self.position += data.size
        return data


def copy_segment_file(source: Store, target: Store, path: str, throttle: Throttle) -> int:
    """Copy a ``.log`` and its ``.index``; return the bytes of both.

    Raises StorageError if the target fails, and a private error if the source fails or is damaged.
    """
    try:
        data = source.get(index_path(path), limits.MAX_INDEX_BYTES)
        index = decode_index(data, f"{source.root}/{index_path(path)}")
        file = source.open_input(path)
    except REPLICA_FAILED as error:
        raise _SourceError(error.message) from error
    try:
        output = ReplicatedFile(path, [(0, target)])
        try:
            tee = _Tee(file.read_at, output, throttle)
            verification = verify(tee.read_at, index, f"{source.root}/{path}")
            if verification.damage or tee.position != index.summary.log_length:
                what = verification.damage[0].what if verification.damage else "it is truncated"
                raise _SourceError(f"{source.root}/{path} is damaged: {what}")
            output.finish(data)
        except BaseException:
            output.abort()
            raise
    except (CorruptionError, ObjectNotFoundError) as error:
        raise _SourceError(error.message) from error
    finally:
        file.close()
    return tee.position + len(data)


def is_sound(store: Store, path: str) -> bool:
    """Whether a location has a ``.log`` and ``.index`` that match, every byte checked."""
    try:
        index = decode_index(store.get(index_path(path), limits.MAX_INDEX_BYTES), index_path(path))
        with closing(store.open_input(path)) as file:
            return file.size == index.summary.log_length and not verify(file.read_at, index, path).damage
    except SparklogError:
        return False
