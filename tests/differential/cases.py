"""Cases: each is written once and runs against both targets.

A program is a function of a ``Workspace``; its result is its answer:

    @program
    def the_first_offset_is_0(w):
        return w.producer().send(w.topic(), b"v").get(SECONDS).offset

A case of tools is a list of command lines, in which ``$T`` stands for the case's topic, ``$G`` for its group and
``$D`` for its folder. The answer has an entry for each line:

    tools("topics-create-twice", "topics --create --topic $T", says("topics --create --topic $T", "already exists"))

A line that begins with ``~`` is preparation: it must succeed and is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tests.differential.outcomes import plain, printed
from tests.differential.targets import Workspace


class Case(NamedTuple):
    id: str
    answer: Callable[[Workspace], Any]
    """Runs the case on a target; returns its answer as plain JSON values."""
    of_tools: bool = False


CASES: dict[str, Case] = {}


def add(case: Case) -> None:
    assert case.id not in CASES, f"two cases are called {case.id}"
    assert len(case.id) <= 100, f"the name is also that of a topic: {case.id}"
    CASES[case.id] = case


def program(function: Callable[[Workspace], Any]) -> Callable[[Workspace], Any]:
    """Register this function as a case; if it raises an exception, that is the answer."""

    def answer(workspace: Workspace) -> Any:
        return plain(workspace.attempt(lambda: function(workspace)), workspace.errors)

    add(Case(function.__name__.replace("_", "-"), answer))
    return function


def programs(**table: Callable[[Workspace], Any]) -> None:
    """Register several cases, each given as an expression."""
    for name, function in table.items():
        function.__name__ = name
        program(function)


# -- tools


class Line(NamedTuple):
    text: str
    stdin: bytes = b""
    words: Sequence[str] = ()
    only: str = ""
    err: bool = False


def says(line: str, *words: str, stdin: bytes = b"") -> Line:
    """The answer is the exit code and which of these words the message contains."""
    return Line(line, stdin, words)


def piped(line: str, stdin: bytes, err: bool = False) -> Line:
    return Line(line, stdin, err=err)


def only(line: str, part: str = "$T") -> Line:
    """The answer contains only the printed lines that contain ``part``."""
    return Line(line, only=part)


def tools(name: str, *lines: str | Line, files: Mapping[str, str] | None = None) -> None:
    """Register a case of command lines. ``files`` are written into the folder ``$D``."""

    def answer(workspace: Workspace) -> Any:
        names = {"$T": workspace.prefix, "$G": "g-" + workspace.prefix, "$D": str(workspace.folder)}
        for file, text in (files or {}).items():
            (workspace.folder / file).write_text(filled(text, names))
        answers = []
        for given in lines:
            line = Line(given) if isinstance(given, str) else given
            prepares = line.text.startswith("~")
            result = workspace.tool(filled(line.text.lstrip("~ "), names), filled(line.stdin.decode(), names).encode())
            if prepares:
                assert result.code == 0, f"{line.text}: {result.out} {result.err}"
            else:
                answers.append(printed(result, line.words, filled(line.only, names), line.err))
        return answers

    add(Case(name, answer, of_tools=True))


def filled(text: str, names: Mapping[str, str]) -> str:
    for mark, name in names.items():
        text = text.replace(mark, name)
    return text
