#!/usr/bin/env python3
"""Runs a command as root in network, process, mount, IPC and cgroup namespaces of its own, for a Kubernetes node: the
machine is afterwards as it was before, also when this process, or the command, is killed.

    scripts/servers/namespaces.py COMMAND [ARGUMENT ...]

Inside:

* There is only a loopback interface, which is up. What the command needs from the network is fetched before.
* The folders of FOLDERS show the machine's files, and what is written there is gone at the end. The checkout is the
  real one; a file outside of all of them is, too.
* Kernel settings cannot be changed, but those of the network, which belong to the namespace. Those that a kubelet wants
  otherwise (KUBELET_SETTINGS) read as it wants them.
* The control groups are those below one that was created for the command, of either version.

Three processes keep this: the one that was called waits for the command; the first of the process namespace mounts and
reaps, and takes all others with it when it ends, which the kernel sees to when the caller is killed; and a cleaner, in
a session of its own, waits for the caller's end and removes the control groups and the command's folder.

Standard library only. Not for: security. The command is root, and not confined otherwise.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import CHECKOUT, SERVERS, ServerFailed, Skipped

FOLDERS = ("/etc", "/opt", "/run", "/tmp", "/usr/libexec", "/var", str(Path.home()))
KUBELET_SETTINGS = {
    "kernel/keys/root_maxbytes": 25_000_000,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
VARIABLE = "SPARKLOG_NAMESPACES_FOLDER"
FORWARDS = "forwards"
"""The file in the command's folder that says that signals reach it."""
CGROUPS = Path("/sys/fs/cgroup")
UNSHARE = ("unshare", "--net", "--ipc", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
CLEAN_SECONDS = 60.0
NEW_CGROUP_NAMESPACE, DIE_WITH_PARENT = 0x02000000, 1


class Hierarchy(NamedTuple):
    """A mounted hierarchy of control groups: where, of which file system (cgroup or cgroup2), with which options."""

    point: Path
    kind: str
    options: str


def folder() -> Path:
    """The command's own folder on disk, removed at the end. Raises ``Skipped`` outside of the namespaces."""
    first = Path("/proc/1/cmdline").read_bytes().split(b"\0")
    if VARIABLE not in os.environ or os.fsencode(__file__) not in first:
        raise Skipped("a Kubernetes node runs in namespaces of its own: scripts/servers/namespaces.py COMMAND")
    return Path(os.environ[VARIABLE])


def require_namespaces() -> None:
    """Raises ``Skipped`` if this process may not create them."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise Skipped("a Kubernetes node runs containers, which takes root on Linux")
    if not hierarchies():
        raise Skipped(f"a Kubernetes node needs cgroups, and {CGROUPS} has none")
    tried = subprocess.run([*UNSHARE, "--cgroup", "--mount-proc", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise Skipped(f"this process may not create namespaces: {tried.stderr.strip()}")


def run(command: Sequence[str], prepare: Callable[[], None]) -> int:
    """Run a command as the module says, after ``prepare``, which has the network; return its exit code. What raises
    ``Skipped`` is printed, and the command not run: 0."""
    try:
        require_namespaces()
        SERVERS.mkdir(exist_ok=True)
        prepare()
    except Skipped as reason:
        print(f"skipped: {reason}")
        return 0
    except ServerFailed as reason:
        print(f"failed: {reason}", file=sys.stderr)
        return 1
    return _enter(command)


def _enter(command: Sequence[str]) -> int:
    own = SERVERS / f"node-{os.getpid()}"
    own.mkdir()
    groups, enabled = create_groups(f"sparklog-{os.getpid()}")
    ends, alive = os.pipe()
    with open(ends, "rb") as end:
        arguments = [sys.executable, __file__, "--clean", str(own), enabled, *map(str, groups)]
        cleaner = subprocess.Popen(arguments, stdin=end, start_new_session=True)
    inside = subprocess.Popen(
        [*UNSHARE, "--mount-proc", sys.executable, __file__, "--inside", str(own), *command],
        preexec_fn=_joining(groups),
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, the command gets it too
    signal.signal(signal.SIGTERM, lambda number, frame: _terminate(inside, own))
    try:
        code = child_code(inside.wait())
        return 128 + signal.SIGTERM if code == 128 + signal.SIGKILL and not (own / FORWARDS).exists() else code
    finally:
        os.close(alive)
        cleaner.wait()


def _terminate(inside: subprocess.Popen[bytes], own: Path) -> None:
    if not (own / FORWARDS).exists():  # the first process of a namespace gets no signal that it does not handle
        inside.kill()
        return
    for first in Path(f"/proc/{inside.pid}/task/{inside.pid}/children").read_text().split():
        os.kill(int(first), signal.SIGTERM)


# -- control groups


def hierarchies() -> list[Hierarchy]:
    """What is mounted at CGROUPS and below."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, system = line.partition(" - ")
        kind, _, options = system.split(" ")
        point = Path(mount.split(" ")[4])
        if kind in ("cgroup", "cgroup2") and point.is_relative_to(CGROUPS):
            found.append(Hierarchy(point, kind, options))
    return found


def create_groups(name: str) -> tuple[list[Path], str]:
    """Create a group of this name in every hierarchy; return them, and the controllers that had to be enabled for it in
    the top group of version 2, as its file says that: "+cpuset".

    In version 1 they are below those of this process. In version 2 a group that has processes can have no limited
    groups below it, so there it is below the top, which is the exception.
    """
    members = _memberships()
    groups, enabled = [], ""
    for each in hierarchies():
        controllers = each.point / "cgroup.controllers"
        if each.kind == "cgroup2" and controllers.read_text().strip():
            parent, control = each.point, each.point / "cgroup.subtree_control"
            missing = set(controllers.read_text().split()) - set(control.read_text().split())
            for controller in sorted(missing & {"cpu", "cpuset", "memory", "pids"}):
                control.write_text(f"+{controller}")
                enabled += f"+{controller} "
        else:
            names = ",".join(option for option in each.options.split(",") if option in members)
            parent = each.point / members.get(names, "").lstrip("/")
        group = (parent if parent.is_dir() else each.point) / name
        group.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):  # empty in version 1, and then nobody may join
            if each.kind == "cgroup" and (group / file).exists():
                (group / file).write_text((group.parent / file).read_text())
        if each.kind == "cgroup2":
            (group / "init").mkdir()
        groups.append(group)
    return groups, enabled.strip()


