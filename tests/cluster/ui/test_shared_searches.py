"""Live pages cost the storage the same however many look at them."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster
from sparklog.errors import StorageUnavailableError
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records
from sparklog.ui import shared_searches
from sparklog.ui.record_search import FoundRecords, Search, search
from sparklog.ui.shared_searches import LIVE_SECONDS, SharedSearches, TooEarly
from sparklog.ui.views.record_filter import RecordFilter
from tests.web import serving

ALL = RecordFilter()


class Searched:
    """A cluster, its clock, and how often its records were searched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.cluster = create_cluster(MemoryStore(uuid.uuid4().hex, self.clock), clock=self.clock)
        self.cluster.create_topic("orders")
        self.searches = SharedSearches(self.cluster)
        self.count = 0

        def counted(*arguments: object) -> FoundRecords:
            self.count += 1
            return search(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(shared_searches, "search", counted)

    def append(self, value: bytes) -> None:
        append_records(self.cluster, "orders", [Record(b"k", value)])
        self.cluster.refresh()

    def find(self, admits: RecordFilter = ALL, is_live: bool = True) -> list[bytes | None]:
        state = self.cluster.state
        end = state.partition("orders", 0).high_watermark
        found = self.searches.find(state, Search("orders", {0: end}, True, 50), admits, is_live)
        return [record.value for record in found.records]


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Searched:
    return Searched(monkeypatch)


def test_a_topic_that_has_not_changed_is_searched_once(searched: Searched) -> None:
    searched.append(b"1")
    for is_live in (False, True, False, True):
        assert searched.find(is_live=is_live) == [b"1"]
        searched.clock.advance(60)
    assert searched.count == 2
    searched.cluster.create_topic("other")
    assert searched.find() == [b"1"]
    assert searched.count == 2


def test_live_pages_are_searched_for_once_in_a_while_and_shown_what_was_found_before(searched: Searched) -> None:
    searched.append(b"1")
    assert searched.find() == [b"1"]
    for number in range(100):
        searched.append(b"%d" % number)
        assert searched.find() == [b"1"]
    with pytest.raises(TooEarly):
        searched.find(RecordFilter(key=b"k"))
    assert searched.count == 1
    searched.clock.advance(LIVE_SECONDS)
    assert len(searched.find()) == 50
    with pytest.raises(TooEarly):
        searched.find(RecordFilter(key=b"k"))
    assert len(searched.find(is_live=False)) == 50
    assert searched.count == 3


def test_who_asks_at_the_same_time_waits_for_the_same_search(
    searched: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched.append(b"1")
    begun, go_on = threading.Event(), threading.Event()

    count = 0

    def slow(*arguments: object) -> FoundRecords:
        nonlocal count
        count += 1
        begun.set()
        assert go_on.wait(60)
        return search(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(shared_searches, "search", slow)
    with ThreadPoolExecutor(10) as viewers:
        first = viewers.submit(searched.find)
        assert begun.wait(60)
        others = [viewers.submit(searched.find) for _ in range(9)]
        with pytest.raises(TooEarly):
            searched.find(RecordFilter(key=b"k"))
        go_on.set()
        assert [each.result() for each in (first, *others)] == [[b"1"]] * 10
    assert count == 1


def test_a_search_that_fails_is_made_again(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> FoundRecords:
        raise StorageUnavailableError("no answer")

    searched.append(b"1")
    with monkeypatch.context() as broken:
        broken.setattr(shared_searches, "search", fail)
        with pytest.raises(StorageUnavailableError):
            searched.find()
    searched.clock.advance(LIVE_SECONDS)
    assert searched.find() == [b"1"]


def test_no_more_is_kept_than_the_bounds_allow(searched: Searched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_searches, "MAX_KEPT_BYTES", 1000)
    searched.append(b"x" * 500)
    for _ in range(2):
        searched.find(is_live=False)
    assert searched.count == 1
    searched.append(b"x" * 500)
    for _ in range(2):
        searched.find(is_live=False)
    assert searched.count == 3


def test_a_live_page_that_has_to_wait_says_so_and_is_asked_for_again(searched: Searched) -> None:
    searched.append(b"1")
    with serving(searched.cluster, clock=searched.clock) as web:
        assert "r0-0" in web.get("/log/topics/orders/records?live=on").text
        answer = web.get("/log/topics/orders/records?live=on&key=k")
        assert (answer.status, answer.headers["refresh"]) == (200, "2")
        assert "r0-0" in web.get("/log/topics/orders/records?key=k").text


def test_only_the_newest_records_are_live(searched: Searched) -> None:
    searched.append(b"1")
    with serving(searched.cluster, clock=searched.clock) as web:
        tail = web.get("/log/topics/orders/records?key=k").text
        assert 'data-live="/log/topics/orders/records?key=k&amp;live=on"' in tail
        assert "http-equiv" not in tail
        live = web.get("/log/topics/orders/records?key=k&live=on").text
        assert '<noscript><meta http-equiv="refresh" content="3"></noscript>' in live
        assert "live=on" not in live.partition("download")[2].replace("data-live", "")
        for path in ("records?from=start&live=on", "records?from=end&at=1&live=on", "records/0/0"):
            text = web.get(f"/log/topics/orders/{path}").text
            assert "data-still" in text
            assert "http-equiv" not in text
