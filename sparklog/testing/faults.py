"""What a storage's client can show for one call, generated: what became of the call × what the caller is told.

    effect   none     the storage did not do it
             done     it did
             late     it does it later, so many steps after the caller was answered: a request that was still under way
             half     it keeps the first half of the bytes, and what was there before is gone: a torn disk
    answer   ok, each class of StorageError, or none at all: since the process died (crash), or since the thread that
             called was interrupted (interrupt), by Ctrl-C or an exception that another thread sends it, and goes on
    lasting  so many calls after it are answered alike: a token that has expired, a server that is gone
    certain  the client knows that nothing was written (``nothing_written``); only where that is so
    stored   the object can be read, and a power cut may take it away (``stored``)

A kind of fault is named after these: ``done+permission`` is a write that was stored and, since the client repeated it
by itself with a token that had expired, answered 403; ``late12+unavailable`` lands twelve steps after a 503;
``none+full*`` goes on for ``OUTAGE_STEPS``. Kinds that are used much have names of their own (``NAMED``).

``every_outcome`` is the whole product for the steps of an operation, and ``possible`` says what is part of it: effects
need a call that has one, and some answers are given only to some calls. Not for: doing any of it (``faulty_store``).
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

NONE, DONE, LATE, HALF = "none", "done", "late", "half"
"""What became of a call."""

OK, CRASH, INTERRUPT = "ok", "crash", "interrupt"
"""Answers that are no error of the storage."""

ERRORS: dict[str, type[StorageError]] = {
    "error": StorageError,
    "permission": StoragePermissionError,
    "full": StorageFullError,
    "unavailable": StorageUnavailableError,
    "missing": ObjectNotFoundError,
    "exists": ObjectExistsError,
}
"""Answers that are errors, by the word for them. ``missing`` for a write means its bucket or folder."""

OUTAGE_STEPS = 8
"""calls that an outage lasts: more than anybody reads back before it gives up."""

SHORT_OUTAGE_STEPS = 6
"""calls that an outage lasts which ends right after what was created was given up on: what follows gets through."""

LATE_STEPS = (2, 12)
"""steps after which a late effect comes: while it is read back, and after that was given up."""

WRITES = frozenset({"put", "put_if_absent", "delete", "write", "close"})
"""Operations that change the storage, or an object that is being written."""

_WHOLE_WRITES = frozenset({"put", "put_if_absent", "close"})
_HALVES = frozenset({"put", "put_if_absent", "write"})
_EFFECTS = _WHOLE_WRITES | {"delete", "remove_unfinished"}
_LASTING = frozenset({"error", "permission", "full", "unavailable"})
_LATER = {LATE: _WHOLE_WRITES | {"delete"}, HALF: _HALVES}
_NEVER_FAIL = frozenset({"abort"})
"""Operations that by the interface never raise: only the process can die there, or be interrupted."""


class Call(NamedTuple):
    """One step. ``operation`` is the method's name; for open files ``read_at``, ``write``, ``close``, ``abort``."""

    operation: str
    key: str


class Outcome(NamedTuple):
    """What happens to a call, and what its caller is told; see the module."""

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
        """The error that the caller gets."""
        context = {name: True for name, set_ in (("nothing_written", self.certain), ("stored", self.stored)) if set_}
        return ERRORS[self.answer](text, path=path, **context)


class Fault(NamedTuple):
    """What happens at a step; ``kind`` is a name in ``KINDS``."""

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
}
"""Kinds with names of their own."""


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
    yield Outcome(HALF, OK)
    yield Outcome(HALF, CRASH)


def possible(outcome: Outcome, operation: str) -> bool:
    """Whether a client can show this outcome of a call of ``operation``."""
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
    """Whether the answer makes sense for a call of ``operation``."""
    if outcome.answer == "exists":
        return operation == "put_if_absent"
    if outcome.answer == "missing":
        return operation in _WHOLE_WRITES
    if outcome.answer == "full":
        return operation in _WHOLE_WRITES | {"write", "open_output"}
    return True


OUTCOMES: tuple[Outcome, ...] = tuple(_product())
"""Everything that any call can come to."""

_NAMES = {outcome: name for name, outcome in NAMED.items()}

KINDS: dict[str, Outcome] = {**NAMED, **{outcome.name: outcome for outcome in OUTCOMES}}
"""Every kind of fault by its name; those of ``NAMED`` have two."""


def kinds_of(operation: str) -> list[str]:
    """The kinds of fault that a call of this operation can come to, in a fixed order."""
    return [name_of(outcome) for outcome in OUTCOMES if possible(outcome, operation)]


def name_of(outcome: Outcome) -> str:
    """What a kind of fault is called."""
    return _NAMES.get(outcome, outcome.name)


def every_outcome(
    calls: Sequence[Call], operations: Iterable[str] | None = None, torn: bool = False
) -> Iterator[Fault]:
    """For each of these steps, all that it can come to.

    ``operations`` chooses the steps, all by default. What tears a write is left out unless ``torn`` asks for it: a
    storage that says all is well and keeps a half cannot be relied on, only be found out.
    """
    chosen = None if operations is None else frozenset(operations)
    for step, call in enumerate(calls):
        if chosen is None or call.operation in chosen:
            for kind in kinds_of(call.operation):
                if torn or KINDS[kind].effect != HALF:
                    yield Fault(step, kind)


def every_crash(calls: Sequence[Call], operations: Iterable[str] = WRITES) -> Iterator[Fault]:
    """For each of these steps: a crash before it, one after it, and its answer lost.

    ``operations`` chooses the steps; reads change nothing, so a crash at one is a crash at the write before it.
    """
    chosen = frozenset(operations)
    for step, call in enumerate(calls):
        if call.operation in chosen:
            for kind in ("crash_before", "crash_after", "lost_answer"):
                yield Fault(step, kind)