def _memberships() -> dict[str, str]:
    """The path of this process's group by controller, or "name=..."; "" is version 2."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys([controllers, *controllers.split(",")], path))
    return found


def _joining(groups: Sequence[Path]) -> Callable[[], None]:
    """What the forked process does: die with its parent, join the groups, and see no others from then on."""
    libc = ctypes.CDLL(None, use_errno=True)

    def join() -> None:
        libc.prctl(DIE_WITH_PARENT, signal.SIGKILL)
        for group in groups:
            (group / "cgroup.procs").write_text("0")
        if libc.unshare(NEW_CGROUP_NAMESPACE):
            raise OSError(ctypes.get_errno(), "no cgroup namespace")
        for group in groups:
            if (group / "init").is_dir():
                (group / "init" / "cgroup.procs").write_text("0")
                for controller in (group / "cgroup.controllers").read_text().split():
                    (group / "cgroup.subtree_control").write_text(f"+{controller}")

    return join


def clean(own: Path, enabled: str, groups: Sequence[Path]) -> int:
    """Wait until the caller has ended, then remove what is left when all processes have ended."""
    sys.stdin.buffer.read()
    deadline = time.monotonic() + CLEAN_SECONDS
    while (groups := [group for group in groups if not _remove_group(group)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    for controller in enabled.split():
        with suppress(OSError):  # somebody else limits it now
            (CGROUPS / "cgroup.subtree_control").write_text(controller.replace("+", "-"))
    shutil.rmtree(own, ignore_errors=True)
    return 0


def _remove_group(group: Path) -> bool:
    for each, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):  # a process of it is still ending
            os.rmdir(each)
    return not group.exists()


# -- inside


def inside(own: Path, command: Sequence[str]) -> int:
    """The first process of the namespace: prepare it, run the command, reap whatever ends."""
    _call("ip", "link", "set", "lo", "up")
    mount_settings(own)
    mount_groups()
    mount_folders(own)
    started: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def forward(number: int, frame: object) -> None:
        received.append(number)
        for command in started:
            command.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    (own / FORWARDS).touch()
    child = subprocess.Popen(command, env={**os.environ, VARIABLE: str(own)})
    started.append(child)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if received:
        child.terminate()
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return child_code(os.waitstatus_to_exitcode(status))


def child_code(code: int) -> int:
    """As a shell has it: 128 and the signal."""
    return code if code >= 0 else 128 - code


def mount_settings(own: Path) -> None:
    """Make the kernel's settings read-only but for those of the network, and show a kubelet what it wants."""
    _call("mount", "--bind", "/proc/sys", "/proc/sys")
    _call("mount", "-o", "remount,bind,ro", "/proc/sys")
    _call("mount", "--bind", "/proc/sys/net", "/proc/sys/net")
    _call("mount", "-o", "remount,bind,rw", "/proc/sys/net")
    for name, value in KUBELET_SETTINGS.items():
        shown = own / "settings" / name
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.write_text(f"{value}\n")
        _call("mount", "--bind", str(shown), f"/proc/sys/{name}")


