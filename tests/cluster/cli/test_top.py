"""``sparklog top``: a screen that fits its terminal, plain lines for a pipe, and a terminal as it was after q."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import termios
from collections.abc import Iterator
from fcntl import ioctl
from struct import pack
from subprocess import Popen

import pytest
from rich.console import Console

from sparklog.cli.output.activity_listing import lines_of, screen
from sparklog.coordinator import Coordinator
from sparklog.monitoring.activity import Activity, GroupActivity, TopicActivity
from sparklog.protocol.commits import CommitOffsets, CommittedOffset
from sparklog.testing.records import Record, append_records

from .conftest import SPARKLOG, Run, commit

HOSTILE = "[red]evil\x1b[2J\r\n\u202e数[/red]"


def activity(groups: int, topics: int) -> Activity:
    return Activity(
        1_790_000_000_000,
        1234,
        60.0,
        1.5,
        [TopicActivity(f"topic-{n}-{HOSTILE}", 1e6, 2**30, 3.25, 4, 10**9, 2**40) for n in range(topics)],
        [GroupActivity(f"group-{n}-{HOSTILE}", "Stable", 2, 10**9, 7384.0, 0.5) for n in range(groups)],
    )


def drawn(shown: Activity, width: int, height: int) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=width, height=height, markup=False, emoji=False, color_system=None)
    console.print(screen(shown, "/data/log", width, height, "q or Ctrl-C ends"))
    return output.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 12), (200, 60)])
@pytest.mark.parametrize(("groups", "topics"), [(0, 0), (3, 2), (100, 1), (1, 100), (1000, 1000)])
def test_a_screen_fits_its_terminal(width: int, height: int, groups: int, topics: int) -> None:
    from rich.cells import cell_len

    lines = drawn(activity(groups, topics), width, height)
    assert len(lines) <= height
    assert max(map(cell_len, lines)) <= width
    assert lines[-1].startswith("q or Ctrl-C ends"[:width])
    assert all(line.isprintable() for line in lines)
    text = "\n".join(lines)
    assert "[red]evil\\x1b" in text or not (groups or topics) or width == 40
    if groups > 100:
        assert "more groups" in text
        assert "more topics" in text


def test_everything_fits_that_can(cluster: Coordinator) -> None:
    lines = drawn(activity(2, 14), 80, 24)
    assert sum("topic-" in line for line in lines) == 14
    assert sum("group-" in line for line in lines) == 2


def test_lag_and_rates_are_shown_with_their_units() -> None:
    text = "\n".join(lines_of(activity(1, 1), "/data/log"))
    for part in ("1,000,000,000", "2 h 03 min", "1,000,000.0", "1.0 GiB", "1.0 TiB", "1.5 commits/s", "version 1,234"):
        assert part in text


@pytest.fixture
def busy(cluster: Coordinator) -> Coordinator:
    topic_id = cluster.create_topic("orders")
    cluster.create_topic("quiet")
    append_records(cluster, "orders", [Record(value=b"v")] * 60)
    offset = CommittedOffset(topic="orders", topic_id=topic_id, partition=0, offset=20)
    commit(cluster, CommitOffsets(group="billing", offsets=[offset]))
    return cluster


def test_once_prints_all_groups_and_topics(run: Run, busy: Coordinator) -> None:
    result = run("top", "--once")
    assert (result.code, result.err) == (0, "")
    (orders,) = [line.split() for line in result.lines if line.startswith("orders")]
    assert orders[1] == "1.0", "60 records in the last minute"
    (billing,) = [line.split() for line in result.lines if line.startswith("billing")]
    assert billing[1:4] == ["Empty", "0", "40"]
    assert result.out.index("orders") < result.out.index("quiet")


def test_one_group_can_be_chosen(run: Run, busy: Coordinator) -> None:
    commit(busy, CommitOffsets(group="other", offsets=[]))
    report = json.loads(run("top", "--once", "--json", "--group", "billing").out)
    assert ([each["group"] for each in report["groups"]], len(report["topics"])) == (["billing"], 2)


def test_once_prints_json(run: Run, busy: Coordinator) -> None:
    report = json.loads(run("top", "--once", "--json", "--window", "30").out)
    assert [(each["topic"], each["records_per_second"]) for each in report["topics"]] == [("orders", 2), ("quiet", 0)]
    assert [(each["group"], each["lag"]) for each in report["groups"]] == [("billing", 40)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "top needs a terminal; use --once for a pipe"),
        (["--json"], "--json requires --once"),
        (["--once", "--interval", "5"], "--interval can't be used with --once"),
        (["--once", "--window", "0"], "invalid --window 0: must be 1 to 86400 seconds"),
        (["--once", "--window", "nan"], "invalid --window nan"),
    ],
)
def test_mistakes_are_refused(run: Run, root: str, arguments: list[str], said: str) -> None:
    result = run("top", *arguments)
    assert result.code == 1
    assert said in result.err


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal of 80 columns and 24 lines: its two ends."""
    outer, inner = pty.openpty()
    ioctl(inner, termios.TIOCSWINSZ, pack("HHHH", 24, 80, 0, 0))
    yield outer, inner
    os.close(outer)
    os.close(inner)


@pytest.mark.parametrize(("ending", "code"), [(b"q", 0), (b"\x03", 130), (signal.SIGTERM, 143)])
def test_the_live_screen_ends_and_leaves_the_terminal_as_it_was(
    busy: Coordinator, terminal: tuple[int, int], ending: bytes | signal.Signals, code: int
) -> None:
    outer, inner = terminal
    before = termios.tcgetattr(inner)
    environment = {**os.environ, "TERM": "xterm"}
    command = [*SPARKLOG, "top", "--interval", "0.5"]
    with Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment, preexec_fn=_control) as process:
        seen = b""
        while b"billing" not in seen or b"ends" not in seen:
            assert process.poll() is None, seen
            if select.select([outer], [], [], 0.5)[0]:
                seen += os.read(outer, 65_536)
        if isinstance(ending, bytes):
            os.write(outer, ending)
        else:
            process.send_signal(ending)
        while process.poll() is None:
            if select.select([outer], [], [], 0.1)[0]:
                seen += os.read(outer, 65_536)
        while select.select([outer], [], [], 0)[0]:
            seen += os.read(outer, 65_536)
    assert process.returncode == code, seen
    assert termios.tcgetattr(inner) == before
    assert seen.rindex(b"\x1b[?1049l") > seen.rindex(b"\x1b[?1049h"), "the screen before it is back"
    assert b"Traceback" not in seen


def _control() -> None:
    """Make the terminal that of the new process, so that Ctrl-C reaches it."""
    os.setsid()
    ioctl(0, termios.TIOCSCTTY, 0)
