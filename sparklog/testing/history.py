"""The history of a run: the requests of each process, their results, and their times; written and read.

Every process writes its own log, one JSON object per line, appended with one write per line, so that the log of a
process killed with SIGKILL is complete up to then. An operation is ``invoke``, then any number of ``note`` (its
contents, as they become known), then at most one of ``ok`` (it happened), ``fail`` (it did not, and never will) or
``info`` (unknown). One without an end counts as ``info``: its process may have died before the answer arrived.

    log = OperationLog("producer-1", folder / "producer-1.jsonl")
    sent = log.invoke(SEND, writes=[Write("orders", 0, "producer-1:17")])
    metadata = producer.send(...).get()
    sent.ok(writes=[Write("orders", 0, "producer-1:17", metadata.offset)])

    findings = check(History.load(folder))          # sparklog.testing.checks

What the fields of an ``Entry`` mean to each kind of operation:

    init_producer   transactional_id; producer_id and epoch if known
    send            writes; producer_id, epoch, transactional_id if any. All of them, or ``fail`` for all
    transaction     writes and offsets, noted as they are made; ``committing`` is noted before the commit is requested.
                    ok: committed; fail: aborted or refused; without ``committing`` it must leave nothing visible
    assign          all partitions that the consumer owns from now on, and its generation; ``positions`` from which it
                    reads newly owned ones; ``instance`` of a static member
    revoke          partitions that it gives up, recorded before it releases them
    seek            positions that the consumer was told to read from
    poll            reads: the records that one call returned
    commit_offsets  offsets of a group; member and generation. ``reset_offsets``: the same by an administrator
    committed       offsets of a group as read by a process
    offset_log      offsets of groups in the order of the commit log
    read            reads of whole ranges ``[start, end)`` of partitions at one version, without a position; ``final``
                    if all writers have ended

Rules: values are unique in a run, since they identify writes. Times are of one monotonic clock that all processes share
(CLOCK_MONOTONIC is the machine's). Not for: checking; see ``sparklog.testing.checks``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sparklog.clock import Clock, SystemClock
from sparklog.types import TopicPartition

KINDS = (
    (INIT_PRODUCER := "init_producer"),
    (SEND := "send"),
    (TRANSACTION := "transaction"),
    (ASSIGN := "assign"),
    (REVOKE := "revoke"),
    (SEEK := "seek"),
    (POLL := "poll"),
    (COMMIT_OFFSETS := "commit_offsets"),
    (RESET_OFFSETS := "reset_offsets"),
    (COMMITTED := "committed"),
    (OFFSET_LOG := "offset_log"),
    (READ := "read"),
)

OK = "ok"
FAIL = "fail"
INFO = "info"


class Write(NamedTuple):
    """One record that was sent; ``offset`` is -1 until known. ``key`` matters only on compacted topics."""

    topic: str
    partition: int
    value: str
    offset: int = -1
    key: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Read(NamedTuple):
    """Records of one partition as (offset, value); ``[start, end)`` is the requested range, -1 in a poll.

    ``compacted``: of records with one key only the last has to exist, in this read and in all of this partition.
    """

    topic: str
    partition: int
    records: Sequence[tuple[int, str]]
    start: int = -1
    end: int = -1
    compacted: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Position(NamedTuple):
    """The next offset of a partition: a consumer's position, or with ``group`` the committed offset of that group."""

    topic: str
    partition: int
    offset: int
    group: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class _Facts(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The contents of an operation; its kind decides which fields have a meaning."""

    writes: list[Write] = []
    reads: list[Read] = []
    partitions: list[TopicPartition] = []
    positions: list[Position] = []
    offsets: list[Position] = []
    group: str = ""
    member: str = ""
    instance: str = ""
    generation: int = -1
    consumer: str = ""
    transactional_id: str = ""
    producer_id: int = -1
    epoch: int = -1
    reset: str = ""
    final: bool = False
    committing: float = inf
    error: str = ""


class Entry(_Facts, kw_only=True):
    """One line of an operation log. ``time`` is in seconds of the clock that all processes of a run share."""

    process: str
    number: int
    type: str
    time: float
    kind: str = ""


class Operation(_Facts, kw_only=True):
    """An operation from its beginning to its end; ``completed`` is infinite if no end was recorded.

    ``outcome`` is ok, fail or info; ``order`` is the position of its end among all entries.
    """

    process: str
    number: int
    kind: str
    invoked: float
    completed: float = inf
    outcome: str = INFO
    order: int = 0

    @property
    def reader(self) -> str:
        """The owner of the positions: the named consumer, or else the process."""
        return self.consumer or self.process

    @property
    def owner(self) -> str:
        """The owner of a member's partitions: a static member that returns is the same owner."""
        return self.instance or self.member or self.reader

    @property
    def asked(self) -> float:
        """The earliest time it may take effect: of a transaction the start of its commit, else its invocation."""
        return self.committing if self.kind == TRANSACTION and self.committing < inf else self.invoked

    @property
    def may_have_happened(self) -> bool:
        """Whether it took effect or its outcome is unknown. Of a transaction the commit must also have been
        requested."""
        return self.outcome != FAIL and (self.kind != TRANSACTION or self.committing < inf or self.outcome == OK)

    def __str__(self) -> str:
        shown = " ".join(f"{name}={_short(value)}" for name, value in _stated(self).items())
        return (
            f"{self.process}#{self.number} {self.kind} {self.outcome} {self.invoked:.6f}..{self.completed:.6f} {shown}"
        )


_DEFAULTS = msgspec.structs.asdict(_Facts())


def _stated(facts: _Facts) -> dict[str, Any]:
    """Return the contents that were recorded, without defaults."""
    return {name: value for name, default in _DEFAULTS.items() if (value := getattr(facts, name)) != default}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


class OperationLog:
    """The operation log of one process. Thread-safe; with ``path`` None the entries are kept in memory.

    An existing file is appended to, and numbering continues from the operations in it, so a restarted process can
    continue its log.
    """

    def __init__(self, process: str, path: str | os.PathLike[str] | None = None, clock: Clock | None = None) -> None:
        self.process = process
        self.entries: list[Entry] = []
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._file = -1
        self._next = 0
        if path is not None:
            self._next = _next_number(Path(path))
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def invoke(self, kind: str, since: float | None = None, **facts: Any) -> Pending:
        """Record that an operation begins; call it before the request to the cluster, or pass the time of the request,
        from ``now``, as ``since``."""
        assert kind in KINDS, f"invalid kind of operation {kind!r}: one of {', '.join(KINDS)}"
        with self._lock:
            number = self._next
            self._next += 1
        self._append(number, "invoke", facts, kind, since)
        return Pending(self, number)

    def record(self, kind: str, since: float | None = None, **facts: Any) -> None:
        """Record an operation that has happened, and could not fail: an assignment, a revocation, a seek.

        ``since`` is the time at which its input was read, for a process that may have been stopped since then.
        """
        self.invoke(kind, since, **facts).ok()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def now(self) -> float:
        """Return the present time in seconds of the entries' clock."""
        return self._clock.monotonic()

    def _append(
        self, number: int, type: str, facts: dict[str, Any], kind: str = "", since: float | None = None
    ) -> None:
        with self._lock:
            time = self.now() if since is None else since
            entry = Entry(process=self.process, number=number, type=type, time=time, kind=kind, **facts)
            if self._file < 0:
                self.entries.append(entry)
            else:
                os.write(self._file, _ENCODER.encode(entry) + b"\n")


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)


