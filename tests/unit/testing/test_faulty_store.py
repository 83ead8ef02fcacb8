from __future__ import annotations

import pickle
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
)
from sparklog.store.memory import MemoryStore
from sparklog.testing import faulty_store
from sparklog.testing.faults import DONE, ERRORS, HALF, KINDS, LATE, NONE, TWICE, every_outcome, kinds_of
from sparklog.testing.faulty_store import (
    OUTAGE_STEPS,
    Call,
    CountingStore,
    Fault,
    FaultyStore,
    SimulatedCrash,
    SimulatedInterrupt,
    every_crash,
)


@pytest.fixture
def inner(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(f"faulty-{request.node.name}")


@pytest.mark.parametrize(
    ("kind", "raised", "happened"),
    [
        (faulty_store.ERROR, StorageError, False),
        (faulty_store.UNAVAILABLE, StorageUnavailableError, False),
        (faulty_store.LOST_ANSWER, StorageUnavailableError, True),
        (faulty_store.FULL, StorageFullError, False),
        (faulty_store.PERMISSION, StoragePermissionError, False),
        (faulty_store.CRASH_BEFORE, SimulatedCrash, False),
        (faulty_store.CRASH_AFTER, SimulatedCrash, True),
    ],
)
def test_fault_affects_only_its_step(
    inner: MemoryStore, kind: str, raised: type[BaseException], happened: bool
) -> None:
    store = FaultyStore(inner, [Fault(1, kind)])
    store.put_if_absent("a", b"1")
    with pytest.raises(raised) as caught:
        store.put_if_absent("b", b"2")
    assert type(caught.value) is raised
    assert ("b" in [info.key for info in inner.list()]) is happened
    store.reopen()
    store.put_if_absent("c", b"3")
    assert store.injected == [Fault(1, kind)]


def test_truncated_write_reports_success(inner: MemoryStore) -> None:
    store = FaultyStore(inner, [Fault(0, "truncated"), Fault(2, "truncated")])
    store.put("a", b"1234")
    with store.open_output("b") as file:
        assert file.write(b"123456") == 6
        file.write(b"78")
        assert file.tell() == 8
    assert (inner.get("a"), inner.get("b")) == (b"12", b"12378")


def test_after_a_crash_every_call_raises_until_reopened(inner: MemoryStore) -> None:
    store = FaultyStore(inner, [Fault(2, "crash_before")])
    file = store.open_output("a")
    file.write(b"1")
    with pytest.raises(SimulatedCrash):
        file.close()
    calls: list[Callable[[], object]] = [
        store.list,
        lambda: store.get("x"),
        lambda: file.write(b"2"),
        file.close,
        store.commit_lock,
    ]
    for call in calls:
        with pytest.raises(SimulatedCrash):
            call()
    store.reopen()
    with pytest.raises(ObjectNotFoundError):
        store.get("a")


def test_crash_is_not_caught_by_error_handlers(inner: MemoryStore) -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_calls_and_bytes_are_counted(inner: MemoryStore) -> None:
    store = CountingStore(inner)
    store.put("a", b"12345")
    store.get("a")
    store.get_range("a", 0, 2)
    with store.open_output("b") as file:
        file.write(b"123")
    store.open_input("b").read_at(0, 10)
    list(store.list(""))
    assert store.calls[:2] == [Call("put", "a"), Call("get", "a")]
    assert store.counts["read_at"] == store.counts["write"] == store.counts["list"] == 1
    assert (store.bytes_written, store.bytes_read) == (8, 5 + 2 + 3)
    store.reset_counts()
    assert store.calls == []


def test_every_crash_of_an_operation_is_enumerated(inner: MemoryStore) -> None:
    def operation(store: FaultyStore) -> None:
        with store.open_output("data") as file:
            file.write(b"1")
        store.get("data")
        store.put_if_absent("commit", b"1")

    store = FaultyStore(MemoryStore("every-crash"))
    operation(store)
    faults = list(every_crash(store.calls))
    assert len(faults) == 3 * 3  # write, close, put_if_absent
    for number, fault in enumerate(faults):
        fresh = MemoryStore(f"every-crash-{number}")
        with pytest.raises((SimulatedCrash, StorageUnavailableError)):
            operation(FaultyStore(fresh, [fault]))
        keys = [info.key for info in fresh.list()]
        assert "commit" not in keys or "data" in keys


def test_same_seed_injects_the_same_faults() -> None:
    def run(seed: int) -> list[Fault]:
        store = FaultyStore(MemoryStore(f"seeded-{seed}"), seed=seed, rates={"unavailable": 0.2, "lost_answer": 0.2})
        for number in range(200):
            try:
                store.put_if_absent(f"{number}", b"1")
            except (StorageUnavailableError, ObjectExistsError):
                continue
        return store.injected

    assert run(1) == run(1)
    assert run(1) != run(2)
    kinds = [fault.kind for fault in run(3)]
    assert 20 < kinds.count("unavailable") < 60
    assert 20 < kinds.count("lost_answer") < 60


def test_hook_runs_before_each_step(inner: MemoryStore) -> None:
    seen: list[tuple[int, Call]] = []

    def rival(step: int, call: Call) -> None:
        seen.append((step, call))
        if call.operation == "put_if_absent":
            inner.put_if_absent(call.key, b"rival")

    store = FaultyStore(inner, before=rival)
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("a", b"1")
    assert seen == [(0, Call("put_if_absent", "a"))]


def test_listings_may_be_stale(inner: MemoryStore) -> None:
    store = FaultyStore(inner, listing_lag=3)
    store.put("a", b"1")
    assert list(store.list()) == []
    assert store.get("a") == b"1"
    store.put("b", b"2")
    assert [info.key for info in store.list()] == ["a"]


def test_reads_of_an_overwritten_object_may_be_stale(inner: MemoryStore) -> None:
    store = FaultyStore(inner, stale_reads=2)
    store.put("a", b"old")
    store.put("a", b"new")
    assert store.get("a") == b"old"
    assert store.get_range("a", 0, 1) == b"o"
    assert store.get("a") == b"new"


def test_pickled_copy_has_the_same_faults(inner: MemoryStore) -> None:
    store = FaultyStore(inner, [Fault(0, "full")], listing_lag=1)
    store.calls.append(Call("get", "a"))
    copy = pickle.loads(pickle.dumps(store))
    with pytest.raises(StorageFullError):
        copy.put("a", b"1")
    assert type(pickle.loads(pickle.dumps(CountingStore(inner)))) is CountingStore


def test_an_outage_takes_effect_and_then_fails_reads_for_a_while() -> None:
    store = FaultyStore(MemoryStore("outage"), [Fault(0, faulty_store.OUTAGE)])
    with pytest.raises(StorageUnavailableError):
        store.put_if_absent("a", b"1")
    for _ in range(faulty_store.OUTAGE_STEPS):
        with pytest.raises(StorageUnavailableError):
            store.get("a")
    assert store.get("a") == b"1"


# -- generated outcomes


def outcome_of(kind: str, operation: str) -> tuple[MemoryStore, BaseException | None]:
    inner = MemoryStore(uuid.uuid4().hex)
    store = FaultyStore(inner, [Fault(0, kind)])
    try:
        getattr(store, operation)("key", b"12345678")
    except (StorageError, SimulatedCrash, SimulatedInterrupt) as error:
        return inner, error
    return inner, None


@pytest.mark.parametrize("operation", ["put", "put_if_absent"])
def test_every_outcome_of_a_write_matches_its_name(operation: str) -> None:
    seen = set()
    for kind in kinds_of(operation):
        outcome = KINDS[kind]
        inner, error = outcome_of(kind, operation)
        there = {info.key: inner.get(info.key) for info in inner.list()}
        wanted = {NONE: {}, LATE: {}, DONE: {"key": b"12345678"}, TWICE: {"key": b"12345678"}, HALF: {"key": b"1234"}}[
            outcome.effect
        ]
        assert there == wanted, kind
        if outcome.crashes:
            assert isinstance(error, SimulatedCrash), kind
        elif outcome.interrupts:
            assert isinstance(error, SimulatedInterrupt), kind
        elif outcome.answer == "ok":
            assert error is None, kind
        else:
            assert type(error) is ERRORS[outcome.answer], kind
            assert isinstance(error, StorageError)
            assert bool(error.nothing_written) == outcome.certain, kind
            assert not (error.nothing_written and there), kind
        seen.add((outcome.effect, outcome.answer))
    assert {
        (effect, answer) for effect in (NONE, DONE, LATE) for answer in ("error", "permission", "crash", "interrupt")
    } <= seen


@pytest.mark.parametrize("kind", ["none+interrupt", "done+interrupt"])
def test_an_interrupt_is_not_a_storage_error_and_later_calls_work(kind: str) -> None:
    store = FaultyStore(MemoryStore(uuid.uuid4().hex), [Fault(0, kind)])
    with pytest.raises(SimulatedInterrupt):
        store.put("key", b"data")
    assert [info.key for info in store.list()] == ([] if kind.startswith("none") else ["key"])
    store.put("key", b"again")
    assert store.get("key") == b"again"


def test_a_late_write_takes_effect_after_its_steps_with_the_given_bytes() -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    store = FaultyStore(inner, [Fault(0, "late2+unavailable")])
    body = bytearray(b"first")
    with pytest.raises(StorageUnavailableError):
        store.put("key", body)
    body[:] = b"other"
    for _ in range(2):
        assert list(store.list()) == []
    assert [info.key for info in store.list()] == ["key"]
    assert inner.get("key") == b"first"


def test_a_late_create_loses_to_an_earlier_one() -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    store = FaultyStore(inner, [Fault(0, "late12+permission")])
    with pytest.raises(StoragePermissionError):
        store.put_if_absent("key", b"late")
    store.put_if_absent("key", b"next")
    assert store.settle() == 1
    assert inner.get("key") == b"next"


def test_requests_in_flight_at_a_crash_still_take_effect() -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    store = FaultyStore(inner, [Fault(2, "late12+crash")])
    with pytest.raises(SimulatedCrash), store.open_output("key") as output:
        output.write(b"data")
    store.reopen()
    assert list(inner.list()) == []
    store.settle()
    assert inner.get("key") == b"data"


def test_a_lasting_answer_is_given_to_later_calls() -> None:
    store = FaultyStore(MemoryStore(uuid.uuid4().hex), [Fault(0, "done+permission*")])
    for _ in range(1 + OUTAGE_STEPS):
        with pytest.raises(StoragePermissionError):
            store.put("key", b"data")
    assert store.get("key") == b"data"


def test_rates_may_name_generated_kinds() -> None:
    store = FaultyStore(MemoryStore(uuid.uuid4().hex), seed=3, rates={"done+permission": 0.5, "done+exists": 0.3})
    for number in range(50):
        with suppress(StorageError):
            store.put(f"key-{number}", b"data")
        with suppress(StorageError):
            store.get(f"key-{number}")
    kinds = Counter((store.calls[fault.step].operation, fault.kind) for fault in store.injected)
    assert kinds["put", "done+permission"] > 10
    assert kinds["put", "done+exists"] == 0, "only a create can fail because the object exists"
    assert len(list(store.wrapped.list())) == 50


def test_every_outcome_of_every_step_is_tested() -> None:
    calls = [Call("get", "a"), Call("put_if_absent", "a"), Call("delete", "b")]
    faults = list(every_outcome(calls))
    assert len(set(faults)) == len(faults)
    steps = Counter(fault.step for fault in faults)
    assert steps[1] > 40 > steps[2] > steps[0] > 5
    torn = set(every_outcome(calls, torn=True)) - set(faults)
    assert {fault.kind for fault in torn} == {"truncated", "half+crash"}
    assert {fault.step for fault in every_outcome(calls, ["delete"])} == {2}
