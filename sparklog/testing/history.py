"""The history of a run: what each process asked for, what it was told, and when; and the reader of such histories.

Every process writes a log of its own, one JSON object per line, appended with one write per line, so that a process
killed with SIGKILL leaves what it had done. An operation is ``invoke``, then any number of ``note`` (what it turns out
to contain), then at most one of ``ok`` (it happened), ``fail`` (it did not, and never will) or ``info`` (nobody can
tell). One without an end counts as ``info``: its process may have died with the answer on the way.

    log = OperationLog("producer-1", folder / "producer-1.jsonl")
    sent = log.invoke(SEND, writes=[Write("orders", 0, "producer-1:17")])
    metadata = producer.send(...).get()
    sent.ok(writes=[Write("orders", 0, "producer-1:17", metadata.offset)])

    findings = check(History.load(folder))          # sparklog.testing.checks

What the fields of an ``Entry`` mean to each kind of operation:

    init_producer   transactional_id; producer_id and epoch where they are known
    send            writes; producer_id, epoch, transactional_id where there are any. All of them, or ``fail`` for all
    transaction     writes and offsets, noted as they come; ``committing`` is noted before the commit is asked for.
                    ok: committed; fail: aborted or refused; without ``committing`` it must leave nothing visible
    assign          all partitions that the consumer owns from now on, and its generation; ``positions`` where it
                    begins to read those it did not own before; ``instance`` of a static member
    revoke          partitions that it gives up, recorded before it lets go of them
    seek            positions that the consumer was told to read from
    poll            reads: what one call returned
    commit_offsets  offsets of a group; member and generation. ``reset_offsets``: the same by an administrator
    committed       offsets of a group as somebody read them
    offset_log      offsets of groups as they follow one another in the commit log
    read            reads of whole ranges ``[start, end)`` of partitions at one version, by nobody's position; ``final``
                    when everything that writes has ended

Rules: values are unique in a run, since they are how a write is recognised. Times are of one monotonic clock that all
processes share (CLOCK_MONOTONIC is the machine's). Not for: judging; see ``sparklog.testing.checks``.
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

INIT_PRODUCER = "init_producer"
SEND = "send"
TRANSACTION = "transaction"
ASSIGN = "assign"
REVOKE = "revoke"
SEEK = "seek"
POLL = "poll"
COMMIT_OFFSETS = "commit_offsets"
RESET_OFFSETS = "reset_offsets"
COMMITTED = "committed"
OFFSET_LOG = "offset_log"
READ = "read"

KINDS = (
    INIT_PRODUCER,
    SEND,
    TRANSACTION,
    ASSIGN,
    REVOKE,
    SEEK,
    POLL,
    COMMIT_OFFSETS,
    RESET_OFFSETS,
    COMMITTED,
    OFFSET_LOG,
    READ,
)

OK = "ok"
FAIL = "fail"
INFO = "info"


class Write(NamedTuple):
    """One record that was sent; ``offset`` -1 until it is known. ``key`` matters on compacted topics alone."""

    topic: str
    partition: int
    value: str
    offset: int = -1
    key: str = ""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Read(NamedTuple):
    """Records of one partition as (offset, value); ``[start, end)`` is what was asked for, -1 in a poll.

    ``compacted``: of records with one key only the last has to be there, in this read and in all of this partition.
    """

    topic: str
    partition: int
    records: Sequence[tuple[int, str]]
    start: int = -1
    end: int = -1
    compacted: bool = False

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Position(NamedTuple):
    """The next offset of a partition: a consumer's, or with a group what that group committed."""

    topic: str
    partition: int
    offset: int
    group: str = ""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class _Facts(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What an operation is about; which fields mean something depends on its kind."""

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
    """One line of an operation log. ``time`` is seconds of the clock that all processes of a run share."""

    process: str
    number: int
    type: str
    time: float
    kind: str = ""


class Operation(_Facts, kw_only=True):
    """An operation from its beginning to its end; ``completed`` is infinite where no end was recorded.

    ``outcome`` is ok, fail or info; ``order`` is where its end lies among all of its process.
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
        """Whose positions these are: the consumer that was named, or else the process."""
        return self.consumer or self.process

    @property
    def owner(self) -> str:
        """Who owns what a member is assigned: a static member that comes back is the same one."""
        return self.instance or self.member or self.reader

    @property
    def asked(self) -> float:
        """From when on it may take effect: a transaction from its commit on, all else at once."""
        return self.committing if self.kind == TRANSACTION and self.committing < inf else self.invoked

    @property
    def may_have_happened(self) -> bool:
        """Whether it took effect or nobody can tell. A transaction must also have been asked to commit."""
        return self.outcome != FAIL and (self.kind != TRANSACTION or self.committing < inf or self.outcome == OK)

    def __str__(self) -> str:
        facts = {name: getattr(self, name) for name, _ in _FACTS if getattr(self, name) != _DEFAULTS[name]}
        shown = " ".join(f"{name}={_short(value)}" for name, value in facts.items())
        return (
            f"{self.process}#{self.number} {self.kind} {self.outcome} {self.invoked:.6f}..{self.completed:.6f} {shown}"
        )


_FACTS = [(field.name, field) for field in msgspec.structs.fields(_Facts)]
_DEFAULTS: dict[str, Any] = {name: getattr(_Facts(), name) for name, _ in _FACTS}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


class OperationLog:
    """What one process records. Thread-safe; ``path`` None keeps the entries in memory.

    An existing file is appended to, and operations are numbered on from those that are in it, so a process that was
    started again may go on with the log of its former life.
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
        """Record that an operation begins; call it before anything is asked of the cluster, or tell by ``now`` since
        when that was."""
        assert kind in KINDS, f"no operation of kind {kind!r}: one of {', '.join(KINDS)}"
        with self._lock:
            number = self._next
            self._next += 1
        self._append(number, "invoke", facts, kind, since)
        return Pending(self, number)

    def record(self, kind: str, since: float | None = None, **facts: Any) -> None:
        """Record an operation that has happened, and could not fail: an assignment, a revocation, a seek.

        ``since`` is when what it goes by was read, for a process that may have been stopped meanwhile.
        """
        self.invoke(kind, since, **facts).ok()

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def now(self) -> float:
        """Seconds of the clock that the entries carry."""
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
                os.write(self._file, _ENCODER.encode(_storable(entry)) + b"\n")


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)


def _storable(entry: Entry) -> dict[str, Any]:
    """JSON has no infinity; a default is left out."""
    return {
        name: value
        for name in entry.__struct_fields__
        if (value := getattr(entry, name)) != _DEFAULTS.get(name) and value != inf
    }


class Pending:
    """An operation that has begun. As a context manager, an error that nobody recorded leaves it indeterminate."""

    def __init__(self, log: OperationLog, number: int) -> None:
        self._log = log
        self._number = number
        self.ended = False

    def note(self, **facts: Any) -> None:
        """More that it contains; lists are added to what there is."""
        self._log._append(self._number, "note", facts)

    def committing(self) -> None:
        """The commit of this transaction is asked for next."""
        self.note(committing=self._log.now())

    def ok(self, **facts: Any) -> None:
        """It happened; lists replace what was recorded before."""
        self._end(OK, facts)

    def fail(self, error: object = "", **facts: Any) -> None:
        """It did not happen, and will not."""
        self._end(FAIL, {"error": _named(error), **facts})

    def info(self, error: object = "", **facts: Any) -> None:
        """Nobody can tell whether it happened, or will yet."""
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
        """The operations of these kinds."""
        return (operation for operation in self.operations if operation.kind in kinds)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> History:
        """All logs (``*.jsonl``) in a folder. A last line that a kill cut short is left out."""
        entries: list[Entry] = []
        for path in sorted(Path(folder).glob("*.jsonl")):
            entries += read_entries(path)
        return cls(_operations(entries))

    @classmethod
    def collect(cls, logs: Iterable[OperationLog]) -> History:
        """What these logs, kept in memory, recorded."""
        return cls(_operations(entry for log in logs for entry in log.entries))


def read_entries(path: str | os.PathLike[str]) -> list[Entry]:
    """The entries of one log. Raises msgspec.ValidationError for a complete line that is none."""
    return [_DECODER.decode(line) for line in Path(path).read_bytes().split(b"\n")[:-1]]


def _next_number(path: Path) -> int:
    """Also mends a log whose last line was cut, so that what is appended is a line of its own."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if len(complete) < len(data):
        os.truncate(path, len(complete))
    return 1 + max((_DECODER.decode(line).number for line in complete.splitlines()), default=-1)


def _operations(entries: Iterable[Entry]) -> Iterator[Operation]:
    found: dict[tuple[str, int], Operation] = {}
    for order, entry in enumerate(entries):
        key = (entry.process, entry.number)
        facts = {name: value for name, _ in _FACTS if (value := getattr(entry, name)) != _DEFAULTS[name]}
        if entry.type == "invoke":
            assert key not in found, f"{entry.process} has two operations {entry.number}: one log per process"
            found[key] = Operation(
                process=entry.process, number=entry.number, kind=entry.kind, invoked=entry.time, order=order, **facts
            )
            continue
        operation = found[key]
        for name, value in facts.items():
            if entry.type == "note" and isinstance(value, list):
                value = getattr(operation, name) + value
            setattr(operation, name, value)
        if entry.type != "note":
            operation.outcome, operation.completed, operation.order = entry.type, entry.time, order
    return iter(found.values())
