"""What is seen at an address while its disk is unmounted, swapped, or away for some calls."""

from __future__ import annotations

import pytest

from sparklog.errors import ObjectNotFoundError, StorageError
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import Fault, FaultyStore
from sparklog.testing.mount_point import MountPoint

ID = "broker.json"


@pytest.fixture
def points() -> list[MountPoint]:
    """Two disks at their addresses, each with an identity."""
    points = []
    for number in (1, 2):
        forget_space(f"disk-{number}")
        disk = MemoryStore(f"disk-{number}")
        disk.put(ID, b'{"broker":%d}' % number)
        points.append(MountPoint(f"/mnt/{number}", disk))
    return points


def test_an_unmounted_address_is_an_empty_folder_that_takes_writes(points: list[MountPoint]) -> None:
    disk = points[0].unmount()
    assert list(points[0].list()) == []
    with pytest.raises(ObjectNotFoundError):
        points[0].get(ID)
    points[0].put("a", b"1")
    points[0].mount(disk)
    with pytest.raises(ObjectNotFoundError):
        points[0].get("a")


def test_a_guarded_address_refuses_writes_while_it_is_unmounted(points: list[MountPoint]) -> None:
    guarded = points[0].guarded_by(ID)
    points[0].unmount()
    with pytest.raises(StorageError, match="missing"):
        guarded.put("a", b"1")
    with pytest.raises(StorageError, match="missing"):
        guarded.open_output("a")


def test_swapped_disks_are_refused_by_their_fields_and_not_by_existence(points: list[MountPoint]) -> None:
    by_existence, by_fields = points[0].guarded_by(ID), points[0].guarded_by(ID, {"broker": 1})
    points[0].swap(points[1])
    by_existence.put("a", b"1")
    assert points[1].mounted.root == "memory://disk-1"
    for change in (lambda: by_fields.put("b", b"1"), lambda: by_fields.delete("a")):
        with pytest.raises(StorageError, match="another disk"):
            change()


def test_a_disk_is_away_for_some_calls(points: list[MountPoint]) -> None:
    points[0].unmount(calls=2, after=1)
    assert points[0].get(ID)
    assert list(points[0].list()) == []
    with pytest.raises(ObjectNotFoundError):
        points[0].get(ID)
    assert points[0].get(ID)


def test_a_file_is_not_published_on_another_disk_than_it_was_begun_on(points: list[MountPoint]) -> None:
    file = points[0].open_output("a")
    file.write(b"1")
    points[0].swap(points[1])
    with pytest.raises(StorageError, match="another disk"):
        file.close()
    assert [info.key for point in points for info in point.list()] == [ID, ID]


def test_a_repeated_delete_takes_effect_again_after_the_name_was_used_again() -> None:
    forget_space("repeated")
    store = FaultyStore(MemoryStore("repeated"), [Fault(1, "repeated")])
    store.put("a", b"1")
    store.delete("a")
    store.put("a", b"2")
    assert store.get("a") == b"2"
    assert store.settle() == 1
    with pytest.raises(ObjectNotFoundError):
        store.get("a")


def test_a_call_that_is_never_answered_fails_once_its_wait_is_ended() -> None:
    forget_space("never")
    store = FaultyStore(MemoryStore("never"), [Fault(0, "done+never_answers")])
    store.end_waits()
    with pytest.raises(StorageError, match="never answered"):
        store.put("a", b"1")
    assert store.get("a") == b"1"
