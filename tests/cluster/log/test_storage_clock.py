"""The storage's time corrects the clock of a machine if it is far off, and not otherwise."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator

import pytest

from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster
from sparklog.errors import StorageError, StoragePermissionError, StorageUnavailableError
from sparklog.ids import SeededIds
from sparklog.log.commits.storage_clock import MEASURED_EVERY_SECONDS, RETRY_SECONDS, StorageClock
from sparklog.log.layout import CLOCK_KEY
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.store.base import ObjectInfo
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import (
    ERROR,
    FULL,
    LOST_ANSWER,
    PERMISSION,
    UNAVAILABLE,
    Call,
    Fault,
    FaultyStore,
)

DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


@pytest.fixture
def storage() -> Iterator[ManualClock]:
    """The storage's own clock, from which the machines' clocks differ."""
    yield ManualClock(START_MS)
    forget_space("storage-clock")


def machine_with_clock(storage: ManualClock, ahead_ms: int) -> tuple[ManualClock, FaultyStore]:
    return ManualClock(START_MS + ahead_ms), FaultyStore(MemoryStore("storage-clock", storage))


@pytest.mark.parametrize("ahead_ms", [0, limits.MAX_CLOCK_SKEW_MS, -limits.MAX_CLOCK_SKEW_MS])
def test_an_ordinary_difference_leaves_the_machines_clock_unchanged(storage: ManualClock, ahead_ms: int) -> None:
    clock, store = machine_with_clock(storage, ahead_ms)
    assert StorageClock(store, clock).now_ms() == clock.now_ms()


@pytest.mark.parametrize("ahead_ms", [8 * DAY_MS, -8 * DAY_MS, limits.MAX_CLOCK_SKEW_MS + 1])
def test_a_clock_that_is_far_off_is_replaced_by_the_storages(
    storage: ManualClock, ahead_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock, store = machine_with_clock(storage, ahead_ms)
    ours = StorageClock(store, clock)
    with caplog.at_level(logging.WARNING):
        assert ours.now_ms() == START_MS
        clock.advance(30)
        assert ours.now_ms() == START_MS + 30_000
    assert len(caplog.records) == 1
    assert ("ahead of" if ahead_ms > 0 else "behind") in caplog.text


def test_the_storages_time_is_measured_at_the_first_use_and_every_ten_minutes(storage: ManualClock) -> None:
    clock, store = machine_with_clock(storage, 0)
    ours = StorageClock(store, clock)
    assert len(store.calls) == 0
    for _ in range(5):
        ours.now_ms()
    assert len(store.calls) == 2
    clock.advance(MEASURED_EVERY_SECONDS - 1)
    ours.now_ms()
    assert len(store.calls) == 2
    clock.advance(1)
    ours.now_ms()
    assert len(store.calls) == 4


def test_a_change_of_the_wall_clock_is_noticed_immediately(storage: ManualClock) -> None:
    clock, store = machine_with_clock(storage, 0)
    ours = StorageClock(store, clock)
    assert ours.now_ms() == START_MS
    clock.set_ms(START_MS + 8 * DAY_MS)
    assert ours.now_ms() == START_MS
    clock.set_ms(START_MS - 8 * DAY_MS)
    assert ours.now_ms() == START_MS
    clock.set_ms(START_MS)
    assert ours.now_ms() == START_MS


def test_a_machine_whose_monotonic_clock_stopped_during_sleep_is_noticed(storage: ManualClock) -> None:
    clock, store = machine_with_clock(storage, 0)
    ours = StorageClock(store, clock)
    ours.now_ms()
    storage.advance(DAY_MS / 1000)
    clock.set_ms(START_MS + DAY_MS)  # the wall clock advanced, the monotonic one did not
    assert ours.now_ms() == START_MS + DAY_MS
    assert ours.storage_now_ms() == START_MS + DAY_MS


def test_the_storages_time_is_available_even_if_the_machines_clock_is_used(storage: ManualClock) -> None:
    clock, store = machine_with_clock(storage, 60_000)
    ours = StorageClock(store, clock)
    assert ours.now_ms() == START_MS + 60_000
    clock.advance(5)
    assert ours.storage_now_ms() == START_MS + 5_000


@pytest.mark.parametrize(("kind", "level"), [(UNAVAILABLE, logging.WARNING), (PERMISSION, logging.INFO)])
@pytest.mark.parametrize("step", [0, 1])
def test_a_storage_that_does_not_return_its_time_is_logged_once(
    storage: ManualClock, kind: str, level: int, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(START_MS + 8 * DAY_MS)
    faults = [Fault(at, kind) for at in range(step, 40)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert ours.storage_now_ms() is None
    assert [record.levelno for record in caplog.records] == [level]


def test_a_process_without_the_right_to_measure_uses_the_machines_clock(storage: ManualClock) -> None:
    clock = ManualClock(START_MS + 8 * DAY_MS)
    faults = [Fault(at, PERMISSION) for at in range(10)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    assert ours.now_ms() == clock.now_ms()


@pytest.mark.parametrize("kind", [UNAVAILABLE, ERROR, FULL])
def test_while_the_storage_does_not_answer_no_time_is_told(storage: ManualClock, kind: str) -> None:
    """What such a time is for is a commit, which needs the storage as well; and it binds all that follow."""
    clock = ManualClock(START_MS + 8 * DAY_MS)
    faults = [Fault(at, kind) for at in range(3)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    with pytest.raises(StorageError):
        ours.now_ms()


@pytest.mark.parametrize("kind", [PERMISSION, FULL])
def test_the_first_measurement_is_repeated_before_the_clock_of_the_machine_is_trusted(
    storage: ManualClock, kind: str
) -> None:
    """A token that expired, or a quota that was exceeded for a moment, would bring a wrong clock into the log."""
    clock = ManualClock(START_MS + 8 * DAY_MS)
    faults = [Fault(at, kind) for at in range(2)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    assert abs(ours.now_ms() - START_MS) < 1000


@pytest.mark.parametrize("other", [UNAVAILABLE, ERROR, FULL])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_refusal_among_other_failures_brings_no_machines_clock_into_the_log(
    storage: ManualClock, other: str, place: int
) -> None:
    """A storage that is overloaded, and a token that expires meanwhile: the refusal proves nothing."""
    clock = ManualClock(START_MS + 8 * DAY_MS)
    kinds = [PERMISSION, PERMISSION, PERMISSION]
    kinds[place] = other
    faults = [Fault(at, kind) for at, kind in enumerate(kinds)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    with pytest.raises(StorageError):
        ours.now_ms()
    assert abs(ours.now_ms() - START_MS) < 1000


def test_a_refusal_after_an_outage_is_asked_for_again(storage: ManualClock) -> None:
    clock = ManualClock(START_MS + 8 * DAY_MS)
    faults = [*(Fault(at, ERROR) for at in range(9)), Fault(9, PERMISSION)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    for _ in range(3):
        with pytest.raises(StorageError):
            ours.now_ms()
    assert abs(ours.now_ms() - START_MS) < 1000


def test_refusals_after_an_answer_that_came_late_bring_no_machines_clock_into_the_log(storage: ManualClock) -> None:
    """The process stalled for a minute within its first measurement, and its token expired meanwhile."""
    clock = ManualClock(START_MS + 8 * DAY_MS)

    def stall(number: int, call: Call) -> None:
        if number == 0:
            clock.advance(61)

    faults = [Fault(at, PERMISSION) for at in (2, 3)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults, before=stall), clock)
    with pytest.raises(StorageError):
        ours.now_ms()
    assert abs(ours.now_ms() - START_MS) < 1000


def test_a_thread_that_asks_while_another_measures_a_changed_clock_is_corrected_too(storage: ManualClock) -> None:
    clock, told = ManualClock(START_MS), list[int]()
    is_set = False

    def ask(number: int, call: Call) -> None:
        nonlocal is_set
        if is_set:
            is_set = False
            told.append(ours.now_ms())  # as another thread would, between the two requests of a measurement

    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), before=ask), clock)
    assert ours.now_ms() == START_MS
    clock.set_ms(START_MS + 8 * DAY_MS)
    is_set = True
    told.append(ours.now_ms())
    assert [abs(time_ms - START_MS) < 1000 for time_ms in told] == [True, True]


def test_one_answer_that_is_lost_is_asked_for_again_at_once(storage: ManualClock) -> None:
    clock = ManualClock(START_MS + 8 * DAY_MS)
    faults = [Fault(0, UNAVAILABLE), Fault(2, LOST_ANSWER)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    assert abs(ours.now_ms() - START_MS) < 1000


def test_a_process_that_was_stopped_during_a_measurement_measures_again(storage: ManualClock) -> None:
    clock = ManualClock(START_MS)
    stops = [2000.0]

    def before(step: int, call: Call) -> None:
        if call.operation == "info" and stops:
            seconds = stops.pop()
            clock.advance(seconds)
            storage.advance(seconds)

    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), before=before), clock)
    assert ours.storage_now_ms() == storage.now_ms()


class _Timeless(MemoryStore):
    """A storage whose client does not return the times of objects."""

    def info(self, key: str) -> ObjectInfo:
        return super().info(key)._replace(modified_ms=0)


def test_a_storage_without_object_times_uses_the_machines_clock(storage: ManualClock) -> None:
    clock = ManualClock(START_MS + 8 * DAY_MS)
    ours = StorageClock(_Timeless("storage-clock", storage), clock)
    assert ours.now_ms() == clock.now_ms()
    assert ours.storage_now_ms() is None


def test_a_measurement_outlives_an_outage_of_the_storage(storage: ManualClock) -> None:
    clock = ManualClock(START_MS + 8 * DAY_MS)
    faults = [Fault(at, UNAVAILABLE) for at in range(2, 5)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    assert ours.now_ms() == START_MS
    clock.advance(MEASURED_EVERY_SECONDS)
    storage.advance(MEASURED_EVERY_SECONDS)
    before = ours.now_ms()
    assert START_MS + MEASURED_EVERY_SECONDS * 1000 <= before < START_MS + MEASURED_EVERY_SECONDS * 1000 + 1000
    clock.advance(RETRY_SECONDS)
    storage.advance(RETRY_SECONDS)
    assert ours.storage_now_ms() == storage.now_ms()


def test_a_change_of_the_clock_during_an_outage_ends_a_measurement(storage: ManualClock) -> None:
    clock = ManualClock(START_MS + 8 * DAY_MS)
    faults = [Fault(at, UNAVAILABLE) for at in range(2, 5)]
    ours = StorageClock(FaultyStore(MemoryStore("storage-clock", storage), faults), clock)
    assert ours.now_ms() == START_MS
    clock.set_ms(START_MS + 1)
    with pytest.raises(StorageUnavailableError):
        ours.now_ms()
    assert abs(ours.now_ms() - START_MS) < 1000


def test_a_pickled_clock_is_corrected_as_well(storage: ManualClock) -> None:
    clock = ManualClock(START_MS + 8 * DAY_MS)
    ours = StorageClock(MemoryStore("storage-clock", storage), clock)
    assert pickle.loads(pickle.dumps(ours)).now_ms() == START_MS


def test_the_clock_object_is_not_reported_by_fsck(storage: ManualClock) -> None:
    clock, store = machine_with_clock(storage, 0)
    create_cluster(store, clock=clock, ids=SeededIds(0))
    StorageClock(store, clock).now_ms()
    assert store.get(CLOCK_KEY)
    assert check_cluster(store).report.findings == []


def test_a_process_that_has_measured_before_is_not_left_to_its_own_clock_by_a_refusal(storage: ManualClock) -> None:
    """The wall clock is set to another week, and the measurement that this requires is refused for a moment."""
    clock = ManualClock(START_MS)
    store = FaultyStore(MemoryStore("storage-clock", storage))
    ours = StorageClock(store, clock)
    assert abs(ours.now_ms() - START_MS) < 1000
    clock.set_ms(START_MS + 8 * DAY_MS)
    first = len(store.calls)
    store.inject(*(Fault(at, PERMISSION) for at in range(first, first + 3)))
    with pytest.raises(StoragePermissionError):
        ours.now_ms()
    assert abs(ours.now_ms() - START_MS) < 1000
