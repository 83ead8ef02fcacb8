"""Progress is one line on a terminal and one output in a notebook, and nothing is left of it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.progress import FIRST_SECONDS, LINE_SECONDS, TERMINAL_SECONDS, Progress, clear

IPython = pytest.importorskip("IPython")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        """The line that is visible."""
        return self.getvalue().rpartition("\x1b[K")[2]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_terminal_shows_one_line_that_is_removed_at_the_end(clock: ManualClock) -> None:
    terminal = Terminal()
    with Progress("fsck", stream=terminal, clock=clock) as progress:
        progress.show("bytes", 0, 4_000_000)
        assert terminal.getvalue() == "", "work that is short shows nothing"
        clock.advance(FIRST_SECONDS)
        progress.show("bytes", 1_000_000, 4_000_000)
        assert terminal.shown == "fsck: 1 MB of 4 MB (25 %)"
        progress.show("bytes", 2_000_000, 4_000_000)
        assert terminal.shown.startswith("fsck: 1 MB"), "not at every call"
        clock.advance(TERMINAL_SECONDS + 1)
        progress.show("bytes", 2_000_000, 4_000_000)
        assert terminal.shown == "fsck: 2 MB of 4 MB (50 %), 2 s left"
        clock.advance(1)
        progress.show("files", 12_345)
        clock.advance(1)
        progress.show("files", 12_345)
        assert terminal.shown == "fsck: 12,345 files"
    assert terminal.shown == ""
    assert "\n" not in terminal.getvalue()


def test_lines_of_several_works_and_of_the_program_do_not_mix(clock: ManualClock) -> None:
    terminal = Terminal()
    works = [Progress(name, stream=terminal, clock=clock) for name in ("roll", "copy")]
    clock.advance(1)
    for work in works:
        work.show("tasks", 1, 2)
    assert terminal.shown == "copy: 1 of 2 tasks (50 %)"
    clear()
    assert terminal.shown == ""
    works[0].say("x" * 500)
    assert len(terminal.shown) == 79, "a line that wraps could not be removed"
    for work in works:
        work.close()
    assert terminal.shown == ""


def test_a_terminal_of_the_system_that_states_no_width_shows_the_line(clock: ManualClock) -> None:
    master, slave = os.openpty()
    with open(slave, "w", encoding="utf-8") as terminal, open(master, "rb", buffering=0) as screen:
        with Progress("copy", stream=terminal, clock=clock) as progress:
            clock.advance(1)
            progress.show("files", 1, 2)
        assert screen.read(200) == b"copy: 1 of 2 files (50 %)\r\x1b[K"


def test_without_a_terminal_there_are_lines_only_if_asked_for(clock: ManualClock) -> None:
    quiet, asked = io.StringIO(), io.StringIO()
    for stream, always in ((quiet, False), (asked, True)):
        with Progress("fsck", always, stream, clock) as progress:
            for done in range(4):
                clock.advance(LINE_SECONDS / 2)
                progress.show("commits", done, 3)
    assert quiet.getvalue() == ""
    assert asked.getvalue().splitlines() == ["fsck: 1 of 3 commits (33 %), 5 s left", "fsck: 3 of 3 commits (100 %)"]


def test_a_closed_terminal_ends_no_work(clock: ManualClock) -> None:
    terminal = Terminal()
    with Progress("fsck", stream=terminal, clock=clock) as progress:
        terminal.close()
        clock.advance(1)
        progress.show("files", 1)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """IPython's shell as in a kernel, which has an attribute of this name."""
    shell = IPython.core.interactiveshell.InteractiveShell.instance()
    monkeypatch.setattr(shell, "kernel", object(), raising=False)
    yield shell
    IPython.core.interactiveshell.InteractiveShell.clear_instance()


def test_a_notebook_shows_one_output_that_is_updated_and_emptied(
    notebook: Any, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with IPython.utils.capture.capture_output() as captured, Progress("vacuum", clock=clock) as progress:
        for done in range(3):
            clock.advance(1)
            progress.show("brokers", done, 3)
    texts = [output.data["text/plain"] for output in captured.outputs]
    assert texts == [
        "vacuum: 0 of 3 brokers (0 %)",
        "vacuum: 1 of 3 brokers (33 %)",
        "vacuum: 2 of 3 brokers (67 %), 1 s left",
        "",
    ]
    assert (captured.stdout, captured.stderr) == ("", "")


def test_it_imports_no_ipython() -> None:
    code = "import sys; from sparklog.progress import Progress; Progress('x').show('a', 1); print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sparklog.progress" in done.stdout
    assert not any(name in done.stdout for name in ("IPython", "tqdm", "pyarrow"))
    assert done.stderr == ""