def mount_groups() -> None:
    """Mount the hierarchies again: now each begins with the command's own group."""
    found = hierarchies()
    links = {each.name: os.readlink(each) for each in CGROUPS.iterdir() if each.is_symlink()}
    _call("umount", "--recursive", "--lazy", "/sys")  # a Java VM would read the machine's from the list of mounts
    _call("mount", "-t", "sysfs", "-o", "ro", "sysfs", "/sys")  # its devices are those of the network namespace
    if found[0].point != CGROUPS:
        _call("mount", "-t", "tmpfs", "tmpfs", str(CGROUPS))
    for each in found:
        each.point.mkdir(exist_ok=True)
        options = [option for option in each.options.split(",") if option not in ("rw", "ro", "xattr")]
        if any(option.startswith("name=") for option in options):
            options.insert(0, "none")
        given = ["-o", ",".join(options)] if each.kind == "cgroup" else []
        _call("mount", "-t", each.kind, *given, "cgroup", str(each.point))
    for name, target in links.items():
        (CGROUPS / name).symlink_to(target)


def mount_folders(own: Path) -> None:
    """Let FOLDERS show the machine's files, and keep in memory what is written; the checkout stays as it is."""
    checkout = os.open(CHECKOUT, os.O_PATH)
    kept = own / "written"
    kept.mkdir()
    _call("mount", "-t", "tmpfs", "tmpfs", str(kept))
    _call("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    layers = []
    for place in _real_folders():
        upper, work = (kept / place.name / name for name in ("upper", "work"))
        for made in (upper, work):
            made.mkdir(parents=True)
        given = place.stat()
        os.chown(upper, given.st_uid, given.st_gid)
        upper.chmod(given.st_mode)
        layers.append((place, f"lowerdir={place},upperdir={upper},workdir={work}"))
    for place, options in layers:
        _call("mount", "-t", "overlay", "-o", options, "overlay", str(place))
        if CHECKOUT.is_relative_to(place):
            _call("mount", "-c", "--rbind", f"/proc/self/fd/{checkout}", str(CHECKOUT), keep=checkout)
    os.close(checkout)


def _real_folders() -> Iterator[Path]:
    """FOLDERS without links, and without those that are in another one."""
    found = {Path(each).resolve() for each in FOLDERS if Path(each).is_dir()}
    for place in sorted(found):
        if not any(parent in found for parent in place.parents):
            yield place


def _call(*command: str, keep: int | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=[] if keep is None else [keep])
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def main() -> int:
    match sys.argv[1:]:
        case ["--clean", own, enabled, *groups]:
            return clean(Path(own), enabled, [Path(group) for group in groups])
        case ["--inside", own, *command]:
            return inside(Path(own), command)
        case [] | ["-h"] | ["--help"]:
            print(__doc__, file=sys.stderr)
            return 2
        case command:
            return run(command, lambda: None)


if __name__ == "__main__":
    sys.exit(main())
