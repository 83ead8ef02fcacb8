"""Generate every possible outcome of a storage call: effect on the storage × answer to the caller.

    effect   none     the storage did nothing
             done     the call took effect
             late     it takes effect later, a number of steps after the answer: the request was still in flight
             half     the first half of the bytes is kept, and the old object is gone: a torn write
             twice    it takes effect now, and once more a number of steps after the answer: the client or a proxy has
                      sent the request again, and the first one is still in flight
    answer   ok, each class of StorageError, or no answer: since the process died (crash), since the calling thread was
             interrupted (interrupt), by Ctrl-C or an exception that another thread sends it, and continues, or since
             the storage never answers (never), and the call does not return
    lasting  number of further calls that get the same answer: an expired token, an unavailable server
    certain  the client knows that nothing was written (``nothing_written``); only if that is true
    stored   the object can be read, but a power cut may lose it (``stored``)

A kind of fault is named after these: ``done+permission`` is a write that was stored and answered 403, for instance
because the client retried it with an expired token; ``late12+unavailable`` takes effect twelve steps after a 503;
``none+full*`` lasts for ``OUTAGE_STEPS``. Common kinds have short names (``NAMED``).

``every_outcome`` yields the whole product for the steps of an operation, and ``possible`` decides which combinations
are part of it: only writes have effects, and some answers are given only to some calls. Not for: injecting the faults
(``faulty_store``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)

NONE, DONE, LATE, HALF, TWICE = "none", "done", "late", "half", "twice"
"""Effects of a call."""

OK, CRASH, INTERRUPT, NEVER = "ok", "crash", "interrupt", "never"
"""Answers that are not errors of the storage."""

ERRORS: dict[str, type[StorageError]] = {
    "error": StorageError,
    "permission": StoragePermissionError,
    "full": StorageFullError,
    "unavailable": StorageUnavailableError,
    "missing": ObjectNotFoundError,
    "exists": ObjectExistsError,
}
"""Answers that are errors, by name. ``missing`` for a write means that its bucket or folder does not exist."""

OUTAGE_STEPS = 8
"""number of calls that an outage lasts: more than any caller reads back before it gives up."""

SHORT_OUTAGE_STEPS = 6
"""number of calls of a short outage, which ends right after a create was given up on: later calls succeed."""

LATE_STEPS = (2, 12)
"""numbers of steps after which a late effect happens: while it is read back, and after that was given up."""

WRITES = frozenset({"put", "put_if_absent", "delete", "write", "close"})
"""Operations that change the storage, or an object that is being written."""

_WHOLE_WRITES = frozenset({"put", "put_if_absent", "close"})
_HALVES = frozenset({"put", "put_if_absent", "write"})
_EFFECTS = _WHOLE_WRITES | {"delete", "remove_unfinished"}
_LASTING = frozenset({"error", "permission", "full", "unavailable"})
_REPEATED = frozenset({"put", "delete"})
"""Requests whose repetition has an effect; that of a create is refused, and a stream is sent under an id of its own."""

_LATER = {LATE: _WHOLE_WRITES | {"delete"}, HALF: _HALVES, TWICE: _REPEATED}
_NEVER_FAIL = frozenset({"abort"})
"""Operations that never raise, by their interface: only a crash or an interrupt is possible."""


class Call(NamedTuple):
    """One step. ``operation`` is the method's name; for open files ``read_at``, ``write``, ``close``, ``abort``."""

    operation: str
    key: str


class Outcome(NamedTuple):
    """The effect of a call and the answer to its caller; see the module."""

    effect: str
    answer: str
    delay: int = 0
    lasting: int = 0
    certain: bool = False
    stored: bool = False

    @property
    def name(self) -> str:
        lasting = {0: "", OUTAGE_STEPS: "*"}.get(self.lasting, f"*{self.lasting}")
        marks = f"{'!' if self.certain else ''}{'~' if self.stored else ''}{lasting}"
        return f"{self.effect}{self.delay or ''}+{self.answer}{marks}"

    @property
    def crashes(self) -> bool:
        return self.answer == CRASH

    @property
    def interrupts(self) -> bool:
        return self.answer == INTERRUPT

    def failure(self, text: str, path: str) -> StorageError:
        """Return the error that the caller gets."""
        context = {name: True for name, set_ in (("nothing_written", self.certain), ("stored", self.stored)) if set_}
        return ERRORS[self.answer](text, path=path, **context)


class Fault(NamedTuple):
    """A fault at a step; ``kind`` is a name in ``KINDS``."""

    step: int
    kind: str


