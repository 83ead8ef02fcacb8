"""A storage location is lost while records are produced and consumed: no acknowledged record is lost, reading
continues, the next controller check elects leaders, and the location catches up by itself when it is available again.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from scripts.servers import s3
from scripts.servers.common import HOST, Skipped, free_ports, start, wait_until
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FULL, PERMISSION, UNAVAILABLE, FaultyStore
from sparklog.testing.substitutes import substituted
from tests.crash.losing import Scene


def scene_in(folder: Path) -> Scene:
    return Scene(str(folder / "root"), [str(folder / "disk1"), str(folder / "disk2")])


def lose_and_restore(scene: Scene, lose: Callable[[], object], restore: Callable[[], object]) -> None:
    """Lose broker 1 and restore it while records are produced and consumed."""
    with scene.running():
        scene.more_acknowledged()
        scene.more_read()
        lose()
        scene.more_acknowledged()
        scene.more_read()
        scene.controller.check()
        assert scene.leaders() == [2, 2]
        scene.more_acknowledged()
        restore()
        scene.catch_up()
        scene.more_acknowledged()
        scene.more_read()
    scene.check_nothing_lost()


def check_each_location(scene: Scene, folder: Path) -> None:
    """Check that either location alone has all records."""
    scene.catch_up()
    for number in (1, 2):
        away = folder / f"disk{number}-away"
        (folder / f"disk{number}").rename(away)
        for partition in (0, 1):
            assert scene.stored(partition) == scene.read[partition]
        away.rename(folder / f"disk{number}")


def test_no_record_is_lost_when_a_folder_vanishes(tmp_path: Path) -> None:
    scene = scene_in(tmp_path)
    disk, away = tmp_path / "disk1", tmp_path / "away"
    lose_and_restore(scene, lambda: disk.rename(away), lambda: away.rename(disk))
    check_each_location(scene, tmp_path)


def test_no_record_is_lost_when_an_empty_folder_takes_the_path_of_a_location(tmp_path: Path) -> None:
    """Like the mount point of an unmounted disk: no records may be written into the empty folder."""
    scene = scene_in(tmp_path)
    disk, away = tmp_path / "disk1", tmp_path / "away"

    def unmount() -> None:
        disk.rename(away)
        disk.mkdir()

    def mount() -> None:
        assert list(disk.rglob("*.log")) == []
        shutil.rmtree(disk)
        away.rename(disk)

    lose_and_restore(scene, unmount, mount)
    check_each_location(scene, tmp_path)


def test_no_record_is_lost_when_an_older_copy_replaces_a_location(tmp_path: Path) -> None:
    scene = scene_in(tmp_path)
    disk, copy, away = tmp_path / "disk1", tmp_path / "copy", tmp_path / "away"
    with scene.running():
        scene.more_acknowledged()
        shutil.copytree(disk, copy, ignore_dangling_symlinks=True, ignore=shutil.ignore_patterns(".tmp-*"))
        scene.controller.check()
        scene.more_acknowledged()
        scene.more_read()
        disk.rename(away)
        copy.rename(disk)
        scene.more_acknowledged()
        scene.more_read()
        scene.controller.check()
        scene.more_acknowledged()
        scene.catch_up()
        scene.more_read()
    scene.check_nothing_lost()
    check_each_location(scene, tmp_path)


def test_no_record_is_lost_when_files_of_an_absent_location_are_truncated_or_deleted(tmp_path: Path) -> None:
    scene = scene_in(tmp_path)
    disk, away = tmp_path / "disk1", tmp_path / "away"

    def damage() -> None:
        for number, path in enumerate(sorted(away.rglob("*.log"))):
            if number % 3 == 0:
                path.unlink()
            elif number % 3 == 1:
                path.write_bytes(path.read_bytes()[:-100])
        away.rename(disk)

    lose_and_restore(scene, lambda: disk.rename(away), damage)
    check_each_location(scene, tmp_path)


@pytest.mark.parametrize("kind", [PERMISSION, FULL, UNAVAILABLE])
def test_no_record_is_lost_when_a_storage_refuses_or_does_not_respond(tmp_path: Path, kind: str) -> None:
    faulty = FaultyStore(open_store(str(tmp_path / "disk1")), seed=1, rates={})
    with substituted(faulty):
        scene = scene_in(tmp_path)
        lose_and_restore(scene, lambda: faulty.inject(rates={kind: 1.0}), faulty.heal)
    check_each_location(scene, tmp_path)


def test_no_record_is_lost_when_a_disk_becomes_read_only(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk1", "64m") as disk:
        scene = scene_in(tmp_path)
        lose_and_restore(
            scene,
            # mount refuses while a writer has a file open
            lambda: scene.until(lambda: run("mount", "-o", "remount,ro", str(disk)), "read-only disk"),
            lambda: run("mount", "-o", "remount,rw", str(disk)),
        )


def test_no_record_is_lost_when_a_disk_fills_up(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk1", "64m") as disk:
        scene = scene_in(tmp_path)
        ballast = disk / "ballast"

        def fill() -> None:
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass

        lose_and_restore(scene, fill, ballast.unlink)


@pytest.mark.s3
def test_no_record_is_lost_when_an_s3_server_is_killed(tmp_path: Path) -> None:
    try:
        program = s3.build()
    except Skipped as reason:
        pytest.skip(str(reason))
    (port,) = free_ports(1)
    data = tmp_path / "data"
    (data / s3.BUCKET).mkdir(parents=True)
    options = {"endpoint_url": f"http://{HOST}:{port}", "key": s3.KEY, "secret": s3.SECRET}
    servers: list[subprocess.Popen[bytes]] = []

    def serve() -> None:
        command = [str(program), "--port", f"{HOST}:{port}", "--quiet", "posix", str(data)]
        servers.append(start(command, tmp_path / "s3.log", {"ROOT_ACCESS_KEY": s3.KEY, "ROOT_SECRET_KEY": s3.SECRET}))
        wait_until(lambda: s3.answers(port), "versitygw", tmp_path, seconds=30)

    serve()
    try:
        scene = Scene(str(tmp_path / "root"), [f"s3://{s3.BUCKET}/disk1", str(tmp_path / "disk2")], options)

        def kill() -> None:
            servers[-1].kill()
            servers[-1].wait()

        lose_and_restore(scene, kill, serve)
    finally:
        servers[-1].kill()
        servers[-1].wait()


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk in memory; skip the test where mounting is not allowed."""
    folder.mkdir()
    if shutil.which("mount") is None or not run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)):
        pytest.skip("mounting a disk in memory is not allowed here")
    try:
        yield folder
    finally:
        run("umount", "-l", str(folder))


def run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