class Pending:
    """An operation that has begun. As a context manager, an unrecorded error ends it with an unknown outcome."""

    def __init__(self, log: OperationLog, number: int) -> None:
        self._log = log
        self._number = number
        self.ended = False

    def note(self, **facts: Any) -> None:
        """Record further contents; lists are appended to those recorded before."""
        self._log._append(self._number, "note", facts)

    def committing(self) -> None:
        """Record that the commit of this transaction is requested next."""
        self.note(committing=self._log.now())

    def ok(self, **facts: Any) -> None:
        """Record that it happened; lists replace those recorded before."""
        self._end(OK, facts)

    def fail(self, error: object = "", **facts: Any) -> None:
        """Record that it did not happen, and never will."""
        self._end(FAIL, {"error": _named(error), **facts})

    def info(self, error: object = "", **facts: Any) -> None:
        """Record that its outcome is unknown: it may have happened, or may happen later."""
        self._end(INFO, {"error": _named(error), **facts})

    def _end(self, outcome: str, facts: dict[str, Any]) -> None:
        if not self.ended:
            self.ended = True
            self._log._append(self._number, outcome, facts)

    def __enter__(self) -> Pending:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if kind is None:
            self.ok()
        else:
            self.info(error)


def _named(error: object) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)


class History:
    """The operations of a run, in the order in which they began. Immutable."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.operations = sorted(operations, key=lambda operation: (operation.invoked, operation.process))

    def __len__(self) -> int:
        return len(self.operations)

    def of(self, *kinds: str) -> Iterator[Operation]:
        """Yield the operations of these kinds."""
        return (operation for operation in self.operations if operation.kind in kinds)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> History:
        """Read all logs (``*.jsonl``) in a folder. A last line that a kill truncated is skipped."""
        entries: list[Entry] = []
        for path in sorted(Path(folder).glob("*.jsonl")):
            entries += read_entries(path)
        return cls(_operations(entries))

    @classmethod
    def collect(cls, logs: Iterable[OperationLog]) -> History:
        """Return the history in these logs, which are kept in memory."""
        return cls(_operations(entry for log in logs for entry in log.entries))


def read_entries(path: str | os.PathLike[str]) -> list[Entry]:
    """Return the entries of one log. Raises msgspec.ValidationError for a complete line that is not an entry."""
    return [_DECODER.decode(line) for line in Path(path).read_bytes().split(b"\n")[:-1]]


def _next_number(path: Path) -> int:
    """Return the next operation number of a log; remove a truncated last line, so that appends begin a new line."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if len(complete) < len(data):
        os.truncate(path, len(complete))
    return 1 + max((_DECODER.decode(line).number for line in complete.splitlines()), default=-1)


def _operations(entries: Iterable[Entry]) -> Iterator[Operation]:
    operations: dict[tuple[str, int], Operation] = {}
    for order, entry in enumerate(entries):
        key = (entry.process, entry.number)
        facts = _stated(entry)
        if entry.type == "invoke":
            assert key not in operations, f"{entry.process} has two operations {entry.number}: one log per process"
            operations[key] = Operation(
                process=entry.process, number=entry.number, kind=entry.kind, invoked=entry.time, order=order, **facts
            )
            continue
        operation = operations[key]
        for name, value in facts.items():
            if entry.type == "note" and isinstance(value, list):
                value = getattr(operation, name) + value
            setattr(operation, name, value)
        if entry.type != "note":
            operation.outcome, operation.completed, operation.order = entry.type, entry.time, order
    return iter(operations.values())
