"""What a machine is like outside of the checkout: kernel settings, firewall rules, mounts, control groups, network
links, processes, folders. And what differs between two such states.

A state is read by ``read_state``; ``differences`` is pure. On a machine that others use at the same time:

* A process counts if it is a descendant of this one; ``adopt_orphans`` keeps those whose parent was killed.
* A control group counts if it is new and no process is in it: one that is left over. Groups of others have processes.
* A folder is compared by the names in it, without those below.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

State = Mapping[str, Mapping[str, str]]
"""What there is by name, by kind."""

SETTINGS, GROUPS = Path("/proc/sys"), Path("/sys/fs/cgroup")
CHANGE_BY_THEMSELVES = re.compile(
    r"fs/(aio-nr|dentry-state|file-nr|inode-nr|inode-state|quota/.*)|net/netfilter/nf_conntrack_count"
    r"|kernel/(ns_last_pid|perf_event_max_sample_rate|pty/nr|random/.*)"
)
COUNTERS = re.compile(r"^#.*\n|\[\d+:\d+\]", re.MULTILINE)
FIREWALLS = (("iptables-save",), ("ip6tables-save",), ("nft", "list", "ruleset"))
BECOMES_SUBREAPER = 36


def read_state(folders: Iterable[Path]) -> State:
    """The state of this machine, with the names in these folders."""
    return {
        "kernel setting": dict(_settings()),
        "firewall": dict(_firewall()),
        "mount": dict(_mounts()),
        "control group": dict(_groups()),
        "network": dict(_network()),
        "process": dict(descendants(os.getpid())),
        "folder": {str(folder): "\n".join(_names(folder)) for folder in folders},
    }


def differences(before: State, after: State) -> list[str]:
    """A line for all that was added, removed or changed."""
    found = []
    for kind in sorted({*before, *after}):
        old, new = before.get(kind, {}), after.get(kind, {})
        for name in sorted({*old, *new}):
            if name not in new and kind == "control group":
                continue  # of somebody else, who has ended
            if name not in new:
                found.append(f"{kind} {name}: gone, was {old[name]!r}")
            elif name not in old:
                found.append(f"{kind} {name}: new, {new[name]!r}")
            elif old[name] != new[name]:
                found += [f"{kind} {name}: {line}" for line in _changed_lines(old[name], new[name])]
    return found


def _changed_lines(old: str, new: str) -> Iterator[str]:
    """Lines that only one of the texts has; both texts if that is a matter of order."""
    was, became = old.splitlines(), new.splitlines()
    lines = [f"gone, {line!r}" for line in was if line not in became]
    lines += [f"new, {line!r}" for line in became if line not in was]
    yield from lines or [f"was {old!r}, became {new!r}"]


@contextmanager
def adopt_orphans() -> Iterator[None]:
    """Descendants of this process become its children when their parents end, so that they can be found."""
    if sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.prctl(BECOMES_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(BECOMES_SUBREAPER, 0)


def descendants(top: int) -> Iterator[tuple[str, str]]:
    """Yield process id and command of each, but those that have ended and were not waited for."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(folder.name))
    waiting = [*children.get(top, ())]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, ())
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            yield str(pid), command.decode(errors="replace").strip()


def _settings() -> Iterator[tuple[str, str]]:
    for path in SETTINGS.rglob("*"):
        name = str(path.relative_to(SETTINGS))
        if not CHANGE_BY_THEMSELVES.fullmatch(name):
            with suppress(OSError, UnicodeDecodeError):  # not readable, or not a file
                yield name, path.read_text().strip()


def _firewall() -> Iterator[tuple[str, str]]:
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    for name, *arguments in FIREWALLS:
        program = shutil.which(name, path=path)
        if program and os.geteuid() == 0:
            done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
            yield name, COUNTERS.sub("", done.stdout)


def _mounts() -> Iterator[tuple[str, str]]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        number, _, _, root, point, options, *_ = line.split(" ")
        yield f"{number} {point}", f"{root} {options} {line.partition(' - ')[2]}"


def _groups() -> Iterator[tuple[str, str]]:
    """Of each top-most group that has no process, neither itself nor below."""
    used: set[Path] = set()
    found: list[Path] = []
    for folder, _, files in os.walk(GROUPS):
        group = Path(folder)
        if "cgroup.procs" in files:
            found.append(group)
            with suppress(OSError):  # removed, or of threads
                if (group / "cgroup.procs").read_text().strip():
                    used.update((group, *group.parents))
    for group in found:
        if group not in used and group.is_dir():
            yield str(group), "no process"


def _network() -> Iterator[tuple[str, str]]:
    for number, name in socket.if_nameindex():
        yield f"link {number}", name
    for name in ("if_inet6", "route"):
        with suppress(OSError):
            yield name, re.sub(r"[ \t]+", " ", Path("/proc/net", name).read_text())


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(folder))
    return []
