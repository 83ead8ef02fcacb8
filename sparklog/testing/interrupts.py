"""Interrupts a call at any point at which a signal may arrive: Ctrl-C, an alarm, a soft time limit.

Python runs the handler of a signal in the main thread between two steps of its code: an exception that it raises comes
out of whatever that thread was doing, and what it calls finds everything half done. Points are the entries of
functions, the lines, and the returns of calls of C, in the package's files and those of the standard library that
wait for threads, in the thread of the call::

    points = count_points(call)
    for point in range(points):
        with suppress(SimulatedInterrupt):
            interrupt(call, point)
        ...  # what must hold afterwards, and which calls must work

Not points are lines that follow another one without a call or a loop, the end of a ``with`` block, the beginning of
``finally`` and the word ``try``: the interpreter passes them without looking for signals. An exception there would
leave locked what no signal can.

Not for: other threads, which signals do not reach; interrupts of a storage call (``faulty_store``).
"""

from __future__ import annotations

import concurrent.futures._base
import dis
import functools
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

import sparklog
from sparklog.testing.faulty_store import SimulatedInterrupt

PACKAGE = os.path.dirname(os.path.abspath(sparklog.__file__)) + os.sep
_WAITING = (threading.__file__, concurrent.futures._base.__file__, queue.__file__)
_OWN = os.path.join(PACKAGE, "testing") + os.sep


def count_points(call: Callable[[], object]) -> int:
    """Run the call, and return how many points it has passed. They differ a little from run to run where it waits."""
    return _run(call, -1)


def interrupt(call: Callable[[], object], point: int, handler: Callable[[], object] | None = None) -> bool:
    """Run the call, and at this point, from 0, the handler of a signal, by default one that raises SimulatedInterrupt.

    Return False if the call ended before.
    """
    return _run(call, point, handler) > point


def _stop() -> None:
    sys.settrace(None)
    sys.setprofile(None)


def _run(call: Callable[[], object], at: int, handler: Callable[[], object] | None = None) -> int:
    passed = 0

    def pass_point(where: str, frame: FrameType) -> None:
        nonlocal passed
        passed += 1
        if passed == at + 1:
            if handler is not None:
                _stop()
                handler()
                return
            code = frame.f_code
            raise SimulatedInterrupt(f"at {where} of {code.co_name} ({code.co_filename}:{frame.f_lineno}), point {at}")

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not _is_traced(frame.f_code):
            return None
        if event == "call" or (event == "line" and frame.f_lasti not in without_signals(frame.f_code)):
            pass_point(event, frame)
        return trace

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "c_return" and _is_traced(frame.f_code):
            pass_point("a call", frame)

    before = sys.gettrace(), sys.getprofile()
    try:
        sys.setprofile(profile)
        sys.settrace(trace)
        call()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return passed


@functools.cache
def _is_traced(code: CodeType) -> bool:
    file = code.co_filename
    return (file.startswith(PACKAGE) and not file.startswith(_OWN)) or file in _WAITING


_QUIET = (
    "LOAD_",
    "STORE_",
    "BUILD_",
    "BINARY_",
    "INPLACE_",
    "COMPARE_OP",
    "CONTAINS_OP",
    "IS_OP",
    "UNARY_",
    "UNPACK_SEQUENCE",
    "DELETE_",
    "GET_ITER",
    "FOR_ITER",
    "POP_JUMP_FORWARD",
    "POP_JUMP_IF",
    "JUMP_IF_",
    "JUMP_FORWARD",
    "POP_TOP",
    "COPY",
    "SWAP",
    "PUSH_NULL",
    "NOP",
    "CACHE",
    "EXTENDED_ARG",
    "TO_BOOL",
)
"""Beginnings of the names of instructions after which the interpreter does not look for signals."""


@functools.cache
def without_signals(code: CodeType) -> frozenset[int]:
    """Return the offsets of lines that no signal interrupts: see the module."""
    entered: dict[int, int] = {}
    passed: set[int] = set()
    starts = {offset for offset, _ in dis.findlinestarts(code)}
    line, is_quiet, handler = 0, False, -1
    handled = getattr(dis.Bytecode(code), "exception_entries", ())  # none before Python 3.11
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        before, handler = handler, _handler(handled, instruction.offset)
        if instruction.offset in starts:
            # a signal after a call at the end of a block is handled as the call is: the block has not ended
            if (is_quiet or handler != before) and not _is_loop(code, instruction.offset):
                passed.add(instruction.offset)
            is_quiet = True
        if instruction.opname in ("BEFORE_WITH", "SETUP_WITH", "BEFORE_ASYNC_WITH"):
            entered.setdefault(line, instruction.offset)
        if instruction.opname == "NOP":
            passed.add(instruction.offset)
        is_quiet = is_quiet and instruction.opname.startswith(_QUIET)
    ends = (offset for offset, line in dis.findlinestarts(code) if offset > entered.get(line, offset))
    return frozenset(passed.union(ends))


def _handler(entries: Iterable[Any], offset: int) -> int:
    """Return where an exception at this offset is handled, -1 if nowhere."""
    return next((entry.target for entry in entries if entry.start <= offset < entry.end), -1)


def _is_loop(code: CodeType, offset: int) -> bool:
    """Whether a jump back leads here."""
    return any(
        instruction.offset > offset and instruction.argval == offset
        for instruction in dis.get_instructions(code)
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
    )
