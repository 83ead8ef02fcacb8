"""What clusters show: what commands print of them, their system tables, their metrics and their pages.

    PYTHONPATH=. python tests/golden/faces.py       # regenerate tests/golden/faces/ after an intended change

``test_faces.py`` compares each face with the text that is kept, byte for byte. The clusters are copies of the golden
ones, and the one that the tests of the page show; an hour has passed since their last commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from unittest import mock
from urllib.parse import urlencode

from sparklog import __version__
from sparklog.cli.main import main as run_command
from sparklog.clock import ManualClock, SystemClock
from sparklog.coordinator import open_cluster
from sparklog.monitoring.schemas import TABLES
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.ui.app import PAGES
from tests.shown_cluster import make_shown_cluster
from tests.web import serving

GOLDEN = Path(__file__).parent
FACES = GOLDEN / "faces"
SHOWN, BROKER_1 = "shown", "golden-broker-1"
CLUSTERS = (
    *(f"{path.parts[-3]}/{path.parts[-2]}" for path in sorted(GOLDEN.glob("cluster-v*/*/expected.json"))),
    SHOWN,
)
WITH_PAGES = ("cluster-v3/history", "cluster-v3/replicated", SHOWN)
SHOWN_MS = 1_790_000_000_000
HOUR_MS = 3_600_000

COMMANDS = (
    "topics --list",
    "topics --describe",
    "configs --describe --entity-type topics",
    "configs --describe --entity-type brokers",
    "schemas --list",
    "get-offsets",
    "get-offsets --time earliest",
    "consumer-groups --list --state",
    "consumer-groups --describe --all-groups",
    "consumer-groups --describe --all-groups --members --verbose",
    "consumer-groups --describe --all-groups --state",
    "groups --list",
    "transactions list",
    "applications --list",
    "brokers list",
    "log-dirs --describe",
    "features describe",
    "cluster describe",
    "reassign-partitions --list",
    "replica-verification",
    "top --once",
    "vacuum",
)
"""Commands that read; each is run with and without ``--json``."""


def read_faces(cluster: str) -> dict[str, str]:
    """Return what a cluster shows, by the name of the face: a command line, or the address of a page."""
    with _open(cluster) as (root, now_ms), mock.patch.object(SystemClock, "now_ms", return_value=now_ms):
        faces = {line: _run(root, line) for line in _lines()}
        faces |= _pages(root, now_ms) if cluster in WITH_PAGES else {}
    return {name: _without_chance(text) for name, text in faces.items()}


def kept_faces(cluster: str) -> dict[str, str]:
    """Return the faces that are kept, as ``read_faces`` does."""
    with _path(cluster).open(encoding="utf-8", newline="") as file:
        parts = re.split(r"^=== (.*) ===\n", file.read(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def keep_faces(cluster: str, faces: dict[str, str]) -> None:
    """Replace the faces that are kept."""
    FACES.mkdir(exist_ok=True)
    with _path(cluster).open("w", encoding="utf-8", newline="") as file:
        file.writelines(f"=== {name} ===\n{text}" for name, text in faces.items())


def _path(cluster: str) -> Path:
    return FACES / f"{cluster.replace('/', '-')}.txt"


@contextmanager
def _open(cluster: str) -> Iterator[tuple[str, int]]:
    """Yield the root of a copy, and the time of its faces."""
    names = [cluster.replace("/", "-"), BROKER_1]
    try:
        if cluster == SHOWN:
            made = make_shown_cluster(SHOWN, SHOWN_MS)
            yield f"memory://{SHOWN}", made.log.clock.now_ms() + HOUR_MS
        else:
            source = GOLDEN / cluster
            now_ms = json.loads((source / "expected.json").read_text())["now_ms"]
            for name, part in zip(names, ("root", "broker-1"), strict=True):
                store = MemoryStore(name, ManualClock(now_ms))
                for path in sorted((source / part).rglob("*")):
                    if path.is_file():
                        store.put(path.relative_to(source / part).as_posix(), path.read_bytes())
            yield f"memory://{names[0]}", now_ms + HOUR_MS
    finally:
        for name in (*names, SHOWN):
            forget_space(name)


def _lines() -> Iterator[str]:
    for command in COMMANDS:
        yield command
        yield f"{command} --json"
    for table in TABLES:
        yield f"system {table}"
        yield f"system {table} --json"
    yield "metrics --once"


def _run(root: str, line: str) -> str:
    """Return what a command prints, and its exit code if that is not 0."""
    printed = TextIOWrapper(BytesIO(), encoding="utf-8", newline="")
    words = line.split()
    with redirect_stdout(printed), redirect_stderr(printed):
        code = run_command([*words, "--bootstrap-server", root])
        printed.flush()
    text = printed.buffer.getvalue().decode()
    return text + (f"exit code {code}\n" if code else "")


def _pages(root: str, now_ms: int) -> dict[str, str]:
    """Return the pages of a cluster, and of each of its topics and groups."""
    coordinator = open_cluster(root, clock=ManualClock(now_ms))
    state = coordinator.state
    with serving(coordinator, clock=ManualClock(now_ms)) as web:
        addresses = ["/", *(f"/log{path}" for path in PAGES if "{" not in path)]
        for topic in sorted(state.topics):
            addresses += [
                f"/log/topics/{topic}{part}" for part in ("", "/configs", "/segments", "/history", "/records")
            ]
        addresses += [f"/log/group?{urlencode({'name': group})}" for group in sorted(state.groups)]
        return {address: web.get(address).text for address in addresses}


def _without_chance(text: str) -> str:
    """Return a face without what differs between two runs or two releases, and with a last end of line."""
    text = re.sub(r"^(sparklog_scrape_duration_seconds) .*", r"\1 SECONDS", text, flags=re.MULTILINE)
    return text.replace(__version__, "VERSION").removesuffix("\n") + "\n"


def main() -> None:
    for cluster in CLUSTERS:
        keep_faces(cluster, read_faces(cluster))


if __name__ == "__main__":
    main()