NAMED = {
    "error": Outcome(NONE, "error"),
    "unavailable": Outcome(NONE, "unavailable"),
    "lost_answer": Outcome(DONE, "unavailable"),
    "outage": Outcome(DONE, "unavailable", lasting=OUTAGE_STEPS),
    "full": Outcome(NONE, "full"),
    "permission": Outcome(NONE, "permission"),
    "truncated": Outcome(HALF, OK),
    "crash_before": Outcome(NONE, CRASH),
    "crash_after": Outcome(DONE, CRASH),
    "repeated": Outcome(TWICE, OK, LATE_STEPS[-1]),
    "never_answers": Outcome(NONE, NEVER),
    "done+never_answers": Outcome(DONE, NEVER),
}
"""Kinds with short names."""


def _product() -> Iterator[Outcome]:
    effects = [(NONE, 0), (DONE, 0), *((LATE, steps) for steps in LATE_STEPS)]
    for effect, delay in effects:
        yield Outcome(effect, CRASH, delay)
        yield Outcome(effect, INTERRUPT, delay)
        for answer in ERRORS:
            for lasting in (0, OUTAGE_STEPS, SHORT_OUTAGE_STEPS) if answer in _LASTING else (0,):
                yield Outcome(effect, answer, delay, lasting)
    for answer in ERRORS:
        if answer != "exists":
            yield Outcome(NONE, answer, certain=True)
    yield Outcome(DONE, "unavailable", stored=True)
    for steps in LATE_STEPS:
        yield Outcome(TWICE, OK, steps)
        yield Outcome(TWICE, "unavailable", steps)
    yield Outcome(HALF, OK)
    yield Outcome(HALF, CRASH)


def possible(outcome: Outcome, operation: str) -> bool:
    """Return whether a call of ``operation`` can have this outcome."""
    effect, answer = outcome.effect, outcome.answer
    if answer in (CRASH, INTERRUPT):
        return effect == NONE or operation in (WRITES | _NEVER_FAIL if effect == DONE else _LATER[effect])
    if operation in _NEVER_FAIL or not applies(outcome, operation):
        return False
    if answer == "exists" and effect != DONE:  # to the client's own second request; else a taken key is no fault
        return False
    if outcome.lasting == SHORT_OUTAGE_STEPS and operation != "put_if_absent":
        return False
    if effect in _LATER:
        return operation in _LATER[effect]
    if effect == DONE and operation not in _EFFECTS:
        return False
    return operation == "put_if_absent" or not (outcome.certain or outcome.stored)


def applies(outcome: Outcome, operation: str) -> bool:
    """Return whether the answer makes sense for a call of ``operation``."""
    if outcome.answer == "exists":
        return operation == "put_if_absent"
    if outcome.answer == "missing":
        return operation in _WHOLE_WRITES
    if outcome.answer == "full":
        return operation in _WHOLE_WRITES | {"write", "open_output"}
    if outcome.effect == TWICE:
        return operation in _REPEATED
    return True


OUTCOMES: tuple[Outcome, ...] = tuple(_product())
"""Every outcome that any call can have."""

_NAMES = {outcome: name for name, outcome in NAMED.items()}

KINDS: dict[str, Outcome] = {**NAMED, **{outcome.name: outcome for outcome in OUTCOMES}}
"""Every kind of fault by its name; those of ``NAMED`` have two. Calls that never return are not among ``OUTCOMES``:
what follows them is up to other threads and processes."""


def kinds_of(operation: str) -> list[str]:
    """Return the kinds of fault that are possible for a call of this operation, in a fixed order."""
    return [name_of(outcome) for outcome in OUTCOMES if possible(outcome, operation)]


def name_of(outcome: Outcome) -> str:
    """Return the name of a kind of fault."""
    return _NAMES.get(outcome, outcome.name)


def every_outcome(
    calls: Sequence[Call], operations: Iterable[str] | None = None, torn: bool = False
) -> Iterator[Fault]:
    """Yield every possible fault of each of these steps.

    ``operations`` selects the steps, all by default. Torn writes are excluded unless ``torn`` is set: a storage that
    reports success and keeps half of the bytes cannot be relied on, only detected.
    """
    chosen = None if operations is None else frozenset(operations)
    for step, call in enumerate(calls):
        if chosen is None or call.operation in chosen:
            for kind in kinds_of(call.operation):
                if torn or KINDS[kind].effect != HALF:
                    yield Fault(step, kind)


def every_crash(calls: Sequence[Call], operations: Iterable[str] = WRITES) -> Iterator[Fault]:
    """Yield for each of these steps: a crash before it, a crash after it, and a lost answer.

    ``operations`` selects the steps; reads change nothing, so a crash at a read equals a crash at the write before it.
    """
    chosen = frozenset(operations)
    for step, call in enumerate(calls):
        if call.operation in chosen:
            for kind in ("crash_before", "crash_after", "lost_answer"):
                yield Fault(step, kind)
