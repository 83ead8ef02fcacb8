"""A pass of maintenance from the page: what is due is said first, one runs at a time, and its end is shown."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import StorageUnavailableError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.records import Record, append_records
from sparklog.types import TopicPartition
from sparklog.ui.follower import ClusterFollower
from sparklog.ui.maintenance_pass import Passes
from tests.cluster.ui.test_changes import Browser, effects
from tests.web import Web, serving

_NUMBERS = itertools.count()


class Gate:
    """Holds up the requests of a pass until it is opened, and lets them fail if it is broken."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.is_broken = False

    def __call__(self, _: int, call: Call) -> None:
        if threading.current_thread().name == "sparklog-ui-pass":
            assert self.open.wait(60)
            if self.is_broken and call.operation in ("put_if_absent", "open_output"):
                raise StorageUnavailableError("the disk is gone")


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def cluster(gate: Gate) -> Coordinator:
    """A cluster with ten small files of orders, and three expired ones of clicks."""
    clock = ManualClock()
    store = FaultyStore(MemoryStore(f"pass-{next(_NUMBERS)}", clock), before=gate)
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("orders")
    cluster.create_topic("clicks", configs={"retention.ms": "1000", "segment.ms": "1000"})
    for number in range(10):
        append_records(cluster, "orders", [Record(b"k", b"%d" % number)])
    for _ in range(3):
        append_records(cluster, "clicks", [Record(b"k", b"v", timestamp_us=1)])
    clock.advance(3600)
    return cluster


@pytest.fixture
def web(cluster: Coordinator) -> Iterator[Web]:
    with serving(cluster, clock=cluster.log.clock, allow_changes=True) as web:
        yield web


def shown_until(web: Web, text: str) -> str:
    deadline = time.monotonic() + 60
    while text not in (page := web.get("/log/maintenance")).text:
        assert time.monotonic() < deadline, page.text
        time.sleep(0.02)
    return page.text


def values(cluster: Coordinator) -> list[bytes | None]:
    import sparklog

    with sparklog.Consumer(cluster=cluster) as consumer:
        place = TopicPartition("orders", 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        found: list[bytes | None] = []
        while len(found) < 10:
            found += [record.value for records in consumer.poll(1000).values() for record in records]
        return found


def test_a_pass_says_what_is_due_runs_in_the_background_and_shows_what_it_did(
    web: Web, cluster: Coordinator, gate: Gate
) -> None:
    browser = Browser(web)
    plan = browser.post("maintain", steps="roll, retention")
    first, _, *due = effects(plan)
    assert first == "One pass of maintenance runs in the background: roll, retention."
    assert [each.partition(",")[0] for each in due] == ["roll: 10 files", "retention: 3 files"]
    assert "would be freed, after file.delete.delay.ms." in due[1]
    assert "roll: 10 files" in web.get("/log/maintenance").text
    gate.open.clear()
    assert "has begun" in browser.confirm("maintain", plan).text
    running = shown_until(web, "0 of 2 steps are done")
    assert "running" in running
    assert web.get("/log/maintenance").headers["refresh"] == "2"
    again = browser.post("maintain", steps="")
    assert (again.status, "a pass of this cluster is running" in again.text) == (400, True)
    gate.open.set()
    done = shown_until(web, "files rewritten 10")
    done = shown_until(web, "segments out of the log 3")
    done = shown_until(web, '<span class="state good">done</span> Started')
    assert "refresh" not in web.get("/log/maintenance").headers
    assert cluster.refresh().partition("orders", 0).segments == 1
    assert cluster.state.partition("clicks", 0).segments == 0
    assert values(cluster) == [b"%d" % number for number in range(10)]
    assert "Run once" in done


def test_a_pass_whose_storage_fails_shows_what_failed_and_loses_nothing(
    web: Web, cluster: Coordinator, gate: Gate
) -> None:
    gate.is_broken = True
    Browser(web).change("maintain", steps="roll")
    page = shown_until(web, '<span class="state bad">failed</span> Started')
    assert "the disk is gone" in page
    gate.is_broken = False
    assert values(cluster) == [b"%d" % number for number in range(10)]


def test_the_end_of_the_page_stops_a_pass_between_two_tasks(gate: Gate, cluster: Coordinator) -> None:
    with serving(cluster, clock=cluster.log.clock, allow_changes=True) as web:
        gate.open.clear()
        Browser(web).change("maintain")
        ending = threading.Thread(target=web.site.passes.stop)
        ending.start()
        while not web.site.passes.is_stopping:
            time.sleep(0.01)
        gate.open.set()
        ending.join(60)
        assert "stopped, because the program of this page ended" in shown_until(web, "stopped")
    assert values(cluster) == [b"%d" % number for number in range(10)]


def test_a_step_that_does_not_exist_is_refused(web: Web) -> None:
    answer = Browser(web).post("maintain", steps="roll, everything")
    assert answer.status == 400
    assert "invalid steps: &#39;everything&#39; is none of elections," in answer.text


def test_a_pass_that_could_not_begin_does_not_count_as_running(
    cluster: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    passes, follower = Passes(), ClusterFollower("log", cluster)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            passes.start(follower, ["roll"])
    status = passes.status("log")
    assert status is not None
    assert (status.running, status.error) == ("", "can't start new thread")
    passes.start(follower, ["roll"])
    passes.stop()
    assert values(cluster) == [b"%d" % number for number in range(10)]
